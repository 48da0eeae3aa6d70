/* Meter and AQM as the Tofino version has them, with its tables and registers: cctoolkit.aqm.TofinoAbc. Registers of
   pairs are two here; what a stateful ALU does in one go stands together; what the Tofino tells its ingress by a packet is
   written to the register at once. */

/* What the egress tells the ingress */
register<bit<32>, bit<32>>(PORTS) departed; /* number of the packet that left last */
register<bit<32>, bit<32>>(PORTS) average; /* activity, 16 bits after the point */

/* One of the registers that take turns, an epoch each: the sum of what the epoch has added, and the cycle it was begun
   in. One begun in no epoch that counts adds nothing. */
#define USE_SLOT(NAME, SLOT, INDEX, INCREMENT, LOST_BITS) \
    NAME##_##SLOT##_cycle.read(begun, INDEX); \
    NAME##_##SLOT##_sum.read(sum, INDEX); \
    wanted = cycle; \
    if (SLOT > slot) { \
        wanted = cycle_before; \
    } \
    if (SLOT == slot) { \
        if (begun != wanted) { \
            sum = 0; \
        } \
        sum = sum |+| INCREMENT; \
        begun = wanted; \
        NAME##_##SLOT##_sum.write(INDEX, sum); \
        NAME##_##SLOT##_cycle.write(INDEX, begun); \
    } \
    if (begun == wanted) { \
        total = total |+| (sum >> ((bit<8>) (slot - SLOT) * LOST_BITS)); \
    }

/* Section 3.2 of the paper, with forward decay */
control ActivityMeter(
    in headers_t hdr,
    in bit<64> now_ns,
    in bit<64> frame_bytes,
    in aggregate_t aggregate,
    in int<32> offset,
    out int<32> activity) {
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) first; /* in fine steps, 2^8 ns */
    register<bit<1>, bit<32>>(AGGREGATE_ENTRIES) mature;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_0_sum;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_0_cycle;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_1_sum;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_1_cycle;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_2_sum;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_2_cycle;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_3_sum;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_3_cycle;

    bit<32> exponent = 0;
    bit<32> increment = 0;
    bit<32> within; /* half-lives since the epoch began, 16 bits after the point */
    bit<2> slot;
    bit<32> cycle;
    bit<32> cycle_before;
    bit<32> wanted;
    bit<32> begun;
    bit<32> sum;
    bit<32> total = 0;
    int<32> log_sum = 0;
    bit<32> fine;
    bit<32> started;
    bit<32> running;
    bit<1> is_mature;
    int<32> young = 0;

    action length(bit<32> log_q12) {
        exponent = log_q12;
    }

    table length_logarithms {
        key = {
            hdr.ipv4.total_bytes: lpm @name("length_bytes");
        }
        actions = {
            length;
            NoAction;
        }
        const default_action = NoAction();
        size = LENGTH_ENTRIES;
    }

    table length_logarithms_ipv6 {
        key = {
            hdr.ipv6.payload_bytes: lpm @name("length_bytes");
        }
        actions = {
            length;
            NoAction;
        }
        const default_action = NoAction();
        size = LENGTH_ENTRIES;
    }

    action weigh(bit<32> units) {
        increment = units;
    }

    table weighted_lengths {
        key = {
            exponent[16:4]: exact @name("exponent");
        }
        actions = {
            weigh;
            NoAction;
        }
        const default_action = NoAction();
        size = WEIGHTED_ENTRIES;
    }

    action logarithm(int<32> log_q16) {
        log_sum = log_q16;
    }

    table logarithms {
        key = {
            total: lpm @name("sum");
        }
        actions = {
            logarithm;
            NoAction;
        }
        const default_action = NoAction();
        size = LOGARITHM_ENTRIES;
    }

    action rejuvenate(int<32> log_q16) {
        young = log_q16;
    }

    table young_logarithms {
        key = {
            running: lpm @name("age");
        }
        actions = {
            rejuvenate;
            NoAction;
        }
        const default_action = NoAction();
        size = YOUNG_ENTRIES;
    }

    apply {
        within = (bit<32>) now_ns[METER_HALF_LIFE_SHIFT + 1:METER_HALF_LIFE_SHIFT - 15] << 1;
        slot = now_ns[METER_HALF_LIFE_SHIFT + 3:METER_HALF_LIFE_SHIFT + 2];
        cycle = (bit<32>) now_ns[47:METER_HALF_LIFE_SHIFT + 4];
        cycle_before = (bit<32>) (now_ns[47:METER_HALF_LIFE_SHIFT + 4] - 1);
        fine = now_ns[METER_HALF_LIFE_SHIFT + 8:METER_HALF_LIFE_SHIFT - 23];

        /* The length's logarithm and the time's weight, one sum; then both at once */
        if (hdr.ipv4.isValid()) {
            length_logarithms.apply();
        } else {
            length_logarithms_ipv6.apply();
        }
        exponent = exponent + (within >> 4);
        weighted_lengths.apply();

        first.read(started, aggregate);
        if (started == 0) {
            started = fine;
            first.write(aggregate, started);
        }
        running = fine - started;
        mature.read(is_mature, aggregate);
        if (running[31:MATURE_SHIFT] != 0) {
            is_mature = 1;
            mature.write(aggregate, is_mature);
        }
        if (is_mature == 0) {
            young_logarithms.apply();
        }

        USE_SLOT(volume, 0, aggregate, increment, 4)
        USE_SLOT(volume, 1, aggregate, increment, 4)
        USE_SLOT(volume, 2, aggregate, increment, 4)
        USE_SLOT(volume, 3, aggregate, increment, 4)
        logarithms.apply();
        activity = log_sum + offset - (int<32>) within - young;
    }
}

/* Section 3.3 of the paper. Packets without an activity are numbered, too: they wait with the others. */
control ActivityAqm(
    in headers_t hdr,
    inout metadata_t meta,
    in bit<64> now_ns,
    in bit<32> out_port,
    in int<32> activity,
    out bool accepted,
    out bit<64> detail) {
    register<bit<32>, bit<32>>(PORTS) accepted_number; /* of the packet accepted last */

    bit<32> average_q16;
    bit<32> last_departed;
    bit<32> last_accepted;
    bit<32> threshold = 0;

    action manage(bit<8> profile) {
        meta.managed = 1;
        meta.profile = profile;
    }

    table managed_ports {
        key = {
            out_port: exact @name("port");
        }
        actions = {
            manage;
            NoAction;
        }
        const default_action = NoAction();
        size = 512;
    }

    action limit(bit<32> packets) {
        threshold = packets;
    }

    /* Equation (2), in whole packets and within the buffer */
    table thresholds {
        key = {
            meta.profile: exact @name("profile");
            (bit<32>) meta.excess: lpm @name("excess");
        }
        actions = {
            limit;
            NoAction;
        }
        const default_action = NoAction();
        size = THRESHOLD_ENTRIES;
    }

    apply {
        accepted = true;
        managed_ports.apply();
        if (meta.managed == 1 && meta.arrives == 1) {
            average.read(average_q16, out_port);
            departed.read(last_departed, out_port);
            accepted_number.read(last_accepted, out_port);
            if (meta.labelled == 1) {
                meta.excess = activity - (int<32>) average_q16;
                thresholds.apply();
                accepted = (int<32>) (last_accepted - (last_departed + threshold)) <= 0;
            }
            if (accepted) {
                meta.number = last_accepted + 1;
                accepted_number.write(out_port, meta.number);
            }
        }
        detail = meta.number ++ (bit<32>) meta.excess;
    }
}

/* At the egress: the average of the activities of packets that leave */
control Departure(
    inout headers_t hdr,
    inout metadata_t meta,
    in bit<64> now_ns,
    in standard_metadata_t standard_metadata) {
    register<bit<32>, bit<32>>(PORTS) count_0_sum;
    register<bit<32>, bit<32>>(PORTS) count_0_cycle;
    register<bit<32>, bit<32>>(PORTS) count_1_sum;
    register<bit<32>, bit<32>>(PORTS) count_1_cycle;
    register<bit<32>, bit<32>>(PORTS) count_2_sum;
    register<bit<32>, bit<32>>(PORTS) count_2_cycle;
    register<bit<32>, bit<32>>(PORTS) count_3_sum;
    register<bit<32>, bit<32>>(PORTS) count_3_cycle;
    register<bit<32>, bit<32>>(PORTS) average_q24;

    bit<32> port;
    bit<32> value;
    bit<2> slot;
    bit<32> cycle;
    bit<32> cycle_before;
    bit<32> wanted;
    bit<32> begun;
    bit<32> sum;
    bit<32> total = 0;
    bit<9> log_count = 0;
    int<32> excess;
    int<32> part = 0;
    int<32> rest = 0;
    bit<8> halvings = 0;

    action logarithm(bit<9> log_q3) {
        log_count = log_q3;
    }

    table count_logarithms {
        key = {
            total: lpm @name("sum");
        }
        actions = {
            logarithm;
            NoAction;
        }
        const default_action = NoAction();
        size = LOGARITHM_ENTRIES;
    }

    /* An excess is divided by 2^shift; the gain is that, or that and a half, a quarter or an eighth of it more */
    GAIN_ACTIONS

    table gains {
        key = {
            meta.profile: exact @name("profile");
            log_count: exact @name("log_count");
        }
        actions = {
            GAIN_NAMES
            NoAction;
        }
        const default_action = NoAction();
        size = GAIN_ENTRIES;
    }

    apply {
        port = (bit<32>) standard_metadata.egress_port;
#ifdef TEST_INPUT
        if (meta.arrives == 0) {
            meta.labelled = 1;
            meta.number = hdr.test.queue_depth;
            meta.excess = (int<32>) hdr.test.random;
        }
#endif
        average_q24.read(value, port);
        if (meta.labelled == 1) {
            slot = now_ns[AVERAGE_HALF_LIFE_SHIFT + 1:AVERAGE_HALF_LIFE_SHIFT];
            cycle = (bit<32>) now_ns[47:AVERAGE_HALF_LIFE_SHIFT + 2];
            cycle_before = (bit<32>) (now_ns[47:AVERAGE_HALF_LIFE_SHIFT + 2] - 1);
            USE_SLOT(count, 0, port, 1, 1)
            USE_SLOT(count, 1, port, 1, 1)
            USE_SLOT(count, 2, port, 1, 1)
            USE_SLOT(count, 3, port, 1, 1)
            count_logarithms.apply();
            log_count = log_count - (bit<9>) now_ns[AVERAGE_HALF_LIFE_SHIFT - 1:AVERAGE_HALF_LIFE_SHIFT - 3];
            excess = meta.excess;
            gains.apply();
            if (halvings != 0) {
                rest = part >> halvings;
            }
            value = value + (bit<32>) part + (bit<32>) rest;
            average_q24.write(port, value);
            average.write(port, (bit<32>) ((int<32>) value >> 8));
        }
        departed.write(port, meta.number);
#ifdef TEST_INPUT
        if (meta.arrives == 0) {
            hdr.test.value = (bit<64>) (int<64>) (int<32>) value;
        }
#endif
    }
}

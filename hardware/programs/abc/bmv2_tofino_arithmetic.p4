/* Meter and AQM of the Tofino version, with its tables and registers: cctoolkit.aqm.TofinoAbc. A register of
   pairs is two registers here, the steps of one stateful ALU stand together, and what the Tofino's egress
   sends its ingress in a notification is written to the register directly. */

/* From egress to ingress */
register<bit<32>, bit<32>>(PORTS) departed; /* number of the last packet that left */
register<bit<32>, bit<32>>(PORTS) average; /* activity, 16 fractional bits */

/* One of two registers that take turns, one epoch each: the sum added in its epoch, and the cycle of two
   epochs in which that was. A register from another cycle counts as 0. */
#define USE_SLOT(NAME, SLOT, INDEX, INCREMENT, LOST_BITS) \
    NAME##_##SLOT##_cycle.read(begun, INDEX); \
    NAME##_##SLOT##_sum.read(sum, INDEX); \
    if (begun != cycle_##SLOT) { \
        sum = 0; \
    } \
    if (epoch_parity == SLOT) { \
        sum = sum |+| INCREMENT; \
        NAME##_##SLOT##_sum.write(INDEX, sum); \
        NAME##_##SLOT##_cycle.write(INDEX, cycle_##SLOT); \
    } else { \
        sum = sum >> LOST_BITS; \
    } \
    total = total |+| sum;

/* Section 3.2 of the paper, with forward decay */
control ActivityMeter(
    in headers_t hdr,
    in bit<64> now_ns,
    in bit<64> frame_bytes,
    in aggregate_t aggregate,
    in int<32> offset,
    out int<32> activity) {
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) first_time; /* in 2^16 ns */
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) first_known;
    register<bit<8>, bit<32>>(AGGREGATE_ENTRIES) mature;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_0_sum;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_0_cycle;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_1_sum;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) volume_1_cycle;

    bit<32> exponent = 0;
    bit<32> increment = 0;
    bit<32> within; /* half-lives since the epoch began, 16 fractional bits */
    bit<32> coarse; /* bits 47 to 16 of the clock */
    bit<1> epoch_parity;
    bit<32> cycle_0;
    bit<32> cycle_1;
    bit<32> begun;
    bit<32> sum;
    bit<32> total = 0;
    int<32> log_sum = 0;
    bit<32> known;
    bit<32> started;
    bit<32> age;
    bit<8> is_mature;
    int<32> missing = 0;

    action length(bit<32> log_q15) {
        exponent = log_q15;
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
            exponent[19:7]: exact @name("exponent");
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

    action rejuvenate(int<32> missing_q16) {
        missing = missing_q16;
    }

    table young_logarithms {
        key = {
            age: lpm;
        }
        actions = {
            rejuvenate;
            NoAction;
        }
        const default_action = NoAction();
        size = YOUNG_ENTRIES;
    }

    apply {
        coarse = now_ns[47:16];
        within = (bit<32>) (coarse[METER_EPOCH_SHIFT - 17:0] ++ 1w0);
        epoch_parity = now_ns[METER_EPOCH_SHIFT:METER_EPOCH_SHIFT];
        cycle_0 = coarse >> METER_EPOCH_SHIFT - 15;
        cycle_1 = (coarse - (1 << METER_EPOCH_SHIFT - 16)) >> METER_EPOCH_SHIFT - 15;

        /* Add the length's logarithm and the time's weight, then look up 2^(the sum) */
        if (hdr.ipv4.isValid()) {
            length_logarithms.apply();
        } else {
            length_logarithms_ipv6.apply();
        }
        exponent = exponent + (within >> 1);
        weighted_lengths.apply();

        first_time.read(started, aggregate);
        first_known.read(known, aggregate);
        if (known == 0) {
            started = coarse;
            first_time.write(aggregate, started);
            first_known.write(aggregate, 1);
        }
        age = coarse - started;
        mature.read(is_mature, aggregate);
        if (age[31:MATURE_SHIFT] != 0) {
            is_mature = 1;
            mature.write(aggregate, is_mature);
        }
        if (is_mature == 0) {
            young_logarithms.apply();
        }

        USE_SLOT(volume, 0, aggregate, increment, METER_LOST_BITS)
        USE_SLOT(volume, 1, aggregate, increment, METER_LOST_BITS)
        logarithms.apply();
        activity = log_sum + offset - (int<32>) within + missing;
    }
}

/* Section 3.3 of the paper. Packets without an activity are numbered too, because they share the queue. */
control ActivityAqm(
    in headers_t hdr,
    inout metadata_t meta,
    in bit<64> now_ns,
    in bit<32> out_port,
    in int<32> activity,
    out bool accepted,
    out bit<64> detail) {
    register<bit<32>, bit<32>>(PORTS) accepted_number; /* of the last accepted packet */

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

    /* Equation (2), in whole packets, limited to the buffer */
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

/* At egress: the average activity of departing packets */
control Departure(
    inout headers_t hdr,
    inout metadata_t meta,
    in bit<64> now_ns,
    in standard_metadata_t standard_metadata) {
    register<bit<32>, bit<32>>(PORTS) count_0_sum;
    register<bit<32>, bit<32>>(PORTS) count_0_cycle;
    register<bit<32>, bit<32>>(PORTS) count_1_sum;
    register<bit<32>, bit<32>>(PORTS) count_1_cycle;
    register<bit<32>, bit<32>>(PORTS) average_q24;

    bit<32> port;
    bit<32> value;
    bit<32> coarse; /* bits 47 to 16 of the clock */
    bit<1> epoch_parity;
    bit<32> cycle_0;
    bit<32> cycle_1;
    bit<32> begun;
    bit<32> sum;
    bit<32> total = 0;
    bit<16> log_count = 0;
    int<32> rest = 0;

    action logarithm(bit<16> log_q3) {
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

    /* The excess is divided by 2^shift; the gain is that, plus optionally a half, a quarter or an eighth of
       it */
    GAIN_ACTIONS

    table gains {
        key = {
            meta.profile: exact @name("profile");
            log_count[8:0]: exact @name("log_count");
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
            coarse = now_ns[47:16];
            epoch_parity = now_ns[AVERAGE_EPOCH_SHIFT:AVERAGE_EPOCH_SHIFT];
            cycle_0 = coarse >> AVERAGE_EPOCH_SHIFT - 15;
            cycle_1 = (coarse - (1 << AVERAGE_EPOCH_SHIFT - 16)) >> AVERAGE_EPOCH_SHIFT - 15;
            USE_SLOT(count, 0, port, 1, 0)
            USE_SLOT(count, 1, port, 1, 0)
            count_logarithms.apply();
            log_count = log_count - (bit<16>) now_ns[AVERAGE_EPOCH_SHIFT - 1:AVERAGE_EPOCH_SHIFT - 3];
            gains.apply();
            if (meta.halvings != 0) {
                rest = meta.part >> meta.halvings;
            }
            value = value + (bit<32>) meta.part + (bit<32>) rest;
            average_q24.write(port, value);
            average.write(port, (bit<32>) ((int<32>) value >> 8));
        }
        departed.write(port, meta.number);
#ifdef TEST_INPUT
        if (meta.arrives == 0) {
            hdr.test.value = value;
        }
#endif
    }
}

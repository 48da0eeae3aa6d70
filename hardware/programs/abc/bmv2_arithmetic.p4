/* Meter and AQM in 64-bit integers: cctoolkit.aqm.IntegerAbc. Decay advances in steps of 1/1024 half-life; a
   remainder is carried over. Division is multiplication by a power of two. */

/* Section 5.1 of the paper: only the egress knows a port's queue length. Each departing packet writes it
   here, and each accepted packet adds itself. */
register<bit<32>, bit<32>>(PORTS) queue_depth;

/* The model's tables, written by the control plane. They are registers because a packet looks them up as
   often as three times, and a match table can be applied only once. */
register<bit<32>, bit<32>>(TABLE_ENTRIES) powers; /* 2^-x, 20 fractional bits */
register<bit<32>, bit<32>>(TABLE_ENTRIES) logarithms; /* log2(1 + x), 16 fractional bits */
register<bit<32>, bit<32>>(START_ENTRIES) young_logarithms; /* correction for a young meter, 16 fractional bits */

const bit<64> TABLE_MASK = (bit<64>) (TABLE_ENTRIES - 1);
const bit<64> SHIFT_LIMIT = 62; /* beyond this, nothing is left */
const bit<64> POWER_BITS = 20; /* fractional bits of powers */
const bit<8> VOLUME_BITS = 6; /* fractional bits of a byte count */

control LeadingOne(in bit<64> x, out bit<8> at) {
    action found(bit<8> position) {
        at = position;
    }

    table leading_one {
        key = {
            x: lpm;
        }
        actions = {
            found;
        }
        const default_action = found(0);
        const entries = {
            LEADING_ONE_ENTRIES
        }
    }

    apply {
        at = 0;
        leading_one.apply();
    }
}

/* log2(x) for x > 0, 16 fractional bits */
control Logarithm(in bit<64> x, out bit<32> result) {
    LeadingOne() leading_one;
    bit<8> at;
    bit<32> mantissa;

    apply {
        leading_one.apply(x, at);
        logarithms.read(mantissa, (bit<32>) (((x << TABLE_BITS) >> at) & TABLE_MASK));
        result = ((bit<32>) at << 16) + mantissa;
    }
}

/* Whole steps in an elapsed time, at most 64 half-lives: division as multiplication by the reciprocal */
control Steps(in bit<64> elapsed_ns, in bit<64> step_ns, in bit<64> reciprocal, out bit<64> steps) {
    bit<64> counted_ns;

    apply {
        counted_ns = elapsed_ns;
        if (counted_ns > (step_ns << (TABLE_BITS + 6))) {
            counted_ns = step_ns << (TABLE_BITS + 6);
        }
        steps = (counted_ns * reciprocal) >> 40;
    }
}

/* Decay of x over a number of steps */
control Decay(inout int<64> x, in bit<64> steps) {
    bit<64> shift;
    bit<32> power;

    apply {
        shift = POWER_BITS + (steps >> TABLE_BITS);
        if (shift > SHIFT_LIMIT) {
            x = 0;
        } else {
            powers.read(power, (bit<32>) (steps & TABLE_MASK));
            x = (x * (int<64>) (bit<64>) power + (int<64>) (64w1 << (bit<8>) (shift - 1))) >> (bit<8>) shift;
        }
    }
}

/* Section 3.2 of the paper: TDRM-UTEMA, and log2(rate / reference rate) */
control ActivityMeter(
    in headers_t hdr,
    in bit<64> now_ns,
    in bit<64> frame_bytes,
    in aggregate_t aggregate,
    in int<32> offset,
    out int<32> activity) {
    register<bit<1>, bit<32>>(AGGREGATE_ENTRIES) started;
    register<bit<64>, bit<32>>(AGGREGATE_ENTRIES) first_ns;
    register<bit<64>, bit<32>>(AGGREGATE_ENTRIES) last_ns;
    register<bit<64>, bit<32>>(AGGREGATE_ENTRIES) volume;

    Steps() steps_since;
    Decay() decay;
    Logarithm() logarithm;
    LeadingOne() leading_one;

    bit<1> before;
    bit<64> t0_ns;
    bit<64> decayed_ns;
    bit<64> stored;
    int<64> sum;
    bit<64> steps;
    bit<32> log_sum;
    bit<64> running;
    bit<8> at;
    bit<32> young;

    apply {
        started.read(before, aggregate);
        first_ns.read(t0_ns, aggregate);
        last_ns.read(decayed_ns, aggregate);
        volume.read(stored, aggregate);
        if (before == 0) {
            started.write(aggregate, 1);
            first_ns.write(aggregate, now_ns);
            t0_ns = now_ns;
            decayed_ns = now_ns;
        }
        sum = (int<64>) stored;
        steps_since.apply(now_ns - decayed_ns, METER_STEP_NS, METER_RECIPROCAL_STEPS, steps);
        if (steps > 0) {
            decay.apply(sum, steps);
            if (steps > GONE_STEPS) {
                decayed_ns = now_ns;
            } else {
                decayed_ns = decayed_ns + steps * METER_STEP_NS;
            }
        }
        stored = (bit<64>) sum + (frame_bytes << VOLUME_BITS);
        volume.write(aggregate, stored);
        last_ns.write(aggregate, decayed_ns);
        logarithm.apply(stored, log_sum);
        activity = (int<32>) log_sum + offset;
        running = (now_ns - t0_ns) >> 4; /* in 16 ns; at 0 there is no time to divide by */
        if (running > 0) {
            leading_one.apply(running, at);
            young_logarithms.read(
                young,
                ((bit<32>) at << START_BITS) + (bit<32>) (((running << START_BITS) >> at) & 63));
            activity = activity + (int<32>) young;
        }
    }
}

/* Section 3.3 of the paper: may a packet with this activity join the queue? */
control ActivityAqm(
    in headers_t hdr,
    inout metadata_t meta,
    in bit<64> now_ns,
    in bit<32> out_port,
    in int<32> activity,
    out bool accepted,
    out bit<64> detail) {
    register<bit<64>, bit<32>>(PORTS) activity_sum;
    register<bit<64>, bit<32>>(PORTS) activity_count;
    register<bit<64>, bit<32>>(PORTS) averaged_ns;

    Steps() steps_since;
    Decay() decay_sum;
    Decay() decay_count;
    Logarithm() logarithm;

    int<64> min = 0;
    int<64> base = 0;
    int<64> slope = 0;
    bit<32> depth_packets;
    bit<64> stored_sum;
    bit<64> stored_count;
    bit<64> decayed_ns;
    int<64> sum;
    int<64> count;
    bit<64> steps;
    bit<32> log_count;
    bit<32> power;
    int<64> average;
    int<64> threshold = 0;

    /* Q_min and Q_base with 16 fractional bits, and gamma */
    action manage(bit<64> min_q16, bit<64> base_q16, bit<64> gamma) {
        meta.managed = 1;
        min = (int<64>) min_q16;
        base = (int<64>) base_q16;
        slope = (int<64>) gamma;
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

    action join_queue() {
        queue_depth.read(depth_packets, out_port);
        queue_depth.write(out_port, depth_packets + 1);
    }

    apply {
        accepted = true;
        managed_ports.apply();
        if (meta.managed == 1 && meta.arrives == 1) {
            if (meta.labelled == 1) {
                activity_sum.read(stored_sum, out_port);
                activity_count.read(stored_count, out_port);
                averaged_ns.read(decayed_ns, out_port);
                sum = (int<64>) stored_sum;
                count = (int<64>) stored_count;
                steps_since.apply(now_ns - decayed_ns, AVERAGE_STEP_NS, AVERAGE_RECIPROCAL_STEPS, steps);
                if (steps > 0) {
                    decay_sum.apply(sum, steps);
                    decay_count.apply(count, steps);
                    if (steps > GONE_STEPS) {
                        decayed_ns = now_ns;
                    } else {
                        decayed_ns = decayed_ns + steps * AVERAGE_STEP_NS;
                    }
                }
                average = (int<64>) activity;
                if (count > 0) {
                    /* sum / count as sum · 2^-log2(count) */
                    logarithm.apply((bit<64>) count, log_count);
                    powers.read(power, (log_count & 0xffff) >> (16 - TABLE_BITS));
                    average = (sum * (int<64>) (bit<64>) power) >> ((bit<8>) (log_count >> 16) + 4);
                }
                threshold = base - slope * ((int<64>) activity - average);
                if (threshold < min) {
                    threshold = min;
                }
#ifdef TEST_INPUT
                depth_packets = hdr.test.queue_depth;
#else
                queue_depth.read(depth_packets, out_port);
#endif
                accepted = (int<64>) ((bit<64>) depth_packets << 16) <= threshold;
                if (accepted) {
                    sum = sum + (int<64>) activity;
                    count = count + (64s1 << 16);
                }
                activity_sum.write(out_port, (bit<64>) sum);
                activity_count.write(out_port, (bit<64>) count);
                averaged_ns.write(out_port, decayed_ns);
            }
            if (accepted) {
                join_queue();
            }
        }
        detail = (bit<64>) threshold;
    }
}

control Departure(
    inout headers_t hdr,
    in metadata_t meta,
    in bit<64> now_ns,
    in standard_metadata_t standard_metadata) {
    apply {
        queue_depth.write((bit<32>) standard_metadata.egress_port, (bit<32>) standard_metadata.deq_qdepth);
    }
}

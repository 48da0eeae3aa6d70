/* Listing 1 of the paper, with "if_3", which a Tofino's stateful ALU has no room for. BMv2 may access several
   registers in any order. Included by bmv2.p4 with -DLISTING_1. See README.md. */

typedef bit<64> time_t;

/* Should a departing packet be signalled? Time and queue are parameters. */
control Codel(
    in time_t now_ns,
    in bit<32> delay_ns,
    in bit<19> depth_packets,
    in state_t index,
    out bool signal) {
    register<bit<8>, state_t>(STATE_ENTRIES) dropping;
    register<bit<32>, state_t>(STATE_ENTRIES) count;
    register<bit<32>, state_t>(STATE_ENTRIES) last_count;
    register<bit<64>, state_t>(STATE_ENTRIES) drop_next_ns;

    bit<32> drops;
    bit<32> last;
    bit<64> next_ns;
    bit<64> gap_ns = 0;
    bit<8> was_dropping;
    bool proceed = false;

    action root(bit<64> value_ns) {
        gap_ns = value_ns;
    }

    /* INTERVAL / sqrt(drops) */
    table roots {
        key = {
            drops: lpm;
        }
        actions = {
            root;
        }
        const default_action = root(0);
        const entries = {
            ROOT_ENTRIES
        }
    }

    apply {
        signal = false;
        dropping.read(was_dropping, index);
        if (delay_ns < TARGET_NS || depth_packets < MTU_PACKETS) { /* if_1 */
            dropping.write(index, 0);
        } else {
            count.read(drops, index);
            drop_next_ns.read(next_ns, index);
            if (was_dropping == 0) { /* if_2 */
                last_count.read(last, index);
                last_count.write(index, drops);
                if ((int<32>) (drops - last) > 1 && (int<64>) (now_ns - next_ns) < (int<64>) RESUME_NS) { /* if_3 */
                    drops = drops - last;
                } else {
                    drops = 1;
                }
                dropping.write(index, 1);
                proceed = true;
            } else if ((int<64>) (now_ns - next_ns) >= 0) { /* if_4 */
                drops = drops + 1;
                signal = true;
                proceed = true;
            }
            if (proceed) {
                roots.apply();
                count.write(index, drops);
                drop_next_ns.write(index, now_ns + gap_ns);
            }
        }
    }
}

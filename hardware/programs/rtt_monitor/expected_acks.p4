/* The tables for the data of one direction, for both targets: two instances of the version's Stage. */

control ExpectedAcks(inout pairing_t set, in bit<32> now_ns, in bit<32> now_steps) {
    Stage() stage_0;
    Stage() stage_1;

    action subtract() {
        set.rtt_ns = now_ns - set.stamp_ns;
    }

    /* Tables instead of plain statements keep a condition out of the stage that computes it */
    table difference {
        actions = {
            subtract;
        }
        const default_action = subtract();
        size = 1;
    }

    action keep() {
        set.is_sample = 1;
    }

    /* Time 0 means no time; a negative RTT means that the clock was set back */
    table sign {
        key = {
            set.stamp_ns: ternary;
            set.rtt_ns[31:31]: ternary @name("negative");
        }
        actions = {
            keep;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, _): NoAction();
            (_, 0): keep();
        }
        SIZE(2)
    }

    apply {
        stage_0.apply(set.role, set.signature, set.place_0, set.none, now_ns, now_steps,
            set.outcome_0, set.stamp_ns);
        stage_1.apply(set.role, set.signature, set.place_1, set.outcome_0, now_ns, now_steps,
            set.outcome_1, set.stamp_ns);
        difference.apply();
        sign.apply();
    }
}

/* What is stored for one direction of a flow, for both targets.

   To be included in a control after the actions on its registers: "bytes", tapped before the queue and behind
   it, and "rtt", the smallest and the latest. */

    table count {
        key = {
            is_own: exact;
            is_new: exact;
            tap: exact;
        }
        actions = {
            start_bytes;
            offer;
            deliver;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, BEFORE_QUEUE): start_bytes();
            (1, 0, BEFORE_QUEUE): offer();
            (1, 0, BEHIND_QUEUE): deliver();
        }
        SIZE(3)
    }

    /* The packet with which a flow takes over a slot clears it; that packet's sample is not stored here */
    table measure {
        key = {
            is_own: exact;
            is_new: exact;
            set.is_sample: exact;
        }
        actions = {
            start_rtt;
            keep_rtt;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, 0): start_rtt();
            (1, 1, 1): start_rtt();
            (1, 0, 1): keep_rtt();
        }
        SIZE(3)
    }

    apply {
        count.apply();
        measure.apply();
    }

/* Which flow owns a slot, for both targets.

   To be included in a control after the actions on its register "owner". The two outcomes: the slot is this
   flow's; no long flow holds it. */

    action old_flow() {
        meta.is_own = 1;
    }

    action new_flow() {
        meta.is_own = 1;
        meta.is_new = 1;
    }

    action long_flow() {
        meta.is_own = 1;
        meta.became_long = 1;
    }

    action new_long_flow() {
        meta.is_own = 1;
        meta.is_new = 1;
        meta.became_long = 1;
    }

    table take {
        key = {
            meta.slot_role: exact;
        }
        actions = {
            check;
            open;
            hold;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            CHECK: check();
            OPEN: open();
            HOLD: hold();
        }
        SIZE(3)
    }

    /* A SYN takes a slot unless a long flow holds it. So does a packet that makes its flow long, and it holds
       the slot. */
    table taken {
        key = {
            meta.slot_role: exact;
            meta.slot_outcome: exact;
        }
        actions = {
            old_flow;
            new_flow;
            long_flow;
            new_long_flow;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (CHECK, FIRST_ONLY): old_flow();
            (CHECK, BOTH): old_flow();
            (OPEN, FIRST_ONLY): old_flow();
            (OPEN, SECOND_ONLY): new_flow();
            (OPEN, BOTH): old_flow();
            (HOLD, FIRST_ONLY): old_flow();
            (HOLD, SECOND_ONLY): new_long_flow();
            (HOLD, BOTH): long_flow();
        }
        SIZE(8)
    }

    apply {
        take.apply();
        taken.apply();
    }

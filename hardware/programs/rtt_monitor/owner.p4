/* Whose a slot is, for both targets.

   Included in a control with the actions on its register "owner" before it. Outcomes: the slot is this flow's, and no
   long flow holds it. */

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

    /* A SYN takes a slot that no long flow holds; so does a packet that makes its flow long, and holds it */
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

/* One stage of a table of expected ACKs, for both targets: cctoolkit.DataPlaneTables with two stages.

   To be included in a control after the actions on its registers: "expected", where a segment's signature
   waits, and "stamps", the time the segment passed, or 0 once it was retransmitted. "before" is the first
   stage's outcome. The two outcomes: the entry has the signature; the entry has expired (an empty entry
   always has). */

    /* A segment that was inserted or voided in the first stage still voids its older copy in the second. An
       ACK that found its entry, even an expired one, stops there. */
    table enter {
        key = {
            role: exact;
            before: exact;
        }
        actions = {
            put_in;
            compare;
            look_up;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (PUT_IN, NOT_ASKED): put_in();
            (PUT_IN, NEITHER): put_in();
            (PUT_IN, FIRST_ONLY): compare();
            (PUT_IN, SECOND_ONLY): compare();
            (PUT_IN, BOTH): compare();
            (LOOK_UP, NOT_ASKED): look_up();
            (LOOK_UP, NEITHER): look_up();
            (LOOK_UP, SECOND_ONLY): look_up();
        }
        SIZE(8)
    }

    table stamp {
        key = {
            role: exact;
            before: exact;
            outcome: exact;
        }
        actions = {
            write;
            clear;
            read;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (PUT_IN, NOT_ASKED, SECOND_ONLY): write();
            (PUT_IN, NOT_ASKED, BOTH): write();
            (PUT_IN, NEITHER, SECOND_ONLY): write();
            (PUT_IN, NEITHER, BOTH): write();
            (PUT_IN, NOT_ASKED, FIRST_ONLY): clear();
            (PUT_IN, NEITHER, FIRST_ONLY): clear();
            (PUT_IN, FIRST_ONLY, FIRST_ONLY): clear();
            (PUT_IN, SECOND_ONLY, FIRST_ONLY): clear();
            (PUT_IN, BOTH, FIRST_ONLY): clear();
            (LOOK_UP, NOT_ASKED, FIRST_ONLY): read();
            (LOOK_UP, NEITHER, FIRST_ONLY): read();
            (LOOK_UP, SECOND_ONLY, FIRST_ONLY): read();
        }
        SIZE(12)
    }

    apply {
        enter.apply();
        stamp.apply();
    }

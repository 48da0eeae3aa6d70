/* The ingress control's tables and actions without registers, for both targets. INGRESS_PORT is the packet's
   port; TOLD is set to the digest to send. */

    action tap(tap_t side) {
        meta.tap = side;
    }

    /* Which ports belong to a tap; a tap may have one per fibre */
    table taps {
        key = {
            INGRESS_PORT: exact @name("port");
        }
        actions = {
            tap;
        }
        const default_action = tap(NO_TAP);
        size = 512;
    }

    action no_flow() {
        meta.tap = NO_TAP;
    }

    action less_headers(bit<32> add) {
        meta.is_segment = 1;
        meta.segment_bytes = add;
        meta.expected_ack = hdr.tcp.seq + add;
    }

    /* The difference between a segment's length and its packet's. The packet's length is added later, because
       each step can do only one addition. */
    table segment {
        key = {
            hdr.ipv4.isValid(): exact @name("is_ipv4");
            hdr.tcp.header_words: exact @name("header_words");
            hdr.tcp.flags[1:1]: exact @name("syn");
            hdr.tcp.flags[0:0]: exact @name("fin");
        }
        actions = {
            less_headers;
            @defaultonly NoAction; /* a header of fewer than five words */
        }
        const default_action = NoAction();
        const entries = {
            SEGMENT_ENTRIES
        }
        SIZE(88)
    }

    action of_ipv4() {
        meta.length_bytes = (bit<32>) hdr.ipv4.total_bytes;
        meta.frame_bytes = IPV4_FRAME_BYTES;
        meta.digest = DIGEST_IPV4;
    }

    action of_ipv6() {
        meta.length_bytes = (bit<32>) hdr.ipv6.payload_bytes;
        meta.frame_bytes = IPV6_FRAME_BYTES;
        meta.digest = DIGEST_IPV6;
    }

    action add_length() {
        meta.segment_bytes = meta.segment_bytes + meta.length_bytes;
        meta.expected_ack = meta.expected_ack + meta.length_bytes;
        meta.frame_bytes = meta.frame_bytes + meta.length_bytes;
    }

    action play(role_t data, role_t ack, role_t slot) {
        meta.data_role = data;
        meta.ack_role = ack;
        meta.slot_role = slot;
    }

    /* A packet without flags, or with RST, is not part of a stream */
    table roles {
        key = {
            hdr.tcp.flags: ternary @name("flags");
            meta.segment_bytes: ternary;
        }
        actions = {
            play;
        }
        const default_action = play(NOTHING, NOTHING, CHECK);
        const entries = {
            (0, _): play(NOTHING, NOTHING, CHECK);
            (TCP_RST &&& TCP_RST, _): play(NOTHING, NOTHING, CHECK);
            (TCP_SYN &&& TCP_SYN | TCP_ACK, 0): play(NOTHING, NOTHING, OPEN);
            (TCP_SYN &&& TCP_SYN | TCP_ACK, _): play(PUT_IN, NOTHING, OPEN);
            (TCP_SYN | TCP_ACK &&& TCP_SYN | TCP_ACK, 0): play(NOTHING, LOOK_UP, OPEN);
            (TCP_SYN | TCP_ACK &&& TCP_SYN | TCP_ACK, _): play(PUT_IN, LOOK_UP, OPEN);
            (TCP_ACK &&& TCP_ACK, 0): play(NOTHING, LOOK_UP, CHECK);
            (TCP_ACK &&& TCP_ACK, _): play(PUT_IN, LOOK_UP, CHECK);
            (_, 0): play(NOTHING, NOTHING, CHECK);
            (_, _): play(PUT_IN, NOTHING, CHECK);
        }
        SIZE(10)
    }

    action subtract() {
        meta.difference = meta.own_fid - meta.other_fid;
    }

    table difference {
        actions = {
            subtract;
        }
        const default_action = subtract();
        size = 1;
    }

    /* Insert the segment into one set, look the ACK up in the other */
    action direction_0() {
        meta.direction = 0;
        meta.flow = meta.own_fid;
        meta.bytes_0 = meta.frame_bytes;
        meta.bytes_1 = 0;
        meta.set_0.role = meta.data_role;
        meta.set_0.signature = meta.data_signature;
        meta.set_0.place_0 = meta.data_place;
        meta.set_1.role = meta.ack_role;
        meta.set_1.signature = meta.ack_signature;
        meta.set_1.place_0 = meta.ack_place;
    }

    action direction_1() {
        meta.direction = 1;
        meta.flow = meta.other_fid;
        meta.bytes_0 = 0;
        meta.bytes_1 = meta.frame_bytes;
        meta.set_0.role = meta.ack_role;
        meta.set_0.signature = meta.ack_signature;
        meta.set_0.place_0 = meta.ack_place;
        meta.set_1.role = meta.data_role;
        meta.set_1.signature = meta.data_signature;
        meta.set_1.place_0 = meta.data_place;
    }

    /* The difference is negative in exactly one direction of a flow */
    table directions {
        key = {
            meta.difference[31:31]: exact @name("negative");
        }
        actions = {
            direction_0;
            direction_1;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            0: direction_0();
            1: direction_1();
        }
        SIZE(2)
    }

    action hold_slot() {
        meta.slot_role = HOLD;
    }

    /* A flow is long if all rows of the sketch exceed the limit */
    table long_flows {
        key = {
            meta.over_0: exact;
            meta.over_1: exact;
            meta.over_2: exact;
            meta.over_3: exact;
        }
        actions = {
            hold_slot;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, 1, 1): hold_slot();
        }
        SIZE(1)
    }

    action next_places() {
        meta.set_0.place_1 = meta.set_0.place_0 + meta.set_0.signature[15:0];
        meta.set_1.place_1 = meta.set_1.place_0 + meta.set_1.signature[15:0];
    }

    action want_samples() {
        meta.wants_samples = 1;
    }

    /* Flows for which the control plane gets every sample */
    table samples {
        key = {
            meta.flow: exact @name("flow");
        }
        actions = {
            want_samples;
            NoAction;
        }
        default_action = NoAction();
        size = 1024;
    }

    action tell(bit<8> events) {
        TOLD = meta.digest;
        meta.events = events;
    }

    action tell_rtt_0(bit<8> events) {
        TOLD = meta.digest;
        meta.events = events;
        meta.rtt_ns = meta.set_0.rtt_ns;
    }

    action tell_rtt_1(bit<8> events) {
        TOLD = meta.digest;
        meta.events = events;
        meta.rtt_ns = meta.set_1.rtt_ns;
    }

    table report {
        key = {
            hdr.udp.isValid(): exact @name("is_udp");
            meta.became_long: exact;
            meta.wants_samples: exact;
            meta.set_0.is_sample: exact;
            meta.set_1.is_sample: exact;
        }
        actions = {
            tell;
            tell_rtt_0;
            tell_rtt_1;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (true, 1, 0, 0, 0): tell(BECAME_LONG | IS_UDP);
            (true, 1, 1, 0, 0): tell(BECAME_LONG | IS_UDP);
            (false, 1, 0, 0, 0): tell(BECAME_LONG);
            (false, 1, 0, 0, 1): tell(BECAME_LONG);
            (false, 1, 0, 1, 0): tell(BECAME_LONG);
            (false, 1, 1, 0, 0): tell(BECAME_LONG);
            (false, 1, 1, 1, 0): tell_rtt_0(BECAME_LONG | SAMPLE);
            (false, 1, 1, 0, 1): tell_rtt_1(BECAME_LONG | SAMPLE);
            (false, 0, 1, 1, 0): tell_rtt_0(SAMPLE);
            (false, 0, 1, 0, 1): tell_rtt_1(SAMPLE);
        }
        SIZE(10)
    }

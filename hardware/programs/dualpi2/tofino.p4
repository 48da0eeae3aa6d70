/* Data plane of DualPI2, for Tofino 1 and 2: RFC 9332, appendix A; after Gombos et al., "Active queue
   management on the Tofino programmable switch: the (Dual)PI2 case". See README.md. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "constants.p4"

typedef bit<10> place_t; /* port and queue */

/* From ingress to egress */
header bridge_h {
#if __TARGET_TOFINO__ != 2
    bit<32> arrival_ns; /* deq_timedelta has only 18 bits on a Tofino 1: 262 us */
#else
    bit<8> unused;
#endif
}

struct headers_t {
    bridge_h bridge;
    TEST_HEADERS
    PACKET_HEADERS
}

struct ingress_metadata_t {
    bit<2> ecn;
}

struct egress_metadata_t {
    bit<32> delay_ns;
    bit<32> below_ns; /* step - delay, at least 0 */
    bit<32> lack_cells; /* minimum backlog - backlog, at least 0 */
    bit<32> likelihood; /* of a mark in the L queue */
    bit<32> l_room; /* 1 - likelihood: a sum above this exceeds 1 */
    bit<32> classic;
    bit<32> classic_room;
    bit<2> ecn;
    bit<1> late; /* the delay has reached the step */
    bit<1> overload;
    bit<1> due; /* by the classic sum */
    bit<1> l_due;
    bit<1> marked;
    place_t place;
}

struct signals_t {
    bit<32> marked;
    bit<32> dropped;
}

parser DualPi2IngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic_parser;

    state start {
        meta = {ECN_NOT_ECT};
        intrinsic_parser.apply(packet, ig_intr_md);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

control DualPi2Ingress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_dprsr_md.drop_ctl = 0;
    }

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
    }

    table wire {
        key = {
            ig_intr_md.ingress_port: exact @name("port");
        }
        actions = {
            send;
            drop;
        }
        const default_action = drop();
        size = PORT_ENTRIES;
    }

    apply {
#if __TARGET_TOFINO__ != 2
        hdr.bridge.setValid();
        hdr.bridge.arrival_ns = ig_prsr_md.global_tstamp[31:0];
#endif
        wire.apply();
        /* With IPv4 options the checksum cannot be updated, so CE cannot be set: such packets count as
           Not-ECT */
        if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.ecn = hdr.ipv6.ecn;
        }
        ig_tm_md.qid = (QueueId_t) C_QUEUE_ID;
        if (meta.ecn == ECN_ECT_1 || meta.ecn == ECN_CE) {
            ig_tm_md.qid = (QueueId_t) L_QUEUE_ID;
        }
    }
}

control DualPi2IngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser DualPi2EgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        meta = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
        packet.extract(eg_intr_md);
#if __TARGET_TOFINO__ != 2
        packet.extract(hdr.bridge);
#endif
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

/* Should a departing packet be signalled, and by which sum? */
control DualPi2(inout egress_metadata_t meta, in PortId_t port, in bit<1> queue) {
    Register<bit<32>, place_t>(QUEUE_ENTRIES, 0) last_delay_ns;
    Register<bit<32>, place_t>(QUEUE_ENTRIES, 0) classic_sum;
    Register<bit<32>, PortId_t>(PORT_ENTRIES, 0) l_sum;

    RegisterAction<bit<32>, place_t, bit<32>>(last_delay_ns) keep_delay = {
        void apply(inout bit<32> value) {
            value = meta.delay_ns;
        }
    };
    /* sum + probability > 1 is the same as sum > 1 - probability, and the right side is then what to
       subtract. So one comparison of two words is enough, and nothing can overflow. */
    RegisterAction<bit<32>, place_t, bit<1>>(classic_sum) add_classic = {
        void apply(inout bit<32> value, out bit<1> due) {
            if (value > meta.classic_room) {
                value = value - meta.classic_room;
                due = 1;
            } else {
                value = value + meta.classic;
                due = 0;
            }
        }
    };
    RegisterAction<bit<32>, PortId_t, bit<1>>(l_sum) add_likelihood = {
        void apply(inout bit<32> value, out bit<1> due) {
            if (value > meta.l_room) {
                value = value - meta.l_room;
                due = 1;
            } else {
                value = value + meta.likelihood;
                due = 0;
            }
        }
    };

    /* From the control plane: k p' (at most 1), p'^2, and whether k p' has reached 1 */
    action set_probabilities(bit<32> coupled, bit<32> classic, bit<1> overloaded) {
        meta.likelihood = coupled;
        meta.classic = classic;
        meta.overload = overloaded;
    }

    table probabilities {
        key = {
            port: exact @name("port");
        }
        actions = {
            set_probabilities;
        }
        const default_action = set_probabilities(0, 0, 0);
        size = PORT_ENTRIES;
    }

    action compare() {
        meta.below_ns = STEP_NS |-| meta.delay_ns;
        meta.lack_cells = (bit<32>) MIN_BACKLOG_CELLS |-| meta.lack_cells;
    }

    action make_room() {
        meta.l_room = ONE_Q30 - meta.likelihood;
        meta.classic_room = ONE_Q30 - meta.classic;
    }

    apply {
        keep_delay.execute(meta.place);
        probabilities.apply();
        compare();
        /* One after the other: a condition has at most 44 bits */
        if (meta.below_ns == 0) {
            meta.late = 1;
        }
        if (meta.late == 1 && meta.lack_cells == 0) {
            meta.likelihood = ONE_Q30; /* only used in the L queue */
        }
        make_room();
        /* Classic packets; in overload also packets of the L queue, which have their own sum */
        if (queue == C_QUEUE_ID || meta.overload == 1) {
            meta.due = add_classic.execute(meta.place);
        }
        if (queue == L_QUEUE_ID && meta.due == 0) {
            meta.l_due = add_likelihood.execute(port);
        }
    }
}

control DualPi2Egress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    DualPi2() dualpi2;
    Register<signals_t, place_t>(QUEUE_ENTRIES) signals;

    RegisterAction<signals_t, place_t, bit<1>>(signals) count_marked = {
        void apply(inout signals_t value) {
            value.marked = value.marked + 1;
        }
    };
    RegisterAction<signals_t, place_t, bit<1>>(signals) count_dropped = {
        void apply(inout signals_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    action measure() {
        /* The open p4c does not: whatever else was in the container would be taken for it */
        eg_dprsr_md.drop_ctl = 0;
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_PASS;
        hdr.test.value = hdr.test.queue_delay_ns;
        meta.delay_ns = hdr.test.queue_delay_ns;
        meta.lack_cells = hdr.test.queue_depth;
#else
#if __TARGET_TOFINO__ == 2
        meta.delay_ns = eg_intr_md.deq_timedelta;
#else
        meta.delay_ns = eg_prsr_md.global_tstamp[31:0] - hdr.bridge.arrival_ns;
#endif
        meta.lack_cells = (bit<32>) eg_intr_md.deq_qdepth;
#endif
    }

    action mark_ipv4() {
        hdr.ipv4.ecn = ECN_CE;
        meta.marked = 1;
        SHOW_MARK
        count_marked.execute(meta.place);
    }

    action mark_ipv6() {
        hdr.ipv6.ecn = ECN_CE;
        SHOW_MARK
        count_marked.execute(meta.place);
    }

    action drop() {
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
#else
        eg_dprsr_md.drop_ctl = 1;
#endif
        count_dropped.execute(meta.place);
    }

    apply {
        measure();
        if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.ecn = hdr.ipv6.ecn;
        }
        /* Derive the queue again: the number that egress gets counts the queues of several ports */
        meta.place = eg_intr_md.egress_port ++ meta.ecn[0:0];
#ifdef TEST_INPUT
        hdr.test.value2[7:0] = 7w0 ++ meta.ecn[0:0];
#endif
        dualpi2.apply(meta, eg_intr_md.egress_port, meta.ecn[0:0]);
        if (meta.due == 1 && (meta.overload == 1 || meta.ecn == ECN_NOT_ECT)) {
            drop();
        } else if (meta.due == 1 || meta.l_due == 1) {
            if (hdr.ipv4.isValid()) {
                mark_ipv4();
            } else {
                mark_ipv6();
            }
        }
        hdr.bridge.setInvalid();
    }
}

control DualPi2EgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Checksum() checksum;

    apply {
        if (meta.marked == 1) {
            hdr.ipv4.checksum = checksum.update({
                hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_bytes,
                hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
            });
        }
        packet.emit(hdr);
    }
}

Pipeline(
    DualPi2IngressParser(),
    DualPi2Ingress(),
    DualPi2IngressDeparser(),
    DualPi2EgressParser(),
    DualPi2Egress(),
    DualPi2EgressDeparser()) pipe;

Switch(pipe) main;

/* CoDel at egress, for Tofino 1 and 2: Kundel et al., "P4-CoDel", section III-A. See README.md. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "constants.p4"

typedef bit<5> queue_t;
typedef bit<14> state_t; /* port and queue */

/* From ingress to egress */
header bridge_h {
#if __TARGET_TOFINO__ != 2
    bit<32> arrival_ns; /* deq_timedelta has only 18 bits on a Tofino 1: 262 us */
#endif
    @padding bit<3> unused;
    queue_t queue;
}

struct headers_t {
    bridge_h bridge;
    TEST_HEADERS
    PACKET_HEADERS
}

struct ingress_metadata_t {
    bit<32> ports;
    queue_t flow;
}

struct egress_metadata_t {
    bit<32> now_ns;
    bit<32> delay_ns;
    bit<32> below_ns; /* target - delay, at least 0 */
    bit<32> lack_cells; /* MTU - queue depth, at least 0 */
    bit<8> violated;
    bit<8> was_dropping;
    bit<1> signal;
    bit<1> marked;
    state_t index;
}

/* The second stateful ALU's word */
struct drop_next_t {
    bit<32> time_ns;
    bit<32> count; /* of the next drop, so that the math unit can use it then */
}

struct signals_t {
    bit<32> marked;
    bit<32> dropped;
}

parser CodelIngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic_parser;

    state start {
        meta = {...};
        intrinsic_parser.apply(packet, ig_intr_md);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

/* Forwards a port's packets, and assigns each flow to one of the egress port's queues */
control CodelIngress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Hash<queue_t>(HashAlgorithm_t.CRC32) hash_ipv4;
    Hash<queue_t>(HashAlgorithm_t.CRC32) hash_ipv6;

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
        size = 512;
    }

    action spread(queue_t mask) {
        hdr.bridge.queue = meta.flow & mask;
    }

    table queues {
        key = {
            ig_tm_md.ucast_egress_port: exact @name("port");
        }
        actions = {
            spread;
        }
        const default_action = spread(0);
        size = 512;
    }

    apply {
        wire.apply();
        if (hdr.tcp.isValid()) {
            meta.ports = hdr.tcp.source_port ++ hdr.tcp.destination_port;
        } else if (hdr.udp.isValid()) {
            meta.ports = hdr.udp.source_port ++ hdr.udp.destination_port;
        } else {
            meta.ports = 0;
        }
        if (hdr.ipv4.isValid()) {
            meta.flow = hash_ipv4.get(
                {hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol, meta.ports});
        } else if (hdr.ipv6.isValid()) {
            meta.flow = hash_ipv6.get(
                {hdr.ipv6.source, hdr.ipv6.destination, hdr.ipv6.next_header, meta.ports});
        } else {
            meta.flow = 0;
        }
        hdr.bridge.setValid();
#if __TARGET_TOFINO__ != 2
        hdr.bridge.arrival_ns = ig_prsr_md.global_tstamp[31:0];
#endif
        queues.apply();
        ig_tm_md.qid = (QueueId_t) hdr.bridge.queue;
    }
}

control CodelIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser CodelEgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        meta = {...};
        packet.extract(eg_intr_md);
        packet.extract(hdr.bridge);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

/* Should a departing packet be signalled? Listing 2 and Figure 4. Time and queue are in the metadata. */
control Codel(inout egress_metadata_t meta) {
    Register<bit<8>, state_t>(STATE_ENTRIES) dropping;
    Register<drop_next_t, state_t>(STATE_ENTRIES) drop_next;
    MathUnit<bit<32>>(MathOp_t.RSQRT, (int) INTERVAL_NS) root;

    /* First stateful ALU: did the previous packet violate the target too? */
    RegisterAction<bit<8>, state_t, bit<8>>(dropping) violate = {
        void apply(inout bit<8> value, out bit<8> before) {
            before = value;
            value = meta.violated;
        }
    };

    /* Second stateful ALU */
    RegisterAction<drop_next_t, state_t, bit<1>>(drop_next) start = {
        void apply(inout drop_next_t value) {
            value.time_ns = meta.now_ns + INTERVAL_NS;
            value.count = FIRST_DROP_COUNT;
        }
    };
    RegisterAction<drop_next_t, state_t, bit<1>>(drop_next) proceed = {
        void apply(inout drop_next_t value, out bit<1> due) {
            due = 0;
            /* A signed difference, because 32 bits wrap every 4.29 s */
            if ((int<32>) (meta.now_ns - value.time_ns) >= 0) {
                due = 1;
                /* Not now + gap: one operand is either the math unit's result or a packet field, not both */
                value.time_ns = value.time_ns + root.execute(value.count);
                value.count = value.count + 1;
            }
        }
    };

    /* f_1: both differences are 0 if the target is violated */
    action compare() {
        meta.below_ns = TARGET_NS |-| meta.delay_ns;
#if __TARGET_TOFINO__ == 2
        meta.lack_cells = (bit<32>) MTU_TOFINO2_CELLS |-| meta.lack_cells;
#else
        meta.lack_cells = (bit<32>) MTU_TOFINO_CELLS |-| meta.lack_cells;
#endif
    }

    action combine() {
        meta.below_ns = meta.below_ns | meta.lack_cells;
    }

    action enter() {
        start.execute(meta.index);
    }

    action go_on() {
        meta.signal = proceed.execute(meta.index);
    }

    table law {
        key = {
            meta.violated: exact;
            meta.was_dropping: exact;
        }
        actions = {
            enter;
            go_on;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 0): enter();
            (1, 1): go_on();
        }
        size = 2;
    }

    apply {
        compare();
        combine();
        meta.violated = 0;
        if (meta.below_ns == 0) {
            meta.violated = 1;
        }
        meta.was_dropping = violate.execute(meta.index);
        law.apply();
    }
}

control CodelEgress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Codel() codel;
    Register<signals_t, state_t>(STATE_ENTRIES) signals;

    RegisterAction<signals_t, state_t, bit<1>>(signals) count_marked = {
        void apply(inout signals_t value) {
            value.marked = value.marked + 1;
        }
    };
    RegisterAction<signals_t, state_t, bit<1>>(signals) count_dropped = {
        void apply(inout signals_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    action measure() {
        /* The open p4c does not: whatever else was in the container would be taken for it */
        eg_dprsr_md.drop_ctl = 0;
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_PASS;
        hdr.test.value[7:0] = (bit<8>) hdr.bridge.queue;
        meta.now_ns = hdr.test.now_ns[31:0];
        meta.delay_ns = hdr.test.queue_delay_ns;
        meta.lack_cells = hdr.test.queue_depth;
#else
        meta.now_ns = eg_prsr_md.global_tstamp[31:0];
#if __TARGET_TOFINO__ == 2
        meta.delay_ns = eg_intr_md.deq_timedelta;
#else
        meta.delay_ns = eg_prsr_md.global_tstamp[31:0] - hdr.bridge.arrival_ns;
#endif
        meta.lack_cells = (bit<32>) eg_intr_md.deq_qdepth;
#endif
        meta.index = eg_intr_md.egress_port ++ hdr.bridge.queue;
        meta.signal = 0;
        meta.marked = 0;
    }

    action mark_ipv4() {
        hdr.ipv4.ecn = ECN_CE;
        meta.marked = 1;
        SHOW_MARK
        count_marked.execute(meta.index);
    }

    action mark_ipv6() {
        hdr.ipv6.ecn = ECN_CE;
        SHOW_MARK
        count_marked.execute(meta.index);
    }

    action drop() {
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
#else
        eg_dprsr_md.drop_ctl = 1;
#endif
        count_dropped.execute(meta.index);
    }

    apply {
        measure();
        codel.apply(meta);
        if (meta.signal == 1) {
            /* With IPv4 options the checksum cannot be updated: such packets are dropped, as without ECT */
            if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5 && hdr.ipv4.ecn != ECN_NOT_ECT) {
                mark_ipv4();
            } else if (hdr.ipv6.isValid() && hdr.ipv6.ecn != ECN_NOT_ECT) {
                mark_ipv6();
            } else {
                drop();
            }
        }
        hdr.bridge.setInvalid();
    }
}

control CodelEgressDeparser(
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
    CodelIngressParser(),
    CodelIngress(),
    CodelIngressDeparser(),
    CodelEgressParser(),
    CodelEgress(),
    CodelEgressDeparser()) pipe;

Switch(pipe) main;

/* Data plane of PI2, for Tofino 1 and 2: Gombos et al., "Active queue management on the Tofino programmable
   switch: the (Dual)PI2 case", as used by de Almeida et al., section 4.2. See README.md. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "constants.p4"

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
}

struct egress_metadata_t {
    bit<32> delay_ns;
    bit<2> ecn;
    bit<1> marked;
    bit<16> first_draw;
    bit<16> second_draw;
    bit<32> surplus; /* probability - larger draw, at least 0 */
}

struct signals_t {
    bit<32> marked;
    bit<32> dropped;
}

parser Pi2IngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic_parser;

    state start {
        intrinsic_parser.apply(packet, ig_intr_md);
        transition accept;
    }
}

control Pi2Ingress(
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
    }
}

control Pi2IngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser Pi2EgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        meta = {0, 0, 0, 0, 0, 0};
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

/* Should a departing packet be signalled? If so, surplus is not 0. */
control Pi2(inout egress_metadata_t meta, in PortId_t port) {
    Register<bit<32>, PortId_t>(PORT_ENTRIES, 0) last_delay_ns;

    bit<32> root_probability = 0;
    bit<32> coupled_probability = 0;
    bit<32> first_draw;
    bit<32> larger_draw;

    RegisterAction<bit<32>, PortId_t, bit<32>>(last_delay_ns) keep_delay = {
        void apply(inout bit<32> value) {
            value = meta.delay_ns;
        }
    };

    /* From the control plane: p' and k p' */
    action set_probabilities(bit<32> root, bit<32> coupled) {
        root_probability = root;
        coupled_probability = coupled;
    }

    table probabilities {
        key = {
            port: exact @name("port");
        }
        actions = {
            set_probabilities;
        }
        const default_action = set_probabilities(0, 0);
        size = PORT_ENTRIES;
    }

    apply {
        keep_delay.execute(port);
        probabilities.apply();
        /* Both draws are below p' if the larger one is: probability p'^2 */
        first_draw = (bit<32>) meta.first_draw;
        larger_draw = (bit<32>) max(meta.first_draw, meta.second_draw);
        if (meta.ecn == ECN_ECT_1 || meta.ecn == ECN_CE) { /* scalable, RFC 9331, section 5.1 */
            meta.surplus = coupled_probability |-| first_draw;
        } else {
            meta.surplus = root_probability |-| larger_draw;
        }
    }
}

control Pi2Egress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Pi2() pi2;
    Random<bit<16>>() first;
    Random<bit<16>>() second;
    Register<signals_t, PortId_t>(PORT_ENTRIES) signals;

    RegisterAction<signals_t, PortId_t, bit<1>>(signals) count_marked = {
        void apply(inout signals_t value) {
            value.marked = value.marked + 1;
        }
    };
    RegisterAction<signals_t, PortId_t, bit<1>>(signals) count_dropped = {
        void apply(inout signals_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    action measure() {
        /* The open p4c does not: whatever else was in the container would be taken for it */
        eg_dprsr_md.drop_ctl = 0;
#if defined(TEST_INPUT)
        hdr.test.decision = DECISION_PASS;
        meta.delay_ns = hdr.test.queue_delay_ns;
        meta.first_draw = hdr.test.random[31:16];
        meta.second_draw = hdr.test.random[15:0];
        hdr.test.value = hdr.test.queue_delay_ns;
#else
#if __TARGET_TOFINO__ == 2
        meta.delay_ns = eg_intr_md.deq_timedelta;
#else
        meta.delay_ns = eg_prsr_md.global_tstamp[31:0] - hdr.bridge.arrival_ns;
#endif
        meta.first_draw = first.get();
        meta.second_draw = second.get();
#endif
    }

    action mark_ipv4() {
        hdr.ipv4.ecn = ECN_CE;
        meta.marked = 1;
        SHOW_MARK
        count_marked.execute(eg_intr_md.egress_port);
    }

    action mark_ipv6() {
        hdr.ipv6.ecn = ECN_CE;
        SHOW_MARK
        count_marked.execute(eg_intr_md.egress_port);
    }

    action drop() {
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
#else
        eg_dprsr_md.drop_ctl = 1;
#endif
        count_dropped.execute(eg_intr_md.egress_port);
    }

    apply {
        measure();
        /* With IPv4 options the checksum cannot be updated, so CE cannot be set: such packets count as
           Not-ECT */
        if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.ecn = hdr.ipv6.ecn;
        }
        pi2.apply(meta, eg_intr_md.egress_port);
        if (meta.surplus != 0) {
            if (meta.ecn == ECN_NOT_ECT) {
                drop();
            } else if (hdr.ipv4.isValid()) {
                mark_ipv4();
            } else {
                mark_ipv6();
            }
        }
        hdr.bridge.setInvalid();
    }
}

control Pi2EgressDeparser(
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
    Pi2IngressParser(),
    Pi2Ingress(),
    Pi2IngressDeparser(),
    Pi2EgressParser(),
    Pi2Egress(),
    Pi2EgressDeparser()) pipe;

Switch(pipe) main;

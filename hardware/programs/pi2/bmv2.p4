/* PI2, for BMv2: the twin of tofino.p4, with its tables and registers. See README.md. */

#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#include "common/headers.p4"
#include "common/test_input.p4"
#include "constants.p4"

typedef bit<9> port_t;
typedef bit<32> index_t;

struct headers_t {
    TEST_HEADERS
    PACKET_HEADERS
}

struct metadata_t {
    bit<32> arrival_ns;
    bit<2> ecn;
    bit<1> marked;
}

parser Pi2Parser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    state start {
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

control Pi2VerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Pi2Ingress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    action send(port_t port) {
        standard_metadata.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table wire {
        key = {
            standard_metadata.ingress_port: exact @name("port");
        }
        actions = {
            send;
            drop;
        }
        const default_action = drop();
        size = PORT_ENTRIES;
    }

    apply {
#ifdef TEST_INPUT
        meta.arrival_ns = (bit<32>) hdr.test.now_ns;
#else
        meta.arrival_ns = (bit<32>) standard_metadata.ingress_global_timestamp * 1000;
#endif
        wire.apply();
    }
}

/* Should a departing packet be signalled? Delay and draws are parameters. */
control Pi2(
    in port_t port,
    in bit<32> delay_ns,
    in bit<16> first_draw,
    in bit<16> second_draw,
    in bit<1> scalable,
    out bool signal) {
    register<bit<32>, index_t>(PORT_ENTRIES) last_delay_ns;

    bit<32> root_probability = 0;
    bit<32> coupled_probability = 0;

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
        last_delay_ns.write((index_t) port, delay_ns);
        probabilities.apply();
        signal = false;
        if (scalable == 1) {
            signal = (bit<32>) first_draw < coupled_probability;
        } else {
            /* Both draws below p': probability p'^2 */
            signal = (bit<32>) first_draw < root_probability && (bit<32>) second_draw < root_probability;
        }
    }
}

control Pi2Egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    Pi2() pi2;
    /* A pair on the Tofino */
    register<bit<32>, index_t>(PORT_ENTRIES) signals_marked;
    register<bit<32>, index_t>(PORT_ENTRIES) signals_dropped;

    index_t index;
    bit<32> now_ns;
    bit<32> draws;
    bool signal;
    bit<32> so_far;

    action mark() {
        meta.marked = 1;
        signals_marked.read(so_far, index);
        signals_marked.write(index, so_far + 1);
    }

    action drop() {
        signals_dropped.read(so_far, index);
        signals_dropped.write(index, so_far + 1);
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
#else
        mark_to_drop(standard_metadata);
#endif
    }

    apply {
#ifdef TEST_INPUT
        now_ns = (bit<32>) hdr.test.now_ns + hdr.test.queue_delay_ns;
        draws = hdr.test.random;
        hdr.test.decision = DECISION_PASS;
#else
        now_ns = (bit<32>) standard_metadata.egress_global_timestamp * 1000;
        random(draws, 32w0, 32w0xffffffff);
#endif
        index = (index_t) standard_metadata.egress_port;
        meta.ecn = ECN_NOT_ECT;
        /* With IPv4 options the checksum cannot be updated, so CE cannot be set: such packets count as
           Not-ECT */
        if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.ecn = hdr.ipv6.ecn;
        }
        /* ECT(1) and CE are scalable, RFC 9331, section 5.1 */
        pi2.apply(
            standard_metadata.egress_port,
            now_ns - meta.arrival_ns,
            draws[31:16],
            draws[15:0],
            meta.ecn[0:0],
            signal);
        if (signal) {
            if (meta.ecn == ECN_NOT_ECT) {
                drop();
            } else if (hdr.ipv4.isValid()) {
                hdr.ipv4.ecn = ECN_CE;
                mark();
            } else {
                hdr.ipv6.ecn = ECN_CE;
                mark();
            }
        }
#ifdef TEST_INPUT
        if (meta.marked == 1) {
            hdr.test.decision = DECISION_MARK;
        }
        hdr.test.value = (bit<32>) (now_ns - meta.arrival_ns);
#endif
    }
}

control Pi2ComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid() && meta.marked == 1,
            {
                hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_bytes,
                hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control Pi2Deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(
    Pi2Parser(),
    Pi2VerifyChecksum(),
    Pi2Ingress(),
    Pi2Egress(),
    Pi2ComputeChecksum(),
    Pi2Deparser()) main;

/* DualPI2, for BMv2: the twin of tofino.p4, with its tables and registers. See README.md. */

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
    bit<1> queue;
    bit<1> marked;
}

parser DualPi2Parser(
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

control DualPi2VerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control DualPi2Ingress(
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
        meta.ecn = ECN_NOT_ECT;
        /* With IPv4 options the checksum cannot be updated, so CE cannot be set: such packets count as
           Not-ECT */
        if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.ecn = hdr.ipv6.ecn;
        }
        meta.queue = C_QUEUE_ID;
        if (meta.ecn == ECN_ECT_1 || meta.ecn == ECN_CE) {
            meta.queue = L_QUEUE_ID;
        }
        /* Strict priority: BMv2 has no queue weights */
        standard_metadata.priority = (bit<3>) meta.queue;
    }
}

/* Should a departing packet be signalled, and by a drop? Delay and backlog are parameters. */
control DualPi2(
    in port_t port,
    in bit<1> queue,
    in bit<32> delay_ns,
    in bit<19> backlog_packets,
    out bool signal,
    out bool to_drop) {
    register<bit<32>, index_t>(QUEUE_ENTRIES) last_delay_ns;
    register<bit<32>, index_t>(QUEUE_ENTRIES) classic_sum;
    register<bit<32>, index_t>(PORT_ENTRIES) l_sum;

    index_t place;
    bit<32> likelihood = 0;
    bit<32> classic_probability = 0;
    bit<32> sum;
    bit<1> overload = 0;
    bool step = false;
    bool due = false;

    /* From the control plane: k p' (at most 1), p'^2, and whether k p' has reached 1 */
    action set_probabilities(bit<32> coupled, bit<32> classic, bit<1> overloaded) {
        likelihood = coupled;
        classic_probability = classic;
        overload = overloaded;
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

    apply {
        place = (index_t) (port ++ queue);
        last_delay_ns.write(place, delay_ns);
        probabilities.apply();
        step = queue == L_QUEUE_ID && delay_ns >= STEP_NS && backlog_packets >= MIN_BACKLOG_PACKETS;
        if (step) {
            likelihood = ONE_Q30;
        }

        /* Classic packets; in overload also packets of the L queue, which have their own sum */
        if (queue == C_QUEUE_ID || overload == 1) {
            classic_sum.read(sum, place);
            sum = sum + classic_probability;
            due = sum > ONE_Q30;
            if (due) {
                sum = sum - ONE_Q30;
            }
            classic_sum.write(place, sum);
        }
        signal = due;
        to_drop = due && overload == 1;
        if (queue == L_QUEUE_ID && !due) {
            l_sum.read(sum, (index_t) port);
            sum = sum + likelihood;
            signal = sum > ONE_Q30;
            if (signal) {
                sum = sum - ONE_Q30;
            }
            l_sum.write((index_t) port, sum);
        }
    }
}

control DualPi2Egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    DualPi2() dualpi2;
    /* A pair on the Tofino */
    register<bit<32>, index_t>(QUEUE_ENTRIES) signals_marked;
    register<bit<32>, index_t>(QUEUE_ENTRIES) signals_dropped;

    index_t place;
    bit<32> now_ns;
    bit<19> backlog_packets;
    bool signal;
    bool to_drop;
    bit<32> so_far;

    action mark() {
        meta.marked = 1;
        signals_marked.read(so_far, place);
        signals_marked.write(place, so_far + 1);
    }

    action drop() {
        signals_dropped.read(so_far, place);
        signals_dropped.write(place, so_far + 1);
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
#else
        mark_to_drop(standard_metadata);
#endif
    }

    apply {
#ifdef TEST_INPUT
        now_ns = (bit<32>) hdr.test.now_ns + hdr.test.queue_delay_ns;
        backlog_packets = (bit<19>) hdr.test.queue_depth;
        hdr.test.decision = DECISION_PASS;
#else
        now_ns = (bit<32>) standard_metadata.egress_global_timestamp * 1000;
        backlog_packets = standard_metadata.deq_qdepth;
#endif
        place = (index_t) (standard_metadata.egress_port ++ meta.queue);
        dualpi2.apply(
            standard_metadata.egress_port,
            meta.queue,
            now_ns - meta.arrival_ns,
            backlog_packets,
            signal,
            to_drop);
        if (signal) {
            if (to_drop || meta.ecn == ECN_NOT_ECT) {
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
        hdr.test.value2 = (bit<64>) meta.queue;
#endif
    }
}

control DualPi2ComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
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

control DualPi2Deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(
    DualPi2Parser(),
    DualPi2VerifyChecksum(),
    DualPi2Ingress(),
    DualPi2Egress(),
    DualPi2ComputeChecksum(),
    DualPi2Deparser()) main;

/* CoDel at egress, for BMv2: the twin of tofino.p4, with its tables and registers. See README.md. */

#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#include "common/headers.p4"
#include "common/test_input.p4"
#include "constants.p4"

typedef bit<9> port_t;
typedef bit<5> queue_t;
typedef bit<32> state_t; /* port and queue */

struct headers_t {
    TEST_HEADERS
    PACKET_HEADERS
}

struct metadata_t {
    queue_t queue;
    bit<1> marked;
}

parser CodelParser(
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

control CodelVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

/* Forwards a port's packets, and assigns each flow to one of the egress port's queues */
control CodelIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    bit<32> flow = 0;
    bit<32> ports = 0;

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
        size = 512;
    }

    action spread(queue_t mask) {
        meta.queue = (queue_t) flow & mask;
    }

    table queues {
        key = {
            standard_metadata.egress_spec: exact @name("port");
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
            ports = hdr.tcp.source_port ++ hdr.tcp.destination_port;
        } else if (hdr.udp.isValid()) {
            ports = hdr.udp.source_port ++ hdr.udp.destination_port;
        }
        if (hdr.ipv4.isValid()) {
            hash(flow, HashAlgorithm.crc32, 32w0,
                {hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol, ports}, 33w0x100000000);
        } else if (hdr.ipv6.isValid()) {
            hash(flow, HashAlgorithm.crc32, 32w0,
                {hdr.ipv6.source, hdr.ipv6.destination, hdr.ipv6.next_header, ports}, 33w0x100000000);
        }
        queues.apply();
        /* BMv2 has at most 8 queues, served in strict priority order */
        standard_metadata.priority = (bit<3>) meta.queue;
    }
}

#ifdef LISTING_1
#include "bmv2_listing_1.p4"
#else
typedef bit<32> time_t;

/* Should a departing packet be signalled? Time and queue are parameters. */
control Codel(
    in time_t now_ns,
    in bit<32> delay_ns,
    in bit<19> depth_packets,
    in state_t index,
    out bool signal) {
    register<bit<8>, state_t>(STATE_ENTRIES) dropping;
    /* Pairs on the Tofino */
    register<bit<32>, state_t>(STATE_ENTRIES) drop_next_time_ns;
    register<bit<32>, state_t>(STATE_ENTRIES) drop_next_count;

    bit<32> time_ns;
    bit<32> count;
    bit<32> gap_ns = 0;
    bit<8> was_dropping;
    bool violated;

    /* The Tofino's math unit */
    action root(bit<32> value_ns) {
        gap_ns = value_ns;
    }

    table math_unit {
        key = {
            count: lpm;
        }
        actions = {
            root;
        }
        const default_action = root(0);
        const entries = {
            MATH_UNIT_ENTRIES
        }
    }

    /* The target is violated now and was not before */
    action enter() {
        drop_next_time_ns.write(index, now_ns + INTERVAL_NS);
        drop_next_count.write(index, FIRST_DROP_COUNT);
    }

    apply {
        signal = false;
        violated = delay_ns >= TARGET_NS && depth_packets >= MTU_PACKETS;
        /* first stateful ALU */
        dropping.read(was_dropping, index);
        dropping.write(index, violated ? 8w1 : 8w0);
        if (violated) {
            /* second stateful ALU */
            if (was_dropping == 0) {
                enter();
            } else {
                drop_next_time_ns.read(time_ns, index);
                drop_next_count.read(count, index);
                if ((int<32>) (now_ns - time_ns) >= 0) {
                    math_unit.apply();
                    drop_next_time_ns.write(index, time_ns + gap_ns);
                    drop_next_count.write(index, count + 1);
                    signal = true;
                }
            }
        }
    }
}

#endif

control CodelEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    Codel() codel;
    /* A pair on the Tofino */
    register<bit<32>, state_t>(STATE_ENTRIES) signals_marked;
    register<bit<32>, state_t>(STATE_ENTRIES) signals_dropped;

    time_t now_ns;
    bit<32> delay_ns;
    bit<19> depth_packets;
    state_t index;
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
        now_ns = (time_t) hdr.test.now_ns;
        delay_ns = hdr.test.queue_delay_ns;
        depth_packets = (bit<19>) hdr.test.queue_depth;
        hdr.test.decision = DECISION_PASS;
#else
        now_ns = (time_t) standard_metadata.egress_global_timestamp * 1000;
        delay_ns = standard_metadata.deq_timedelta * 1000;
        depth_packets = standard_metadata.deq_qdepth;
#endif
        index = (state_t) (standard_metadata.egress_port ++ meta.queue);
        codel.apply(now_ns, delay_ns, depth_packets, index, signal);
        if (signal) {
            /* With IPv4 options the checksum cannot be updated: such packets are dropped, as without ECT */
            if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5 && hdr.ipv4.ecn != ECN_NOT_ECT) {
                hdr.ipv4.ecn = ECN_CE;
                mark();
            } else if (hdr.ipv6.isValid() && hdr.ipv6.ecn != ECN_NOT_ECT) {
                hdr.ipv6.ecn = ECN_CE;
                mark();
            } else {
                drop();
            }
        }
#ifdef TEST_INPUT
        if (meta.marked == 1) {
            hdr.test.decision = DECISION_MARK;
        }
        hdr.test.value = (bit<32>) meta.queue;
#endif
    }
}

control CodelComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
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

control CodelDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(
    CodelParser(),
    CodelVerifyChecksum(),
    CodelIngress(),
    CodelEgress(),
    CodelComputeChecksum(),
    CodelDeparser()) main;

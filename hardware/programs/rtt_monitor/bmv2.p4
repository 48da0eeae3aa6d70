/* RTTs and long flows of tapped traffic, for BMv2: the twin of tofino.p4, with its tables and registers. See
   README.md. */

#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#define SIZE(entries)

#include "common/headers.p4"
#include "types.p4"
#include "common/test_input.p4"
#include "constants.p4"

/* Tests make everything small, to provoke overflows */
#ifndef PLACES
#define PLACES TABLE_ENTRIES
#define TIMEOUT TIMEOUT_STEPS
#define SLOTS SLOT_ENTRIES
#define COUNTERS SKETCH_ENTRIES
#define LONG LONG_BYTES
#endif

#define INGRESS_PORT standard_metadata.ingress_port
#define TOLD told

typedef bit<9> port_t;

const bit<64> ALL_CRCS = 0x100000000;

/* How a Tofino's stateful ALU reports two comparisons */
#define OUTCOME(first, second) ((first) ? ((second) ? BOTH : FIRST_ONLY) : ((second) ? SECOND_ONLY : NEITHER))

struct headers_t {
    TEST_HEADERS
    PACKET_HEADERS
}

parser MonitorParser(
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

control MonitorVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Stage(
    in role_t role,
    in bit<32> signature,
    in bit<16> place,
    in outcome_t before,
    in bit<32> now_ns,
    in bit<32> now_steps,
    inout outcome_t outcome,
    inout bit<32> stamp_ns) {
    /* A pair on the Tofino */
    register<bit<32>, bit<32>>(PLACES) expected_signature;
    register<bit<32>, bit<32>>(PLACES) expected_time;
    register<bit<32>, bit<32>>(PLACES) stamps;

    bit<32> index = (bit<32>) place & (PLACES - 1);
    bit<32> waiting;
    bit<32> time;
    bool same;
    bool expired;

    action compare() {
        expected_signature.read(waiting, index);
        expected_time.read(time, index);
        same = waiting == signature;
        /* Compares with more than 32 bits, like a Tofino: see the README on the clock's wrap */
        expired = (bit<34>) now_steps > (bit<34>) time + (bit<34>) TIMEOUT;
        outcome = OUTCOME(same, expired);
    }

    action put_in() {
        compare();
        expected_signature.write(index, expired ? signature : waiting);
        expected_time.write(index, expired ? now_steps : time);
    }

    action look_up() {
        compare();
        expected_signature.write(index, same ? 0 : waiting);
        expected_time.write(index, same ? 0 : time);
    }

    action write() {
        stamps.write(index, now_ns);
    }

    action clear() {
        stamps.write(index, 0);
    }

    action read() {
        stamps.read(stamp_ns, index);
    }

#include "stage.p4"
}

#include "expected_acks.p4"

/* A row of the sketch: cctoolkit.CountMinSketch with a switch's hashes */
control Row(in bit<16> place, in bit<32> frame_bytes, out bit<1> over) {
    register<bit<32>, bit<32>>(COUNTERS) counters;

    bit<32> index = (bit<32>) place & (COUNTERS - 1);
    bit<32> value;

    apply {
        counters.read(value, index);
        /* A Tofino's sum also has more bits */
        over = (bit<34>) value + (bit<34>) frame_bytes > (bit<34>) LONG ? 1w1 : 0;
        counters.write(index, value |+| frame_bytes);
    }
}

control Owner(inout metadata_t meta) {
    register<bit<32>, bit<32>>(SLOTS) owner_flow;
    register<bit<32>, bit<32>>(SLOTS) owner_is_long;

    bit<32> index = meta.flow & (SLOTS - 1);
    bit<32> flow;
    bit<32> is_long;
    bool same;
    bool free;
    action check() {
        owner_flow.read(flow, index);
        owner_is_long.read(is_long, index);
        same = flow == meta.flow;
        free = is_long == 0;
        meta.slot_outcome = OUTCOME(same, free);
    }

    action open() {
        check();
        owner_flow.write(index, free ? meta.flow : flow);
    }

    action hold() {
        check();
        owner_flow.write(index, free ? meta.flow : flow);
        owner_is_long.write(index, 1);
    }

#include "owner.p4"
}

control FlowDirection(
    in pairing_t set,
    in bit<32> flow,
    in bit<32> frame_bytes,
    in bit<1> is_own,
    in bit<1> is_new,
    in tap_t tap) {
    /* Pairs on the Tofino */
    register<bit<32>, bit<32>>(SLOTS) bytes_offered;
    register<bit<32>, bit<32>>(SLOTS) bytes_delivered;
    register<bit<32>, bit<32>>(SLOTS) rtt_least;
    register<bit<32>, bit<32>>(SLOTS) rtt_latest;

    bit<32> index = flow & (SLOTS - 1);
    bit<32> value;

    action start_bytes() {
        bytes_offered.write(index, frame_bytes);
        bytes_delivered.write(index, 0);
    }

    action offer() {
        bytes_offered.read(value, index);
        bytes_offered.write(index, value + frame_bytes);
    }

    action deliver() {
        bytes_delivered.read(value, index);
        bytes_delivered.write(index, value + frame_bytes);
    }

    action start_rtt() {
        rtt_least.write(index, 0);
        rtt_latest.write(index, 0);
    }

    action keep_rtt() {
        rtt_least.read(value, index);
        rtt_least.write(index, value == 0 || set.rtt_ns < value ? set.rtt_ns : value);
        rtt_latest.write(index, set.rtt_ns);
    }

#include "flow_direction.p4"
}

control MonitorIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    ExpectedAcks() set_0;
    ExpectedAcks() set_1;
    Row() row_0;
    Row() row_1;
    Row() row_2;
    Row() row_3;
    Owner() slots;
    FlowDirection() direction_of_0;
    FlowDirection() direction_of_1;

    bit<32> hashed;
    bit<3> told = 0;

    action send(port_t port) {
        standard_metadata.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table wire {
        key = {
            INGRESS_PORT: exact @name("port");
        }
        actions = {
            send;
            drop;
        }
        const default_action = drop();
        size = 512;
    }

#include "tables.p4"

    apply {
        wire.apply();
        taps.apply();
        meta.clock_ns = standard_metadata.ingress_global_timestamp * 1000;
#ifdef TEST_INPUT
        meta.clock_ns = hdr.test.now_ns[47:0];
        hdr.test.decision = 0;
#endif
        meta.now_ns = meta.clock_ns[31:0];
        meta.now_steps = meta.clock_ns[47:16];
        if (hdr.tcp.isValid()) {
            segment.apply();
        } else if (!hdr.udp.isValid()) {
            no_flow();
        }
        if (hdr.ipv4.isValid()) {
            of_ipv4();
            hash(meta.own_fid, HashAlgorithm.crc32, 32w0,
                {hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                    meta.source_port, meta.destination_port}, ALL_CRCS);
            hash(meta.other_fid, HashAlgorithm.crc32, 32w0,
                {hdr.ipv4.destination, hdr.ipv4.source, hdr.ipv4.protocol,
                    meta.destination_port, meta.source_port}, ALL_CRCS);
        } else {
            of_ipv6();
            hash(meta.own_fid, HashAlgorithm.crc32, 32w0,
                {hdr.ipv6.source, hdr.ipv6.destination, hdr.ipv6.next_header,
                    meta.source_port, meta.destination_port}, ALL_CRCS);
            hash(meta.other_fid, HashAlgorithm.crc32, 32w0,
                {hdr.ipv6.destination, hdr.ipv6.source, hdr.ipv6.next_header,
                    meta.destination_port, meta.source_port}, ALL_CRCS);
        }
        add_length();
        if (meta.tap == BEFORE_QUEUE && meta.is_segment == 1) {
            roles.apply();
        }
        difference.apply();
        hash(hashed, HashAlgorithm.crc32, 32w0, {meta.own_fid, meta.expected_ack}, ALL_CRCS);
        meta.data_place = hashed[15:0];
        hash(hashed, HashAlgorithm.crc32, 32w0, {meta.other_fid, hdr.tcp.ack}, ALL_CRCS);
        meta.ack_place = hashed[15:0];
        hash(meta.data_signature, HashAlgorithm.crc32_custom, 32w0, {meta.own_fid, meta.expected_ack}, ALL_CRCS);
        hash(meta.ack_signature, HashAlgorithm.crc32_custom, 32w0, {meta.other_fid, hdr.tcp.ack}, ALL_CRCS);
        hash(meta.of_rows_0_1, HashAlgorithm.crc32, 32w0, {meta.own_fid}, ALL_CRCS);
        hash(meta.of_rows_2_3, HashAlgorithm.crc32_custom, 32w0, {meta.own_fid}, ALL_CRCS);
        directions.apply();
        next_places();
        set_0.apply(meta.set_0, meta.now_ns, meta.now_steps);
        set_1.apply(meta.set_1, meta.now_ns, meta.now_steps);
        if (meta.tap == BEFORE_QUEUE) {
            row_0.apply(meta.of_rows_0_1[15:0], meta.frame_bytes, meta.over_0);
            row_1.apply(meta.of_rows_0_1[31:16], meta.frame_bytes, meta.over_1);
            row_2.apply(meta.of_rows_2_3[15:0], meta.frame_bytes, meta.over_2);
            row_3.apply(meta.of_rows_2_3[31:16], meta.frame_bytes, meta.over_3);
        }
        long_flows.apply();
        slots.apply(meta);
        direction_of_0.apply(meta.set_0, meta.flow, meta.bytes_0, meta.is_own, meta.is_new, meta.tap);
        direction_of_1.apply(meta.set_1, meta.flow, meta.bytes_1, meta.is_own, meta.is_new, meta.tap);

        samples.apply();
        report.apply();
        if (told == DIGEST_IPV4) {
            digest<flow_ipv4_t>(1, {meta.clock_ns, meta.rtt_ns, meta.events, hdr.ipv4.source,
                hdr.ipv4.destination, meta.source_port, meta.destination_port});
        } else if (told == DIGEST_IPV6) {
            digest<flow_ipv6_t>(1, {meta.clock_ns, meta.rtt_ns, meta.events, hdr.ipv6.source,
                hdr.ipv6.destination, meta.source_port, meta.destination_port});
        }
#ifdef TEST_INPUT
        if (meta.tap != NO_TAP) {
            hdr.test.value = 0;
            if (meta.set_0.is_sample == 1) {
                hdr.test.value = meta.set_0.rtt_ns;
            } else if (meta.set_1.is_sample == 1) {
                hdr.test.value = meta.set_1.rtt_ns;
            }
            hdr.test.value2 = meta.own_fid ++ meta.flow;
            hdr.test.decision = 11w0 ++ ~meta.direction ++ meta.is_new ++ meta.is_own ++ meta.became_long
                ++ (meta.set_0.is_sample | meta.set_1.is_sample);
        }
#endif
    }
}

control MonitorEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    apply {}
}

control MonitorUpdateChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control MonitorDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(
    MonitorParser(),
    MonitorVerifyChecksum(),
    MonitorIngress(),
    MonitorEgress(),
    MonitorUpdateChecksum(),
    MonitorDeparser()) main;

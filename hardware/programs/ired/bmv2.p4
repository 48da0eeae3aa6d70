/* iRED, for BMv2: the twin of tofino.p4, with its tables and registers. See README.md. */

#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#include "common/headers.p4"
#include "notification.p4"
#include "common/test_input.p4"
#include "constants.p4"

typedef bit<9> port_t;
typedef bit<3> queue_t;
typedef bit<32> state_t; /* port and queue */

const bit<32> EGRESS_CLONE = 2; /* standard_metadata.instance_type */
const bit<32> RECIRCULATED = 4;
const bit<32> NOTIFICATION_SESSION = 1;
const bit<8> OF_NOTIFICATIONS = 1; /* the metadata fields they keep */

struct headers_t {
    notification_h notification;
    TEST_HEADERS
    PACKET_HEADERS
}

struct metadata_t {
    bit<32> arrival_ns;
    bit<2> ecn;
    bit<1> scalable;
    bit<1> marked;
    bit<1> dropped;
    bit<32> delay; /* this and the following in units of 1024 ns */
    bit<32> weighted;
    bit<32> sum;
    bit<32> before;
    bit<32> recent;
    bit<32> earlier;
    bit<32> average;
    @field_list(OF_NOTIFICATIONS)
    bit<12> state;
}

parser IredParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.instance_type) {
            RECIRCULATED: notification;
            default: from_outside;
        }
    }

    state notification {
        packet.extract(hdr.notification);
        transition accept;
    }

    state from_outside {
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

control IredVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

/* The action: each queue has a flag that its next classic packet is to be dropped */
control IredIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    register<bit<8>, state_t>(STATE_ENTRIES) drop_flag;
    register<bit<32>, state_t>(STATE_ENTRIES) drops;

    bool wired = false;
    bit<8> flag;
    bit<32> so_far;

    action send(port_t port) {
        standard_metadata.egress_spec = port;
        wired = true;
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

    action enqueue(queue_t queue) {
        meta.state = standard_metadata.egress_spec ++ queue;
        standard_metadata.priority = queue;
    }

    table queues {
        key = {
            standard_metadata.egress_spec: exact @name("port");
            meta.scalable: exact @name("scalable");
        }
        actions = {
            enqueue;
        }
        const default_action = enqueue(0);
        size = 1024;
    }

    apply {
        if (hdr.notification.isValid()) {
            drop_flag.write((state_t) hdr.notification.state, 1);
            mark_to_drop(standard_metadata);
        } else {
#ifdef TEST_INPUT
            meta.arrival_ns = (bit<32>) hdr.test.now_ns;
            hdr.test.decision = DECISION_PASS;
#else
            meta.arrival_ns = (bit<32>) standard_metadata.ingress_global_timestamp * 1000;
#endif
            meta.ecn = ECN_NOT_ECT;
            /* With IPv4 options the checksum cannot be updated, so CE cannot be set: such packets count as
               Not-ECT */
            if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
                meta.ecn = hdr.ipv4.ecn;
            } else if (hdr.ipv6.isValid()) {
                meta.ecn = hdr.ipv6.ecn;
            }
            meta.scalable = meta.ecn[0:0]; /* ECT(1) and CE, RFC 9331, section 5.1 */
            wire.apply();
            queues.apply();
            if (wired && meta.scalable == 0) {
                drop_flag.read(flag, (state_t) meta.state);
                drop_flag.write((state_t) meta.state, 0);
                if (flag == 1) {
                    drops.read(so_far, (state_t) meta.state);
                    drops.write((state_t) meta.state, so_far + 1);
#ifdef TEST_INPUT
                    hdr.test.decision = DECISION_DROP;
                    meta.dropped = 1;
#else
                    mark_to_drop(standard_metadata);
#endif
                }
            }
        }
    }
}

/* The decision: should a departing packet be signalled? Delay and draw are parameters. */
control Ired(
    inout metadata_t meta,
    in bit<32> delay_ns,
    in bit<16> draw,
    in state_t index,
    out bool signal) {
    register<bit<8>, state_t>(STATE_ENTRIES) packets;
    register<bit<32>, state_t>(STATE_ENTRIES) delay_sum;
    register<bit<32>, state_t>(STATE_ENTRIES) last_sum;
    register<bit<32>, state_t>(STATE_ENTRIES) average_delay; /* for the control plane */

    bit<8> count;
    bit<4> position;
    bit<32> classic_probability = 0;
    bit<32> scalable_probability = 0;

    DOUBLE_ACTIONS

    table double {
        key = {
            position: exact;
        }
        actions = {
            DOUBLE_NAMES
        }
        const entries = {
            DOUBLE_ENTRIES
        }
    }

    HALVE_ACTIONS

    table halve {
        key = {
            position: exact;
        }
        actions = {
            HALVE_NAMES
        }
        const entries = {
            HALVE_ENTRIES
        }
    }

    action set_probabilities(bit<32> classic, bit<32> scalable) {
        classic_probability = classic;
        scalable_probability = scalable;
    }

    table red {
        key = {
            meta.average[15:RED_SHIFT]: exact @name("step");
        }
        actions = {
            set_probabilities;
        }
        const default_action = set_probabilities(0, 0);
        size = RED_ENTRIES;
    }

    apply {
        packets.read(count, index);
        packets.write(index, count + 1);
        position = count[3:0];

        meta.delay = delay_ns >> DELAY_SHIFT;
        if (delay_ns >> CUT_SHIFT != 0) {
            meta.delay = LONGEST_DELAY_STEPS;
        }
        double.apply();
        delay_sum.read(meta.sum, index);
        last_sum.read(meta.before, index);
        if (position == 0) {
            meta.before = meta.sum;
            last_sum.write(index, meta.before);
            meta.sum = meta.weighted;
        } else {
            meta.sum = meta.sum + meta.weighted;
        }
        delay_sum.write(index, meta.sum);
        halve.apply();
        meta.average = meta.recent + meta.earlier;
        average_delay.write(index, meta.average);

        red.apply();
        if (meta.scalable == 1) {
            signal = (bit<32>) draw < scalable_probability;
        } else {
            signal = (bit<32>) draw < classic_probability;
        }
    }
}

control IredEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    Ired() ired;
    /* A pair on the Tofino */
    register<bit<32>, state_t>(STATE_ENTRIES) signals_marked;
    register<bit<32>, state_t>(STATE_ENTRIES) signals_notified;

    bit<32> now_ns;
    bit<16> draw;
    state_t index;
    bool signal;
    bit<32> so_far;

    action mark() {
        meta.marked = 1;
        signals_marked.read(so_far, index);
        signals_marked.write(index, so_far + 1);
    }

    action notify() {
        clone_preserving_field_list(CloneType.E2E, NOTIFICATION_SESSION, OF_NOTIFICATIONS);
        signals_notified.read(so_far, index);
        signals_notified.write(index, so_far + 1);
    }

    apply {
        if (standard_metadata.instance_type == EGRESS_CLONE) {
#ifdef TEST_INPUT
            hdr.test.setInvalid();
#endif
            hdr.ethernet.setInvalid();
            hdr.vlan.setInvalid();
            hdr.ipv4.setInvalid();
            hdr.ipv6.setInvalid();
            hdr.tcp.setInvalid();
            hdr.udp.setInvalid();
            hdr.notification = {0, 0, ETHERTYPE_NOTIFICATION, (bit<16>) meta.state};
            truncate(NOTIFICATION_BYTES);
            recirculate_preserving_field_list(OF_NOTIFICATIONS);
        } else if (meta.dropped == 0) {
#ifdef TEST_INPUT
            now_ns = (bit<32>) hdr.test.now_ns + hdr.test.queue_delay_ns;
            draw = (bit<16>) hdr.test.random;
#else
            now_ns = (bit<32>) standard_metadata.egress_global_timestamp * 1000;
            random(draw, 16w0, 16w0xffff);
#endif
            index = (state_t) meta.state;
            ired.apply(meta, now_ns - meta.arrival_ns, draw, index, signal);
            if (signal) {
                if (meta.scalable == 0) {
                    notify();
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
            hdr.test.value = (bit<32>) meta.average;
            if (signal) {
                hdr.test.value2 = 1;
            }
#endif
        }
    }
}

control IredComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
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

control IredDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(
    IredParser(),
    IredVerifyChecksum(),
    IredIngress(),
    IredEgress(),
    IredComputeChecksum(),
    IredDeparser()) main;

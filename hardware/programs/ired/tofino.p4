/* iRED for Tofino 1 and 2: de Almeida et al., "Evaluating L4S framework performance with programmable data
   plane hardware", section 4.1. See README.md. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "notification.p4"
#include "constants.p4"

typedef bit<3> queue_t;
typedef bit<16> state_t; /* port and queue, in the lower 12 bits */

/* What came in; and the first byte of what egress gets */
const bit<2> OF_NO_WIRE = 0;
const bit<2> PACKET = 1;
const bit<2> NOTIFICATION = 2;
const bit<8> PACKET_ID = 1;
const bit<8> NOTIFICATION_ID = 2;
const MirrorType_t NOTIFICATION_MIRROR = 1;

/* From ingress to egress */
header bridge_h {
    bit<8> id;
#if __TARGET_TOFINO__ != 2 && !defined(TEST_INPUT)
    bit<32> arrival_ns; /* deq_timedelta has only 18 bits on a Tofino 1: 262 us */
#endif
#if __TARGET_TOFINO__ != 2
    @padding bit<6> before_session;
#endif
    MirrorId_t session; /* mirrors to the pipe of the ingress port, where flags are raised */
#ifdef TEST_INPUT
    @padding bit<6> before_scalable;
    bit<1> dropped; /* in the ingress; the egress only passes it on */
#else
    @padding bit<7> before_scalable;
#endif
    bit<1> scalable;
    state_t state;
}

/* From egress to egress, in front of a mirrored packet */
header mirror_h {
    bit<8> id;
    state_t state;
}

struct headers_t {
    bridge_h bridge;
    mirror_h mirror;
    notification_h notification;
    TEST_HEADERS
    PACKET_HEADERS
}

struct ingress_metadata_t {
    bit<2> ecn;
    queue_t queue;
    bit<2> kind;
    bit<8> flag;
    state_t state;
}

struct egress_metadata_t {
    bit<32> delay_ns;
    bit<32> delay; /* this and the following in units of 1024 ns */
    bit<32> weighted;
    bit<32> sum;
    bit<32> before;
    bit<32> recent;
    bit<32> earlier;
    bit<32> average;
    bit<16> draw;
    bit<32> surplus; /* probability - draw, at least 0 */
    bit<1> marked;
    state_t state;
    MirrorId_t session;
    bit<8> notification_id;
}

struct signals_t {
    bit<32> marked;
    bit<32> notified;
}

parser IredIngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic_parser;

    state start {
        meta = {ECN_NOT_ECT, 0, OF_NO_WIRE, 0, 0};
        intrinsic_parser.apply(packet, ig_intr_md);
        transition select(packet.lookahead<bit<112>>()[15:0]) {
            ETHERTYPE_NOTIFICATION: notification;
#ifdef TEST_INPUT
            default: test;
#else
            default: ethernet;
#endif
        }
    }

#ifdef TEST_INPUT
    state test {
        packet.extract(hdr.test);
        transition ethernet;
    }
#endif

    state notification {
        packet.extract(hdr.notification);
        transition accept;
    }

#include "common/parser.p4"
}

/* The action: each queue has a flag that its next classic packet is to be dropped */
control IredIngress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Register<bit<8>, state_t>(STATE_ENTRIES, 0) drop_flag;
    Register<bit<32>, state_t>(STATE_ENTRIES, 0) drops;

    RegisterAction<bit<8>, state_t, bit<8>>(drop_flag) raise = {
        void apply(inout bit<8> value) {
            value = 1;
        }
    };
    RegisterAction<bit<8>, state_t, bit<8>>(drop_flag) lower = {
        void apply(inout bit<8> value, out bit<8> flag) {
            flag = value;
            value = 0;
        }
    };
    RegisterAction<bit<32>, state_t, bit<32>>(drops) count_drop = {
        void apply(inout bit<32> value) {
            value = value + 1;
        }
    };

    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_dprsr_md.drop_ctl = 0;
        meta.kind = PACKET;
    }

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
    }

    /* For recirculation ports; notifications from any other port are ordinary packets */
    action receive_notification() {
        meta.kind = NOTIFICATION;
        ig_dprsr_md.drop_ctl = 1;
    }

    table wire {
        key = {
            ig_intr_md.ingress_port: exact @name("port");
        }
        actions = {
            send;
            drop;
            receive_notification;
        }
        const default_action = drop();
        size = 512;
    }

    action return_by(MirrorId_t session) {
        hdr.bridge.session = session;
    }

    /* Per pipe. A table, because the port's bits are not aligned for an addition */
    table way_back {
        key = {
            ig_intr_md.ingress_port[8:7]: exact @name("pipe");
        }
        actions = {
            return_by;
        }
        const default_action = return_by(1);
        const entries = {
            0: return_by(1);
            1: return_by(2);
            2: return_by(3);
            3: return_by(4);
        }
        size = 4;
    }

    action enqueue(queue_t queue) {
        meta.queue = queue;
        ig_tm_md.qid = (QueueId_t) queue;
    }

    table queues {
        key = {
            ig_tm_md.ucast_egress_port: exact @name("port");
            hdr.bridge.scalable: exact @name("scalable");
        }
        actions = {
            enqueue;
        }
        const default_action = enqueue(0);
        size = 1024;
    }

    action raise_flag() {
        raise.execute(meta.state);
    }

    action lower_flag() {
        meta.flag = lower.execute(meta.state);
    }

    /* Scalable packets do not change the flag */
    table flag {
        key = {
            meta.kind: exact;
            hdr.bridge.scalable: exact;
        }
        actions = {
            raise_flag;
            lower_flag;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (NOTIFICATION, 0): raise_flag();
            (PACKET, 0): lower_flag();
        }
        size = 2;
    }

    action drop_and_count() {
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
        hdr.bridge.dropped = 1;
#else
        ig_dprsr_md.drop_ctl = 1;
#endif
        count_drop.execute(meta.state);
    }

    apply {
        /* With IPv4 options the checksum cannot be updated, so CE cannot be set: such packets count as
           Not-ECT */
        if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.ecn = hdr.ipv6.ecn;
        }
        hdr.bridge.setValid();
        hdr.bridge.id = PACKET_ID;
#if __TARGET_TOFINO__ != 2 && !defined(TEST_INPUT)
        hdr.bridge.arrival_ns = ig_prsr_md.global_tstamp[31:0];
#endif
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_PASS;
        hdr.bridge.dropped = 0;
#endif
        hdr.bridge.scalable = meta.ecn[0:0]; /* ECT(1) and CE, RFC 9331, section 5.1 */
        wire.apply();
        way_back.apply();
        queues.apply();
        hdr.bridge.state = (state_t) (ig_tm_md.ucast_egress_port ++ meta.queue);
        meta.state = hdr.bridge.state;
        if (meta.kind == NOTIFICATION) {
            meta.state = hdr.notification.state;
        }
        flag.apply();
        if (meta.flag == 1) {
            drop_and_count();
        }
    }
}

control IredIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser IredEgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        meta = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NOTIFICATION_ID};
        packet.extract(eg_intr_md);
        transition select(packet.lookahead<bit<8>>()) {
            NOTIFICATION_ID: mirrored;
            default: from_ingress;
        }
    }

    /* The rest of the packet is not parsed */
    state mirrored {
        packet.extract(hdr.mirror);
        transition accept;
    }

    state from_ingress {
        packet.extract(hdr.bridge);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

/* The decision: should a departing packet be signalled? If so, surplus is not 0. */
control Ired(inout egress_metadata_t meta, in bit<1> is_scalable) {
    Register<bit<8>, state_t>(STATE_ENTRIES, 0) packets;
    Register<bit<32>, state_t>(STATE_ENTRIES, 0) delay_sum;
    Register<bit<32>, state_t>(STATE_ENTRIES, 0) last_sum;
    Register<bit<32>, state_t>(STATE_ENTRIES, 0) average_delay; /* for the control plane */

    bit<8> count;
    bit<4> position;
    bit<32> classic_probability = 0;
    bit<32> scalable_probability = 0;
    bit<32> draw;

    RegisterAction<bit<8>, state_t, bit<8>>(packets) count_packet = {
        void apply(inout bit<8> value, out bit<8> so_far) {
            so_far = value;
            value = value + 1;
        }
    };
    RegisterAction<bit<32>, state_t, bit<32>>(delay_sum) begin_sum = {
        void apply(inout bit<32> value, out bit<32> last) {
            last = value;
            value = meta.weighted;
        }
    };
    RegisterAction<bit<32>, state_t, bit<32>>(delay_sum) add_to_sum = {
        void apply(inout bit<32> value, out bit<32> result) {
            value = value + meta.weighted;
            result = value;
        }
    };
    RegisterAction<bit<32>, state_t, bit<32>>(last_sum) keep_sum = {
        void apply(inout bit<32> value) {
            value = meta.before;
        }
    };
    RegisterAction<bit<32>, state_t, bit<32>>(last_sum) read_sum = {
        void apply(inout bit<32> value, out bit<32> result) {
            result = value;
        }
    };
    RegisterAction<bit<32>, state_t, bit<32>>(average_delay) show_average = {
        void apply(inout bit<32> value) {
            value = meta.average;
        }
    };

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
        size = 16;
    }

    /* The first packet of an epoch replaces the last sum, and so passes it on */
    action begin() {
        meta.before = begin_sum.execute(meta.state);
        meta.sum = meta.weighted;
    }

    action keep() {
        keep_sum.execute(meta.state);
    }

    action go_on() {
        meta.sum = add_to_sum.execute(meta.state);
    }

    action recall() {
        meta.before = read_sum.execute(meta.state);
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
        size = 16;
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
        count = count_packet.execute(meta.state);
        position = count[3:0];
        meta.delay = meta.delay_ns >> DELAY_SHIFT;
        if (meta.delay_ns[31:CUT_SHIFT] != 0) {
            meta.delay = LONGEST_DELAY_STEPS;
        }
        double.apply();
        if (position == 0) {
            begin();
            keep();
        } else {
            go_on();
            recall();
        }
        halve.apply();
        meta.average = meta.recent + meta.earlier;
        show_average.execute(meta.state);
        red.apply();
        draw = (bit<32>) meta.draw;
        if (is_scalable == 1) {
            meta.surplus = scalable_probability |-| draw;
        } else {
            meta.surplus = classic_probability |-| draw;
        }
    }
}

control IredEgress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Ired() ired;
    Random<bit<16>>() random;
    Register<signals_t, state_t>(STATE_ENTRIES) signals;

    RegisterAction<signals_t, state_t, bit<1>>(signals) count_marked = {
        void apply(inout signals_t value) {
            value.marked = value.marked + 1;
        }
    };
    RegisterAction<signals_t, state_t, bit<1>>(signals) count_notified = {
        void apply(inout signals_t value) {
            value.notified = value.notified + 1;
        }
    };

    action measure() {
        NO_MIRROR(eg_dprsr_md)
#if defined(TEST_INPUT)
        meta.delay_ns = hdr.test.queue_delay_ns;
        meta.draw = hdr.test.random[15:0];
#else
#if __TARGET_TOFINO__ == 2
        meta.delay_ns = eg_intr_md.deq_timedelta;
#else
        meta.delay_ns = eg_prsr_md.global_tstamp[31:0] - hdr.bridge.arrival_ns;
#endif
        meta.draw = random.get();
#endif
        meta.state = hdr.bridge.state;
        meta.session = hdr.bridge.session;
    }

    action mark_ipv4() {
        hdr.ipv4.ecn = ECN_CE;
        meta.marked = 1;
        SHOW_MARK
        count_marked.execute(meta.state);
    }

    action mark_ipv6() {
        hdr.ipv6.ecn = ECN_CE;
        SHOW_MARK
        count_marked.execute(meta.state);
    }

    action notify() {
        eg_dprsr_md.mirror_type = NOTIFICATION_MIRROR;
        count_notified.execute(meta.state);
    }

    action send_notification() {
        hdr.notification.setValid();
        hdr.notification.destination = 0;
        hdr.notification.source = 0;
        hdr.notification.ether_type = ETHERTYPE_NOTIFICATION;
        hdr.notification.state = hdr.mirror.state;
        hdr.mirror.setInvalid();
    }

    apply {
        if (hdr.mirror.isValid()) {
            send_notification();
#ifdef TEST_INPUT
        } else if (hdr.bridge.dropped == 1) {
            hdr.bridge.setInvalid();
#endif
        } else {
            measure();
            ired.apply(meta, hdr.bridge.scalable);
#ifdef TEST_INPUT
            hdr.test.value = meta.average;
#endif
            if (meta.surplus != 0) {
#ifdef TEST_INPUT
                hdr.test.value2[7:0] = 1;
#endif
                if (hdr.bridge.scalable == 0) {
                    notify();
                } else if (hdr.ipv4.isValid()) {
                    mark_ipv4();
                } else {
                    mark_ipv6();
                }
            }
            hdr.bridge.setInvalid();
        }
    }
}

control IredEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Checksum() checksum;
    Mirror(NOTIFICATION_MIRROR) mirror;

    apply {
        if (meta.marked == 1) {
            hdr.ipv4.checksum = checksum.update({
                hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_bytes,
                hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
            });
        }
        if (eg_dprsr_md.mirror_type == NOTIFICATION_MIRROR) {
            mirror.emit<mirror_h>(meta.session, {meta.notification_id, meta.state});
        }
        packet.emit(hdr);
    }
}

Pipeline(
    IredIngressParser(),
    IredIngress(),
    IredIngressDeparser(),
    IredEgressParser(),
    IredEgress(),
    IredEgressDeparser()) pipe;

Switch(pipe) main;

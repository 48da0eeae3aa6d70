/* Activity-based congestion management for Tofino 1 and 2: Menth et al., "Implementation and evaluation of
   activity-based congestion management using P4 (P4-ABC)". See README.md.

   The arithmetic is that of cctoolkit.aqm.TofinoAbc, which explains it. The ingress meters customers' packets
   and decides on all packets for a port with an AQM. The egress averages the activities of departing packets;
   notifications carry that average and the number of the last departed packet to the ingress. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "activity.p4"
#include "constants.p4"

typedef bit<10> aggregate_t;
typedef bit<16> index_t; /* a port */

const bit<8> PACKET_ID = 1;
const bit<8> NOTIFICATION_ID = 0; /* a mirrored header cannot start with any other number */
const MirrorType_t NOTIFICATION_MIRROR = 1;
const bit<16> ETHERTYPE_NOTIFICATION = 0x88b5; /* IEEE 802, local experimental 1; never leaves the switch */

const bit<32> PORTS = 512;

/* The time at the egress, and whether the packet leaves: in a test it may only arrive, or have been dropped */
#ifdef TEST_INPUT
#define EGRESS_NS hdr.test.now_ns[47:0]
#define LEAVES hdr.test.input[1:1] == 1 && hdr.bridge.number != 0
#else
#define EGRESS_NS eg_prsr_md.global_tstamp
#define LEAVES true
#endif

/* Index of the epoch's lowest bit in bits 47 to 16 of the clock */
const bit<8> METER_BIT = METER_EPOCH_SHIFT - 16;
const bit<8> AVERAGE_BIT = AVERAGE_EPOCH_SHIFT - 16;

/* From ingress to egress */
header bridge_h {
    bit<8> id;
    @padding bit<6> unused;
    bit<1> managed; /* its egress port has an AQM */
    bit<1> labelled; /* it has an activity */
    bit<8> profile;
    bit<8> session; /* mirrors to the pipe of the ingress port, where departures are counted */
    int<32> number; /* of an accepted packet, per port */
    int<32> excess; /* activity minus the average, 16 fractional bits */
}

/* From egress to egress, in front of a mirrored packet */
header mirror_h {
    bit<8> id;
    index_t port;
    int<32> number;
    int<32> average_q16;
}

/* From egress to ingress: the packet that left by this port, and the average activity now */
header notification_h {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
    index_t port;
    int<32> number;
    int<32> average_q16;
}

struct headers_t {
    bridge_h bridge;
    mirror_h mirror;
    notification_h notification;
    TEST_HEADERS
    ethernet_h ethernet;
    activity_h activity;
    vlan_h vlan;
    ipv4_h ipv4;
    ipv6_h ipv6;
}

struct ingress_metadata_t {
    bit<32> coarse; /* bits 47 to 16 of the clock */
    bit<1> customer;
    bit<1> is_notification;
    bit<1> metered;
    bit<8> is_mature;
    aggregate_t aggregate;
    int<32> offset;
    bit<32> within_q15; /* half-lives since the epoch began */
    int<32> within; /* with 16 fractional bits, like activities */
    bit<32> exponent;
    bit<32> increment;
    bit<32> coarse_before; /* one epoch ago */
    bit<32> cycle_0; /* in which a slot must have begun to count */
    bit<32> cycle_1;
    bit<32> sum_0;
    bit<32> sum_1;
    bit<32> started;
    bit<32> age;
    int<32> average;
    int<32> bound;
    index_t index;
}

struct egress_metadata_t {
    bit<32> coarse;
    bit<16> within; /* eighths of an epoch */
    bit<32> coarse_before; /* one epoch ago */
    bit<32> cycle_0;
    bit<32> cycle_1;
    bit<32> sum_0;
    bit<32> sum_1;
    bit<16> log_count;
    int<32> excess;
    int<32> part;
    int<32> rest;
    bit<8> halvings;
    int<32> average;
    MirrorId_t session;
    index_t port;
    int<32> number;
}

/* Two of these take turns: the sum added in an epoch, and the cycle of two epochs in which that was */
struct slot_t {
    bit<32> sum;
    bit<32> cycle;
}

struct start_t {
    bit<32> time;
    bit<32> known;
}

struct packets_t {
    bit<32> accepted;
    bit<32> dropped;
}

parser AbcIngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic_parser;

    state start {
        meta = {...};
#ifndef TEST_INPUT
        /* Read the clock at a byte boundary, so that no shift is needed later */
        bit<64> intrinsic = packet.lookahead<bit<64>>();
        meta.coarse = intrinsic[47:16];
#endif
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
        meta.coarse = hdr.test.now_ns[47:16];
        transition ethernet;
    }
#endif

    state notification {
        packet.extract(hdr.notification);
        meta.index = hdr.notification.port;
        transition accept;
    }

#include "activity_parser.p4"
}

/* A sum over this epoch and the previous one: this epoch's slot is added to, the other's is read. A slot
   counts only if it began in the right cycle. */
#define SLOT(NAME, SLOT, OTHER, INDEX_T, INDEX, INCREMENT, ENTRIES, WANTED, EPOCH) \
    Register<slot_t, INDEX_T>(ENTRIES) NAME##_##SLOT; \
    RegisterAction<slot_t, INDEX_T, bit<32>>(NAME##_##SLOT) add_##SLOT = { \
        void apply(inout slot_t value, out bit<32> result) { \
            if (value.cycle == meta.cycle_##SLOT) { \
                value.sum = value.sum |+| INCREMENT; \
            } else { \
                value.sum = INCREMENT; \
            } \
            value.cycle = meta.cycle_##SLOT; \
            result = value.sum; \
        } \
    }; \
    RegisterAction<slot_t, INDEX_T, bit<32>>(NAME##_##SLOT) look_##SLOT = { \
        void apply(inout slot_t value, out bit<32> result) { \
            result = 0; \
            if (value.cycle == meta.cycle_##SLOT) { \
                result = value.sum; \
            } \
        } \
    }; \
    action add_to_##SLOT() { \
        meta.sum_##SLOT = add_##SLOT.execute(INDEX); \
    } \
    action look_at_##SLOT() { \
        meta.sum_##SLOT = look_##SLOT.execute(INDEX); \
    } \
    table use_##SLOT { \
        key = { \
            WANTED: exact; \
            EPOCH: exact @name("epoch"); \
        } \
        actions = { \
            add_to_##SLOT; \
            look_at_##SLOT; \
            @defaultonly NoAction; \
        } \
        const default_action = NoAction(); \
        const entries = { \
            (1, SLOT): add_to_##SLOT(); \
            (1, OTHER): look_at_##SLOT(); \
        } \
        size = 2; \
    }

control AbcIngress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {

    /* ---- where packets go, and who sent them ---- */

    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_dprsr_md.drop_ctl = 0;
        meta.index = (index_t) port;
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

    /* Customers, whose packets are always metered; nodes of the domain, whose activities are trusted; the
       egress. Notifications from any other port are ordinary packets. */
    action from_customer() {
        meta.customer = 1;
    }

    action from_domain() {
        meta.customer = 0;
    }

    action from_egress() {
        meta.is_notification = 1;
    }

    table ingress_role {
        key = {
            ig_intr_md.ingress_port: exact @name("port");
        }
        actions = {
            from_customer;
            from_domain;
            from_egress;
        }
        const default_action = from_customer();
        size = 512;
    }

    action return_by(bit<8> session) {
        hdr.bridge.session = session;
    }

    /* A packet is counted by the ingress where it came in; each pipe has its own numbers */
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

    action meter_as(aggregate_t aggregate, int<32> offset_q16) {
        meta.aggregate = aggregate;
        meta.offset = offset_q16;
        meta.metered = 1;
    }

    table aggregates {
        key = {
            hdr.ipv4.source: lpm @name("source");
        }
        actions = {
            meter_as;
            NoAction;
        }
        default_action = NoAction();
        size = AGGREGATE_ENTRIES;
    }

    table aggregates_ipv6 {
        key = {
            hdr.ipv6.source: lpm @name("source");
        }
        actions = {
            meter_as;
            NoAction;
        }
        default_action = NoAction();
        size = AGGREGATE_ENTRIES;
    }

    action manage(bit<8> profile) {
        hdr.bridge.managed = 1;
        hdr.bridge.profile = profile;
    }

    table managed_ports {
        key = {
            ig_tm_md.ucast_egress_port: exact @name("port");
        }
        actions = {
            manage;
            NoAction;
        }
        const default_action = NoAction();
        size = 512;
    }

    /* ---- the activity header, where the meter's sum starts ---- */

    action label() {
        hdr.bridge.labelled = 1;
        hdr.activity.setValid();
        hdr.activity.activity = meta.offset - meta.within;
        hdr.activity.ether_type = hdr.ethernet.ether_type;
        hdr.ethernet.ether_type = ETHERTYPE_ACTIVITY;
    }

    /* A customer's packet may already carry the header; its value is not trusted */
    action label_again() {
        hdr.bridge.labelled = 1;
        hdr.activity.activity = meta.offset - meta.within;
    }

    action unlabel() {
        hdr.ethernet.ether_type = hdr.activity.ether_type;
        hdr.activity.setInvalid();
    }

    action believe() {
        hdr.bridge.labelled = 1;
    }

    table labels {
        key = {
            meta.customer: exact;
            meta.metered: exact;
            hdr.activity.isValid(): exact;
        }
        actions = {
            label;
            label_again;
            unlabel;
            believe;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, false): label();
            (1, 1, true): label_again();
            (1, 0, true): unlabel();
            (0, 0, true): believe();
        }
        size = 4;
    }

    /* ---- the meter, section 3.2 ---- */

    SLOT(volume, 0, 1, aggregate_t, meta.aggregate, meta.increment, AGGREGATE_ENTRIES,
        meta.metered, meta.coarse[METER_BIT:METER_BIT])
    SLOT(volume, 1, 0, aggregate_t, meta.aggregate, meta.increment, AGGREGATE_ENTRIES,
        meta.metered, meta.coarse[METER_BIT:METER_BIT])

    Register<start_t, aggregate_t>(AGGREGATE_ENTRIES) first;
    RegisterAction<start_t, aggregate_t, bit<32>>(first) start_meter = {
        void apply(inout start_t value, out bit<32> started) {
            if (value.known == 0) {
                value.time = meta.coarse;
            }
            value.known = 1;
            started = value.time;
        }
    };

    Register<bit<8>, aggregate_t>(AGGREGATE_ENTRIES) mature;
    RegisterAction<bit<8>, aggregate_t, bit<8>>(mature) write_mature = {
        void apply(inout bit<8> value) {
            value = 1;
        }
    };
    RegisterAction<bit<8>, aggregate_t, bit<8>>(mature) read_mature = {
        void apply(inout bit<8> value, out bit<8> result) {
            result = value;
        }
    };

    action ripen() {
        write_mature.execute(meta.aggregate);
    }

    action ask_whether_mature() {
        meta.is_mature = read_mature.execute(meta.aggregate);
    }

    /* A 32-bit clock wraps: a meter that was mature once stays mature */
    table maturity {
        key = {
            meta.metered: exact;
            meta.age[31:MATURE_SHIFT]: ternary @name("age");
        }
        actions = {
            ask_whether_mature;
            ripen;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 0): ask_whether_mature();
            (1, _): ripen();
        }
        size = 2;
    }

    action length(bit<32> log_q15) {
        meta.exponent = log_q15;
    }

    table length_logarithms {
        key = {
            hdr.ipv4.total_bytes: lpm @name("length_bytes");
        }
        actions = {
            length;
            NoAction;
        }
        const default_action = NoAction();
        size = LENGTH_ENTRIES;
    }

    table length_logarithms_ipv6 {
        key = {
            hdr.ipv6.payload_bytes: lpm @name("length_bytes");
        }
        actions = {
            length;
            NoAction;
        }
        const default_action = NoAction();
        size = LENGTH_ENTRIES;
    }

    action weigh(bit<32> units) {
        meta.increment = units;
    }

    table weighted_lengths {
        key = {
            meta.exponent[19:7]: exact @name("exponent");
        }
        actions = {
            weigh;
            NoAction;
        }
        const default_action = NoAction();
        size = WEIGHTED_ENTRIES;
    }

    action rejuvenate(int<32> missing_q16) {
        hdr.activity.activity = hdr.activity.activity + missing_q16;
        hdr.bridge.excess = hdr.bridge.excess + missing_q16;
    }

    table young_logarithms {
        key = {
            meta.age: lpm @name("age");
        }
        actions = {
            rejuvenate;
            NoAction;
        }
        const default_action = NoAction();
        size = YOUNG_ENTRIES;
    }

    action logarithm(int<32> log_q16) {
        hdr.activity.activity = hdr.activity.activity + log_q16;
        hdr.bridge.excess = hdr.bridge.excess + log_q16;
    }

    table logarithms {
        key = {
            meta.sum_0: lpm @name("sum");
        }
        actions = {
            logarithm;
            NoAction;
        }
        const default_action = NoAction();
        size = LOGARITHM_ENTRIES;
    }

    /* ---- the AQM, section 3.3 ---- */

    Register<int<32>, index_t>(PORTS) average; /* activity, 16 fractional bits */
    RegisterAction<int<32>, index_t, int<32>>(average) read_average = {
        void apply(inout int<32> value, out int<32> result) {
            result = value;
        }
    };
    RegisterAction<int<32>, index_t, int<32>>(average) write_average = {
        void apply(inout int<32> value) {
            value = hdr.notification.average_q16;
        }
    };

    action ask_average() {
        meta.average = read_average.execute(meta.index);
    }

    action learn_average() {
        write_average.execute(meta.index);
    }

    table averages {
        key = {
            meta.is_notification: exact;
            hdr.notification.isValid(): exact;
        }
        actions = {
            ask_average;
            learn_average;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, false): ask_average();
            (0, true): ask_average();
            (1, true): learn_average();
        }
        size = 3;
    }

    Register<int<32>, index_t>(PORTS) departed; /* number of the last packet that left */
    RegisterAction<int<32>, index_t, int<32>>(departed) read_departed = {
        void apply(inout int<32> value, out int<32> result) {
            result = value;
        }
    };
    RegisterAction<int<32>, index_t, int<32>>(departed) write_departed = {
        void apply(inout int<32> value) {
            value = hdr.notification.number;
        }
    };

    action ask_departed() {
        meta.bound = read_departed.execute(meta.index);
    }

    action learn_departed() {
        write_departed.execute(meta.index);
    }

    table departures {
        key = {
            meta.is_notification: exact;
            hdr.notification.isValid(): exact;
        }
        actions = {
            ask_departed;
            learn_departed;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, false): ask_departed();
            (0, true): ask_departed();
            (1, true): learn_departed();
        }
        size = 3;
    }

    action limit(int<32> packets) {
        meta.bound = meta.bound + packets;
    }

    /* Equation (2), in whole packets, limited to the buffer */
    table thresholds {
        key = {
            hdr.bridge.profile: exact @name("profile");
            hdr.bridge.excess: lpm @name("excess");
        }
        actions = {
            limit;
            NoAction;
        }
        const default_action = NoAction();
        size = THRESHOLD_ENTRIES;
    }

    Register<int<32>, index_t>(PORTS) accepted_number; /* of the last accepted packet */
    /* Accept if no more packets wait than the threshold; a difference, because numbers wrap */
    RegisterAction<int<32>, index_t, int<32>>(accepted_number) number_below = {
        void apply(inout int<32> value, out int<32> number) {
            number = 0;
            if (value - meta.bound <= 0) {
                value = value + 1;
                number = value;
            }
        }
    };
    RegisterAction<int<32>, index_t, int<32>>(accepted_number) number_any = {
        void apply(inout int<32> value, out int<32> number) {
            value = value + 1;
            number = value;
        }
    };

    action accept_below() {
        hdr.bridge.number = number_below.execute(meta.index);
    }

    action accept_any() {
        hdr.bridge.number = number_any.execute(meta.index);
    }

    table acceptance {
        key = {
            hdr.bridge.managed: exact;
            hdr.bridge.labelled: exact;
        }
        actions = {
            accept_below;
            accept_any;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1): accept_below();
            (1, 0): accept_any();
        }
        size = 2;
    }

    /* ---- what the control plane reads ---- */

    Register<int<32>, aggregate_t>(AGGREGATE_ENTRIES) activities; /* of each aggregate's last packet */
    RegisterAction<int<32>, aggregate_t, int<32>>(activities) keep_activity = {
        void apply(inout int<32> value) {
            value = hdr.activity.activity;
        }
    };

    Register<packets_t, aggregate_t>(AGGREGATE_ENTRIES) aggregate_packets;
    RegisterAction<packets_t, aggregate_t, bit<32>>(aggregate_packets) add_accepted_of_aggregate = {
        void apply(inout packets_t value) {
            value.accepted = value.accepted + 1;
        }
    };
    RegisterAction<packets_t, aggregate_t, bit<32>>(aggregate_packets) add_dropped_of_aggregate = {
        void apply(inout packets_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    action count_accepted_of_aggregate() {
        add_accepted_of_aggregate.execute(meta.aggregate);
    }

    action count_dropped_of_aggregate() {
        add_dropped_of_aggregate.execute(meta.aggregate);
    }

    table aggregate_decisions {
        key = {
            hdr.bridge.managed: exact;
            meta.metered: exact;
            hdr.bridge.number: ternary;
        }
        actions = {
            count_accepted_of_aggregate;
            count_dropped_of_aggregate;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, 0): count_dropped_of_aggregate();
            (1, 1, _): count_accepted_of_aggregate();
        }
        size = 2;
    }

    Register<packets_t, index_t>(PORTS) port_packets;
    RegisterAction<packets_t, index_t, bit<32>>(port_packets) add_accepted = {
        void apply(inout packets_t value) {
            value.accepted = value.accepted + 1;
        }
    };
    RegisterAction<packets_t, index_t, bit<32>>(port_packets) add_dropped = {
        void apply(inout packets_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    action accept() {
        add_accepted.execute(meta.index);
    }

    action refuse() {
        add_dropped.execute(meta.index);
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_DROP;
#else
        ig_dprsr_md.drop_ctl = 1;
#endif
    }

    action discard_notification() {
        ig_dprsr_md.drop_ctl = 1;
    }

    table decisions {
        key = {
            meta.is_notification: exact;
            hdr.bridge.managed: exact;
            hdr.bridge.number: ternary;
        }
        actions = {
            accept;
            refuse;
            discard_notification;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, 1, 0): refuse();
            (0, 1, _): accept();
            (1, 0, _): discard_notification();
        }
        size = 3;
    }

    /* ---- steps ---- */

    action prepare() {
        hdr.bridge.setValid();
        hdr.bridge.id = PACKET_ID;
        meta.within_q15 = meta.coarse & ((1 << METER_BIT) - 1);
        meta.cycle_0 = meta.coarse >> (METER_BIT + 1);
        meta.coarse_before = meta.coarse - (1 << METER_BIT);
    }

    action prepare_more() {
        meta.exponent = meta.exponent + meta.within_q15;
        meta.within = (int<32>) (meta.within_q15 << 1);
        meta.cycle_1 = meta.coarse_before >> (METER_BIT + 1);
    }

    action find_age() {
        meta.age = meta.coarse - meta.started;
    }

    action subtract_average() {
        hdr.bridge.excess = hdr.activity.activity - meta.average;
    }

    /* What the previous epoch added weighs less */
    action decay_0() {
        meta.sum_0 = meta.sum_0 >> METER_LOST_BITS;
    }

    action decay_1() {
        meta.sum_1 = meta.sum_1 >> METER_LOST_BITS;
    }

    table decay {
        key = {
            meta.coarse[METER_BIT:METER_BIT]: exact @name("epoch");
        }
        actions = {
            decay_0;
            decay_1;
        }
        const default_action = decay_1();
        const entries = {
            1: decay_0();
        }
        size = 1;
    }

    action add_slots() {
        meta.sum_0 = meta.sum_0 |+| meta.sum_1;
    }

    apply {
        prepare();
        /* A packet that is not forwarded gets no number: its departure would never be reported */
        switch (wire.apply().action_run) {
            send: {
                managed_ports.apply();
            }
        }
        ingress_role.apply();
        way_back.apply();
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_PASS;
        /* A test sends each packet twice: it arrives, and later leaves, with what it got when it arrived */
        if (hdr.test.isValid() && hdr.test.input[0:0] == 0) {
            hdr.bridge.labelled = 1;
            hdr.bridge.number = (int<32>) hdr.test.queue_depth;
            hdr.bridge.excess = (int<32>) hdr.test.random;
        } else {
#endif
        if (hdr.ipv4.isValid()) {
            length_logarithms.apply();
        } else if (hdr.ipv6.isValid()) {
            length_logarithms_ipv6.apply();
        }
        prepare_more();
        if (meta.customer == 1) {
            if (hdr.ipv4.isValid()) {
                aggregates.apply();
            } else if (hdr.ipv6.isValid()) {
                aggregates_ipv6.apply();
            }
        }
        averages.apply();
        departures.apply();
        labels.apply();
        subtract_average();

        weighted_lengths.apply();
        if (meta.metered == 1) {
            meta.started = start_meter.execute(meta.aggregate);
        }
        find_age();
        use_0.apply();
        use_1.apply();
        decay.apply();
        add_slots();
        maturity.apply();
        if (meta.metered == 1) {
            if (meta.is_mature == 0) {
                young_logarithms.apply();
            }
            logarithms.apply();
            keep_activity.execute(meta.aggregate);
        }

        thresholds.apply();
        acceptance.apply();
        decisions.apply();
        aggregate_decisions.apply();
#ifdef TEST_INPUT
        hdr.test.value = (bit<32>) hdr.activity.activity;
        hdr.test.value2 = (bit<32>) hdr.bridge.number ++ (bit<32>) hdr.bridge.excess;
        }
#endif
    }
}

control AbcIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser AbcEgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        meta = {...};
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
        meta.excess = hdr.bridge.excess;
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_ACTIVITY: activity;
            default: accept;
        }
    }

    state activity {
        packet.extract(hdr.activity);
        transition accept;
    }
}

/* The average activity of departing packets: it moves by the excess divided by the number of packets that
   count */
control Departure(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md) {
    SLOT(count, 0, 1, index_t, meta.port, 1, PORTS,
        hdr.bridge.labelled, meta.coarse[AVERAGE_BIT:AVERAGE_BIT])
    SLOT(count, 1, 0, index_t, meta.port, 1, PORTS,
        hdr.bridge.labelled, meta.coarse[AVERAGE_BIT:AVERAGE_BIT])

    Register<int<32>, index_t>(PORTS) average_q24;
    RegisterAction<int<32>, index_t, int<32>>(average_q24) move_average = {
        void apply(inout int<32> value, out int<32> result) {
            value = value + meta.part;
            result = value;
        }
    };

    action logarithm(bit<16> log_q3) {
        meta.log_count = log_q3 - meta.within;
    }

    table count_logarithms {
        key = {
            meta.sum_0: lpm @name("sum");
        }
        actions = {
            logarithm;
            NoAction;
        }
        const default_action = NoAction();
        size = LOGARITHM_ENTRIES;
    }

    GAIN_ACTIONS

    table gains {
        key = {
            hdr.bridge.profile: exact @name("profile");
            meta.log_count[8:0]: exact @name("log_count");
        }
        actions = {
            GAIN_NAMES
            NoAction;
        }
        const default_action = NoAction();
        size = GAIN_ENTRIES;
    }

    action half() {
        meta.rest = meta.part >> 1;
    }

    action quarter() {
        meta.rest = meta.part >> 2;
    }

    action eighth() {
        meta.rest = meta.part >> 3;
    }

    action nothing() {
        meta.rest = 0;
    }

    table further {
        key = {
            meta.halvings: exact;
        }
        actions = {
            half;
            quarter;
            eighth;
            nothing;
        }
        const default_action = nothing();
        const entries = {
            1: half();
            2: quarter();
            3: eighth();
        }
        size = 4;
    }

    action prepare() {
        meta.within = (bit<16>) EGRESS_NS[AVERAGE_EPOCH_SHIFT - 1:AVERAGE_EPOCH_SHIFT - 3];
        meta.cycle_0 = meta.coarse >> (AVERAGE_BIT + 1);
        meta.coarse_before = meta.coarse - (1 << AVERAGE_BIT);
    }

    action find_cycle() {
        meta.cycle_1 = meta.coarse_before >> (AVERAGE_BIT + 1);
    }

    action add_slots() {
        meta.sum_0 = meta.sum_0 + meta.sum_1;
    }

    action add_rest() {
        meta.part = meta.part + meta.rest;
    }

    apply {
        prepare();
        find_cycle();
        use_0.apply();
        use_1.apply();
        add_slots();
        count_logarithms.apply();
        if (hdr.bridge.labelled == 1) {
            gains.apply();
        }
        further.apply();
        add_rest();
        meta.average = move_average.execute(meta.port);
    }
}

control AbcEgress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Departure() departure;

    /* For ports out of the domain, and for ports inside it */
    action strip() {
        hdr.ethernet.ether_type = hdr.activity.ether_type;
        hdr.activity.setInvalid();
    }

    action keep() {
    }

    table egress_role {
        key = {
            eg_intr_md.egress_port: exact @name("port");
        }
        actions = {
            strip;
            keep;
        }
        const default_action = strip();
        size = 512;
    }

    action look() {
        NO_MIRROR(eg_dprsr_md)
        meta.coarse = EGRESS_NS[47:16];
        meta.port = (index_t) eg_intr_md.egress_port;
    }

    action notify() {
        eg_dprsr_md.mirror_type = NOTIFICATION_MIRROR;
        meta.session = (MirrorId_t) hdr.bridge.session;
        meta.number = hdr.bridge.number;
        meta.average = meta.average >> 8;
    }

    action recirculate() {
        hdr.notification.setValid();
        hdr.notification.destination = 0;
        hdr.notification.source = 0;
        hdr.notification.ether_type = ETHERTYPE_NOTIFICATION;
        hdr.notification.port = hdr.mirror.port;
        hdr.notification.number = hdr.mirror.number;
        hdr.notification.average_q16 = hdr.mirror.average_q16;
        hdr.mirror.setInvalid();
    }

    apply {
        look();
        if (hdr.mirror.isValid()) {
            recirculate();
        } else {
            if (hdr.bridge.managed == 1 && LEAVES) {
                departure.apply(hdr, meta, eg_prsr_md);
#ifdef TEST_INPUT
                if (hdr.test.input[0:0] == 0) {
                    hdr.test.value = (bit<32>) meta.average;
                }
#endif
                notify();
            }
            if (hdr.activity.isValid()) {
                egress_role.apply();
            }
            hdr.bridge.setInvalid();
        }
    }
}

control AbcEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Mirror() mirror;

    apply {
        if (eg_dprsr_md.mirror_type == NOTIFICATION_MIRROR) {
            mirror.emit<mirror_h>(
                meta.session, {NOTIFICATION_ID, meta.port, meta.number, meta.average});
        }
        packet.emit(hdr);
    }
}

Pipeline(
    AbcIngressParser(),
    AbcIngress(),
    AbcIngressDeparser(),
    AbcEgressParser(),
    AbcEgress(),
    AbcEgressDeparser()) pipe;

Switch(pipe) main;

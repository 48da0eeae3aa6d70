/* Activity-based congestion management for Tofino 1 and 2: Menth et al., "Implementation and evaluation of
   activity-based congestion management using P4 (P4-ABC)". See README.md.

   The arithmetic is that of cctoolkit.aqm.TofinoAbc, which says why it is so. The ingress meters customers' packets and
   decides about all that leave by a port with an AQM; the egress averages the activities of those that leave, and a
   packet to the ingress, a notification, tells the average and who has left. */

#include "tofino/common/intrinsic.p4"
#include "common/headers.p4"
#include "common/activity.p4"
#include "generated/abc.p4"

typedef bit<10> aggregate_t;
typedef bit<9> index_t; /* a port */

const bit<8> PACKET_ID = 0;
const bit<8> NOTIFICATION_ID = 1;
const MirrorType_t NOTIFICATION_MIRROR = 1;
const bit<16> ETHERTYPE_NOTIFICATION = 0x88b5; /* IEEE 802, local experimental 1; it never leaves the switch */

const bit<32> PORTS = 512;

/* From ingress to egress */
header bridge_h {
    bit<8> id;
    @padding bit<4> unused;
    bit<1> managed; /* an AQM is at the port it leaves by */
    bit<1> labelled; /* it has an activity */
    bit<2> pipe; /* where it came in: departures are told there */
    bit<8> profile;
    bit<32> number; /* of an accepted packet, by port */
    int<32> excess; /* activity above the average, 16 bits after the point */
}

/* From egress to egress, before a mirrored packet */
header mirror_h {
    bit<8> id;
    @padding bit<7> unused;
    PortId_t port;
    bit<32> number;
    int<32> average_q24;
}

/* From egress to ingress: this packet has left by this port, and the average activity is that now */
header notification_h {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
    @padding bit<7> unused;
    PortId_t port;
    bit<32> number;
    int<32> average_q24;
}

struct headers_t {
    bridge_h bridge;
    mirror_h mirror;
    notification_h notification;
    ethernet_h ethernet;
    activity_h activity;
    vlan_h vlan;
    ipv4_h ipv4;
    ipv6_h ipv6;
}

struct ingress_metadata_t {
    bit<32> coarse; /* the clock's bits 47 to 16 */
    bit<32> fine; /* 39 to 8 */
    bit<32> coarse_before; /* four epochs ago */
    bit<1> customer;
    bit<1> is_notification;
    bit<1> metered;
    aggregate_t aggregate;
    int<32> offset; /* then the activity without the sum's logarithm */
    int<32> within; /* half-lives since the epoch began, 16 bits after the point */
    bit<2> slot;
    bit<32> exponent;
    bit<32> exponent_time;
    bit<32> increment;
    bit<32> cycle_0; /* in which a slot was begun, if it counts */
    bit<32> cycle_1;
    bit<32> cycle_2;
    bit<32> cycle_3;
    bit<32> sum_0;
    bit<32> sum_1;
    bit<32> sum_2;
    bit<32> sum_3;
    bit<32> age;
    bit<32> started;
    bit<32> is_mature;
    int<32> activity;
    int<32> average;
    int<32> bound;
    int<32> number;
    index_t index;
}

struct egress_metadata_t {
    bit<2> slot;
    bit<32> coarse;
    bit<32> coarse_before;
    bit<16> within;
    bit<32> cycle_0;
    bit<32> cycle_1;
    bit<32> cycle_2;
    bit<32> cycle_3;
    bit<32> sum_0;
    bit<32> sum_1;
    bit<32> sum_2;
    bit<32> sum_3;
    bit<16> log_count;
    int<32> part;
    int<32> rest;
    bit<8> halvings;
    int<32> average_q24;
    MirrorId_t session;
    PortId_t port;
    bit<32> number;
}

/* A register of those that take turns: what an epoch has added, and the cycle it was begun in */
struct slot_t {
    bit<32> sum;
    bit<32> cycle;
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
        /* The clock, where bytes begin, so that no shift is needed later */
        bit<64> intrinsic = packet.lookahead<bit<64>>();
        meta.coarse = intrinsic[47:16];
        meta.fine = intrinsic[39:8];
        intrinsic_parser.apply(packet, ig_intr_md);
        transition select(packet.lookahead<bit<112>>()[15:0]) {
            ETHERTYPE_NOTIFICATION: notification;
            default: ethernet;
        }
    }

    state notification {
        packet.extract(hdr.notification);
        transition accept;
    }

#include "common/activity_parser.p4"
}

#define SLOT(NAME, SLOT, INDEX_T, INDEX, INCREMENT, ENTRIES) \
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
            meta.slot: exact; \
        } \
        actions = { \
            add_to_##SLOT; \
            look_at_##SLOT; \
        } \
        const default_action = look_at_##SLOT(); \
        const entries = { \
            SLOT: add_to_##SLOT(); \
        } \
        size = 4; \
    }

/* Slots behind this one are of the cycle before */
#define CYCLES(CYCLE, BEFORE) \
    action cycles_0() { \
        meta.cycle_0 = CYCLE; \
        meta.cycle_1 = BEFORE; \
        meta.cycle_2 = BEFORE; \
        meta.cycle_3 = BEFORE; \
    } \
    action cycles_1() { \
        meta.cycle_0 = CYCLE; \
        meta.cycle_1 = CYCLE; \
        meta.cycle_2 = BEFORE; \
        meta.cycle_3 = BEFORE; \
    } \
    action cycles_2() { \
        meta.cycle_0 = CYCLE; \
        meta.cycle_1 = CYCLE; \
        meta.cycle_2 = CYCLE; \
        meta.cycle_3 = BEFORE; \
    } \
    action cycles_3() { \
        meta.cycle_0 = CYCLE; \
        meta.cycle_1 = CYCLE; \
        meta.cycle_2 = CYCLE; \
        meta.cycle_3 = CYCLE; \
    } \
    table cycles { \
        key = { \
            meta.slot: exact; \
        } \
        actions = { \
            cycles_0; \
            cycles_1; \
            cycles_2; \
            cycles_3; \
        } \
        const default_action = cycles_0(); \
        const entries = { \
            1: cycles_1(); \
            2: cycles_2(); \
            3: cycles_3(); \
        } \
        size = 4; \
    }

/* Older slots weigh less: by so many bits for each epoch */
#define DECAY(ONE, TWO, THREE) \
    action decay_0() { \
        meta.sum_3 = meta.sum_3 >> ONE; \
        meta.sum_2 = meta.sum_2 >> TWO; \
        meta.sum_1 = meta.sum_1 >> THREE; \
    } \
    action decay_1() { \
        meta.sum_0 = meta.sum_0 >> ONE; \
        meta.sum_3 = meta.sum_3 >> TWO; \
        meta.sum_2 = meta.sum_2 >> THREE; \
    } \
    action decay_2() { \
        meta.sum_1 = meta.sum_1 >> ONE; \
        meta.sum_0 = meta.sum_0 >> TWO; \
        meta.sum_3 = meta.sum_3 >> THREE; \
    } \
    action decay_3() { \
        meta.sum_2 = meta.sum_2 >> ONE; \
        meta.sum_1 = meta.sum_1 >> TWO; \
        meta.sum_0 = meta.sum_0 >> THREE; \
    } \
    table decay { \
        key = { \
            meta.slot: exact; \
        } \
        actions = { \
            decay_0; \
            decay_1; \
            decay_2; \
            decay_3; \
        } \
        const default_action = decay_0(); \
        const entries = { \
            1: decay_1(); \
            2: decay_2(); \
            3: decay_3(); \
        } \
        size = 4; \
    }

control AbcIngress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {

    /* ---- where packets go, and who sends them ---- */

    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
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

    /* Customers, whose packets are metered whatever they bring; nodes of the domain, whose activities are believed; the
       egress: of other ports notifications are packets like others */
    action from_customer() {
        meta.customer = 1;
    }

    action from_domain() {
        meta.customer = 0;
    }

    action from_egress() {
        meta.is_notification = 1;
        ig_dprsr_md.drop_ctl = 1;
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

    /* ---- the meter, section 3.2 ---- */

    SLOT(volume, 0, aggregate_t, meta.aggregate, meta.increment, AGGREGATE_ENTRIES)
    SLOT(volume, 1, aggregate_t, meta.aggregate, meta.increment, AGGREGATE_ENTRIES)
    SLOT(volume, 2, aggregate_t, meta.aggregate, meta.increment, AGGREGATE_ENTRIES)
    SLOT(volume, 3, aggregate_t, meta.aggregate, meta.increment, AGGREGATE_ENTRIES)
    CYCLES((bit<32>) meta.coarse[31:19], (bit<32>) meta.coarse_before[31:19])
    DECAY(4, 8, 12)

    Register<bit<32>, aggregate_t>(AGGREGATE_ENTRIES) first;
    RegisterAction<bit<32>, aggregate_t, bit<32>>(first) start_meter = {
        void apply(inout bit<32> value, out bit<32> started) {
            if (value == 0) {
                value = meta.fine;
            }
            started = value;
        }
    };

    Register<bit<32>, aggregate_t>(AGGREGATE_ENTRIES) mature;
    RegisterAction<bit<32>, aggregate_t, bit<32>>(mature) ripen = {
        void apply(inout bit<32> value, out bit<32> now) {
            if (meta.age > (1 << MATURE_SHIFT) - 1) {
                value = 1;
            }
            now = value;
        }
    };

    action length(bit<32> log_q12) {
        meta.exponent = log_q12;
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
            meta.exponent[16:4]: exact @name("exponent");
        }
        actions = {
            weigh;
            NoAction;
        }
        const default_action = NoAction();
        size = WEIGHTED_ENTRIES;
    }

    action rejuvenate(int<32> log_q16) {
        meta.offset = meta.offset - log_q16;
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
        meta.activity = meta.offset + log_q16;
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

    Register<int<32>, index_t>(PORTS) average; /* activity, 16 bits after the point */
    RegisterAction<int<32>, index_t, int<32>>(average) read_average = {
        void apply(inout int<32> value, out int<32> result) {
            result = value;
        }
    };
    RegisterAction<int<32>, index_t, int<32>>(average) write_average = {
        void apply(inout int<32> value) {
            value = meta.average;
        }
    };

    Register<int<32>, index_t>(PORTS) departed; /* number of the packet that left last */
    RegisterAction<int<32>, index_t, int<32>>(departed) read_departed = {
        void apply(inout int<32> value, out int<32> result) {
            result = value;
        }
    };
    RegisterAction<int<32>, index_t, int<32>>(departed) write_departed = {
        void apply(inout int<32> value) {
            value = meta.number;
        }
    };

    Register<int<32>, index_t>(PORTS) accepted_number; /* of the packet accepted last */
    /* If no more wait than the threshold; as a difference, for numbers wrap */
    RegisterAction<int<32>, index_t, int<32>>(accepted_number) accept_below = {
        void apply(inout int<32> value, out int<32> number) {
            number = 0;
            if (value - meta.bound <= 0) {
                value = value + 1;
                number = value;
            }
        }
    };
    RegisterAction<int<32>, index_t, int<32>>(accepted_number) accept_any = {
        void apply(inout int<32> value, out int<32> number) {
            value = value + 1;
            number = value;
        }
    };

    action limit(int<32> packets) {
        meta.bound = meta.bound + packets;
    }

    /* Equation (2), in whole packets and within the buffer */
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

    /* ---- what the control plane reads ---- */

    Register<int<32>, aggregate_t>(AGGREGATE_ENTRIES) activities; /* of an aggregate's last packet */
    RegisterAction<int<32>, aggregate_t, int<32>>(activities) keep_activity = {
        void apply(inout int<32> value) {
            value = meta.activity;
        }
    };

    Register<packets_t, aggregate_t>(AGGREGATE_ENTRIES) aggregate_packets;
    RegisterAction<packets_t, aggregate_t, bit<1>>(aggregate_packets) count_accepted_of_aggregate = {
        void apply(inout packets_t value) {
            value.accepted = value.accepted + 1;
        }
    };
    RegisterAction<packets_t, aggregate_t, bit<1>>(aggregate_packets) count_dropped_of_aggregate = {
        void apply(inout packets_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    Register<packets_t, index_t>(PORTS) port_packets;
    RegisterAction<packets_t, index_t, bit<1>>(port_packets) count_accepted = {
        void apply(inout packets_t value) {
            value.accepted = value.accepted + 1;
        }
    };
    RegisterAction<packets_t, index_t, bit<1>>(port_packets) count_dropped = {
        void apply(inout packets_t value) {
            value.dropped = value.dropped + 1;
        }
    };

    /* ---- steps ---- */

    action prepare() {
        meta.slot = meta.coarse[18:17];
        meta.within[17:1] = (int<17>) meta.coarse[16:0];
        meta.exponent_time[13:0] = meta.coarse[16:3];
        meta.coarse_before = meta.coarse - (1 << 19);
    }

    action add_exponents() {
        meta.exponent = meta.exponent + meta.exponent_time;
    }

    action subtract_within() {
        meta.offset = meta.offset - meta.within;
    }

    action find_age() {
        meta.age = meta.fine - meta.started;
    }

    action add_pairs() {
        meta.sum_0 = meta.sum_0 |+| meta.sum_1;
        meta.sum_2 = meta.sum_2 |+| meta.sum_3;
    }

    action add_all() {
        meta.sum_0 = meta.sum_0 |+| meta.sum_2;
    }

    action subtract_average() {
        hdr.bridge.excess = meta.offset - meta.average;
    }

    action believe() {
        meta.offset = hdr.activity.activity;
        hdr.bridge.labelled = 1;
    }

    action label() {
        hdr.activity.setValid();
        hdr.activity.activity = meta.activity;
        hdr.activity.ether_type = hdr.ethernet.ether_type;
        hdr.ethernet.ether_type = ETHERTYPE_ACTIVITY;
    }

    /* A customer's packet may come with such a header; what it says is not believed */
    action label_again() {
        hdr.activity.activity = meta.activity;
    }

    action unlabel() {
        hdr.ethernet.ether_type = hdr.activity.ether_type;
        hdr.activity.setInvalid();
    }

    action receive_notification() {
        meta.index = hdr.notification.port;
        meta.number = (int<32>) hdr.notification.number;
        meta.average = hdr.notification.average_q24 >> 8;
    }

    action learn() {
        write_average.execute(meta.index);
        write_departed.execute(meta.index);
    }

    action ask() {
        meta.average = read_average.execute(meta.index);
        meta.bound = read_departed.execute(meta.index);
    }

    apply {
        prepare();
        hdr.bridge.setValid();
        hdr.bridge.id = PACKET_ID;
        hdr.bridge.pipe = ig_intr_md.ingress_port[8:7];
        wire.apply();
        ingress_role.apply();
        if (meta.is_notification == 1 && hdr.notification.isValid()) {
            receive_notification();
            learn();
        } else {
            managed_ports.apply();
            meta.index = ig_tm_md.ucast_egress_port;
            ask();

            if (meta.customer == 1) {
                if (hdr.ipv4.isValid()) {
                    aggregates.apply();
                    length_logarithms.apply();
                } else if (hdr.ipv6.isValid()) {
                    aggregates_ipv6.apply();
                    length_logarithms_ipv6.apply();
                }
            } else if (hdr.activity.isValid()) {
                believe();
            }
            if (meta.metered == 1) {
                hdr.bridge.labelled = 1;
                add_exponents();
                weighted_lengths.apply();
                cycles.apply();
                subtract_within();
                meta.started = start_meter.execute(meta.aggregate);
                find_age();
                meta.is_mature = ripen.execute(meta.aggregate);
                if (meta.is_mature == 0) {
                    young_logarithms.apply();
                }
                use_0.apply();
                use_1.apply();
                use_2.apply();
                use_3.apply();
                decay.apply();
                add_pairs();
                add_all();
            }
            subtract_average();
            if (meta.metered == 1) {
                logarithms.apply();
                keep_activity.execute(meta.aggregate);
            }

            if (hdr.bridge.managed == 1) {
                if (hdr.bridge.labelled == 1) {
                    thresholds.apply();
                    meta.number = accept_below.execute(meta.index);
                } else {
                    meta.number = accept_any.execute(meta.index);
                }
                if (meta.number == 0) {
                    ig_dprsr_md.drop_ctl = 1;
                    count_dropped.execute(meta.index);
                    if (meta.metered == 1) {
                        count_dropped_of_aggregate.execute(meta.aggregate);
                    }
                } else {
                    count_accepted.execute(meta.index);
                    if (meta.metered == 1) {
                        count_accepted_of_aggregate.execute(meta.aggregate);
                    }
                }
            }
            hdr.bridge.number = (bit<32>) meta.number;

            if (meta.metered == 1) {
                if (hdr.activity.isValid()) {
                    label_again();
                } else {
                    label();
                }
            } else if (meta.customer == 1 && hdr.activity.isValid()) {
                unlabel();
            }
        }
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
        packet.extract(eg_intr_md);
        transition select(packet.lookahead<bit<8>>()) {
            NOTIFICATION_ID: mirrored;
            default: from_ingress;
        }
    }

    /* What is left of the packet is not looked at */
    state mirrored {
        packet.extract(hdr.mirror);
        transition accept;
    }

    state from_ingress {
        packet.extract(hdr.bridge);
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

/* The average of the activities of packets that leave: a new value's excess over it, divided by how many count */
control Departure(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in PortId_t port,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md) {
    int<32> excess = hdr.bridge.excess;
    int<32> part;
    bit<8> halvings;

    SLOT(count, 0, index_t, port, 1, PORTS)
    SLOT(count, 1, index_t, port, 1, PORTS)
    SLOT(count, 2, index_t, port, 1, PORTS)
    SLOT(count, 3, index_t, port, 1, PORTS)
    CYCLES((bit<32>) meta.coarse[31:14], (bit<32>) meta.coarse_before[31:14])
    DECAY(1, 2, 3)

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
        meta.rest = part >> 1;
    }

    action quarter() {
        meta.rest = part >> 2;
    }

    action eighth() {
        meta.rest = part >> 3;
    }

    action nothing() {
        meta.rest = 0;
    }

    table further {
        key = {
            halvings: exact;
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
        meta.coarse = eg_prsr_md.global_tstamp[47:16];
        meta.coarse_before = eg_prsr_md.global_tstamp[47:16] - (1 << 14);
    }

    action slice() {
        meta.slot = meta.coarse[13:12];
        meta.within = (bit<16>) meta.coarse[11:9];
    }

    action add_pairs() {
        meta.sum_0 = meta.sum_0 |+| meta.sum_1;
        meta.sum_2 = meta.sum_2 |+| meta.sum_3;
    }

    action add_all() {
        meta.sum_0 = meta.sum_0 |+| meta.sum_2;
    }

    action add_rest() {
        meta.part = part + meta.rest;
    }

    apply {
        part = 0;
        halvings = 0;
        if (hdr.bridge.labelled == 1) {
            prepare();
            slice();
            cycles.apply();
            use_0.apply();
            use_1.apply();
            use_2.apply();
            use_3.apply();
            decay.apply();
            add_pairs();
            add_all();
            count_logarithms.apply();
            gains.apply();
            further.apply();
            add_rest();
        }
        meta.average_q24 = move_average.execute(port);
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

    /* Ports that lead out of the domain, and into it */
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

    action notify() {
        eg_dprsr_md.mirror_type = NOTIFICATION_MIRROR;
        meta.session = (MirrorId_t) hdr.bridge.pipe + 1;
        meta.port = eg_intr_md.egress_port;
        meta.number = hdr.bridge.number;
    }

    action recirculate() {
        hdr.notification.setValid();
        hdr.notification.destination = 0;
        hdr.notification.source = 0;
        hdr.notification.ether_type = ETHERTYPE_NOTIFICATION;
        hdr.notification.port = hdr.mirror.port;
        hdr.notification.number = hdr.mirror.number;
        hdr.notification.average_q24 = hdr.mirror.average_q24;
        hdr.mirror.setInvalid();
    }

    apply {
        if (hdr.mirror.isValid()) {
            recirculate();
        } else {
            if (hdr.bridge.managed == 1) {
                departure.apply(hdr, meta, eg_intr_md.egress_port, eg_prsr_md);
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
                meta.session, {NOTIFICATION_ID, 0, meta.port, meta.number, meta.average_q24});
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

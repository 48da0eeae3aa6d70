/* Activity-based congestion management, for BMv2. See README.md.

   By default the meter and the AQM are those of cctoolkit.aqm.IntegerAbc (bmv2_arithmetic.p4), in the paper's
   control flow: the ingress decides, the egress copies the queue length to a register. With
   -DTOFINO_ARITHMETIC they are those of the Tofino version (bmv2_tofino_arithmetic.p4), with its tables and
   registers. */

#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#include "common/headers.p4"
#include "activity.p4"
#include "common/test_input.p4"
#include "constants.p4"

typedef bit<9> port_t;
typedef bit<32> aggregate_t;

const bit<32> PORTS = 512;

struct headers_t {
    TEST_HEADERS
    ethernet_h ethernet;
    activity_h activity;
    vlan_h vlan;
    ipv4_h ipv4;
    ipv6_h ipv6;
}

struct metadata_t {
    bit<1> arrives; /* in a test, a packet may only arrive or only leave */
    bit<1> leaves;
    bit<1> managed; /* its egress port has an AQM */
    bit<1> labelled; /* it has an activity */
#ifdef TOFINO_ARITHMETIC
    bit<8> profile;
    bit<32> number; /* of an accepted packet, per port */
    int<32> excess; /* activity minus the average */
    int<32> part; /* share of the excess that moves the average */
    bit<8> halvings; /* a further share: part >> halvings */
#endif
}

/* ActivityMeter and ActivityAqm at ingress, Departure at egress */
#ifdef TOFINO_ARITHMETIC
#include "bmv2_tofino_arithmetic.p4"
#else
#include "bmv2_arithmetic.p4"
#endif

parser AbcParser(
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

#include "activity_parser.p4"
}

control AbcVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control AbcIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    /* Per aggregate, and per port with an AQM; pairs on the Tofino */
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) aggregate_packets_accepted;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) aggregate_packets_dropped;
    register<bit<32>, bit<32>>(PORTS) port_packets_accepted;
    register<bit<32>, bit<32>>(PORTS) port_packets_dropped;
    register<bit<32>, bit<32>>(AGGREGATE_ENTRIES) activities; /* of each aggregate's last packet */

    ActivityMeter() activity_meter;
    ActivityAqm() activity_aqm;

    bit<64> now_ns;
    bit<64> frame_bytes;
    bit<32> out_port;
    bit<1> customer = 0;
    bit<1> metered = 0;
    aggregate_t number = 0;
    int<32> offset = 0;
    int<32> activity = 0;
    bool accepted;
    bit<64> detail;
    bit<32> so_far;

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

    /* Who sends on a port: customers, whose packets are always metered, or nodes of the domain, whose
       activities are trusted */
    action from_customer() {
        customer = 1;
    }

    action from_domain() {
        customer = 0;
    }

    table ingress_role {
        key = {
            standard_metadata.ingress_port: exact @name("port");
        }
        actions = {
            from_customer;
            from_domain;
        }
        const default_action = from_customer();
        size = 512;
    }

    action meter_as(aggregate_t aggregate, int<32> offset_q16) {
        number = aggregate;
        offset = offset_q16;
        metered = 1;
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

    action label() {
        hdr.activity.setValid();
        hdr.activity.activity = activity;
        hdr.activity.ether_type = hdr.ethernet.ether_type;
        hdr.ethernet.ether_type = ETHERTYPE_ACTIVITY;
    }

    /* A customer's packet may already carry the header; its value is not trusted */
    action label_again() {
        hdr.activity.activity = activity;
    }

    action unlabel() {
        hdr.ethernet.ether_type = hdr.activity.ether_type;
        hdr.activity.setInvalid();
    }

    action count_accepted() {
        port_packets_accepted.read(so_far, out_port);
        port_packets_accepted.write(out_port, so_far + 1);
    }

    action count_dropped() {
        port_packets_dropped.read(so_far, out_port);
        port_packets_dropped.write(out_port, so_far + 1);
    }

    action count_accepted_of_aggregate() {
        aggregate_packets_accepted.read(so_far, number);
        aggregate_packets_accepted.write(number, so_far + 1);
    }

    action count_dropped_of_aggregate() {
        aggregate_packets_dropped.read(so_far, number);
        aggregate_packets_dropped.write(number, so_far + 1);
    }

#ifdef READING_LOAD
    /* BMv2 compares a packet with one ternary entry after another: entries that match nothing make it read slower */
    table reading_load {
        key = {
            hdr.ethernet.source: ternary @name("source");
        }
        actions = {
            NoAction;
        }
        default_action = NoAction();
        size = 65536;
    }
#endif

    apply {
#ifdef READING_LOAD
        reading_load.apply();
#endif
#ifdef TEST_INPUT
        now_ns = hdr.test.now_ns;
        frame_bytes = (bit<64>) (standard_metadata.packet_length - hdr.test.minSizeInBytes());
        meta.arrives = hdr.test.input[0:0];
        meta.leaves = hdr.test.input[1:1];
#else
        now_ns = (bit<64>) standard_metadata.ingress_global_timestamp * 1000;
        frame_bytes = (bit<64>) standard_metadata.packet_length;
        meta.arrives = 1;
        meta.leaves = 1;
#endif
        wire.apply();
        out_port = (bit<32>) standard_metadata.egress_spec;
        ingress_role.apply();
        if (customer == 1 && meta.arrives == 1) {
            if (hdr.ipv4.isValid()) {
                aggregates.apply();
            } else if (hdr.ipv6.isValid()) {
                aggregates_ipv6.apply();
            }
            if (metered == 1) {
                activity_meter.apply(hdr, now_ns, frame_bytes, number, offset, activity);
                activities.write(number, (bit<32>) activity);
                if (hdr.activity.isValid()) {
                    label_again();
                } else {
                    label();
                }
            } else if (hdr.activity.isValid()) {
                unlabel();
            }
        }
        if (hdr.activity.isValid()) {
            meta.labelled = 1;
            activity = hdr.activity.activity;
        }
        activity_aqm.apply(hdr, meta, now_ns, out_port, activity, accepted, detail);
        if (meta.managed == 1 && meta.arrives == 1) {
            if (accepted) {
                count_accepted();
                if (metered == 1) {
                    count_accepted_of_aggregate();
                }
            } else {
                count_dropped();
                if (metered == 1) {
                    count_dropped_of_aggregate();
                }
            }
        }
#ifdef TEST_INPUT
        hdr.test.decision = DECISION_PASS;
        if (!accepted) {
            hdr.test.decision = DECISION_DROP;
            meta.leaves = 0;
        }
        hdr.test.value = (bit<32>) activity;
        hdr.test.value2 = detail;
#else
        if (!accepted) {
            mark_to_drop(standard_metadata);
        }
#endif
    }
}

control AbcEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    Departure() departure;

    bit<64> now_ns;

    /* For ports out of the domain, and for ports inside it */
    action strip() {
        hdr.ethernet.ether_type = hdr.activity.ether_type;
        hdr.activity.setInvalid();
    }

    action keep() {
    }

    table egress_role {
        key = {
            standard_metadata.egress_port: exact @name("port");
        }
        actions = {
            strip;
            keep;
        }
        const default_action = strip();
        size = 512;
    }

    apply {
#ifdef TEST_INPUT
        now_ns = hdr.test.now_ns;
#else
        now_ns = (bit<64>) standard_metadata.egress_global_timestamp * 1000;
#endif
        if (meta.managed == 1 && meta.leaves == 1) {
            departure.apply(hdr, meta, now_ns, standard_metadata);
        }
        if (hdr.activity.isValid()) {
            egress_role.apply();
        }
    }
}

control AbcComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control AbcDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(
    AbcParser(),
    AbcVerifyChecksum(),
    AbcIngress(),
    AbcEgress(),
    AbcComputeChecksum(),
    AbcDeparser()) main;

/* RTTs and long flows of tapped traffic, for Tofino 1 and 2: Gomez et al., "Improving Flow Fairness in
   Non-programmable Networks using P4-programmable Data Planes", section 3.1, on the tables of Chen et al.,
   "Measuring TCP Round-Trip Time in the Data Plane". See README.md. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "types.p4"
#include "constants.p4"

#ifndef LONG /* tests choose another */
#define LONG LONG_BYTES
#endif

#define INGRESS_PORT ig_intr_md.ingress_port
#define TOLD ig_dprsr_md.digest_type

struct headers_t {
    TEST_HEADERS
    PACKET_HEADERS
}

/* A segment waiting for its ACK. Time 0 marks an empty entry. */
struct entry_t {
    bit<32> signature;
    bit<32> time; /* in steps of 65.5 us, which wrap after 78 h */
}

struct owner_t {
    bit<32> flow;
    bit<32> is_long;
}

struct bytes_t {
    bit<32> offered;
    bit<32> delivered;
}

struct rtt_t {
    bit<32> least;
    bit<32> latest;
}

/* A digest has at most 48 bytes. An IPv6 flow takes 47, so its type must fit into one. */
@pa_container_size("ingress", "ig_intr_md_for_dprsr.digest_type", 8)
@pa_container_size("ingress", "meta.digest", 8)
parser MonitorIngressParser(
    packet_in packet,
    out headers_t hdr,
    out metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic_parser;
    state start {
        meta = {...};
        intrinsic_parser.apply(packet, ig_intr_md);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
        hdr.test.decision = 0;
        meta.clock_ns = hdr.test.now_ns[47:0];
        meta.now_ns = hdr.test.now_ns[31:0];
        meta.now_steps = hdr.test.now_ns[47:16];
#else
        meta.clock_ns = ig_intr_md.ingress_mac_tstamp;
        meta.now_ns = ig_intr_md.ingress_mac_tstamp[31:0];
        meta.now_steps = ig_intr_md.ingress_mac_tstamp[47:16];
#endif
        transition ethernet;
    }

#include "common/parser.p4"
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
    Register<entry_t, bit<(PLACE_BITS)>>(TABLE_ENTRIES) expected;
    Register<bit<32>, bit<(PLACE_BITS)>>(TABLE_ENTRIES) stamps;

    RegisterAction<entry_t, bit<(PLACE_BITS)>, outcome_t>(expected) put_in_expected = {
        void apply(inout entry_t value, out outcome_t result) {
            result = this.predicate(value.signature == signature, now_steps - value.time > TIMEOUT_STEPS);
            if (now_steps - value.time > TIMEOUT_STEPS) {
                value.signature = signature;
                value.time = now_steps;
            }
        }
    };
    RegisterAction<entry_t, bit<(PLACE_BITS)>, outcome_t>(expected) compare_expected = {
        void apply(inout entry_t value, out outcome_t result) {
            result = this.predicate(value.signature == signature, now_steps - value.time > TIMEOUT_STEPS);
        }
    };
    RegisterAction<entry_t, bit<(PLACE_BITS)>, outcome_t>(expected) look_up_expected = {
        void apply(inout entry_t value, out outcome_t result) {
            result = this.predicate(value.signature == signature, now_steps - value.time > TIMEOUT_STEPS);
            if (value.signature == signature) {
                value.signature = 0;
                value.time = 0;
            }
        }
    };
    RegisterAction<bit<32>, bit<(PLACE_BITS)>, bit<32>>(stamps) write_stamp = {
        void apply(inout bit<32> value) {
            value = now_ns;
        }
    };
    RegisterAction<bit<32>, bit<(PLACE_BITS)>, bit<32>>(stamps) clear_stamp = {
        void apply(inout bit<32> value) {
            value = 0;
        }
    };
    RegisterAction<bit<32>, bit<(PLACE_BITS)>, bit<32>>(stamps) read_stamp = {
        void apply(inout bit<32> value, out bit<32> result) {
            result = value;
        }
    };

    action put_in() {
        outcome = put_in_expected.execute(place[PLACE_BITS - 1:0]);
    }

    action compare() {
        outcome = compare_expected.execute(place[PLACE_BITS - 1:0]);
    }

    action look_up() {
        outcome = look_up_expected.execute(place[PLACE_BITS - 1:0]);
    }

    action write() {
        write_stamp.execute(place[PLACE_BITS - 1:0]);
    }

    action clear() {
        clear_stamp.execute(place[PLACE_BITS - 1:0]);
    }

    action read() {
        stamp_ns = read_stamp.execute(place[PLACE_BITS - 1:0]);
    }

#include "stage.p4"
}

#include "expected_acks.p4"

/* A row of the sketch: cctoolkit.CountMinSketch with a switch's hashes */
control Row(in bit<16> place, in bit<32> frame_bytes, out bit<1> over) {
    Register<bit<32>, bit<16>>(SKETCH_ENTRIES) counters;

    RegisterAction<bit<32>, bit<16>, bit<1>>(counters) add = {
        void apply(inout bit<32> value, out bit<1> result) {
            result = 0;
            if (value + frame_bytes > LONG) {
                result = 1;
            }
            value = value |+| frame_bytes;
        }
    };

    apply {
        over = add.execute(place);
    }
}

control Owner(inout metadata_t meta) {
    Register<owner_t, bit<(SLOT_BITS)>>(SLOT_ENTRIES) owner;

    RegisterAction<owner_t, bit<(SLOT_BITS)>, outcome_t>(owner) check_owner = {
        void apply(inout owner_t value, out outcome_t result) {
            result = this.predicate(value.flow == meta.flow, value.is_long == 0);
        }
    };
    RegisterAction<owner_t, bit<(SLOT_BITS)>, outcome_t>(owner) open_owner = {
        void apply(inout owner_t value, out outcome_t result) {
            result = this.predicate(value.flow == meta.flow, value.is_long == 0);
            if (value.is_long == 0) {
                value.flow = meta.flow;
            }
        }
    };
    RegisterAction<owner_t, bit<(SLOT_BITS)>, outcome_t>(owner) hold_owner = {
        void apply(inout owner_t value, out outcome_t result) {
            result = this.predicate(value.flow == meta.flow, value.is_long == 0);
            if (value.is_long == 0) {
                value.flow = meta.flow;
            }
            value.is_long = 1;
        }
    };

    action check() {
        meta.slot_outcome = check_owner.execute(meta.flow[SLOT_BITS - 1:0]);
    }

    action open() {
        meta.slot_outcome = open_owner.execute(meta.flow[SLOT_BITS - 1:0]);
    }

    action hold() {
        meta.slot_outcome = hold_owner.execute(meta.flow[SLOT_BITS - 1:0]);
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
    Register<bytes_t, bit<(SLOT_BITS)>>(SLOT_ENTRIES) bytes;
    Register<rtt_t, bit<(SLOT_BITS)>>(SLOT_ENTRIES) rtt;

    RegisterAction<bytes_t, bit<(SLOT_BITS)>, bit<32>>(bytes) start_bytes_of = {
        void apply(inout bytes_t value) {
            value.offered = frame_bytes;
            value.delivered = 0;
        }
    };
    RegisterAction<bytes_t, bit<(SLOT_BITS)>, bit<32>>(bytes) add_offered = {
        void apply(inout bytes_t value) {
            value.offered = value.offered + frame_bytes;
        }
    };
    RegisterAction<bytes_t, bit<(SLOT_BITS)>, bit<32>>(bytes) add_delivered = {
        void apply(inout bytes_t value) {
            value.delivered = value.delivered + frame_bytes;
        }
    };
    RegisterAction<rtt_t, bit<(SLOT_BITS)>, bit<32>>(rtt) start_rtt_of = {
        void apply(inout rtt_t value) {
            value.least = 0;
            value.latest = 0;
        }
    };
    RegisterAction<rtt_t, bit<(SLOT_BITS)>, bit<32>>(rtt) keep_rtt_of = {
        void apply(inout rtt_t value) {
            if (value.least == 0 || set.rtt_ns < value.least) {
                value.least = set.rtt_ns;
            }
            value.latest = set.rtt_ns;
        }
    };

    action start_bytes() {
        start_bytes_of.execute(flow[SLOT_BITS - 1:0]);
    }

    action offer() {
        add_offered.execute(flow[SLOT_BITS - 1:0]);
    }

    action deliver() {
        add_delivered.execute(flow[SLOT_BITS - 1:0]);
    }

    action start_rtt() {
        start_rtt_of.execute(flow[SLOT_BITS - 1:0]);
    }

    action keep_rtt() {
        keep_rtt_of.execute(flow[SLOT_BITS - 1:0]);
    }

#include "flow_direction.p4"
}

control MonitorIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    ExpectedAcks() set_0;
    ExpectedAcks() set_1;
    Row() row_0;
    Row() row_1;
    Row() row_2;
    Row() row_3;
    Owner() slots;
    FlowDirection() direction_of_0;
    FlowDirection() direction_of_1;

    /* zlib's CRC-32 and Castagnoli's */
    CRCPolynomial<bit<32>>(0x1edc6f41, true, false, false, 0xffffffff, 0xffffffff) crc32c;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) own_ipv4;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) other_ipv4;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) own_ipv6;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) other_ipv6;
    Hash<bit<16>>(HashAlgorithm_t.CRC32) place_of_data;
    Hash<bit<16>>(HashAlgorithm_t.CRC32) place_of_ack;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, crc32c) signature_of_data;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, crc32c) signature_of_ack;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) sketch_crc32;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, crc32c) sketch_crc32c;

    /* Nothing else clears the digest's type, and tapped packets, which are dropped, have digests too */
    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_dprsr_md.drop_ctl = 0;
        ig_dprsr_md.digest_type = 0;
    }

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
        ig_dprsr_md.digest_type = 0;
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

    /* One hash per action: a table has only 32 bits for values that do not come from its entries */
    action own_fid_ipv4() {
        meta.own_fid = own_ipv4.get({hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
            meta.source_port, meta.destination_port});
    }

    action other_fid_ipv4() {
        meta.other_fid = other_ipv4.get({hdr.ipv4.destination, hdr.ipv4.source, hdr.ipv4.protocol,
            meta.destination_port, meta.source_port});
    }

    action own_fid_ipv6() {
        meta.own_fid = own_ipv6.get({hdr.ipv6.source, hdr.ipv6.destination, hdr.ipv6.next_header,
            meta.source_port, meta.destination_port});
    }

    action other_fid_ipv6() {
        meta.other_fid = other_ipv6.get({hdr.ipv6.destination, hdr.ipv6.source, hdr.ipv6.next_header,
            meta.destination_port, meta.source_port});
    }

    action place_data() {
        meta.data_place = place_of_data.get({meta.own_fid, meta.expected_ack});
    }

    action place_ack() {
        meta.ack_place = place_of_ack.get({meta.other_fid, hdr.tcp.ack});
    }

    action sign_data() {
        meta.data_signature = signature_of_data.get({meta.own_fid, meta.expected_ack});
    }

    action sign_ack() {
        meta.ack_signature = signature_of_ack.get({meta.other_fid, hdr.tcp.ack});
    }

    action hash_rows_0_1() {
        meta.of_rows_0_1 = sketch_crc32.get({meta.own_fid});
    }

    action hash_rows_2_3() {
        meta.of_rows_2_3 = sketch_crc32c.get({meta.own_fid});
    }

#ifdef TEST_INPUT
    /* A table, because bits from several places take an instruction each */
    action show(bit<16> decision) {
        hdr.test.decision = decision;
    }

    action show_sample_0(bit<16> decision) {
        hdr.test.decision = decision;
        hdr.test.value = meta.set_0.rtt_ns;
    }

    action show_sample_1(bit<16> decision) {
        hdr.test.decision = decision;
        hdr.test.value = meta.set_1.rtt_ns;
    }

#define SHOW(IS_NEW, IS_OWN, BECAME, SHOWN) \
    (0, IS_NEW, IS_OWN, BECAME, 0, 0): show(SHOWN + 16); \
    (1, IS_NEW, IS_OWN, BECAME, 0, 0): show(SHOWN); \
    (0, IS_NEW, IS_OWN, BECAME, 1, 0): show_sample_0(SHOWN + 17); \
    (1, IS_NEW, IS_OWN, BECAME, 1, 0): show_sample_0(SHOWN + 1); \
    (0, IS_NEW, IS_OWN, BECAME, 0, 1): show_sample_1(SHOWN + 17); \
    (1, IS_NEW, IS_OWN, BECAME, 0, 1): show_sample_1(SHOWN + 1);

    table shown {
        key = {
            meta.direction: exact;
            meta.is_new: exact;
            meta.is_own: exact;
            meta.became_long: exact;
            meta.set_0.is_sample: exact;
            meta.set_1.is_sample: exact;
        }
        actions = {
            show;
            show_sample_0;
            show_sample_1;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            SHOW(0, 0, 0, 0)
            SHOW(0, 0, 1, 2)
            SHOW(0, 1, 0, 4)
            SHOW(0, 1, 1, 6)
            SHOW(1, 0, 0, 8)
            SHOW(1, 0, 1, 10)
            SHOW(1, 1, 0, 12)
            SHOW(1, 1, 1, 14)
        }
        size = 64;
    }

    action show_fids() {
        hdr.test.value2 = meta.own_fid ++ meta.flow;
    }
#endif

    apply {
        wire.apply();
        taps.apply();
        if (hdr.tcp.isValid()) {
            segment.apply();
        } else if (!hdr.udp.isValid()) {
            no_flow();
        }
        if (hdr.ipv4.isValid()) {
            of_ipv4();
            own_fid_ipv4();
            other_fid_ipv4();
        } else {
            of_ipv6();
            own_fid_ipv6();
            other_fid_ipv6();
        }
        add_length();
        if (meta.tap == BEFORE_QUEUE && meta.is_segment == 1) {
            roles.apply();
        }
        difference.apply();
        place_data();
        place_ack();
        sign_data();
        sign_ack();
        hash_rows_0_1();
        hash_rows_2_3();
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
#ifdef TEST_INPUT
        if (meta.tap != NO_TAP) {
            shown.apply();
            show_fids();
        }
#endif
    }
}

control MonitorIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    @name("flow_ipv4_t") Digest<flow_ipv4_t>() flow_ipv4;
    @name("flow_ipv6_t") Digest<flow_ipv6_t>() flow_ipv6;

    apply {
        if (ig_dprsr_md.digest_type == DIGEST_IPV4) {
            flow_ipv4.pack({meta.clock_ns, meta.rtt_ns, meta.events, hdr.ipv4.source, hdr.ipv4.destination,
                meta.source_port, meta.destination_port});
        } else if (ig_dprsr_md.digest_type == DIGEST_IPV6) {
            flow_ipv6.pack({meta.clock_ns, meta.rtt_ns, meta.events, hdr.ipv6.source, hdr.ipv6.destination,
                meta.source_port, meta.destination_port});
        }
        packet.emit(hdr);
    }
}

struct egress_metadata_t {
}

parser MonitorEgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        transition accept;
    }
}

control MonitorEgress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    apply {}
}

control MonitorEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(
    MonitorIngressParser(),
    MonitorIngress(),
    MonitorIngressDeparser(),
    MonitorEgressParser(),
    MonitorEgress(),
    MonitorEgressDeparser()) pipe;

Switch(pipe) main;

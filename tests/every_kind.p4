/* Something of every kind that a control plane can ask for, for test_hardware_bmv2.py. */
#include <core.p4>
#include <v1model.p4>
#include "common/headers.p4"
#include "common/test_input.p4"

struct headers_t {
    TEST_HEADERS
    PACKET_HEADERS
}
struct seen_t {
    bit<32> input;
    bit<48> now_ns;
    bit<9> port;
}
struct metadata_t {
    seen_t seen;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.test);
        transition ethernet;
    }

#include "common/parser.p4"
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(8) pairs_first;
    register<bit<48>>(8) pairs_second;

    action send(bit<9> port) { standard_metadata.egress_spec = port; }
    action answer(bit<16> number) { hdr.test.decision = number; }
    table exact_one {
        key = { standard_metadata.ingress_port : exact @name("ingress_port"); }
        actions = { send; NoAction; }
    }
    table longest {
        key = { hdr.test.input : lpm @name("input"); }
        actions = { answer; }
        default_action = answer(1);
    }
    table masked {
        key = { hdr.test.random : ternary @name("random"); hdr.test.queue_depth : range @name("depth"); }
        actions = { answer; NoAction; }
    }
    apply {
        exact_one.apply();
        longest.apply();
        masked.apply();
        pairs_first.write(hdr.test.queue_delay_ns, hdr.test.random);
        pairs_second.write(hdr.test.queue_delay_ns, (bit<48>)hdr.test.now_ns);
        if (hdr.test.now_ns == 77) {
            meta.seen = { (bit<32>) hdr.test.input, (bit<48>)hdr.test.now_ns, standard_metadata.ingress_port };
            digest<seen_t>(1, meta.seen);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

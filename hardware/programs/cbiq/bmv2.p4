/* Dragonfly's data collection, for BMv2: the twin of tofino.p4, which describes it. */

#include <core.p4>
#include <v1model.p4>

#include "common/headers.p4"
#include "slots_and_flows.p4"
#include "common/test_input.p4"

struct headers_t {
    PACKET_HEADERS
    TEST_HEADERS
}

struct metadata_t {
}

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

control CheckChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(RING_CELLS) in_first_slot;
    register<bit<32>>(RING_CELLS) in_first_seq;
    register<bit<32>>(RING_CELLS) in_counts_bytes;
    register<bit<32>>(RING_CELLS) in_counts_packets;
    register<bit<32>>(RING_CELLS) in_end;
    register<bit<32>>(1) in_seen_time;
    register<bit<32>>(1) in_seen_packets;

    SlotOf() in_slot;
    WatchedData() in_flows;

    action send(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table wire {
        key = { standard_metadata.ingress_port : exact @name("port"); }
        actions = { send; drop; }
        const default_action = drop();
        size = 512;
    }

    apply {
        wire.apply();

        bit<48> now_ns = standard_metadata.ingress_global_timestamp * 1000;
        bool here = true;
#ifdef TEST_INPUT
        now_ns = hdr.test.now_ns[47:0];
        here = hdr.test.input == 0; /* otherwise the time is that of its departure */
        hdr.test.decision = DECISION_PASS;
#endif
        if (here) {
            bit<32> packets;
            in_seen_packets.read(packets, 0);
            in_seen_packets.write(0, packets + 1);
            in_seen_time.write(0, now_ns[47:16]);

            bit<32> slot;
            bool known;
            in_slot.apply(now_ns, slot, known);
            bool watched;
            flow_t flow;
            bit<32> payload_bytes;
            bit<32> seq;
            bit<32> end;
            in_flows.apply(hdr.ipv4, hdr.ipv6, hdr.tcp, watched, flow, payload_bytes, seq, end);
#ifdef TEST_INPUT
            hdr.test.value = slot;
            hdr.test.value2 = known ? 64w1 : 0;
#endif
            if (known && watched && payload_bytes != 0) {
                bit<32> cell = (bit<32>)(slot[RING_BITS - 1:0] ++ flow);
                bit<32> cell_slot;
                bit<32> cell_bytes = 0;
                bit<32> cell_packets = 0;
                bit<32> cell_end = end;
                in_first_slot.read(cell_slot, cell);
                if (cell_slot != slot) {
                    in_first_slot.write(cell, slot);
                    in_first_seq.write(cell, seq);
                } else {
                    in_counts_bytes.read(cell_bytes, cell);
                    in_counts_packets.read(cell_packets, cell);
                    in_end.read(cell_end, cell);
                }
                in_counts_bytes.write(cell, cell_bytes + payload_bytes);
                in_counts_packets.write(cell, cell_packets + 1);
                if ((int<32>)(cell_end - end) < 0) {
                    cell_end = end;
                }
                in_end.write(cell, cell_end);
            }
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(RING_CELLS) out_first_slot;
    register<bit<32>>(RING_CELLS) out_first_seq;
    register<bit<32>>(RING_CELLS) out_counts_bytes;
    register<bit<32>>(RING_CELLS) out_counts_packets;
    register<bit<32>>(RING_CELLS) acked_slot;
    register<bit<32>>(RING_CELLS) acked_ack;
    register<bit<32>>(1) out_seen_time;
    register<bit<32>>(1) out_seen_packets;

    SlotOf() out_slot;
    WatchedData() out_flows;
    WatchedAck() out_acks;

    apply {
        bit<48> now_ns = standard_metadata.egress_global_timestamp * 1000;
        bool here = true;
#ifdef TEST_INPUT
        now_ns = hdr.test.now_ns[47:0];
        here = hdr.test.input == 1;
#endif
        if (here) {
            bit<32> packets;
            out_seen_packets.read(packets, 0);
            out_seen_packets.write(0, packets + 1);
            out_seen_time.write(0, now_ns[47:16]);

            bit<32> slot;
            bool known;
            out_slot.apply(now_ns, slot, known);
            bool watched;
            flow_t flow;
            bit<32> payload_bytes;
            bit<32> seq;
            bit<32> end;
            out_flows.apply(hdr.ipv4, hdr.ipv6, hdr.tcp, watched, flow, payload_bytes, seq, end);
#ifdef TEST_INPUT
            hdr.test.value = slot;
            hdr.test.value2 = known ? 64w1 : 0;
#endif
            if (known && watched && payload_bytes != 0) {
                bit<32> cell = (bit<32>)(slot[RING_BITS - 1:0] ++ flow);
                bit<32> cell_slot;
                bit<32> cell_bytes = 0;
                bit<32> cell_packets = 0;
                out_first_slot.read(cell_slot, cell);
                if (cell_slot != slot) {
                    out_first_slot.write(cell, slot);
                    out_first_seq.write(cell, seq);
                } else {
                    out_counts_bytes.read(cell_bytes, cell);
                    out_counts_packets.read(cell_packets, cell);
                }
                out_counts_bytes.write(cell, cell_bytes + payload_bytes);
                out_counts_packets.write(cell, cell_packets + 1);
            }

            bool acknowledges;
            out_acks.apply(hdr.ipv4, hdr.ipv6, hdr.tcp, acknowledges, flow);
            if (known && acknowledges) {
                bit<32> cell = (bit<32>)(slot[RING_BITS - 1:0] ++ flow);
                bit<32> cell_slot;
                bit<32> cell_ack;
                acked_slot.read(cell_slot, cell);
                acked_ack.read(cell_ack, cell);
                if (cell_slot != slot || (int<32>)(cell_ack - hdr.tcp.ack) < 0) {
                    acked_slot.write(cell, slot);
                    acked_ack.write(cell, hdr.tcp.ack);
                }
            }
        }
    }
}

control MakeChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
#ifdef TEST_INPUT
        packet.emit(hdr.test);
#endif
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
    }
}

V1Switch(SwitchParser(), CheckChecksums(), SwitchIngress(), SwitchEgress(), MakeChecksums(), SwitchDeparser()) main;

/* Dragonfly's data collection, for Tofino 1 and 2 (Carmel and Keslassy, section III). For each watched flow
   and time slot it records the first sequence number before the queue (ingress) and behind it (egress), the
   bytes and packets of data, the highest sequence number sent and the highest acknowledged.

   Registers are rings of 1024 slots for 16 flows. Each cell carries its slot number: the first packet of a
   slot finds a different number there and starts the cell afresh. So the control plane never has to clear or
   swap anything, slots cannot get mixed, and a reader that polls at least once a second misses none. */

#include "common/tofino_intrinsic.p4"
#include "common/headers.p4"
#include "common/test_input.p4"
#include "slots_and_flows.p4"

/* The time at each side. A test sends each packet twice: it arrives (input 0), and later leaves (input 1). */
#ifdef TEST_INPUT
#define INGRESS_NS hdr.test.now_ns[47:0]
#define EGRESS_NS hdr.test.now_ns[47:0]
#define ARRIVES (hdr.test.input == 0)
#define LEAVES (hdr.test.input == 1)
#define SHOW_SLOT \
    hdr.test.decision = DECISION_PASS; \
    hdr.test.value = meta.slot; \
    if (meta.known) { \
        hdr.test.value2[7:0] = 1; \
    }
#else
#define INGRESS_NS ig_prsr_md.global_tstamp
#define EGRESS_NS eg_prsr_md.global_tstamp
#define ARRIVES true
#define LEAVES true
#define SHOW_SLOT
#endif

struct headers_t {
    TEST_HEADERS
    PACKET_HEADERS
}

struct metadata_t {
    bit<32> time;
    bit<32> slot;
    bool known; /* the control plane has set the epoch */
    bool watched;
    flow_t flow;
    bit<32> payload_bytes;
    bit<32> seq;
    bit<32> end;
    bool acknowledges;
    flow_t acked_flow;
}

typedef bit<(FLOW_BITS + RING_BITS)> cell_t;

struct first_t {
    bit<32> slot;
    bit<32> seq;
}

struct counts_t {
    bit<32> bytes;
    bit<32> packets;
}

/* Tells the control plane the time */
struct seen_t {
    bit<32> time; /* of the last packet, in 2^16 ns */
    bit<32> packets;
}

struct acked_t {
    bit<32> slot;
    bit<32> ack;
}

const metadata_t NO_METADATA = { 0, 0, false, false, 0, 0, 0, 0, false, 0 };

parser SwitchIngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                           out ingress_intrinsic_metadata_t ig_intr_md) {
    IngressIntrinsic() intrinsic;
    state start {
        meta = NO_METADATA;
        intrinsic.apply(packet, ig_intr_md);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
                      in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                      inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                      inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Register<first_t, cell_t>(RING_CELLS) in_first;
    Register<counts_t, cell_t>(RING_CELLS) in_counts;
    Register<bit<32>, cell_t>(RING_CELLS) in_end;
    Register<seen_t, bit<1>>(1) in_seen;

    SlotOf() in_slot;
    WatchedData() in_flows;

    RegisterAction<first_t, cell_t, bit<1>>(in_first) begin_cell = {
        void apply(inout first_t cell, out bit<1> begun) {
            if (cell.slot != meta.slot) {
                cell.slot = meta.slot;
                cell.seq = meta.seq;
                begun = 1;
            } else {
                begun = 0;
            }
        }
    };

    RegisterAction<counts_t, cell_t, bit<1>>(in_counts) count_first = {
        void apply(inout counts_t cell) {
            cell.bytes = meta.payload_bytes;
            cell.packets = 1;
        }
    };

    RegisterAction<counts_t, cell_t, bit<1>>(in_counts) count_more = {
        void apply(inout counts_t cell) {
            cell.bytes = cell.bytes + meta.payload_bytes;
            cell.packets = cell.packets + 1;
        }
    };

    RegisterAction<bit<32>, cell_t, bit<1>>(in_end) first_end = {
        void apply(inout bit<32> cell) {
            cell = meta.end;
        }
    };

    RegisterAction<bit<32>, cell_t, bit<1>>(in_end) further_end = {
        void apply(inout bit<32> cell) {
            if ((int<32>)(cell - meta.end) < 0) {
                cell = meta.end;
            }
        }
    };

    RegisterAction<seen_t, bit<1>, bit<1>>(in_seen) see = {
        void apply(inout seen_t seen) {
            seen.time = meta.time;
            seen.packets = seen.packets + 1;
        }
    };

    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_dprsr_md.drop_ctl = 0;
    }

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
    }

    table wire {
        key = { ig_intr_md.ingress_port : exact @name("port"); }
        actions = { send; drop; }
        const default_action = drop();
        size = 512;
    }

    apply {
        wire.apply();
        if (ARRIVES) {
            meta.time = INGRESS_NS[47:16];
            see.execute(0);

            in_slot.apply(INGRESS_NS, meta.slot, meta.known);
            SHOW_SLOT
            in_flows.apply(hdr.ipv4, hdr.ipv6, hdr.tcp, meta.watched, meta.flow, meta.payload_bytes, meta.seq, meta.end);
            if (meta.known && meta.watched && meta.payload_bytes != 0) {
                cell_t cell = meta.slot[RING_BITS - 1:0] ++ meta.flow;
                bit<1> begun = begin_cell.execute(cell);
                if (begun == 1) {
                    count_first.execute(cell);
                    first_end.execute(cell);
                } else {
                    count_more.execute(cell);
                    further_end.execute(cell);
                }
            }
        }
    }
}

control SwitchIngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                              in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser SwitchEgressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                          out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        meta = NO_METADATA;
        packet.extract(eg_intr_md);
#ifdef TEST_INPUT
        packet.extract(hdr.test);
#endif
        transition ethernet;
    }

#include "common/parser.p4"
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
                     in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
                     inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
                     inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Register<first_t, cell_t>(RING_CELLS) out_first;
    Register<counts_t, cell_t>(RING_CELLS) out_counts;
    Register<acked_t, cell_t>(RING_CELLS) acked;
    Register<seen_t, bit<1>>(1) out_seen;

    SlotOf() out_slot;
    WatchedData() out_flows;
    WatchedAck() out_acks;

    RegisterAction<first_t, cell_t, bit<1>>(out_first) begin_cell = {
        void apply(inout first_t cell, out bit<1> begun) {
            if (cell.slot != meta.slot) {
                cell.slot = meta.slot;
                cell.seq = meta.seq;
                begun = 1;
            } else {
                begun = 0;
            }
        }
    };

    RegisterAction<counts_t, cell_t, bit<1>>(out_counts) count_first = {
        void apply(inout counts_t cell) {
            cell.bytes = meta.payload_bytes;
            cell.packets = 1;
        }
    };

    RegisterAction<counts_t, cell_t, bit<1>>(out_counts) count_more = {
        void apply(inout counts_t cell) {
            cell.bytes = cell.bytes + meta.payload_bytes;
            cell.packets = cell.packets + 1;
        }
    };

    RegisterAction<acked_t, cell_t, bit<1>>(acked) acknowledge = {
        void apply(inout acked_t cell) {
            if (cell.slot != meta.slot || (int<32>)(cell.ack - hdr.tcp.ack) < 0) {
                cell.ack = hdr.tcp.ack;
            }
            cell.slot = meta.slot;
        }
    };

    RegisterAction<seen_t, bit<1>, bit<1>>(out_seen) see = {
        void apply(inout seen_t seen) {
            seen.time = meta.time;
            seen.packets = seen.packets + 1;
        }
    };

    apply {
        if (LEAVES) {
            meta.time = EGRESS_NS[47:16];
            see.execute(0);

            out_slot.apply(EGRESS_NS, meta.slot, meta.known);
            SHOW_SLOT
            out_flows.apply(hdr.ipv4, hdr.ipv6, hdr.tcp, meta.watched, meta.flow, meta.payload_bytes, meta.seq, meta.end);
            out_acks.apply(hdr.ipv4, hdr.ipv6, hdr.tcp, meta.acknowledges, meta.acked_flow);
            if (meta.known && meta.watched && meta.payload_bytes != 0) {
                cell_t cell = meta.slot[RING_BITS - 1:0] ++ meta.flow;
                bit<1> begun = begin_cell.execute(cell);
                if (begun == 1) {
                    count_first.execute(cell);
                } else {
                    count_more.execute(cell);
                }
            }
            if (meta.known && meta.acknowledges) {
                acknowledge.execute(meta.slot[RING_BITS - 1:0] ++ meta.acked_flow);
            }
        }
    }
}

control SwitchEgressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                             in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(SwitchIngressParser(), SwitchIngress(), SwitchIngressDeparser(), SwitchEgressParser(), SwitchEgress(),
         SwitchEgressDeparser()) pipe;

Switch(pipe) main;

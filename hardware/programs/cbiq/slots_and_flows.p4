/* What both versions of cbiq do without registers: find a packet's slot and flow, and how much data it
   carries. Carmel and Keslassy, "Dragonfly", section III. */

#ifndef CBIQ_P4
#define CBIQ_P4

#include "common/headers.p4"
#include "constants.p4"

typedef bit<(FLOW_BITS)> flow_t;

/* The slot of a time, counted from the Unix epoch modulo 2^32. Slots begin at multiples of their length, as
   in compute_slots. The control plane chooses the length and fills the tables accordingly (constants.py).

   The control plane writes when one slot began, and renews this before 2^32 ns have passed. A later packet
   would be counted in a slot 4.3 s too early; the reader only looks at the last 1024 slots. */
control SlotOf(in bit<48> now_ns, out bit<32> slot, out bool known) {
    bit<32> left_ns;
    bit<32> beyond_ns;

    /* Adds the negative: a Tofino cannot subtract action data */
    action began(bit<32> minus_ns, bit<32> number) {
        left_ns = now_ns[31:0] + minus_ns;
        slot = number;
        known = true;
    }

    action unknown() {
        left_ns = 0;
        slot = 0;
        known = false;
    }

    /* only the default entry */
    table epoch {
        actions = { began; unknown; }
        default_action = unknown();
        size = 1;
    }

    action whole_slots(bit<32> slots, bit<32> minus_ns) {
        slot = slot + slots;
        left_ns = left_ns + minus_ns;
    }

    @name("coarse")
    table coarse {
        key = { left_ns[31:COARSE_SHIFT] : exact @name("bits"); }
        actions = { whole_slots; @defaultonly unknown; }
        const default_action = unknown();
        size = COARSE_ENTRIES;
    }

    /* subtracts the begin of the slot after them */
    action last_slots(bit<32> slots, bit<32> minus_ns) {
        slot = slot + slots;
        beyond_ns = left_ns + minus_ns;
    }

    table fine {
        key = { left_ns[31:FINE_SHIFT] : exact @name("bits"); }
        actions = { last_slots; @defaultonly unknown; }
        const default_action = unknown();
        size = FINE_ENTRIES;
    }

    apply {
        beyond_ns = 0;
        epoch.apply();
        coarse.apply();
        fine.apply();
        if (beyond_ns[31:31] == 0) {
            slot = slot + 1;
        }
    }
}

/* A data segment of a watched flow: flow number, payload size, begin and end of the data. */
control WatchedData(in ipv4_h ipv4, in ipv6_h ipv6, in tcp_h tcp, out bool watched, out flow_t flow,
                    out bit<32> payload_bytes, out bit<32> seq, out bit<32> end) {
    action watch(flow_t number) {
        watched = true;
        flow = number;
    }

    table flows_ipv4 {
        key = {
            ipv4.source : exact @name("source");
            ipv4.destination : exact @name("destination");
            tcp.source_port : exact @name("source_port");
            tcp.destination_port : exact @name("destination_port");
        }
        actions = { watch; @defaultonly NoAction; }
        const default_action = NoAction();
        size = FLOW_ENTRIES;
    }

    table flows_ipv6 {
        key = {
            ipv6.source : exact @name("source");
            ipv6.destination : exact @name("destination");
            tcp.source_port : exact @name("source_port");
            tcp.destination_port : exact @name("destination_port");
        }
        actions = { watch; @defaultonly NoAction; }
        const default_action = NoAction();
        size = FLOW_ENTRIES;
    }

    apply {
        watched = false;
        flow = 0;
        payload_bytes = 0;
        seq = 0;
        end = 0;
        if (tcp.isValid()) {
            bit<32> header_bytes = (bit<32>)(tcp.header_words ++ 2w0);
            if (ipv4.isValid()) {
                header_bytes = header_bytes + 20; /* no options: the parser has checked that */
                payload_bytes = (bit<32>)ipv4.total_bytes;
                flows_ipv4.apply();
            } else {
                payload_bytes = (bit<32>)ipv6.payload_bytes;
                flows_ipv6.apply();
            }
            payload_bytes = payload_bytes |-| header_bytes;
            seq = tcp.seq;
            if (tcp.flags & TCP_SYN != 0) {
                seq = tcp.seq + 1; /* a SYN takes one number; its data begin after it */
            }
            end = seq + payload_bytes;
        }
    }
}

/* A segment acknowledges data of the other direction: these tables match watched flows with the ends
   swapped. */
control WatchedAck(in ipv4_h ipv4, in ipv6_h ipv6, in tcp_h tcp, out bool watched, out flow_t flow) {
    action watch(flow_t number) {
        watched = true;
        flow = number;
    }

    table acks_ipv4 {
        key = {
            ipv4.destination : exact @name("source");
            ipv4.source : exact @name("destination");
            tcp.destination_port : exact @name("source_port");
            tcp.source_port : exact @name("destination_port");
        }
        actions = { watch; @defaultonly NoAction; }
        const default_action = NoAction();
        size = FLOW_ENTRIES;
    }

    table acks_ipv6 {
        key = {
            ipv6.destination : exact @name("source");
            ipv6.source : exact @name("destination");
            tcp.destination_port : exact @name("source_port");
            tcp.source_port : exact @name("destination_port");
        }
        actions = { watch; @defaultonly NoAction; }
        const default_action = NoAction();
        size = FLOW_ENTRIES;
    }

    apply {
        watched = false;
        flow = 0;
        if (tcp.isValid() && tcp.flags & (TCP_ACK | TCP_RST) == TCP_ACK) {
            if (ipv4.isValid()) {
                acks_ipv4.apply();
            } else {
                acks_ipv6.apply();
            }
        }
    }
}

#endif

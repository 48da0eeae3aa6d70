/* The chip's intrinsic metadata in front of each packet, on Tofino 1 and 2. */

#ifndef INTRINSIC_P4
#define INTRINSIC_P4

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

parser IngressIntrinsic(packet_in packet, out ingress_intrinsic_metadata_t ig_intr_md) {
    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE); /* packets are never resubmitted, so this is what follows */
        transition accept;
    }
}

#endif

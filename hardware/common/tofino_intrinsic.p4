/* The chip's intrinsic metadata in front of each packet, on Tofino 1 and 2. */

#ifndef INTRINSIC_P4
#define INTRINSIC_P4

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

/* No copy of this packet, until an action sets another type. The open p4c does not clear the field: on a Tofino 1,
   whatever else was in its container would be the type. 0 has no entry in that chip's deparser. It has one on a Tofino
   2, which would copy every packet to a session that some other field names; there, a type that was not set is none. */
#if __TARGET_TOFINO__ == 2
#define NO_MIRROR(dprsr_md)
#else
#define NO_MIRROR(dprsr_md) dprsr_md.mirror_type = 0;
#endif

parser IngressIntrinsic(packet_in packet, out ingress_intrinsic_metadata_t ig_intr_md) {
    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE); /* packets are never resubmitted, so this is what follows */
        transition accept;
    }
}

#endif

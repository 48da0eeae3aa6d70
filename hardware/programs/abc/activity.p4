/* The header that carries a packet's activity through an ABC domain, right behind the Ethernet header and before a
   VLAN tag: the ABC paper names no place. Its own type is in the Ethernet header, the packet's is kept here. */

#ifndef ACTIVITY_P4
#define ACTIVITY_P4

const bit<16> ETHERTYPE_ACTIVITY = 0x88b6; /* IEEE 802, local experimental 2 */

header activity_h {
    int<32> activity; /* log2 of rate over reference rate, 16 bits after the point */
    bit<16> ether_type;
}

#endif

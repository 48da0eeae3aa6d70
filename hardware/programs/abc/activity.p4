/* The header that carries a packet's activity through an ABC domain. The ABC paper does not say where it
   goes; here it follows the Ethernet header, before any VLAN tag. Its EtherType is in the Ethernet header,
   the packet's is kept here. */

#ifndef ACTIVITY_P4
#define ACTIVITY_P4

const bit<16> ETHERTYPE_ACTIVITY = 0x88b6; /* IEEE 802, local experimental 2 */

header activity_h {
    int<32> activity; /* log2(rate / reference rate), 16 fractional bits */
    bit<16> ether_type;
}

#endif

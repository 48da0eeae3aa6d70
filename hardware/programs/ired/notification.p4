/* iRED's notification, for both targets. */

#ifndef IRED_P4
#define IRED_P4

const bit<16> ETHERTYPE_NOTIFICATION = 0x88b6; /* IEEE 802, local experimental 2 */

/* From egress to ingress: drop the next classic packet for this queue */
header notification_h {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
    bit<16> state; /* port and queue */
}

#endif

/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef CBIQ_CONSTANTS_P4
#define CBIQ_CONSTANTS_P4

const bit<8> FLOW_BITS = 4; /* a watched flow's number */
const bit<32> FLOW_ENTRIES = 16; /* watched flows, of IPv4 and IPv6 together */
const bit<8> RING_BITS = 10; /* a slot's place in the ring; leaves a second to read a slot of 1 ms */
const bit<32> RING_CELLS = 16384; /* rings of all flows */
const bit<8> COARSE_SHIFT = 24; /* first step of the division: by 2^24 ns, 16.8 ms */
const bit<32> COARSE_ENTRIES = 256; /* all values of the upper bits */
const bit<8> FINE_SHIFT = 16; /* second step: by 2^16 ns, 65.5 µs; the shortest slot */
const bit<32> FINE_ENTRIES = 1024; /* for slots of up to 50 ms */

#endif

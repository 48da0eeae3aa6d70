/* Generated from hardware/constants/pi2.py by python -m hardware.constants; not to be edited. */

#ifndef PI2_CONSTANTS_P4
#define PI2_CONSTANTS_P4

const bit<32> PORT_ENTRIES = 512; /* one queue a port */
const bit<8> RANDOM_BITS = 16; /* of a draw; probabilities have as many after the point */

#endif

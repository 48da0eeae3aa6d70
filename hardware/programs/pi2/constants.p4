/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef PI2_CONSTANTS_P4
#define PI2_CONSTANTS_P4

const bit<32> PORT_ENTRIES = 512; /* one queue per port */
const bit<8> RANDOM_BITS = 16; /* of a random draw; probabilities have as many fractional bits */

#endif

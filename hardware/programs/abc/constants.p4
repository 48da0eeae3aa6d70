/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef ABC_CONSTANTS_P4
#define ABC_CONSTANTS_P4

const bit<32> AGGREGATE_ENTRIES = 1024; /* meters; the last one is for all traffic without its own */
const bit<32> PROFILE_ENTRIES = 16; /* parameter sets of the AQM */
const bit<64> METER_STEP_NS = 2030705; /* 1/1024 of the half-life of M_AM = 3 s */
const bit<64> METER_RECIPROCAL_STEPS = 541443; /* steps in 2^40 ns */
const bit<64> AVERAGE_STEP_NS = 203070; /* 1/1024 of the half-life of M_AA = 0.3 s */
const bit<64> AVERAGE_RECIPROCAL_STEPS = 5414446; /* steps in 2^40 ns */
const bit<8> TABLE_BITS = 10; /* index of the tables of powers and logarithms */
const bit<32> TABLE_ENTRIES = 1024; /* of the tables of powers and logarithms */
const bit<64> GONE_STEPS = 43008; /* after 42 half-lives nothing is left, and the remainder of a step does not matter */
const bit<8> START_BITS = 6; /* after the leading one: index of the table for young meters */
const bit<32> START_ENTRIES = 3840; /* of the table for young meters */
/* position of the leading one of 64 bits */
#define LEADING_ONE_ENTRIES \
    0x0000000000000001 &&& 0xffffffffffffffff: found(0); \
    0x0000000000000002 &&& 0xfffffffffffffffe: found(1); \
    0x0000000000000004 &&& 0xfffffffffffffffc: found(2); \
    0x0000000000000008 &&& 0xfffffffffffffff8: found(3); \
    0x0000000000000010 &&& 0xfffffffffffffff0: found(4); \
    0x0000000000000020 &&& 0xffffffffffffffe0: found(5); \
    0x0000000000000040 &&& 0xffffffffffffffc0: found(6); \
    0x0000000000000080 &&& 0xffffffffffffff80: found(7); \
    0x0000000000000100 &&& 0xffffffffffffff00: found(8); \
    0x0000000000000200 &&& 0xfffffffffffffe00: found(9); \
    0x0000000000000400 &&& 0xfffffffffffffc00: found(10); \
    0x0000000000000800 &&& 0xfffffffffffff800: found(11); \
    0x0000000000001000 &&& 0xfffffffffffff000: found(12); \
    0x0000000000002000 &&& 0xffffffffffffe000: found(13); \
    0x0000000000004000 &&& 0xffffffffffffc000: found(14); \
    0x0000000000008000 &&& 0xffffffffffff8000: found(15); \
    0x0000000000010000 &&& 0xffffffffffff0000: found(16); \
    0x0000000000020000 &&& 0xfffffffffffe0000: found(17); \
    0x0000000000040000 &&& 0xfffffffffffc0000: found(18); \
    0x0000000000080000 &&& 0xfffffffffff80000: found(19); \
    0x0000000000100000 &&& 0xfffffffffff00000: found(20); \
    0x0000000000200000 &&& 0xffffffffffe00000: found(21); \
    0x0000000000400000 &&& 0xffffffffffc00000: found(22); \
    0x0000000000800000 &&& 0xffffffffff800000: found(23); \
    0x0000000001000000 &&& 0xffffffffff000000: found(24); \
    0x0000000002000000 &&& 0xfffffffffe000000: found(25); \
    0x0000000004000000 &&& 0xfffffffffc000000: found(26); \
    0x0000000008000000 &&& 0xfffffffff8000000: found(27); \
    0x0000000010000000 &&& 0xfffffffff0000000: found(28); \
    0x0000000020000000 &&& 0xffffffffe0000000: found(29); \
    0x0000000040000000 &&& 0xffffffffc0000000: found(30); \
    0x0000000080000000 &&& 0xffffffff80000000: found(31); \
    0x0000000100000000 &&& 0xffffffff00000000: found(32); \
    0x0000000200000000 &&& 0xfffffffe00000000: found(33); \
    0x0000000400000000 &&& 0xfffffffc00000000: found(34); \
    0x0000000800000000 &&& 0xfffffff800000000: found(35); \
    0x0000001000000000 &&& 0xfffffff000000000: found(36); \
    0x0000002000000000 &&& 0xffffffe000000000: found(37); \
    0x0000004000000000 &&& 0xffffffc000000000: found(38); \
    0x0000008000000000 &&& 0xffffff8000000000: found(39); \
    0x0000010000000000 &&& 0xffffff0000000000: found(40); \
    0x0000020000000000 &&& 0xfffffe0000000000: found(41); \
    0x0000040000000000 &&& 0xfffffc0000000000: found(42); \
    0x0000080000000000 &&& 0xfffff80000000000: found(43); \
    0x0000100000000000 &&& 0xfffff00000000000: found(44); \
    0x0000200000000000 &&& 0xffffe00000000000: found(45); \
    0x0000400000000000 &&& 0xffffc00000000000: found(46); \
    0x0000800000000000 &&& 0xffff800000000000: found(47); \
    0x0001000000000000 &&& 0xffff000000000000: found(48); \
    0x0002000000000000 &&& 0xfffe000000000000: found(49); \
    0x0004000000000000 &&& 0xfffc000000000000: found(50); \
    0x0008000000000000 &&& 0xfff8000000000000: found(51); \
    0x0010000000000000 &&& 0xfff0000000000000: found(52); \
    0x0020000000000000 &&& 0xffe0000000000000: found(53); \
    0x0040000000000000 &&& 0xffc0000000000000: found(54); \
    0x0080000000000000 &&& 0xff80000000000000: found(55); \
    0x0100000000000000 &&& 0xff00000000000000: found(56); \
    0x0200000000000000 &&& 0xfe00000000000000: found(57); \
    0x0400000000000000 &&& 0xfc00000000000000: found(58); \
    0x0800000000000000 &&& 0xf800000000000000: found(59); \
    0x1000000000000000 &&& 0xf000000000000000: found(60); \
    0x2000000000000000 &&& 0xe000000000000000: found(61); \
    0x4000000000000000 &&& 0xc000000000000000: found(62); \
    0x8000000000000000 &&& 0x8000000000000000: found(63);
const bit<8> METER_EPOCH_SHIFT = 34; /* the meter's half-life is 2^31 ns; an epoch is eight of them */
const bit<8> METER_LOST_BITS = 8; /* what the previous epoch has lost */
const bit<8> AVERAGE_EPOCH_SHIFT = 28; /* packets are counted in epochs of 2^28 ns */
const bit<8> MATURE_SHIFT = 19; /* a meter is young while its age, in 2^16 ns, has at most this many bits */
const bit<32> LENGTH_ENTRIES = 1280; /* prefixes of an IP length, plus 0 */
const bit<32> WEIGHTED_ENTRIES = 5420; /* exponents of weighted lengths of up to 9216 bytes */
const bit<32> LOGARITHM_ENTRIES = 3327; /* prefixes of a sum */
const bit<32> YOUNG_ENTRIES = 895; /* prefixes of an age */
const bit<32> GAIN_ENTRIES = 4224; /* profiles times logarithms of counts, from -1 on */
/* excess times 2^-shift, with 8 more fractional bits */
#define GAIN_ACTIONS \
    action gain_2(bit<8> further) { meta.part = meta.excess << 6; meta.halvings = further; } \
    action gain_3(bit<8> further) { meta.part = meta.excess << 5; meta.halvings = further; } \
    action gain_4(bit<8> further) { meta.part = meta.excess << 4; meta.halvings = further; } \
    action gain_5(bit<8> further) { meta.part = meta.excess << 3; meta.halvings = further; } \
    action gain_6(bit<8> further) { meta.part = meta.excess << 2; meta.halvings = further; } \
    action gain_7(bit<8> further) { meta.part = meta.excess << 1; meta.halvings = further; } \
    action gain_8(bit<8> further) { meta.part = meta.excess << 0; meta.halvings = further; } \
    action gain_9(bit<8> further) { meta.part = meta.excess >> 1; meta.halvings = further; } \
    action gain_10(bit<8> further) { meta.part = meta.excess >> 2; meta.halvings = further; } \
    action gain_11(bit<8> further) { meta.part = meta.excess >> 3; meta.halvings = further; } \
    action gain_12(bit<8> further) { meta.part = meta.excess >> 4; meta.halvings = further; } \
    action gain_13(bit<8> further) { meta.part = meta.excess >> 5; meta.halvings = further; } \
    action gain_14(bit<8> further) { meta.part = meta.excess >> 6; meta.halvings = further; } \
    action gain_15(bit<8> further) { meta.part = meta.excess >> 7; meta.halvings = further; } \
    action gain_16(bit<8> further) { meta.part = meta.excess >> 8; meta.halvings = further; } \
    action gain_17(bit<8> further) { meta.part = meta.excess >> 9; meta.halvings = further; } \
    action gain_18(bit<8> further) { meta.part = meta.excess >> 10; meta.halvings = further; } \
    action gain_19(bit<8> further) { meta.part = meta.excess >> 11; meta.halvings = further; } \
    action gain_20(bit<8> further) { meta.part = meta.excess >> 12; meta.halvings = further; }
/* names of these actions */
#define GAIN_NAMES \
    gain_2; \
    gain_3; \
    gain_4; \
    gain_5; \
    gain_6; \
    gain_7; \
    gain_8; \
    gain_9; \
    gain_10; \
    gain_11; \
    gain_12; \
    gain_13; \
    gain_14; \
    gain_15; \
    gain_16; \
    gain_17; \
    gain_18; \
    gain_19; \
    gain_20;
const bit<32> THRESHOLD_ENTRIES = 2048; /* prefixes of an activity excess, for all profiles */

#endif

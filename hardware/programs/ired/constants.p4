/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef IRED_CONSTANTS_P4
#define IRED_CONSTANTS_P4

const bit<8> DELAY_SHIFT = 10; /* delays are counted in units of 1024 ns */
const bit<8> CUT_SHIFT = 26; /* a delay with bits from here on is clamped */
const bit<32> LONGEST_DELAY_STEPS = 65535; /* in units of 1024 ns: 67 ms */
const bit<8> RED_SHIFT = 5; /* low bits of the average that its table ignores */
const bit<32> RED_ENTRIES = 2048; /* averages of 0 to 67 ms, in steps of 32.8 us */
const bit<32> STATE_ENTRIES = 4096; /* 512 ports with 8 queues */
const bit<32> NOTIFICATION_BYTES = 48; /* section 4.1 of the paper */
/* packet i of an epoch has weight 2^i */
#define DOUBLE_ACTIONS \
    action double_0() { meta.weighted = meta.delay << 0; } \
    action double_1() { meta.weighted = meta.delay << 1; } \
    action double_2() { meta.weighted = meta.delay << 2; } \
    action double_3() { meta.weighted = meta.delay << 3; } \
    action double_4() { meta.weighted = meta.delay << 4; } \
    action double_5() { meta.weighted = meta.delay << 5; } \
    action double_6() { meta.weighted = meta.delay << 6; } \
    action double_7() { meta.weighted = meta.delay << 7; } \
    action double_8() { meta.weighted = meta.delay << 8; } \
    action double_9() { meta.weighted = meta.delay << 9; } \
    action double_10() { meta.weighted = meta.delay << 10; } \
    action double_11() { meta.weighted = meta.delay << 11; } \
    action double_12() { meta.weighted = meta.delay << 12; } \
    action double_13() { meta.weighted = meta.delay << 13; } \
    action double_14() { meta.weighted = meta.delay << 14; } \
    action double_15() { meta.weighted = meta.delay << 15; }
/* names of the actions */
#define DOUBLE_NAMES \
    double_0; \
    double_1; \
    double_2; \
    double_3; \
    double_4; \
    double_5; \
    double_6; \
    double_7; \
    double_8; \
    double_9; \
    double_10; \
    double_11; \
    double_12; \
    double_13; \
    double_14; \
    double_15;
/* by position in the epoch */
#define DOUBLE_ENTRIES \
    0: double_0(); \
    1: double_1(); \
    2: double_2(); \
    3: double_3(); \
    4: double_4(); \
    5: double_5(); \
    6: double_6(); \
    7: double_7(); \
    8: double_8(); \
    9: double_9(); \
    10: double_10(); \
    11: double_11(); \
    12: double_12(); \
    13: double_13(); \
    14: double_14(); \
    15: double_15();
/* after packet i of an epoch: the parts of this epoch and the last one in the average */
#define HALVE_ACTIONS \
    action halve_0() { meta.recent = meta.sum >> 1; meta.earlier = meta.before >> 17; } \
    action halve_1() { meta.recent = meta.sum >> 2; meta.earlier = meta.before >> 18; } \
    action halve_2() { meta.recent = meta.sum >> 3; meta.earlier = meta.before >> 19; } \
    action halve_3() { meta.recent = meta.sum >> 4; meta.earlier = meta.before >> 20; } \
    action halve_4() { meta.recent = meta.sum >> 5; meta.earlier = meta.before >> 21; } \
    action halve_5() { meta.recent = meta.sum >> 6; meta.earlier = meta.before >> 22; } \
    action halve_6() { meta.recent = meta.sum >> 7; meta.earlier = meta.before >> 23; } \
    action halve_7() { meta.recent = meta.sum >> 8; meta.earlier = meta.before >> 24; } \
    action halve_8() { meta.recent = meta.sum >> 9; meta.earlier = meta.before >> 25; } \
    action halve_9() { meta.recent = meta.sum >> 10; meta.earlier = meta.before >> 26; } \
    action halve_10() { meta.recent = meta.sum >> 11; meta.earlier = meta.before >> 27; } \
    action halve_11() { meta.recent = meta.sum >> 12; meta.earlier = meta.before >> 28; } \
    action halve_12() { meta.recent = meta.sum >> 13; meta.earlier = meta.before >> 29; } \
    action halve_13() { meta.recent = meta.sum >> 14; meta.earlier = meta.before >> 30; } \
    action halve_14() { meta.recent = meta.sum >> 15; meta.earlier = meta.before >> 31; } \
    action halve_15() { meta.recent = meta.sum >> 16; meta.earlier = 0; }
/* names of the actions */
#define HALVE_NAMES \
    halve_0; \
    halve_1; \
    halve_2; \
    halve_3; \
    halve_4; \
    halve_5; \
    halve_6; \
    halve_7; \
    halve_8; \
    halve_9; \
    halve_10; \
    halve_11; \
    halve_12; \
    halve_13; \
    halve_14; \
    halve_15;
/* by position in the epoch */
#define HALVE_ENTRIES \
    0: halve_0(); \
    1: halve_1(); \
    2: halve_2(); \
    3: halve_3(); \
    4: halve_4(); \
    5: halve_5(); \
    6: halve_6(); \
    7: halve_7(); \
    8: halve_8(); \
    9: halve_9(); \
    10: halve_10(); \
    11: halve_11(); \
    12: halve_12(); \
    13: halve_13(); \
    14: halve_14(); \
    15: halve_15();

#endif

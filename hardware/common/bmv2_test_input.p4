/* What a test tells a program instead of the switch: time, delay and depth of the queue, random bits. BMv2's own are
   those of a busy computer, different in every run, so decisions could not be compared with a model's.

   Compiled with -DTEST_INPUT a program expects this header after the Ethernet addresses of each packet, drops nothing but
   writes its decision here, and sends the packet on. Without it the header does not exist and nothing of this is
   compiled. tests/bmv2_switch.py packs and unpacks it. */

#ifndef TEST_INPUT_P4
#define TEST_INPUT_P4

#ifdef TEST_INPUT

const bit<16> ETHERTYPE_TEST = 0x88b5; /* IEEE 802, local experimental 1 */

const bit<16> DECISION_PASS = 0;
const bit<16> DECISION_MARK = 1;
const bit<16> DECISION_DROP = 2;

/* An Ethernet header of its own goes before the packet's */
header test_h {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
    bit<64> now_ns;
    bit<32> queue_delay_ns;
    bit<32> queue_depth; /* in the unit the program counts in: packets, or bytes */
    bit<32> random;
    bit<32> input; /* whatever else the program wants to be told */
    bit<16> decision; /* out */
    bit<64> value; /* out: what else the program has to say */
    bit<64> value2;
}

#define TEST_HEADERS test_h test;

#else

#define TEST_HEADERS

#endif
#endif

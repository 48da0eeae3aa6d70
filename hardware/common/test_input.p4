/* Inputs that a test supplies in place of the switch: time, queueing delay, queue depth, random bits. BMv2's
   own depend on the load of the machine and differ in every run, so decisions could not be compared with a
   model's.

   A program compiled with -DTEST_INPUT expects this header in front of each packet. It drops nothing: it
   writes its decision into the header and forwards the packet. Without the flag, none of this is compiled.
   tests/switch_bench.py packs and unpacks the header. */

#ifndef TEST_INPUT_P4
#define TEST_INPUT_P4

#ifdef TEST_INPUT

const bit<16> ETHERTYPE_TEST = 0x9000; /* Ethernet configuration testing; the programs use other types */

const bit<16> DECISION_PASS = 0;
const bit<16> DECISION_MARK = 1;
const bit<16> DECISION_DROP = 2;

/* Starts with an Ethernet header of its own, in front of the packet's */
header test_h {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
    bit<64> now_ns;
    bit<32> queue_delay_ns;
    bit<32> queue_depth; /* in the program's unit: packets or bytes */
    bit<32> random;
    bit<16> decision; /* out */
    bit<32> value; /* out: any other output of the program */
    bit<64> value2;
    bit<8> input; /* any other input of the program */
}

#define TEST_HEADERS test_h test;
#define SHOW_MARK hdr.test.decision = DECISION_MARK;

#else

#define TEST_HEADERS
#define SHOW_MARK

#endif
#endif

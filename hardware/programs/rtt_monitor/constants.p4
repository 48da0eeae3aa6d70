/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef RTT_MONITOR_CONSTANTS_P4
#define RTT_MONITOR_CONSTANTS_P4

const bit<8> PLACE_BITS = 15; /* index of a table of expected ACKs */
const bit<32> TABLE_ENTRIES = 32768; /* of each set and stage */
const bit<32> TIMEOUT_STEPS = 15258; /* 1000 ms, in steps of 2^16 ns */
const bit<8> SLOT_BITS = 15; /* index of a flow's slot */
const bit<32> SLOT_ENTRIES = 32768; /* flows whose bytes and RTTs are stored */
const bit<32> SKETCH_ENTRIES = 65536; /* of each row of the sketch */
const bit<32> LONG_BYTES = 10000000; /* a flow is long above this: section 3.1 */
const bit<32> IPV4_FRAME_BYTES = 14; /* of a frame, in addition to IPv4's total length */
const bit<32> IPV6_FRAME_BYTES = 54; /* of a frame, in addition to IPv6's payload length */
/* expected ACK minus sequence number, without the packet's length */
#define SEGMENT_ENTRIES \
    (true, 5, 0, 0): less_headers(4294967256); \
    (true, 5, 0, 1): less_headers(4294967257); \
    (true, 5, 1, 0): less_headers(4294967257); \
    (true, 5, 1, 1): less_headers(4294967258); \
    (true, 6, 0, 0): less_headers(4294967252); \
    (true, 6, 0, 1): less_headers(4294967253); \
    (true, 6, 1, 0): less_headers(4294967253); \
    (true, 6, 1, 1): less_headers(4294967254); \
    (true, 7, 0, 0): less_headers(4294967248); \
    (true, 7, 0, 1): less_headers(4294967249); \
    (true, 7, 1, 0): less_headers(4294967249); \
    (true, 7, 1, 1): less_headers(4294967250); \
    (true, 8, 0, 0): less_headers(4294967244); \
    (true, 8, 0, 1): less_headers(4294967245); \
    (true, 8, 1, 0): less_headers(4294967245); \
    (true, 8, 1, 1): less_headers(4294967246); \
    (true, 9, 0, 0): less_headers(4294967240); \
    (true, 9, 0, 1): less_headers(4294967241); \
    (true, 9, 1, 0): less_headers(4294967241); \
    (true, 9, 1, 1): less_headers(4294967242); \
    (true, 10, 0, 0): less_headers(4294967236); \
    (true, 10, 0, 1): less_headers(4294967237); \
    (true, 10, 1, 0): less_headers(4294967237); \
    (true, 10, 1, 1): less_headers(4294967238); \
    (true, 11, 0, 0): less_headers(4294967232); \
    (true, 11, 0, 1): less_headers(4294967233); \
    (true, 11, 1, 0): less_headers(4294967233); \
    (true, 11, 1, 1): less_headers(4294967234); \
    (true, 12, 0, 0): less_headers(4294967228); \
    (true, 12, 0, 1): less_headers(4294967229); \
    (true, 12, 1, 0): less_headers(4294967229); \
    (true, 12, 1, 1): less_headers(4294967230); \
    (true, 13, 0, 0): less_headers(4294967224); \
    (true, 13, 0, 1): less_headers(4294967225); \
    (true, 13, 1, 0): less_headers(4294967225); \
    (true, 13, 1, 1): less_headers(4294967226); \
    (true, 14, 0, 0): less_headers(4294967220); \
    (true, 14, 0, 1): less_headers(4294967221); \
    (true, 14, 1, 0): less_headers(4294967221); \
    (true, 14, 1, 1): less_headers(4294967222); \
    (true, 15, 0, 0): less_headers(4294967216); \
    (true, 15, 0, 1): less_headers(4294967217); \
    (true, 15, 1, 0): less_headers(4294967217); \
    (true, 15, 1, 1): less_headers(4294967218); \
    (false, 5, 0, 0): less_headers(4294967276); \
    (false, 5, 0, 1): less_headers(4294967277); \
    (false, 5, 1, 0): less_headers(4294967277); \
    (false, 5, 1, 1): less_headers(4294967278); \
    (false, 6, 0, 0): less_headers(4294967272); \
    (false, 6, 0, 1): less_headers(4294967273); \
    (false, 6, 1, 0): less_headers(4294967273); \
    (false, 6, 1, 1): less_headers(4294967274); \
    (false, 7, 0, 0): less_headers(4294967268); \
    (false, 7, 0, 1): less_headers(4294967269); \
    (false, 7, 1, 0): less_headers(4294967269); \
    (false, 7, 1, 1): less_headers(4294967270); \
    (false, 8, 0, 0): less_headers(4294967264); \
    (false, 8, 0, 1): less_headers(4294967265); \
    (false, 8, 1, 0): less_headers(4294967265); \
    (false, 8, 1, 1): less_headers(4294967266); \
    (false, 9, 0, 0): less_headers(4294967260); \
    (false, 9, 0, 1): less_headers(4294967261); \
    (false, 9, 1, 0): less_headers(4294967261); \
    (false, 9, 1, 1): less_headers(4294967262); \
    (false, 10, 0, 0): less_headers(4294967256); \
    (false, 10, 0, 1): less_headers(4294967257); \
    (false, 10, 1, 0): less_headers(4294967257); \
    (false, 10, 1, 1): less_headers(4294967258); \
    (false, 11, 0, 0): less_headers(4294967252); \
    (false, 11, 0, 1): less_headers(4294967253); \
    (false, 11, 1, 0): less_headers(4294967253); \
    (false, 11, 1, 1): less_headers(4294967254); \
    (false, 12, 0, 0): less_headers(4294967248); \
    (false, 12, 0, 1): less_headers(4294967249); \
    (false, 12, 1, 0): less_headers(4294967249); \
    (false, 12, 1, 1): less_headers(4294967250); \
    (false, 13, 0, 0): less_headers(4294967244); \
    (false, 13, 0, 1): less_headers(4294967245); \
    (false, 13, 1, 0): less_headers(4294967245); \
    (false, 13, 1, 1): less_headers(4294967246); \
    (false, 14, 0, 0): less_headers(4294967240); \
    (false, 14, 0, 1): less_headers(4294967241); \
    (false, 14, 1, 0): less_headers(4294967241); \
    (false, 14, 1, 1): less_headers(4294967242); \
    (false, 15, 0, 0): less_headers(4294967236); \
    (false, 15, 0, 1): less_headers(4294967237); \
    (false, 15, 1, 0): less_headers(4294967237); \
    (false, 15, 1, 1): less_headers(4294967238);

#endif

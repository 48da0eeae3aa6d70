/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef DUALPI2_CONSTANTS_P4
#define DUALPI2_CONSTANTS_P4

const bit<32> PORT_ENTRIES = 512; /* each with an L queue and a classic queue */
const bit<32> QUEUE_ENTRIES = 1024; /* by port and queue */
const bit<1> C_QUEUE_ID = 0; /* classic */
const bit<1> L_QUEUE_ID = 1; /* ECT(1) and CE: RFC 9332, section 2.3 */
const bit<32> STEP_NS = 1000000; /* delay in the L queue from which all packets are marked */
const bit<19> MIN_BACKLOG_PACKETS = 1; /* Th_len, RFC 9332, appendix A.1 */
const bit<19> MIN_BACKLOG_CELLS = 1; /* the same on a Tofino, which counts cells */
const bit<32> ONE_Q30 = 1073741824; /* probability 1; a signal is due when the sum exceeds it */

#endif

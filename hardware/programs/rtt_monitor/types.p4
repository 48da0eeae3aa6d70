/* Metadata of the RTT monitor, for both targets. */

#ifndef RTT_MONITOR_TYPES_P4
#define RTT_MONITOR_TYPES_P4

/* A table's size: required on a Tofino; refused by BMv2 if all entries are in the program */
#ifndef SIZE
#define SIZE(entries) size = entries;
#endif

/* The side of the router's queue where a packet was tapped */
typedef bit<8> tap_t;
const tap_t NO_TAP = 0;
const tap_t BEFORE_QUEUE = 1;
const tap_t BEHIND_QUEUE = 2;

/* What a packet does with a table of expected ACKs */
typedef bit<8> role_t;
const role_t NOTHING = 0;
const role_t PUT_IN = 1;
const role_t LOOK_UP = 2;

/* What a packet does with the slot of its flow */
const role_t CHECK = 0;
const role_t OPEN = 1;
const role_t HOLD = 2;

/* Which of two comparisons were true, in the form that a stateful ALU returns */
typedef bit<8> outcome_t;
const outcome_t NOT_ASKED = 0;
const outcome_t NEITHER = 1;
const outcome_t FIRST_ONLY = 2;
const outcome_t SECOND_ONLY = 4;
const outcome_t BOTH = 8;

/* Arguments and results of the tables for the data of one direction */
struct pairing_t {
    role_t role;
    bit<32> signature;
    bit<16> place_0;
    bit<16> place_1;
    outcome_t none; /* never set: there is no stage before the first */
    outcome_t outcome_0;
    outcome_t outcome_1;
    bit<32> stamp_ns; /* when the segment passed; 0: not found, or retransmitted */
    bit<32> rtt_ns;
    bit<1> is_sample;
}

/* The parser extracts the ports for the first hashes */
#define PARSED_PORTS(header) \
    meta.source_port = hdr.header.source_port; \
    meta.destination_port = hdr.header.destination_port;

/* All fields start as zero */
struct metadata_t {
    bit<48> clock_ns;
    bit<32> now_ns; /* its lower bits */
    bit<32> now_steps; /* its upper bits: steps of 65.5 us, which wrap after 78 h */
    tap_t tap;

    /* The segment, and the ACK it expects */
    bit<32> length_bytes; /* from the IP header */
    bit<1> is_segment;
    bit<32> segment_bytes; /* payload, plus one each for SYN and FIN */
    bit<32> expected_ack;
    role_t data_role;
    role_t ack_role;
    bit<16> source_port;
    bit<16> destination_port;
    bit<32> own_fid; /* CRC-32 of the five-tuple */
    bit<32> other_fid; /* the same for the other direction */
    bit<32> difference;
    bit<32> data_signature;
    bit<32> ack_signature;
    bit<16> data_place;
    bit<16> ack_place;

    /* By direction of the data */
    bit<1> direction;
    pairing_t set_0;
    pairing_t set_1;
    bit<32> bytes_0;
    bit<32> bytes_1;

    /* The sketch */
    bit<32> frame_bytes;
    bit<32> of_rows_0_1;
    bit<32> of_rows_2_3;
    bit<1> over_0;
    bit<1> over_1;
    bit<1> over_2;
    bit<1> over_3;

    /* The flow's slot */
    bit<32> flow; /* the FID of direction 0, for both directions */
    role_t slot_role;
    outcome_t slot_outcome;
    bit<1> is_own;
    bit<1> is_new; /* the slot belonged to another flow */
    bit<1> became_long;

    /* To the control plane */
    bit<3> digest; /* the type of digest that reports its flow */
    bit<1> wants_samples;
    bit<8> events;
    bit<32> rtt_ns;
}

const bit<8> BECAME_LONG = 1;
const bit<8> SAMPLE = 2; /* of data in the packet's reverse direction */
const bit<8> IS_UDP = 4;

const bit<3> DIGEST_IPV4 = 1;
const bit<3> DIGEST_IPV6 = 2;

struct flow_ipv4_t {
    bit<48> now_ns;
    bit<32> rtt_ns;
    bit<8> events;
    bit<32> source;
    bit<32> destination;
    bit<16> source_port;
    bit<16> destination_port;
}

struct flow_ipv6_t {
    bit<48> now_ns;
    bit<32> rtt_ns;
    bit<8> events;
    bit<128> source;
    bit<128> destination;
    bit<16> source_port;
    bit<16> destination_port;
}

#endif

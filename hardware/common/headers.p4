/* Headers on the wire, for both targets.

   A program's own headers_t contains PACKET_HEADERS; common/parser.p4 extracts them. */

#ifndef HEADERS_P4
#define HEADERS_P4

typedef bit<48> mac_address_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

/* RFC 3168, section 5; RFC 9331 for ECT(1) */
const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_ECT_1 = 1;
const bit<2> ECN_ECT_0 = 2;
const bit<2> ECN_CE = 3;

header ethernet_h {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
}

header vlan_h {
    bit<3> priority;
    bit<1> drop_eligible;
    bit<12> id;
    bit<16> ether_type;
}

header ipv4_h {
    bit<4> version;
    bit<4> header_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_bytes;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv6_h {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_bytes;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> source;
    bit<128> destination;
}

header tcp_h {
    bit<16> source_port;
    bit<16> destination_port;
    bit<32> seq;
    bit<32> ack;
    bit<4> header_words;
    bit<4> reserved;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_h {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> bytes;
    bit<16> checksum;
}

const bit<8> TCP_FIN = 0x01;
const bit<8> TCP_SYN = 0x02;
const bit<8> TCP_RST = 0x04;
const bit<8> TCP_ACK = 0x10;

#define PACKET_HEADERS \
    ethernet_h ethernet; \
    vlan_h vlan; \
    ipv4_h ipv4; \
    ipv6_h ipv6; \
    tcp_h tcp; \
    udp_h udp;

#endif

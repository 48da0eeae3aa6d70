/* Parser states from the Ethernet header on, for both targets. To be included in a parser whose start state
   ends with "transition ethernet". (Applied as a sub-parser, it would make the compiler warn about
   uninitialized headers.)

   Ports are extracted only from first fragments without IPv4 options or IPv6 extension headers. In all other
   packets tcp and udp stay invalid, and the program treats them as packets without a flow.

   A program may define PARSED_PORTS(header), which runs on the ports of a header, tcp or udp. */

#ifndef PARSED_PORTS
#define PARSED_PORTS(header)
#endif

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.header_words, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): tcp;
            (5, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: tcp;
            PROTOCOL_UDP: udp;
            default: accept;
        }
    }

    state tcp {
        packet.extract(hdr.tcp);
        PARSED_PORTS(tcp)
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        PARSED_PORTS(udp)
        transition accept;
    }

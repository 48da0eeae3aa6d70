/* What the kernel side and the user side of the collector share. */
#ifndef COLLECTOR_H
#define COLLECTOR_H

#include <linux/bpf.h>
#include <linux/types.h>

/* Acknowledgements are seen where they leave by an ingress interface. They have their own counters, and belong to the
 * ingress tap. */
enum { INGRESS, EGRESS, TAPS, ACKS = TAPS, HOOKS };

/* The two ends of a flow of data. */
enum { RECEIVER, SENDER, ENDS };

/* An interface's flags, in the map of links. */
enum { HAS_ETHERNET = 1, IS_INGRESS = 2, IS_EGRESS = 4 };

/* Sampling of data packets, as in cctoolkit.compute_slots. */
enum { SAMPLE_ALL, SAMPLE_FIRST, SAMPLE_RANDOM };

/* One direction of a TCP connection. An IPv4 address is the first 4 bytes. */
struct flow_key {
	__u8 src[16];
	__u8 dst[16];
	__be16 sport;
	__be16 dport;
	__u32 version; /* 4 or 6 */
};

/* What was seen of a flow in a slot: cctoolkit/analysis/slots.py's CELL, and a way is 2 * flow number + tap here. */
struct cell {
	__s64 way;
	__s64 slot; /* since the Unix epoch */
	__s64 first_seq; /* + 1; 0: no data, only an acknowledgement */
	__s64 bytes;
	__s64 packets;
	__s64 source_gap; /* NONE: unknown */
	__s64 arrival_gap;
	__s64 end; /* highest sequence number + 1, and highest acknowledged, so far, unwrapped beyond 2^32; */
	__s64 acked; /* 0: none, or not counted (egress, samples) */
	__s64 ce_packets; /* marked */
	__s64 ecn_echoes; /* how often the ECN flags of acknowledgements changed */
};
#define NONE (-0x7fffffffffffffffLL - 1)

/* An echo of a timestamp within this time is no wait for the application (cctoolkit/analysis/sender_view.py). */
#define AT_ONCE_NS 2000000

/* A flow at one tap: the open cell, and the state between packets. */
struct state {
	__s64 slot;
	__s64 first_seq;
	__s64 bytes;
	__s64 packets;
	__s64 source_gap;
	__s64 arrival_gap;
	__s64 last_ts;
	__s64 last_tsval; /* + 1 */
	__s64 end;
	__s64 acked;
	__s64 ce_packets;
	__s64 ecn_echoes;
	__u32 ecn_flags; /* of the last acknowledgement, + 1; 0: none */
	__u32 open;
	__u32 seen;
	__u32 padding;
};

/* How long an end takes to echo TCP timestamps (RFC 7323). Of those that passed towards it, two are waited for: the newest,
 * which a sender that paused echoes, and one from before, because newer ones come until the echo is back. The first segment
 * that has a timestamp is timed, so the echo cannot seem too fast. */
struct echo {
	__u32 newest; /* 0: none */
	__u32 awaited;
	__u32 waits;
	__u32 samples;
	__s64 newest_ns; /* when it passed; 0: not known */
	__s64 awaited_ns;
	__s64 shortest_ns;
};

/* A monitored flow. Several processors may handle its packets at once. */
struct flow {
	__u32 lock;
	__u32 number;
	struct state tap[TAPS];
	struct echo ends[ENDS];
};

/* Counters per hook and processor. */
struct counters {
	__u64 packets; /* all packets */
	__u64 segments; /* TCP segments with data; for ACKS: with an acknowledgement */
	__u64 monitored; /* segments of monitored flows */
	__u64 sampled; /* those counted in cells; for ACKS: those that acknowledge new data */
	__u64 cells; /* cells sent to user space */
	__u64 lost_cells; /* cells lost for lack of room */
	__u64 lost_packets; /* packets in those cells, or skipped because other processors held the flow's lock */
};

/* Set before loading. */
struct settings {
	__s64 slot_ns;
	__u32 sampling;
	__u32 sample_below; /* random sampling: probability times 2^32 */
};

/* May change at any time. */
struct variables {
	__s64 tai_offset_ns; /* CLOCK_TAI - CLOCK_REALTIME */
	__u64 heavy_bytes; /* bytes per epoch that make a flow a candidate; 0: no counting */
	__u64 epoch;
};

/* The count-min sketch: a counter is an epoch number (16 bits) and bytes (48 bits); an old epoch's counter counts as 0. */
#define SKETCH_ROWS 4
#define SKETCH_COLUMNS 8192
#define EPOCH_SHIFT 48
#define BYTES_MASK ((1ULL << EPOCH_SHIFT) - 1)

#endif

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The Dragonfly collector in the kernel (Carmel and Keslassy, sections III-C, III-D and IV-D).
 *
 * Each packet of a monitored flow updates the flow's open cell: first sequence number, bytes, packets and
 * largest gaps in a slot. A cell goes to user space when the next slot's first packet arrives, or when user
 * space reads. The rules are those of _collect() in cctoolkit/analysis/slots.py, so that cells from here and
 * from a capture file make the same table. Without sampling, a cell also has how far the flow was sent and
 * acknowledged.
 *
 * The ingress tap is a tcx hook. The egress tap may be one too, but tc's egress hook comes before the queueing
 * discipline. Packets behind the queue are seen as packet captures see them: by the filter of a packet socket,
 * which keeps nothing. Acknowledgements are seen in the same way where they leave by an ingress interface, as
 * in a capture at the ingress tap.
 *
 * This reads no kernel structures, so nothing needs relocation: one object file works on all kernels.
 */
#include "collector.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL"; /* required of programs that read the kernel's clock */

#define PASS (-1) /* TCX_NEXT: continue as without this program */
#define OUTGOING 4 /* PACKET_OUTGOING */
#define MAX_TRIES (1 << 16)
#define MAX_VLAN_TAGS 4
#define MAX_EXTENSIONS 8
#define MAX_OPTION_BYTES 40
#define FIRST_LAP (1LL << 32) /* unwrapped sequence numbers start here, so that 0 means none */
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16
#define CE 3 /* congestion experienced (RFC 3168) */

struct bpf_map;

/* ---- settings and maps -------------------------------------------------------------------------------------------- */

const volatile struct settings settings = {.slot_ns = 1000000};
struct variables variables;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, struct flow);
} monitored SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOOKS);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32); /* HAS_ETHERNET (otherwise frames start with the IP header), IS_INGRESS, IS_EGRESS */
} links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SKETCH_ROWS * SKETCH_COLUMNS);
	__type(key, __u32);
	__type(value, __u64);
} sketch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct flow_key);
	__type(value, __u64);
} candidates SEC(".maps");

/* ---- headers ------------------------------------------------------------------------------------------------------ */

struct segment {
	struct flow_key key;
	__u32 payload_bytes;
	__u32 seq; /* of the first byte of data */
	__u32 ack;
	__u32 flags;
	__u32 ecn; /* codepoint of the IP header */
	__u32 ecn_flags; /* AE, CWR and ECE, + 1 */
	__u32 options_at;
	__u32 options_bytes;
	__u32 tsval;
	__u32 tsecr;
	__u32 has_ts;
};

struct options {
	__u8 bytes[MAX_OPTION_BYTES];
	__u32 used;
};

/* The offset of RFC 7323's timestamp option, or -1. Global, so that the verifier checks its loop only once. */
__attribute__((noinline)) int find_timestamp(struct options *options)
{
	__u32 next = 0;

	if (!options)
		return -1;
	for (__u32 i = 0; i + 1 < MAX_OPTION_BYTES; i++) {
		if (i < next)
			continue;
		__u8 kind = options->bytes[i], bytes = options->bytes[i + 1];
		if (kind == 0 || i >= options->used)
			return -1;
		if (kind == 1)
			continue;
		if (bytes < 2 || i + bytes > options->used)
			return -1;
		if (kind == 8 && bytes == 10)
			return i;
		next = i + bytes;
	}
	return -1;
}

static __always_inline void read_timestamp(struct __sk_buff *skb, struct segment *to)
{
	__u32 at = to->options_at, bytes = to->options_bytes;
	struct {
		__be32 layout, tsval, tsecr;
	} usual;
	struct {
		__be32 tsval, tsecr;
	} values;

	if (bytes >= sizeof(usual) && !bpf_skb_load_bytes(skb, at, &usual, sizeof(usual)) && usual.layout == bpf_htonl(0x0101080a)) {
		to->tsval = bpf_ntohl(usual.tsval);
		to->tsecr = bpf_ntohl(usual.tsecr);
		to->has_ts = 1;
		return;
	}
	struct options options = {.used = bytes};
	if (bytes == 0 || bytes > MAX_OPTION_BYTES || bpf_skb_load_bytes(skb, at, options.bytes, bytes))
		return;
	int found = find_timestamp(&options);
	if (found >= 0 && !bpf_skb_load_bytes(skb, at + found + 2, &values, sizeof(values))) {
		to->tsval = bpf_ntohl(values.tsval);
		to->tsecr = bpf_ntohl(values.tsecr);
		to->has_ts = 1;
	}
}

/* Parse a TCP segment; returns whether it is one. The timestamp is left to read_timestamp(). */
static __always_inline int read_segment(struct __sk_buff *skb, int ethernet, struct segment *to)
{
	__u32 at = 0, end, protocol;
	__be16 type = 0;
	__builtin_memset(to, 0, sizeof(*to));

	if (ethernet) {
		if (bpf_skb_load_bytes(skb, 12, &type, 2))
			return 0;
		at = 14;
		for (int i = 0; i < MAX_VLAN_TAGS; i++) {
			if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
				break;
			if (bpf_skb_load_bytes(skb, at + 2, &type, 2))
				return 0;
			at += 4;
		}
	} else {
		__u8 first;
		if (bpf_skb_load_bytes(skb, 0, &first, 1))
			return 0;
		type = first >> 4 == 6 ? bpf_htons(0x86dd) : bpf_htons(0x0800);
	}

	if (type == bpf_htons(0x0800)) {
		struct {
			__u8 version_ihl, tos;
			__be16 bytes, id, fragment;
			__u8 ttl, protocol;
			__be16 check;
			__u8 src[4], dst[4];
		} ip;
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version_ihl >> 4 != 4 || (ip.version_ihl & 15) < 5)
			return 0;
		if (ip.fragment & bpf_htons(0x1fff))
			return 0;
		/* 0: segmentation offload beyond 64 kB */
		end = ip.bytes ? at + bpf_ntohs(ip.bytes) : skb->len;
		protocol = ip.protocol;
		at += (ip.version_ihl & 15) * 4;
		to->key.version = 4;
		to->ecn = ip.tos & 3;
		__builtin_memcpy(to->key.src, ip.src, 4);
		__builtin_memcpy(to->key.dst, ip.dst, 4);
	} else if (type == bpf_htons(0x86dd)) {
		struct {
			__u8 version, label[3];
			__be16 bytes;
			__u8 protocol, ttl;
			__u8 src[16], dst[16];
		} ip;
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version >> 4 != 6)
			return 0;
		end = ip.bytes ? at + 40 + bpf_ntohs(ip.bytes) : skb->len;
		protocol = ip.protocol;
		at += 40;
		to->key.version = 6;
		to->ecn = ip.label[0] >> 4 & 3;
		__builtin_memcpy(to->key.src, ip.src, 16);
		__builtin_memcpy(to->key.dst, ip.dst, 16);
		for (int i = 0; i < MAX_EXTENSIONS && protocol != 6; i++) {
			struct {
				__u8 next, units;
				__be16 fragment;
			} header;
			if (bpf_skb_load_bytes(skb, at, &header, sizeof(header)))
				return 0;
			if (protocol == 44) {
				if (header.fragment & bpf_htons(0xfff8))
					return 0;
				at += 8;
			} else if (protocol == 51) {
				at += (header.units + 2) * 4;
			} else if (protocol == 0 || protocol == 43 || protocol == 60 || protocol == 135) {
				at += (header.units + 1) * 8;
			} else {
				return 0;
			}
			protocol = header.next;
		}
	} else {
		return 0;
	}
	if (protocol != 6)
		return 0;
	if (end > skb->len)
		end = skb->len;

	struct {
		__be16 sport, dport;
		__be32 seq, ack;
		__u8 header, flags;
		__be16 window, check, urgent;
	} tcp;
	if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)))
		return 0;
	__u32 data = at + (tcp.header >> 4) * 4;
	if (data < at + sizeof(tcp) || data > end)
		return 0;
	to->key.sport = tcp.sport;
	to->key.dport = tcp.dport;
	to->payload_bytes = end - data;
	to->seq = bpf_ntohl(tcp.seq) + !!(tcp.flags & TCP_SYN); /* a SYN takes one number */
	to->ack = bpf_ntohl(tcp.ack);
	to->flags = tcp.flags;
	to->ecn_flags = ((tcp.header & 1) << 2 | tcp.flags >> 6) + 1;
	to->options_at = at + sizeof(tcp);
	to->options_bytes = data - to->options_at;
	return 1;
}

/* ---- cells -------------------------------------------------------------------------------------------------------- */

/*
 * A flow's lock. Socket filters cannot use bpf_spin_lock; this lock is enough, because these programs cannot
 * interrupt each other on the same processor.
 */
static long try_lock(__u32 i, struct flow **flow)
{
	return __sync_val_compare_and_swap(&(*flow)->lock, 0, 1) == 0;
}

static __always_inline int lock(struct flow *flow)
{
	struct flow *to = flow;
	if (__sync_val_compare_and_swap(&flow->lock, 0, 1) == 0)
		return 1;
	return bpf_loop(MAX_TRIES, try_lock, &to, 0) < MAX_TRIES;
}

static __always_inline void unlock(struct flow *flow)
{
	__sync_lock_test_and_set(&flow->lock, 0);
}

static __always_inline void close_cell(struct state *state, __s64 way, struct cell *cell)
{
	cell->way = way;
	cell->slot = state->slot;
	cell->first_seq = state->first_seq;
	cell->bytes = state->bytes;
	cell->packets = state->packets;
	cell->source_gap = state->source_gap;
	cell->arrival_gap = state->arrival_gap;
	cell->end = state->end;
	cell->acked = state->acked;
	cell->ce_packets = state->ce_packets;
	cell->ecn_echoes = state->ecn_echoes;
	state->open = 0;
}

static __always_inline void open_cell(struct state *state, __s64 slot)
{
	state->open = 1;
	state->slot = slot;
	state->first_seq = 0;
	state->bytes = 0;
	state->packets = 0;
	state->source_gap = NONE;
	state->arrival_gap = NONE;
	state->ce_packets = 0;
	state->ecn_echoes = 0;
}

static __always_inline __s64 now(void)
{
	return (__s64)bpf_ktime_get_tai_ns() - variables.tai_offset_ns;
}

static __always_inline void hand_over(const struct cell *cell, struct counters *count)
{
	if (bpf_ringbuf_output(&cells, (void *)cell, sizeof(*cell), BPF_RB_NO_WAKEUP)) {
		count->lost_cells++;
		count->lost_packets += cell->packets;
	} else {
		count->cells++;
	}
}

/* How far sequence number `a` is ahead of `b`; negative if behind. */
static __always_inline __s64 ahead(__u32 a, __u32 b)
{
	return (__s32)(a - b);
}

/* A sender that pauses echoes late: other data must have passed since, or the echo have come at once. */
static __always_inline void take_echo(struct echo *from, __s64 since, __s64 before, __s64 ts)
{
	if (!since || ts < since || (before <= since && ts - since > AT_ONCE_NS)) /* or the clock was set back */
		return;
	if (!from->samples || ts - since < from->shortest_ns)
		from->shortest_ns = ts - since;
	from->samples++;
}

/* A segment passes from one end to the other, which are `from` and `to`; the data before it passed at `before`. */
static __always_inline void time_echo(struct echo *from, struct echo *to, const struct segment *seg, __s64 before,
				      __s64 ts)
{
	if (!seg->has_ts)
		return;
	if (from->newest && seg->tsecr == from->newest) {
		take_echo(from, from->newest_ns, before, ts);
		from->newest_ns = 0;
		from->waits = 0;
	} else if (from->waits && ahead(seg->tsecr, from->awaited) >= 0) {
		if (seg->tsecr == from->awaited) /* a later one tells nothing */
			take_echo(from, from->awaited_ns, before, ts);
		from->waits = 0;
	}
	if (!to->newest || ahead(seg->tsval, to->newest) > 0) {
		to->newest_ns = to->newest ? ts : 0; /* the first one seen may have been under way before */
		to->newest = seg->tsval;
		if (!to->waits && to->newest_ns) {
			to->awaited = to->newest;
			to->awaited_ns = to->newest_ns;
			to->waits = 1;
		}
	}
}

static __always_inline void add(struct __sk_buff *skb, struct flow *flow, __u32 tap, struct segment *seg,
				struct counters *count)
{
	struct state *state = &flow->tap[tap];
	struct cell cell;
	int closed = 0;

	count->monitored++;
	if (settings.sampling == SAMPLE_RANDOM && bpf_get_prandom_u32() >= settings.sample_below)
		return;
	__s64 ts = now(), slot = (__u64)ts / (__u64)settings.slot_ns;
	if (settings.sampling == SAMPLE_FIRST && state->seen && state->slot == slot) /* the common case, without locking */
		return;
	read_timestamp(skb, seg);

	if (!lock(flow)) {
		count->lost_packets++;
		return;
	}
	if (settings.sampling == SAMPLE_FIRST && state->seen && state->slot == slot) {
		unlock(flow);
		return;
	}
	if (state->open && state->slot != slot) {
		close_cell(state, (__s64)flow->number * 2 + tap, &cell);
		closed = 1;
	}
	if (!state->open)
		open_cell(state, slot);
	if (!state->packets)
		state->first_seq = (__s64)seg->seq + 1;
	state->packets++;
	state->bytes += seg->payload_bytes;
	state->ce_packets += seg->ecn == CE;
	/* A clock that was set back gives no gap; nor do packets of two processors that locked in the other order. */
	if (state->seen && ts >= state->last_ts && ts - state->last_ts > state->arrival_gap)
		state->arrival_gap = ts - state->last_ts;
	__s64 before = state->last_ts;
	state->seen = 1;
	state->last_ts = ts;
	if (seg->has_ts) {
		__s64 gap = ahead(seg->tsval, (__u32)(state->last_tsval - 1));
		if (state->last_tsval && gap > state->source_gap)
			state->source_gap = gap;
		state->last_tsval = (__s64)seg->tsval + 1;
	}
	if (tap == INGRESS && settings.sampling == SAMPLE_ALL) {
		__u32 end = seg->seq + seg->payload_bytes;
		__s64 further = ahead(end, (__u32)state->end);
		if (state->end)
			state->end += further > 0 ? further : 0;
		else if (state->acked)
			state->end = state->acked + ahead(end, (__u32)state->acked);
		else
			state->end = FIRST_LAP + end;
		time_echo(&flow->ends[SENDER], &flow->ends[RECEIVER], seg, before, ts);
	}
	unlock(flow);

	count->sampled++;
	if (closed)
		hand_over(&cell, count);
}

/* The cell that this may close is the ingress tap's. */
static __always_inline void acknowledge(struct __sk_buff *skb, struct flow *flow, struct segment *seg,
					struct counters *count, struct counters *tap)
{
	struct state *state = &flow->tap[INGRESS];
	struct cell cell;
	int closed = 0;

	__u32 ack = seg->ack;
	/* The flags of the handshake negotiate, and so do those before there are data. */
	int differs = state->seen && !(seg->flags & TCP_SYN) && seg->ecn_flags != state->ecn_flags;

	count->monitored++;
	read_timestamp(skb, seg);
	if (state->acked && ahead(ack, (__u32)state->acked) <= 0 && !differs) { /* a duplicate, without locking */
		struct echo *sender = &flow->ends[SENDER];
		if (seg->has_ts && ahead(seg->tsval, sender->newest) > 0) { /* no longer for a later segment to be timed */
			sender->newest_ns = 0;
			sender->newest = seg->tsval;
		}
		return;
	}
	__s64 ts = now(), slot = (__u64)ts / (__u64)settings.slot_ns;
	if (!lock(flow)) {
		count->lost_packets++;
		return;
	}
	time_echo(&flow->ends[RECEIVER], &flow->ends[SENDER], seg, ts, ts);
	__s64 acked = state->acked ? state->acked : state->end ? state->end : FIRST_LAP + ack;
	acked += ahead(ack, (__u32)acked);
	int further = acked > state->acked, changed = differs && state->ecn_flags;
	if (further || changed) {
		if (state->open && state->slot != slot) {
			close_cell(state, (__s64)flow->number * 2 + INGRESS, &cell);
			closed = 1;
		}
		if (!state->open && state->seen)
			open_cell(state, slot);
		if (further)
			state->acked = acked;
		count->sampled += further;
		state->ecn_echoes += changed;
	}
	if (differs)
		state->ecn_flags = seg->ecn_flags;
	unlock(flow);

	if (closed)
		hand_over(&cell, tap);
}

/* ---- heavy hitters ------------------------------------------------------------------------------------------------ */

/* Two 32-bit hashes of a key, which are combined to a row's index (A. Kirsch, M. Mitzenmacher, 2006). */
static __always_inline __u64 hash(const struct flow_key *key)
{
	const __u64 *word = (const __u64 *)key;
	__u64 x = 0x9e3779b97f4a7c15ULL;
	for (int i = 0; i < sizeof(*key) / 8; i++) {
		x = (x ^ word[i]) * 0xd6e8feb86659fd93ULL;
		x ^= x >> 32;
	}
	return x;
}

static __always_inline void count_heavy(const struct segment *seg)
{
	__u64 now = variables.epoch & 0xffff, bytes = seg->payload_bytes, least = BYTES_MASK, hashed = hash(&seg->key);
	__u32 step = (__u32)(hashed >> 32) | 1;

	for (__u32 row = 0; row < SKETCH_ROWS; row++) {
		__u32 index = row * SKETCH_COLUMNS + (((__u32)hashed + row * step) & (SKETCH_COLUMNS - 1));
		__u64 *counter = bpf_map_lookup_elem(&sketch, &index);
		if (!counter)
			return;
		__u64 sum = 0;
		for (int i = 0; i < 8; i++) { /* until no other processor interferes */
			__u64 old = *(volatile __u64 *)counter;
			sum = (old >> EPOCH_SHIFT == now ? old & BYTES_MASK : 0) + bytes;
			if (__sync_val_compare_and_swap(counter, old, now << EPOCH_SHIFT | sum) == old)
				break;
		}
		if (sum < least)
			least = sum;
	}
	if (least < variables.heavy_bytes)
		return;
	__u64 *known = bpf_map_lookup_elem(&candidates, &seg->key), value = now << EPOCH_SHIFT | least;
	if (known)
		*known = value;
	else
		bpf_map_update_elem(&candidates, &seg->key, &value, BPF_ANY);
}

/* ---- hooks -------------------------------------------------------------------------------------------------------- */

static __always_inline struct counters *counters_of(__u32 hook)
{
	__u32 key = hook; /* the map needs its address */
	return bpf_map_lookup_elem(&counts, &key);
}

static __always_inline void take_data(struct __sk_buff *skb, __u32 tap, struct segment *seg, struct counters *count)
{
	if (!seg->payload_bytes)
		return;
	count->segments++;
	if (tap == INGRESS && variables.heavy_bytes)
		count_heavy(seg);
	struct flow *flow = bpf_map_lookup_elem(&monitored, &seg->key);
	if (flow)
		add(skb, flow, tap, seg, count);
}

/* A segment acknowledges data of the other direction. */
static __always_inline void take_ack(struct __sk_buff *skb, struct segment *seg, struct counters *count,
				     struct counters *tap)
{
	struct flow_key key = {.sport = seg->key.dport, .dport = seg->key.sport, .version = seg->key.version};

	if ((seg->flags & (TCP_ACK | TCP_RST)) != TCP_ACK)
		return;
	count->segments++;
	__builtin_memcpy(key.src, seg->key.dst, sizeof(key.src));
	__builtin_memcpy(key.dst, seg->key.src, sizeof(key.dst));
	struct flow *flow = bpf_map_lookup_elem(&monitored, &key);
	if (flow)
		acknowledge(skb, flow, seg, count, tap);
}

static __always_inline void came(struct __sk_buff *skb)
{
	struct segment seg;
	__u32 index = skb->ifindex;
	__u32 *link = bpf_map_lookup_elem(&links, &index);
	struct counters *count = counters_of(INGRESS);

	if (!link || !count)
		return;
	count->packets++;
	if (read_segment(skb, *link & HAS_ETHERNET, &seg))
		take_data(skb, INGRESS, &seg, count);
}

/* An interface may be both: data of one direction leave by it, and acknowledgements of the other direction. */
static __always_inline void left(struct __sk_buff *skb)
{
	struct segment seg;
	__u32 index = skb->ifindex;
	__u32 *link = bpf_map_lookup_elem(&links, &index);
	struct counters *data = counters_of(EGRESS), *acks = counters_of(ACKS), *ingress = counters_of(INGRESS);

	if (!link || !data || !acks || !ingress)
		return;
	int is_egress = *link & IS_EGRESS, sees_acks = settings.sampling == SAMPLE_ALL && *link & IS_INGRESS;
	if (is_egress)
		data->packets++;
	if (sees_acks)
		acks->packets++;
	if (!read_segment(skb, *link & HAS_ETHERNET, &seg))
		return;
	if (is_egress)
		take_data(skb, EGRESS, &seg, data);
	if (sees_acks)
		take_ack(skb, &seg, acks, ingress);
}

SEC("tc")
int tc_ingress(struct __sk_buff *skb)
{
	came(skb);
	return PASS;
}

SEC("tc")
int tc_egress(struct __sk_buff *skb)
{
	left(skb);
	return PASS;
}

SEC("socket")
int left_queue(struct __sk_buff *skb)
{
	if (skb->pkt_type == OUTGOING)
		left(skb);
	return 0; /* number of bytes that the socket keeps */
}

static long close_open_cells(struct bpf_map *map, struct flow_key *key, struct flow *flow, void *context)
{
	for (__u32 tap = 0; tap < TAPS; tap++) {
		struct cell cell;
		int closed = 0;
		struct counters *count = counters_of(tap);
		if (!count)
			return 1;
		if (!lock(flow))
			continue;
		if (flow->tap[tap].open) {
			close_cell(&flow->tap[tap], (__s64)flow->number * 2 + tap, &cell);
			closed = 1;
		}
		unlock(flow);
		if (closed)
			hand_over(&cell, count);
	}
	return 0;
}

/* User space runs this when it reads. A slot may thus have several cells. */
SEC("tc")
int flush(struct __sk_buff *skb)
{
	bpf_for_each_map_elem(&monitored, close_open_cells, 0, 0);
	return 0;
}

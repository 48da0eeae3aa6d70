/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the queue disciplines pi2, ired, abc and codel_pisa share: a queue whose
 * algorithm decides on arrival, on departure, or both.
 */
#ifndef CCT_AQM_QDISC_H
#define CCT_AQM_QDISC_H

#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/skbuff.h>
#include <linux/version.h>
#include <net/inet_ecn.h>
#include <net/pkt_sched.h>

#include "aqm.h"

/* Older kernels. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#include <net/gso.h>
#endif
#ifndef MODULE_ALIAS_NET_SCH
#define MODULE_ALIAS_NET_SCH(id) MODULE_ALIAS("sch_" id)
#endif
#ifndef NL_SET_ERR_MSG_FMT
#define NL_SET_ERR_MSG_FMT(extack, ...) do { } while (0)	/* the log has it, too */
#endif

/* Statistics, in TCA_STATS_APP; read by cctoolkit/testbed/collect.py. */
struct aqm_xstats {
	__u32 probability;	/* in units of 2**-32; 0 if the algorithm has none */
	__u32 dropped_full;	/* packets */
	__u32 dropped_enqueue;
	__u32 dropped_dequeue;
	__u32 marked;		/* not counting those that arrived with CE */
	__u32 own[2];		/* of the algorithm: see README.md */
};

/* First member of the private data of each discipline. */
struct aqm_queue {
	struct aqm_xstats xstats;
	u64 start_ns;	/* arrival of the first packet, from which times count */
	bool started;
	u32 gone_packets;	/* dropped on departure; the parents do not know yet */
	u32 gone_bytes;
};

struct aqm_skb_cb {
	u64 enqueued_ns;
	u8 ecn;
};

typedef int (*aqm_decide)(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns);

static inline struct aqm_skb_cb *aqm_skb_cb(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(struct aqm_skb_cb));
	return (struct aqm_skb_cb *)qdisc_skb_cb(skb)->data;
}

/* Nanoseconds since the first packet arrived. */
static inline u64 aqm_now(struct aqm_queue *q)
{
	u64 now_ns = ktime_get_ns();

	if (unlikely(!q->started)) {
		q->started = true;
		q->start_ns = now_ns;
	}
	return now_ns - q->start_ns;
}

static inline struct aqm_packet aqm_packet(const struct sk_buff *skb)
{
	return (struct aqm_packet) {
		.enqueued_ns = aqm_skb_cb(skb)->enqueued_ns,
		.bytes = qdisc_pkt_len(skb),
		.aggregate = skb->mark,
		.ecn = aqm_skb_cb(skb)->ecn,
	};
}

/* How long the packet at the head has waited; 0 for an empty queue. */
static inline u64 aqm_head_delay(struct Qdisc *sch, u64 now_ns)
{
	const struct sk_buff *head = skb_peek(&sch->gso_skb);	/* one that was peeked */

	if (!head)
		head = sch->q.head;
	return head ? now_ns - aqm_skb_cb(head)->enqueued_ns : 0;
}

static inline bool aqm_set_ce(struct sk_buff *skb)
{
	unsigned int header = skb_protocol(skb, true) == htons(ETH_P_IPV6) ?
		sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (skb_try_make_writable(skb, skb_network_offset(skb) + header))
		return false;
	return INET_ECN_set_ce(skb);
}

static inline int aqm_enqueue_one(struct sk_buff *skb, struct Qdisc *sch,
				  struct sk_buff **to_free, aqm_decide decide)
{
	struct aqm_queue *q = qdisc_priv(sch);
	int dsfield = skb_get_dsfield(skb), verdict = AQM_PASS;
	u64 now_ns = aqm_now(q);
	u32 ecn = dsfield < 0 ? AQM_NOT_ECT : dsfield & INET_ECN_MASK;

	aqm_skb_cb(skb)->enqueued_ns = now_ns;
	aqm_skb_cb(skb)->ecn = ecn;
	if (decide) {
		struct aqm_packet packet = aqm_packet(skb);

		verdict = decide(sch, &packet, now_ns);
		if (verdict == AQM_DROP || (verdict == AQM_MARK && ecn == AQM_NOT_ECT))
			goto drop;
	}
	if (unlikely(qdisc_qlen(sch) >= sch->limit)) {
		q->xstats.dropped_full++;
		qdisc_qstats_overlimit(sch);
		return qdisc_drop(skb, sch, to_free);
	}
	if (verdict == AQM_MARK && ecn != AQM_CE) {
		if (!aqm_set_ce(skb))
			goto drop;
		aqm_skb_cb(skb)->ecn = AQM_CE;
		q->xstats.marked++;
	}
	return qdisc_enqueue_tail(skb, sch);

drop:
	q->xstats.dropped_enqueue++;
	return qdisc_drop(skb, sch, to_free);
}

/*
 * The algorithms decide for each packet of the wire, so a GSO packet is split
 * first, and its segments arrive at the same time.
 */
static inline int aqm_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free,
			      aqm_decide decide)
{
	unsigned int bytes = qdisc_pkt_len(skb), queued = 0, queued_bytes = 0;
	struct sk_buff *segment, *next;

	if (likely(!skb_is_gso(skb)))
		return aqm_enqueue_one(skb, sch, to_free, decide);

	segment = skb_gso_segment(skb, netif_skb_features(skb) & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(segment))
		return qdisc_drop(skb, sch, to_free);
	skb_list_walk_safe(segment, segment, next) {
		unsigned int segment_bytes = segment->len;

		skb_mark_not_on_list(segment);
		qdisc_skb_cb(segment)->pkt_len = segment_bytes;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
		qdisc_skb_cb(segment)->pkt_segs = 1;
#endif
		if (aqm_enqueue_one(segment, sch, to_free, decide) == NET_XMIT_SUCCESS) {
			queued++;
			queued_bytes += segment_bytes;
		}
	}
	consume_skb(skb);
	if (!queued)
		return NET_XMIT_DROP;
	/* the parents will count the one packet that they handed over */
	qdisc_tree_reduce_backlog(sch, 1 - (int)queued, (int)bytes - (int)queued_bytes);
	return NET_XMIT_SUCCESS;
}

static inline struct sk_buff *aqm_take(struct Qdisc *sch, aqm_decide decide)
{
	struct aqm_queue *q = qdisc_priv(sch);
	struct sk_buff *skb;

	while ((skb = __qdisc_dequeue_head(&sch->q))) {
		struct aqm_packet packet = aqm_packet(skb);
		int verdict = AQM_PASS;

		qdisc_qstats_backlog_dec(sch, skb);
		if (decide)
			verdict = decide(sch, &packet, aqm_now(q));
		if (verdict == AQM_PASS || (verdict == AQM_MARK && packet.ecn == AQM_CE))
			break;
		if (verdict == AQM_MARK && packet.ecn != AQM_NOT_ECT && aqm_set_ce(skb)) {
			q->xstats.marked++;
			break;
		}
		q->xstats.dropped_dequeue++;
		q->gone_packets++;
		q->gone_bytes += packet.bytes;
		qdisc_qstats_drop(sch);
		kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	}
	if (skb)
		qdisc_bstats_update(sch, skb);
	return skb;
}

/* Once the packet that leaves, or was peeked, is counted: a queue that looks empty is not asked again. */
static inline void aqm_tell_parents(struct Qdisc *sch)
{
	struct aqm_queue *q = qdisc_priv(sch);

	if (!q->gone_packets)
		return;
	qdisc_tree_reduce_backlog(sch, q->gone_packets, q->gone_bytes);
	q->gone_packets = 0;
	q->gone_bytes = 0;
}

static inline struct sk_buff *aqm_dequeue(struct Qdisc *sch, aqm_decide decide)
{
	struct sk_buff *skb = aqm_take(sch, decide);

	aqm_tell_parents(sch);
	return skb;
}

static inline struct sk_buff *aqm_peek(struct Qdisc *sch, aqm_decide decide)
{
	struct sk_buff *skb = skb_peek(&sch->gso_skb);

	if (skb)
		return skb;
	skb = aqm_take(sch, decide);
	if (skb) {	/* it still is part of the queue */
		__skb_queue_head(&sch->gso_skb, skb);
		qdisc_qstats_backlog_inc(sch, skb);
		WRITE_ONCE(sch->q.qlen, sch->q.qlen + 1);
	}
	aqm_tell_parents(sch);
	return skb;
}

/* Of ->reset: the queue and its statistics; the clock goes on. */
static inline void aqm_reset(struct Qdisc *sch)
{
	struct aqm_queue *q = qdisc_priv(sch);

	qdisc_reset_queue(sch);
	memset(&q->xstats, 0, sizeof(q->xstats));
}

/* What ->init does first. Parameters are the module's; `wrong` says what is wrong with them. */
static inline int aqm_init(struct Qdisc *sch, const struct nlattr *opt, u32 limit,
			   const char *wrong, struct netlink_ext_ack *extack)
{
	if (opt) {
		NL_SET_ERR_MSG(extack, "parameters are those of the module");
		return -EINVAL;
	}
	if (!limit)
		wrong = "limit must be positive";
	if (wrong) {
		NL_SET_ERR_MSG_FMT(extack, "%s: %s", sch->ops->id, wrong);
		pr_err("sch_%s: %s\n", sch->ops->id, wrong);
		return -EINVAL;
	}
	sch->limit = limit;
	return 0;
}

#endif

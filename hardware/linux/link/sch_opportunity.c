// SPDX-License-Identifier: GPL-2.0
/*
 * A link that delivers in bursts: every interval there is an opportunity to send
 * some bytes at once, and what the queue does not use of it is lost. Cellular
 * links and Mahimahi's mm-link work like this.
 *
 * A packet waits for the first opportunity after its arrival. One that does not
 * fit continues at the next; it has then left the queue, as far as `limit` goes.
 */

#include <linux/ktime.h>
#include <linux/module.h>
#include <net/pkt_sched.h>

static unsigned int limit = 1000;
static unsigned int bytes = 1500;
static unsigned int interval_us = 1000;

module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "Most packets in the queue");
module_param(bytes, uint, 0644);
MODULE_PARM_DESC(bytes, "Bytes of an opportunity, counted as the device counts them");
module_param(interval_us, uint, 0644);
MODULE_PARM_DESC(interval_us, "Microseconds from one opportunity to the next");

struct opportunity_sched {
	struct qdisc_watchdog watchdog;
	u64 start_ns;
	u64 interval_ns;
	u64 used;	/* opportunities up to this one are over, or `left` is of it */
	u64 left;	/* bytes; between opportunities, those of the head that are sent already */
	u32 bytes;
};

/* Opportunities so far when a packet arrived. */
static u64 *arrival(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(u64));
	return (u64 *)qdisc_skb_cb(skb)->data;
}

static u64 opportunities(const struct opportunity_sched *q)
{
	return div64_u64(ktime_get_ns() - q->start_ns, q->interval_ns);
}

static int opportunity_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct opportunity_sched *q = qdisc_priv(sch);

	if (qdisc_qlen(sch) >= sch->limit + (q->left > 0))
		return qdisc_drop(skb, sch, to_free);
	*arrival(skb) = opportunities(q);
	return qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *opportunity_dequeue(struct Qdisc *sch)
{
	struct opportunity_sched *q = qdisc_priv(sch);
	u64 now = opportunities(q), since;
	struct sk_buff *skb = sch->q.head;

	if (!skb)
		return NULL;
	since = max(q->used, *arrival(skb));
	if (now > since) {	/* by more than one if the timer is late */
		q->left += (now - since) * q->bytes;
		q->used = now;
	}
	if (now > *arrival(skb) && q->left >= qdisc_pkt_len(skb)) {
		q->left -= qdisc_pkt_len(skb);
		skb = qdisc_dequeue_head(sch);
		if (!sch->q.head || *arrival(sch->q.head) >= now)
			q->left = 0;
		return skb;
	}
	qdisc_watchdog_schedule_ns(&q->watchdog, q->start_ns + (now + 1) * q->interval_ns);
	return NULL;
}

static int opportunity_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct opportunity_sched *q = qdisc_priv(sch);

	qdisc_watchdog_init(&q->watchdog, sch);	/* first: ->destroy is called after an error, too */
	if (opt) {
		NL_SET_ERR_MSG(extack, "parameters are those of the module");
		return -EINVAL;
	}
	if (!limit || !bytes || bytes > 1000000000 || !interval_us || interval_us > 1000000000) {
		NL_SET_ERR_MSG(extack, "limit, bytes and interval_us must be positive, the last two at most 10^9");
		pr_err("sch_opportunity: limit, bytes and interval_us must be positive, the last two at most 10^9\n");
		return -EINVAL;
	}
	sch->limit = limit;
	q->bytes = bytes;
	q->interval_ns = (u64)interval_us * NSEC_PER_USEC;
	q->start_ns = ktime_get_ns();
	return 0;
}

static void opportunity_reset(struct Qdisc *sch)
{
	struct opportunity_sched *q = qdisc_priv(sch);

	qdisc_reset_queue(sch);
	qdisc_watchdog_cancel(&q->watchdog);
	q->left = 0;
}

static void opportunity_destroy(struct Qdisc *sch)
{
	struct opportunity_sched *q = qdisc_priv(sch);

	qdisc_watchdog_cancel(&q->watchdog);
}

static struct Qdisc_ops opportunity_ops __read_mostly = {
	.id		= "opportunity",
	.priv_size	= sizeof(struct opportunity_sched),
	.enqueue	= opportunity_enqueue,
	.dequeue	= opportunity_dequeue,
	.peek		= qdisc_peek_dequeued,
	.init		= opportunity_init,
	.reset		= opportunity_reset,
	.destroy	= opportunity_destroy,
	.owner		= THIS_MODULE,
};
MODULE_ALIAS("sch_opportunity");

static int __init opportunity_module_init(void)
{
	return register_qdisc(&opportunity_ops);
}
module_init(opportunity_module_init);

static void __exit opportunity_module_exit(void)
{
	unregister_qdisc(&opportunity_ops);
}
module_exit(opportunity_module_exit);

MODULE_DESCRIPTION("A link that delivers in bursts");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/* The laziest AQM: drop (or mark) whatever waited longer than a fixed delay. */
#include <linux/module.h>
#include <net/inet_ecn.h>
#include <net/pkt_sched.h>

static unsigned int limit = 1000; /* packets */
module_param(limit, uint, 0644);
static unsigned int target_us = 5000;
module_param(target_us, uint, 0644);

static ktime_t *arrival(struct sk_buff *skb)
{
	return (ktime_t *)qdisc_skb_cb(skb)->data;
}

static int lazy_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	if (sch->q.qlen >= sch->limit)
		return qdisc_drop(skb, sch, to_free);
	*arrival(skb) = ktime_get();
	return qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *lazy_dequeue(struct Qdisc *sch)
{
	struct sk_buff *skb;

	while ((skb = __qdisc_dequeue_head(&sch->q))) {
		qdisc_qstats_backlog_dec(sch, skb);
		if (ktime_us_delta(ktime_get(), *arrival(skb)) <= target_us || INET_ECN_set_ce(skb)) {
			qdisc_bstats_update(sch, skb);
			break;
		}
		qdisc_tree_reduce_backlog(sch, 1, qdisc_pkt_len(skb));
		qdisc_qstats_drop(sch);
		kfree_skb(skb);
	}
	return skb;
}

static int lazy_create(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	sch->limit = limit;
	return 0;
}

static struct Qdisc_ops lazy_ops __read_mostly = {
	.id = "lazy", .owner = THIS_MODULE,
	.init = lazy_create, .enqueue = lazy_enqueue, .dequeue = lazy_dequeue,
	.peek = qdisc_peek_dequeued, .reset = qdisc_reset_queue,
};

static int __init lazy_init(void)
{
	return register_qdisc(&lazy_ops);
}
module_init(lazy_init);
MODULE_LICENSE("GPL");

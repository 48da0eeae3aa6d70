// SPDX-License-Identifier: GPL-2.0
/*
 * iRED: departing packets decide, the next classic packet to arrive is dropped.
 * The algorithm is in ired.h.
 */

#include <linux/slab.h>

#include "aqm_qdisc.h"
#include "ired.h"

static unsigned int limit = 1000;
static unsigned int min_us = 20000;
static unsigned int max_us = 40000;
static unsigned int coupling_milli = 2000;
static bool square = true;
static unsigned int identifier = AQM_BY_ECT1;
static unsigned int recirculation_us = 1;
static unsigned int max_notifications = 256;
static unsigned long long seed;

module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "Most packets in the queue");
module_param(min_us, uint, 0644);
MODULE_PARM_DESC(min_us, "Average delay from which packets are signalled, in microseconds");
module_param(max_us, uint, 0644);
MODULE_PARM_DESC(max_us, "Average delay at which the probability is 1, in microseconds");
module_param(coupling_milli, uint, 0644);
MODULE_PARM_DESC(coupling_milli, "Coupling factor k in thousandths");
module_param(square, bool, 0644);
MODULE_PARM_DESC(square, "Square the probability for classic packets");
module_param(identifier, uint, 0644);
MODULE_PARM_DESC(identifier, "Scalable packets: 0 ECT(1) and CE, 1 any ECT, 2 skb->mark");
module_param(recirculation_us, uint, 0644);
MODULE_PARM_DESC(recirculation_us, "Time from a decision until it drops, in microseconds");
module_param(max_notifications, uint, 0644);
MODULE_PARM_DESC(max_notifications, "Most decisions on their way");
module_param(seed, ullong, 0644);
MODULE_PARM_DESC(seed, "Seed for random numbers; 0: the kernel's");

struct ired_sched {
	struct aqm_queue q;
	struct ired_params params;
	struct ired_state state;
	struct aqm_random random;
	struct ired_tables *tables;
	u64 *notifications;
};

static int ired_arrives(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns)
{
	struct ired_sched *q = qdisc_priv(sch);

	return ired_enqueue(&q->params, &q->state, packet, now_ns);
}

static int ired_leaves(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns)
{
	struct ired_sched *q = qdisc_priv(sch);

	return ired_dequeue(&q->params, q->tables, &q->state, &q->random, packet, now_ns);
}

static int ired_qdisc_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	return aqm_enqueue(skb, sch, to_free, ired_arrives);
}

static struct sk_buff *ired_qdisc_dequeue(struct Qdisc *sch)
{
	return aqm_dequeue(sch, ired_leaves);
}

static struct sk_buff *ired_qdisc_peek(struct Qdisc *sch)
{
	return aqm_peek(sch, ired_leaves);
}

static int ired_qdisc_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct ired_sched *q = qdisc_priv(sch);
	int err;

	q->params = (struct ired_params) {
		.min_us = min_us,
		.max_us = max_us,
		.coupling_milli = coupling_milli,
		.square = square,
		.identifier = identifier,
		.recirculation_us = recirculation_us,
		.max_notifications = max_notifications,
	};
	err = aqm_init(sch, opt, limit, ired_check(&q->params), extack);
	if (err)
		return err;
	q->tables = kvmalloc(sizeof(*q->tables), GFP_KERNEL);
	q->notifications = kvcalloc(q->params.max_notifications, sizeof(u64), GFP_KERNEL);
	if (!q->tables || !q->notifications)
		return -ENOMEM;	/* ->destroy frees the other */
	ired_make_tables(&q->params, q->tables);
	ired_init(&q->state, q->notifications);
	aqm_seed(&q->random, seed);
	return 0;
}

static void ired_qdisc_reset(struct Qdisc *sch)
{
	struct ired_sched *q = qdisc_priv(sch);

	aqm_reset(sch);
	ired_init(&q->state, q->notifications);
}

/* Also after ->init has failed. */
static void ired_qdisc_destroy(struct Qdisc *sch)
{
	struct ired_sched *q = qdisc_priv(sch);

	kvfree(q->tables);
	kvfree(q->notifications);
}

static int ired_qdisc_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct ired_sched *q = qdisc_priv(sch);
	struct aqm_xstats xstats = q->q.xstats;

	xstats.probability = ired_probability_q32(&q->params, &q->state);
	xstats.own[0] = q->state.notifications;
	xstats.own[1] = q->state.lost_notifications;
	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
}

static struct Qdisc_ops ired_qdisc_ops __read_mostly = {
	.id		= "ired",
	.priv_size	= sizeof(struct ired_sched),
	.enqueue	= ired_qdisc_enqueue,
	.dequeue	= ired_qdisc_dequeue,
	.peek		= ired_qdisc_peek,
	.init		= ired_qdisc_init,
	.reset		= ired_qdisc_reset,
	.destroy	= ired_qdisc_destroy,
	.dump_stats	= ired_qdisc_dump_stats,
	.owner		= THIS_MODULE,
};
MODULE_ALIAS_NET_SCH("ired");

static int __init ired_module_init(void)
{
	return register_qdisc(&ired_qdisc_ops);
}
module_init(ired_module_init);

static void __exit ired_module_exit(void)
{
	unregister_qdisc(&ired_qdisc_ops);
}
module_exit(ired_module_exit);

MODULE_DESCRIPTION("iRED (Ingress Random Early Detection)");
MODULE_LICENSE("GPL");

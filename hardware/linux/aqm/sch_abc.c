// SPDX-License-Identifier: GPL-2.0
/*
 * ABC: packets of the most active aggregates are dropped first. skb->mark is the
 * aggregate; meter and activity AQM are both here, since the domain has one hop.
 * The algorithm is in abc.h.
 */

#include <linux/slab.h>

#include "abc.h"
#include "aqm_qdisc.h"

#define ABC_MOST_REFERENCES 256

static unsigned int reference_kbps[ABC_MOST_REFERENCES] = { 10 };
static unsigned int references = 1;
module_param_array(reference_kbps, uint, &references, 0644);
MODULE_PARM_DESC(reference_kbps,
		 "Reference rate of each aggregate in kbit/s; the last one applies to all that follow");
static unsigned int limit = 1000;
static unsigned int meter_memory_us = 3000000;
static unsigned int average_memory_us = 300000;
static unsigned int min_packets = 6;
static unsigned int base_packets = 20;
static unsigned int gamma_packets = 16;
static unsigned int aggregates = 64;

module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "Most packets in the queue");
module_param(meter_memory_us, uint, 0644);
MODULE_PARM_DESC(meter_memory_us, "Memory of the meter in microseconds");
module_param(average_memory_us, uint, 0644);
MODULE_PARM_DESC(average_memory_us, "Memory of the average activity in microseconds");
module_param(min_packets, uint, 0644);
MODULE_PARM_DESC(min_packets, "Least threshold in packets (Q_min)");
module_param(base_packets, uint, 0644);
MODULE_PARM_DESC(base_packets, "Threshold at the average activity in packets (Q_base)");
module_param(gamma_packets, uint, 0644);
MODULE_PARM_DESC(gamma_packets, "Packets per unit of activity (gamma)");
module_param(aggregates, uint, 0644);
MODULE_PARM_DESC(aggregates, "Meters; higher marks share the last one");

struct abc_sched {
	struct aqm_queue q;
	struct abc_params params;
	struct abc_state state;
	struct abc_tables *tables;
	struct abc_meter *meters;
};

static int abc_arrives(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns)
{
	struct abc_sched *q = qdisc_priv(sch);

	return abc_enqueue(&q->params, q->tables, &q->state, packet, qdisc_qlen(sch), now_ns);
}

static int abc_qdisc_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	return aqm_enqueue(skb, sch, to_free, abc_arrives);
}

static struct sk_buff *abc_qdisc_dequeue(struct Qdisc *sch)
{
	return aqm_dequeue(sch, NULL);
}

static int abc_qdisc_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct abc_sched *q = qdisc_priv(sch);
	int err;

	q->params = (struct abc_params) {
		.meter_memory_us = meter_memory_us,
		.average_memory_us = average_memory_us,
		.min_packets = min_packets,
		.base_packets = base_packets,
		.gamma_packets = gamma_packets,
		.aggregates = aggregates,
	};
	err = aqm_init(sch, opt, limit, abc_check(&q->params, reference_kbps, references), extack);
	if (err)
		return err;
	q->tables = kvmalloc(sizeof(*q->tables), GFP_KERNEL);
	q->meters = kvcalloc(q->params.aggregates, sizeof(*q->meters), GFP_KERNEL);
	if (!q->tables || !q->meters)
		return -ENOMEM;	/* ->destroy frees the other */
	abc_make_tables(&q->params, q->tables);
	abc_init(&q->params, &q->state, q->meters, reference_kbps, references);
	return 0;
}

static void abc_qdisc_reset(struct Qdisc *sch)
{
	struct abc_sched *q = qdisc_priv(sch);

	aqm_reset(sch);
	abc_reset(&q->params, &q->state);
}

/* Also after ->init has failed. */
static void abc_qdisc_destroy(struct Qdisc *sch)
{
	struct abc_sched *q = qdisc_priv(sch);

	kvfree(q->tables);
	kvfree(q->meters);
}

static int abc_qdisc_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct abc_sched *q = qdisc_priv(sch);
	struct aqm_xstats xstats = q->q.xstats;

	xstats.own[0] = q->state.accepted;
	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
}

static struct Qdisc_ops abc_qdisc_ops __read_mostly = {
	.id		= "abc",
	.priv_size	= sizeof(struct abc_sched),
	.enqueue	= abc_qdisc_enqueue,
	.dequeue	= abc_qdisc_dequeue,
	.peek		= qdisc_peek_dequeued,
	.init		= abc_qdisc_init,
	.reset		= abc_qdisc_reset,
	.destroy	= abc_qdisc_destroy,
	.dump_stats	= abc_qdisc_dump_stats,
	.owner		= THIS_MODULE,
};
MODULE_ALIAS_NET_SCH("abc");

static int __init abc_module_init(void)
{
	return register_qdisc(&abc_qdisc_ops);
}
module_init(abc_module_init);

static void __exit abc_module_exit(void)
{
	unregister_qdisc(&abc_qdisc_ops);
}
module_exit(abc_module_exit);

MODULE_DESCRIPTION("ABC (Activity-Based Congestion management)");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/* CoDel as programmed for pipelines such as the Tofino's. The algorithm is in codel_pisa.h. */

#include "aqm_qdisc.h"
#include "codel_pisa.h"

static unsigned int limit = 1000;
static unsigned int target_us = 5000;
static unsigned int interval_us = 100000;
static unsigned int mtu_bytes = 1514;
static bool from_now = true;
static bool count_first = true;
static bool wrap;

module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "Most packets in the queue");
module_param(target_us, uint, 0644);
MODULE_PARM_DESC(target_us, "Target delay in microseconds");
module_param(interval_us, uint, 0644);
MODULE_PARM_DESC(interval_us, "Interval in microseconds");
module_param(mtu_bytes, uint, 0644);
MODULE_PARM_DESC(mtu_bytes, "Never drop if fewer bytes wait");
module_param(from_now, bool, 0644);
MODULE_PARM_DESC(from_now, "The next drop counts from now, not from the last due time");
module_param(count_first, bool, 0644);
MODULE_PARM_DESC(count_first, "Increment the count before taking its root");
module_param(wrap, bool, 0644);
MODULE_PARM_DESC(wrap, "Times have 32 bits");
static bool signed_difference = true;
module_param_named(signed, signed_difference, bool, 0644);
MODULE_PARM_DESC(signed, "With wrap: compare signed differences of times");
static unsigned int clock_us;
module_param(clock_us, uint, 0644);
MODULE_PARM_DESC(clock_us, "With wrap: the clock when the first packet arrives, in microseconds");

struct codel_pisa_sched {
	struct aqm_queue q;
	struct codel_pisa_params params;
	struct codel_pisa_math_unit unit;
	struct codel_pisa_state state;
};

static int codel_pisa_leaves(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns)
{
	struct codel_pisa_sched *q = qdisc_priv(sch);

	return codel_pisa_dequeue(&q->params, &q->unit, &q->state, packet, sch->qstats.backlog,
				  now_ns);
}

static int codel_pisa_qdisc_enqueue(struct sk_buff *skb, struct Qdisc *sch,
				    struct sk_buff **to_free)
{
	return aqm_enqueue(skb, sch, to_free, NULL);
}

static struct sk_buff *codel_pisa_qdisc_dequeue(struct Qdisc *sch)
{
	return aqm_dequeue(sch, codel_pisa_leaves);
}

static struct sk_buff *codel_pisa_qdisc_peek(struct Qdisc *sch)
{
	return aqm_peek(sch, codel_pisa_leaves);
}

static int codel_pisa_qdisc_init(struct Qdisc *sch, struct nlattr *opt,
				 struct netlink_ext_ack *extack)
{
	struct codel_pisa_sched *q = qdisc_priv(sch);
	int err;

	q->params = (struct codel_pisa_params) {
		.target_us = target_us,
		.interval_us = interval_us,
		.mtu_bytes = mtu_bytes,
		.from_now = from_now,
		.count_first = count_first,
		.wrap = wrap,
		.signed_difference = signed_difference,
		.clock_us = clock_us,
	};
	err = aqm_init(sch, opt, limit, codel_pisa_check(&q->params), extack);
	if (err)
		return err;
	codel_pisa_make_math_unit(&q->params, &q->unit);
	codel_pisa_init(&q->state);
	return 0;
}

static void codel_pisa_qdisc_reset(struct Qdisc *sch)
{
	struct codel_pisa_sched *q = qdisc_priv(sch);

	aqm_reset(sch);
	codel_pisa_init(&q->state);
}

static int codel_pisa_qdisc_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct codel_pisa_sched *q = qdisc_priv(sch);
	struct aqm_xstats xstats = q->q.xstats;

	xstats.own[0] = q->state.entered;
	xstats.own[1] = q->state.signals;
	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
}

static struct Qdisc_ops codel_pisa_qdisc_ops __read_mostly = {
	.id		= "codel_pisa",
	.priv_size	= sizeof(struct codel_pisa_sched),
	.enqueue	= codel_pisa_qdisc_enqueue,
	.dequeue	= codel_pisa_qdisc_dequeue,
	.peek		= codel_pisa_qdisc_peek,
	.init		= codel_pisa_qdisc_init,
	.reset		= codel_pisa_qdisc_reset,
	.dump_stats	= codel_pisa_qdisc_dump_stats,
	.owner		= THIS_MODULE,
};
MODULE_ALIAS_NET_SCH("codel_pisa");

static int __init codel_pisa_module_init(void)
{
	return register_qdisc(&codel_pisa_qdisc_ops);
}
module_init(codel_pisa_module_init);

static void __exit codel_pisa_module_exit(void)
{
	unregister_qdisc(&codel_pisa_qdisc_ops);
}
module_exit(codel_pisa_module_exit);

MODULE_DESCRIPTION("CoDel for programmable pipelines (P4-CoDel)");
MODULE_LICENSE("GPL");

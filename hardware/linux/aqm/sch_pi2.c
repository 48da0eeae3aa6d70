// SPDX-License-Identifier: GPL-2.0
/*
 * PI2 for one queue: classic packets with p' squared, scalable ones with k p'.
 * The algorithm is in pi2.h.
 */

#include <linux/hrtimer.h>

#include "aqm_qdisc.h"
#include "pi2.h"

static unsigned int limit = 1000;
static unsigned int target_us = 20000;
static unsigned int update_us = 15000;
static unsigned int alpha_uhz = 312500;
static unsigned int beta_uhz = 3125000;
static unsigned int coupling_milli = 2000;
static unsigned int identifier = AQM_BY_ECT1;
static bool egress;
static unsigned int control_plane_us = 1000;
static unsigned long long seed;

module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "Most packets in the queue");
module_param(target_us, uint, 0644);
MODULE_PARM_DESC(target_us, "Target delay in microseconds");
module_param(update_us, uint, 0644);
MODULE_PARM_DESC(update_us, "Update interval of the controller in microseconds");
module_param(alpha_uhz, uint, 0644);
MODULE_PARM_DESC(alpha_uhz, "Integral gain in microhertz");
module_param(beta_uhz, uint, 0644);
MODULE_PARM_DESC(beta_uhz, "Proportional gain in microhertz");
module_param(coupling_milli, uint, 0644);
MODULE_PARM_DESC(coupling_milli, "Coupling factor k in thousandths");
module_param(identifier, uint, 0644);
MODULE_PARM_DESC(identifier, "Scalable packets: 0 ECT(1) and CE, 1 any ECT, 2 skb->mark");
module_param(egress, bool, 0644);
MODULE_PARM_DESC(egress, "Decide on departure, as a switch does");
module_param(control_plane_us, uint, 0644);
MODULE_PARM_DESC(control_plane_us,
		 "With egress: time until a new probability takes effect, in microseconds");
module_param(seed, ullong, 0644);
MODULE_PARM_DESC(seed, "Seed for random numbers; 0: the kernel's");

struct pi2_sched {
	struct aqm_queue q;
	struct pi2_params params;
	struct pi2_state state;
	struct aqm_random random;
	struct hrtimer timer;
	struct Qdisc *sch;
};

static int pi2_arrives(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns)
{
	struct pi2_sched *q = qdisc_priv(sch);

	return pi2_enqueue(&q->params, &q->state, &q->random, packet);
}

static int pi2_leaves(struct Qdisc *sch, const struct aqm_packet *packet, u64 now_ns)
{
	struct pi2_sched *q = qdisc_priv(sch);

	return pi2_dequeue(&q->params, &q->state, &q->random, packet, now_ns);
}

static aqm_decide pi2_on_arrival(struct Qdisc *sch)
{
	struct pi2_sched *q = qdisc_priv(sch);

	return q->params.egress ? NULL : pi2_arrives;
}

static aqm_decide pi2_on_departure(struct Qdisc *sch)
{
	struct pi2_sched *q = qdisc_priv(sch);

	return q->params.egress ? pi2_leaves : NULL;
}

static u64 pi2_update_ns(const struct pi2_sched *q)
{
	return q->params.update_us * AQM_NSEC_PER_USEC;
}

static int pi2_qdisc_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct pi2_sched *q = qdisc_priv(sch);

	if (unlikely(!q->q.started)) {
		aqm_now(&q->q);
		hrtimer_start(&q->timer, ns_to_ktime(q->q.start_ns + pi2_update_ns(q)),
			      HRTIMER_MODE_ABS_PINNED_SOFT);
	}
	return aqm_enqueue(skb, sch, to_free, pi2_on_arrival(sch));
}

static struct sk_buff *pi2_qdisc_dequeue(struct Qdisc *sch)
{
	return aqm_dequeue(sch, pi2_on_departure(sch));
}

static struct sk_buff *pi2_qdisc_peek(struct Qdisc *sch)
{
	return aqm_peek(sch, pi2_on_departure(sch));
}

/* The first packet starts it; from then on it runs every update_us. */
static enum hrtimer_restart pi2_timer(struct hrtimer *timer)
{
	struct pi2_sched *q = container_of(timer, struct pi2_sched, timer);
	struct Qdisc *sch = q->sch;
	spinlock_t *root_lock;
	u64 now_ns;

	rcu_read_lock();
	root_lock = qdisc_lock(qdisc_root_sleeping(sch));
	spin_lock(root_lock);
	now_ns = aqm_now(&q->q);
	pi2_update(&q->params, &q->state, aqm_head_delay(sch, now_ns), now_ns);
	spin_unlock(root_lock);
	rcu_read_unlock();
	hrtimer_forward_now(timer, ns_to_ktime(pi2_update_ns(q)));
	return HRTIMER_RESTART;
}

static int pi2_qdisc_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct pi2_sched *q = qdisc_priv(sch);
	int err;

	q->sch = sch;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&q->timer, pi2_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED_SOFT);
#else
	hrtimer_init(&q->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED_SOFT);
	q->timer.function = pi2_timer;
#endif
	q->params = (struct pi2_params) {
		.target_us = target_us,
		.update_us = update_us,
		.alpha_uhz = alpha_uhz,
		.beta_uhz = beta_uhz,
		.coupling_milli = coupling_milli,
		.identifier = identifier,
		.egress = egress,
		.control_plane_us = control_plane_us,
	};
	err = aqm_init(sch, opt, limit, pi2_check(&q->params), extack);
	if (err)
		return err;
	pi2_init(&q->state);
	aqm_seed(&q->random, seed);
	return 0;
}

static void pi2_qdisc_reset(struct Qdisc *sch)
{
	struct pi2_sched *q = qdisc_priv(sch);

	aqm_reset(sch);
	pi2_init(&q->state);
}

/* Also after ->init has failed. */
static void pi2_qdisc_destroy(struct Qdisc *sch)
{
	struct pi2_sched *q = qdisc_priv(sch);

	hrtimer_cancel(&q->timer);
}

static int pi2_qdisc_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct pi2_sched *q = qdisc_priv(sch);
	struct aqm_xstats xstats = q->q.xstats;

	xstats.probability = pi2_probability_q32(&q->state);
	xstats.own[0] = q->state.classic_signals;
	xstats.own[1] = q->state.scalable_signals;
	return gnet_stats_copy_app(d, &xstats, sizeof(xstats));
}

static struct Qdisc_ops pi2_qdisc_ops __read_mostly = {
	.id		= "pi2",
	.priv_size	= sizeof(struct pi2_sched),
	.enqueue	= pi2_qdisc_enqueue,
	.dequeue	= pi2_qdisc_dequeue,
	.peek		= pi2_qdisc_peek,
	.init		= pi2_qdisc_init,
	.reset		= pi2_qdisc_reset,
	.destroy	= pi2_qdisc_destroy,
	.dump_stats	= pi2_qdisc_dump_stats,
	.owner		= THIS_MODULE,
};
MODULE_ALIAS_NET_SCH("pi2");

static int __init pi2_module_init(void)
{
	return register_qdisc(&pi2_qdisc_ops);
}
module_init(pi2_module_init);

static void __exit pi2_module_exit(void)
{
	unregister_qdisc(&pi2_qdisc_ops);
}
module_exit(pi2_module_exit);

MODULE_DESCRIPTION("PI2 (PI Improved with a Square) for one queue");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/*
 * TCP Prague: scalable congestion control for L4S (RFC 9330), as in
 * draft-briscoe-iccrg-prague-congestion-control.
 *
 * Needs accurate ECN feedback (RFC 9768) from the stack, so Linux 7.0 or newer,
 * and ect1.patch, without which the stack sends ECT(1) during the handshake
 * only. Without accurate ECN at the other end it is Reno.
 *
 * As in DCTCP (RFC 8257), alpha is a moving average of the share of marked
 * packets, and marks take alpha / 2 of the window, at most once per round. What
 * differs:
 *
 * - A round is at least virtual_rtt_us long, and a flow with a shorter RTT grows
 *   by (RTT / virtual RTT)^2 packets per round trip, so that its rate changes as
 *   if it had the virtual RTT. Both start transition_rounds round trips after
 *   slow start.
 * - Unmarked packets increase the window, also while marks reduce it.
 * - Alpha starts to move at the first mark; until then it has its initial value.
 * - Packets are paced.
 */

#define pr_fmt(fmt) "prague: " fmt

#include <linux/inet_diag.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <net/inet_ecn.h>
#include <net/tcp.h>
#ifdef TCP_CONG_NEEDS_ACCECN
#include <net/tcp_ecn.h>
#include "prague.h"

/* Largest burst handed down at once: 1/2^12 s, about 250 us. */
#define PRAGUE_BURST_SHIFT	12

struct prague_param {
	unsigned int value;	/* first, where the functions of the kernel expect it */
	unsigned int most;
};

static struct prague_param g_shift = { 4, 10 };
static struct prague_param initial_alpha_percent = { 100, 100 };
static struct prague_param virtual_rtt_us = { 25 * USEC_PER_MSEC, USEC_PER_SEC };
static struct prague_param transition_rounds = { 4, 1000000 };

static int prague_param_set(const char *val, const struct kernel_param *kp)
{
	const struct prague_param *param = kp->arg;
	int err = param_set_uint_minmax(val, kp, 0, param->most);

	if (err)
		pr_err("%s: must be from 0 to %u\n", kp->name, param->most);
	return err;
}

static const struct kernel_param_ops prague_param_ops = {
	.set	= prague_param_set,
	.get	= param_get_uint,
};

module_param_cb(g_shift, &prague_param_ops, &g_shift, 0644);
MODULE_PARM_DESC(g_shift, "gain of alpha is 1/2^g_shift");
module_param_cb(initial_alpha_percent, &prague_param_ops, &initial_alpha_percent, 0644);
MODULE_PARM_DESC(initial_alpha_percent, "alpha at the first mark, in percent");
module_param_cb(virtual_rtt_us, &prague_param_ops, &virtual_rtt_us, 0644);
MODULE_PARM_DESC(virtual_rtt_us,
		 "flows with a shorter RTT behave as if they had this one; 0: off");
module_param_cb(transition_rounds, &prague_param_ops, &transition_rounds, 0644);
MODULE_PARM_DESC(transition_rounds,
		 "round trips after slow start until the virtual RTT counts");

struct prague {
	u64	update_us;	/* time of the last update of alpha */
	u64	reduced_us;	/* time of the last reduction by marks */
	u32	gap;		/* snd_cwnd - window, in 2^-32 packets */
	u32	alpha;
	u32	next_seq;	/* the round ends when this is acknowledged */
	u32	round_delivered;
	u32	round_ce;
	u32	seen_ce;	/* delivered_ce, as far as handled */
	u32	rounds;		/* since slow start */
	u32	loss_cwnd;
	u32	virtual_rtt_us;
	u32	transition_rounds;
	u8	g_shift;
	bool	saw_ce;
};

static struct tcp_congestion_ops prague_reno;

static u64 prague_window(const struct sock *sk)
{
	const struct prague *ca = inet_csk_ca(sk);

	return ((u64)tcp_snd_cwnd(tcp_sk(sk)) << PRAGUE_WINDOW_BITS) - ca->gap;
}

/* snd_cwnd is the window rounded up, and pacing is by the window itself. */
static void prague_set_window(struct sock *sk, u64 window)
{
	struct prague *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u64 cwnd = (window + PRAGUE_PACKET - 1) >> PRAGUE_WINDOW_BITS;

	ca->gap = (cwnd << PRAGUE_WINDOW_BITS) - window;
	if (cwnd > tp->snd_cwnd_clamp) {
		cwnd = tp->snd_cwnd_clamp;
		ca->gap = 0;
	}
	tcp_snd_cwnd_set(tp, cwnd);
}

/* Whatever else changes snd_cwnd means whole packets. */
static void prague_set_cwnd(struct sock *sk, u32 cwnd)
{
	struct prague *ca = inet_csk_ca(sk);

	ca->gap = 0;
	tcp_snd_cwnd_set(tcp_sk(sk), cwnd);
}

static u32 prague_virtual_rtt_us(const struct prague *ca)
{
	return ca->rounds < ca->transition_rounds ? 0 : ca->virtual_rtt_us;
}

static void prague_start_round(struct sock *sk)
{
	struct prague *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	ca->update_us = tp->tcp_mstamp;
	ca->next_seq = tp->snd_nxt;
	ca->round_delivered = tp->delivered;
	ca->round_ce = tp->delivered_ce;
}

static void prague_update_alpha(struct sock *sk)
{
	struct prague *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 passed_us = tp->tcp_mstamp - ca->update_us;

	if (before(tp->snd_una, ca->next_seq) ||
	    passed_us < prague_virtual_rtt_us(ca))
		return;
	if (ca->saw_ce)
		WRITE_ONCE(ca->alpha,
			   prague_alpha(ca->alpha,
					tp->delivered_ce - ca->round_ce,
					tp->delivered - ca->round_delivered,
					ca->g_shift));
	if (!tcp_in_slow_start(tp) && ca->rounds < ca->transition_rounds)
		ca->rounds++;
	prague_start_round(sk);
}

static void prague_increase_window(struct sock *sk, u32 unmarked)
{
	struct prague *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u64 window;

	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		unmarked = tcp_slow_start(tp, unmarked);
		if (!unmarked)
			return;
	}
	window = prague_window(sk);
	prague_set_window(sk, window + prague_increase(window, unmarked,
						       tp->srtt_us >> 3,
						       prague_virtual_rtt_us(ca)));
}

static void prague_reduce_window(struct sock *sk)
{
	struct prague *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 round_us = max(tp->srtt_us >> 3, prague_virtual_rtt_us(ca));

	if (ca->reduced_us && tp->tcp_mstamp - ca->reduced_us < round_us)
		return;
	ca->reduced_us = tp->tcp_mstamp;
	prague_set_window(sk, prague_reduced(prague_window(sk), ca->alpha));
	WRITE_ONCE(tp->snd_ssthresh, tcp_snd_cwnd(tp));
}

/* Proportional rate reduction (RFC 6937) to snd_ssthresh. */
static void prague_recover(struct sock *sk, u32 acked, int lost)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 in_flight = tcp_packets_in_flight(tp);
	int left = tp->snd_ssthresh - in_flight;
	int send;

	if (!acked)
		return;
	tp->prr_delivered += acked;
	if (left < 0) {
		u64 target = (u64)tp->snd_ssthresh * tp->prr_delivered;

		send = (int)DIV64_U64_ROUND_UP(target, max(tp->prior_cwnd, 1U)) -
		       (int)tp->prr_out;
	} else {
		send = max((int)(tp->prr_delivered - tp->prr_out), (int)acked);
		send = min(send + !lost, left);
	}
	/* the first retransmission leaves at once */
	send = max(send, tp->prr_out ? 0 : 1);
	prague_set_cwnd(sk, in_flight + send);
}

static void prague_pace(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 rate;

	if (!tp->srtt_us)
		return;
	/*
	 * Packets count with their headers, while the stack paces payload
	 * only: the rate is slightly above a window per round trip, so that
	 * the window remains the limit.
	 */
	rate = prague_rate(prague_window(sk), tcp_mss_to_mtu(sk, tp->mss_cache),
			   tp->srtt_us);
	if (tcp_snd_cwnd(tp) < tp->snd_ssthresh / 2)
		rate <<= 1;
	WRITE_ONCE(sk->sk_pacing_rate,
		   min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

static void prague_cong_control(struct sock *sk, u32 ack, int flag,
				const struct rate_sample *rs)
{
	struct prague *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 marked = tp->delivered_ce - ca->seen_ce;
	u8 state = inet_csk(sk)->icsk_ca_state;

	ca->seen_ce = tp->delivered_ce;
	if (marked)
		ca->saw_ce = true;
	prague_update_alpha(sk);
	if (state == TCP_CA_Recovery) {
		prague_recover(sk, rs->acked_sacked, rs->losses);
	} else {
		prague_increase_window(sk, rs->acked_sacked -
				       min(marked, rs->acked_sacked));
		if (marked && state != TCP_CA_Loss)
			prague_reduce_window(sk);
	}
	prague_pace(sk);
}

/* Marks are handled in prague_cong_control, losses when the state changes. */
static u32 prague_ssthresh(struct sock *sk)
{
	return tcp_sk(sk)->snd_ssthresh;
}

static void prague_react_to_loss(struct sock *sk)
{
	struct prague *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ca->loss_cwnd = tcp_snd_cwnd(tp);
	ca->gap = 0;
	WRITE_ONCE(tp->snd_ssthresh, max(ca->loss_cwnd >> 1, 2U));
}

static void prague_set_state(struct sock *sk, u8 new_state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u8 state = inet_csk(sk)->icsk_ca_state;

	if (new_state == TCP_CA_Recovery && state != TCP_CA_Recovery) {
		prague_react_to_loss(sk);
		tp->prior_cwnd = tcp_snd_cwnd(tp);
		tp->prr_delivered = 0;
		tp->prr_out = 0;
	} else if (state == TCP_CA_Recovery && new_state < TCP_CA_Recovery &&
		   tp->undo_marker) {	/* over, and not undone */
		prague_set_cwnd(sk, tp->snd_ssthresh);
	}
}

static void prague_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_LOSS)
		prague_react_to_loss(sk);
}

static u32 prague_undo_cwnd(struct sock *sk)
{
	const struct prague *ca = inet_csk_ca(sk);

	return max(tcp_snd_cwnd(tcp_sk(sk)), ca->loss_cwnd);
}

static u32 prague_min_tso_segs(struct sock *sk)
{
	return 1;
}

/* In the fields of DCTCP, so that "ss -i" shows alpha. */
static size_t prague_get_info(struct sock *sk, u32 ext, int *attr,
			      union tcp_cc_info *info)
{
	const struct prague *ca = inet_csk_ca(sk);

	if (!(ext & (1 << (INET_DIAG_DCTCPINFO - 1))) &&
	    !(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	memset(&info->dctcp, 0, sizeof(info->dctcp));
	info->dctcp.dctcp_enabled = 1;
	info->dctcp.dctcp_alpha = READ_ONCE(ca->alpha) >> (PRAGUE_ALPHA_BITS - 10);
	*attr = INET_DIAG_DCTCPINFO;
	return sizeof(info->dctcp);
}

static void prague_init(struct sock *sk)
{
	struct prague *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!tcp_ecn_mode_accecn(tp) && sk->sk_state != TCP_LISTEN &&
	    sk->sk_state != TCP_CLOSE) {
		inet_csk(sk)->icsk_ca_ops = &prague_reno;
		return;
	}
	memset(ca, 0, sizeof(*ca));
	ca->alpha = initial_alpha_percent.value * (PRAGUE_ALPHA_ONE / 4) / 25;
	ca->g_shift = g_shift.value;
	ca->virtual_rtt_us = virtual_rtt_us.value;
	ca->transition_rounds = transition_rounds.value;
	ca->seen_ce = tp->delivered_ce;
	prague_start_round(sk);
	sk_pacing_shift_update(sk, PRAGUE_BURST_SHIFT);
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	prague_pace(sk);
}

static struct tcp_congestion_ops prague __read_mostly = {
	.init		= prague_init,
	.cong_control	= prague_cong_control,
	.ssthresh	= prague_ssthresh,
	.set_state	= prague_set_state,
	.cwnd_event	= prague_cwnd_event,
	.undo_cwnd	= prague_undo_cwnd,
	.min_tso_segs	= prague_min_tso_segs,
	.get_info	= prague_get_info,
	.flags		= TCP_CONG_NON_RESTRICTED | TCP_CONG_NEEDS_ACCECN |
			  TCP_CONG_ECT_1_NEGOTIATION,
	.owner		= THIS_MODULE,
	.name		= "prague",
};

static struct tcp_congestion_ops prague_reno __read_mostly = {
	.ssthresh	= tcp_reno_ssthresh,
	.cong_avoid	= tcp_reno_cong_avoid,
	.undo_cwnd	= tcp_reno_undo_cwnd,
	.owner		= THIS_MODULE,
	.name		= "prague-reno",
};

static int __init prague_register(void)
{
	BUILD_BUG_ON(sizeof(struct prague) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&prague);
}

static void __exit prague_unregister(void)
{
	tcp_unregister_congestion_control(&prague);
}

module_init(prague_register);
module_exit(prague_unregister);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP Prague congestion control");

#endif /* TCP_CONG_NEEDS_ACCECN: on older kernels, nothing is registered */

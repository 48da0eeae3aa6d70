/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PI2 for one queue (De Schepper et al., "PI2: A linearized AQM for both
 * classic and scalable TCP", CoNEXT 2016), as cctoolkit/aqm/pi2.py: Pi2 on
 * arrival or, as on a Tofino (Gombos et al., ICC 2022), IntegerPi2 on departure.
 *
 * A gain in microhertz times a delay in nanoseconds is a whole number of
 * 1e-15, so the controller counts p' in this unit and rounds nothing.
 */
#ifndef CCT_PI2_H
#define CCT_PI2_H

#include "aqm.h"

#define PI2_ONE 1000000000000000LL	/* 1 / 1e-15 = 2**15 * 5**15 */
#define PI2_5_POWER_15 30517578125ULL
#define PI2_DRAW_BITS 53		/* of a draw on arrival */
#define PI2_EGRESS_BITS 16		/* of one on departure */
#define PI2_MOST_DELAY_NS 10000000000LL	/* longer delays count as this */
#define PI2_MOST_GAIN_UHZ 400000000	/* so that a step fits into 63 bits */
#define PI2_MOST_COUPLING_MILLI 1000000
#define PI2_UPDATES 16			/* most that can be on their way */

struct pi2_params {
	u32 target_us;
	u32 update_us;
	u32 alpha_uhz;
	u32 beta_uhz;
	u32 coupling_milli;
	u32 identifier;
	u32 egress;
	u32 control_plane_us;
};

/* What the data plane compares its draws with: p' and min(k p', 1). */
struct pi2_thresholds {
	u64 classic;
	u64 scalable;
};

struct pi2_state {
	s64 probability;	/* p' of the controller, in units of 1e-15 */
	s64 old_delay_ns;
	struct pi2_thresholds now;
	u32 classic_signals;
	u32 scalable_signals;

	/* on departure: the last delay; updates on their way, the oldest at first */
	u64 last_delay_ns;
	struct pi2_thresholds update[PI2_UPDATES];
	u64 update_at_ns[PI2_UPDATES];
	u32 waiting;
	u32 first;
};

/* What is wrong with the parameters, or NULL. */
static inline const char *pi2_check(const struct pi2_params *p)
{
	if (!p->target_us || p->target_us > PI2_MOST_DELAY_NS / 1000)
		return "target_us must be between 1 and 10000000";
	if (p->update_us < 10 || p->update_us > PI2_MOST_DELAY_NS / 1000)
		return "update_us must be between 10 and 10000000";
	if (p->alpha_uhz > PI2_MOST_GAIN_UHZ || p->beta_uhz > PI2_MOST_GAIN_UHZ)
		return "alpha_uhz and beta_uhz must be at most 400000000";
	if (p->coupling_milli > PI2_MOST_COUPLING_MILLI)
		return "coupling_milli must be at most 1000000";
	if (p->identifier >= AQM_IDENTIFIERS)
		return "identifier must be 0 (ect1), 1 (any_ect) or 2 (mark)";
	if (p->control_plane_us / p->update_us + 2 > PI2_UPDATES)
		return "control_plane_us must be less than 15 update_us";
	return NULL;
}

static inline void pi2_init(struct pi2_state *s)
{
	memset(s, 0, sizeof(*s));
}

/* x / 1e15 in units of 2**-53, rounded up: times 2**38 / 5**15. */
static inline u64 pi2_q53(u64 x)
{
	u64 whole = div64_u64(x, PI2_5_POWER_15);
	u64 rest = (x - whole * PI2_5_POWER_15) << 19;
	u64 high = div64_u64(rest, PI2_5_POWER_15);
	u64 low = (rest - high * PI2_5_POWER_15) << 19;

	low = div64_u64(low + PI2_5_POWER_15 - 1, PI2_5_POWER_15);
	return (whole << 38) + (high << 19) + low;
}

/* x / 1e15 in units of 2**-16, to the nearest: times 2 / 5**15. */
static inline u64 pi2_q16(u64 x)
{
	return div64_u64(4 * x + PI2_5_POWER_15, 2 * PI2_5_POWER_15);
}

static inline struct pi2_thresholds pi2_thresholds(const struct pi2_params *p, u64 probability)
{
	u64 coupled = min_t(u64, mul_u64_u32_div(probability, p->coupling_milli, 1000), PI2_ONE);

	if (p->egress)
		return (struct pi2_thresholds){ pi2_q16(probability), pi2_q16(coupled) };
	return (struct pi2_thresholds){ pi2_q53(probability), pi2_q53(coupled) };
}

/* A probability may take a while to the data plane; the newest supersedes the oldest of too many. */
static inline void pi2_send_update(const struct pi2_params *p, struct pi2_state *s, u64 now_ns)
{
	u32 room = p->control_plane_us / p->update_us + 2, last;

	if (s->waiting == room) {
		s->first = (s->first + 1) % room;
		s->waiting--;
	}
	last = (s->first + s->waiting) % room;
	s->update[last] = pi2_thresholds(p, s->probability);
	s->update_at_ns[last] = now_ns + p->control_plane_us * AQM_NSEC_PER_USEC;
	s->waiting++;
}

/*
 * The controller, once every update_us. On arrival the delay is that of the
 * packet at the head, on departure that of the packet that left last; if none
 * has left since the last update it is 0.
 */
static inline void pi2_update(const struct pi2_params *p, struct pi2_state *s, u64 head_delay_ns,
			      u64 now_ns)
{
	s64 delay = min_t(u64, p->egress ? s->last_delay_ns : head_delay_ns, PI2_MOST_DELAY_NS);
	s64 target = (s64)p->target_us * (s64)AQM_NSEC_PER_USEC;
	s64 probability = s->probability;

	probability += (s64)p->alpha_uhz * (delay - target);
	probability += (s64)p->beta_uhz * (delay - s->old_delay_ns);
	s->probability = probability < 0 ? 0 : min_t(s64, probability, PI2_ONE);
	s->old_delay_ns = delay;
	s->last_delay_ns = 0;
	if (p->egress)
		pi2_send_update(p, s, now_ns);
	else
		s->now = pi2_thresholds(p, s->probability);
}

/* Whether to signal: k p' for a scalable packet, p' squared (two draws) for any other. */
static inline int pi2_signal(const struct pi2_params *p, struct pi2_state *s,
			     const struct aqm_packet *packet, u64 first, u64 second)
{
	if (aqm_is_scalable(p->identifier, packet)) {
		if (first >= s->now.scalable)
			return AQM_PASS;
		s->scalable_signals++;
	} else {
		if (max_t(u64, first, second) >= s->now.classic)
			return AQM_PASS;
		s->classic_signals++;
	}
	return AQM_MARK;
}

static inline int pi2_enqueue(const struct pi2_params *p, struct pi2_state *s,
			      struct aqm_random *random, const struct aqm_packet *packet)
{
	u64 first = aqm_draw(random) >> (64 - PI2_DRAW_BITS), second = 0;

	if (!aqm_is_scalable(p->identifier, packet))
		second = aqm_draw(random) >> (64 - PI2_DRAW_BITS);
	return pi2_signal(p, s, packet, first, second);
}

/* A switch's word of 32 random bits has both draws. */
static inline int pi2_dequeue(const struct pi2_params *p, struct pi2_state *s,
			      struct aqm_random *random, const struct aqm_packet *packet,
			      u64 now_ns)
{
	u64 draw = aqm_draw(random) >> (64 - 2 * PI2_EGRESS_BITS);

	while (s->waiting && s->update_at_ns[s->first] <= now_ns) {
		s->now = s->update[s->first];
		s->first = (s->first + 1) % (p->control_plane_us / p->update_us + 2);
		s->waiting--;
	}
	s->last_delay_ns = now_ns - packet->enqueued_ns;
	return pi2_signal(p, s, packet, draw >> PI2_EGRESS_BITS,
			  draw & ((1 << PI2_EGRESS_BITS) - 1));
}

static inline u32 pi2_probability_q32(const struct pi2_state *s)
{
	return min_t(u64, pi2_q53(s->probability) >> 21, 0xffffffffULL);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ABC, activity-based congestion management (Menth et al., "Implementation and
 * evaluation of activity-based congestion management using P4 (P4-ABC)", 2019,
 * sections 3.2 and 3.3), packet for packet as cctoolkit/aqm/abc.py: IntegerAbc
 * and the P4 program of hardware/programs/abc.
 *
 * Volumes decay in steps of 1/1024 half-life. Logarithms and activities have 16
 * fractional bits, powers of two 20, volumes are bytes with 6.
 */
#ifndef CCT_ABC_H
#define CCT_ABC_H

#include "aqm.h"
#include "fixed_log.h"

#define ABC_STEP_BITS 10
#define ABC_STEPS (1 << ABC_STEP_BITS)
#define ABC_ONE_BITS 16
#define ABC_POWER_BITS 20
#define ABC_VOLUME_BITS 6
#define ABC_START_BITS 6
#define ABC_START_OCTAVES 60
#define ABC_MOST_AGGREGATES 100000
#define ABC_MOST_MEMORY_US 100000000
#define ABC_MOST_PACKETS 1000000	/* as a parameter */
/* Larger ones would not fit into 64 bits when multiplied by a power. */
#define ABC_MOST_VOLUME (1ULL << 43)	/* 1.1e12 bits in a memory */
#define ABC_MOST_COUNT (1LL << 35)	/* 524288 packets in a memory of the average */

struct abc_params {
	u32 meter_memory_us;
	u32 average_memory_us;
	u32 min_packets;
	u32 base_packets;
	u32 gamma_packets;
	u32 aggregates;
};

/* A decay: nanoseconds of a step, and 2**40 over them. */
struct abc_decay {
	u64 step_ns;
	u64 reciprocal;
};

struct abc_tables {
	struct abc_decay meter;
	struct abc_decay average;
	u32 power[ABC_STEPS];	/* 2**(-i / 1024) */
	u32 log[ABC_STEPS];	/* log2(1 + (i + 1/2) / 1024) */
	s32 start[ABC_START_OCTAVES << ABC_START_BITS];	/* log2(1 - exp(-t / memory)) */
};

struct abc_meter {
	u64 volume;
	u64 first_ns;	/* of its first packet */
	u64 last_ns;	/* up to which the volume has decayed */
	s32 offset;	/* from the logarithm of the volume to the activity */
	bool known;
};

struct abc_state {
	s64 activity_sum;
	s64 activity_count;
	u64 averaged_ns;
	struct abc_meter *meters;	/* params.aggregates of them */
	u32 accepted;
};

/* What is wrong with the parameters, or NULL. */
static inline const char *abc_check(const struct abc_params *p, const u32 *reference_kbps,
				    u32 references)
{
	u32 i;

	if (!p->meter_memory_us || p->meter_memory_us > ABC_MOST_MEMORY_US ||
	    !p->average_memory_us || p->average_memory_us > ABC_MOST_MEMORY_US)
		return "meter_memory_us and average_memory_us must be between 1 and 100000000";
	if (p->min_packets > ABC_MOST_PACKETS || p->base_packets > ABC_MOST_PACKETS ||
	    p->gamma_packets > ABC_MOST_PACKETS)
		return "min_packets, base_packets and gamma_packets must be at most 1000000";
	if (!references)
		return "reference_kbps must have at least one value";
	for (i = 0; i < references; i++)
		if (!reference_kbps[i])
			return "reference_kbps must be positive";
	if (p->aggregates < references || p->aggregates > ABC_MOST_AGGREGATES)
		return "aggregates must be from the number of reference_kbps to 100000";
	return NULL;
}

static inline void abc_make_decay(struct abc_decay *decay, u32 memory_us)
{
	/* memory * ln(2) / 1024, to the nearest */
	const u64 ln_2_q64 = 12786308645202655660ULL;
	u64 twice = mul_u64_u64_shr(memory_us * AQM_NSEC_PER_USEC, ln_2_q64, 63 + ABC_STEP_BITS);

	decay->step_ns = max_t(u64, (twice + 1) / 2, 1);
	decay->reciprocal = div64_u64(1ULL << 40, decay->step_ns);
}

static inline void abc_make_tables(const struct abc_params *p, struct abc_tables *tables)
{
	/* 2**(-1 / 1024) */
	const u64 factor_q64 = 18434261669329232140ULL;
	u64 memory_ns = p->meter_memory_us * AQM_NSEC_PER_USEC, power = factor_q64;
	u32 i, e, m;

	abc_make_decay(&tables->meter, p->meter_memory_us);
	abc_make_decay(&tables->average, p->average_memory_us);
	tables->power[0] = 1 << ABC_POWER_BITS;
	for (i = 1; i < ABC_STEPS; i++) {
		tables->power[i] = ((power >> (63 - ABC_POWER_BITS)) + 1) >> 1;
		power = mul_u64_u64_shr(power, factor_q64, 64);
	}
	for (i = 0; i < ABC_STEPS; i++)
		tables->log[i] = log_q16(log2_q48(2 * ABC_STEPS + 2 * i + 1) -
					 ((ABC_STEP_BITS + 1LL) << LOG_BITS_Q48));

	/* a meter that has run for (1 + (m + 1/2) / 64) * 2**e * 16 ns = (129 + 2 m) * 2**(e - 3) ns */
	for (m = 0; m < 1 << ABC_START_BITS; m++) {
		u64 rest = 2 * m + 129, mantissa = 0;
		int exponent = -3;

		while (rest < memory_ns) {	/* a memory is 1000 ns or more */
			rest *= 2;
			exponent--;
		}
		for (i = 0; i < 64; i++) {
			mantissa *= 2;
			if (rest >= memory_ns) {
				rest -= memory_ns;
				mantissa++;
			}
			rest *= 2;
		}
		for (e = 0; e < ABC_START_OCTAVES; e++)
			tables->start[(e << ABC_START_BITS) + m] =
				log_q16(log2_one_minus_exp_q48(mantissa, exponent + (int)e));
	}
}

/* As if no packet had ever come. */
static inline void abc_reset(const struct abc_params *p, struct abc_state *s)
{
	u32 a;

	s->activity_sum = 0;
	s->activity_count = 0;
	s->averaged_ns = 0;
	s->accepted = 0;
	for (a = 0; a < p->aggregates; a++) {
		s->meters[a].volume = 0;
		s->meters[a].known = false;
	}
}

/* Aggregates without a reference rate of their own have the last one; the caller provides the meters. */
static inline void abc_init(const struct abc_params *p, struct abc_state *s,
			    struct abc_meter *meters, const u32 *reference_kbps, u32 references)
{
	s64 memory = log2_q48(p->meter_memory_us * AQM_NSEC_PER_USEC) - log2_q48(1000000000ULL);
	u32 a;
	s32 offset = 0;

	s->meters = meters;
	for (a = 0; a < p->aggregates; a++) {
		/* log2(8 / (memory * rate)) - 6 */
		if (a < references)
			offset = log_q16((3LL - ABC_VOLUME_BITS) * (1LL << LOG_BITS_Q48) - memory -
					 log2_q48(reference_kbps[a] * 1000ULL));
		meters[a].offset = offset;
	}
	abc_reset(p, s);
}

static inline s64 abc_log2(const struct abc_tables *tables, u64 x)
{
	u32 e = fls64(x) - 1;

	return ((s64)e << ABC_ONE_BITS) +
	       tables->log[((x << ABC_STEP_BITS) >> e) & (ABC_STEPS - 1)];
}

/* Whole steps since last_ns, of which there are at most 64 half-lives. */
static inline u64 abc_steps(const struct abc_decay *decay, u64 last_ns, u64 now_ns)
{
	u64 elapsed = min_t(u64, now_ns - last_ns, decay->step_ns << (ABC_STEP_BITS + 6));

	return (elapsed * decay->reciprocal) >> 40;
}

/* The time up to which something has decayed; the rest counts next time. */
static inline u64 abc_decayed_until(const struct abc_decay *decay, u64 last_ns, u64 now_ns, u64 steps)
{
	return steps > 42 << ABC_STEP_BITS ? now_ns : last_ns + steps * decay->step_ns;
}

static inline s64 abc_decayed(const struct abc_tables *tables, s64 x, u64 steps)
{
	u32 shift = ABC_POWER_BITS + (steps >> ABC_STEP_BITS);

	if (shift > 62)
		return 0;
	return (x * (s64)tables->power[steps & (ABC_STEPS - 1)] + (1LL << (shift - 1))) >> shift;
}

/* A volume is never negative, and times a power may take all 64 bits. */
static inline u64 abc_decayed_volume(const struct abc_tables *tables, u64 x, u64 steps)
{
	u32 shift = ABC_POWER_BITS + (steps >> ABC_STEP_BITS);

	if (shift > 62)
		return 0;
	return (x * tables->power[steps & (ABC_STEPS - 1)] + (1ULL << (shift - 1))) >> shift;
}

/* Activity meter: log2 of the aggregate's rate over its reference rate. */
static inline s64 abc_measure(const struct abc_params *p, const struct abc_tables *tables,
			      struct abc_state *s, const struct aqm_packet *packet, u64 now_ns)
{
	struct abc_meter *meter = &s->meters[min_t(u32, packet->aggregate, p->aggregates - 1)];
	u64 steps, running;
	s64 activity;

	if (!meter->known) {
		meter->known = true;
		meter->first_ns = now_ns;
		meter->last_ns = now_ns;
	}
	steps = abc_steps(&tables->meter, meter->last_ns, now_ns);
	if (steps) {
		meter->volume = abc_decayed_volume(tables, meter->volume, steps);
		meter->last_ns = abc_decayed_until(&tables->meter, meter->last_ns, now_ns, steps);
	}
	meter->volume += (u64)packet->bytes << ABC_VOLUME_BITS;
	meter->volume = min_t(u64, meter->volume, ABC_MOST_VOLUME);
	activity = abc_log2(tables, max_t(u64, meter->volume, 1)) + meter->offset;
	running = (now_ns - meter->first_ns) >> 4;
	if (running) {
		u32 e = fls64(running) - 1;
		u32 mantissa = ((running << ABC_START_BITS) >> e) & ((1 << ABC_START_BITS) - 1);

		e = min_t(u32, e, ABC_START_OCTAVES - 1);
		activity -= tables->start[(e << ABC_START_BITS) + mantissa];
	}
	return activity;
}

/* On arrival; packets are those that wait. */
static inline int abc_enqueue(const struct abc_params *p, const struct abc_tables *tables,
			      struct abc_state *s, const struct aqm_packet *packet, u64 packets,
			      u64 now_ns)
{
	s64 activity = abc_measure(p, tables, s, packet, now_ns), average = activity, threshold;
	u64 steps = abc_steps(&tables->average, s->averaged_ns, now_ns);

	if (steps) {
		s->activity_sum = abc_decayed(tables, s->activity_sum, steps);
		s->activity_count = abc_decayed(tables, s->activity_count, steps);
		s->averaged_ns = abc_decayed_until(&tables->average, s->averaged_ns, now_ns, steps);
	}
	if (s->activity_count > 0) {	/* sum / count is sum * 2**-log2(count) */
		s64 log_count = abc_log2(tables, s->activity_count);
		u32 fraction = (log_count & ((1 << ABC_ONE_BITS) - 1)) >>
			       (ABC_ONE_BITS - ABC_STEP_BITS);

		average = (s->activity_sum * (s64)tables->power[fraction]) >>
			  ((log_count >> ABC_ONE_BITS) + ABC_POWER_BITS - ABC_ONE_BITS);
	}
	/* equation (2) */
	threshold = ((s64)p->base_packets << ABC_ONE_BITS) - p->gamma_packets * (activity - average);
	threshold = max_t(s64, threshold, (s64)p->min_packets << ABC_ONE_BITS);
	if ((s64)(packets << ABC_ONE_BITS) > threshold)
		return AQM_DROP;
	if (s->activity_count < ABC_MOST_COUNT) {
		s->activity_sum += activity;
		s->activity_count += 1 << ABC_ONE_BITS;
	}
	s->accepted++;
	return AQM_PASS;
}

#endif

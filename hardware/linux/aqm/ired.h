/* SPDX-License-Identifier: GPL-2.0 */
/*
 * iRED (de Almeida et al., "Evaluating L4S framework performance with
 * programmable data plane hardware", 2024, section 4.1), packet for packet as
 * cctoolkit/aqm/ired.py: IntegerIRed and the P4 programs of
 * hardware/programs/ired.
 *
 * The delay of packet k in an epoch of 16 is added 2**k times, and the sum is
 * shifted back when read, which halves the weight of earlier delays with each
 * packet.
 */
#ifndef CCT_IRED_H
#define CCT_IRED_H

#include "aqm.h"

#define IRED_DELAY_SHIFT 10		/* delays in units of 1024 ns */
#define IRED_LONGEST_DELAY 65535U	/* longer ones count as this: 67 ms */
#define IRED_EPOCH_PACKETS 16
#define IRED_STEP_SHIFT 5		/* of the average, below a step of the tables */
#define IRED_STEPS 2048
#define IRED_DRAW_BITS 16		/* fractional bits of a probability */
#define IRED_MOST_NOTIFICATIONS 65536
#define IRED_MOST_RECIRCULATION_US 10000000
#define IRED_MOST_COUPLING_MILLI 1000000

struct ired_params {
	u32 min_us;
	u32 max_us;
	u32 coupling_milli;
	u32 square;
	u32 identifier;
	u32 recirculation_us;
	u32 max_notifications;
};

/* Probabilities of the steps of 32.8 us, in units of 2**-16. */
struct ired_tables {
	u32 classic[IRED_STEPS];
	u32 scalable[IRED_STEPS];
};

struct ired_state {
	u32 position;		/* of the packet in its epoch */
	u64 delay_sum;		/* of this epoch */
	u64 last_sum;		/* of the previous one */
	u64 average_ns;
	bool flag;		/* at ingress: drop the next classic packet */
	u32 waiting;		/* notifications in flight, the oldest at first */
	u32 first;
	u64 *arrives_ns;	/* max_notifications of them */
	u32 notifications;
	u32 lost_notifications;
};

/* What is wrong with the parameters, or NULL. */
static inline const char *ired_check(const struct ired_params *p)
{
	if (p->max_us * AQM_NSEC_PER_USEC >= (u64)IRED_LONGEST_DELAY << IRED_DELAY_SHIFT)
		return "max_us must be at most 67107";
	if (p->min_us >= p->max_us)
		return "max_us must be greater than min_us";
	if (p->coupling_milli > IRED_MOST_COUPLING_MILLI)
		return "coupling_milli must be at most 1000000";
	if (p->identifier >= AQM_IDENTIFIERS)
		return "identifier must be 0 (ect1), 1 (any_ect) or 2 (mark)";
	if (p->recirculation_us > IRED_MOST_RECIRCULATION_US)
		return "recirculation_us must be at most 10000000";
	if (!p->max_notifications || p->max_notifications > IRED_MOST_NOTIFICATIONS)
		return "max_notifications must be between 1 and 65536";
	return NULL;
}

/*
 * numerator / denominator (at most 1; the numerator below 2**62) in units of
 * 2**-16, to the nearest, halves to even.
 */
static inline u32 ired_quotient(u64 numerator, u64 denominator)
{
	u32 quotient = 0;
	int bit;

	if (numerator >= denominator)
		return 1U << IRED_DRAW_BITS;
	for (bit = 0; bit < IRED_DRAW_BITS; bit++) {
		quotient <<= 1;
		numerator <<= 1;
		if (numerator >= denominator) {
			numerator -= denominator;
			quotient |= 1;
		}
	}
	numerator <<= 1;
	return quotient + (numerator > denominator || (numerator == denominator && (quotient & 1)));
}

/* The probability rises from 0 at min_us to 1 at max_us; of each step the middle counts. */
static inline void ired_make_tables(const struct ired_params *p, struct ired_tables *tables)
{
	u64 low = p->min_us * AQM_NSEC_PER_USEC, range = p->max_us * AQM_NSEC_PER_USEC - low;
	u32 step;

	for (step = 0; step < IRED_STEPS; step++) {
		u64 middle = (2ULL * step + 1) << (IRED_DELAY_SHIFT + IRED_STEP_SHIFT - 1);
		u64 above = middle <= low ? 0 : min_t(u64, middle - low, range);

		tables->classic[step] = p->square ? ired_quotient(above * above, range * range) :
						    ired_quotient(above, range);
		tables->scalable[step] = ired_quotient(above * p->coupling_milli, range * 1000);
	}
}

/* Of the caller, arrives_ns has room for max_notifications. */
static inline void ired_init(struct ired_state *s, u64 *arrives_ns)
{
	memset(s, 0, sizeof(*s));
	s->arrives_ns = arrives_ns;
}

/* Decision module, at egress. */
static inline int ired_dequeue(const struct ired_params *p, const struct ired_tables *tables,
			       struct ired_state *s, struct aqm_random *random,
			       const struct aqm_packet *packet, u64 now_ns)
{
	u64 delay = min_t(u64, (now_ns - packet->enqueued_ns) >> IRED_DELAY_SHIFT,
			  IRED_LONGEST_DELAY);
	u32 shift = s->position + 1, step, draw;
	u64 average;

	if (s->position == 0) {
		s->last_sum = s->delay_sum;
		s->delay_sum = delay;
	} else {
		s->delay_sum += delay << s->position;
	}
	average = (s->delay_sum >> shift) + (s->last_sum >> (IRED_EPOCH_PACKETS + shift));
	s->position = shift % IRED_EPOCH_PACKETS;
	s->average_ns = average << IRED_DELAY_SHIFT;

	step = min_t(u64, average >> IRED_STEP_SHIFT, IRED_STEPS - 1);
	draw = aqm_draw(random) >> (64 - IRED_DRAW_BITS);
	if (aqm_is_scalable(p->identifier, packet))
		return draw < tables->scalable[step] ? AQM_MARK : AQM_PASS;
	if (draw < tables->classic[step]) {
		s->notifications++;
		if (s->waiting < p->max_notifications) {
			u32 last = (s->first + s->waiting) % p->max_notifications;

			s->arrives_ns[last] = now_ns + p->recirculation_us * AQM_NSEC_PER_USEC;
			s->waiting++;
		} else {
			s->lost_notifications++;
		}
	}
	return AQM_PASS;
}

/* Action module, at ingress. */
static inline int ired_enqueue(const struct ired_params *p, struct ired_state *s,
			       const struct aqm_packet *packet, u64 now_ns)
{
	while (s->waiting && s->arrives_ns[s->first] <= now_ns) {
		s->flag = true;
		s->first = (s->first + 1) % p->max_notifications;
		s->waiting--;
	}
	if (!s->flag || aqm_is_scalable(p->identifier, packet))
		return AQM_PASS;
	s->flag = false;
	return AQM_DROP;
}

/* The probability before squaring and coupling, in units of 2**-32. */
static inline u32 ired_probability_q32(const struct ired_params *p, const struct ired_state *s)
{
	u64 low = p->min_us * AQM_NSEC_PER_USEC, range = p->max_us * AQM_NSEC_PER_USEC - low;
	u64 above = s->average_ns <= low ? 0 : min_t(u64, s->average_ns - low, range);

	return min_t(u64, div64_u64(above << 32, range), 0xffffffffULL);
}

#endif

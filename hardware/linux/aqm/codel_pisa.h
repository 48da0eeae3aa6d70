/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CoDel for pipelines (Kundel et al., "P4-CoDel: Experiences on programmable
 * data plane hardware", 2021, Listing 2 and Figure 4), decision for decision
 * as cctoolkit/aqm/codel_p4.py: PisaCoDel.
 */
#ifndef CCT_CODEL_PISA_H
#define CCT_CODEL_PISA_H

#include "aqm.h"

struct codel_pisa_params {
	u32 target_us;
	u32 interval_us;
	u32 mtu_bytes;
	u32 from_now;
	u32 count_first;
	u32 wrap;
	u32 signed_difference;
	u32 clock_us;
};

/* The math unit: interval / sqrt(m / 8) for m = 4 to 15, as an entry of 8 bits times 2**scale. */
struct codel_pisa_math_unit {
	u32 scale;
	u32 table[16];
};

struct codel_pisa_state {
	bool dropping;		/* first stateful ALU */
	u64 count;		/* second */
	u64 drop_next_ns;
	u32 entered;
	u32 signals;
};

/* What is wrong with the parameters, or NULL. */
static inline const char *codel_pisa_check(const struct codel_pisa_params *p)
{
	if (!p->target_us)
		return "target_us must be positive";
	if (p->interval_us <= p->target_us || p->interval_us >= 2000000)
		return "interval_us must be greater than target_us and less than 2000000";
	return NULL;
}

/*
 * The scale is the smallest for which 255.5 * 2**scale is at least
 * interval * sqrt(2), and an entry is interval / sqrt(m / 8) / 2**scale, to the
 * nearest, halves to even. Both are found without roots, from squares.
 */
static inline void codel_pisa_make_math_unit(const struct codel_pisa_params *p,
					     struct codel_pisa_math_unit *unit)
{
	u64 interval = p->interval_us * AQM_NSEC_PER_USEC;
	u64 square = interval * interval;
	u32 m, entry;

	unit->scale = 3;	/* enough for the shortest interval, 2 us, is 4 */
	while (((511ULL * 511) << (2 * unit->scale - 3)) < square)
		unit->scale++;
	memset(unit->table, 0, sizeof(unit->table));
	for (m = 4; m < 16; m++) {
		/* entry - 1/2 < interval / sqrt(m / 8) / 2**scale, squared, times m 4**scale / 16 */
		for (entry = 255; entry; entry--) {
			u64 twice = 2 * entry - 1;
			u64 lower = (twice * twice * m) << (2 * unit->scale - 6);
			bool tie = lower == square >> 1 && !(square & 1);

			if (lower <= square >> 1 && !(tie && (entry & 1)))
				break;
		}
		unit->table[m] = entry;
	}
}

/* interval / sqrt(count), off by -0.7 % to +12.5 %. */
static inline u64 codel_pisa_gap(const struct codel_pisa_math_unit *unit, u64 count)
{
	u64 m = count << 3;
	u32 k = 0;

	while (m > 15) {
		m >>= 2;
		k++;
	}
	return ((u64)unit->table[m] << unit->scale) >> k;
}

/* Whether drop_next <= now, in the timestamps of the chip. */
static inline bool codel_pisa_due(const struct codel_pisa_params *p, u64 now_ns, u64 drop_next_ns)
{
	if (!p->wrap)
		return drop_next_ns <= now_ns;
	if (p->signed_difference)
		return (u32)(now_ns - drop_next_ns) < 0x80000000U;
	return drop_next_ns <= (u32)now_ns;
}

static inline void codel_pisa_init(struct codel_pisa_state *s)
{
	memset(s, 0, sizeof(*s));
}

/* On departure; left_bytes are those that wait behind the packet. */
static inline int codel_pisa_dequeue(const struct codel_pisa_params *p,
				     const struct codel_pisa_math_unit *unit,
				     struct codel_pisa_state *s, const struct aqm_packet *packet,
				     u64 left_bytes, u64 now_ns)
{
	u64 interval_ns = p->interval_us * AQM_NSEC_PER_USEC;
	u64 clock_ns = now_ns + p->clock_us * AQM_NSEC_PER_USEC;
	bool violated, first, drop = false;

	/* f_1 */
	violated = now_ns - packet->enqueued_ns >= p->target_us * AQM_NSEC_PER_USEC &&
		   left_bytes >= p->mtu_bytes;

	/* first stateful ALU */
	first = violated && !s->dropping;
	s->dropping = violated;
	if (!violated)
		return AQM_PASS;

	/* second stateful ALU */
	if (first) {
		s->count = 1;
		s->drop_next_ns = clock_ns + interval_ns;
		s->entered++;
	} else {
		drop = codel_pisa_due(p, clock_ns, s->drop_next_ns);
		if (drop) {
			u64 gap_ns;

			s->count++;
			gap_ns = codel_pisa_gap(unit, p->count_first ? s->count : s->count - 1);
			s->drop_next_ns = (p->from_now ? clock_ns : s->drop_next_ns) + gap_ns;
		}
	}
	if (p->wrap)
		s->drop_next_ns = (u32)s->drop_next_ns;
	if (!drop)
		return AQM_PASS;
	s->signals++;
	return AQM_MARK;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the decision arithmetic of pi2, ired, abc and codel_pisa shares.
 *
 * aqm.h, pi2.h, ired.h, abc.h, codel_pisa.h and fixed_log.h contain no floating
 * point, no locks and no allocation. They compile in the kernel and in user
 * space, where tests compare them with the Python models.
 */
#ifndef CCT_AQM_H
#define CCT_AQM_H

#ifdef __KERNEL__
#include <linux/bitops.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/string.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;

#define min_t(type, a, b) ((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define div64_u64(a, b) ((u64)(a) / (u64)(b))
#define mul_u64_u64_shr(a, b, shift) \
	((u64)(((unsigned __int128)(a) * (b)) >> (shift)))
#define mul_u64_u32_div(a, mul, divisor) \
	((u64)((unsigned __int128)(a) * (u32)(mul) / (u32)(divisor)))
#define fls64(x) ((x) ? 64 - __builtin_clzll(x) : 0)
#define get_random_u64() 0ULL	/* tests give a seed */
#endif

#define AQM_NSEC_PER_USEC 1000ULL

/* Verdicts, as in cctoolkit/aqm/base.py. */
enum {
	AQM_PASS,
	AQM_MARK,	/* mark CE on a packet with ECT, drop any other */
	AQM_DROP,
};

enum {
	AQM_NOT_ECT,
	AQM_ECT_1,
	AQM_ECT_0,
	AQM_CE,
};

/* What an algorithm knows about a packet. */
struct aqm_packet {
	u64 enqueued_ns;
	u32 bytes;	/* with the Ethernet header */
	u32 aggregate;	/* skb->mark */
	u32 ecn;
};

/* How to recognise scalable packets. */
enum {
	AQM_BY_ECT1,	/* ECT(1) or CE (RFC 9331, section 5.1) */
	AQM_BY_ANY_ECT,	/* any ECN codepoint but not-ECT */
	AQM_BY_MARK,	/* skb->mark is not 0 */
	AQM_IDENTIFIERS,
};

static inline bool aqm_is_scalable(u32 identifier, const struct aqm_packet *packet)
{
	switch (identifier) {
	case AQM_BY_MARK:
		return packet->aggregate != 0;
	case AQM_BY_ANY_ECT:
		return packet->ecn != AQM_NOT_ECT;
	default:
		return packet->ecn & 1;
	}
}

/*
 * 64 random bits. A random number in [0, 1) of the simulator is the upper 53 of
 * them: splitmix64 (Steele et al., 2014) from the state, or the kernel's own
 * numbers if the state is not seeded.
 */
struct aqm_random {
	bool seeded;
	u64 state;
};

static inline void aqm_seed(struct aqm_random *random, u64 seed)
{
	random->seeded = seed != 0;
	random->state = seed;
}

static inline u64 aqm_draw(struct aqm_random *random)
{
	u64 z;

	if (!random->seeded)
		return get_random_u64();
	z = random->state += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

#endif

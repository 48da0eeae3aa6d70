/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arithmetic of TCP Prague: integers only, no kernel state, so that it also
 * compiles in user space for tests.
 *
 * A window is in packets with 32 fractional bits, alpha has 20.
 */
#ifndef _CCT_PRAGUE_H
#define _CCT_PRAGUE_H

#ifdef __KERNEL__
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>
#else
#include <stdint.h>
typedef uint32_t u32;
typedef uint64_t u64;
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define div64_u64(a, b) ((u64)(a) / (u64)(b))
#endif

#define PRAGUE_WINDOW_BITS	32
#define PRAGUE_PACKET		(1ULL << PRAGUE_WINDOW_BITS)
#define PRAGUE_MIN_WINDOW	(2 * PRAGUE_PACKET)
#define PRAGUE_ALPHA_BITS	20
#define PRAGUE_ALPHA_ONE	(1U << PRAGUE_ALPHA_BITS)

/* Moving average of the share of marked packets, with gain 1/2^g_shift. */
static inline u32 prague_alpha(u32 alpha, u32 marked, u32 acked, u32 g_shift)
{
	u64 share;

	if (!acked)
		return alpha;
	share = div64_u64((u64)min(marked, acked) << PRAGUE_ALPHA_BITS, acked);
	return alpha - (alpha >> g_shift) + (u32)(share >> g_shift);
}

/* The window without the share alpha / 2 of it. */
static inline u64 prague_reduced(u64 window, u32 alpha)
{
	u64 less = (window >> (PRAGUE_ALPHA_BITS + 1)) * alpha;

	return max(window - less, PRAGUE_MIN_WINDOW);
}

/* By how much unmarked packets increase the window: one packet per round trip,
 * or (RTT / virtual RTT)^2 packets if the RTT is shorter.
 */
static inline u64 prague_increase(u64 window, u32 unmarked, u32 rtt_us,
				  u32 virtual_rtt_us)
{
	u64 per_round = PRAGUE_PACKET;

	if (rtt_us < virtual_rtt_us) {
		u64 ratio = ((u64)rtt_us << 16) / virtual_rtt_us;

		per_round = ratio * ratio;
	}
	/* 16 bits fewer in the divisor, so that the dividend has room */
	return unmarked * div64_u64(per_round << 16, max(window >> 16, 1ULL));
}

/* A window per round trip, in bytes per second; srtt_us has 3 fractional bits. */
static inline u64 prague_rate(u64 window, u32 packet_bytes, u32 srtt_us)
{
	u64 bytes = (window >> 16) * packet_bytes;	/* 16 fractional bits */

	return div64_u64((bytes >> 8) * (8 * 1000000ULL >> 6),
			 max(srtt_us, 1U)) >> 2;
}

#endif

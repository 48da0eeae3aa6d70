/* SPDX-License-Identifier: GPL-2.0 */
/* log2 and 1 - exp(-x) in fixed point, for tables that are made once. */
#ifndef CCT_FIXED_LOG_H
#define CCT_FIXED_LOG_H

#include "aqm.h"

#define LOG_BITS_Q48 48	/* fractional bits of logarithms */

/* log2 of x > 0, cut off after 48 fractional bits: one bit per squaring. */
static inline s64 log2_q48(u64 x)
{
	int exponent = fls64(x) - 1, bit;
	u64 mantissa = x << (63 - exponent);	/* in [1, 2), with 63 fractional bits */
	s64 log = exponent;

	for (bit = 0; bit < LOG_BITS_Q48; bit++) {
		mantissa = mul_u64_u64_shr(mantissa, mantissa, 64);
		log *= 2;
		if (mantissa >> 63)
			log++;
		else
			mantissa <<= 1;
	}
	return log;
}

/* A logarithm with 16 fractional bits, to the nearest. */
static inline s32 log_q16(s64 log)
{
	return (log + (1LL << 31)) >> 32;
}

/* (1 - exp(-x)) / x of x < 1/2 (64 fractional bits), with 63 fractional bits: the series. */
static inline u64 one_minus_exp_over_x_q63(u64 x)
{
	u64 sum = 1ULL << 63;
	u32 n;

	for (n = 20; n >= 2; n--)
		sum = (1ULL << 63) - div64_u64(mul_u64_u64_shr(x, sum, 64), n);
	return sum;
}

/*
 * log2(1 - exp(-x)) of x = mantissa * 2**(exponent - 63), the mantissa's leading
 * bit set. From x = 32 on it is 0 to 45 bits.
 */
static inline s64 log2_one_minus_exp_q48(u64 mantissa, int exponent)
{
	u64 power;
	int doublings;

	if (exponent >= 5)
		return 0;
	if (exponent < -1) {
		u64 x = exponent <= -65 ? 0 : mantissa >> (-1 - exponent);

		return log2_q48(mantissa) + log2_q48(one_minus_exp_over_x_q63(x)) +
		       (s64)(exponent - 126) * (1LL << LOG_BITS_Q48);
	}
	/* exp(-x) is the square of exp(-x / 2), and so on, down to an exponent of -2 */
	doublings = exponent + 2;
	power = 0 - mul_u64_u64_shr(mantissa >> 1, one_minus_exp_over_x_q63(mantissa >> 1), 63);
	while (doublings--)
		power = mul_u64_u64_shr(power, power, 64);
	return power ? log2_q48(0 - power) - (64LL << LOG_BITS_Q48) : 0;
}

#endif

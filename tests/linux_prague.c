/* The arithmetic of TCP Prague, for a Python test: inline functions have no addresses of their own. */
#include "prague.h"

uint32_t alpha(uint32_t old, uint32_t marked, uint32_t acked, uint32_t g_shift)
{
	return prague_alpha(old, marked, acked, g_shift);
}

uint64_t reduced(uint64_t window, uint32_t old)
{
	return prague_reduced(window, old);
}

uint64_t increase(uint64_t window, uint32_t unmarked, uint32_t rtt_us, uint32_t virtual_rtt_us)
{
	return prague_increase(window, unmarked, rtt_us, virtual_rtt_us);
}

uint64_t rate(uint64_t window, uint32_t packet_bytes, uint32_t srtt_us)
{
	return prague_rate(window, packet_bytes, srtt_us);
}

/* The decision arithmetic of hardware/linux/aqm, as functions for ctypes; each queue discipline is one pointer. */
#include <stdlib.h>

#include "abc.h"
#include "codel_pisa.h"
#include "ired.h"
#include "pi2.h"

struct pi2 {
	struct pi2_params params;
	struct pi2_state state;
	struct aqm_random random;
};

const char *pi2_wrong(const struct pi2_params *p) { return pi2_check(p); }

struct pi2 *pi2_make(const struct pi2_params *p, u64 seed)
{
	struct pi2 *q = calloc(1, sizeof *q);

	q->params = *p;
	pi2_init(&q->state);
	aqm_seed(&q->random, seed);
	return q;
}

int pi2_arrives(struct pi2 *q, const struct aqm_packet *packet, u64 packets, u64 bytes, u64 now_ns)
{
	(void)packets, (void)bytes, (void)now_ns;
	return q->params.egress ? AQM_PASS : pi2_enqueue(&q->params, &q->state, &q->random, packet);
}

int pi2_leaves(struct pi2 *q, const struct aqm_packet *packet, u64 packets, u64 bytes, u64 now_ns)
{
	(void)packets, (void)bytes;
	return q->params.egress ? pi2_dequeue(&q->params, &q->state, &q->random, packet, now_ns) : AQM_PASS;
}

void pi2_updates(struct pi2 *q, u64 delay_ns, u64 now_ns) { pi2_update(&q->params, &q->state, delay_ns, now_ns); }

void pi2_shows(const struct pi2 *q, s64 *out)
{
	out[0] = pi2_probability_q32(&q->state);
	out[1] = q->state.classic_signals;
	out[2] = q->state.scalable_signals;
	out[3] = q->state.probability;
}

struct ired {
	struct ired_params params;
	struct ired_tables tables;
	struct ired_state state;
	struct aqm_random random;
};

const char *ired_wrong(const struct ired_params *p) { return ired_check(p); }

struct ired *ired_make(const struct ired_params *p, u64 seed)
{
	struct ired *q = calloc(1, sizeof *q);

	q->params = *p;
	ired_make_tables(p, &q->tables);
	ired_init(&q->state, calloc(p->max_notifications, sizeof(u64)));
	aqm_seed(&q->random, seed);
	return q;
}

int ired_arrives(struct ired *q, const struct aqm_packet *packet, u64 packets, u64 bytes, u64 now_ns)
{
	(void)packets, (void)bytes;
	return ired_enqueue(&q->params, &q->state, packet, now_ns);
}

int ired_leaves(struct ired *q, const struct aqm_packet *packet, u64 packets, u64 bytes, u64 now_ns)
{
	(void)packets, (void)bytes;
	return ired_dequeue(&q->params, &q->tables, &q->state, &q->random, packet, now_ns);
}

void ired_shows(const struct ired *q, s64 *out)
{
	out[0] = ired_probability_q32(&q->params, &q->state);
	out[1] = q->state.notifications;
	out[2] = q->state.lost_notifications;
	out[3] = q->state.average_ns;
}

const u32 *ired_table(const struct ired *q, int scalable)
{
	return scalable ? q->tables.scalable : q->tables.classic;
}

struct abc {
	struct abc_params params;
	struct abc_tables tables;
	struct abc_state state;
};

const char *abc_wrong(const struct abc_params *p, const u32 *kbps, u32 references)
{
	return abc_check(p, kbps, references);
}

struct abc *abc_make(const struct abc_params *p, const u32 *kbps, u32 references)
{
	struct abc *q = calloc(1, sizeof *q);

	q->params = *p;
	abc_make_tables(p, &q->tables);
	abc_init(p, &q->state, calloc(p->aggregates, sizeof(struct abc_meter)), kbps, references);
	return q;
}

int abc_arrives(struct abc *q, const struct aqm_packet *packet, u64 packets, u64 bytes, u64 now_ns)
{
	(void)bytes;
	return abc_enqueue(&q->params, &q->tables, &q->state, packet, packets, now_ns);
}

void abc_shows(const struct abc *q, s64 *out)
{
	out[0] = 0;
	out[1] = q->state.accepted;
	out[2] = q->state.activity_sum;
	out[3] = q->state.activity_count;
}

void abc_table(const struct abc *q, const char *name, s64 *out)
{
	u32 i;

	switch (name[0]) {
	case 'p':
		for (i = 0; i < ABC_STEPS; i++)
			out[i] = q->tables.power[i];
		break;
	case 'l':
		for (i = 0; i < ABC_STEPS; i++)
			out[i] = q->tables.log[i];
		break;
	case 's':
		for (i = 0; i < ABC_START_OCTAVES << ABC_START_BITS; i++)
			out[i] = q->tables.start[i];
		break;
	case 'o':
		for (i = 0; i < q->params.aggregates; i++)
			out[i] = q->state.meters[i].offset;
		break;
	default:
		out[0] = q->tables.meter.step_ns;
		out[1] = q->tables.meter.reciprocal;
		out[2] = q->tables.average.step_ns;
		out[3] = q->tables.average.reciprocal;
	}
}

struct codel_pisa {
	struct codel_pisa_params params;
	struct codel_pisa_math_unit unit;
	struct codel_pisa_state state;
};

const char *codel_pisa_wrong(const struct codel_pisa_params *p) { return codel_pisa_check(p); }

struct codel_pisa *codel_pisa_make(const struct codel_pisa_params *p)
{
	struct codel_pisa *q = calloc(1, sizeof *q);

	q->params = *p;
	codel_pisa_make_math_unit(p, &q->unit);
	codel_pisa_init(&q->state);
	return q;
}

int codel_pisa_leaves(struct codel_pisa *q, const struct aqm_packet *packet, u64 packets, u64 bytes, u64 now_ns)
{
	(void)packets;
	return codel_pisa_dequeue(&q->params, &q->unit, &q->state, packet, bytes, now_ns);
}

void codel_pisa_shows(const struct codel_pisa *q, s64 *out)
{
	out[0] = q->state.dropping;
	out[1] = q->state.entered;
	out[2] = q->state.signals;
	out[3] = q->state.drop_next_ns;
}

void codel_pisa_table(const struct codel_pisa *q, u32 *out)
{
	memcpy(out, q->unit.table, sizeof q->unit.table);
	out[16] = q->unit.scale;
}

/* stages_emit.h -- inside stages_emit: what its two walks share with stages_want.c, which marks what the first one
 * finds, and with stages_make.c, which makes what the second one asks for.
 *
 * Odd invariant: a value of no stage is worked on from a list, never by a call within a call: a script may add up as
 * many numbers, one after another, as it likes. */
#ifndef SGLPASS_STAGES_EMIT_H
#define SGLPASS_STAGES_EMIT_H

#include "passes/stages.h"

typedef struct sglpass_stages_event {
    double time;
    bool is_turn; /* false: what the turn has made is handed over */
    int64_t turn;
} sglpass_stages_event;

/* What is still to be looked at. */
typedef struct sglpass_stages_due {
    enum { SGLPASS_DUE_VALUE, SGLPASS_DUE_NODE, SGLPASS_DUE_SUM } what;
    sglir_id id; /* a value, a node; of SUM the value that a carry or a meeting comes to */
    int64_t micro;
} sglpass_stages_due;

typedef struct sglpass_stages_emitter {
    sglpass_stages *s;
    const sglir_graph *from;
    sglir_graph *to;
    sglir_rewrite rewrite;
    int here;
    bool marks;       /* the first walk */
    int64_t row;      /* values of the old graph, sums and parts by stage: as many per micro-batch */
    uint64_t *wanted; /* per micro-batch and value: a bit per stage */
    sglir_id *map;    /* per micro-batch and value: of the new graph */
    sglir_id *sums;   /* per carry: what this stage has added up */
    int64_t number;   /* of the value that was handed over last */
    uint32_t turn;    /* of the nodes that are made now */
    uint32_t taken;   /* turns of this stage */
    sglpass_stages_turn *turns;
    int64_t turn_count;
    sglpass_stages_event *events;
    SGLCORE_VEC(sglpass_stages_due) due;
} sglpass_stages_emitter;

static inline bool sglpass_is_top(const sglpass_stages_emitter *e, sglir_id value)
{
    return e->s->loop_of[sglir_value_at(e->from, value)->region] == 0;
}
static inline int sglpass_stage_at(const sglpass_stages_emitter *e, sglir_id value)
{
    const int32_t at = e->s->place[value];
    return at < 0 || sglpass_is_top(e, value) ? at : sglpass_stage_of(e->s, at);
}
/* In place of a value: what a stage adds to a carry, and what its terms of a meeting come to. */
static inline sglir_id sglpass_sum_at(const sglpass_stages_emitter *e, int64_t carry, int stage)
{
    return (sglir_id)(e->from->values.count + carry * e->s->stages + stage);
}
static inline sglir_id sglpass_part_at(const sglpass_stages_emitter *e, const sglpass_stages_meeting *meeting,
                                       int stage)
{
    const int64_t number = e->s->carries.count + (meeting - e->s->meetings.data);
    return (sglir_id)(e->from->values.count + number * e->s->stages + stage);
}
/* The unrolled loop that the node is, NULL: none. */
static inline const sglir_node *sglpass_loop_at(const sglpass_stages_emitter *e, sglir_id node)
{
    const sglir_node *at = sglir_node_at(e->from, node);
    return at->op == SGLIR_OP_SCAN && e->s->loop_of[sglir_body(at)] != 0 ? at : NULL;
}
/* What the loop does in the micro-batch's turns. */
static inline const sglir_region *sglpass_body_at(const sglpass_stages_emitter *e, const sglpass_stages_loop *loop,
                                                  int64_t micro)
{
    const sglir_node *node = sglir_node_at(e->from, loop->nodes[sglpass_stretch_of(e->s, micro)]);
    return &e->from->regions.data[sglir_body(node)];
}

/* The carry that an unrolled loop gives back as this value, NULL: it does not. */
const sglpass_stages_carry *sglpass_carry_of(const sglpass_stages_emitter *e, sglir_id value);
/* The meeting that comes to this value, NULL: none does. */
const sglpass_stages_meeting *sglpass_meeting_of(const sglpass_stages_emitter *e, sglir_id value);
/* Which value of which micro-batch is meant. */
sglir_id sglpass_meant(const sglpass_stages_emitter *e, sglir_id value, int64_t *micro);
/* Each node that adds to the carry in the micro-batch, in the body's order. */
void sglpass_each_link(sglpass_stages_emitter *e, const sglpass_stages_carry *carry, int64_t micro,
                       void (*visit)(void *user, sglir_id node, int64_t micro), void *user);

/* Marks that the stage wants the value, and of what is of no stage all that it is made of. */
void sglpass_stages_want(sglpass_stages_emitter *e, sglir_id value, int64_t micro, int stage);
/* The same of all that the node reads. */
void sglpass_stages_want_uses(sglpass_stages_emitter *e, sglir_id node, int64_t micro, int stage);

/* Makes the node here, and before it what of no stage it reads. */
void sglpass_stages_make(sglpass_stages_emitter *e, sglir_id node, int64_t micro);
/* The value, made here if it is of no stage; NONE: it was neither made nor handed over, as the copy of its user will say. */
sglir_id sglpass_stages_take(sglpass_stages_emitter *e, sglir_id value, int64_t micro);
/* What this stage's terms of the meeting, `count` of them, come to. */
sglir_id sglpass_stages_add_up(sglpass_stages_emitter *e, const sglpass_stages_meeting *meeting, uint32_t first,
                               uint32_t count);

#endif

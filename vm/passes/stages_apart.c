/* stages_apart.c -- what of a backward may wait: gradients of weights, apart from what other stages' work depends on.
 *
 * In: positions of a loop's body. Out: nodes of a backward position that nothing of another position needs, and that
 * work with what the forward has kept, stand at the position for weights of their chunk, and so does what is made of
 * them alone. What is made of the backward's own values without more (a sum over rows) stays: to keep these for it
 * would cost memory and spare no time. Odd invariant: a node whose results are a gradient for the stage before and one
 * of a weight does both at once, and stays. */
#include "passes/stages.h"

static bool is_backward(const sglpass_stages *s, int32_t position)
{
    return position >= s->chunks && position < 2 * s->chunks;
}

static int32_t position_at(const sglpass_stages *s, sglir_id value)
{
    bool inside = s->loop_of[sglir_value_at(s->from, value)->region] != 0;
    return inside ? s->place[value] : SGLPASS_STAGES_FREE;
}

typedef struct reader {
    const sglpass_stages *s;
    uint8_t *needed; /* per value: another position's work depends on it */
    int32_t position;
    bool is_needed;
    bool waits; /* it reads what the forward has kept, or what waits itself */
} reader;

static void need(void *user, sglir_id value)
{
    reader *r = user;
    if (position_at(r->s, value) != r->position || r->is_needed) r->needed[value] = 1;
}

static void look_at(void *user, sglir_id value)
{
    reader *r = user;
    int32_t position = position_at(r->s, value);
    r->waits = r->waits || (position >= 0 && !is_backward(r->s, position));
}

static reader reader_of(const sglpass_stages *s, uint8_t *needed, const sglir_node *node)
{
    reader r = { .s = s, .needed = needed, .position = SGLPASS_STAGES_FREE };
    if (node->out_count > 0) r.position = s->place[node->out_first];
    for (uint32_t i = 0; i < node->out_count; i++) r.is_needed = r.is_needed || needed[node->out_first + i];
    return r;
}

sgl_status sglpass_stages_set_apart(sglpass_stages *s, const sglir_region *body)
{
    uint8_t *needed = sglcore_arena_alloc(&s->arena, (size_t)s->from->values.count);
    if (!needed) return SGL_OUT_OF_MEMORY;
    for (int64_t i = body->nodes.count - 1; i >= 0; i--) {
        reader r = reader_of(s, needed, sglir_node_at(s->from, body->nodes.data[i]));
        sglpass_stages_each_use(s, body->nodes.data[i], need, &r);
    }
    for (int64_t i = 0; i < body->nodes.count; i++) {
        const sglir_node *node = sglir_node_at(s->from, body->nodes.data[i]);
        reader r = reader_of(s, needed, node);
        if (!is_backward(s, r.position) || r.is_needed) continue;
        sglpass_stages_each_use(s, body->nodes.data[i], look_at, &r);
        int32_t apart = 2 * s->chunks + sglpass_chunk_of(s->chunks, r.position);
        for (uint32_t k = 0; k < node->out_count && r.waits; k++) s->place[node->out_first + k] = apart;
    }
    return SGL_OK;
}

/* shard_attention.c -- how attention runs whose queries lie in parts of the sequence.
 *
 * In: a choice in the making. Out: one of three ways, by the bytes it sends, or as the plan asks: whole keys and
 * values, of which gradients are handed out again; parts of the heads, of the whole sequence; blocks of keys one after
 * another. Odd invariant: the backward chooses for itself, and finds what the forward has sent already. */
#include "passes/shard_choose.h"

/* What it takes of keys and values (plan.h), and what that sends. */
typedef struct attend {
    sglplan_attention by;
    double price;
    int label, blocks;
} attend;

/* What it costs to turn results that are in parts of the heads back to parts of the sequence; sums of weights are
 * wanted by the backward alone, as they are. */
static double price_back(const sglpass_chooser *c, int axis)
{
    const double parts = (double)sglpass_extent(c->s, axis);
    const uint32_t count = c->node->op == SGLIR_OP_ATTENTION ? 1 : c->node->out_count;
    double bytes = 0;
    for (uint32_t r = 0; r < count; r++)
        bytes += sglpass_local_bytes(c->s, c->node->out_first + r, sglpass_result_form(c, r)) / parts;
    return (parts - 1) / parts * bytes;
}

/* What the sums cost that are owed for it, and handed out. */
static double price_owed(const sglpass_chooser *c, int axis, const sglir_beyond *how)
{
    const double parts = (double)sglpass_extent(c->s, axis);
    double bytes = 0;
    for (uint32_t r = 1; r < c->node->out_count; r++)
        if (how->results[r] == SGLPASS_PARTIAL)
            bytes += sglpass_local_bytes(c->s, c->node->out_first + r, sglpass_result_form(c, r));
    return (parts - 1) / parts * bytes;
}

/* Each block that is not there yet is sent from where it lies; of gradients one comes back for each. */
static double price_ring(const sglpass_chooser *c, int axis, int blocks)
{
    double price = 0;
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        if (!sglpass_is_ring_arg(c->s, c->node, i)) continue;
        const sglir_id value = sglpass_arg_of(c, i);
        const sglpass_form own = sglpass_ring_form(c->s, c->node, sglpass_arg_form(c, i), axis, 0);
        const double turned = sglpass_price(c->s, value, &own);
        price += turned;
        for (int by = 1; by <= blocks; by++) {
            const sglpass_form form = sglpass_ring_form(c->s, c->node, &own, axis, by);
            const double sent = sglpass_price(c->s, value, &form);
            price += sent > 0 ? sent - turned : 0;
        }
        if (c->node->op == SGLIR_OP_ATTENTION_GRAD && sglir_type_of(c->s->from, value)->rank > SGLPASS_HEADS)
            price += blocks * sglpass_local_bytes(c->s, value, &own);
    }
    return price;
}

static void offer(const sglpass_chooser *c, attend *best, attend other)
{
    const sglplan_attention asked = (sglplan_attention)c->s->context->plan->attention;
    const bool fits = asked == SGLPLAN_ATTENTION_AUTO ? other.price < best->price : other.by == asked;
    if (fits) *best = other;
}

/* Attention over parts of the sequence gathers keys and values. Instead each rank may take a part of the heads over all
 * of the sequence: what goes in is turned from the one to the other, and what comes out turned back (Jacobs et al.,
 * arXiv:2309.14509); or the blocks of other ranks that its queries see, one after another (shard_ring.c), of which a
 * window needs few. */
static attend how_to_attend(const sglpass_chooser *c, int axis, const sglir_beyond *how, double beyond)
{
    attend best = { .by = SGLPLAN_ATTENTION_GATHER, .price = beyond + price_owed(c, axis, how) };
    const int heads = sglpass_arg_label(&c->labels, 0, SGLPASS_HEADS),
              blocks = sglpass_ring_blocks(c->s, c->node, c->first, axis);
    if (sglpass_has_enough(c, axis, heads))
        offer(c, &best,
              (attend){ .by = SGLPLAN_ATTENTION_HEADS,
                        .price = sglpass_price_along(c, axis, heads) + price_back(c, axis),
                        .label = heads });
    if (blocks >= 0)
        offer(c, &best,
              (attend){ .by = SGLPLAN_ATTENTION_RING, .price = price_ring(c, axis, blocks), .blocks = blocks });
    return best;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static bool is_in_parts(const sglpass_chooser *c, uint32_t i, int axis)
{
    const sglpass_made *there = sglpass_first(c->s, sglpass_arg_of(c, i));
    return there && there->form.at[axis] == SGLPASS_SEQUENCE;
}

/* A plan that asks for what cannot be is refused. */
static void check_asked(const sglpass_chooser *c, int axis, const attend *a)
{
    const sglplan_attention asked = (sglplan_attention)c->s->context->plan->attention;
    const char *name = sglir_axis_name(axis);
    const long long ranks = (long long)sglpass_extent(c->s, axis);
    if (asked == SGLPLAN_ATTENTION_AUTO || a->by == asked || !is_in_parts(c, 1, axis)) return;
    if (asked == SGLPLAN_ATTENTION_HEADS)
        sglir_fail_from(
            c->s->to, c->s->from, (sglir_id)(c->node - c->s->from->nodes.data), SGL_INVALID_ARGUMENT,
            "plan: attention = \"heads\" takes a key head for each of %s=%lld ranks beside those that other axes "
            "split, and there are %lld; \"ring\" and \"gather\" take any number",
            name, ranks, (long long)sglpass_arg_extent(c, 1, SGLPASS_HEADS));
    else
        sglir_fail_from(
            c->s->to, c->s->from, (sglir_id)(c->node - c->s->from->nodes.data), SGL_INVALID_ARGUMENT,
            "plan: attention = \"ring\" goes round one axis, and here queries, keys and values are not all split "
            "over %s=%lld alone; \"gather\" takes them as they are",
            name, ranks);
}

static void run_ring(const sglpass_chooser *c, int axis, const sglir_beyond *how, int blocks, sglpass_way *run)
{
    sglpass_run_beyond(c, axis, how);
    for (uint32_t i = 0; i < c->node->arg_count; i++)
        if (sglpass_is_ring_arg(c->s, c->node, i))
            *sglpass_arg_form(c, i) = sglpass_ring_form(c->s, c->node, sglpass_arg_form(c, i), axis, 0);
    for (uint32_t r = 1; r < c->node->out_count && c->node->op == SGLIR_OP_ATTENTION_GRAD; r++) {
        sglpass_result_form(c, r)->at[axis] = SGLPASS_SEQUENCE;
        sglpass_result_form(c, r)->unit[SGLPASS_SEQUENCE] = sglpass_arg_form(c, r)->unit[SGLPASS_SEQUENCE];
    }
    run->ring = SGLPLAN_AXIS(axis);
    run->blocks = blocks;
}

/* Gradients of keys and values are handed out as these lie. */
static void owe(const sglpass_chooser *c, int axis, sglpass_way *run)
{
    run->owed |= SGLPLAN_AXIS(axis);
    for (uint32_t r = 1; r < c->node->out_count; r++)
        sglpass_result_form(c, r)->unit[SGLPASS_SEQUENCE] =
            sglpass_first(c->s, sglpass_arg_of(c, r))->form.unit[SGLPASS_SEQUENCE];
}

bool sglpass_attends(sglpass_chooser *c, int axis, sglpass_way *run)
{
    sglir_beyond how;
    double beyond = 0;
    if (!sglpass_is_attention(c->node) || sglpass_arg_form(c, 0)->at[axis] != SGLPASS_SEQUENCE ||
        !sglpass_price_beyond(c, axis, &how, &beyond))
        return false;
    const attend a = how_to_attend(c, axis, &how, beyond);
    check_asked(c, axis, &a);
    if (a.by == SGLPLAN_ATTENTION_HEADS) {
        run->by_heads |= SGLPLAN_AXIS(axis);
        const int64_t units = sglpass_units_of(c, a.label);
        sglpass_run_along(c, axis, a.label, units, sglpass_together(c, a.label, units));
    } else if (a.by == SGLPLAN_ATTENTION_RING) {
        run_ring(c, axis, &how, a.blocks, run);
    } else {
        sglpass_run_beyond(c, axis, &how);
        if (c->node->op == SGLIR_OP_ATTENTION_GRAD && is_in_parts(c, 1, axis)) owe(c, axis, run);
    }
    return true;
}

/* turns.c -- the rows of a step's feeds, cut into micro-batches that are balanced as every split is: larger ones first.
 *
 * In and out: turns.h. Rows that ranks share are balanced too, so a rank has one of two numbers of them, and where its
 * micro-batches become smaller is one of two turns: at both every rank begins a stretch. So all ranks have the same loops, in which
 * what they decide by the whole extents of a turn they decide alike. Odd invariant: a rank may have no row in a turn. */
#include "passes/turns.h"
#include "plan/mesh.h"

typedef struct feed {
    sglir_id node;
    int64_t rows, all, start; /* of this rank, of all, where this rank's begin */
    sglplan_axes axes;        /* over which ranks split them */
} feed;

static bool read_feed(const sglir_graph *g, int64_t node, feed *f)
{
    const sglir_node *at = &g->nodes.data[node];
    if (at->op != SGLIR_OP_INPUT || sglir_attr_int(g, at, "role") != SGL_FEED) return false;
    const sglir_type *type = sglir_type_of(g, at->out_first);
    const sglir_whole *whole = sglir_whole_of(g, at->out_first);
    if (type->rank == 0) return false;
    *f = (feed){ .node = (sglir_id)node, .rows = type->dims[0], .all = whole ? whole->dims[0] : type->dims[0] };
    f->start = whole ? whole->starts[0] : 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axis != SGLIR_AXIS_MICRO && type->sharded[axis] == 0) f->axes |= SGLPLAN_AXIS(axis);
    }
    return true;
}

/* Whether each rank can cut its rows into equal micro-batches. */
static bool is_even(const sglplan *plan, const feed *f)
{
    const int64_t micro = plan->mesh[SGLIR_AXIS_MICRO];
    return f->all % (sglplan_group_size(plan, f->axes) * micro) == 0 && f->rows % micro == 0;
}

static sgl_status fail_few(const sglpass_context *context, const sglir_graph *g, const feed *f)
{
    const int64_t micro = context->plan->mesh[SGLIR_AXIS_MICRO], ranks = sglplan_group_size(context->plan, f->axes);
    const int64_t most = (f->all + ranks - 1) / ranks;
    const char *name = sglir_attr_string(g, sglir_node_at(g, f->node), "name");
    char axes[SGLPLAN_AXES_ROOM];
    if (ranks == 1)
        return sglcore_fail(
            context->env, SGL_INVALID_ARGUMENT,
            "micro: the feed '%s' has %lld rows, too few for the plan's %lld micro-batches; set micro to "
            "%lld at most, or take a larger batch",
            name, (long long)f->all, (long long)micro, (long long)most);
    return sglcore_fail(
        context->env, SGL_INVALID_ARGUMENT,
        "micro: the feed '%s' has %lld rows, of which a rank along %s (of %lld) has %lld at most, too few "
        "for the plan's %lld micro-batches; set micro to %lld at most, or take a batch of %lld or more",
        name, (long long)f->all, sglplan_axes_text(f->axes, axes, sizeof axes), (long long)ranks, (long long)most,
        (long long)micro, (long long)most, (long long)(ranks * (micro - 1) + 1));
}

static sgl_status fail_unlike(const sglpass_context *context, const sglir_graph *g, const feed *f, const feed *base)
{
    const int64_t micro = context->plan->mesh[SGLIR_AXIS_MICRO];
    return sglcore_fail(context->env, SGL_INVALID_ARGUMENT,
                        "micro: the feeds '%s' of %lld rows and '%s' of %lld cannot be cut alike into %lld uneven "
                        "micro-batches; set micro so that it divides each rank's rows of both",
                        sglir_attr_string(g, sglir_node_at(g, base->node), "name"), (long long)base->all,
                        sglir_attr_string(g, sglir_node_at(g, f->node), "name"), (long long)f->all, (long long)micro);
}

static void put_stretches(const sglpass_context *context, const feed *base, sglpass_turns *turns)
{
    const sglplan *plan = context->plan;
    const int64_t micro = plan->mesh[SGLIR_AXIS_MICRO], ranks = sglplan_group_size(plan, base->axes);
    const int64_t fewer = base->all / ranks, larger = base->all % ranks; /* so many ranks have a row more */
    const int64_t place = sglplan_group_place(plan, base->axes, context->rank);
    const int64_t larger_before = base->start - place * fewer;
    for (int64_t first = 0; first < micro;) {
        const int64_t a = fewer % micro, b = larger > 0 ? (fewer + 1) % micro : a;
        int64_t end = micro;
        if (a > first && a < end) end = a;
        if (b > first && b < end) end = b;
        const sglplan_part own = sglplan_part_of(base->rows, 1, micro, first);
        const int64_t less = sglplan_part_of(fewer, 1, micro, first).size;
        const int64_t more = sglplan_part_of(fewer + 1, 1, micro, first).size;
        turns->at[turns->count++] =
            (sglpass_stretch){ .first = first,
                               .turns = end - first,
                               .size = own.size,
                               .start = own.offset,
                               .all_size = larger * more + (ranks - larger) * less,
                               .all_start = larger_before * more + (place - larger_before) * less };
        first = end;
    }
}

sgl_status sglpass_find_turns(const sglpass_context *context, const sglir_graph *g, sglpass_turns *turns)
{
    const int64_t micro = context->plan->mesh[SGLIR_AXIS_MICRO];
    feed base = { .node = SGLIR_NONE }, f;
    bool even = true;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (!read_feed(g, n, &f)) continue;
        even = even && is_even(context->plan, &f);
        if (base.node == SGLIR_NONE || f.all < base.all) base = f;
    }
    *turns = (sglpass_turns){ .unit = micro, .all = micro, .even = even };
    if (even) {
        turns->count = 1;
        turns->at[0] = (sglpass_stretch){ .turns = micro, .size = 1, .all_size = 1 };
        return SGL_OK;
    }
    const int64_t ranks = sglplan_group_size(context->plan, base.axes);
    if ((base.all + ranks - 1) / ranks < micro) return fail_few(context, g, &base);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (!read_feed(g, n, &f)) continue;
        if (f.all % base.all != 0 || f.rows != f.all / base.all * base.rows) return fail_unlike(context, g, &f, &base);
    }
    turns->unit = base.rows;
    turns->all = base.all;
    put_stretches(context, &base, turns);
    return SGL_OK;
}

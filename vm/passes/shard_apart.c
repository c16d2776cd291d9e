/* shard_apart.c -- what is taken apart before a step is laid out, because no part of it may be split as one.
 *
 * In: the whole graph. Out: the same mathematics. A mean becomes the sum and the count that it is: over parts it would
 * divide by a local count. Attention whose key heads tp does not divide is given a key head for each query head. A
 * vocabulary loss over a weight whose rows are split, and a linear with a bias over a weight whose columns are, become
 * what they are made of, of which each piece is laid out for itself. Packs of which some members are split are opened
 * last (shard_packs.c). Odd invariant: extents are whole here. */
#include <string.h>

#include "core/broken.h"
#include "passes/shard_apart.h"
#include "plan/compress.h"
#include "plan/layout.h"

/* ---- which parameters are split ---------------------------------------------------------------------------------- */

const char *sglpass_path_of(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash ? slash + 1 : name;
}

bool sglpass_split_input(const sglplan *plan, const sglir_graph *g, const sglir_node *node, int8_t at[SGLIR_AXIS_COUNT],
                         uint64_t *named)
{
    int64_t role = sglir_attr_int(g, node, "role");
    int rank = sglir_type_of(g, node->out_first)->rank;
    bool any = false;
    *named = 0;
    memset(at, -1, SGLIR_AXIS_COUNT);
    if (role != SGL_PARAMETER && role != SGL_STATE) return false;
    const char *name = sglir_attr_string(g, node, "name"), *path = sglpass_path_of(name);
    const char *residual = sglplan_residual_of(name);
    const bool is_state = path != name;
    if (residual) return sglplan_split_residual(plan, residual, rank, at);
    if (role == SGL_STATE && !is_state) return false; /* not of a parameter */
    sglplan_layout_of(plan, path, is_state, at, named);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (at[axis] >= rank || axis == SGLIR_AXIS_MICRO || plan->mesh[axis] == 1) at[axis] = -1;
        any = any || at[axis] >= 0;
    }
    return any;
}

/* Whether the value is a parameter, cast or not, that is split along dim over an axis that samples are not split over. */
static bool is_split_along(const sglplan *plan, const sglir_graph *g, sglir_id value, int dim)
{
    const sglir_node *maker = sglir_maker(g, value);
    int8_t at[SGLIR_AXIS_COUNT];
    uint64_t named;
    while (maker && maker->op == SGLIR_OP_CAST) maker = sglir_maker(g, sglir_arg(g, maker, 0));
    if (!maker || maker->op != SGLIR_OP_INPUT || !sglpass_split_input(plan, g, maker, at, &named)) return false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (at[axis] == dim && !(SGLPLAN_STORE_AXES & SGLPLAN_AXIS(axis))) return true;
    }
    return false;
}

/* ---- composites -------------------------------------------------------------------------------------------------- */

/* The loss of a vocabulary that is split: its logits, or the weight that makes them, or what an older turn has made of
 * them. */
static bool is_split_loss(const sglplan *plan, const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_LINEAR_CROSS_ENTROPY || node->op == SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD)
        return is_split_along(plan, g, sglir_arg(g, node, 1), 0);
    if (node->op != SGLIR_OP_CROSS_ENTROPY) return false;
    const sglir_node *logits = sglir_maker(g, sglir_arg(g, node, 0));
    while (logits && logits->op == SGLIR_OP_CAST) logits = sglir_maker(g, sglir_arg(g, logits, 0));
    return logits && logits->op == SGLIR_OP_LINEAR && is_split_along(plan, g, sglir_arg(g, logits, 1), 0);
}

/* Key heads that tp does not divide: each query head is given its own, so that query heads alone are handed out. */
static bool is_uneven_attention(const sglplan *plan, const sglir_graph *g, const sglir_node *node)
{
    int64_t ranks = plan->mesh[SGLIR_AXIS_TP];
    if ((node->op != SGLIR_OP_ATTENTION && node->op != SGLIR_OP_ATTENTION_GRAD) || ranks == 1) return false;
    int64_t heads = sglir_type_of(g, sglir_arg(g, node, 0))->dims[2],
            keys = sglir_type_of(g, sglir_arg(g, node, 1))->dims[2];
    return keys % ranks != 0 && heads != keys;
}

/* [b, s, g, d] to [b, s, h, d], each of g repeated. */
static sglir_id repeat_heads(sglir_graph *to, sglir_id x, int64_t heads)
{
    if (to->status != SGL_OK) return SGLIR_NONE;
    const sglir_type t = *sglir_type_of(to, x);
    const int64_t apart[] = { t.dims[0], t.dims[1], t.dims[2], 1, t.dims[3] };
    const int64_t wide[] = { t.dims[0], t.dims[1], t.dims[2], heads / t.dims[2], t.dims[3] };
    const int64_t joined[] = { t.dims[0], t.dims[1], heads, t.dims[3] };
    return sglir_reshape(to, sglir_broadcast(to, sglir_reshape(to, x, 5, apart), 5, wide), 4, joined);
}

/* The transpose of that: a sum over each one's repetitions. */
static sglir_id join_heads(sglir_graph *to, sglir_id x, int64_t keys)
{
    if (to->status != SGL_OK) return SGLIR_NONE;
    const sglir_type t = *sglir_type_of(to, x);
    const int64_t apart[] = { t.dims[0], t.dims[1], keys, t.dims[2] / keys, t.dims[3] };
    const sglir_op sum = sglcore_is_broken(SGLCORE_BREAK_KV_SUMMED) ? SGLIR_OP_REDUCE_MAX : SGLIR_OP_REDUCE_SUM;
    return sglir_reduce(to, sum, sglir_reshape(to, x, 5, apart), (int64_t[]){ 3 }, 1, false);
}

static void spread_heads(sglir_rewrite *rewrite, const sglir_node *node, sglir_id *args, sglir_id *results)
{
    sglir_graph *to = rewrite->to;
    int64_t heads = sglir_type_of(rewrite->from, sglir_arg(rewrite->from, node, 0))->dims[2];
    int64_t keys = sglir_type_of(rewrite->from, sglir_arg(rewrite->from, node, 1))->dims[2];
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(rewrite->from, node, named);
    args[1] = repeat_heads(to, args[1], heads);
    args[2] = repeat_heads(to, args[2], heads);
    sglir_emit(to, (sglir_op)node->op, args, (int)node->arg_count, named, count, results);
    for (int r = 1; r < 3 && node->op == SGLIR_OP_ATTENTION_GRAD; r++) results[r] = join_heads(to, results[r], keys);
}

static bool is_taken_apart(const sglplan *plan, const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_MEAN) return true;
    if (node->op == SGLIR_OP_LINEAR && node->arg_count == 3) return is_split_along(plan, g, sglir_arg(g, node, 1), 1);
    return is_split_loss(plan, g, node) || is_uneven_attention(plan, g, node);
}

static bool take_apart(sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    sglir_id args[16], results[8];
    if (!is_taken_apart(rewrite->user, rewrite->from, node)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = rewrite->map[sglir_arg(rewrite->from, node, i)];
    sglir_set_origin_of(rewrite->to, &rewrite->from->origins.data[node->origin], rewrite->from);
    if (node->op == SGLIR_OP_LINEAR) {
        sglir_id product = sglir_emit(rewrite->to, SGLIR_OP_LINEAR, args, 2, NULL, 0, NULL);
        results[0] = sglir_add(rewrite->to, product, sglir_broadcast_like(rewrite->to, args[2], product));
    } else if (node->op == SGLIR_OP_ATTENTION || node->op == SGLIR_OP_ATTENTION_GRAD) {
        spread_heads(rewrite, node, args, results);
    } else {
        sglir_compose_rule((sglir_op)node->op)(rewrite->to, rewrite->from, node, args, results);
    }
    if (node->op == SGLIR_OP_MEAN && sglcore_is_broken(SGLCORE_BREAK_DIVIDE_ONCE))
        results[0] = sglir_scale(rewrite->to, results[0], (double)sglplan_group_size(rewrite->user, SGLPLAN_DATA_AXES));
    for (uint32_t r = 0; r < node->out_count; r++) rewrite->map[node->out_first + r] = results[r];
    return true;
}

static bool has_more(const sglplan *plan, const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (is_taken_apart(plan, g, &g->nodes.data[n])) return true;
    }
    return false;
}

sgl_status sglpass_take_apart(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglplan plan = *context->plan;
    sglir_graph *now = NULL;
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "shard", take_apart, &plan, &now));
    while (has_more(&plan, now)) { /* of what composites are made there may be composites */
        sglir_graph *next = NULL;
        sgl_status status = sglir_rewrite_graph(context->env, now, "shard", take_apart, &plan, &next);
        sglir_graph_free(now);
        if (status != SGL_OK) return status;
        now = next;
    }
    sgl_status status = sglpass_open_packs(context, now, out);
    sglir_graph_free(now);
    return status;
}

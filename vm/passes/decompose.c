/* decompose.c -- composites that the device does not run whole become primitives.
 *
 * In: a graph, and the plan's word on which composites are native. Out: a graph of primitives and native composites.
 * mean, matmul and linear always go: they are other names for a sum and a product, which every device has. So does an unpack
 * some part of which begins within a byte (of i4): later passes take each unpack for views of its argument's bytes. Odd
 * invariant: a decomposition may hold composites itself, so rounds follow until one finds nothing to do. */
#include "passes/pass.h"

enum {
    ROUNDS_AT_MOST = 16
}; /* decompositions within decompositions; the table has no row that needs more than three */

typedef struct round_state {
    const sglplan *plan;
    bool changed;
} round_state;

static bool must_go(const sglplan *plan, sglir_op op)
{
    if (sglir_compose_rule(op) == NULL) return false;
    return op == SGLIR_OP_MEAN || op == SGLIR_OP_MATMUL || op == SGLIR_OP_LINEAR || !plan->native[op];
}

/* Whether each part begins at a byte of its own. */
static bool parts_have_bytes(const sglir_graph *g, const sglir_node *unpack)
{
    int64_t bits = 0;
    for (uint32_t k = 0; k < unpack->out_count; k++) {
        const sglir_type *part = sglir_type_of(g, unpack->out_first + k);
        if (bits % 8 != 0) return false;
        bits += sglir_elements(part) * sglcore_dtype_bits((sgl_dtype)part->dtype);
    }
    return true;
}

static void slice_parts(sglir_rewrite *rewrite, const sglir_node *unpack)
{
    sglir_graph *g = rewrite->to;
    sglir_id whole = rewrite->map[sglir_arg(rewrite->from, unpack, 0)];
    int64_t start = 0;
    for (uint32_t k = 0; k < unpack->out_count; k++) {
        const sglir_type *part = sglir_type_of(rewrite->from, unpack->out_first + k);
        int64_t stop = start + sglir_elements(part);
        sglir_id run = sglir_slice(g, whole, 0, start, stop);
        rewrite->map[unpack->out_first + k] = sglir_reshape(g, run, part->rank, part->dims);
        start = stop;
    }
}

/* A decomposition that yields another type would be found late and far from here. */
static void check_results(sglir_rewrite *rewrite, const sglir_node *node)
{
    sglir_graph *g = rewrite->to;
    for (uint32_t k = 0; k < node->out_count && g->status == SGL_OK; k++) {
        sglir_id made = rewrite->map[node->out_first + k];
        const sglir_type *want = sglir_type_of(rewrite->from, node->out_first + k);
        char want_text[SGLIR_TYPE_ROOM], got_text[SGLIR_TYPE_ROOM];
        if (sglir_type_equal(sglir_type_of(g, made), want)) continue;
        sglir_stick(g, sglcore_fail(g->env, SGL_INTERNAL, "%s: its decomposition yields %s, and must yield %s",
                                    sglir_ops[node->op].name,
                                    sglir_type_text(sglir_type_of(g, made), got_text, sizeof got_text),
                                    sglir_type_text(want, want_text, sizeof want_text)));
    }
}

static bool rule_decompose(sglir_rewrite *rewrite, sglir_id id)
{
    round_state *state = rewrite->user;
    sglir_graph *g = rewrite->to;
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if (node->op == SGLIR_OP_UNPACK && !parts_have_bytes(rewrite->from, node)) {
        int64_t before = g->nodes.count;
        slice_parts(rewrite, node);
        sglir_keep_apart(g, before, node);
        state->changed = true;
        return true;
    }
    if (!must_go(state->plan, (sglir_op)node->op)) return false;
    size_t bytes = node->arg_count * sizeof(sglir_id);
    sglir_id *args = sglcore_alloc(g->env, bytes);
    if (args == NULL && bytes > 0) {
        sglir_stick(g, SGL_OUT_OF_MEMORY);
        return true;
    }
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = rewrite->map[sglir_arg(rewrite->from, node, i)];
    int64_t before = g->nodes.count;
    sglir_compose_rule((sglir_op)node->op)(g, rewrite->from, node, args, rewrite->map + node->out_first);
    sglir_keep_apart(g, before, node);
    check_results(rewrite, node);
    sglcore_free(g->env, args, bytes);
    state->changed = true;
    return true;
}

sgl_status sglpass_decompose(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglir_graph *made = NULL;
    bool any = false;
    round_state state = { .plan = context->plan, .changed = true };
    *out = NULL;
    for (int round = 0; state.changed; round++) {
        sglir_graph *next = NULL;
        state.changed = false;
        sgl_status status =
            round < ROUNDS_AT_MOST
                ? sglir_rewrite_graph(context->env, made ? made : in, "decompose", rule_decompose, &state, &next)
                : sglcore_fail(context->env, SGL_INTERNAL, "decompose: composites hold themselves");
        sglir_graph_free(made);
        if (status != SGL_OK) return status;
        made = next;
        any = any || state.changed;
    }
    *out = made;
    sglpass_say(context, in, made, any);
    return SGL_OK;
}

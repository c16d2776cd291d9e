/* stages_cut.c -- where a forward is cut into chunks: between modules, where the plan's `cut` says so, else so that the
 * most loaded chunk has least to do.
 *
 * In: a graph, the number of chunks. Out: of each node its module, of each module its chunk. A module is the path of a
 * node's scope up to the first number in it ("blocks.3" of "blocks.3.attn"), the first name where there is none;
 * modules stand in the order in which the forward meets them. What stands in a loop and in no module is weighed with
 * the one before it. Odd invariant: a module weighs what its forward and its backward cost, as both stand on one stage. */
#include <ctype.h>
#include <string.h>

#include "passes/stages.h"
#include "plan/layout.h"

static size_t module_length(const char *scope)
{
    const char *first = strchr(scope, '.');
    for (const char *at = scope;;) {
        size_t length = strcspn(at, ".");
        if (length > 0 && strspn(at, "0123456789") == length) return (size_t)(at - scope) + length;
        if (at[length] == '\0') break;
        at += length + 1;
    }
    return first ? (size_t)(first - scope) : strlen(scope);
}

static const char *scope_of(const sglir_graph *g, const sglir_node *node)
{
    return sglcore_string(g->strings, g->origins.data[node->origin].scope);
}

/* Arithmetic, and bytes as so much arithmetic: what matters is that neither products nor norms count nothing. */
static double weight_of(const sglir_graph *g, sglir_id node)
{
    const sglplan_cost cost = sglplan_cost_of(g, node);
    return cost.flops + 8 * cost.transcendentals + 8 * cost.bytes;
}

typedef struct modules {
    SGLCORE_VEC(const char *) names; /* each the start of a scope */
    SGLCORE_VEC(double) weights;
} modules;

static int32_t find_module(const modules *m, const char *scope, size_t length)
{
    for (int64_t i = 0; i < m->names.count; i++) {
        if (module_length(m->names.data[i]) == length && strncmp(m->names.data[i], scope, length) == 0)
            return (int32_t)i + 1;
    }
    return 0;
}

/* Whether the forward comes by there: constants, and what else is made once for all micro-batches, stand before the loops in an order
 * of their own. */
static bool is_on_the_way(const sglpass_stages *s, const sglir_node *node)
{
    bool looped = s->micro > 1;
    return node->op != SGLIR_OP_INPUT && !(sglir_ops[node->op].flags & SGLIR_GENERATOR) &&
           looped == (node->region != 0);
}

static sgl_status find_modules(sglpass_stages *s, modules *m)
{
    const sglir_graph *g = s->from;
    for (int backward = 0; backward < 2; backward++) {
        for (int64_t n = 0; n < g->nodes.count; n++) {
            const sglir_node *node = &g->nodes.data[n];
            const char *scope = scope_of(g, node);
            size_t length = module_length(scope);
            if (node->op == SGLIR_OP_INPUT || sglir_is_made_by(g, node, "autodiff") != (backward == 1)) continue;
            s->module[n] = length > 0 ? find_module(m, scope, length) : 0;
            if (s->module[n] > 0 || length == 0 || backward || !is_on_the_way(s, node)) continue;
            SGLCORE_TRY(sglcore_vec_push(s->env, &m->names, scope));
            SGLCORE_TRY(sglcore_vec_push(s->env, &m->weights, 0.0));
            s->module[n] = (int32_t)m->names.count;
        }
    }
    return SGL_OK;
}

/* By the graph of rank 0 where ranks have uneven parts, since all must cut alike. Nodes that hold regions weigh what their regions do,
 * node by node. */
static void weigh_modules(const sglpass_stages *s, modules *m)
{
    const sglir_graph *g = s->context->first ? s->context->first : s->from;
    int32_t last = 0;
    for (int backward = 0; backward < 2; backward++) {
        for (int64_t n = 0; n < g->nodes.count; n++) {
            const sglir_node *node = &g->nodes.data[n];
            if (node->op == SGLIR_OP_INPUT || sglir_is_made_by(g, node, "autodiff") != (backward == 1)) continue;
            const char *scope = scope_of(g, node);
            const size_t length = module_length(scope);
            const int32_t module = length > 0 ? find_module(m, scope, length) : 0;
            if (module > 0) last = module;
            bool counts = module > 0 || node->region != 0; /* not an optimizer's, which is of no module */
            if (last > 0 && counts && node->region_count == 0) m->weights.data[last - 1] += weight_of(g, (sglir_id)n);
        }
    }
}

/* least[k * count + i]: of modules 0 .. i over k + 1 chunks the largest weight of a chunk, where that is least; from: where the last
 * of these chunks begins. */
static sgl_status balance(sglpass_stages *s, const modules *m)
{
    int64_t count = m->names.count, cells = count * s->chunks;
    double *least = sglcore_arena_alloc(&s->arena, (size_t)cells * sizeof *least);
    int32_t *from = sglcore_arena_alloc(&s->arena, (size_t)cells * sizeof *from);
    if (!least || !from) return SGL_OUT_OF_MEMORY;
    for (int k = 0; k < s->chunks; k++) {
        for (int64_t i = k; i < count; i++) {
            double last = 0, best = -1;
            for (int64_t j = i; j >= k; j--) {
                last += m->weights.data[j];
                if (k == 0 && j > 0) continue;
                double before = k == 0 ? 0 : least[(k - 1) * count + j - 1], most = before > last ? before : last;
                if (best >= 0 && most >= best) continue;
                best = most;
                from[k * count + i] = (int32_t)j;
            }
            least[k * count + i] = best;
        }
    }
    for (int64_t k = s->chunks - 1, i = count - 1; k >= 0; k--) {
        int64_t begin = from[k * count + i];
        for (; i >= begin; i--) s->cut[i] = (int32_t)k;
    }
    return SGL_OK;
}

/* The last home of what a module reads, directly or cast: homes as many as modules, FREE where it reads nothing that has one. */
static sgl_status find_homes(sglpass_stages *s, int32_t *homes, bool *any)
{
    const sglir_graph *g = s->from;
    int32_t *reach = sglcore_arena_alloc(&s->arena, (size_t)g->values.count * sizeof *reach);
    if (!reach) return SGL_OUT_OF_MEMORY;
    for (int64_t v = 0; v < g->values.count; v++) reach[v] = SGLPASS_STAGES_FREE;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        int64_t last = SGLPASS_STAGES_FREE;
        if (sglir_is_made_by(g, node, "autodiff")) continue;
        if (node->op == SGLIR_OP_INPUT) (void)sglpass_stages_known_home(s, sglir_attr_string(g, node, "name"), &last);
        for (uint32_t i = 0; i < node->arg_count; i++)
            if (reach[sglir_arg(g, node, i)] > last) last = reach[sglir_arg(g, node, i)];
        if (last < 0) continue;
        *any = true;
        if (s->module[n] > 0 && homes[s->module[n] - 1] < last) homes[s->module[n] - 1] = (int32_t)last;
        for (uint32_t r = 0; r < node->out_count && s->module[n] == 0; r++) reach[node->out_first + r] = (int32_t)last;
    }
    return SGL_OK;
}

/* Modules stand with their states where the session has these, in the next chunk of that stage, but never before the module before
 * them. */
static sgl_status follow_homes(sglpass_stages *s, int64_t count, bool *any)
{
    int32_t *homes = sglcore_arena_alloc(&s->arena, (size_t)count * sizeof *homes);
    if (!homes) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++) homes[i] = SGLPASS_STAGES_FREE;
    SGLCORE_TRY(find_homes(s, homes, any));
    for (int64_t i = 0; i < count; i++) {
        int32_t before = i > 0 ? s->cut[i - 1] : 0, chunk = before;
        while (chunk < s->chunks && homes[i] != SGLPASS_STAGES_FREE && chunk % s->stages != homes[i]) chunk++;
        s->cut[i] = chunk < s->chunks ? chunk : before;
    }
    return SGL_OK;
}

/* ---- as the plan says ---------------------------------------------------------------------------------------------------------- */

static sgl_status list_modules(const sglpass_stages *s, const modules *m, const uint8_t *marks, sglcore_text *text)
{
    for (int64_t i = 0; i < m->names.count; i++) {
        if (marks && !marks[i]) continue;
        SGLCORE_TRY(sglcore_text_add(s->env, text, "%s%.*s", text->count > 0 ? ", " : "",
                                     (int)module_length(m->names.data[i]), m->names.data[i]));
    }
    return SGL_OK;
}

static sgl_status fail_unknown(const sglpass_stages *s, const modules *m, const char *pattern, size_t length)
{
    sglcore_text text = { 0 };
    sgl_status status = list_modules(s, m, NULL, &text);
    if (status == SGL_OK)
        status = sglcore_fail(s->env, SGL_INVALID_ARGUMENT,
                              "plan: cut: '%.*s' is no module of the forward of \"%s\", which has %s", (int)length,
                              pattern, sglcore_string(s->from->strings, s->from->name), text.data);
    sglcore_text_free(s->env, &text);
    return status;
}

static sgl_status fail_number(const sglpass_stages *s, const modules *m, const uint8_t *begins, int count)
{
    sglcore_text text = { 0 };
    sgl_status status = list_modules(s, m, begins, &text);
    if (status == SGL_OK)
        status = sglcore_fail(s->env, SGL_INVALID_ARGUMENT,
                              "plan: cut makes %d chunks, which begin with %s, and pp = %d stages of %d have %d", count,
                              text.data, s->stages, s->chunks / s->stages, s->chunks);
    sglcore_text_free(s->env, &text);
    return status;
}

/* A chunk begins with each module that a pattern fits; the first one with the first module, named or not. */
static sgl_status cut_as_said(sglpass_stages *s, const modules *m)
{
    uint8_t *begins = sglcore_arena_alloc(&s->arena, (size_t)m->names.count);
    if (!begins) return SGL_OUT_OF_MEMORY;
    begins[0] = 1;
    const char *at = s->context->plan->cut;
    for (at += strspn(at, ", "); *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        bool fits = false;
        for (int64_t i = 0; i < m->names.count; i++) {
            const char *name = m->names.data[i];
            if (!sglplan_pattern_fits(at, length, name, module_length(name))) continue;
            begins[i] = 1;
            fits = true;
        }
        if (!fits) return fail_unknown(s, m, at, length);
        at += length;
    }
    int32_t count = 0;
    for (int64_t i = 0; i < m->names.count; i++) s->cut[i] = (count += begins[i]) - 1;
    return count == s->chunks ? SGL_OK : fail_number(s, m, begins, count);
}

/* ---- the call ------------------------------------------------------------------------------------------------------------------- */

static sgl_status fail_few(const sglpass_stages *s, int64_t count)
{
    const char *name = sglcore_string(s->from->strings, s->from->name);
    if (s->chunks == s->stages)
        return sglcore_fail(
            s->env, SGL_INVALID_ARGUMENT,
            "plan: pp = %d stages, and the forward of \"%s\" has %lld modules to cut between; take fewer stages",
            s->stages, name, (long long)count);
    return sglcore_fail(s->env, SGL_INVALID_ARGUMENT,
                        "plan: pp = %d stages of chunks = %d are %d, and the forward of \"%s\" has %lld modules to cut "
                        "between; take fewer",
                        s->stages, s->chunks / s->stages, s->chunks, name, (long long)count);
}

static sgl_status cut_between(sglpass_stages *s, const modules *m)
{
    bool known = false;
    s->cut = sglcore_arena_alloc(&s->arena, (size_t)m->names.count * sizeof *s->cut);
    if (!s->cut) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(follow_homes(s, m->names.count, &known));
    if (known) return SGL_OK;
    if (m->names.count < s->chunks) return fail_few(s, m->names.count);
    return s->context->plan->cut[0] != '\0' ? cut_as_said(s, m) : balance(s, m);
}

sgl_status sglpass_stages_cut(sglpass_stages *s, bool *any)
{
    modules m = { 0 };
    sgl_status status = find_modules(s, &m);
    if (status == SGL_OK) weigh_modules(s, &m);
    *any = m.names.count > 0;
    if (status == SGL_OK && *any) status = cut_between(s, &m);
    sglcore_vec_free(s->env, &m.names);
    sglcore_vec_free(s->env, &m.weights);
    return status;
}

/* shard_lay.c -- activations between modules as the plan's field `activations` wants them, before a step is laid out.
 *
 * In: the whole graph; patterns of module paths, and dimensions over axes. Out: the same with `laid_out` nodes on what
 * a module of such a path gives to others, and on what others give it of the same shape and dtype: the stream that goes
 * through blocks, forward and backward, and what is added to it. What has fewer elements along the dimension than the
 * axis has ranks stays as it is: a decode step has one. Odd invariant: a module is told by the scopes of nodes alone,
 * so parameters are of none. */
#include <string.h>

#include "passes/shard_apart.h"
#include "plan/layout.h"

/* A module that a pattern fits: its path is the first `length` characters of a scope. */
typedef struct home {
    const char *path;
    size_t length; /* 0: no module of a pattern */
    int8_t at[SGLIR_AXIS_COUNT];
    uint64_t named; /* the entries that fit it */
} home;

typedef struct layer {
    const sglpass_context *context;
    const sglir_graph *g;
    int8_t *wanted;                /* SGLIR_AXIS_COUNT per value: the dimension that is to be split, -1: none */
    SGLCORE_VEC(sglir_type) given; /* what modules give others */
    uint64_t named;
    /* By axis: entries of modules that give others something, and of those that give something with the dimension. */
    uint64_t gives[SGLIR_AXIS_COUNT], has[SGLIR_AXIS_COUNT];
    int8_t most[SGLIR_AXIS_COUNT], lacks[SGLIR_AXIS_COUNT]; /* dimensions of what is given; the one that is not there */
} layer;

static home home_of(layer *l, const sglir_node *node)
{
    home h = { .path = "" };
    if (node->op == SGLIR_OP_INPUT) return h;
    h.path = sglcore_string(l->g->strings, l->g->origins.data[node->origin].scope);
    for (const char *end = h.path; *end != '\0' && h.length == 0;) {
        end += strcspn(end, ".");
        sglplan_activations_of(l->context->plan, h.path, (size_t)(end - h.path), h.at, &h.named);
        if (h.named) h.length = (size_t)(end - h.path);
        l->named |= h.named;
        end += *end == '.';
    }
    return h;
}

static bool same_home(const home *a, const home *b)
{
    return a->length == b->length && memcmp(a->path, b->path, a->length) == 0;
}

static bool may_be_laid(const layer *l, const home *h, const sglir_type *type)
{
    bool any = false;
    if (!sglcore_dtype_is_float((sgl_dtype)type->dtype)) return false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int64_t ranks = l->context->plan->mesh[axis];
        if (axis == SGLIR_AXIS_MICRO || ranks == 1 || h->at[axis] < 0) continue;
        if (h->at[axis] >= type->rank || type->dims[h->at[axis]] < ranks) return false;
        any = true;
    }
    return any;
}

static void note_dims(layer *l, const home *h, const sglir_type *type)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (h->at[axis] < 0) continue;
        l->gives[axis] |= h->named;
        if (h->at[axis] < type->rank) {
            l->has[axis] |= h->named;
        } else {
            l->lacks[axis] = h->at[axis];
            if (type->rank > l->most[axis]) l->most[axis] = (int8_t)type->rank;
        }
    }
}

static bool is_given(const layer *l, const sglir_type *type)
{
    for (int64_t i = 0; i < l->given.count; i++) {
        if (sglir_type_equal(&l->given.data[i], type)) return true;
    }
    return false;
}

/* What goes from one module to another. first: only what modules give in the forward is looked at, and its types kept. */
static sgl_status cross(layer *l, sglir_id value, const home *user, bool first)
{
    const sglir_node *maker = sglir_maker(l->g, value);
    const sglir_type *type = sglir_type_of(l->g, value);
    if (!maker || sglir_is_control(maker) || maker->op == SGLIR_OP_INPUT) return SGL_OK;
    home from = home_of(l, maker);
    if (same_home(&from, user)) return SGL_OK;
    if (!first) {
        const home *says = from.length > 0 ? &from : user;
        if (may_be_laid(l, says, type) && is_given(l, type))
            memcpy(&l->wanted[(int64_t)value * SGLIR_AXIS_COUNT], says->at, sizeof says->at);
        return SGL_OK;
    }
    bool gives = from.length > 0 && !sglir_is_made_by(l->g, maker, "autodiff");
    if (gives && sglcore_dtype_is_float((sgl_dtype)type->dtype)) note_dims(l, &from, type);
    gives = gives && may_be_laid(l, &from, type);
    return gives && !is_given(l, type) ? sglcore_vec_push(l->context->env, &l->given, *type) : SGL_OK;
}

static sgl_status cross_all(layer *l, bool first)
{
    for (int64_t n = 0; n < l->g->nodes.count; n++) {
        const sglir_node *node = &l->g->nodes.data[n];
        const home user = home_of(l, node);
        for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(cross(l, sglir_arg(l->g, node, i), &user, first));
    }
    return SGL_OK;
}

static bool lay(sglir_rewrite *rewrite, sglir_id id)
{
    const layer *l = rewrite->user;
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    bool copied = false;
    for (uint32_t r = 0; r < node->out_count; r++) {
        int64_t split[SGLIR_AXIS_COUNT];
        bool any = false;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
            split[axis] = l->wanted[(int64_t)(node->out_first + r) * SGLIR_AXIS_COUNT + axis];
            any = any || split[axis] >= 0;
        }
        if (!any) continue;
        if (!copied) sglir_copy_node(rewrite, id);
        copied = true;
        if (rewrite->to->status != SGL_OK) return true;
        const sglir_named attr = SGLIR_INTS("split", SGLIR_AXIS_COUNT, split);
        sglir_id *made = &rewrite->map[node->out_first + r];
        sglir_set_origin_made(rewrite->to, rewrite->from, id, rewrite->pass);
        *made = sglir_emit(rewrite->to, SGLIR_OP_LAID_OUT, made, 1, &attr, 1, NULL);
    }
    return copied;
}

/* A dimension over ranks that nothing these modules give has; of which entry the last says it. */
static sgl_status check_dims(const layer *l, int entry, const char *pattern, size_t length)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const long long ranks = l->context->plan->mesh[axis];
        if (axis == SGLIR_AXIS_MICRO || ranks == 1 || ((l->gives[axis] & ~l->has[axis]) >> entry & 1) == 0) continue;
        return sglcore_fail(l->context->env, SGL_INVALID_ARGUMENT,
                            "plan: activations: '%.*s' splits dimension %d over %s=%lld, and what these modules give "
                            "others has %d at the most, counted from 0",
                            (int)length, pattern, l->lacks[axis], sglir_axis_name(axis), ranks, l->most[axis]);
    }
    return SGL_OK;
}

/* A pattern that fits no module is nearly always a misspelling; graphs that do not learn may lack some. */
static sgl_status check_named(const layer *l)
{
    const char *pattern;
    size_t length;
    if (!sglpass_learns(l->g)) return SGL_OK;
    for (int i = 0; sglplan_layout_entry(l->context->plan->activations, i, &pattern, &length); i++) {
        SGLCORE_TRY(check_dims(l, i, pattern, length));
        if (l->named >> i & 1) continue;
        return sglcore_fail(l->context->env, SGL_INVALID_ARGUMENT,
                            "plan: activations: '%.*s' is the path of no module; `sgl graph` shows them behind `scope`",
                            (int)length, pattern);
    }
    return SGL_OK;
}

sgl_status sglpass_lay_activations(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglcore_env *env = context->env;
    const size_t bytes = (size_t)in->values.count * SGLIR_AXIS_COUNT;
    layer l = { .context = context, .g = in, .wanted = sglcore_alloc(env, bytes) };
    *out = NULL;
    if (!l.wanted && bytes > 0) return SGL_OUT_OF_MEMORY;
    if (bytes > 0) memset(l.wanted, -1, bytes);
    sgl_status status = cross_all(&l, true);
    if (status == SGL_OK) status = check_named(&l);
    if (status == SGL_OK) status = cross_all(&l, false);
    if (status == SGL_OK) status = sglir_rewrite_graph(env, in, "shard", lay, &l, out);
    sglcore_free(env, l.wanted, bytes);
    sglcore_vec_free(env, &l.given);
    return status;
}

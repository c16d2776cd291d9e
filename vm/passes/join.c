/* join.c -- a product and the bias that is added to it become one node, where the device runs that whole.
 *
 * In: a graph of primitives and native composites. Out: the same, in which dot(x, weight) + bias of narrow floats, the
 * product used nowhere else, is linear(x, weight, bias) again: the device adds the bias to its f32 sums and rounds once,
 * where product and sum round twice, and no kernel walks the result for the bias alone. So it is where the sum goes into no
 * kernel: one that reads it adds the bias for nothing, while a product with a bias takes 4 to 19% longer (H200). Wider floats
 * stay as they are: their products take so long that a bias costs nothing beside them. Narrow casts of parts of one
 * section that no kernel would do on its way, small weights and such biases, are one cast, of which each is a view: of GPT-2 72
 * kernels of 3 us. Odd invariant: what is taken depends on types and uses alone, and extents are multiples of 8, so that a
 * device that says it runs linear need not run it for rows that begin anywhere. */
#include <stdlib.h>

#include "passes/pass.h"

enum {
    UNIT = 8,                 /* elements: 16 bytes of narrow floats */
    VIEW_UNIT = 32,           /* where views of one cast begin: multiples of the 64 bytes at which values do */
    MOST_CAST_BYTES = 8 << 20 /* of a parameter that is cast with others: of more a kernel of its own is long enough */
};

typedef struct join {
    sglcore_env *env;
    const sglir_graph *g; /* that came in */
    uint32_t *uses;       /* per value */
    uint8_t *in_kernel;   /* per value: a kernel may read it */
    uint8_t *dropped;     /* per node: it became part of another */
    sglir_id *dot;        /* per node: of an ADD that becomes a linear its product, else SGLIR_NONE */
    uint32_t *cast;       /* per node: of a CAST that goes with others 1 + its place in `casts`, else 0 */
    SGLCORE_VEC(sglir_id) casts;
    bool changed;
} join;

/* ---- who reads what ---------------------------------------------------------------------------------------------- */

/* By way of reshapes too, which are no kernels; users stand behind what they use. */
static void find_readers(join *j)
{
    const uint32_t fuses = SGLIR_ELEMENTWISE | SGLIR_REDUCTION | SGLIR_MOVEMENT;
    for (int64_t n = j->g->nodes.count - 1; n >= 0; n--) {
        const sglir_node *node = sglir_node_at(j->g, (sglir_id)n);
        const bool reshape = node->op == SGLIR_OP_RESHAPE;
        if (reshape ? !j->in_kernel[node->out_first] : (sglir_ops[node->op].flags & fuses) == 0) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) j->in_kernel[sglir_arg(j->g, node, i)] = 1;
    }
}

/* ---- what is taken ----------------------------------------------------------------------------------------------- */

static bool is_narrow(const sglir_type *type) { return type->dtype == SGL_BF16 || type->dtype == SGL_F16; }

/* only: the one dimension in the list; -1: none. */
static bool is_list(const sglir_graph *g, const sglir_node *node, const char *name, int64_t only)
{
    int count;
    const int64_t *list = sglir_attr_ints(g, node, name, &count);
    return only < 0 ? count == 0 : count == 1 && list[0] == only;
}

/* x [..., in] with weight [out, in] over their last dimensions, in whole runs of 16 bytes. */
static bool is_linear(const sglir_graph *g, const sglir_node *dot)
{
    if (dot == NULL || dot->op != SGLIR_OP_DOT || sglir_attr_int(g, dot, "wide")) return false;
    const sglir_type *x = sglir_type_of(g, sglir_arg(g, dot, 0)), *weight = sglir_type_of(g, sglir_arg(g, dot, 1));
    if (!is_narrow(x) || weight->rank != 2 || x->rank < 1) return false;
    if (!is_list(g, dot, "batch_a", -1) || !is_list(g, dot, "contract_a", x->rank - 1)) return false;
    if (!is_list(g, dot, "contract_b", 1) || sglir_elements(x) == 0) return false;
    return weight->dims[0] > 0 && weight->dims[0] % UNIT == 0 && weight->dims[1] > 0 && weight->dims[1] % UNIT == 0;
}

/* One number per feature, the same for all rows. */
static bool is_bias(const sglir_graph *g, sglir_id value, int64_t features)
{
    const sglir_node *broadcast = sglir_maker(g, value);
    if (broadcast == NULL || broadcast->op != SGLIR_OP_BROADCAST) return false;
    const sglir_type *bias = sglir_type_of(g, sglir_arg(g, broadcast, 0));
    return bias->rank == 1 && bias->dims[0] == features;
}

static sglir_id bias_of(const sglir_graph *g, sglir_id broadcast) { return sglir_arg(g, sglir_maker(g, broadcast), 0); }

/* The same on every rank: what is packed of several is no part of anything. */
static bool is_whole(const sglir_type *type)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] >= 0) return false;
    }
    return type->partial == 0 && type->scaled == 0;
}

/* A part of a section, cast; not of what is gathered of ranks, which has its own time. */
static bool is_cast_part(const sglir_graph *g, const sglir_node *cast)
{
    if (cast == NULL || cast->op != SGLIR_OP_CAST) return false;
    const sglir_node *unpack = sglir_maker(g, sglir_arg(g, cast, 0));
    if (unpack == NULL || unpack->op != SGLIR_OP_UNPACK || unpack->region != cast->region) return false;
    const sglir_node *section = sglir_maker(g, sglir_arg(g, unpack, 0));
    const sglir_type *type = sglir_type_of(g, cast->out_first);
    return section != NULL && section->op == SGLIR_OP_INPUT && is_whole(type) && is_narrow(type) &&
           sglir_elements(type) % VIEW_UNIT == 0;
}

static sgl_status note_cast(join *j, sglir_id id)
{
    if (j->cast[id]) return SGL_OK;
    j->cast[id] = (uint32_t)j->casts.count + 1;
    return sglcore_vec_push(j->env, &j->casts, id);
}

/* Notes a cast that goes with others: of a bias that a product takes; of a parameter that no kernel reads. */
static sgl_status look_at_bias(join *j, sglir_id bias)
{
    return is_cast_part(j->g, sglir_maker(j->g, bias)) ? note_cast(j, sglir_value_at(j->g, bias)->node) : SGL_OK;
}
static sgl_status look_at_cast(join *j, sglir_id id)
{
    const sglir_node *cast = sglir_node_at(j->g, id);
    if (cast->op != SGLIR_OP_CAST || j->in_kernel[cast->out_first] || !is_cast_part(j->g, cast)) return SGL_OK;
    const sglir_type *type = sglir_type_of(j->g, cast->out_first);
    return sglir_bytes(type) <= MOST_CAST_BYTES ? note_cast(j, id) : SGL_OK;
}

/* Notes what becomes of the sum, and what goes with it. */
static sgl_status look_at(join *j, sglir_id id)
{
    const sglir_graph *g = j->g;
    const sglir_node *add = sglir_node_at(g, id);
    if (add->op != SGLIR_OP_ADD || j->in_kernel[add->out_first]) return SGL_OK;
    for (uint32_t i = 0; i < 2; i++) {
        const sglir_id product = sglir_arg(g, add, i), bias = sglir_arg(g, add, 1 - i);
        const sglir_node *dot = sglir_maker(g, product);
        if (!is_linear(g, dot) || j->uses[product] != 1 || dot->region != add->region) continue;
        if (!sglir_type_equal(sglir_type_of(g, product), sglir_type_of(g, add->out_first))) continue;
        if (!is_bias(g, bias, sglir_type_of(g, sglir_arg(g, dot, 1))->dims[0])) continue;
        j->dot[id] = sglir_value_at(g, product)->node;
        j->dropped[j->dot[id]] = 1;
        j->changed = true;
        return look_at_bias(j, bias_of(g, bias));
    }
    return SGL_OK;
}

/* Casts of parts of one section, alike in all else. */
static bool go_together(const sglir_graph *g, const sglir_node *a, const sglir_node *b)
{
    const sglir_type *of_a = sglir_type_of(g, a->out_first), *of_b = sglir_type_of(g, b->out_first);
    return sglir_maker(g, sglir_arg(g, a, 0)) == sglir_maker(g, sglir_arg(g, b, 0)) && of_a->dtype == of_b->dtype &&
           a->epoch == b->epoch && a->turn == b->turn;
}

static int by_number(const void *a, const void *b)
{
    const sglir_id x = *(const sglir_id *)a, y = *(const sglir_id *)b;
    return x < y ? -1 : x > y;
}

/* One that has no other to go with stays a cast. The rest in the order of nodes, which is that of their numbers: the first that
 * is met makes them all. */
static void settle_casts(join *j)
{
    int64_t kept = 0;
    const int64_t count = j->casts.count;
    sglir_id *casts = j->casts.data;
    if (count > 0) qsort(casts, (size_t)count, sizeof *casts, by_number);
    for (int64_t i = 0; i < count; i++) {
        bool alone = true;
        for (int64_t k = 0; k < count && alone; k++)
            alone = k == i || !go_together(j->g, sglir_node_at(j->g, casts[i]), sglir_node_at(j->g, casts[k]));
        j->cast[casts[i]] = alone ? 0 : 1;
    }
    for (int64_t i = 0; i < count; i++) {
        if (j->cast[casts[i]] == 0) continue;
        casts[kept++] = casts[i];
        j->cast[casts[i]] = (uint32_t)kept;
    }
    j->casts.count = kept;
    j->changed = j->changed || kept > 0;
}

/* ---- what is made ------------------------------------------------------------------------------------------------- */

static void make_linear(sglir_rewrite *rewrite, const join *j, sglir_id id)
{
    const sglir_graph *from = rewrite->from;
    const sglir_node *add = sglir_node_at(from, id), *dot = sglir_node_at(from, j->dot[id]);
    const uint32_t other = sglir_arg(from, add, 0) == dot->out_first ? 1 : 0;
    const sglir_id args[] = { rewrite->map[sglir_arg(from, dot, 0)], rewrite->map[sglir_arg(from, dot, 1)],
                              rewrite->map[bias_of(from, sglir_arg(from, add, other))] };
    const int64_t before = rewrite->to->nodes.count;
    sglir_emit(rewrite->to, SGLIR_OP_LINEAR, args, 3, NULL, 0, &rewrite->map[add->out_first]);
    sglir_keep_apart(rewrite->to, before, add);
}

typedef struct bundle {
    SGLCORE_VEC(sglir_id) casts, parts; /* of the old graph; their arguments in the new one */
    SGLCORE_VEC(int64_t) ranks, dims;
} bundle;

/* Those from this one on that go with it. */
static sgl_status collect(const join *j, const sglir_rewrite *rewrite, sglir_id first, bundle *b)
{
    const sglir_graph *g = j->g;
    for (int64_t i = j->cast[first] - 1; i < j->casts.count; i++) {
        const sglir_id id = j->casts.data[i];
        const sglir_node *cast = sglir_node_at(g, id);
        if (!go_together(g, sglir_node_at(g, first), cast)) continue;
        SGLCORE_TRY(sglcore_vec_push(j->env, &b->casts, id));
        SGLCORE_TRY(sglcore_vec_push(j->env, &b->parts, rewrite->map[sglir_arg(g, cast, 0)]));
        const sglir_type *type = sglir_type_of(g, cast->out_first);
        SGLCORE_TRY(sglcore_vec_push(j->env, &b->ranks, type->rank));
        for (int d = 0; d < type->rank; d++) SGLCORE_TRY(sglcore_vec_push(j->env, &b->dims, type->dims[d]));
    }
    return SGL_OK;
}

/* One cast of all of them, of which each is a view. */
static void make_casts(sglir_rewrite *rewrite, const join *j, sglir_id first)
{
    bundle b = { 0 };
    sglir_graph *to = rewrite->to;
    const sglir_node *cast = sglir_node_at(j->g, first);
    const int64_t before = to->nodes.count;
    sgl_status status = collect(j, rewrite, first, &b);
    if (status == SGL_OK) {
        const int count = (int)b.parts.count;
        sglir_id whole = sglir_emit(to, SGLIR_OP_PACK, b.parts.data, count, NULL, 0, NULL);
        whole = sglir_cast(to, whole, (sgl_dtype)sglir_type_of(j->g, cast->out_first)->dtype);
        const sglir_named attrs[] = { SGLIR_INTS("ranks", count, b.ranks.data),
                                      SGLIR_INTS("dims", b.dims.count, b.dims.data) };
        const sglir_id views = sglir_emit(to, SGLIR_OP_UNPACK, &whole, 1, attrs, 2, NULL);
        for (int i = 0; i < count && to->status == SGL_OK; i++)
            rewrite->map[sglir_node_at(j->g, b.casts.data[i])->out_first] = views + (sglir_id)i;
        sglir_keep_apart(to, before, cast);
    }
    sglir_stick(to, status);
    sglcore_vec_free(j->env, &b.casts);
    sglcore_vec_free(j->env, &b.parts);
    sglcore_vec_free(j->env, &b.ranks);
    sglcore_vec_free(j->env, &b.dims);
}

static bool rule_join(sglir_rewrite *rewrite, sglir_id id)
{
    const join *j = rewrite->user;
    if (j->dropped[id]) return true;
    if (j->cast[id]) {
        if (rewrite->map[sglir_node_at(j->g, id)->out_first] == SGLIR_NONE) make_casts(rewrite, j, id);
        return true;
    }
    if (j->dot[id] == SGLIR_NONE) return false;
    make_linear(rewrite, j, id);
    return true;
}

/* ---- the pass ----------------------------------------------------------------------------------------------------- */

static sgl_status run(const sglpass_context *context, join *j, sglir_graph **out)
{
    const int64_t nodes = j->g->nodes.count;
    const bool good = nodes == 0 || (j->uses && j->in_kernel && j->dropped && j->dot && j->cast);
    if (!good) return SGL_OUT_OF_MEMORY;
    sglir_count_uses(j->g, j->uses);
    find_readers(j);
    for (int64_t n = 0; n < nodes; n++) j->dot[n] = SGLIR_NONE;
    for (int64_t n = 0; n < nodes && context->plan->native[SGLIR_OP_LINEAR]; n++) {
        SGLCORE_TRY(look_at(j, (sglir_id)n));
        SGLCORE_TRY(look_at_cast(j, (sglir_id)n));
    }
    settle_casts(j);
    return sglir_rewrite_graph(context->env, j->g, "join", rule_join, j, out);
}

sgl_status sglpass_join(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    const size_t nodes = (size_t)in->nodes.count, values = (size_t)in->values.count;
    sglcore_env *env = context->env;
    join j = { .env = env,
               .g = in,
               .uses = sglcore_alloc_zero(env, values * sizeof *j.uses),
               .in_kernel = sglcore_alloc_zero(env, values),
               .dropped = sglcore_alloc_zero(env, nodes),
               .dot = sglcore_alloc(env, nodes * sizeof *j.dot),
               .cast = sglcore_alloc_zero(env, nodes * sizeof *j.cast) };
    *out = NULL;
    const sgl_status status = run(context, &j, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, j.changed);
    sglcore_free(env, j.uses, values * sizeof *j.uses);
    sglcore_free(env, j.in_kernel, values);
    sglcore_free(env, j.dropped, nodes);
    sglcore_free(env, j.dot, nodes * sizeof *j.dot);
    sglcore_free(env, j.cast, nodes * sizeof *j.cast);
    sglcore_vec_free(env, &j.casts);
    return status;
}

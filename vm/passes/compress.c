/* compress.c -- gradients that the plan's `compress` names are exchanged in fewer bytes, and what that loses is sent
 * later (error feedback; Seide et al., Interspeech 2014; Karimireddy et al., arXiv:1901.09847).
 *
 * In: the outer grads of a graph over the whole batch; plan->compress. Out: of each gradient g of a parameter w, over n
 * ranks,
 *   x = terms(g) + residual        [n, ...], each rank has its own place: what it would add to the sum
 *   q = encode(x)                  in blocks along the last dimension
 *   s = sum of decode(q)           q laid out so that each rank has all ranks' codes of its part, the sum in g's dtype, in order
 *   y = decode(encode(s))          gathered; where w's states are split over these axes each rank keeps its part of s
 *   residual' = x - decode(q), and s - y on the rank whose part it is
 * The residual is a state, "~residual/" and w's name. Which exchanges that takes is left to shard, as of everything; y
 * stands for g in all that used it. Odd invariant: on one rank nothing is lost: what is left of other ranks' residuals
 * is paid at once. */
#include <stdio.h>
#include <string.h>

#include "passes/codecs.h"
#include "passes/pass.h"
#include "passes/shard_apart.h"
#include "plan/compress.h"
#include "plan/layout.h"

typedef struct pending {
    sglir_id parameter; /* of the old graph */
    sglir_id value;     /* of the new one: its residual after the step */
} pending;

typedef struct compressor compressor;

/* One gradient on its way. A view is [ranks, rows..., blocks, block]; rows, or blocks, that other axes split may stand there as
 * two dimensions: the ranks along these axes, and what each of them has. */
typedef struct gradient {
    compressor *c;
    sglir_graph *to;
    const sglpass_codec *codec;
    sgl_dtype dtype;
    int rank, kept;                /* of the gradient (a number has 1); so many dimensions are rows */
    int64_t dims[SGL_MAX_RANK];    /* of the gradient */
    int64_t length, blocks, block; /* what is not rows: elements, and how they are cut */
    int part;                      /* dimension of the view along which ranks have their parts */
    int two;                       /* dimension, of rows and blocks, that stands there as two; -1: none */
    int64_t apart;                 /* the extent of the first one */
    bool stays;                    /* in parts, over the axes that `states` has */
    int8_t states[SGLIR_AXIS_COUNT];
    const char *name;              /* of its parameter */
    sglir_id parameter, *gradient; /* of the old graph; where the new one's stands */
    sglir_id view, lost, sum;      /* of x; of that what is lost; of all ranks, in parts */
    sglpass_codes codes;           /* on their way */
} gradient;

struct compressor {
    const sglpass_context *context;
    sglplan_axes axes;
    int64_t ranks;
    SGLCORE_VEC(gradient) gradients; /* of the grad at hand */
    SGLCORE_VEC(pending) residuals;
};

/* ---- how a gradient is cut --------------------------------------------------------------------------------------- */

/* Rows end before the last dimension that other axes split; what follows is cut into blocks that lie within its parts. */
static void cut_blocks(gradient *w, const int8_t at[SGLIR_AXIS_COUNT])
{
    const sglplan *plan = w->c->context->plan;
    int64_t parts = 1;
    w->kept = w->rank > 1;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (!(w->c->axes & SGLPLAN_AXIS(axis)) && at[axis] > w->kept) w->kept = at[axis];
    }
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (!(w->c->axes & SGLPLAN_AXIS(axis)) && at[axis] == w->kept) parts *= plan->mesh[axis];
    }
    w->length = 1;
    for (int i = w->kept; i < w->rank; i++) w->length *= w->dims[i];
    const bool even = w->length % parts == 0;
    const int64_t part = even ? w->length / parts : w->length;
    int64_t blocks = part > 0 ? (part + SGLPASS_BLOCK - 1) / SGLPASS_BLOCK : 1;
    for (int64_t more = blocks; more <= 2 * blocks && part > 0; more++) {
        if (part % more == 0) blocks = more;
        if (part % more == 0) break;
    }
    w->block = (part + blocks - 1) / blocks;
    w->blocks = even && parts > 1 && part % blocks == 0 ? blocks * parts
                                                        : (w->length + w->block - 1) / (w->block ? w->block : 1);
}

static int64_t extent_of(const gradient *w, int dim) { return dim < w->kept ? w->dims[dim] : w->blocks; }

/* Ranks along the other axes that split a dimension of rows, or blocks. */
static int64_t split_by(const gradient *w, const int8_t at[SGLIR_AXIS_COUNT], int dim)
{
    int64_t ranks = 1;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        if (!(w->c->axes & SGLPLAN_AXIS(axis)) && at[axis] == dim) ranks *= w->c->context->plan->mesh[axis];
    return ranks;
}

/* Whether each of them has as many: of blocks, that none is padded. */
static bool comes_apart(const gradient *w, int dim, int64_t ranks)
{
    const bool room = w->kept + 4 <= SGL_MAX_RANK, whole = dim < w->kept || w->blocks * w->block == w->length;
    return room && whole && extent_of(w, dim) % ranks == 0;
}

/* Ranks have their parts along a row that no other axis splits, an even and long one; if there is none, along what each
 * rank of other axes has of one; else along blocks. */
static void choose_part(gradient *w, const int8_t at[SGLIR_AXIS_COUNT])
{
    int64_t best = -1;
    w->part = w->kept + 1;
    w->two = -1;
    for (int two = 0; two < 2 && best < INT32_MAX; two++) {
        for (int dim = 0; dim <= w->kept; dim++) {
            const int64_t ranks = split_by(w, at, dim), extent = extent_of(w, dim) / ranks;
            const int64_t worth = extent + (extent % w->c->ranks == 0) * (int64_t)INT32_MAX;
            if ((ranks > 1) != two || (two && !comes_apart(w, dim, ranks)) || worth <= best) continue;
            best = worth;
            w->part = dim + 1 + two;
            w->two = two ? dim : -1;
            w->apart = ranks;
        }
    }
}

/* Where states are split along a row over one of the axes, parts are along that row. */
static void follow_states(gradient *w, const sglplan *plan, const char *name)
{
    uint64_t named;
    sglplan_layout_of(plan, name, true, w->states, &named);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const bool here = (w->c->axes & SGLPLAN_AXIS(axis)) != 0;
        if (!here || w->states[axis] >= w->kept) w->states[axis] = -1;
        if (w->states[axis] < 0) continue;
        w->part = w->states[axis] + 1;
        w->two = -1;
        w->stays = true;
    }
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

static int view_dims(const gradient *w, int64_t lead, int64_t *dims)
{
    int rank = 0;
    if (lead) dims[rank++] = lead;
    for (int i = 0; i <= w->kept; i++) {
        if (i == w->two) dims[rank++] = w->apart;
        dims[rank++] = extent_of(w, i) / (i == w->two ? w->apart : 1);
    }
    dims[rank++] = w->block;
    return rank;
}

static int flat_dims(const gradient *w, int64_t lead, int64_t *dims)
{
    int rank = 0;
    if (lead) dims[rank++] = lead;
    for (int i = 0; i < w->kept; i++) dims[rank++] = w->dims[i];
    dims[rank++] = w->length;
    return rank;
}

static sglir_id to_view(const gradient *w, sglir_id x)
{
    int64_t dims[SGL_MAX_RANK];
    int rank = flat_dims(w, w->c->ranks, dims);
    x = sglir_reshape(w->to, x, rank, dims);
    const int64_t more = w->blocks * w->block - w->length;
    if (more > 0) x = sglir_pad(w->to, x, rank - 1, 0, more);
    rank = view_dims(w, w->c->ranks, dims);
    return sglir_reshape(w->to, x, rank, dims);
}

/* lead: of places of ranks, 0: there are none. */
static sglir_id from_view(const gradient *w, sglir_id x, int64_t lead)
{
    int64_t dims[SGL_MAX_RANK];
    int rank = flat_dims(w, lead, dims);
    dims[rank - 1] = w->blocks * w->block;
    x = sglir_reshape(w->to, x, rank, dims);
    if (w->blocks * w->block > w->length) x = sglir_slice(w->to, x, rank - 1, 0, w->length);
    rank = 0;
    if (lead) dims[rank++] = lead;
    for (int i = 0; i < w->rank; i++) dims[rank++] = w->dims[i];
    return sglir_reshape(w->to, x, rank, dims);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* Over all axes along dim; or, dim -1, along none but those where the states are kept in parts. */
static sglir_id lay(const gradient *w, sglir_id x, int dim)
{
    int64_t split[SGLIR_AXIS_COUNT];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        split[axis] = -1;
        if (!(w->c->axes & SGLPLAN_AXIS(axis))) continue;
        split[axis] = dim >= 0 ? dim : w->states[axis] >= 0 ? w->part - 1 : -2;
    }
    const sglir_named attr = SGLIR_INTS("split", SGLIR_AXIS_COUNT, split);
    return sglir_emit(w->to, SGLIR_OP_LAID_OUT, &x, 1, &attr, 1, NULL);
}

static sglir_id terms(const gradient *w, sglir_id x)
{
    const sglir_named attrs[] = { SGLIR_I("axes", w->c->axes), SGLIR_I("ranks", w->c->ranks) };
    return sglir_emit(w->to, SGLIR_OP_TERMS, &x, 1, attrs, 2, NULL);
}

static sglir_id decode_laid(const gradient *w, const sglpass_codes *codes, int dim)
{
    sglpass_codes laid = { .count = codes->count };
    for (int i = 0; i < codes->count; i++) laid.values[i] = lay(w, codes->values[i], dim);
    return w->codec->decode(w->to, &laid, w->dtype);
}

static sglir_id residual_input(const gradient *w, const char *name)
{
    char text[512];
    int64_t dims[SGL_MAX_RANK] = { w->c->ranks };
    for (int i = 0; i < w->rank; i++) dims[i + 1] = w->dims[i];
    if ((size_t)snprintf(text, sizeof text, SGLPLAN_RESIDUAL "%s", name) >= sizeof text) {
        sglir_stick(w->to,
                    sglcore_fail(w->c->context->env, SGL_LIMIT, "plan: compress: the name '%s' is too long", name));
        return SGLIR_NONE;
    }
    const sglir_named attrs[] = { SGLIR_I("role", SGL_STATE), SGLIR_S("name", text),
                                  SGLIR_I("dtype", w->dtype), SGLIR_INTS("dims", w->rank + 1, dims),
                                  SGLIR_I("made", 1),         SGLIR_F("initial", 0) };
    return sglir_emit(w->to, SGLIR_OP_INPUT, NULL, 0, attrs, (int)(sizeof attrs / sizeof attrs[0]), NULL);
}

static sglir_id with_residual(const gradient *w, sglir_id before)
{
    int64_t dims[SGL_MAX_RANK] = { 1 };
    memcpy(dims + 1, w->dims, (size_t)w->rank * sizeof dims[0]);
    sglir_id g = sglir_reshape(w->to, *w->gradient, w->rank, w->dims);
    g = w->c->ranks == 1 ? sglir_reshape(w->to, g, w->rank + 1, dims) : terms(w, g);
    return sglir_add(w->to, g, before);
}

/* On one rank that is all. */
static void add_residual(gradient *w)
{
    const int64_t first = 0;
    sglir_id before = residual_input(w, w->name), x = with_residual(w, before);
    if (w->c->ranks == 1) {
        w->lost = sglir_constant_like(w->to, before, 0);
        w->sum = sglir_reduce(w->to, SGLIR_OP_REDUCE_SUM, x, &first, 1, false);
        return;
    }
    w->view = lay(w, to_view(w, x), 0);
}

static void encode_terms(gradient *w)
{
    if (w->c->ranks == 1) return;
    w->codes = w->codec->encode(w->to, w->view);
    w->lost = sglir_sub(w->to, w->view, w->codec->decode(w->to, &w->codes, w->dtype));
}

/* The first half of the exchange. Where the states stay in parts over all these axes, so does what is summed. */
static void sum_codes(gradient *w)
{
    const int64_t first = 0;
    bool all = w->stays;
    if (w->c->ranks == 1) return;
    w->sum = sglir_reduce(w->to, SGLIR_OP_REDUCE_SUM, decode_laid(w, &w->codes, w->part), &first, 1, false);
    w->sum = lay(w, w->sum, w->part - 1);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        all = all && (!(w->c->axes & SGLPLAN_AXIS(axis)) || w->states[axis] >= 0);
    w->codes.count = 0;
    if (all) return;
    w->codes = w->codec->encode(w->to, w->sum);
    sglir_id own = sglir_sub(w->to, w->sum, w->codec->decode(w->to, &w->codes, w->dtype));
    w->lost = sglir_add(w->to, w->lost, terms(w, own));
}

/* The second half, and what stands for the gradient from now on. */
static void gather_codes(gradient *w)
{
    const sglir_type type = *sglir_type_of(w->to, *w->gradient);
    if (w->c->ranks > 1) {
        w->sum = from_view(w, w->codes.count > 0 ? decode_laid(w, &w->codes, -1) : w->sum, 0);
        w->lost = from_view(w, w->lost, w->c->ranks);
    }
    *w->gradient = sglir_reshape(w->to, w->sum, type.rank, type.dims);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static sgl_status check_gradient(const compressor *c, const sglir_type *type, const char *name, sglir_id parameter)
{
    bool twice = false;
    for (int64_t i = 0; i < c->residuals.count; i++) twice = twice || c->residuals.data[i].parameter == parameter;
    for (int64_t i = 0; i < c->gradients.count; i++) twice = twice || c->gradients.data[i].parameter == parameter;
    if (twice)
        return sglcore_fail(c->context->env, SGL_UNSUPPORTED,
                            "plan: compress: two gradients of '%s' are taken in one step: say \"none\" for it", name);
    if (type->scaled)
        return sglcore_fail(
            c->context->env, SGL_UNSUPPORTED,
            "plan: compress: the gradient of '%s' is scaled, as with precision = \"fp16\": what is lost of it "
            "would be of another scale later; take bf16",
            name);
    if (type->rank <= SGL_MAX_RANK - 2 && (type->dtype == SGL_F32 || type->dtype == SGL_F64)) return SGL_OK;
    return sglcore_fail(
        c->context->env, SGL_UNSUPPORTED,
        "plan: compress: the gradient of '%s' has %d dimensions and dtype %s; gradients of f32 and f64 with "
        "up to %d are compressed: say \"none\" for it",
        name, type->rank, sgl_dtype_name((sgl_dtype)type->dtype), SGL_MAX_RANK - 2);
}

static sgl_status add_gradient(compressor *c, sglir_rewrite *rewrite, sglir_id parameter, sglir_id *gradient_of)
{
    const sglir_node *input = sglir_maker(rewrite->from, parameter);
    uint64_t named;
    if (!input || input->op != SGLIR_OP_INPUT || sglir_attr_int(rewrite->from, input, "role") != SGL_PARAMETER)
        return SGL_OK;
    const char *name = sglir_attr_string(rewrite->from, input, "name");
    const sglplan_codec codec = sglplan_compress_of(c->context->plan, name, &named);
    if (codec == SGLPLAN_CODEC_COUNT || rewrite->to->status != SGL_OK) return sglir_status(rewrite->to);
    const sglir_type type = *sglir_type_of(rewrite->to, *gradient_of);
    gradient w = { .c = c,
                   .to = rewrite->to,
                   .codec = &sglpass_codec_rows[codec],
                   .dtype = (sgl_dtype)type.dtype,
                   .name = name,
                   .parameter = parameter,
                   .gradient = gradient_of };
    int8_t at[SGLIR_AXIS_COUNT];
    SGLCORE_TRY(check_gradient(c, &type, name, parameter));
    w.rank = type.rank > 0 ? type.rank : 1;
    for (int i = 0; i < w.rank; i++) w.dims[i] = type.rank > 0 ? type.dims[i] : 1;
    sglpass_split_input(c->context->plan, rewrite->from, input, at, &named);
    cut_blocks(&w, at);
    choose_part(&w, at);
    follow_states(&w, c->context->plan, name);
    return sglcore_vec_push(c->context->env, &c->gradients, w);
}

/* Step by step for all of them, so that no gradient waits for another one's exchange, and exchanges of a kind can be
 * merged; from the last one on, in about the order in which a backward makes them, so that the first bucket need not
 * wait for the end of it. */
static sgl_status compress_all(compressor *c, sglir_graph *to)
{
    for (int64_t i = c->gradients.count; i-- > 0 && to->status == SGL_OK;) add_residual(&c->gradients.data[i]);
    for (int64_t i = c->gradients.count; i-- > 0 && to->status == SGL_OK;) encode_terms(&c->gradients.data[i]);
    for (int64_t i = c->gradients.count; i-- > 0 && to->status == SGL_OK;) sum_codes(&c->gradients.data[i]);
    for (int64_t i = c->gradients.count; i-- > 0 && to->status == SGL_OK;) {
        const gradient *w = &c->gradients.data[i];
        gather_codes(&c->gradients.data[i]);
        SGLCORE_TRY(sglir_status(to));
        const pending kept = { .parameter = w->parameter, .value = w->lost };
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->residuals, kept));
    }
    return sglir_status(to);
}

static bool compress_rule(sglir_rewrite *rewrite, sglir_id id)
{
    compressor *c = rewrite->user;
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if (node->op != SGLIR_OP_GRAD || node->region != 0 || !sglir_attr_int(rewrite->from, node, "outer")) return false;
    sglir_copy_node(rewrite, id);
    sglir_set_origin_made(rewrite->to, rewrite->from, id, rewrite->pass);
    sgl_status status = SGL_OK;
    c->gradients.count = 0;
    for (uint32_t k = 0; k < node->out_count && status == SGL_OK; k++)
        status = add_gradient(c, rewrite, sglir_arg(rewrite->from, node, k + 1), &rewrite->map[node->out_first + k]);
    if (status == SGL_OK) status = compress_all(c, rewrite->to);
    if (status != SGL_OK) sglir_stick(rewrite->to, status);
    return true;
}

/* A pattern that names nothing is nearly always a misspelling, in a graph that has gradients. */
static sgl_status check_patterns(const sglpass_context *context, const sglir_graph *g)
{
    const char *pattern;
    uint64_t all = 0, named;
    size_t length;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(g, node, "role") != SGL_PARAMETER) continue;
        sglplan_compress_of(context->plan, sglir_attr_string(g, node, "name"), &named);
        all |= named;
    }
    for (int i = 0; sglplan_compress_entry(context->plan, i, &pattern, &length); i++) {
        if ((all >> i & 1) == 0) return sglpass_fail_unnamed(context, g, "compress", pattern, length);
    }
    return SGL_OK;
}

static bool has_outer_gradients(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op == SGLIR_OP_GRAD && node->region == 0 && sglir_attr_int(g, node, "outer")) return true;
    }
    return false;
}

sgl_status sglpass_compress(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    compressor c = { .context = context, .axes = sglplan_compress_axes(context->plan) };
    const bool any = context->plan->compress[0] != '\0' && has_outer_gradients(in);
    *out = NULL;
    c.ranks = sglplan_group_size(context->plan, c.axes);
    if (any) SGLCORE_TRY(check_patterns(context, in));
    sgl_status status = sglir_rewrite_graph(context->env, in, "compress", any ? compress_rule : NULL, &c, out);
    for (int64_t i = 0; i < c.residuals.count && status == SGL_OK; i++) {
        char name[512];
        const sglir_node *input = sglir_maker(in, c.residuals.data[i].parameter);
        snprintf(name, sizeof name, SGLPLAN_RESIDUAL "%s", sglir_attr_string(in, input, "name"));
        sglir_output_add(*out, SGLIR_UPDATE, name, c.residuals.data[i].value);
        status = sglir_status(*out);
    }
    if (status == SGL_OK) sglpass_say(context, in, *out, c.residuals.count > 0);
    sglcore_vec_free(context->env, &c.gradients);
    sglcore_vec_free(context->env, &c.residuals);
    return status;
}

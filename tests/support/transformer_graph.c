/* transformer_graph.c -- see transformer_graph.h. The ops are emitted as a front end would, through sglir_build. */
#include "tests/support/transformer_graph.h"

#include <stdio.h>

enum { MOST_PARAMETERS = 2048, PER_BLOCK = 9 };

typedef struct tracer {
    sglir_graph *g;
    const transformer_sizes *sizes;
    sglir_id parameters[MOST_PARAMETERS];
    char names[MOST_PARAMETERS][48];
    int count;
    sglir_id zero, seed, step;
    int64_t random_id;
} tracer;

static sglir_id build(tracer *t, sglir_op op, int count, const sglir_id *args, const sglir_named *attrs, int attr_count)
{
    sglir_id out[8];
    return sglir_build(t->g, op, args, count, attrs, attr_count, out);
}

static sglir_id total(tracer *t, sglir_id x) { return build(t, SGLIR_OP_REDUCE_SUM, 1, &x, NULL, 0); }

static sglir_id parameter(tracer *t, int layer, const char *name, int rank, int64_t rows, int64_t cols)
{
    const int64_t dims[2] = { rows, cols };
    sglir_type type = sglir_type_make(t->sizes->dtype, rank, dims);
    char *full = t->names[t->count];
    if (layer < 0)
        snprintf(full, sizeof t->names[0], "%s", name);
    else
        snprintf(full, sizeof t->names[0], "blocks.%d.%s", layer, name);
    return t->parameters[t->count++] = sglir_input(t->g, SGL_PARAMETER, full, &type);
}

static sglir_id linear(tracer *t, sglir_id x, sglir_id weight)
{
    const sglir_id args[] = { x, weight };
    return build(t, SGLIR_OP_LINEAR, 2, args, NULL, 0);
}

static sglir_id norm(tracer *t, sglir_id x, sglir_id gain)
{
    const sglir_id args[] = { x, gain };
    return build(t, SGLIR_OP_RMS_NORM, 2, args, NULL, 0);
}

static sglir_id dropped(tracer *t, sglir_id x)
{
    if (t->sizes->dropout == 0) return x;
    sglir_type type = *sglir_type_of(t->g, x);
    const sglir_id args[] = { t->seed, t->step, t->zero };
    const sglir_named attrs[] = { SGLIR_I("id", ++t->random_id), SGLIR_INTS("dims", type.rank, type.dims),
                                  SGLIR_I("dtype", type.dtype) };
    sglir_id noise = build(t, SGLIR_OP_RANDOM_UNIFORM, 3, args, attrs, 3);
    sglir_id rate = sglir_constant(t->g, (sgl_dtype)type.dtype, t->sizes->dropout);
    sglir_id kept = sglir_cast(t->g, sglir_binary(t->g, SGLIR_OP_LESS_EQUAL, rate, noise), (sgl_dtype)type.dtype);
    return sglir_scale(t->g, sglir_mul(t->g, x, kept), 1 / (1 - t->sizes->dropout));
}

static int64_t kv_heads(const transformer_sizes *s) { return s->kv_heads > 0 ? s->kv_heads : s->heads; }

static sglir_id heads(tracer *t, sglir_id x, int64_t count)
{
    const transformer_sizes *s = t->sizes;
    const int64_t dims[] = { s->batch, s->seq, count, s->dim / s->heads };
    return sglir_reshape(t->g, x, 4, dims);
}

static sglir_id turned(tracer *t, sglir_id x)
{
    const sglir_id args[] = { x, t->zero };
    return build(t, SGLIR_OP_ROPE, 2, args, NULL, 0);
}

static sglir_id block(tracer *t, int layer, sglir_id x)
{
    const transformer_sizes *s = t->sizes;
    char scope[32];
    snprintf(scope, sizeof scope, "blocks.%d", layer);
    sglir_set_origin(t->g, "", 0, scope, "");
    sglir_id norm1 = parameter(t, layer, "norm1", 1, s->dim, 0), wq = parameter(t, layer, "wq", 2, s->dim, s->dim);
    const int64_t kv_dim = s->dim / s->heads * kv_heads(s);
    sglir_id wk = parameter(t, layer, "wk", 2, kv_dim, s->dim), wv = parameter(t, layer, "wv", 2, kv_dim, s->dim);
    sglir_id wo = parameter(t, layer, "wo", 2, s->dim, s->dim), norm2 = parameter(t, layer, "norm2", 1, s->dim, 0);
    sglir_id w1 = parameter(t, layer, "w1", 2, s->ffn, s->dim), w3 = parameter(t, layer, "w3", 2, s->ffn, s->dim);
    sglir_id w2 = parameter(t, layer, "w2", 2, s->dim, s->ffn);
    sglir_id h = norm(t, x, norm1);
    const sglir_id args[] = { turned(t, heads(t, linear(t, h, wq), s->heads)),
                              turned(t, heads(t, linear(t, h, wk), kv_heads(s))),
                              heads(t, linear(t, h, wv), kv_heads(s)), t->zero };
    const sglir_named scale = SGLIR_F("scale", 0.25);
    sglir_id out = sglir_reshape_like(t->g, build(t, SGLIR_OP_ATTENTION, 4, args, &scale, 1), x);
    x = sglir_add(t->g, x, dropped(t, linear(t, out, wo)));
    h = norm(t, x, norm2);
    h = sglir_mul(t->g, sglir_unary(t->g, SGLIR_OP_SILU, linear(t, h, w1)), linear(t, h, w3));
    return sglir_add(t->g, x, dropped(t, linear(t, h, w2)));
}

/* Mean over valid targets, as a sum and a count. */
static sglir_id loss_of(tracer *t, sglir_id x, sglir_id embed, sglir_id targets)
{
    sglir_graph *g = t->g;
    const sglir_id args[] = { x, embed, targets };
    sglir_id losses = build(t, SGLIR_OP_LINEAR_CROSS_ENTROPY, 3, args, NULL, 0);
    sglir_id valid = sglir_binary(g, SGLIR_OP_NOT_EQUAL, targets, sglir_constant(g, SGL_I32, -1));
    sglir_id count = total(t, sglir_cast(g, valid, t->sizes->dtype));
    count = sglir_binary(g, SGLIR_OP_MAXIMUM, count, sglir_constant(g, t->sizes->dtype, 1));
    return sglir_div(g, total(t, losses), count);
}

static sglir_id pack(tracer *t, const sglir_id *values) { return build(t, SGLIR_OP_PACK, t->count, values, NULL, 0); }

static void moments(tracer *t, char slot, sglir_id *values)
{
    for (int i = 0; i < t->count; i++) {
        char name[80];
        snprintf(name, sizeof name, "adamw.%c/%s", slot, t->names[i]);
        values[i] = sglir_input(t->g, SGL_STATE, name, sglir_type_of(t->g, t->parameters[i]));
    }
}

static void update(tracer *t, const char *prefix, sglir_id packed)
{
    int64_t ranks[MOST_PARAMETERS], dims[2 * MOST_PARAMETERS];
    sglir_id parts[MOST_PARAMETERS];
    int64_t used = 0;
    for (int i = 0; i < t->count; i++) {
        sglir_type type = *sglir_type_of(t->g, t->parameters[i]);
        ranks[i] = type.rank;
        for (int d = 0; d < type.rank; d++) dims[used++] = type.dims[d];
    }
    const sglir_named attrs[] = { SGLIR_INTS("ranks", t->count, ranks), SGLIR_INTS("dims", used, dims) };
    sglir_emit(t->g, SGLIR_OP_UNPACK, &packed, 1, attrs, 2, parts);
    for (int i = 0; i < t->count; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s%s", prefix, t->names[i]);
        sglir_output_add(t->g, SGLIR_UPDATE, name, parts[i]);
    }
}

/* AdamW without its bias corrections, on the clipped gradient. */
static void optimize(tracer *t, sglir_id loss)
{
    sglir_graph *g = t->g;
    sglir_id list[MOST_PARAMETERS + 1], grads[MOST_PARAMETERS], m_parts[MOST_PARAMETERS], v_parts[MOST_PARAMETERS];
    list[0] = loss;
    for (int i = 0; i < t->count; i++) list[i + 1] = t->parameters[i];
    sglir_emit(g, SGLIR_OP_GRAD, list, t->count + 1, NULL, 0, grads);
    moments(t, 'm', m_parts);
    moments(t, 'v', v_parts);
    sglir_id p = pack(t, t->parameters), grad = pack(t, grads), m = pack(t, m_parts), v = pack(t, v_parts);
    sglir_id square = total(t, sglir_mul(g, grad, grad));
    sglir_id grad_norm = sglir_unary(g, SGLIR_OP_SQRT, square);
    sglir_id one = sglir_constant(g, t->sizes->dtype, 1);
    grad = sglir_mul(g, grad, sglir_binary(g, SGLIR_OP_MINIMUM, one, sglir_div(g, one, grad_norm)));
    m = sglir_add(g, sglir_scale(g, m, 0.9), sglir_scale(g, grad, 0.1));
    v = sglir_add(g, sglir_scale(g, v, 0.95), sglir_scale(g, sglir_mul(g, grad, grad), 0.05));
    sglir_id root = sglir_add(g, sglir_unary(g, SGLIR_OP_SQRT, v), sglir_constant(g, t->sizes->dtype, 1e-8));
    p = sglir_sub(g, sglir_scale(g, p, 0.9999), sglir_scale(g, sglir_div(g, m, root), 1e-3));
    sglir_output_add(g, SGLIR_FETCH, "loss", loss);
    sglir_output_add(g, SGLIR_FETCH, "grad_norm", grad_norm);
    update(t, "", p);
    update(t, "adamw.m/", m);
    update(t, "adamw.v/", v);
}

static void trace(tracer *t)
{
    const transformer_sizes *s = t->sizes;
    const int64_t rows[2] = { s->batch, s->seq };
    const sglir_type index = sglir_type_make(SGL_I32, 2, rows), number = sglir_type_make(SGL_I64, 0, NULL);
    sglir_id tokens = sglir_input(t->g, SGL_FEED, "tokens", &index);
    sglir_id targets = sglir_input(t->g, SGL_FEED, "targets", &index);
    t->seed = sglir_input(t->g, SGL_FEED, "seed", &number);
    t->step = sglir_input(t->g, SGL_FEED, "step", &number);
    t->zero = sglir_constant(t->g, SGL_I64, 0);
    sglir_id embed = parameter(t, -1, "embed", 2, s->vocab, s->dim);
    const sglir_id args[] = { embed, tokens };
    sglir_id x = build(t, SGLIR_OP_GATHER, 2, args, NULL, 0);
    for (int layer = 0; layer < s->layers; layer++) x = block(t, layer, x);
    sglir_set_origin(t->g, "", 0, "", "");
    x = norm(t, x, parameter(t, -1, "norm", 1, s->dim, 0));
    optimize(t, loss_of(t, x, embed, targets));
}

sgl_status transformer_graph(sglcore_env *env, const transformer_sizes *sizes, sglir_graph **graph)
{
    if (2 + PER_BLOCK * sizes->layers > MOST_PARAMETERS)
        return sglcore_fail(env, SGL_LIMIT, "transformer_graph: too many layers");
    SGLCORE_TRY(sglir_graph_new(env, "train", graph));
    static tracer t; /* too large for a stack */
    t = (tracer){ .g = *graph, .sizes = sizes };
    trace(&t);
    sgl_status status = sglir_status(*graph);
    if (status != SGL_OK) {
        sglir_graph_free(*graph);
        *graph = NULL;
    }
    return status;
}

int64_t transformer_parameter_bytes(const sglir_graph *graph)
{
    int64_t bytes = 0;
    for (int64_t n = 0; n < graph->nodes.count; n++) {
        const sglir_node *node = &graph->nodes.data[n];
        if (node->op == SGLIR_OP_INPUT && sglir_attr_int(graph, node, "role") == SGL_PARAMETER)
            bytes += sglir_bytes(sglir_type_of(graph, node->out_first));
    }
    return bytes;
}

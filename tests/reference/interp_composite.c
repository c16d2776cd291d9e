/* interp_composite.c -- the interpreter's composites, by their formulas and not by their decompositions, so that the two
 * can be held against each other. In: float arguments, integer targets and offsets. Out: results. */
#include "interp_inside.h"

#include <math.h>
#include <stdlib.h>

/* ---- products ----------------------------------------------------------------------------------------------- */

/* Element e of the matrix stack that leading dims of the result pick, broadcast: where the argument's matrix starts. */
static int64_t matrix_start(const interp_tensor *x, int matrix_rank, const interp_tensor *out, int lead, int64_t stack)
{
    int64_t index[SGL_MAX_RANK], matrix = 1;
    int own_lead = x->rank - matrix_rank;
    interp_unravel(stack, lead, out->dims, index);
    for (int i = own_lead; i < x->rank; i++) matrix *= x->dims[i];
    int64_t *own = index + (lead - own_lead);
    for (int i = 0; i < own_lead; i++) own[i] = x->dims[i] == 1 ? 0 : own[i];
    return interp_ravel(own_lead, x->dims, own) * matrix;
}

/* The sum of `count` products of elements of a, one after another, and of b, `step` apart; integers wrap. */
static void multiply(interp_tensor *out, int64_t to, const interp_tensor *a, int64_t at, const interp_tensor *b,
                     int64_t bt, int64_t step, int64_t count)
{
    long double sum = 0;
    uint64_t whole = 0;
    for (int64_t i = 0; i < count; i++) {
        if (out->floats != NULL)
            sum += (long double)a->floats[at + i] * b->floats[bt + i * step];
        else
            whole += (uint64_t)a->ints[at + i] * (uint64_t)b->ints[bt + i * step];
    }
    if (out->floats != NULL)
        out->floats[to] = (double)sum;
    else
        out->ints[to] = (int64_t)whole;
}

static void matmul(const interp_call *call)
{
    const interp_tensor *a = call->args[0], *b = call->args[1];
    interp_tensor *out = &call->results[0];
    int rank_a = a->rank > 1 ? 2 : 1, rank_b = b->rank > 1 ? 2 : 1;
    int lead = out->rank - (rank_a - 1) - (rank_b - 1);
    int64_t m = rank_a == 2 ? a->dims[a->rank - 2] : 1, n = rank_b == 2 ? b->dims[b->rank - 1] : 1;
    int64_t k = a->dims[a->rank - 1], stacks = 1;
    for (int i = 0; i < lead; i++) stacks *= out->dims[i];
    for (int64_t s = 0; s < stacks; s++) {
        int64_t x = matrix_start(a, rank_a, out, lead, s), y = matrix_start(b, rank_b, out, lead, s);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) { multiply(out, (s * m + i) * n + j, a, x + i * k, b, y + j, n, k); }
        }
    }
}

/* x [rows, in] times weight [out, in], as is or the row of losses' logits */
static double row_product(const double *x, const double *weight, int64_t count)
{
    long double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (long double)x[i] * weight[i];
    return (double)sum;
}

static void linear(const interp_call *call)
{
    const interp_tensor *x = call->args[0], *weight = call->args[1];
    interp_tensor *out = &call->results[0];
    int64_t wide = weight->dims[0], deep = weight->dims[1];
    for (int64_t e = 0; e < out->count; e++) {
        int64_t row = e / wide, col = e % wide;
        multiply(out, e, x, row * deep, weight, col * deep, 1, deep);
        if (call->node->arg_count == 2) continue;
        const interp_tensor *bias = call->args[2];
        if (out->floats != NULL)
            out->floats[e] += bias->floats[col];
        else
            out->ints[e] = (int64_t)((uint64_t)out->ints[e] + (uint64_t)bias->ints[col]);
    }
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

static double log_sum_exp(const double *x, int64_t count)
{
    double most = -INFINITY;
    long double sum = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, x[i]);
    if (isinf(most) && most < 0) return -INFINITY;
    for (int64_t i = 0; i < count; i++) sum += exp(x[i] - most);
    return most + log((double)sum);
}

static void logsumexp(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *out = &call->results[0];
    int count;
    const int64_t *axes = interp_ints(call, "axes", &count);
    int64_t kept[SGL_MAX_RANK], index[SGL_MAX_RANK], own[SGL_MAX_RANK], terms = 1;
    for (int i = 0; i < x->rank; i++) kept[i] = x->dims[i];
    for (int i = 0; i < count; i++) {
        terms *= x->dims[axes[i]];
        kept[axes[i]] = 1;
    }
    double *row = calloc((size_t)terms + 1, sizeof *row);
    for (int64_t e = 0; e < out->count; e++) {
        int64_t found = 0;
        bool nan = false;
        for (int64_t from = 0; from < x->count; from++) {
            interp_unravel(from, x->rank, x->dims, index);
            for (int i = 0; i < x->rank; i++) own[i] = kept[i] == 1 ? 0 : index[i];
            if (interp_ravel(x->rank, kept, own) != e) continue;
            row[found++] = x->floats[from];
            nan = nan || isnan(x->floats[from]);
        }
        double most = log_sum_exp(row, found);
        for (int64_t i = 0; i < found; i++) most = isinf(row[i]) && row[i] > 0 ? INFINITY : most;
        out->floats[e] = nan ? NAN : most;
    }
    free(row);
}

static void softmax(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    int64_t cols = x->dims[x->rank - 1];
    for (int64_t start = 0; start < x->count; start += cols) {
        double total = log_sum_exp(x->floats + start, cols);
        for (int64_t i = 0; i < cols; i++) call->results[0].floats[start + i] = exp(x->floats[start + i] - total);
    }
}

/* rms_norm, and layer_norm when there is a bias */
static void norm(const interp_call *call)
{
    const interp_tensor *x = call->args[0], *gain = call->args[1];
    bool centred = call->node->op == SGLIR_OP_LAYER_NORM;
    int64_t cols = x->dims[x->rank - 1];
    for (int64_t start = 0; start < x->count; start += cols) {
        const double *row = x->floats + start;
        long double sum = 0, squares = 0;
        for (int64_t i = 0; i < cols && centred; i++) sum += row[i];
        const double mean = (double)(sum / cols);
        for (int64_t i = 0; i < cols; i++) squares += (row[i] - mean) * (row[i] - mean);
        const double square = (double)(squares / cols);
        for (int64_t i = 0; i < cols; i++) {
            double bias = centred ? call->args[2]->floats[i] : 0;
            call->results[0].floats[start + i] =
                (row[i] - mean) / sqrt(square + interp_float(call, "eps")) * gain->floats[i] + bias;
        }
    }
}

static void rope(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    double *out = call->results[0].floats, theta = interp_float(call, "theta");
    double turn = interp_int(call, "inverse") != 0 ? -1 : 1;
    const interp_tensor *positions = call->args[1];
    int given;
    const double *frequencies = sglir_attr_floats(call->g, call->node, "frequencies", &given);
    int64_t times = x->dims[1], heads = x->dims[2], size = x->dims[3], half = size / 2;
    for (int64_t e = 0; e < x->count; e++) {
        int64_t i = e % size, t = e / (size * heads) % times;
        if (i >= half) continue; /* with its partner */
        int64_t position = positions->rank == 0 ? positions->ints[0] + t : positions->ints[e / (size * heads)];
        double frequency = given > 0 ? frequencies[i] : pow(theta, -2.0 * (double)i / (double)size);
        double angle = turn * (double)position * frequency;
        double a = x->floats[e], b = x->floats[e + half];
        out[e] = a * cos(angle) - b * sin(angle);
        out[e + half] = a * sin(angle) + b * cos(angle);
    }
}

/* ---- attention ---------------------------------------------------------------------------------------------- */

typedef struct attention {
    const double *q, *k, *v;
    int64_t batch, queries, heads, size, keys, groups, value_size, offset, window;
    const int64_t *query_segments, *key_segments; /* or NULL */
    bool causal;
    double scale;
} attention;

/* offset: number of that argument; segments may follow it. */
static attention attention_of(const interp_call *call, uint32_t offset)
{
    bool segments = call->node->arg_count > offset + 1;
    const interp_tensor *q = call->args[0], *k = call->args[1], *v = call->args[2];
    return (attention){ .q = q->floats,
                        .k = k->floats,
                        .v = v->floats,
                        .batch = q->dims[0],
                        .queries = q->dims[1],
                        .heads = q->dims[2],
                        .size = q->dims[3],
                        .keys = k->dims[1],
                        .groups = k->dims[2],
                        .value_size = v->dims[3],
                        .offset = call->args[offset]->ints[0],
                        .query_segments = segments ? call->args[offset + 1]->ints : NULL,
                        .key_segments = segments ? call->args[offset + 2]->ints : NULL,
                        .window = interp_int(call, "window"),
                        .causal = interp_int(call, "causal") != 0,
                        .scale = interp_float(call, "scale") };
}

static bool sees(const attention *a, int64_t b, int64_t query, int64_t key)
{
    if (a->key_segments != NULL) {
        int64_t segment = a->key_segments[b * a->keys + key];
        if (segment < 0 || segment != a->query_segments[b * a->queries + query]) return false;
    }
    if (!a->causal) return true;
    int64_t own = a->offset + query;
    return key <= own && (a->window == 0 || key > own - a->window);
}

/* Where the vector of (batch, time, head) starts; of keys and values with the group of the head. */
static int64_t query_at(const attention *a, int64_t b, int64_t t, int64_t h, int64_t size)
{
    return ((b * a->queries + t) * a->heads + h) * size;
}

static int64_t key_at(const attention *a, int64_t b, int64_t s, int64_t h, int64_t size)
{
    return ((b * a->keys + s) * a->groups + h / (a->heads / a->groups)) * size;
}

static double score(const attention *a, int64_t b, int64_t t, int64_t h, int64_t s)
{
    if (!sees(a, b, t, s)) return -INFINITY;
    return a->scale * row_product(a->q + query_at(a, b, t, h, a->size), a->k + key_at(a, b, s, h, a->size), a->size);
}

static void attend(const interp_call *call)
{
    attention a = attention_of(call, 3);
    double *out = call->results[0].floats, *lse = call->results[1].floats;
    double *scores = calloc((size_t)a.keys + 1, sizeof *scores);
    for (int64_t b = 0; b < a.batch; b++) {
        for (int64_t h = 0; h < a.heads; h++) {
            for (int64_t t = 0; t < a.queries; t++) {
                for (int64_t s = 0; s < a.keys; s++) scores[s] = score(&a, b, t, h, s);
                double total = log_sum_exp(scores, a.keys);
                lse[(b * a.heads + h) * a.queries + t] = total;
                for (int64_t s = 0; s < a.keys; s++) {
                    if (!sees(&a, b, t, s)) continue;
                    double *to = out + query_at(&a, b, t, h, a.value_size);
                    const double *value = a.v + key_at(&a, b, s, h, a.value_size);
                    for (int64_t i = 0; i < a.value_size; i++) to[i] += exp(scores[s] - total) * value[i];
                }
            }
        }
    }
    free(scores);
}

/* (q, k, v, out, lse, dout, offset, segments...) -> (dq, dk, dv): with p = e^(score - lse), dp = dout . v, ds = p (dp - dout . out) */
static void attend_grad(const interp_call *call)
{
    attention a = attention_of(call, 6);
    const double *out = call->args[3]->floats, *lse = call->args[4]->floats, *dout = call->args[5]->floats;
    double *dq = call->results[0].floats, *dk = call->results[1].floats, *dv = call->results[2].floats;
    for (int64_t b = 0; b < a.batch; b++) {
        for (int64_t h = 0; h < a.heads; h++) {
            for (int64_t t = 0; t < a.queries; t++) {
                int64_t value_at = query_at(&a, b, t, h, a.value_size), at = query_at(&a, b, t, h, a.size);
                double paid = row_product(dout + value_at, out + value_at, a.value_size);
                for (int64_t s = 0; s < a.keys; s++) {
                    if (!sees(&a, b, t, s)) continue;
                    int64_t k_at = key_at(&a, b, s, h, a.size), v_at = key_at(&a, b, s, h, a.value_size);
                    double p = exp(score(&a, b, t, h, s) - lse[(b * a.heads + h) * a.queries + t]);
                    double ds = p * (row_product(dout + value_at, a.v + v_at, a.value_size) - paid);
                    for (int64_t i = 0; i < a.value_size; i++) dv[v_at + i] += p * dout[value_at + i];
                    for (int64_t i = 0; i < a.size; i++) {
                        dq[at + i] += a.scale * ds * a.k[k_at + i];
                        dk[k_at + i] += a.scale * ds * a.q[at + i];
                    }
                }
            }
        }
    }
}

/* ---- losses over a vocabulary ------------------------------------------------------------------------------- */

/* -log softmax(logits)[target]; a target outside the vocabulary picks nothing, that is 0. */
static double loss_of(const double *logits, int64_t vocab, int64_t target, int64_t ignore)
{
    if (target == ignore) return 0;
    return log_sum_exp(logits, vocab) - (target >= 0 && target < vocab ? logits[target] : 0);
}

static void cross_entropy(const interp_call *call)
{
    const interp_tensor *logits = call->args[0], *targets = call->args[1];
    int64_t vocab = logits->dims[logits->rank - 1];
    for (int64_t row = 0; row < targets->count; row++) {
        call->results[0].floats[row] =
            loss_of(logits->floats + row * vocab, vocab, targets->ints[row], interp_int(call, "ignore"));
    }
}

/* linear_cross_entropy and, with the gradient of each loss as fourth argument, its gradient */
static void linear_cross_entropy(const interp_call *call)
{
    const interp_tensor *x = call->args[0], *weight = call->args[1], *targets = call->args[2];
    bool backward = call->node->arg_count == 4;
    int64_t vocab = weight->dims[0], deep = weight->dims[1], ignore = interp_int(call, "ignore");
    double *logits = calloc((size_t)vocab + 1, sizeof *logits);
    long double *dx = backward ? interp_sums(&call->results[1]) : NULL;
    long double *dweight = backward ? interp_sums(&call->results[2]) : NULL;
    for (int64_t row = 0; row < targets->count; row++) {
        const double *from = x->floats + row * deep;
        int64_t target = targets->ints[row];
        for (int64_t v = 0; v < vocab; v++) logits[v] = row_product(from, weight->floats + v * deep, deep);
        call->results[0].floats[row] = loss_of(logits, vocab, target, ignore);
        if (!backward || target == ignore) continue;
        double total = log_sum_exp(logits, vocab);
        for (int64_t v = 0; v < vocab; v++) {
            double slope = call->args[3]->floats[row] * (exp(logits[v] - total) - (v == target));
            for (int64_t i = 0; i < deep; i++) {
                dx[row * deep + i] += (long double)slope * weight->floats[v * deep + i];
                dweight[v * deep + i] += (long double)slope * from[i];
            }
        }
    }
    free(logits);
    if (!backward) return;
    interp_summed(&call->results[1], dx);
    interp_summed(&call->results[2], dweight);
}

static void custom(const interp_call *call)
{
    for (uint32_t k = 0; k < call->node->out_count; k++) {
        for (int64_t e = 0; e < call->results[k].count; e++) interp_move(&call->results[k], e, call->args[k], e);
    }
}

bool interp_composite(const interp_call *call)
{
    switch (call->node->op) {
    case SGLIR_OP_CUSTOM_SEED: return true; /* zeros */
    case SGLIR_OP_CUSTOM: custom(call); return true;
    case SGLIR_OP_MATMUL: matmul(call); return true;
    case SGLIR_OP_LINEAR: linear(call); return true;
    case SGLIR_OP_LOGSUMEXP: logsumexp(call); return true;
    case SGLIR_OP_SOFTMAX: softmax(call); return true;
    case SGLIR_OP_RMS_NORM:
    case SGLIR_OP_LAYER_NORM: norm(call); return true;
    case SGLIR_OP_ROPE: rope(call); return true;
    case SGLIR_OP_ATTENTION: attend(call); return true;
    case SGLIR_OP_ATTENTION_GRAD: attend_grad(call); return true;
    case SGLIR_OP_CROSS_ENTROPY: cross_entropy(call); return true;
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD: linear_cross_entropy(call); return true;
    default: return false;
    }
}

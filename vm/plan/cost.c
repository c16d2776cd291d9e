/* cost.c -- what a node costs: column cost of ops.def as formulas over its types.
 *
 * In: a node. Out: arithmetic, transcendental evaluations, and the bytes that it cannot avoid to read and write; no
 * time, which is a matter of the machine. Odd invariant: a fused kernel counts the arithmetic of its region and the
 * bytes of its border only; a loop counts its region as often as it runs, a branch the dearer one. */
#include "plan/cost.h"

/* What one random element takes: ten rounds of ten integer operations make four words; a normal one takes two words. */
enum { UNIFORM_FLOPS = 25, NORMAL_FLOPS = 50, NORMAL_TRANSCENDENTALS = 3 };

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static const sglir_type *arg_type(const sglir_graph *g, const sglir_node *node, uint32_t i)
{
    return sglir_type_of(g, sglir_arg(g, node, i));
}

static const sglir_type *result_type(const sglir_graph *g, const sglir_node *node, uint32_t k)
{
    return sglir_type_of(g, node->out_first + k);
}

static double argument_bytes(const sglir_graph *g, const sglir_node *node)
{
    double bytes = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) bytes += (double)sglir_bytes(arg_type(g, node, i));
    return bytes;
}

static double result_bytes(const sglir_graph *g, const sglir_node *node)
{
    double bytes = 0;
    for (uint32_t k = 0; k < node->out_count; k++) bytes += (double)sglir_bytes(result_type(g, node, k));
    return bytes;
}

static double border_bytes(const sglir_graph *g, const sglir_node *node)
{
    return argument_bytes(g, node) + result_bytes(g, node);
}

/* Elements of the largest argument or result: what a node that works element by element goes over. */
static double largest(const sglir_graph *g, const sglir_node *node)
{
    double most = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        double elements = (double)sglir_elements(arg_type(g, node, i));
        if (elements > most) most = elements;
    }
    for (uint32_t k = 0; k < node->out_count; k++) {
        double elements = (double)sglir_elements(result_type(g, node, k));
        if (elements > most) most = elements;
    }
    return most;
}

/* ---- the rules ------------------------------------------------------------------------------------------------- */

static sglplan_cost sglplan_cost_none(const sglir_graph *g, const sglir_node *node)
{
    (void)g;
    (void)node;
    return (sglplan_cost){ 0 };
}

static sglplan_cost sglplan_cost_elementwise(const sglir_graph *g, const sglir_node *node)
{
    return (sglplan_cost){ .flops = largest(g, node), .bytes = border_bytes(g, node) };
}

static sglplan_cost sglplan_cost_transcendental(const sglir_graph *g, const sglir_node *node)
{
    double elements = largest(g, node);
    return (sglplan_cost){ .flops = elements, .transcendentals = elements, .bytes = border_bytes(g, node) };
}

static sglplan_cost sglplan_cost_random(const sglir_graph *g, const sglir_node *node)
{
    double elements = (double)sglir_elements(result_type(g, node, 0));
    bool normal = node->op == SGLIR_OP_RANDOM_NORMAL;
    return (sglplan_cost){ .flops = elements * (normal ? NORMAL_FLOPS : UNIFORM_FLOPS),
                           .transcendentals = normal ? elements * NORMAL_TRANSCENDENTALS : 0,
                           .bytes = border_bytes(g, node) };
}

static sglplan_cost sglplan_cost_reduce(const sglir_graph *g, const sglir_node *node)
{
    return (sglplan_cost){ .flops = (double)sglir_elements(arg_type(g, node, 0)), .bytes = border_bytes(g, node) };
}

/* Each element of the result is written, and read where it is not padding; of a partial update what is written. */
static sglplan_cost sglplan_cost_movement(const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_DYNAMIC_UPDATE)
        return (sglplan_cost){ .bytes = 2.0 * (double)sglir_bytes(arg_type(g, node, 1)) };
    double in = argument_bytes(g, node), out = result_bytes(g, node);
    return (sglplan_cost){ .bytes = out + (in < out ? in : out) };
}

/* The rows that are looked up or added, not the whole table. */
static sglplan_cost sglplan_cost_gather(const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_GATHER || node->op == SGLIR_OP_TAKE_ALONG)
        return (sglplan_cost){ .bytes = (double)sglir_bytes(arg_type(g, node, 1)) + 2 * result_bytes(g, node) };
    return (sglplan_cost){ .flops = (double)sglir_elements(arg_type(g, node, 1)), .bytes = border_bytes(g, node) };
}

/* Comparisons: n log2 n a row. */
static sglplan_cost sglplan_cost_sort(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *x = arg_type(g, node, 0);
    int64_t axis = node->op == SGLIR_OP_TOP_K ? x->rank - 1 : sglir_attr_int(g, node, "axis");
    double rounds = 1;
    for (int64_t extent = x->dims[axis]; extent > 2; extent = extent / 2 + extent % 2) rounds++;
    return (sglplan_cost){ .flops = rounds * (double)sglir_elements(x), .bytes = border_bytes(g, node) };
}

static double extent_at(const sglir_type *type, int64_t dim) { return (double)type->dims[dim]; }

/* Products of a dot: multiply-adds per element of the result. */
static double contracted(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *a = arg_type(g, node, 0);
    double extent = 1;
    if (node->op == SGLIR_OP_DOT) {
        int count;
        const int64_t *dims = sglir_attr_ints(g, node, "contract_a", &count);
        for (int i = 0; i < count; i++) extent *= extent_at(a, dims[i]);
        return extent;
    }
    return extent_at(a, a->rank - 1); /* matmul, linear */
}

/* A multiply-add for each output, each of its group's channels and each place of the window: the same number for a
 * convolution and for its two gradients. */
static sglplan_cost sglplan_cost_conv(const sglir_graph *g, const sglir_node *node)
{
    bool weight_grad = node->op == SGLIR_OP_CONV_WEIGHT_GRAD;
    const sglir_type *y = node->op == SGLIR_OP_CONV ? result_type(g, node, 0) : arg_type(g, node, weight_grad ? 1 : 0);
    const sglir_type *weight = weight_grad ? result_type(g, node, 0) : arg_type(g, node, 1);
    double terms = (double)sglir_elements(y);
    for (int d = 1; d < weight->rank; d++) terms *= extent_at(weight, d);
    return (sglplan_cost){ .flops = 2 * terms, .bytes = border_bytes(g, node) };
}

/* The vocabulary loss: one product forward; backward the logits again and two products more. Its logits never stand in
 * memory, and each is exponentiated once. */
static sglplan_cost cost_of_loss(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *weight = arg_type(g, node, 1);
    double rows = (double)sglir_elements(arg_type(g, node, 2));
    double logits = rows * extent_at(weight, 0);
    double products = node->op == SGLIR_OP_LINEAR_CROSS_ENTROPY ? 1 : 3;
    return (sglplan_cost){ .flops = 2 * products * logits * extent_at(weight, 1),
                           .transcendentals = logits,
                           .bytes = border_bytes(g, node) };
}

static sglplan_cost sglplan_cost_dot(const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_LINEAR_CROSS_ENTROPY || node->op == SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD)
        return cost_of_loss(g, node);
    double elements = (double)sglir_elements(result_type(g, node, 0));
    double bias = node->op == SGLIR_OP_LINEAR && node->arg_count == 3 ? elements : 0;
    return (sglplan_cost){ .flops = 2 * elements * contracted(g, node) + bias, .bytes = border_bytes(g, node) };
}

/* How many (query, key) pairs one head of one sequence looks at: query i sees keys 0 .. offset + i, and of those the
 * last `window`. An offset that is not known is taken so that the last query sees the last key. */
/* at: number of the argument that is the offset. Segments hold what no plan can know: the price is that of one segment. */
static double pairs_of_attention(const sglir_graph *g, const sglir_node *node, uint32_t at)
{
    double queries = extent_at(arg_type(g, node, 0), 1), keys = extent_at(arg_type(g, node, 1), 1);
    double window = (double)sglir_attr_int(g, node, "window"), offset;
    double most = window > 0 && window < keys ? window : keys;
    if (!sglir_attr_int(g, node, "causal")) return queries * most;
    if (!sglir_constant_value(g, sglir_arg(g, node, at), &offset)) offset = keys - queries;
    if (offset < 0) offset = 0;
    double growing = most - offset; /* queries that see fewer keys than `most` */
    if (growing < 0) growing = 0;
    if (growing > queries) growing = queries;
    return growing * offset + growing * (growing + 1) / 2 + (queries - growing) * most;
}

/* Products per pair: forward q k (d) and p v (e); backward q k again, dout v and p dout (e each), dq and dk (d each). */
static sglplan_cost cost_of_attention(const sglir_graph *g, const sglir_node *node, uint32_t offset, double per_d,
                                      double per_e)
{
    const sglir_type *q = arg_type(g, node, 0), *v = arg_type(g, node, 2);
    double pairs = extent_at(q, 0) * extent_at(q, 2) * pairs_of_attention(g, node, offset);
    return (sglplan_cost){ .flops = 2 * pairs * (per_d * extent_at(q, 3) + per_e * extent_at(v, 3)),
                           .transcendentals = pairs,
                           .bytes = border_bytes(g, node) };
}

static sglplan_cost sglplan_cost_attention(const sglir_graph *g, const sglir_node *node)
{
    return cost_of_attention(g, node, 3, 1, 1);
}

static sglplan_cost sglplan_cost_attention_grad(const sglir_graph *g, const sglir_node *node)
{
    return cost_of_attention(g, node, 6, 3, 2);
}

static const sglplan_cost_fn rules[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attributes, infer, compose, vjp, labels, cost,  \
                 help)                                                                                                 \
    [SGLIR_OP_##NAME] = sglplan_cost_##cost,
#include "ir/ops.def"
#undef SGLIR_OP
};

/* ---- nodes and graphs ------------------------------------------------------------------------------------------- */

static void add(sglplan_cost *sum, sglplan_cost term, double times)
{
    sum->flops += times * term.flops;
    sum->transcendentals += times * term.transcendentals;
    sum->bytes += times * term.bytes;
}

static sglplan_cost cost_of_region(const sglir_graph *g, sglir_id region)
{
    sglplan_cost sum = { 0 };
    for (int64_t i = 0; i < g->regions.data[region].nodes.count; i++)
        add(&sum, sglplan_cost_of(g, g->regions.data[region].nodes.data[i]), 1);
    return sum;
}

/* A kernel makes numbers where it reads them: of a generator that is cut, what is left over. */
static sglplan_cost cost_of_kernel(const sglir_graph *g, const sglir_node *node)
{
    sglplan_cost sum = { 0 };
    const sglir_region *body = &g->regions.data[node->region_first];
    int rank;
    const int64_t *domain = sglir_attr_ints(g, node, "domain", &rank);
    double places = 1;
    for (int i = 0; i < rank; i++) places *= (double)domain[i];
    for (int64_t i = 0; i < body->nodes.count; i++) {
        const sglir_node *inner = sglir_node_at(g, body->nodes.data[i]);
        bool made = sglir_ops[inner->op].flags & SGLIR_GENERATOR;
        double elements = made ? (double)sglir_elements(result_type(g, inner, 0)) : 0;
        add(&sum, sglplan_cost_of(g, body->nodes.data[i]), elements > places ? places / elements : 1);
    }
    sum.bytes = border_bytes(g, node);
    return sum;
}

/* How often the regions are run. Of a loop that ends by itself the limit is all that is known; without one: a turn. */
static double turns_of(const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_SCAN) return (double)sglir_attr_int(g, node, "steps");
    int64_t limit = node->op == SGLIR_OP_WHILE ? sglir_attr_int(g, node, "limit") : 1;
    return limit < 0 ? 1 : (double)limit;
}

sglplan_cost sglplan_cost_of(const sglir_graph *g, sglir_id id)
{
    const sglir_node *node = sglir_node_at(g, id);
    sglplan_cost sum = rules[node->op](g, node);
    if (node->op == SGLIR_OP_FUSED) return cost_of_kernel(g, node);
    if (node->op == SGLIR_OP_COND) {
        sglplan_cost yes = cost_of_region(g, node->region_first), no = cost_of_region(g, node->region_first + 1);
        add(&sum, yes.bytes + yes.flops > no.bytes + no.flops ? yes : no, 1);
        return sum;
    }
    double times = turns_of(g, node);
    for (uint32_t r = 0; r < node->region_count; r++) add(&sum, cost_of_region(g, node->region_first + r), times);
    return sum;
}

sglplan_cost sglplan_cost_graph(const sglir_graph *g) { return cost_of_region(g, 0); }

/* ---- seconds on paper ------------------------------------------------------------------------------------------- */

double sglplan_seconds(const sglplan_cost *cost)
{
    const double flops_per_s = 4e14, bytes_per_s = 4.3e12, launch_s = 2e-6;
    const double flops = cost->flops / flops_per_s, bytes = cost->bytes / bytes_per_s;
    return (flops > bytes ? flops : bytes) + launch_s;
}

double sglplan_move_seconds(int64_t bytes)
{
    const double bytes_per_s = 55e9, start_s = 1e-5;
    return (double)bytes / bytes_per_s + start_s;
}

double sglplan_seconds_unfused(const sglir_graph *g, sglir_id id)
{
    const double parts = 4;
    const sglir_node *node = sglir_node_at(g, id);
    const sglplan_cost cost = sglplan_cost_of(g, id);
    if (node->op == SGLIR_OP_INPUT || sglir_is_view(node) || sglir_op_is_free((sglir_op)node->op)) return 0;
    const bool held = (sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_REDUCTION)) != 0;
    return sglplan_seconds(&cost) / (held ? parts : 1);
}

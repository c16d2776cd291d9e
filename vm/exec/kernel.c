/* kernel.c -- the kernel builder: a FUSED node becomes a flat description.
 *
 * In: the node's region. Out: steps over few dims, and a hash. What may stand in a region and over which axes it runs is
 * the business of ir/domain, the same that the pass `fuse` asks, so a region that fuse made is never refused here. Odd
 * invariant: one register per computed value and per distinct load; movement costs no step. */
#include <inttypes.h>
#include <string.h>

#include "exec/kernel_build.h"
#include "ir/verify.h"

sgl_status sglexec_kernel_refuse(const sglexec_builder *b, sglir_id node, const char *reason)
{
    return sglir_verify_fail(b->g, node == SGLIR_NONE ? b->fused : node, true, SGL_TYPE, "%s", reason);
}

static const sglir_region *region_of(const sglexec_builder *b)
{
    return &b->g->regions.data[sglir_node_at(b->g, b->fused)->region_first];
}

static uint32_t origin_of(const sglexec_builder *b, sglir_id value)
{
    const sglir_node *maker = sglir_maker(b->g, value);
    return maker != NULL ? maker->origin : sglir_node_at(b->g, b->fused)->origin;
}

/* ---- registers ------------------------------------------------------------------------------------------------ */

static uint32_t index_of(const sglexec_builder *b, const sglir_domain_value *value)
{
    return (uint32_t)(value - b->domain.values.data);
}

static sgl_status push(sglexec_builder *b, sglexec_draft draft, const sglir_domain_value *value)
{
    const sglir_type *type = sglir_type_of(b->g, value->value);
    draft.step.dtype = type->dtype;
    draft.step.out = (uint16_t)b->register_count;
    draft.step.origin = origin_of(b, value->value);
    SGLCORE_TRY(sglcore_vec_push(b->env, &b->drafts, draft));
    b->registers.data[index_of(b, value)] = ++b->register_count;
    return SGL_OK;
}

static uint16_t register_of(const sglexec_builder *b, const sglir_domain_value *value)
{
    return (uint16_t)(b->registers.data[value->root] - 1);
}

/* ---- sources -------------------------------------------------------------------------------------------------- */

static bool same_source(const sglexec_draft *a, const sglexec_draft *b)
{
    return a->step.kind == b->step.kind && a->step.dtype == b->step.dtype && a->step.operand == b->step.operand &&
           a->step.id == b->step.id && a->step.map.offset == b->step.map.offset &&
           memcmp(&a->step.value, &b->step.value, sizeof a->step.value) == 0 &&
           memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}

/* Loads, numbers and counters that are there already are not made again. */
static sgl_status push_source(sglexec_builder *b, sglexec_draft draft, const sglir_domain_value *value)
{
    draft.step.dtype = sglir_type_of(b->g, value->value)->dtype;
    for (int64_t i = 0; i < b->drafts.count; i++) {
        const sglexec_draft *other = &b->drafts.data[i];
        if (other->step.kind > SGLEXEC_IOTA || other->step.kind == SGLEXEC_LOAD_PIECES) continue;
        if (!same_source(other, &draft)) continue;
        b->registers.data[index_of(b, value)] = other->step.out + 1u;
        return SGL_OK;
    }
    return push(b, draft, value);
}

static double number_of(const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_CONSTANT) return sglir_attr_float(g, node, "value");
    int count, values;
    const int64_t *counts = sglir_attr_ints(g, node, "counts", &count);
    const double *numbers = sglir_attr_floats(g, node, "values", &values);
    int at = 0;
    while (at + 1 < count && counts[at] == 0) at++; /* of segments with a single element */
    return numbers[at];
}

static sgl_status add_piece(sglexec_builder *b, int64_t *start, int64_t count, uint32_t operand)
{
    if (count == 0) return SGL_OK;
    sglexec_piece piece = { .start = *start, .count = count, .operand = operand };
    *start += count;
    return sglcore_vec_push(b->env, &b->kernel->pieces, piece);
}

static sgl_status make_pieces(sglexec_builder *b, const sglir_domain_value *value)
{
    const sglir_node *node = sglir_maker(b->g, value->base);
    sglexec_kernel *kernel = b->kernel;
    sglexec_draft draft = { .step = { .kind = node->op == SGLIR_OP_PACK ? SGLEXEC_LOAD_PIECES : SGLEXEC_SEGMENTS,
                                      .op = node->op,
                                      .piece_first = (uint32_t)kernel->pieces.count } };
    int64_t start = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_domain_value *arg = sglir_domain_find(&b->domain, sglir_arg(b->g, node, i));
        SGLCORE_TRY(add_piece(b, &start, sglir_elements(sglir_type_of(b->g, arg->value)),
                              sglir_value_at(b->g, arg->base)->index));
    }
    if (node->op == SGLIR_OP_SEGMENTS) {
        int count, values;
        const int64_t *counts = sglir_attr_ints(b->g, node, "counts", &count);
        const double *numbers = sglir_attr_floats(b->g, node, "values", &values);
        for (int i = 0; i < count; i++) {
            SGLCORE_TRY(add_piece(b, &start, counts[i], (uint32_t)kernel->numbers.count));
            SGLCORE_TRY(sglcore_vec_push(b->env, &kernel->numbers, numbers[i]));
        }
    }
    draft.step.piece_count = (uint32_t)kernel->pieces.count - draft.step.piece_first;
    draft.mapped = true; /* one axis, walked through in order */
    draft.strides[0] = 1;
    return push(b, draft, value);
}

static sgl_status make_noise(sglexec_builder *b, const sglir_domain_value *value, sglexec_draft draft)
{
    const sglir_node *node = sglir_maker(b->g, value->base);
    draft.step.kind = SGLEXEC_RANDOM;
    draft.step.op = node->op;
    draft.step.id = sglir_attr_int(b->g, node, "id");
    for (uint32_t i = 0; i < node->arg_count; i++)
        draft.step.args[i] = register_of(b, sglir_domain_find(&b->domain, sglir_arg(b->g, node, i)));
    return push(b, draft, value);
}

static sgl_status make_source(sglexec_builder *b, const sglir_domain_value *value)
{
    if (value->source == SGLIR_PIECES) return make_pieces(b, value);
    sglexec_draft draft = { .step = { .map = { .offset = value->offset } }, .mapped = true };
    sglir_domain_strides(&b->domain, value, draft.strides);
    switch (value->source) {
    case SGLIR_NOISE: return make_noise(b, value, draft);
    case SGLIR_COUNTER: draft.step.kind = SGLEXEC_IOTA; break;
    case SGLIR_NUMBER:
        draft.step.kind = SGLEXEC_NUMBER;
        draft.step.value = number_of(b->g, sglir_maker(b->g, value->base));
        break;
    default:
        draft.step.kind = SGLEXEC_LOAD;
        draft.step.operand = sglir_value_at(b->g, value->base)->index;
        break;
    }
    return push_source(b, draft, value);
}

/* ---- computation ---------------------------------------------------------------------------------------------- */

static sgl_status make_computed(sglexec_builder *b, const sglir_domain_value *value)
{
    const sglir_node *node = sglir_maker(b->g, value->value);
    bool reduces = (sglir_ops[node->op].flags & SGLIR_REDUCTION) != 0;
    const sglir_domain_value *first = sglir_domain_find(&b->domain, sglir_arg(b->g, node, 0));
    if (node->op == SGLIR_OP_STOP_GRADIENT || (reduces && value->reduction == SGLIR_REDUCES_NOT)) {
        b->registers.data[index_of(b, value)] = b->registers.data[first->root];
        return SGL_OK;
    }
    sglexec_draft draft = { .step = { .kind = SGLEXEC_COMPUTE, .op = node->op } };
    if (node->op == SGLIR_OP_ACCUMULATE) draft.step.op = SGLIR_OP_ADD;
    if (node->op == SGLIR_OP_GELU || node->op == SGLIR_OP_GELU_GRAD)
        draft.step.id = sglir_attr_int(b->g, node, "exact");
    for (uint32_t i = 0; i < node->arg_count; i++)
        draft.step.args[i] = register_of(b, sglir_domain_find(&b->domain, sglir_arg(b->g, node, i)));
    if (!reduces) return push(b, draft, value);
    draft.step.kind = SGLEXEC_REDUCE;
    if (value->reduction == SGLIR_REDUCES_ROW) return push(b, draft, value);
    draft.step.kind = value->reduction == SGLIR_REDUCES_ALL ? SGLEXEC_TOTAL : SGLEXEC_COLUMN_SUM;
    draft.step.form = value->reduction == SGLIR_REDUCES_ALL ? SGLEXEC_ONE : SGLEXEC_COL;
    draft.step.dtype = sglir_type_of(b->g, value->value)->dtype;
    draft.step.origin = node->origin;
    const sglir_region *region = region_of(b);
    for (int64_t i = 0; i < region->results.count; i++) { /* once per result that it is */
        if (sglir_domain_find(&b->domain, region->results.data[i])->root != value->root) continue;
        draft.step.operand = (uint32_t)(region->parameters.count + i);
        SGLCORE_TRY(sglcore_vec_push(b->env, &b->drafts, draft));
    }
    return SGL_OK;
}

static sgl_status make_store(sglexec_builder *b, int64_t result)
{
    const sglir_region *region = region_of(b);
    const sglir_domain *d = &b->domain;
    const sglir_domain_value *value = sglir_domain_find(d, region->results.data[result]);
    const sglir_domain_value *root = &d->values.data[value->root];
    if (root->reduction > SGLIR_REDUCES_ROW) return SGL_OK; /* a sum stores itself */
    uint32_t all = (1u << d->axes) - 1;
    sglexec_draft draft = { .step = { .kind = SGLEXEC_STORE,
                                      .form = value->shape == all ? SGLEXEC_FULL : SGLEXEC_ROW,
                                      .dtype = sglir_type_of(b->g, value->value)->dtype,
                                      .operand = (uint32_t)(region->parameters.count + result),
                                      .origin = origin_of(b, value->value) },
                            .mapped = true };
    draft.step.args[0] = register_of(b, value);
    int axes[SGLIR_DOMAIN_AXES], count = sglir_domain_order(d, value, -1, axes);
    int64_t stride = 1;
    for (int i = count - 1; i >= 0; i--) {
        draft.strides[axes[i]] = stride;
        stride *= d->extents[axes[i]];
    }
    return sglcore_vec_push(b->env, &b->drafts, draft);
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

static sgl_status analyse(sglexec_builder *b)
{
    const sglir_region *region = region_of(b);
    const sglir_node *fused = sglir_node_at(b->g, b->fused);
    sglir_domain *d = &b->domain;
    bool good = true;
    sglir_domain_begin(d);
    for (int64_t i = 0; i < region->nodes.count && good; i++) good = sglir_domain_add(d, region->nodes.data[i]);
    int rank;
    const int64_t *dims = sglir_attr_ints(b->g, fused, "domain", &rank);
    int64_t inner = sglir_attr_int(b->g, fused, "inner");
    if (inner < 0 || inner > rank)
        return sglexec_kernel_refuse(b, SGLIR_NONE, "its inner dimensions are not its domain's");
    sglir_domain_rule rule = { .cols = 1, .resident = INT64_MAX };
    int64_t elements = 1;
    for (int i = 0; i < rank; i++) {
        elements *= dims[i];
        if (i < rank - inner) continue;
        if (dims[i] == 0)
            rule.empty++;
        else
            rule.cols *= dims[i];
    }
    good = good && sglir_domain_finish(d, region->results.data, region->results.count, &rule);
    if (!good) return d->status != SGL_OK ? d->status : sglexec_kernel_refuse(b, d->culprit, d->reason);
    if (d->rows * d->cols != elements)
        return sglexec_kernel_refuse(b, SGLIR_NONE, "its domain is not what its nodes run over");
    return SGL_OK;
}

static sgl_status draft_steps(sglexec_builder *b)
{
    const sglir_domain *d = &b->domain;
    SGLCORE_TRY(sglcore_vec_reserve(b->env, &b->registers, d->values.count));
    memset(b->registers.data, 0, (size_t)d->values.count * sizeof *b->registers.data);
    b->registers.count = d->values.count;
    for (int64_t i = 0; i < d->values.count; i++) {
        const sglir_domain_value *value = &d->values.data[i];
        if (value->source != SGLIR_COMPUTED) {
            if (value->consumed) SGLCORE_TRY(make_source(b, value));
        } else if (value->computes) {
            SGLCORE_TRY(make_computed(b, value));
        }
    }
    for (int64_t i = 0; i < region_of(b)->results.count; i++) SGLCORE_TRY(make_store(b, i));
    return SGL_OK;
}

/* Forms wait for the split, which waits for the maps. */
static void settle_forms(sglexec_builder *b)
{
    const sglir_domain *d = &b->domain;
    for (int64_t i = 0; i < d->values.count; i++) {
        uint32_t made = b->registers.data[i];
        if (made == 0) continue;
        sglir_form form = sglir_domain_form(d, &d->values.data[i], b->outer);
        for (int64_t k = 0; k < b->drafts.count; k++) {
            sglexec_step *step = &b->drafts.data[k].step;
            if (step->kind < SGLEXEC_COLUMN_SUM && step->out + 1u == made) step->form = (uint8_t)form;
        }
    }
}

static void hash_step(sglcore_hasher *hasher, const sglexec_step *step, int rank)
{
    const uint64_t facts[] = { step->kind,         step->form,
                               step->dtype,        step->phase,
                               step->op,           step->out,
                               step->args[0],      step->args[1],
                               step->args[2],      step->operand,
                               step->piece_first,  step->piece_count,
                               (uint64_t)step->id, (uint64_t)step->map.offset };
    sglcore_hasher_add(hasher, facts, sizeof facts);
    sglcore_hasher_add(hasher, &step->value, sizeof step->value);
    sglcore_hasher_add(hasher, step->map.strides, (size_t)rank * sizeof *step->map.strides);
}

static void hash_kernel(sglexec_kernel *kernel)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_u64(&hasher, (uint64_t)kernel->rank);
    sglcore_hasher_u64(&hasher, (uint64_t)kernel->inner);
    sglcore_hasher_add(&hasher, kernel->dims, (size_t)kernel->rank * sizeof *kernel->dims);
    sglcore_hasher_u64(&hasher, (uint64_t)kernel->steps.count);
    for (int64_t i = 0; i < kernel->steps.count; i++) hash_step(&hasher, &kernel->steps.data[i], kernel->rank);
    for (int64_t i = 0; i < kernel->pieces.count; i++) {
        sglcore_hasher_u64(&hasher, (uint64_t)kernel->pieces.data[i].count);
        sglcore_hasher_u64(&hasher, kernel->pieces.data[i].operand);
    }
    sglcore_hasher_add(&hasher, kernel->numbers.data, (size_t)kernel->numbers.count * sizeof *kernel->numbers.data);
    kernel->hash = sglcore_hasher_end(&hasher);
}

static sgl_status build(sglexec_builder *b)
{
    SGLCORE_TRY(analyse(b));
    SGLCORE_TRY(draft_steps(b));
    SGLCORE_TRY(sglexec_kernel_merge(b));
    settle_forms(b);
    SGLCORE_TRY(sglexec_kernel_settle(b));
    hash_kernel(b->kernel);
    return SGL_OK;
}

/* The values of a region have neighbouring ids: it was built in one go. */
static void value_range(const sglir_graph *g, const sglir_region *region, sglir_id *first, int64_t *count)
{
    sglir_id low = SGLIR_NONE, high = 0;
    for (int64_t i = 0; i < region->parameters.count; i++) {
        sglir_id id = region->parameters.data[i];
        if (id < low) low = id;
        if (id + 1 > high) high = id + 1;
    }
    for (int64_t i = 0; i < region->nodes.count; i++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[i]);
        if (node->out_first < low) low = node->out_first;
        if (node->out_first + node->out_count > high) high = node->out_first + node->out_count;
    }
    *first = low == SGLIR_NONE ? 0 : low;
    *count = high - *first;
}

sgl_status sglexec_kernel_build(sglcore_env *env, const sglir_graph *g, sglir_id fused, sglexec_kernel *kernel)
{
    *kernel = (sglexec_kernel){ 0 };
    sglexec_builder b = { .env = env, .g = g, .fused = fused, .kernel = kernel };
    sglir_id first;
    int64_t count;
    value_range(g, region_of(&b), &first, &count);
    SGLCORE_TRY(sglir_domain_init(&b.domain, env, g, first, count));
    sgl_status status = build(&b);
    sglir_domain_free(&b.domain);
    sglcore_vec_free(env, &b.drafts);
    sglcore_vec_free(env, &b.registers);
    if (status != SGL_OK) sglexec_kernel_free(env, kernel);
    return status;
}

void sglexec_kernel_free(sglcore_env *env, sglexec_kernel *kernel)
{
    sglcore_vec_free(env, &kernel->steps);
    sglcore_vec_free(env, &kernel->pieces);
    sglcore_vec_free(env, &kernel->numbers);
    *kernel = (sglexec_kernel){ 0 };
}

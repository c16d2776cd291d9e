/* random_cover.c -- counts of what random programs have drawn. In and out: random_cover.h.
 *
 * An op of ops.def that is not met is a failure, unless it is named below with the reason. A derivative counts where the op
 * stands on a way from a parameter to a loss, in the top region or within one that lies on such a way. */
#include "tests/support/random_cover.h"

#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "passes/vjp_rules.h"

static random_cover own, *cover = &own;

void random_cover_at(random_cover *at) { cover = at != NULL ? at : &own; }
random_cover *random_cover_now(void) { return cover; }

void random_cover_add(const random_cover *o)
{
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        cover->drawn[op] += o->drawn[op];
        cover->dtypes[op] |= o->dtypes[op];
        cover->derived[op] += o->derived[op];
        cover->within[op] += o->within[op];
        cover->compiled[op] += o->compiled[op];
    }
    for (int i = 0; i < RANDOM_MOST_PASSES; i++) cover->changed[i] += o->changed[i];
    cover->ranks |= o->ranks;
    cover->empty += o->empty;
    cover->captured += o->captured;
    cover->nested += o->nested;
    cover->in_place += o->in_place;
    cover->micro += o->micro;
    cover->narrow += o->narrow;
    cover->bounded += o->bounded;
    cover->steps += o->steps;
    cover->programs += o->programs;
    cover->derivatives += o->derivatives;
    cover->differences += o->differences;
}

/* ---- what a program holds ---------------------------------------------------------------------------------------- */

static void add_once(int *counts, const bool *seen)
{
    for (int op = 0; op < SGLIR_OP_COUNT; op++) counts[op] += seen[op];
}

static void count_drawn(const sglir_graph *g)
{
    bool seen[SGLIR_OP_COUNT] = { false }, empty = false, nested = false;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, (sglir_id)n);
        seen[node->op] = true;
        nested = nested || (node->region_count > 0 && node->region != 0);
        for (uint32_t k = 0; k < node->out_count; k++) {
            const sglir_type *type = sglir_type_of(g, node->out_first + k);
            cover->dtypes[node->op] |= 1u << type->dtype;
            cover->ranks |= 1u << type->rank;
            empty = empty || sglir_elements(type) == 0;
        }
    }
    add_once(cover->drawn, seen);
    cover->empty += empty;
    cover->nested += nested;
}

typedef struct path {
    const sglir_graph *g;
    uint8_t *needed, *moved; /* per value: the loss is made of it; it is made of a wrt */
    bool *seen, *within;
    bool captures;
} path;

static void need(void *user, sglir_id value) { ((path *)user)->needed[value] = 1; }

/* Marks what the region's needed values are made of; of regions on the way all that they yield counts as needed. */
static void walk_back(path *p, sglir_id id)
{
    const sglir_region *region = &p->g->regions.data[id];
    for (int64_t n = region->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(p->g, region->nodes.data[n]);
        bool makes = false;
        for (uint32_t k = 0; k < node->out_count; k++) {
            sglir_id out = node->out_first + k;
            bool real = sglcore_dtype_is_float((sgl_dtype)sglir_type_of(p->g, out)->dtype);
            makes = makes || (p->needed[out] && p->moved[out] && real);
        }
        if (!makes || node->op == SGLIR_OP_INPUT) continue;
        p->seen[node->op] = true;
        p->within[node->op] = p->within[node->op] || id != 0;
        for (uint32_t i = 0; i < node->arg_count; i++) p->needed[sglir_arg(p->g, node, i)] = 1;
        sglir_each_capture(p->g, node, need, p);
        for (uint32_t r = 0; r < node->region_count; r++) {
            const sglir_region *inner = &p->g->regions.data[node->region_first + r];
            for (int64_t i = 0; i < inner->results.count; i++) p->needed[inner->results.data[i]] = 1;
            walk_back(p, node->region_first + r);
        }
    }
}

typedef struct captures {
    const uint8_t *moved;
    const sglir_graph *g;
    bool any;
} captures;

static void look_at_capture(void *user, sglir_id value)
{
    captures *c = user;
    bool real = sglcore_dtype_is_float((sgl_dtype)sglir_type_of(c->g, value)->dtype);
    c->any = c->any || (real && c->moved[value]);
}

static bool captures_gradients(const path *p)
{
    captures c = { p->moved, p->g, false };
    for (int64_t n = 0; n < p->g->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(p->g, (sglir_id)n);
        if (node->region_count > 0 && p->needed[node->out_first] && p->moved[node->out_first])
            sglir_each_capture(p->g, node, look_at_capture, &c);
    }
    return c.any;
}

static void count_derived(const sglir_graph *g)
{
    bool seen[SGLIR_OP_COUNT] = { false }, within[SGLIR_OP_COUNT] = { false }, captured = false;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, (sglir_id)n);
        if (node->op != SGLIR_OP_GRAD) continue;
        path p = { .g = g, .seen = seen, .within = within };
        p.needed = calloc((size_t)g->values.count, 1);
        p.moved = calloc((size_t)g->values.count, 1);
        if (p.needed == NULL || p.moved == NULL) abort();
        sglir_mark_dependents(g, &g->args.data[node->arg_first + 1], (int)node->arg_count - 1, p.moved);
        p.needed[sglir_arg(g, node, 0)] = 1;
        walk_back(&p, 0);
        captured = captured || captures_gradients(&p);
        free(p.needed);
        free(p.moved);
        seen[SGLIR_OP_GRAD] = true;
    }
    add_once(cover->derived, seen);
    add_once(cover->within, within);
    cover->captured += captured;
    cover->derivatives += seen[SGLIR_OP_GRAD];
}

void random_cover_program(const sglir_graph *g)
{
    cover->programs++;
    count_drawn(g);
    count_derived(g);
}

/* A kernel's result over one of its arguments. */
static bool lies_over(const sglir_graph *g, const sglir_node *node)
{
    for (uint32_t k = 0; k < node->out_count; k++) {
        const sglir_value *out = sglir_value_at(g, node->out_first + k);
        for (uint32_t i = 0; i < node->arg_count && out->space != SGLIR_SPACE_NONE; i++) {
            const sglir_value *arg = sglir_value_at(g, sglir_arg(g, node, i));
            if (arg->space == out->space && arg->offset == out->offset && sglir_bytes(&out->type) > 0) return true;
        }
    }
    return false;
}

void random_cover_compiled(const sglir_graph *placed)
{
    bool seen[SGLIR_OP_COUNT] = { false }, over = false;
    for (int64_t n = 0; n < placed->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(placed, (sglir_id)n);
        seen[node->op] = true;
        over = over || (node->op == SGLIR_OP_FUSED && lies_over(placed, node));
    }
    add_once(cover->compiled, seen);
    cover->in_place += over;
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

static const struct {
    sglir_op op;
    const char *why;
} made_elsewhere[] = {
    { SGLIR_OP_SCALE, "the pass precision makes it and autodiff takes it away" },
    { SGLIR_OP_UNSCALE, "the same" },
    { SGLIR_OP_FUSED, "counted where it is compiled" },
    { SGLIR_OP_COPY, "the same" },
    { SGLIR_OP_AFTER, "the same" },
    { SGLIR_OP_ACCUMULATE, "the same" },
    { SGLIR_OP_OFFLOAD, "the same" },
    { SGLIR_OP_PREFETCH, "the same" },
    { SGLIR_OP_ARRIVED, "the same" },
};
enum { MADE_ELSEWHERE = sizeof made_elsewhere / sizeof made_elsewhere[0] };

static bool is_made_elsewhere(int op)
{
    for (int i = 0; i < MADE_ELSEWHERE; i++) {
        if ((int)made_elsewhere[i].op == op) return true;
    }
    return false;
}

static bool has_derivative(int op)
{
    sglpass_vjp_fn rule = sglpass_vjp_rule((sglir_op)op);
    return rule != sglpass_vjp_zero && rule != sglpass_vjp_refuse && op != SGLIR_OP_SCALE;
}

static int count_bits(uint32_t bits) { return __builtin_popcount(bits); }

void random_cover_print(FILE *out)
{
    fprintf(out, "%-26s %7s %6s %7s %7s %8s\n", "op", "drawn", "dtypes", "derived", "within", "compiled");
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        fprintf(out, "%-26s %7d %6d %7d %7d %8d\n", sglir_ops[op].name, cover->drawn[op], count_bits(cover->dtypes[op]),
                cover->derived[op], cover->within[op], cover->compiled[op]);
    }
    for (int i = 0; sglpass_pipeline[i].name != NULL; i++)
        fprintf(out, "pass %-21s %7d programs changed\n", sglpass_pipeline[i].name, cover->changed[i]);
    fprintf(
        out,
        "%d programs: %d with gradients (%d held against differences, %d of what regions use), %d with regions in "
        "regions, %d with empty tensors, %d ranks, %d twice, %d in micro-batches, %d in bf16 or fp16, %d against a bound "
        "on memory, %d with results in place\n",
        cover->programs, cover->derivatives, cover->differences, cover->captured, cover->nested, cover->empty,
        count_bits(cover->ranks), cover->steps, cover->micro, cover->narrow, cover->bounded, cover->in_place);
}

static int miss(FILE *out, bool met, const char *what, const char *name)
{
    if (!met) fprintf(out, "random programs: %s %s is never met\n", what, name);
    return !met;
}

int random_cover_missing(FILE *out)
{
    int missing = 0;
    uint32_t all = 0;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        const char *name = sglir_ops[op].name;
        bool among_ranks = sglir_is_among_ranks((sglir_op)op) || op == SGLIR_OP_TERMS || op == SGLIR_OP_DECLARE;
        bool met =
            among_ranks || /* of one rank there are none: test_shard lays programs out over several */
            cover->drawn[op] > 0 ||
            (is_made_elsewhere(op) && (cover->compiled[op] > 0 || op == SGLIR_OP_SCALE || op == SGLIR_OP_UNSCALE));
        missing += miss(out, met, "the op", name);
        if (has_derivative(op)) missing += miss(out, cover->derived[op] > 0, "the derivative of", name);
        all |= cover->dtypes[op];
    }
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++)
        missing += miss(out, all >> dtype & 1, "the dtype", sgl_dtype_name((sgl_dtype)dtype));
    for (int i = 0; sglpass_pipeline[i].name != NULL; i++) {
        /* What takes ranks is tested elsewhere: unit/test_stages.c, ir/collect_buckets.txt; and optimizers' packs:
         * ir/pieces_adamw.txt; and what the CPU does not run whole: ir/join_linear.txt. */
        sglpass_fn run = sglpass_pipeline[i].run;
        bool alone =
            run == sglpass_stages_split || run == sglpass_collect || run == sglpass_pieces || run == sglpass_join;
        missing += miss(out, cover->changed[i] > 0 || alone, "a change by the pass", sglpass_pipeline[i].name);
    }
    for (int rank = 0; rank <= 6; rank++)
        missing += miss(out, cover->ranks >> rank & 1, "a value of some rank", "0..6");
    missing += miss(out, cover->derived[SGLIR_OP_SCAN] > 0 && cover->captured > 0, "a gradient of what", "regions use");
    missing += miss(out,
                    cover->micro > 0 && cover->narrow > 0 && cover->bounded > 0 && cover->in_place > 0 &&
                        cover->nested > 0 && cover->empty > 0 && cover->differences > 0,
                    "a way of", "the last line of the table");
    return missing;
}

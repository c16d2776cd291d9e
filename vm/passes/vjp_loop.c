/* vjp_loop.c -- the derivative of a loop: a loop that goes through the turns from the last to the first.
 *
 * In: a scan or while, the gradients of its results. Out: a loop whose carries are the gradients of the carries, and for
 * each value from around the sum of its gradients so far. What it needs of a turn was kept by the stand-in of the loop: a
 * stack per value, of which each turn writes its slice. A while keeps `limit` slices, and counts its turns.
 * Odd invariant: what is not summed over turns (slices of xs, rows of a table) is never added to the whole of a large value
 * at every turn (vjp_sum.h). */
#include <inttypes.h>

#include "passes/vjp_control.h"
#include "passes/vjp_rules.h"
#include "passes/vjp_sum.h"

typedef struct loop {
    const sglpass_vjp *v;
    sglir_graph *g;
    bool scan;
    int64_t turns; /* steps, or the limit */
    uint32_t carries;
    sglir_id instead; /* the loop whose results are used; its node */
    sglpass_turn turn, decides;
    sglpass_kept_list kept;
    int64_t new_stacks;
    sglir_id count; /* WHILE: the value that says how many turns there were */
    uint8_t *active, *of_carry;
    sglir_id *stack;
    SGLCORE_VEC(uint32_t) summed; /* captures that get a gradient */
    SGLCORE_VEC(sglir_id) ids;
    SGLCORE_VEC(sglir_type) types;
    sglcore_arena arena;
} loop;

static bool good(const loop *l) { return l->g->status == SGL_OK; }
static const sglir_node *node_of(const loop *l) { return sglir_node_at(l->g, l->v->node); }
static void push_type(loop *l, sglir_type type) { sglir_stick(l->g, sglcore_vec_push(l->g->env, &l->types, type)); }
static sglir_id number(loop *l, int64_t value) { return sglir_constant(l->g, SGL_I64, (double)value); }

/* ---- stacks ------------------------------------------------------------------------------------------------------- */

/* start is index, or turns - 1 - index: each turn has a slice of its own. */
static bool meets_all(const loop *l, sglir_id start, sglir_id index)
{
    double value;
    const sglir_node *maker = sglir_maker(l->g, start);
    if (start == index) return true;
    return l->scan && maker != NULL && maker->op == SGLIR_OP_SUB && sglir_arg(l->g, maker, 1) == index &&
           sglir_constant_value(l->g, sglir_arg(l->g, maker, 0), &value) && value == (double)(l->turns - 1);
}

/* The node that writes this turn's slice of carry i, when no more is done to that carry. */
static sglir_id stack_at(const loop *l, uint32_t i, const uint32_t *uses)
{
    const sglir_graph *g = l->g;
    const sglir_node *node = node_of(l);
    const sglir_region *body = &g->regions.data[sglir_body(node)];
    sglir_id parameter = body->parameters.data[i + 1], yielded = body->results.data[i];
    const sglir_node *maker = sglir_maker(g, yielded);
    if (maker == NULL || maker->op != SGLIR_OP_DYNAMIC_UPDATE || maker->region != sglir_body(node)) return SGLIR_NONE;
    if (sglir_arg(g, maker, 0) != parameter || uses[parameter] != 1 || uses[yielded] != 1) return SGLIR_NONE;
    if (!l->scan && uses[g->regions.data[node->region_first].parameters.data[i + 1]] > 0) return SGLIR_NONE;
    if (!l->scan && l->v->wanted[i]) return SGLIR_NONE; /* slices of turns that are not run stay as they came */
    const sglir_type *slice = sglir_type_of(g, sglir_arg(g, maker, 1));
    if (sglir_attr_int(g, maker, "axis") != 0 || slice->rank == 0 || slice->dims[0] != 1) return SGLIR_NONE;
    if (sglir_type_of(g, parameter)->dims[0] != l->turns) return SGLIR_NONE;
    bool all = meets_all(l, sglir_arg(g, maker, 2), body->parameters.data[0]);
    return all ? sglir_value_at(g, yielded)->node : SGLIR_NONE;
}

static void find_stacks(loop *l)
{
    size_t bytes = (size_t)l->g->values.count * sizeof(uint32_t);
    uint32_t *uses = sglcore_alloc(l->g->env, bytes);
    if (uses == NULL) {
        sglir_stick(l->g, SGL_OUT_OF_MEMORY);
        return;
    }
    sglir_count_uses(l->g, uses);
    for (uint32_t i = 0; i < l->carries; i++) l->stack[i] = stack_at(l, i, uses);
    sglcore_free(l->g->env, uses, bytes);
}

/* ---- carries that have gradients ------------------------------------------------------------------------------------ */

typedef struct reach {
    uint8_t *needed;
} reach;

static void need_value(void *user, sglir_id value) { ((reach *)user)->needed[value] = 1; }

/* One more turn back: what the yields that have gradients are made from; true when a carry is found that has none yet. */
static bool reach_back(loop *l, uint8_t *needed)
{
    const sglir_graph *g = l->g;
    const sglir_region *body = &g->regions.data[sglir_body(node_of(l))];
    reach r = { needed };
    bool news = false;
    for (uint32_t i = 0; i < l->carries; i++) {
        if (l->active[i]) needed[body->results.data[i]] = 1;
    }
    for (int64_t n = body->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(g, body->nodes.data[n]);
        bool makes = false;
        for (uint32_t k = 0; k < node->out_count; k++) makes = makes || needed[node->out_first + k];
        if (!makes || sglpass_vjp_rule((sglir_op)node->op) == sglpass_vjp_zero) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) needed[sglir_arg(g, node, i)] = 1;
        sglir_each_capture(g, node, need_value, &r);
    }
    for (uint32_t i = 0; i < l->carries; i++) {
        bool floats = sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, body->results.data[i])->dtype);
        if (l->active[i] || !floats || !needed[body->parameters.data[i + 1]]) continue;
        l->active[i] = 1;
        news = true;
    }
    return news;
}

static void find_active(loop *l)
{
    size_t bytes = (size_t)l->g->values.count;
    uint8_t *needed = sglcore_alloc_zero(l->g->env, bytes);
    if (needed == NULL) {
        sglir_stick(l->g, SGL_OUT_OF_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < l->carries; i++) l->active[i] = l->v->dys[i] != SGLIR_NONE;
    while (reach_back(l, needed)) {}
    for (uint32_t i = 0; i < l->carries; i++) l->of_carry[i] = l->active[i] && l->stack[i] == SGLIR_NONE;
    sglcore_free(l->g->env, needed, bytes);
}

/* ---- the loop that keeps --------------------------------------------------------------------------------------------- */

/* The type with the turns before it. Where no dimension is free the last two lie together: slices are reshaped anyway. */
static sglir_type stacked(const loop *l, sglir_type type)
{
    if (type.rank == SGL_MAX_RANK) {
        int64_t *last = &type.dims[SGL_MAX_RANK - 2];
        if (__builtin_mul_overflow(last[0], last[1], &last[0])) last[0] = 0; /* it is empty */
        last[1] = 0;
        type.rank--;
    }
    for (int i = type.rank; i > 0; i--) type.dims[i] = type.dims[i - 1];
    type.dims[0] = l->turns;
    type.rank++;
    return type;
}

/* Begins a region of the loop with parameters (index, what `types` says); their ids into l->ids. */
static bool begin_region(loop *l, sglir_id region)
{
    l->ids.count = 0;
    sglir_stick(l->g, sglcore_vec_reserve(l->g->env, &l->ids, l->types.count));
    if (!good(l)) return false;
    l->ids.count = l->types.count;
    sglir_region_begin_at(l->g, region, l->types.data, (int)l->types.count, l->ids.data);
    return good(l);
}

static void map_parameters(const loop *l, const sglpass_turn *t, sglir_rewrite *rewrite)
{
    for (int64_t i = 0; i < t->parameters; i++) {
        if (t->parameter[i] != SGLIR_NONE) rewrite->map[t->parameter[i]] = l->ids.data[i];
    }
}

/* The stand-in's turn: the region, and a slice more of each new stack. */
static void emit_keeping_turn(loop *l, sglir_id region)
{
    sglir_rewrite rewrite;
    const sglpass_turn *t = &l->turn;
    if (!begin_region(l, region) || !sglpass_turn_begin(t, &rewrite)) return;
    map_parameters(l, t, &rewrite);
    sglir_id index = l->ids.data[0], *yields = l->ids.data + 1; /* each takes its parameter's place */
    if (sglpass_control_copy_region(t, &l->kept, &rewrite)) {
        for (uint32_t i = 0; i < l->carries; i++) {
            sglir_id value = rewrite.map[t->yield[i]];
            yields[i] = t->start[i] == SGLIR_NONE
                            ? value
                            : sglpass_sum_update(l->g, yields[i], value, rewrite.map[t->start[i]], 0);
        }
        for (int64_t k = 0; k < l->kept.count && good(l); k++) {
            const sglpass_kept *kept = &l->kept.data[k];
            if (kept->stack >= 0) continue;
            sglir_id value = rewrite.map[kept->value], *stack = &yields[l->carries + kept->slot];
            *stack = sglpass_sum_push(l->g, *stack, value, index);
        }
        if (!l->scan) yields[l->carries + l->new_stacks] = sglir_add(l->g, index, number(l, 1));
    }
    sglpass_turn_end(t, &rewrite);
    sglir_region_end(l->g, yields, (int)l->types.count - 1);
}

/* What decides about the turns, with more carries. */
static void emit_deciding(loop *l, sglir_id region)
{
    sglir_rewrite rewrite;
    const sglpass_turn *t = &l->decides;
    if (!begin_region(l, region) || !sglpass_turn_begin(t, &rewrite)) return;
    map_parameters(l, t, &rewrite);
    sglpass_control_copy_region(t, NULL, &rewrite);
    sglir_id predicate = rewrite.map[t->yield[0]];
    sglpass_turn_end(t, &rewrite);
    sglir_region_end(l->g, &predicate, 1);
}

typedef void (*region_fn)(loop *l, sglir_id region);

static sglir_id emit_loop(loop *l, region_fn decides, region_fn turn, const sglir_id *args, bool derived)
{
    sglir_graph *g = l->g;
    int count = l->scan ? 1 : 2;
    int64_t carries = l->types.count - 1;
    const sglir_named attrs[2] = { SGLIR_I(l->scan ? "steps" : "limit", l->turns),
                                   SGLIR_I("recompute", sglpass_vjp_int(l->v, "recompute")) };
    sglir_id regions[2] = { sglir_region_take(g, count) };
    regions[1] = regions[0] + 1;
    if (!l->scan && good(l)) decides(l, regions[0]);
    if (good(l)) turn(l, regions[count - 1]);
    sglpass_control_origin(l->v, derived);
    return sglir_emit_regions(g, (sglir_op)node_of(l)->op, args, (int)carries, attrs, 2, regions, count, NULL);
}

/* Emits the stand-in where something must be kept that is not. */
static void emit_keeping(loop *l)
{
    for (int64_t k = 0; k < l->kept.count; k++) {
        if (l->kept.data[k].stack < 0) l->kept.data[k].slot = l->new_stacks++;
    }
    if (l->scan && l->new_stacks == 0) return;
    l->types.count = 0;
    push_type(l, sglir_type_make(SGL_I64, 0, NULL));
    sglir_id *args = sglcore_arena_alloc(&l->arena, (size_t)(l->carries + l->new_stacks + 1) * sizeof *args);
    if (args == NULL) sglir_stick(l->g, SGL_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < l->carries && good(l); i++) {
        args[i] = sglpass_vjp_arg(l->v, i);
        push_type(l, *sglir_type_of(l->g, args[i]));
    }
    for (int64_t k = 0; k < l->kept.count && good(l); k++) {
        if (l->kept.data[k].stack >= 0) continue;
        sglir_type type = stacked(l, *sglir_type_of(l->turn.h, l->kept.data[k].value));
        args[l->carries + l->kept.data[k].slot] =
            sglir_broadcast(l->g, sglir_constant(l->g, (sgl_dtype)type.dtype, 0), type.rank, type.dims);
        push_type(l, type);
    }
    if (!l->scan && good(l)) {
        args[l->carries + l->new_stacks] = number(l, 0);
        push_type(l, sglir_type_make(SGL_I64, 0, NULL));
    }
    if (!good(l)) return;
    sglpass_control_origin(l->v, false);
    sglir_id first = emit_loop(l, emit_deciding, emit_keeping_turn, args, false);
    if (!good(l)) return;
    l->instead = sglir_value_at(l->g, first)->node;
    if (!l->scan) l->count = first + l->carries + (sglir_id)l->new_stacks;
    *l->v->instead = l->instead;
}

/* ---- the loop that goes back ------------------------------------------------------------------------------------------- */

/* Whether the gradient of capture c, a narrow float, is summed in f32: many terms would be lost in its own dtype. Slices
 * that lie beside one another are not summed. */
static bool sums_wide(const loop *l, uint32_t c)
{
    sgl_dtype dtype = (sgl_dtype)sglir_type_of(l->g, l->v->captures[c])->dtype;
    return sglcore_dtype_bits(dtype) < 32 && !sglpass_sum_has_slice(l->turn.h, l->turn.d_capture[c]);
}

/* Where capture c is a table of which each turn reads rows: what the turn adds to it. These are kept, in two stacks. */
static const sglir_node *rows_of(const loop *l, uint32_t c)
{
    return l->scan ? sglpass_sum_rows(l->turn.h, l->turn.d_capture[c]) : NULL;
}

/* The turn that is gone back through at this index. */
static sglir_id turn_back(loop *l, sglir_id index)
{
    sglir_id last = l->scan ? number(l, l->turns - 1) : sglir_sub(l->g, l->count, number(l, 1));
    return sglir_sub(l->g, last, index);
}

/* What this turn needs of the turn that it derives. */
static void load_kept(loop *l, sglir_rewrite *rewrite, sglir_id back)
{
    sglir_id first = sglir_node_at(l->g, l->instead)->out_first;
    const sglpass_turn *t = &l->turn;
    for (uint32_t i = 0; i < l->carries && good(l); i++) {
        if (t->start[i] == SGLIR_NONE) continue;
        sglpass_turn_copy_start(rewrite, t->start[i]);
        if (t->seed[i] != SGLIR_NONE && good(l))
            rewrite->map[t->seed[i]] = sglpass_sum_slice_at(l->g, l->v->dys[i], rewrite->map[t->start[i]]);
    }
    for (int64_t k = 0; k < l->kept.count && good(l); k++) {
        const sglpass_kept *kept = &l->kept.data[k];
        const sglir_type *type = sglir_type_of(t->h, kept->value);
        sglir_id slice = kept->stack >= 0 ? sglpass_sum_slice_at(l->g, first + (sglir_id)kept->stack,
                                                                 rewrite->map[t->start[kept->stack]])
                                          : sglpass_sum_slice_at(l->g, first + l->carries + (sglir_id)kept->slot, back);
        rewrite->map[kept->value] = sglir_reshape(l->g, slice, type->rank, type->dims);
    }
}

static void emit_derived_turn(loop *l, sglir_id region)
{
    sglir_rewrite rewrite;
    const sglpass_turn *t = &l->turn;
    if (!begin_region(l, region) || !sglpass_turn_begin(t, &rewrite)) return;
    sglir_id back = turn_back(l, l->ids.data[0]), *yields = l->ids.data + 1;
    uint32_t at = 0;
    if (t->parameter[0] != SGLIR_NONE) rewrite.map[t->parameter[0]] = back;
    for (uint32_t i = 0; i < l->carries; i++) {
        if (!l->of_carry[i]) continue;
        if (t->seed[i] != SGLIR_NONE) rewrite.map[t->seed[i]] = yields[at];
        at++;
    }
    load_kept(l, &rewrite, back);
    sglpass_turn_copy_picked(t, &rewrite);
    at = 0;
    for (uint32_t i = 0; i < l->carries && good(l); i++) {
        if (!l->of_carry[i]) continue;
        yields[at++] = sglpass_control_gradient(l->v, rewrite.map[t->d_carry[i]], sglpass_vjp_result(l->v, i), false);
    }
    for (int64_t i = 0; i < l->summed.count && good(l); i++) {
        uint32_t c = l->summed.data[i];
        sglir_id d = rewrite.map[t->d_capture[c]];
        const sglir_node *rows = rows_of(l, c);
        for (uint32_t k = 0; rows != NULL && k < 2 && good(l); k++, at++)
            yields[at] = sglpass_sum_push(l->g, yields[at], rewrite.map[sglir_arg(t->h, rows, k)], l->ids.data[0]);
        if (rows != NULL) continue;
        if (sums_wide(l, c)) d = sglpass_vjp_widened(l->g, d, SGL_F32);
        yields[at] = sglpass_sum_add(l->g, yields[at], d, back, l->scan ? l->turns : -1);
        at++;
    }
    sglpass_turn_end(t, &rewrite);
    sglir_region_end(l->g, yields, (int)at);
}

/* As many turns as there were. */
static void emit_counting(loop *l, sglir_id region)
{
    if (!begin_region(l, region)) return;
    sglir_id predicate = sglir_binary(l->g, SGLIR_OP_LESS, l->ids.data[0], l->count);
    sglir_region_end(l->g, &predicate, 1);
}

static void find_summed(loop *l)
{
    double value;
    for (uint32_t c = 0; c < l->v->capture_count; c++) {
        sglir_id d = l->turn.d_capture[c];
        if (d == SGLIR_NONE || (sglir_constant_value(l->turn.h, d, &value) && value == 0)) continue;
        sglir_stick(l->g, sglcore_vec_push(l->g->env, &l->summed, c));
    }
}

static void push_carry(loop *l, sglir_id *args, sglir_id first)
{
    args[l->types.count - 1] = first;
    push_type(l, *sglir_type_of(l->g, first));
}

/* What the sum over capture c begins with. */
static void push_sum(loop *l, sglir_id *args, uint32_t c)
{
    const sglir_node *rows = rows_of(l, c);
    for (uint32_t k = 0; rows != NULL && k < 2 && good(l); k++) {
        sglir_type type = stacked(l, *sglir_type_of(l->turn.h, sglir_arg(l->turn.h, rows, k)));
        sglir_id zeros = sglir_broadcast(l->g, sglir_constant(l->g, (sgl_dtype)type.dtype, 0), type.rank, type.dims);
        push_carry(l, args, k == 0 ? zeros : sglpass_control_gradient(l->v, SGLIR_NONE, zeros, false));
    }
    if (rows == NULL)
        push_carry(l, args, sglpass_control_gradient(l->v, SGLIR_NONE, l->v->captures[c], sums_wide(l, c)));
}

/* The gradient of capture c, of what the loop gives from `out` on; where the next one's begins. */
static sglir_id take_sum(loop *l, sglir_id out, uint32_t c)
{
    sglir_id sum = out;
    if (rows_of(l, c) != NULL) {
        sglir_id args[2] = { out, sglpass_control_gradient(l->v, out + 1, out + 1, true) };
        const sglir_named extent = SGLIR_I("extent", sglir_type_of(l->g, l->v->captures[c])->dims[0]);
        sum = sglir_emit(l->g, SGLIR_OP_SCATTER_ADD, args, 2, &extent, 1, NULL);
        out++;
    }
    l->v->into[l->carries + c] = sglpass_control_narrow(l->v, sum, l->v->captures[c]);
    return out + 1;
}

static void emit_derived(loop *l)
{
    const sglpass_vjp *v = l->v;
    sglir_id *args = sglcore_arena_alloc(&l->arena, (size_t)(l->carries + 2 * l->summed.count + 1) * sizeof *args);
    if (args == NULL) sglir_stick(l->g, SGL_OUT_OF_MEMORY);
    l->types.count = 0;
    push_type(l, sglir_type_make(SGL_I64, 0, NULL));
    sglpass_control_origin(v, true);
    for (uint32_t i = 0; i < l->carries && good(l); i++) {
        if (!l->of_carry[i]) continue;
        push_carry(l, args, sglpass_control_gradient(v, v->dys[i], sglpass_vjp_result(v, i), false));
    }
    for (int64_t i = 0; i < l->summed.count && good(l); i++) push_sum(l, args, l->summed.data[i]);
    if (!good(l) || l->types.count == 1) return;
    sglir_id out = emit_loop(l, emit_counting, emit_derived_turn, args, true);
    for (uint32_t i = 0; i < l->carries && good(l); i++) {
        if (l->of_carry[i]) v->into[i] = out++;
    }
    for (int64_t i = 0; i < l->summed.count && good(l); i++) out = take_sum(l, out, l->summed.data[i]);
}

/* ---- the rules ------------------------------------------------------------------------------------------------------------ */

static void derive_loop(loop *l)
{
    const sglpass_vjp *v = l->v;
    sglir_id regions = node_of(l)->region_first;
    l->active = sglcore_arena_alloc(&l->arena, l->carries);
    l->of_carry = sglcore_arena_alloc(&l->arena, l->carries);
    l->stack = sglcore_arena_alloc(&l->arena, l->carries * sizeof *l->stack);
    if (!l->active || !l->of_carry || !l->stack) {
        sglir_stick(l->g, SGL_OUT_OF_MEMORY);
        return;
    }
    find_stacks(l);
    if (good(l)) find_active(l);
    l->turn = (sglpass_turn){ .v = v,
                              .loops = true,
                              .scaled = sglpass_control_scaled(v),
                              .active = l->active,
                              .stack = l->stack,
                              .of_carry = l->of_carry };
    l->decides = (sglpass_turn){ .v = v, .loops = true };
    if (!good(l) || !sglpass_turn_make(&l->turn, sglir_body(node_of(l)))) return;
    if (!sglpass_turn_decide(&l->turn, sglpass_vjp_int(v, "recompute") != 0)) return;
    if (!l->scan && !sglpass_turn_make(&l->decides, regions)) return;
    if (!sglpass_control_keep(v, &l->turn, &l->kept)) return;
    find_summed(l);
    if (good(l)) emit_keeping(l);
    if (good(l)) emit_derived(l);
}

static void derive(const sglpass_vjp *v, bool scan, int64_t turns)
{
    loop l = { .v = v,
               .g = v->g,
               .scan = scan,
               .turns = turns,
               .carries = sglir_node_at(v->g, v->node)->arg_count,
               .instead = v->node,
               .arena = { .env = v->g->env } };
    if (turns > 0) {
        derive_loop(&l);
    } else { /* the carries as they came */
        for (uint32_t i = 0; i < l.carries; i++) v->into[i] = v->dys[i];
    }
    sglpass_turn_free(&l.turn);
    sglpass_turn_free(&l.decides);
    sglcore_vec_free(v->g->env, &l.kept);
    sglcore_vec_free(v->g->env, &l.summed);
    sglcore_vec_free(v->g->env, &l.ids);
    sglcore_vec_free(v->g->env, &l.types);
    sglcore_arena_free(&l.arena);
}

void sglpass_vjp_scan(const sglpass_vjp *v) { derive(v, true, sglpass_vjp_int(v, "steps")); }

void sglpass_vjp_while(const sglpass_vjp *v)
{
    int64_t limit = sglpass_vjp_int(v, "limit");
    if (limit < 0) {
        sglir_fail_node(
            v->g, v->node, SGL_UNSUPPORTED,
            "has no limit, so nobody knows how many turns its gradient must keep; say how many there can be: "
            "limit = n");
        return;
    }
    derive(v, false, limit);
}

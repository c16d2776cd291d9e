/* vjp_control.c -- the derivatives of branches and of what loops and branches have in common.
 *
 * In: a cond, the gradients of its results. Out: a cond of the derivatives of its two regions, which yields a gradient for
 * each value from around, zeros from a region that does not use it. What the derivatives need of the regions is yielded by
 * the cond itself: then another cond is emitted, to stand in its place. Odd invariant: both regions yield the same types,
 * so one of them yields zeros for what only the other keeps; places are shared where types are equal. */
#include "passes/vjp_control.h"
#include "passes/vjp_rules.h"

/* ---- kept values ------------------------------------------------------------------------------------------------ */

bool sglpass_control_keep(const sglpass_vjp *v, const sglpass_turn *t, sglpass_kept_list *list)
{
    for (int64_t value = 0; value < t->h->values.count; value++) {
        if (!t->kept[value]) continue;
        sglpass_kept kept = { .value = (sglir_id)value, .stack = sglpass_turn_stack_of(t, (sglir_id)value) };
        sglir_stick(v->g, sglcore_vec_push(v->g->env, list, kept));
    }
    return v->g->status == SGL_OK;
}

bool sglpass_control_scaled(const sglpass_vjp *v)
{
    uint32_t results = sglir_node_at(v->g, v->node)->out_count;
    for (uint32_t k = 0; k < results; k++) {
        if (v->dys[k] != SGLIR_NONE && sglir_type_of(v->g, v->dys[k])->scaled) return true;
    }
    return false;
}

sglir_id sglpass_control_gradient(const sglpass_vjp *v, sglir_id value, sglir_id like, bool wide)
{
    if (v->g->status != SGL_OK) return SGLIR_NONE;
    bool scaled = sglpass_control_scaled(v);
    sgl_dtype dtype = (sgl_dtype)sglir_type_of(v->g, like)->dtype;
    if (wide && sglcore_dtype_bits(dtype) < 32) dtype = SGL_F32;
    double number;
    if (value != SGLIR_NONE && sglir_constant_value(v->g, value, &number) && number == 0) value = SGLIR_NONE;
    if (value != SGLIR_NONE) value = sglpass_vjp_widened(v->g, value, dtype);
    if (v->g->status != SGL_OK) return SGLIR_NONE;
    if (value != SGLIR_NONE && (!scaled || sglir_type_of(v->g, value)->scaled)) return value;
    const sglir_type type = *sglir_type_of(v->g, like);
    sglir_id zeros = sglir_broadcast(v->g, sglir_constant(v->g, dtype, 0), type.rank, type.dims), out = zeros;
    if (!scaled || v->g->status != SGL_OK) return zeros;
    /* Zeros are zeros under whatever scale; autodiff drops this one when types have said what they had to. */
    const sglir_id args[2] = { zeros, sglir_constant(v->g, dtype, 1) };
    sglir_emit(v->g, SGLIR_OP_SCALE, args, 2, NULL, 0, &out);
    return out;
}

sglir_id sglpass_control_narrow(const sglpass_vjp *v, sglir_id value, sglir_id like)
{
    if (v->g->status != SGL_OK) return SGLIR_NONE;
    return sglir_cast(v->g, value, (sgl_dtype)sglir_type_of(v->g, like)->dtype);
}

void sglpass_control_origin(const sglpass_vjp *v, bool derived)
{
    const sglir_origin origin = v->g->origins.data[sglir_node_at(v->g, v->node)->origin]; /* the list moves */
    if (derived)
        sglir_set_origin_made(v->g, v->g, v->node, "autodiff");
    else
        sglir_set_origin_of(v->g, &origin, v->g);
}

bool sglpass_control_copy_region(const sglpass_turn *t, const sglpass_kept_list *kept, sglir_rewrite *rewrite)
{
    size_t bytes = (size_t)t->h->values.count;
    uint8_t *wanted = sglcore_alloc_zero(t->v->g->env, bytes);
    if (wanted == NULL && bytes > 0) {
        sglir_stick(t->v->g, SGL_OUT_OF_MEMORY);
        return false;
    }
    for (int64_t i = 0; i < t->yields; i++) {
        wanted[t->yield[i]] = 1;
        if (t->start[i] != SGLIR_NONE) wanted[t->start[i]] = 1;
    }
    for (int64_t i = 0; kept != NULL && i < kept->count; i++) wanted[kept->data[i].value] = 1;
    sglpass_turn_copy_made(t, rewrite, wanted);
    sglcore_free(t->v->g->env, wanted, bytes);
    return t->v->g->status == SGL_OK;
}

/* ---- branches --------------------------------------------------------------------------------------------------- */

typedef struct branch {
    const sglpass_vjp *v;
    sglir_graph *g;
    sglpass_turn turns[2];
    sglpass_kept_list kept[2];
    SGLCORE_VEC(sglir_type) slots; /* results beside the cond's own */
    sglir_id first;                /* the first result of the cond that keeps */
    uint32_t results;              /* of the cond itself */
    SGLCORE_VEC(uint32_t) into;    /* captures that get a gradient */
    SGLCORE_VEC(sglir_id) ids;     /* yields of a region */
} branch;

static void push_id(branch *b, sglir_id id) { sglir_stick(b->g, sglcore_vec_push(b->g->env, &b->ids, id)); }

/* Gives each kept value of the region a slot; one slot serves one value of each region. */
static void give_slots(branch *b, int r)
{
    for (int64_t i = 0; i < b->kept[r].count && b->g->status == SGL_OK; i++) {
        const sglir_type *type = sglir_type_of(b->turns[r].h, b->kept[r].data[i].value);
        int64_t at = 0;
        for (; at < b->slots.count; at++) {
            bool taken = !sglir_type_equal(&b->slots.data[at], type);
            for (int64_t k = 0; k < i && !taken; k++) taken = b->kept[r].data[k].slot == at;
            if (!taken) break;
        }
        if (at == b->slots.count) sglir_stick(b->g, sglcore_vec_push(b->g->env, &b->slots, *type));
        b->kept[r].data[i].slot = at;
    }
}

static sglir_id zeros_of(sglir_graph *g, const sglir_type *type)
{
    return sglir_broadcast(g, sglir_constant(g, (sgl_dtype)type->dtype, 0), type->rank, type->dims);
}

static void emit_keeping_region(branch *b, int r, sglir_id region)
{
    sglir_rewrite rewrite;
    const sglpass_turn *t = &b->turns[r];
    sglir_region_begin_at(b->g, region, NULL, 0, NULL);
    if (!sglpass_turn_begin(t, &rewrite)) return;
    b->ids.count = 0;
    if (sglpass_control_copy_region(t, &b->kept[r], &rewrite)) {
        for (int64_t i = 0; i < t->yields; i++) push_id(b, rewrite.map[t->yield[i]]);
        for (int64_t s = 0; s < b->slots.count; s++) {
            sglir_id value = SGLIR_NONE;
            for (int64_t i = 0; i < b->kept[r].count; i++) {
                if (b->kept[r].data[i].slot == s) value = rewrite.map[b->kept[r].data[i].value];
            }
            const sglir_type type = b->slots.data[s];
            push_id(b, value != SGLIR_NONE ? value : zeros_of(b->g, &type));
        }
    }
    sglpass_turn_end(t, &rewrite);
    sglir_region_end(b->g, b->ids.data, (int)b->ids.count);
}

/* The results of a cond or of its stand-in are consecutive; only the first is asked for. */
static sglir_id emit_cond(branch *b, void (*emit)(branch *b, int r, sglir_id region), bool derived)
{
    sglir_graph *g = b->g;
    sglir_id predicate = sglpass_vjp_arg(b->v, 0), regions[2] = { sglir_region_take(g, 2) };
    regions[1] = regions[0] + 1;
    for (int r = 0; r < 2 && g->status == SGL_OK; r++) emit(b, r, regions[r]);
    sglpass_control_origin(b->v, derived);
    return sglir_emit_regions(g, SGLIR_OP_COND, &predicate, 1, NULL, 0, regions, 2, NULL);
}

/* The gradients of the captures, of one region. */
static void emit_derived_region(branch *b, int r, sglir_id region)
{
    sglir_rewrite rewrite;
    const sglpass_turn *t = &b->turns[r];
    sglir_region_begin_at(b->g, region, NULL, 0, NULL);
    if (!sglpass_turn_begin(t, &rewrite)) return;
    for (int64_t i = 0; i < t->yields; i++) {
        if (t->seed[i] != SGLIR_NONE) rewrite.map[t->seed[i]] = b->v->dys[i];
    }
    for (int64_t i = 0; i < b->kept[r].count; i++)
        rewrite.map[b->kept[r].data[i].value] = b->first + b->results + (sglir_id)b->kept[r].data[i].slot;
    sglpass_turn_copy_picked(t, &rewrite);
    b->ids.count = 0;
    for (int64_t i = 0; i < b->into.count && b->g->status == SGL_OK; i++) {
        uint32_t c = b->into.data[i];
        sglir_id value = t->d_capture[c] != SGLIR_NONE ? rewrite.map[t->d_capture[c]] : SGLIR_NONE;
        push_id(b, sglpass_control_gradient(b->v, value, b->v->captures[c], true));
    }
    sglpass_turn_end(t, &rewrite);
    sglir_region_end(b->g, b->ids.data, (int)b->ids.count);
}

static bool has_gradient(const sglpass_turn *t, uint32_t capture)
{
    double value;
    sglir_id d = t->d_capture[capture];
    return d != SGLIR_NONE && !(sglir_constant_value(t->h, d, &value) && value == 0);
}

static bool make_turns(branch *b, const uint8_t *active)
{
    for (int r = 0; r < 2; r++) {
        sglpass_turn *t = &b->turns[r];
        *t = (sglpass_turn){ .v = b->v, .active = active, .scaled = sglpass_control_scaled(b->v) };
        if (!sglpass_turn_make(t, sglir_node_at(b->g, b->v->node)->region_first + (sglir_id)r)) return false;
        if (!sglpass_turn_decide(t, false) || !sglpass_control_keep(b->v, t, &b->kept[r])) return false;
    }
    return true;
}

static void derive_branch(branch *b, const uint8_t *active)
{
    const sglpass_vjp *v = b->v;
    if (!make_turns(b, active)) return;
    for (uint32_t c = 0; c < v->capture_count; c++) {
        if (has_gradient(&b->turns[0], c) || has_gradient(&b->turns[1], c))
            sglir_stick(b->g, sglcore_vec_push(b->g->env, &b->into, c));
    }
    if (b->into.count == 0 || b->g->status != SGL_OK) return;
    for (int r = 0; r < 2; r++) give_slots(b, r);
    b->results = sglir_node_at(b->g, v->node)->out_count;
    if (b->slots.count > 0) {
        b->first = emit_cond(b, emit_keeping_region, false);
        if (b->g->status != SGL_OK) return;
        *v->instead = sglir_value_at(b->g, b->first)->node;
    }
    sglir_id first = emit_cond(b, emit_derived_region, true);
    for (int64_t i = 0; i < b->into.count && b->g->status == SGL_OK; i++)
        v->into[1 + b->into.data[i]] = sglpass_control_narrow(v, first + (sglir_id)i, v->captures[b->into.data[i]]);
}

void sglpass_vjp_cond(const sglpass_vjp *v)
{
    branch b = { .v = v, .g = v->g };
    uint32_t results = sglir_node_at(v->g, v->node)->out_count;
    uint8_t *active = sglcore_alloc_zero(v->g->env, results);
    if (active == NULL) {
        sglir_stick(v->g, SGL_OUT_OF_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < results; i++) active[i] = v->dys[i] != SGLIR_NONE;
    derive_branch(&b, active);
    sglcore_free(v->g->env, active, results);
    for (int r = 0; r < 2; r++) {
        sglpass_turn_free(&b.turns[r]);
        sglcore_vec_free(v->g->env, &b.kept[r]);
    }
    sglcore_vec_free(v->g->env, &b.slots);
    sglcore_vec_free(v->g->env, &b.into);
    sglcore_vec_free(v->g->env, &b.ids);
}

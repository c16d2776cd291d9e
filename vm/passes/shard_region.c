/* shard_region.c -- loops and branches over the mesh: each rank runs them over its parts.
 *
 * In: a SCAN, WHILE or COND of the old graph. Out: the same around regions with local extents. In which forms carries
 * go round, and branches give their results, is found by trying: a region is emitted, its yields looked at, and left,
 * until they come back as they went in; a form only ever goes from whole to split or partial, so that ends. What was
 * turned in a region but comes from around it is turned around it, once. Odd invariant: a predicate is whole, so all
 * ranks take the same turns and branches, and meet in the same exchanges. */
#include "passes/shard.h"

typedef struct around {
    sglpass_sharder *s;
    const sglir_node *node;
    sglir_id id;
    uint32_t forms; /* s->forms: of each carry, or of each result of a branch */
    uint32_t count;
    SGLCORE_VEC(sglpass_made) turned; /* around the node, if only value and form are looked at */
} around;

static sglpass_form *carried(const around *a, uint32_t i) { return &a->s->forms.data[a->forms + i]; }
static const sglir_region *region_of(const around *a, uint32_t r)
{
    return &a->s->from->regions.data[a->node->region_first + r];
}

static bool decides(const around *a, uint32_t r) { return a->node->op == SGLIR_OP_WHILE && r == 0; }

static sgl_status begin_forms(around *a)
{
    sglpass_sharder *s = a->s;
    a->forms = (uint32_t)s->forms.count;
    a->count = a->node->out_count;
    for (uint32_t i = 0; i < a->count; i++) {
        sglpass_form form = sglpass_form_whole();
        const sglpass_made *first = sglir_is_loop(a->node) ? sglpass_first(s, sglir_arg(s->from, a->node, i)) : NULL;
        if (first) form = first->form;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
            if (form.at[axis] == SGLPASS_PARTIAL) form.at[axis] = SGLPASS_WHOLE;
        }
        SGLCORE_TRY(sglcore_vec_push(s->env, &s->forms, form));
    }
    return SGL_OK;
}

/* Whether what stood whole follows what is yielded. */
static bool join(sglpass_form *kept, const sglpass_form *yielded)
{
    bool changed = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int at = yielded->at[axis];
        if (kept->at[axis] != SGLPASS_WHOLE || at == SGLPASS_WHOLE) continue;
        if (at >= 0 && sglpass_axes_of(kept, at) == 0) kept->unit[at] = yielded->unit[at];
        kept->at[axis] = (int8_t)at;
        changed = true;
    }
    return changed;
}

/* What stands in region r, emitted into region `made` over the taken carries; its yields are not taken yet. */
static sgl_status emit_inside(around *a, uint32_t r, sglir_id made, int64_t args)
{
    sglpass_sharder *s = a->s;
    const sglir_region *region = region_of(a, r);
    int64_t first = s->ids.count, count = region->parameters.count;
    sglir_type *types = sglcore_alloc(s->env, (size_t)(count + 1) * sizeof *types);
    sgl_status status = types ? sglcore_vec_reserve(s->env, &s->ids, count) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        types[0] = sglir_type_make(SGL_I64, 0, NULL);
        for (int64_t i = 1; i < count; i++) types[i] = *sglir_type_of(s->to, s->ids.data[args + i - 1]);
        s->ids.count = first + count;
        sglir_region_begin_at(s->to, made, types, (int)count, s->ids.data + first);
        status = sglir_status(s->to);
    }
    for (int64_t i = 0; i < count && status == SGL_OK; i++) {
        const sglpass_form form = i == 0 ? sglpass_form_whole() : *carried(a, (uint32_t)i - 1);
        sglpass_put(s, region->parameters.data[i], s->ids.data[first + i], &form);
    }
    sglcore_free(s->env, types, (size_t)(count + 1) * sizeof *types);
    s->ids.count = first;
    return status == SGL_OK ? sglpass_emit_nodes(s, a->node->region_first + r) : status;
}

static bool stands_within(const around *a, sglir_id value)
{
    sglir_id region = sglir_value_at(a->s->from, value)->region;
    while (region != 0) {
        sglir_id holder = a->s->from->regions.data[region].node;
        if (holder == a->id) return true;
        region = sglir_node_at(a->s->from, holder)->region;
    }
    return false;
}

/* The carries as they go in; pushed onto s->ids. */
static sgl_status take_args(around *a)
{
    sglpass_sharder *s = a->s;
    const sglpass_form whole = sglpass_form_whole();
    for (uint32_t i = 0; i < a->node->arg_count; i++) {
        const sglpass_form form = sglir_is_loop(a->node) ? *carried(a, i) : whole;
        sglir_id taken = sglpass_take(s, sglir_arg(s->from, a->node, i), &form);
        SGLCORE_TRY(sglir_status(s->to));
        SGLCORE_TRY(sglcore_vec_push(s->env, &s->ids, taken));
    }
    return SGL_OK;
}

/* ---- trying ------------------------------------------------------------------------------------------------------ */

static sgl_status keep_turned(around *a, int64_t made)
{
    const sglpass_sharder *s = a->s;
    for (int64_t i = made; i < s->made.count; i++) {
        if (s->made.data[i].before != 0 && !stands_within(a, s->made.data[i].value))
            SGLCORE_TRY(sglcore_vec_push(s->env, &a->turned, s->made.data[i]));
    }
    return SGL_OK;
}

/* Emits the regions and leaves them. *changed: a form is another one now. */
static sgl_status try_forms(around *a, bool *changed)
{
    sglpass_sharder *s = a->s;
    int64_t made, ids = s->ids.count, open = s->to->open.count;
    *changed = false;
    a->turned.count = 0;
    SGLCORE_TRY(take_args(a));
    made = s->made.count;
    sglir_id first = sglir_region_take(s->to, (int)a->node->region_count);
    SGLCORE_TRY(sglir_status(s->to));
    for (uint32_t r = 0; r < a->node->region_count; r++) {
        SGLCORE_TRY(emit_inside(a, r, first + r, ids));
        for (uint32_t i = 0; i < a->count && !decides(a, r); i++) {
            const sglpass_made *yielded = sglpass_first(s, region_of(a, r)->results.data[i]);
            if (yielded && join(carried(a, i), &yielded->form)) *changed = true;
        }
        SGLCORE_TRY(keep_turned(a, made));
        sglpass_forget(s, made); /* the other region does not see it */
        sglir_region_abandon(s->to, open);
    }
    s->ids.count = ids;
    return sglir_status(s->to);
}

/* ---- for good ---------------------------------------------------------------------------------------------------- */

static sgl_status emit_region(around *a, uint32_t r, sglir_id made, int64_t args)
{
    sglpass_sharder *s = a->s;
    const sglpass_form whole = sglpass_form_whole();
    int64_t ids = s->ids.count, entries = s->made.count;
    SGLCORE_TRY(emit_inside(a, r, made, args));
    for (int64_t i = 0; i < region_of(a, r)->results.count; i++) {
        const sglpass_form form = decides(a, r) ? whole : *carried(a, (uint32_t)i);
        sglir_id taken = sglpass_take(s, region_of(a, r)->results.data[i], &form);
        SGLCORE_TRY(sglir_status(s->to));
        SGLCORE_TRY(sglcore_vec_push(s->env, &s->ids, taken));
    }
    sglir_region_end(s->to, s->ids.data + ids, (int)(s->ids.count - ids));
    s->ids.count = ids;
    sglpass_forget(s, entries);
    return sglir_status(s->to);
}

static sgl_status emit_for_good(around *a)
{
    sglpass_sharder *s = a->s;
    int64_t ids = s->ids.count;
    for (int64_t i = 0; i < a->turned.count; i++) sglpass_take(s, a->turned.data[i].value, &a->turned.data[i].form);
    SGLCORE_TRY(take_args(a));
    sglir_id regions[2] = { sglir_region_take(s->to, (int)a->node->region_count) };
    regions[1] = regions[0] + 1;
    SGLCORE_TRY(sglir_status(s->to));
    for (uint32_t r = 0; r < a->node->region_count; r++) SGLCORE_TRY(emit_region(a, r, regions[r], ids));
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(s->from, a->node, named);
    SGLCORE_TRY(sglcore_vec_reserve(s->env, &s->ids, a->count));
    sglir_id *outs = s->ids.data + s->ids.count;
    sglir_set_origin_of(s->to, &s->from->origins.data[a->node->origin], s->from);
    sglir_emit_regions(s->to, (sglir_op)a->node->op, s->ids.data + ids, (int)a->node->arg_count, named, count, regions,
                       (int)a->node->region_count, outs);
    SGLCORE_TRY(sglir_status(s->to));
    s->to->nodes.data[s->to->nodes.count - 1].epoch = a->node->epoch;
    for (uint32_t r = 0; r < a->count; r++) sglpass_put(s, a->node->out_first + r, outs[r], carried(a, r));
    s->ids.count = ids;
    return sglir_status(s->to);
}

sgl_status sglpass_emit_control(sglpass_sharder *s, sglir_id id)
{
    around a = { .s = s, .node = sglir_node_at(s->from, id), .id = id };
    bool changed = true;
    sgl_status status = begin_forms(&a);
    while (status == SGL_OK && changed) status = try_forms(&a, &changed);
    if (status == SGL_OK) status = emit_for_good(&a);
    sglcore_vec_free(s->env, &a.turned);
    s->forms.count = a.forms;
    return status;
}

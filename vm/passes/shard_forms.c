/* shard_forms.c -- values of the new graph by form: which there are, and what it costs to have one in another form.
 *
 * In: an old value, a form. Out: the value that is there, or bytes. Slices of what is whole cost nothing, parts are cut
 * along another dimension at the price of an all_to_all, everything else goes by way of the whole. Odd invariant: bytes
 * are those of the first rank, which has most, so that all ranks find the same. */
#include <string.h>

#include "passes/shard.h"

/* ---- forms ------------------------------------------------------------------------------------------------------- */

sglpass_form sglpass_form_whole(void)
{
    sglpass_form form = { .by = 0 };
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) form.at[axis] = SGLPASS_WHOLE;
    for (int dim = 0; dim < SGL_MAX_RANK; dim++) form.unit[dim] = 1;
    return form;
}

sglplan_axes sglpass_axes_of(const sglpass_form *form, int at)
{
    sglplan_axes axes = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (form->at[axis] == at) axes |= SGLPLAN_AXIS(axis);
    }
    return axes;
}

int64_t sglpass_local(const sglpass_sharder *s, int64_t extent, int64_t unit, sglplan_axes axes)
{
    return sglplan_part_along(s->context->plan, axes, s->context->rank, extent, unit).size;
}

/* Whether all ranks hold as much, however units lie. */
static bool is_even(const sglpass_sharder *s, int64_t extent, int64_t unit, sglplan_axes axes)
{
    int64_t parts = sglplan_group_size(s->context->plan, axes);
    return extent % (parts * unit) == 0;
}

bool sglpass_cut_alike(const sglpass_sharder *s, sglir_id value, int dim, const sglpass_form *a, const sglpass_form *b,
                       sglplan_axes axes)
{
    int64_t extent = sglir_type_of(s->from, value)->dims[dim];
    return a->unit[dim] == b->unit[dim] ||
           (is_even(s, extent, a->unit[dim], axes) && is_even(s, extent, b->unit[dim], axes));
}

static bool same_form(const sglpass_sharder *s, sglir_id value, const sglpass_form *a, const sglpass_form *b)
{
    const sglir_type *type = sglir_type_of(s->from, value);
    if (memcmp(a->at, b->at, sizeof a->at) != 0 || a->by != b->by || (a->by != 0 && a->ring != b->ring)) return false;
    for (int dim = 0; dim < type->rank; dim++) {
        sglplan_axes axes = sglpass_axes_of(a, dim);
        if (axes && !sglpass_cut_alike(s, value, dim, a, b, axes)) return false;
    }
    return true;
}

double sglpass_local_bytes(const sglpass_sharder *s, sglir_id value, const sglpass_form *form)
{
    const sglir_type *type = sglir_type_of(s->from, value);
    double bytes = (double)sglcore_dtype_bits((sgl_dtype)type->dtype) / 8;
    for (int dim = 0; dim < type->rank; dim++)
        bytes *= (double)sglplan_part_along(s->context->plan, sglpass_axes_of(form, dim), 0, type->dims[dim],
                                            form->unit[dim])
                     .size;
    return bytes;
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

void sglpass_put(sglpass_sharder *s, sglir_id value, sglir_id made, const sglpass_form *form)
{
    sglpass_tell(s, made, sglir_type_of(s->from, value)->dims, form, NULL);
    if (s->to->status != SGL_OK) return;
    sglpass_made entry = { .value = value, .made = made, .form = *form, .before = s->latest[value] };
    sgl_status status = sglcore_vec_push(s->env, &s->made, entry);
    if (status != SGL_OK)
        sglir_stick(s->to, status);
    else
        s->latest[value] = (uint32_t)s->made.count;
}

void sglpass_forget(sglpass_sharder *s, int64_t count)
{
    while (s->made.count > count) {
        const sglpass_made *last = &s->made.data[--s->made.count];
        s->latest[last->value] = last->before;
    }
}

const sglpass_made *sglpass_first(const sglpass_sharder *s, sglir_id value)
{
    const sglpass_made *first = NULL;
    for (uint32_t at = s->latest[value]; at != 0; at = first->before) first = &s->made.data[at - 1];
    return first;
}

const sglpass_made *sglpass_find(const sglpass_sharder *s, sglir_id value, const sglpass_form *form)
{
    for (uint32_t at = s->latest[value]; at != 0; at = s->made.data[at - 1].before) {
        const sglpass_made *made = &s->made.data[at - 1];
        if (same_form(s, value, &made->form, form)) return made;
    }
    return NULL;
}

/* ---- parts along another dimension ------------------------------------------------------------------------------- */

/* Whether all of `before` come before all of `after`. */
static bool is_slower(sglplan_axes before, sglplan_axes after)
{
    sglplan_axes seen = 0;
    for (int i = 0; i < SGLPLAN_MESH_AXES; i++) {
        sglplan_axes axis = SGLPLAN_AXIS(sglplan_mesh_order[i]);
        if ((before & axis) && (seen & after)) return false;
        seen |= axis;
    }
    return true;
}

sglpass_move sglpass_find_move(const sglpass_sharder *s, sglir_id value, const sglpass_form *have,
                               const sglpass_form *want)
{
    const sglir_type *type = sglir_type_of(s->from, value);
    for (int from = 0; from < type->rank && type->rank < SGL_MAX_RANK; from++) {
        sglplan_axes all = sglpass_axes_of(have, from);
        for (int to = 0; all && to < type->rank; to++) {
            sglplan_axes axes = all & sglpass_axes_of(want, to), there = sglpass_axes_of(have, to);
            if (to == from || !axes || !is_slower(all & ~axes, axes) || !is_slower(there, axes)) continue;
            int64_t unit = there ? have->unit[to] : want->unit[to];
            sglpass_move m = { .axes = axes, .from = from, .to = to };
            m.even_to = is_even(s, type->dims[to], unit, there | axes);
            if (m.even_to || is_even(s, type->dims[from], have->unit[from], all)) return m;
        }
    }
    return (sglpass_move){ 0 };
}

void sglpass_apply_move(sglpass_form *form, const sglpass_move *m, const sglpass_form *want)
{
    if (sglpass_axes_of(form, m->to) == 0) form->unit[m->to] = want->unit[m->to];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (m->axes & SGLPLAN_AXIS(axis)) form->at[axis] = (int8_t)m->to;
    }
}

/* ---- prices ------------------------------------------------------------------------------------------------------ */

/* What is whole at no price: the value's bytes where its splits are gathered and its sums are paid. */
double sglpass_price_from(const sglpass_sharder *s, sglir_id value, const sglpass_form *have, const sglpass_form *want)
{
    double price = 0;
    sglpass_form now = *have;
    for (sglpass_move m = sglpass_find_move(s, value, &now, want); m.axes;
         m = sglpass_find_move(s, value, &now, want)) {
        double parts = (double)sglplan_group_size(s->context->plan, m.axes);
        price += (parts - 1) / parts * sglpass_local_bytes(s, value, &now);
        sglpass_apply_move(&now, &m, want);
    }
    const sglpass_form moved = now;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        double parts = (double)sglpass_extent(s, axis);
        if (moved.at[axis] == want->at[axis] || moved.at[axis] == SGLPASS_WHOLE) continue;
        now.at[axis] = SGLPASS_WHOLE;
        bool twice = moved.at[axis] == SGLPASS_PARTIAL && want->at[axis] == SGLPASS_WHOLE;
        price += (twice ? 2 : 1) * (parts - 1) / parts * sglpass_local_bytes(s, value, &now);
        now.at[axis] = want->at[axis];
    }
    return price;
}

double sglpass_price(const sglpass_sharder *s, sglir_id value, const sglpass_form *form)
{
    double least = 0;
    bool any = false;
    if (form->by != 0) {
        if (sglpass_find(s, value, form)) return 0;
        sglpass_form own = *form;
        own.by = 0;
        return sglpass_price(s, value, &own) + sglpass_local_bytes(s, value, &own);
    }
    for (uint32_t at = s->latest[value]; at != 0; at = s->made.data[at - 1].before) {
        if (s->made.data[at - 1].form.by != 0) continue;
        double price = sglpass_price_from(s, value, &s->made.data[at - 1].form, form);
        if (!any || price < least) least = price;
        any = true;
    }
    return least;
}

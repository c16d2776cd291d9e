/* shard_choose.c -- how a node runs over the mesh: per axis along a label of ops.def (dimensions that run together),
 * carrying a sum that is owed (where it is linear), or whole on every rank; whatever sends the fewest bytes.
 *
 * In: a node of the old graph, the forms in which its arguments are there. Out: the forms in which it takes them and
 * those of its results. Odd invariant: all choices come of extents and of forms, never of the rank, so that all ranks
 * choose alike. */
#include "passes/shard_choose.h"

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void read_labels(const sglpass_sharder *s, sglir_id id, sglpass_node_labels *l)
{
    const sglir_node *node = sglir_node_at(s->from, id);
    l->node = node;
    l->joins = node->op == SGLIR_OP_CONCAT;
    l->joined = l->joins ? (int)sglir_attr_int(s->from, node, "axis") : -1;
    l->known = l->joins || sglir_labels_of(s->from, node, &l->labels);
}

static int dim_of(const int8_t *row, int label)
{
    for (int dim = 0; dim < SGL_MAX_RANK; dim++) {
        if (row[dim] == label) return dim;
    }
    return -1;
}

static int arg_dim(const sglpass_node_labels *l, uint32_t arg, int label)
{
    return l->joins ? label : dim_of(l->labels.args[arg], label);
}

static int result_dim(const sglpass_node_labels *l, uint32_t result, int label)
{
    return l->joins ? label : dim_of(l->labels.results[result], label);
}

int sglpass_arg_label(const sglpass_node_labels *l, uint32_t arg, int dim)
{
    if (!l->known) return -1;
    if (l->joins) return dim == l->joined ? -1 : dim;
    int label = l->labels.args[arg][dim];
    return label >= 0 && (l->labels.refused >> label & 1) == 0 ? label : -1;
}

static int label_of_result(const sglpass_node_labels *l, int dim)
{
    if (!l->known) return -1;
    if (l->joins) return dim == l->joined ? -1 : dim;
    int label = l->labels.results[0][dim];
    return label >= 0 && (l->labels.refused >> label & 1) == 0 ? label : -1;
}

static bool is_summed(const sglpass_node_labels *l, int label)
{
    return !l->joins && (l->labels.summed >> label & 1) != 0;
}

/* How much arithmetic weighs as much as a byte that is sent: between what a cluster of GPUs has (some 1,000) and what
 * ranks of one machine have (some 100). Without it a product would be made whole by every rank rather than a sum paid. */
static const double FLOPS_PER_BYTE = 256;

/* ---- a choice in the making -------------------------------------------------------------------------------------- */

static sgl_status open_choice(sglpass_chooser *c, sglpass_way *run)
{
    sglpass_sharder *s = c->s;
    int64_t count = (int64_t)c->node->arg_count + c->node->out_count;
    c->first = (uint32_t)s->forms.count;
    SGLCORE_TRY(sglcore_vec_reserve(s->env, &s->forms, count));
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        const sglpass_made *there = sglpass_first(s, sglpass_arg_of(c, i));
        s->forms.data[s->forms.count++] = there ? there->form : sglpass_form_whole();
    }
    for (uint32_t r = 0; r < c->node->out_count; r++) s->forms.data[s->forms.count++] = sglpass_form_whole();
    *run = (sglpass_way){ .node = run->node, .form_first = c->first };
    return SGL_OK;
}

static bool is_parameter(const sglpass_chooser *c, uint32_t i)
{
    const sglir_node *maker = sglir_maker(c->s->from, sglpass_arg_of(c, i));
    while (maker && maker->op == SGLIR_OP_CAST) maker = sglir_maker(c->s->from, sglir_arg(c->s->from, maker, 0));
    return maker && maker->op == SGLIR_OP_INPUT && sglir_attr_int(c->s->from, maker, "role") == SGL_PARAMETER;
}

/* Over the axes of samples a parameter is in parts to be kept, not to be worked on: it is gathered where anything else
 * that the node takes is split. */
static bool is_stored(const sglpass_chooser *c, uint32_t i, int axis)
{
    return (SGLPLAN_STORE_AXES & SGLPLAN_AXIS(axis)) && is_parameter(c, i);
}

/* Over the others it is in parts to be worked on as it lies, however few its bytes beside those of a part of the
 * sequence: it is gathered only where the node cannot run otherwise, since any way that gathers it costs so much more. */
static const double GATHERED_PARAMETER = 1e30;
static bool is_worked_as_it_lies(const sglpass_chooser *c, uint32_t i, int axis)
{
    return !(SGLPLAN_STORE_AXES & SGLPLAN_AXIS(axis)) && sglpass_arg_form(c, i)->at[axis] >= 0 && is_parameter(c, i);
}

/* Bytes sent to have the argument as `place` says, on one axis, all else as it is. place: a dimension, or whole, or
 * partial. */
static double price_arg(const sglpass_chooser *c, uint32_t i, int axis, int place)
{
    sglpass_form form = *sglpass_arg_form(c, i);
    if (form.at[axis] == place) return 0;
    form.at[axis] = (int8_t)place;
    return sglpass_price(c->s, sglpass_arg_of(c, i), &form) +
           (is_worked_as_it_lies(c, i, axis) ? GATHERED_PARAMETER : 0);
}

/* The sum of prices of all arguments, each in its place. Of x * x the second x is there once the first is, if it is
 * wanted so. */
typedef struct bill {
    const sglpass_chooser *c;
    int axis;
    double price;
    int place; /* of the argument before */
} bill;

static void add_arg(bill *b, uint32_t i, int place)
{
    bool again = i > 0 && sglpass_arg_of(b->c, i) == sglpass_arg_of(b->c, i - 1) && place == b->place;
    if (!again) b->price += price_arg(b->c, i, b->axis, place);
    b->place = place;
}

/* ---- along a label ----------------------------------------------------------------------------------------------- */

int64_t sglpass_units_of(const sglpass_chooser *c, int label)
{
    int64_t least = INT64_MAX;
    for (uint32_t r = 0; r < c->node->out_count; r++) {
        int dim = result_dim(&c->labels, r, label);
        if (dim < 0 && !is_summed(&c->labels, label)) return 0;
        if (dim >= 0 && sglpass_result_extent(c, r, dim) < least) least = sglpass_result_extent(c, r, dim);
    }
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        int dim = arg_dim(&c->labels, i, label);
        if (dim >= 0 && sglpass_arg_extent(c, i, dim) < least) least = sglpass_arg_extent(c, i, dim);
    }
    for (uint32_t r = 0; r < c->node->out_count && least > 0; r++) {
        int dim = result_dim(&c->labels, r, label);
        if (dim >= 0 && sglpass_result_extent(c, r, dim) % least != 0) return 0;
    }
    for (uint32_t i = 0; i < c->node->arg_count && least > 0; i++) {
        int dim = arg_dim(&c->labels, i, label);
        if (dim >= 0 && sglpass_arg_extent(c, i, dim) % least != 0) return 0;
    }
    return least == INT64_MAX ? 0 : least;
}

int64_t sglpass_together(const sglpass_chooser *c, int label, int64_t units)
{
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        int dim = arg_dim(&c->labels, i, label);
        if (dim < 0 || sglpass_axes_of(sglpass_arg_form(c, i), dim) == 0) continue;
        int64_t each = sglpass_arg_extent(c, i, dim) / units, unit = sglpass_arg_form(c, i)->unit[dim];
        return unit % each == 0 ? unit / each : 1;
    }
    return 1;
}

bool sglpass_has_enough(const sglpass_chooser *c, int axis, int label)
{
    int64_t units = sglpass_units_of(c, label), parts = sglpass_extent(c->s, axis);
    if (!sglpass_is_attention(c->node)) return units > 0;
    const sglpass_form *q = sglpass_arg_form(c, 0);
    int dim = arg_dim(&c->labels, 0, label);
    for (int other = 0; other < axis; other++) parts *= q->at[other] == dim ? sglpass_extent(c->s, other) : 1;
    return dim == 0 ? units > 0 : units > 0 && units / sglpass_together(c, label, units) >= parts;
}

double sglpass_price_along(const sglpass_chooser *c, int axis, int label)
{
    bill b = { .c = c, .axis = axis };
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        int dim = arg_dim(&c->labels, i, label);
        add_arg(&b, i, dim < 0 ? SGLPASS_WHOLE : dim);
    }
    return b.price;
}

void sglpass_run_along(const sglpass_chooser *c, int axis, int label, int64_t units, int64_t size)
{
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        int dim = arg_dim(&c->labels, i, label);
        sglpass_arg_form(c, i)->at[axis] = (int8_t)(dim < 0 ? SGLPASS_WHOLE : dim);
        if (dim >= 0) sglpass_arg_form(c, i)->unit[dim] = sglpass_arg_extent(c, i, dim) / units * size;
    }
    for (uint32_t r = 0; r < c->node->out_count; r++) {
        int dim = result_dim(&c->labels, r, label);
        sglpass_result_form(c, r)->at[axis] = (int8_t)(dim < 0 ? SGLPASS_PARTIAL : dim);
        if (dim >= 0) sglpass_result_form(c, r)->unit[dim] = sglpass_result_extent(c, r, dim) / units * size;
    }
}

/* ---- carrying sums ----------------------------------------------------------------------------------------------- */

/* Ops that are linear with some of their attributes only. A sum is not carried into a narrower dtype: it would be
 * rounded before it is paid. */
static bool is_linear_here(const sglpass_chooser *c)
{
    const sglir_graph *g = c->s->from;
    if (c->node->op == SGLIR_OP_PAD || c->node->op == SGLIR_OP_WINDOWS)
        return sglir_attr_float(g, c->node, "value") == 0;
    if (c->node->op != SGLIR_OP_CAST) return true;
    sgl_dtype to = (sgl_dtype)sglir_attr_int(g, c->node, "to");
    sgl_dtype of = (sgl_dtype)sglir_type_of(g, sglpass_arg_of(c, 0))->dtype;
    return sglcore_dtype_is_float(to) && sglcore_dtype_bits(to) >= sglcore_dtype_bits(of);
}

/* A result that is larger than the terms it comes from is paid dearer later. */
static double price_carried(const sglpass_chooser *c, int axis, const char *group)
{
    double before = 0, after = 0, parts = (double)sglpass_extent(c->s, axis);
    bill b = { .c = c, .axis = axis };
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        bool carries = sglir_linear_has(group, i);
        if (carries && sglpass_arg_form(c, i)->at[axis] == SGLPASS_PARTIAL)
            before += sglpass_local_bytes(c->s, sglpass_arg_of(c, i), sglpass_arg_form(c, i));
        add_arg(&b, i, carries ? SGLPASS_PARTIAL : SGLPASS_WHOLE);
    }
    for (uint32_t r = 0; r < c->node->out_count; r++)
        after += sglpass_local_bytes(c->s, c->node->out_first + r, sglpass_result_form(c, r));
    return b.price + (after > before ? 2 * (parts - 1) / parts * (after - before) : 0);
}

static bool group_owes(const sglpass_chooser *c, int axis, const char *group)
{
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        if (sglir_linear_has(group, i) && sglpass_arg_form(c, i)->at[axis] == SGLPASS_PARTIAL) return true;
    }
    return false;
}

static void run_carrying(sglpass_chooser *c, int axis, const char *group)
{
    c->group = group;
    for (uint32_t i = 0; i < c->node->arg_count; i++)
        sglpass_arg_form(c, i)->at[axis] = sglir_linear_has(group, i) ? SGLPASS_PARTIAL : SGLPASS_WHOLE;
    for (uint32_t r = 0; r < c->node->out_count; r++) sglpass_result_form(c, r)->at[axis] = SGLPASS_PARTIAL;
}

/* ---- what no label says ------------------------------------------------------------------------------------------ */

bool sglpass_price_beyond(const sglpass_chooser *c, int axis, sglir_beyond *how, double *price)
{
    double parts = (double)sglpass_extent(c->s, axis);
    bill b = { .c = c, .axis = axis };
    if (c->node->arg_count == 0 || is_stored(c, 0, axis)) return false;
    if (!sglir_beyond_of(c->s->from, c->node, sglpass_arg_form(c, 0)->at[axis], how)) return false;
    for (uint32_t i = 0; i < c->node->arg_count; i++) add_arg(&b, i, how->args[i]);
    double bytes = sglpass_local_bytes(c->s, c->node->out_first, sglpass_result_form(c, 0));
    *price = b.price + (how->extreme || how->results[0] == SGLPASS_PARTIAL ? 2 * (parts - 1) / parts * bytes : 0);
    return true;
}

void sglpass_run_beyond(const sglpass_chooser *c, int axis, const sglir_beyond *how)
{
    int64_t unit = sglpass_arg_form(c, 0)->unit[how->args[0]];
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        sglpass_arg_form(c, i)->at[axis] = how->args[i];
        if (how->args[i] >= 0) sglpass_arg_form(c, i)->unit[how->args[i]] = unit;
    }
    for (uint32_t r = 0; r < c->node->out_count; r++) {
        sglpass_result_form(c, r)->at[axis] = how->extreme ? SGLPASS_WHOLE : how->results[r];
        if (how->results[r] >= 0 && !how->extreme) sglpass_result_form(c, r)->unit[how->results[r]] = unit;
    }
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* Elementwise ops (an optimizer's) on nothing but what is kept so. */
static bool is_worked_on(const sglpass_chooser *c, uint32_t i, int axis)
{
    if (!is_stored(c, i, axis)) return true;
    for (uint32_t k = 0; k < c->node->arg_count; k++) {
        if (k != i && sglpass_arg_form(c, k)->at[axis] >= 0 && !is_stored(c, k, axis)) return false;
    }
    return (sglir_ops[c->node->op].flags & SGLIR_ELEMENTWISE) != 0;
}

static void choose_axis(sglpass_chooser *c, int axis, sglpass_way *run)
{
    int best = -1;
    const char *carried = NULL;
    double parts = (double)sglpass_extent(c->s, axis), work = c->flops / FLOPS_PER_BYTE;
    if (sglpass_attends(c, axis, run)) return;
    bill whole = { .c = c, .axis = axis };
    for (uint32_t i = 0; i < c->node->arg_count; i++) add_arg(&whole, i, SGLPASS_WHOLE);
    double least = whole.price + work;
    for (uint32_t i = 0; i < c->node->arg_count; i++) {
        int dim = sglpass_arg_form(c, i)->at[axis];
        if (dim == SGLPASS_PARTIAL) dim = c->s->demands[(int64_t)sglpass_arg_of(c, i) * SGLIR_AXIS_COUNT + axis];
        int label = dim >= 0 ? sglpass_arg_label(&c->labels, i, dim) : -1;
        if (label < 0 || !sglpass_has_enough(c, axis, label) || !is_worked_on(c, i, axis)) continue;
        double price = sglpass_price_along(c, axis, label) + work / parts;
        if (best < 0 ? price > least : price >= least) continue;
        least = price;
        best = label;
    }
    for (const char *group = sglir_ops[c->node->op].linear; *group && is_linear_here(c);
         group = sglir_linear_next(group)) {
        if ((c->group && c->group != group) || !group_owes(c, axis, group)) continue;
        double price = price_carried(c, axis, group) + work;
        if (price >= least) continue;
        least = price;
        best = -1;
        carried = group;
    }
    sglir_beyond how;
    double beyond = 0;
    if (sglpass_price_beyond(c, axis, &how, &beyond) && beyond + work / parts < least)
        sglpass_run_beyond(c, axis, &how);
    else if (carried)
        run_carrying(c, axis, carried);
    else if (best >= 0)
        sglpass_run_along(c, axis, best, sglpass_units_of(c, best),
                          sglpass_together(c, best, sglpass_units_of(c, best)));
    else
        for (uint32_t i = 0; i < c->node->arg_count; i++) sglpass_arg_form(c, i)->at[axis] = SGLPASS_WHOLE;
}

sgl_status sglpass_choose(sglpass_sharder *s, sglir_id id, sglpass_way *run)
{
    sglpass_chooser c = { .s = s, .node = sglir_node_at(s->from, id) };
    run->node = id;
    read_labels(s, id, &c.labels);
    c.flops = sglplan_cost_of(s->from, id).flops;
    SGLCORE_TRY(open_choice(&c, run));
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (sglpass_extent(s, axis) > 1) choose_axis(&c, axis, run);
    }
    return SGL_OK;
}

/* Numbers made where they are wanted: rows of random ones follow one another in the counter, others do not. */
static bool makes_parts(const sglir_node *node, const sglpass_form *wanted)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (wanted->at[axis] > 0 && node->op != SGLIR_OP_IOTA) return false;
    }
    return true;
}

bool sglpass_choose_along(sglpass_sharder *s, sglir_id id, const sglpass_form *wanted, sglpass_way *run)
{
    sglpass_chooser c = { .s = s, .node = sglir_node_at(s->from, id) };
    bool generates = (sglir_ops[c.node->op].flags & SGLIR_GENERATOR) != 0;
    double price = 0;
    run->node = id;
    read_labels(s, id, &c.labels);
    if (sglir_stick(s->to, open_choice(&c, run)) != SGL_OK || sglpass_axes_of(wanted, SGLPASS_PARTIAL) != 0)
        return false;
    if (generates && !makes_parts(c.node, wanted)) return false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        for (uint32_t i = 0; i < c.node->arg_count && wanted->at[axis] < 0; i++)
            sglpass_arg_form(&c, i)->at[axis] = SGLPASS_WHOLE;
        if (wanted->at[axis] < 0 || generates) continue;
        int dim = wanted->at[axis], label = label_of_result(&c.labels, dim);
        int64_t units = label < 0 ? 0 : sglpass_units_of(&c, label);
        if (units == 0 || wanted->unit[dim] % (sglpass_result_extent(&c, 0, dim) / units) != 0) return false;
        sglpass_run_along(&c, axis, label, units, wanted->unit[dim] / (sglpass_result_extent(&c, 0, dim) / units));
    }
    for (uint32_t i = 0; i < c.node->arg_count; i++)
        price += sglpass_price(s, sglpass_arg_of(&c, i), sglpass_arg_form(&c, i));
    *sglpass_result_form(&c, 0) = *wanted;
    return price == 0;
}

/* sections.c -- parameters and states become ranges of few long 1-D sections.
 *
 * In: a graph with one INPUT per parameter and state, and the session's layout. Out: one INPUT per section, its members
 * as results of one UNPACK (views), the members listed; PACK of a run of members is a view of the section, and what
 * updates members updates the section. Who belongs together: first, whom the layout has together; then parameters or
 * states that one PACK gathers, in its order (that is how optimizers written over packs become one kernel per section);
 * then the parameters that are left, per dtype. Other states stand alone. Odd invariant: a name that the layout knows
 * never moves, so a program that packs in another order than the one before it is right, and copies. */
#include <string.h>

#include "passes/pass.h"
#include "passes/sections_gather.h"
#include "plan/mesh.h"

typedef struct emitter {
    sglcore_env *env;
    sglpass_gathering gathered;
    sglir_rewrite rewrite;
    SGLCORE_VEC(sglir_id) ids; /* for one node */
    SGLCORE_VEC(int64_t) numbers;
} emitter;

/* ---- the new graph ------------------------------------------------------------------------------------------- */

static sgl_status push_shape(emitter *s, int64_t *ranks, const sglir_type *type)
{
    ranks[0] = type->rank;
    for (int i = 0; i < type->rank; i++) SGLCORE_TRY(sglcore_vec_push(s->env, &s->numbers, type->dims[i]));
    return SGL_OK;
}

static sgl_status emit_parts(emitter *s, sglpass_section *sec)
{
    size_t bytes = sec->count * sizeof(int64_t);
    int64_t *ranks = sglcore_alloc(s->env, bytes);
    if (ranks == NULL) return SGL_OUT_OF_MEMORY;
    sgl_status status = SGL_OK;
    s->numbers.count = 0;
    for (uint32_t i = 0; i < sec->count && status == SGL_OK; i++)
        status = push_shape(s, ranks + i, &s->gathered.members.data[sec->first + i].type);
    const sglir_named attrs[] = { SGLIR_INTS("ranks", sec->count, ranks),
                                  SGLIR_INTS("dims", s->numbers.count, s->numbers.data) };
    if (status == SGL_OK) sec->parts = sglir_emit(s->rewrite.to, SGLIR_OP_UNPACK, &sec->value, 1, attrs, 2, NULL);
    sglcore_free(s->env, ranks, bytes);
    return status == SGL_OK ? sglir_status(s->rewrite.to) : status;
}

static void set_origin(emitter *s, sglir_id of)
{
    sglir_set_origin_made(s->rewrite.to, s->gathered.from, of, s->rewrite.pass);
}

static sgl_status emit_section(emitter *s, sglpass_section *sec)
{
    sglir_graph *to = s->rewrite.to;
    sglir_type type = sglir_type_make((sgl_dtype)sec->dtype, 1, &sec->elements);
    for (uint32_t i = sec->first; i < sec->first + sec->count; i++) {
        if (s->gathered.members.data[i].input == SGLIR_NONE) continue;
        set_origin(s, sglir_value_at(s->gathered.from, s->gathered.members.data[i].input)->node);
        break;
    }
    sec->value = sglir_input(to, (sgl_role)sec->role, sec->name, &type);
    SGLCORE_TRY(sglir_status(to));
    sglir_set_home(to, sglir_value_at(to, sec->value)->node, sec->home);
    SGLCORE_TRY(emit_parts(s, sec));
    for (uint32_t i = 0; i < sec->count; i++) {
        sglir_id input = s->gathered.members.data[sec->first + i].input;
        if (input != SGLIR_NONE) s->rewrite.map[input] = sec->parts + i;
    }
    return sglir_status(to);
}

/* Elements [start, start + count) of a 1-D value, as a view. */
static sglir_id view_range(emitter *s, sglir_id value, int64_t start, int64_t count)
{
    sglir_graph *to = s->rewrite.to;
    int64_t total = sglir_elements(sglir_type_of(to, value)), dims[3], ranks[3] = { 1, 1, 1 };
    int parts = 0, wanted = start > 0;
    if (count == total) return value;
    if (start > 0) dims[parts++] = start;
    dims[parts++] = count;
    if (start + count < total) dims[parts++] = total - start - count;
    const sglir_named attrs[] = { SGLIR_INTS("ranks", parts, ranks), SGLIR_INTS("dims", parts, dims) };
    sglir_id first = sglir_emit(to, SGLIR_OP_UNPACK, &value, 1, attrs, 2, NULL);
    return first == SGLIR_NONE ? SGLIR_NONE : first + (sglir_id)wanted;
}

/* A pack of members that stand one after another in a section is that part of it. */
static bool take_pack(emitter *s, const sglir_node *pack)
{
    const sglir_graph *g = s->gathered.from;
    uint32_t first = SGLPASS_NO_MEMBER;
    int64_t count = 0;
    for (uint32_t i = 0; i < pack->arg_count; i++) {
        sglir_id input = sglpass_input_of(g, sglir_arg(g, pack, i));
        uint32_t at = input == SGLIR_NONE ? SGLPASS_NO_MEMBER : s->gathered.member_of[input];
        if (at >= SGLPASS_ALONE) return false;
        if (i == 0) first = at;
        if (at != first + i || s->gathered.members.data[at].section != s->gathered.members.data[first].section)
            return false;
        count += sglir_elements(&s->gathered.members.data[at].type);
    }
    set_origin(s, sglir_value_at(g, pack->out_first)->node);
    sglir_id whole = s->gathered.sections.data[s->gathered.members.data[first].section].value;
    s->rewrite.map[pack->out_first] = view_range(s, whole, s->gathered.members.data[first].offset, count);
    return true;
}

static sgl_status copy_nodes(emitter *s)
{
    const sglir_region *top = &s->gathered.from->regions.data[0];
    for (int64_t i = 0; i < s->gathered.sections.count; i++)
        SGLCORE_TRY(emit_section(s, &s->gathered.sections.data[i]));
    for (int64_t n = 0; n < top->nodes.count; n++) {
        sglir_id id = top->nodes.data[n];
        const sglir_node *node = sglir_node_at(s->gathered.from, id);
        if (!s->gathered.live[id] ||
            (node->op == SGLIR_OP_INPUT && s->gathered.member_of[node->out_first] < SGLPASS_ALONE))
            continue;
        if (node->op != SGLIR_OP_PACK || !take_pack(s, node)) sglir_copy_node(&s->rewrite, id);
        SGLCORE_TRY(sglir_status(s->rewrite.to));
    }
    return SGL_OK;
}

/* ---- updates ------------------------------------------------------------------------------------------------- */

/* Members [first, first + count) of a section take, one after another, the elements of `value` (1-D). */
typedef struct run {
    uint32_t first, count;
    sglir_id value;
} run;

/* The unpack of which the value is a result, reshaped or not; *index: which. */
static const sglir_node *unpack_of(const sglir_graph *g, sglir_id value, uint32_t *index)
{
    const sglir_node *node = sglir_maker(g, value);
    while (node != NULL && node->op == SGLIR_OP_RESHAPE) {
        value = sglir_arg(g, node, 0);
        node = sglir_maker(g, value);
    }
    *index = sglir_value_at(g, value)->index;
    return node != NULL && node->op == SGLIR_OP_UNPACK ? node : NULL;
}

/* How many members from `first` on take the results of one unpack in its order; 0 when the first takes none. */
static uint32_t run_length(const emitter *s, const sglpass_section *sec, uint32_t first, sglir_id *unpacked,
                           int64_t *start)
{
    const sglir_graph *to = s->rewrite.to;
    uint32_t index, at, count = 0;
    const sglir_node *unpack = unpack_of(to, s->gathered.members.data[sec->first + first].update, &index);
    if (unpack == NULL) return 0;
    *unpacked = sglir_arg(to, unpack, 0);
    *start = 0;
    for (uint32_t i = 0; i < index; i++) *start += sglir_elements(sglir_type_of(to, unpack->out_first + i));
    while (first + count < sec->count && s->gathered.members.data[sec->first + first + count].update != SGLIR_NONE &&
           unpack_of(to, s->gathered.members.data[sec->first + first + count].update, &at) == unpack &&
           at == index + count)
        count++;
    return count;
}

/* The next run from member `first` on, which is updated. */
static run next_run(emitter *s, const sglpass_section *sec, uint32_t first)
{
    const sglpass_member *members = s->gathered.members.data + sec->first;
    sglir_id unpacked = SGLIR_NONE;
    int64_t start = 0, elements = 0;
    uint32_t count = run_length(s, sec, first, &unpacked, &start);
    run made = { .first = first, .count = count > 1 ? count : 1 };
    for (uint32_t i = 0; i < made.count; i++) elements += sglir_elements(&members[first + i].type);
    bool whole = count == 1 && elements == sglir_elements(sglir_type_of(s->rewrite.to, unpacked));
    made.value = count > 1 || whole ? view_range(s, unpacked, start, elements)
                                    : sglir_reshape(s->rewrite.to, members[first].update, 1, &elements);
    return made;
}

static sgl_status depends(emitter *s, const sglpass_section *sec, const run *runs, int64_t count, bool *result)
{
    sglir_graph *to = s->rewrite.to;
    size_t bytes = (size_t)to->values.count;
    uint8_t *marks = sglcore_alloc(s->env, bytes);
    if (marks == NULL) return SGL_OUT_OF_MEMORY;
    sglir_mark_dependents(to, &sec->value, 1, marks);
    *result = false;
    for (int64_t i = 0; i < count; i++) *result = *result || marks[runs[i].value];
    sglcore_free(s->env, marks, bytes);
    return SGL_OK;
}

/* The section's new value from several runs. Where all members are new and follow from the old ones, all must be there
 * before one is written: a pack. Otherwise each is written in its place as soon as it is made. */
static sgl_status join_runs(emitter *s, const sglpass_section *sec, const run *runs, int64_t count, uint32_t updated,
                            sglir_id *value)
{
    sglir_graph *to = s->rewrite.to;
    bool reads = false;
    SGLCORE_TRY(depends(s, sec, runs, count, &reads));
    if (reads && updated == sec->count) {
        s->ids.count = 0;
        for (int64_t i = 0; i < count; i++) SGLCORE_TRY(sglcore_vec_push(s->env, &s->ids, runs[i].value));
        *value = sglir_emit(to, SGLIR_OP_PACK, s->ids.data, (int)count, NULL, 0, NULL);
        return sglir_status(to);
    }
    *value = sec->value;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = s->gathered.members.data[sec->first + runs[i].first].offset;
        const sglir_id args[] = { *value, runs[i].value, sglir_constant(to, SGL_I64, (double)offset) };
        const sglir_named axis = SGLIR_I("axis", 0);
        *value = sglir_emit(to, SGLIR_OP_DYNAMIC_UPDATE, args, 3, &axis, 1, NULL);
    }
    return sglir_status(to);
}

static sgl_status update_section(emitter *s, const sglpass_section *sec)
{
    SGLCORE_VEC(run) runs = { 0 };
    uint32_t updated = 0;
    sgl_status status = SGL_OK;
    sglir_id value = SGLIR_NONE;
    for (uint32_t i = 0; i < sec->count && status == SGL_OK;) {
        sglir_id update = s->gathered.members.data[sec->first + i].update;
        if (update == SGLIR_NONE || update == sec->parts + i) { /* left as it is */
            i++;
            continue;
        }
        run next = next_run(s, sec, i);
        status = sglir_status(s->rewrite.to);
        if (status == SGL_OK) status = sglcore_vec_push(s->env, &runs, next);
        updated += next.count;
        i += next.count;
    }
    if (status == SGL_OK && runs.count == 1 && updated == sec->count)
        value = runs.data[0].value;
    else if (status == SGL_OK && runs.count > 0)
        status = join_runs(s, sec, runs.data, runs.count, updated, &value);
    if (status == SGL_OK && value != SGLIR_NONE) sglir_output_add(s->rewrite.to, SGLIR_UPDATE, sec->name, value);
    sglcore_vec_free(s->env, &runs);
    return status == SGL_OK ? sglir_status(s->rewrite.to) : status;
}

static sgl_status copy_outputs(emitter *s)
{
    const sglir_graph *g = s->gathered.from;
    sglir_graph *to = s->rewrite.to;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        const char *name = sglcore_string(g->strings, output->name);
        sglir_id value = s->rewrite.map[output->value];
        sglir_id input = output->role == SGLIR_UPDATE ? sglir_input_find(g, name) : SGLIR_NONE;
        if (input != SGLIR_NONE && s->gathered.member_of[input] < SGLPASS_ALONE)
            s->gathered.members.data[s->gathered.member_of[input]].update = value;
        else
            sglir_output_add(to, output->role, name, value);
    }
    sglir_set_origin(to, "", 0, "", s->rewrite.pass);
    for (int64_t i = 0; i < s->gathered.sections.count; i++)
        SGLCORE_TRY(update_section(s, &s->gathered.sections.data[i]));
    return sglir_status(to);
}

static sgl_status list_members(emitter *s)
{
    sglir_graph *to = s->rewrite.to;
    for (int64_t i = 0; i < s->gathered.members.count; i++) {
        const sglpass_member *m = &s->gathered.members.data[i];
        const sglpass_section *sec = &s->gathered.sections.data[m->section];
        sglir_member made = { .role = sec->role, .offset = m->offset, .type = m->type };
        SGLCORE_TRY(sglcore_intern(to->strings, sec->name, strlen(sec->name), &made.section));
        SGLCORE_TRY(sglcore_intern(to->strings, m->name, strlen(m->name), &made.name));
        SGLCORE_TRY(sglcore_vec_push(s->env, &to->members, made));
    }
    return SGL_OK;
}

/* ---- the pass ------------------------------------------------------------------------------------------------ */

static sgl_status run_pass(emitter *s)
{
    SGLCORE_TRY(sglpass_gather(&s->gathered));
    SGLCORE_TRY(copy_nodes(s));
    SGLCORE_TRY(copy_outputs(s));
    return list_members(s);
}

static sgl_status gather_graph(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglcore_env *env = context->env;
    emitter s = { .env = env, .gathered = { .env = env, .from = in, .layout = context->layout } };
    s.gathered.stage = sglplan_mesh_coordinate(context->plan, context->rank).at[SGLIR_AXIS_PP];
    sglcore_arena arena = { .env = env };
    s.gathered.live = sglcore_arena_alloc(&arena, (size_t)in->nodes.count);
    s.gathered.member_of = sglcore_arena_alloc(&arena, (size_t)in->values.count * sizeof *s.gathered.member_of);
    sgl_status status = s.gathered.live == NULL || s.gathered.member_of == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
    if (status == SGL_OK) status = sglir_rewrite_begin(env, in, "sections", NULL, &s.rewrite);
    if (status == SGL_OK) {
        status = run_pass(&s);
        if (status != SGL_OK) s.rewrite.to->status = status;
        status = sglir_rewrite_end(&s.rewrite, false, out);
    }
    sglpass_gathering_free(&s.gathered);
    sglcore_vec_free(env, &s.ids);
    sglcore_vec_free(env, &s.numbers);
    sglcore_arena_free(&arena);
    return status;
}

sgl_status sglpass_sections(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    *out = NULL;
    sglir_graph *clean; /* loops are copied whole: without what is dead in them */
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "sections", NULL, NULL, &clean));
    if (in->members.count > 0) { /* it has its sections */
        *out = clean;
        sglpass_say(context, in, clean, false);
        return SGL_OK;
    }
    sgl_status status = gather_graph(context, clean, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, (*out)->members.count > 0);
    sglir_graph_free(clean);
    return status;
}

/* sections_gather.c -- which parameters and states become members of which section.
 *
 * In: a graph, the session's layout. Out: sections with their members in order. Odd invariant: a name that the layout
 * knows keeps its place there, whatever this graph packs; a state that stands alone there stands alone here. */
#include <string.h>

#include "passes/sections_gather.h"

/* ---- names --------------------------------------------------------------------------------------------------- */

static sglcore_hash hash_of(const char *name) { return sglcore_hash_bytes(name, strlen(name)); }

static sgl_status map_inputs(sglcore_env *env, const sglir_graph *g, sglcore_map *map)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT) continue;
        SGLCORE_TRY(sglcore_map_put(env, map, hash_of(sglir_attr_string(g, node, "name")), node->out_first));
    }
    return SGL_OK;
}

static sglir_id find_input(const sglcore_map *map, const char *name)
{
    uint64_t value;
    return sglcore_map_get(map, hash_of(name), &value) ? (sglir_id)value : SGLIR_NONE;
}

/* ---- who belongs together ------------------------------------------------------------------------------------ */

static bool is_state(const sglir_graph *g, const sglir_node *node)
{
    return node->op == SGLIR_OP_INPUT && sglir_attr_int(g, node, "role") != SGL_FEED;
}

static int64_t home_of(const sglir_graph *g, const sglir_node *input)
{
    return sglir_home_of(g, sglir_value_at(g, input->out_first)->node);
}

static int put_name(char *name, size_t size, const char *format, ...) SGL_PRINTF(3, 4);
static int put_name(char *name, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = sglcore_format(name, size, format, arguments);
    va_end(arguments);
    return length;
}

/* name NULL: "section.<k>" with the first k that is free. */
static sgl_status open_section(sglpass_gathering *s, const char *name, uint8_t dtype, int role, int64_t home)
{
    sglpass_section made = {
        .dtype = dtype, .role = (uint8_t)role, .first = (uint32_t)s->members.count, .home = home, .value = SGLIR_NONE
    };
    if (name != NULL && put_name(made.name, sizeof made.name, "%s", name) >= (int)sizeof made.name)
        return sglcore_fail(s->env, SGL_INTERNAL, "sections: the name '%s' of a section is too long", name);
    while (name == NULL) {
        put_name(made.name, sizeof made.name, "section.%lld", (long long)s->next_number++);
        if (find_input(&s->placed, made.name) == SGLIR_NONE && find_input(&s->inputs, made.name) == SGLIR_NONE) break;
    }
    return sglcore_vec_push(s->env, &s->sections, made);
}

static sgl_status add_member(sglpass_gathering *s, sglir_id input, const char *name, const sglir_type *type)
{
    sglpass_section *last = &s->sections.data[s->sections.count - 1];
    sglpass_member made = { .section = (uint32_t)s->sections.count - 1,
                            .input = input,
                            .name = name,
                            .type = *type,
                            .offset = last->elements,
                            .update = SGLIR_NONE };
    int64_t elements;
    if (__builtin_add_overflow(last->elements, sglir_elements(type), &elements))
        return sglcore_fail(s->env, SGL_LIMIT, "%s: its section would have more elements than 64 bits count", name);
    if (input != SGLIR_NONE) s->member_of[input] = (uint32_t)s->members.count;
    last->elements = elements;
    last->count++;
    return sglcore_vec_push(s->env, &s->members, made);
}

static const char *input_name(const sglpass_gathering *s, sglir_id input)
{
    return sglir_attr_string(s->from, sglir_maker(s->from, input), "name");
}

static sgl_status add_input(sglpass_gathering *s, sglir_id input)
{
    return add_member(s, input, input_name(s, input), sglir_type_of(s->from, input));
}

/* The value of the INPUT that the value is, reshaped or not; SGLIR_NONE for others. */
sglir_id sglpass_input_of(const sglir_graph *g, sglir_id value)
{
    const sglir_node *node = sglir_maker(g, value);
    while (node != NULL && node->op == SGLIR_OP_RESHAPE) {
        value = sglir_arg(g, node, 0);
        node = sglir_maker(g, value);
    }
    return node != NULL && node->op == SGLIR_OP_INPUT ? value : SGLIR_NONE;
}

static sgl_status fail_known(const sglpass_gathering *s, const char *name, const sglir_type *has,
                             const sglir_type *wanted)
{
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    return sglcore_fail(s->env, SGL_TYPE, "%s: the graph wants %s, the session has it as %s from an earlier program",
                        name, sglir_type_text(wanted, a, sizeof a), sglir_type_text(has, b, sizeof b));
}

/* The state of that name that this graph needs. */
static sglir_id live_state(const sglpass_gathering *s, const char *name)
{
    sglir_id value = find_input(&s->inputs, name);
    if (value == SGLIR_NONE || !is_state(s->from, sglir_maker(s->from, value))) return SGLIR_NONE;
    return s->live[sglir_value_at(s->from, value)->node] ? value : SGLIR_NONE;
}

/* A section of the layout, whole, when this graph names a member of it. */
static sgl_status take_section(sglpass_gathering *s, uint32_t id)
{
    const sglir_graph *layout = s->layout;
    const char *name = sglcore_string(layout->strings, id);
    sglir_id input = find_input(&s->placed, name);
    const int64_t home = input == SGLIR_NONE ? SGLIR_HOME_UNSAID : home_of(layout, sglir_maker(layout, input));
    bool used = false, opened = false;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t m = 0; m < layout->members.count; m++) {
            const sglir_member *known = &layout->members.data[m];
            if (known->section != id) continue;
            const char *mine = sglcore_string(layout->strings, known->name);
            sglir_id value = live_state(s, mine);
            used = used || value != SGLIR_NONE;
            if (pass == 0) continue;
            if (!opened) SGLCORE_TRY(open_section(s, name, known->type.dtype, known->role, home));
            opened = true;
            if (value != SGLIR_NONE && !sglir_type_equal(&known->type, sglir_type_of(s->from, value)))
                return fail_known(s, mine, &known->type, sglir_type_of(s->from, value));
            if (known->offset != s->sections.data[s->sections.count - 1].elements)
                return sglcore_fail(s->env, SGL_INTERNAL, "%s: not where its section '%s' goes on", mine, name);
            SGLCORE_TRY(add_member(s, value, mine, &known->type));
        }
        if (!used) return SGL_OK;
    }
    if (input == SGLIR_NONE ||
        sglir_elements(sglir_type_of(layout, input)) != s->sections.data[s->sections.count - 1].elements)
        return sglcore_fail(s->env, SGL_INTERNAL, "the section '%s' is not as long as its members", name);
    return SGL_OK;
}

static sgl_status take_layout(sglpass_gathering *s)
{
    const sglir_graph *layout = s->layout;
    if (layout == NULL) return SGL_OK;
    for (int64_t m = 0; m < layout->members.count; m++) {
        uint32_t id = layout->members.data[m].section;
        bool first = true;
        for (int64_t k = 0; k < m && first; k++) first = layout->members.data[k].section != id;
        if (first) SGLCORE_TRY(take_section(s, id));
    }
    for (int64_t n = 0; n < layout->nodes.count; n++) { /* what stands alone there stands alone here */
        const sglir_node *node = &layout->nodes.data[n];
        sglir_id value = find_input(&s->inputs, sglir_attr_string(layout, node, "name"));
        if (value != SGLIR_NONE && s->member_of[value] == SGLPASS_NO_MEMBER) s->member_of[value] = SGLPASS_ALONE;
    }
    return SGL_OK;
}

/* Neither split nor another stage's. */
static bool is_plain(const sglpass_gathering *s, const sglir_node *input)
{
    const sglir_type *type = sglir_type_of(s->from, input->out_first);
    const sglir_type plain = sglir_type_make((sgl_dtype)type->dtype, type->rank, type->dims);
    const int64_t home = home_of(s->from, input);
    return sglir_type_equal(type, &plain) && (home < 0 || home == s->stage);
}

/* Whether the pack gathers states of one role, each once, that have no place yet. */
static bool may_gather(sglpass_gathering *s, const sglir_node *pack)
{
    const sglir_graph *g = s->from;
    int64_t role = -1, home = SGLIR_HOME_UNSAID;
    bool good = true;
    uint32_t marked = 0;
    for (; marked < pack->arg_count && good; marked++) {
        sglir_id input = sglpass_input_of(g, sglir_arg(g, pack, marked));
        good = input != SGLIR_NONE && is_state(g, sglir_maker(g, input)) && s->member_of[input] == SGLPASS_NO_MEMBER &&
               is_plain(s, sglir_maker(g, input));
        if (!good) break;
        int64_t mine = sglir_attr_int(g, sglir_maker(g, input), "role"), lives = home_of(g, sglir_maker(g, input));
        good = role < 0 || (role == mine && home == lives);
        role = mine;
        home = lives;
        s->member_of[input] = SGLPASS_ALONE; /* a second time is seen */
    }
    for (uint32_t i = 0; i < marked; i++) s->member_of[sglpass_input_of(g, sglir_arg(g, pack, i))] = SGLPASS_NO_MEMBER;
    return good;
}

static sgl_status gather_packs(sglpass_gathering *s)
{
    const sglir_graph *g = s->from;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *pack = &g->nodes.data[n];
        if (pack->op != SGLIR_OP_PACK || !s->live[n] || pack->region != 0 || !may_gather(s, pack)) continue;
        const sglir_node *first = sglir_maker(g, sglpass_input_of(g, sglir_arg(g, pack, 0)));
        SGLCORE_TRY(open_section(s, NULL, sglir_type_of(g, first->out_first)->dtype,
                                 (int)sglir_attr_int(g, first, "role"), home_of(g, first)));
        for (uint32_t i = 0; i < pack->arg_count; i++)
            SGLCORE_TRY(add_input(s, sglpass_input_of(g, sglir_arg(g, pack, i))));
    }
    return SGL_OK;
}

static sgl_status gather_parameters(sglpass_gathering *s)
{
    const sglir_graph *g = s->from;
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
        bool opened = false;
        for (int64_t n = 0; n < g->nodes.count; n++) {
            const sglir_node *node = &g->nodes.data[n];
            if (node->op != SGLIR_OP_INPUT || !s->live[n] || sglir_attr_int(g, node, "role") != SGL_PARAMETER) continue;
            const sglir_type *type = sglir_type_of(g, node->out_first);
            if (type->dtype != dtype || s->member_of[node->out_first] != SGLPASS_NO_MEMBER || !is_plain(s, node))
                continue;
            if (!opened) SGLCORE_TRY(open_section(s, NULL, (uint8_t)dtype, SGL_PARAMETER, home_of(g, node)));
            opened = true;
            SGLCORE_TRY(add_input(s, node->out_first));
        }
    }
    return SGL_OK;
}

/* ---- the call ------------------------------------------------------------------------------------------------ */

sgl_status sglpass_gather(sglpass_gathering *s)
{
    for (int64_t v = 0; v < s->from->values.count; v++) s->member_of[v] = SGLPASS_NO_MEMBER;
    SGLCORE_TRY(sglir_mark_live(s->from, s->live));
    SGLCORE_TRY(map_inputs(s->env, s->from, &s->inputs));
    if (s->layout != NULL) SGLCORE_TRY(map_inputs(s->env, s->layout, &s->placed));
    SGLCORE_TRY(take_layout(s));
    SGLCORE_TRY(gather_packs(s));
    return gather_parameters(s);
}

void sglpass_gathering_free(sglpass_gathering *s)
{
    sglcore_vec_free(s->env, &s->members);
    sglcore_vec_free(s->env, &s->sections);
    sglcore_map_free(s->env, &s->inputs);
    sglcore_map_free(s->env, &s->placed);
}

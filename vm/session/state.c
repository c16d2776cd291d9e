/* state.c -- the states of a session by name: parameters, moments, counters, caches.
 *
 * Comes in: names. Goes out: where they lie, and bytes. (checkpoint.c has their way to and from disk, parts.c what is
 * split.) A state is a member of a section or an input that stands alone; the layout graph says where. What is split
 * stands alone. */
#include <string.h>

#include "session/session.h"

static bool section_has_members(const sglir_graph *layout, uint32_t name)
{
    for (int64_t m = 0; m < layout->members.count; m++)
        if (layout->members.data[m].section == name) return true;
    return false;
}

static uint32_t input_name(const sglir_graph *layout, const sglir_node *node)
{
    return layout->attrs.data[node->attr_first + 1].as.string; /* schema of INPUT: role, name, dtype, dims */
}

const char *sglsession_brought_by(const sglir_graph *layout, sglir_id input)
{
    return sglcore_string(layout->strings, layout->origins.data[sglir_maker(layout, input)->origin].scope);
}

/* place: of it, or of the section that it begins `offset` bytes into. */
static void fill(sglsession_state *state, const char *name, uint8_t role, const sglir_type *type,
                 const sglir_value *place, int64_t offset)
{
    state->name = name;
    state->role = (sgl_role)role;
    state->type.dtype = (sgl_dtype)type->dtype;
    state->type.rank = type->rank;
    memcpy(state->type.dims, type->dims, sizeof state->type.dims);
    state->split = NULL;
    state->box = sglstore_box_whole(&state->type);
    state->space = place->space;
    state->offset = place->offset + offset;
    state->bytes = sglir_bytes(type);
    state->made = false;
    state->initial = 0;
}

/* What this rank has of a state that is not whole on every rank. */
static void fill_split(const sgl_session *session, sglsession_state *state)
{
    state->split = sglsession_split_find(session, state->name);
    if (!state->split) return;
    state->box = sglsession_box(state->split, session->world.rank);
    state->type = state->split->whole;
}

static void fill_input(const sgl_session *session, sglsession_state *state, const sglir_node *node)
{
    const sglir_graph *layout = session->layout;
    const sglir_value *value = sglir_value_at(layout, node->out_first);
    fill(state, sglcore_string(layout->strings, input_name(layout, node)),
         (uint8_t)sglir_attr_int(layout, node, "role"), &value->type, value, 0);
    state->program = sglsession_brought_by(layout, node->out_first);
    state->made = sglir_attr_int(layout, node, "made") != 0;
    state->initial = sglir_attr_float(layout, node, "initial");
    fill_split(session, state);
}

/* Members first, in the order of their sections, then the inputs that stand alone. */
bool sglsession_state_at(const sgl_session *session, int64_t index, sglsession_state *state)
{
    const sglir_graph *layout = session->layout;
    if (!layout || index < 0) return false;
    if (index < layout->members.count) {
        const sglir_member *member = &layout->members.data[index];
        for (int64_t n = 0; n < layout->nodes.count; n++) {
            const sglir_node *node = sglir_node_at(layout, (sglir_id)n);
            if (input_name(layout, node) != member->section) continue;
            fill(state, sglcore_string(layout->strings, member->name), member->role, &member->type,
                 sglir_value_at(layout, node->out_first),
                 sglcore_dtype_bytes((sgl_dtype)member->type.dtype, member->offset));
            state->program = sglsession_brought_by(layout, node->out_first);
            fill_split(session, state);
            return true;
        }
        return false;
    }
    index -= layout->members.count;
    for (int64_t n = 0; n < layout->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(layout, (sglir_id)n);
        if (section_has_members(layout, input_name(layout, node)) || index-- > 0) continue;
        fill_input(session, state, node);
        return true;
    }
    return false;
}

bool sglsession_state_find(const sgl_session *session, const char *name, sglsession_state *state)
{
    const sglir_graph *layout = session->layout;
    for (int64_t m = 0; layout && m < layout->members.count; m++)
        if (strcmp(sglcore_string(layout->strings, layout->members.data[m].name), name) == 0)
            return sglsession_state_at(session, m, state);
    sglir_id input = layout ? sglir_input_find(layout, name) : SGLIR_NONE;
    if (input == SGLIR_NONE || section_has_members(layout, input_name(layout, sglir_maker(layout, input))))
        return false;
    fill_input(session, state, sglir_maker(layout, input));
    return true;
}

sgl_status sgl_state_info(const sgl_session *session, int index, const char **name, sgl_role *role, sgl_type *type)
{
    SGLSESSION_NEEDS(session && name, session ? session->vm : NULL, "session or name is NULL");
    sglsession_state state;
    *name = NULL;
    if (!sglsession_state_at(session, index, &state)) return SGL_OK;
    *name = state.name;
    if (role) *role = state.role;
    if (type) *type = state.type;
    return SGL_OK;
}

static sgl_status find_checked(sgl_session *session, const char *name, size_t bytes, sglsession_state *state)
{
    sglcore_env *env = &session->vm->env;
    if (sglsession_state_find(session, name, state)) {
        const int64_t whole = sglsession_whole_bytes(state);
        if (whole == (int64_t)bytes) return SGL_OK;
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "state '%s' has %lld bytes, not %zu", name, (long long)whole,
                            bytes);
    }
    const char *names[256];
    int count = 0;
    sglsession_state other;
    while (count < 256 && sglsession_state_at(session, count, &other)) names[count++] = other.name;
    char hint[SGLCORE_HINT_ROOM];
    return sglcore_fail(env, SGL_NOT_FOUND, "the session has no state '%s'%s", name,
                        sglcore_hint(name, names, count, hint));
}

sgl_status sgl_state_read(sgl_session *session, const char *name, void *data, size_t bytes)
{
    SGLSESSION_NEEDS(session && name && (data || !bytes), session ? session->vm : NULL,
                     "session, name or data is NULL");
    sglsession_state state;
    SGLCORE_TRY(find_checked(session, name, bytes, &state));
    SGLCORE_TRY(sglsession_ready_states(session));
    if (state.split) return sglsession_read_whole(session, &state, data);
    return session->ops->read(session->device, sglsession_states(session, state.space), state.offset, data,
                              state.bytes);
}

sgl_status sgl_state_write(sgl_session *session, const char *name, const void *data, size_t bytes)
{
    SGLSESSION_NEEDS(session && name && (data || !bytes), session ? session->vm : NULL,
                     "session, name or data is NULL");
    sglsession_state state;
    SGLCORE_TRY(find_checked(session, name, bytes, &state));
    SGLCORE_TRY(sglsession_ready_states(session));
    if (state.split) return sglsession_write_part(session, &state, data);
    return session->ops->write(session->device, sglsession_states(session, state.space), state.offset, data,
                               state.bytes);
}

/* state.c -- the states of a session by name: parameters, moments, counters, caches; and their way to and from disk.
 *
 * Comes in: names. Goes out: bytes, or checkpoints. A state is a member of a section or an input that stands alone; the
 * layout graph says where. Caches are never saved. */
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

static void fill(sglsession_state *state, const char *name, uint8_t role, const sglir_type *type, int64_t offset)
{
    state->name = name;
    state->role = (sgl_role)role;
    state->type.dtype = (sgl_dtype)type->dtype;
    state->type.rank = type->rank;
    memcpy(state->type.dims, type->dims, sizeof state->type.dims);
    state->offset = offset;
    state->bytes = sglir_bytes(type);
    state->made = false;
    state->initial = 0;
}

static void fill_input(sglsession_state *state, const sglir_graph *layout, const sglir_node *node)
{
    const sglir_value *value = sglir_value_at(layout, node->out_first);
    fill(state, sglcore_string(layout->strings, input_name(layout, node)),
         (uint8_t)sglir_attr_int(layout, node, "role"), &value->type, value->offset);
    state->program = sglsession_brought_by(layout, node->out_first);
    state->made = sglir_attr_int(layout, node, "made") != 0;
    state->initial = sglir_attr_float(layout, node, "initial");
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
            int64_t start = sglir_value_at(layout, node->out_first)->offset;
            fill(state, sglcore_string(layout->strings, member->name), member->role, &member->type,
                 start + sglcore_dtype_bytes((sgl_dtype)member->type.dtype, member->offset));
            state->program = sglsession_brought_by(layout, node->out_first);
            return true;
        }
        return false;
    }
    index -= layout->members.count;
    for (int64_t n = 0; n < layout->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(layout, (sglir_id)n);
        if (section_has_members(layout, input_name(layout, node)) || index-- > 0) continue;
        fill_input(state, layout, node);
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
    fill_input(state, layout, sglir_maker(layout, input));
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
        if (state->bytes == (int64_t)bytes) return SGL_OK;
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "state '%s' has %lld bytes, not %zu", name,
                            (long long)state->bytes, bytes);
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
    return session->ops->read(session->device, session->state, state.offset, data, state.bytes);
}

sgl_status sgl_state_write(sgl_session *session, const char *name, const void *data, size_t bytes)
{
    SGLSESSION_NEEDS(session && name && (data || !bytes), session ? session->vm : NULL,
                     "session, name or data is NULL");
    sglsession_state state;
    SGLCORE_TRY(find_checked(session, name, bytes, &state));
    SGLCORE_TRY(sglsession_ready_states(session));
    return session->ops->write(session->device, session->state, state.offset, data, state.bytes);
}

/* ---- checkpoints ---------------------------------------------------------------------------------------------------- */

typedef struct place {
    sgl_session *session;
    int64_t offset;
    bool written;
} place;

static sgl_status read_place(void *user, int64_t offset, void *data, int64_t bytes)
{
    place *p = user;
    return p->session->ops->read(p->session->device, p->session->state, p->offset + offset, data, bytes);
}

static sgl_status write_place(void *user, int64_t offset, const void *data, int64_t bytes)
{
    place *p = user;
    p->written = true;
    return p->session->ops->write(p->session->device, p->session->state, p->offset + offset, data, bytes);
}

/* What a checkpoint holds of this session: all but caches, without states when only parameters are wanted. */
typedef struct saved {
    SGLCORE_VEC(sglsession_state) states;
    SGLCORE_VEC(place) places;
} saved;

static sgl_status gather(sgl_session *session, bool parameters_only, saved *s)
{
    sglcore_env *env = &session->vm->env;
    sglsession_state state;
    for (int64_t i = 0; sglsession_state_at(session, i, &state); i++) {
        if (state.role == SGL_CACHE || (parameters_only && state.role != SGL_PARAMETER)) continue;
        SGLCORE_TRY(sglcore_vec_push(env, &s->states, state));
        SGLCORE_TRY(sglcore_vec_push(env, &s->places, (place){ session, state.offset, false }));
    }
    return SGL_OK;
}

static void scatter(sgl_session *session, saved *s)
{
    sglcore_vec_free(&session->vm->env, &s->states);
    sglcore_vec_free(&session->vm->env, &s->places);
}

void sglsession_unlock(sgl_session *session)
{
    sglcore_env *env = &session->vm->env;
    if (!session->locked) return;
    sglstore_unlock(env, session->lock);
    sglcore_free(env, session->locked, strlen(session->locked) + 1);
    session->locked = NULL;
}

sgl_status sgl_checkpoint_lock(sgl_session *session, const char *dir)
{
    if (!session) return SGL_INVALID_ARGUMENT;
    if (sgl_session_rank(session) != 0 || (session->locked && dir && strcmp(session->locked, dir) == 0)) return SGL_OK;
    sglsession_unlock(session); /* first: the same folder may have two names */
    if (!dir) return SGL_OK;
    sglcore_env *env = &session->vm->env;
    char *kept = sglcore_alloc(env, strlen(dir) + 1);
    if (!kept) return SGL_OUT_OF_MEMORY;
    strcpy(kept, dir);
    sgl_status status = sglstore_lock(env, dir, &session->lock);
    if (status == SGL_OK)
        session->locked = kept;
    else
        sglcore_free(env, kept, strlen(kept) + 1);
    return status;
}

static bool is_split(const sglir_type *type)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axis != SGLIR_AXIS_MICRO && type->sharded[axis] >= 0) return true;
    }
    return false;
}

/* A checkpoint holds whole states, and rank 0 writes what it has. */
static sgl_status check_whole(const sgl_session *session, const char *what)
{
    const sglir_graph *layout = session->layout;
    const char *split = NULL;
    for (int64_t n = 0; layout && n < layout->nodes.count && !split; n++) {
        const sglir_node *node = sglir_node_at(layout, (sglir_id)n);
        if (is_split(sglir_type_of(layout, node->out_first))) split = sglir_attr_string(layout, node, "name");
    }
    for (int64_t m = 0; layout && m < layout->members.count && !split; m++) {
        if (is_split(&layout->members.data[m].type))
            split = sglcore_string(layout->strings, layout->members.data[m].name);
    }
    if (!split) return SGL_OK;
    return sglcore_fail(&session->vm->env, SGL_UNSUPPORTED,
                        "%s: the plan splits it over ranks, and this version %s whole states alone", split, what);
}

static sgl_status save_locked(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep)
{
    sglcore_env *env = &session->vm->env;
    saved s = { 0 };
    SGLCORE_VEC(sglstore_source) sources = { 0 };
    sgl_status status = sglsession_ready_states(session);
    if (status == SGL_OK) status = gather(session, false, &s);
    for (int64_t i = 0; i < s.states.count && status == SGL_OK; i++) {
        const sglsession_state *state = &s.states.data[i];
        status = sglcore_vec_push(env, &sources,
                                  (sglstore_source){ state->name, state->type, (uint8_t)state->role, &s.places.data[i],
                                                     read_place });
    }
    if (status == SGL_OK) status = sglstore_checkpoint_save(env, dir, step, meta, sources.data, sources.count, keep);
    sglcore_vec_free(env, &sources);
    scatter(session, &s);
    return status;
}

static sgl_status lock_and_save(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep)
{
    sglcore_env *env = &session->vm->env;
    if (session->ops->blank)
        return sglcore_fail(env, SGL_UNSUPPORTED,
                            "sgl_checkpoint_save: the device '%s' computes nothing: there is nothing to save",
                            session->ops->name);
    if (session->torn)
        return sglcore_fail(
            env, SGL_WRONG_STATE,
            "sgl_checkpoint_save: a step failed or was stopped half-way, and the states are of no step; load a "
            "checkpoint first");
    SGLCORE_TRY(check_whole(session, "saves"));
    if (sgl_session_rank(session) != 0) return SGL_OK; /* states are whole everywhere: rank 0's are all */
    bool held = session->locked && strcmp(session->locked, dir) == 0;
    SGLCORE_TRY(sgl_checkpoint_lock(session, dir));
    sglsession_begin_busy(session, "saving a checkpoint");
    sgl_status status = save_locked(session, dir, step, meta, keep);
    sglsession_end_busy(session);
    if (!held) sglsession_unlock(session);
    return status;
}

sgl_status sglsession_save(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep,
                           sglsession_note *note)
{
    SGLCORE_TRY(sgl_world_check(session, 0)); /* of a world that is lost nothing is saved */
    return sglsession_agree(session, lock_and_save(session, dir, step, meta, keep), note);
}

sgl_status sgl_checkpoint_save(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep)
{
    SGLSESSION_NEEDS(session && dir && step >= 0, session ? session->vm : NULL,
                     "session or dir is NULL, or step is below 0");
    sglsession_note note = { 0 };
    return sglsession_save(session, dir, step, meta, keep, &note);
}

/* What passes made and the checkpoint lacks, as one that was saved under another plan does, begins anew. */
static sgl_status begin_unwritten(sgl_session *session, const saved *s, const char *path)
{
    for (int64_t i = 0; i < s->states.count; i++) {
        const sglsession_state *state = &s->states.data[i];
        if (!state->made || s->places.data[i].written) continue;
        SGLCORE_TRY(sglsession_begin_state(session, state));
        sglcore_log(&session->vm->env, SGL_LOG_INFO, "%s: %s is not in it and begins as %g", path, state->name,
                    state->initial);
    }
    return SGL_OK;
}

typedef enum source { CHECKPOINT, PARAMETERS_OF_CHECKPOINT, TENSORS } source;

static sgl_status read_from(sgl_session *session, const char *path, source from)
{
    bool parameters_only = from != CHECKPOINT;
    sglcore_env *env = &session->vm->env;
    saved s = { 0 };
    SGLCORE_VEC(sglstore_target) targets = { 0 };
    SGLCORE_TRY(check_whole(session, "loads"));
    sgl_status status = sglsession_ready_states(session);
    if (status == SGL_OK) status = gather(session, parameters_only, &s);
    for (int64_t i = 0; i < s.states.count && status == SGL_OK; i++) {
        const sglsession_state *state = &s.states.data[i];
        status = sglcore_vec_push(env, &targets,
                                  (sglstore_target){ state->name, state->type, (uint8_t)state->role, &s.places.data[i],
                                                     write_place });
    }
    if (status == SGL_OK)
        status = from == TENSORS ? sglstore_tensors_load(env, path, targets.data, targets.count)
                                 : sglstore_checkpoint_load(env, path, targets.data, targets.count, parameters_only);
    if (status == SGL_OK) status = begin_unwritten(session, &s, path);
    if (status == SGL_OK && !parameters_only) session->torn = false;
    sglcore_vec_free(env, &targets);
    scatter(session, &s);
    return status;
}

/* Every rank reads the file for itself. */
static sgl_status load_from(sgl_session *session, const char *path, source from)
{
    sglsession_note note = { 0 };
    sglsession_begin_busy(session, "loading");
    sgl_status status = read_from(session, path, from);
    sglsession_end_busy(session);
    return sglsession_agree(session, status, &note);
}

sgl_status sgl_checkpoint_load(sgl_session *session, const char *path, int parameters_only)
{
    SGLSESSION_NEEDS(session && path, session ? session->vm : NULL, "session or path is NULL");
    return load_from(session, path, parameters_only ? PARAMETERS_OF_CHECKPOINT : CHECKPOINT);
}

sgl_status sgl_parameters_load(sgl_session *session, const char *path)
{
    SGLSESSION_NEEDS(session && path, session ? session->vm : NULL, "session or path is NULL");
    return load_from(session, path, TENSORS);
}

sgl_status sgl_checkpoint_find(sgl_vm *vm, const char *dir, const char **path, const char **meta, int64_t *step)
{
    SGLSESSION_NEEDS(vm && dir && path && meta && step, vm, "vm, dir, path, meta or step is NULL");
    char *found_path, *found_meta;
    sgl_status status = sglstore_checkpoint_find(&vm->env, dir, &found_path, &found_meta, step);
    sglsession_forget_found(vm); /* not before: `dir` may be what was found before */
    *path = vm->found_path = found_path;
    *meta = vm->found_meta = found_meta;
    return status;
}

void sglsession_forget_found(sgl_vm *vm)
{
    if (vm->found_path) sglcore_free(&vm->env, vm->found_path, strlen(vm->found_path) + 1);
    if (vm->found_meta) sglcore_free(&vm->env, vm->found_meta, strlen(vm->found_meta) + 1);
    vm->found_path = vm->found_meta = NULL;
}

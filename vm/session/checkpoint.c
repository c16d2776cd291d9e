/* checkpoint.c -- the states of a session on their way to and from disk: checkpoints, and files of weights.
 *
 * Comes in: a folder or a file. Goes out: a checkpoint, or states that are as it says. Of several ranks each writes
 * what no rank before it has, and reads what is its own; they go from one stage to the next together. Odd invariant:
 * caches are never saved, and of an unfinished step nothing is. */
#include <string.h>

#include "plan/compress.h"
#include "session/session.h"

typedef struct place {
    sgl_session *session;
    uint8_t space;
    int64_t offset;
    bool written;
    sgl_dtype dtype;
} place;

static sgl_status read_place(void *user, int64_t offset, void *data, int64_t bytes)
{
    place *p = user;
    return p->session->ops->read(p->session->device, sglsession_states(p->session, p->space), p->offset + offset, data,
                                 bytes);
}

static sgl_status write_place(void *user, int64_t offset, const void *data, int64_t bytes)
{
    place *p = user;
    p->written = true;
    return p->session->ops->write(p->session->device, sglsession_states(p->session, p->space), p->offset + offset, data,
                                  bytes);
}

/* Residuals of another number of ranks: f32 or f64, as the pass compress makes them. */
static sgl_status add_place(void *user, int64_t offset, const void *data, int64_t bytes)
{
    place *p = user;
    double have[512], more[512];
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof have) {
        const int64_t now = bytes - at < (int64_t)sizeof have ? bytes - at : (int64_t)sizeof have;
        SGLCORE_TRY(read_place(p, offset + at, have, now));
        memcpy(more, (const char *)data + at, (size_t)now);
        for (int64_t i = 0; i < now / 4 && p->dtype == SGL_F32; i++)
            ((float *)(void *)have)[i] += ((const float *)(const void *)more)[i];
        for (int64_t i = 0; i < now / 8 && p->dtype == SGL_F64; i++) have[i] += more[i];
        SGLCORE_TRY(write_place(p, offset + at, have, now));
    }
    return SGL_OK;
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
        SGLCORE_TRY(
            sglcore_vec_push(env, &s->places, (place){ session, state.space, state.offset, false, state.type.dtype }));
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

/* What this rank writes of a checkpoint: the parts that no rank before it has; of what is whole everywhere rank 0 all. */
static bool is_own(const sglsession_state *state, int rank)
{
    if (!state->split || sglsession_whole_bytes(state) == 0) return rank == 0;
    return sglsession_has_first(state->split, rank) && state->bytes > 0;
}

static sgl_status write_files(sgl_session *session, const char *dir, int64_t step, sglcore_text *sheets)
{
    sglcore_env *env = &session->vm->env;
    const int rank = sgl_session_rank(session);
    saved s = { 0 };
    SGLCORE_VEC(sglstore_source) sources = { 0 };
    sgl_status status = sglsession_ready_states(session);
    if (status == SGL_OK) status = gather(session, false, &s);
    for (int64_t i = 0; i < s.states.count && status == SGL_OK; i++) {
        const sglsession_state *state = &s.states.data[i];
        if (!is_own(state, rank)) continue;
        const sglstore_source source = { .name = state->name,
                                         .type = state->type,
                                         .role = (uint8_t)state->role,
                                         .user = &s.places.data[i],
                                         .read = read_place,
                                         .box = state->split && state->bytes > 0 ? &state->box : NULL };
        status = sglcore_vec_push(env, &sources, source);
    }
    if (status == SGL_OK) status = sglstore_save_files(env, dir, step, rank, sources.data, sources.count, sheets);
    sglcore_vec_free(env, &sources);
    scatter(session, &s);
    return status;
}

static sgl_status check_save(const sgl_session *session)
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
    if (session->splits.count > 0 && !session->world.comm)
        return sglcore_fail(env, SGL_WRONG_STATE,
                            "sgl_checkpoint_save: the plan splits states over ranks, and this process is alone: it "
                            "has one part of each");
    return SGL_OK;
}

/* What the ranks of one checkpoint do together. */
typedef struct saving {
    sgl_session *session;
    const char *dir, *meta;
    int64_t step;
    int keep;
    bool is_first, in_parts;
    sglcore_text own, all; /* sheets of the manifest */
} saving;

/* Gathers the texts of all ranks; what fails here fails on this rank alone. */
static sgl_status gather_sheets(saving *s)
{
    const sglsession_world *w = &s->session->world;
    sglcore_env *env = &s->session->vm->env;
    const int64_t own = s->own.count;
    int64_t *bytes = sglcore_alloc(env, (size_t)w->ranks * sizeof *bytes);
    if (!bytes) return SGL_OUT_OF_MEMORY;
    sgl_status status = sglexec_net_gather(w->net, &own, sizeof own, bytes, "gathering what was saved");
    for (int r = 0; r < w->ranks && status == SGL_OK; r++) {
        if (bytes[r] == 0) continue;
        const int64_t at = s->all.count;
        status = sglcore_vec_reserve(env, &s->all, at + bytes[r] + 1);
        if (status != SGL_OK) break;
        if (r == w->rank) memcpy(s->all.data + at, s->own.data, (size_t)own);
        status = sglexec_net_broadcast(w->net, r, s->all.data + at, bytes[r], "gathering what was saved");
        s->all.count = at + bytes[r];
    }
    sglcore_free(env, bytes, (size_t)w->ranks * sizeof *bytes);
    return status == SGL_OK ? SGL_OK : sglsession_lose(s->session, status);
}

static sgl_status begin_saving(const saving *s)
{
    sglcore_env *env = &s->session->vm->env;
    SGLCORE_TRY(check_save(s->session));
    if (!s->is_first) return SGL_OK;
    SGLCORE_TRY(sgl_checkpoint_lock(s->session, s->dir));
    return sglstore_save_begin(env, s->dir, s->step, s->meta);
}

/* What each rank has written stands in its own text; the first ends it. */
static sgl_status end_saving(const saving *s)
{
    const sglcore_text *sheets = s->in_parts ? &s->all : &s->own;
    if (!s->is_first) return SGL_OK;
    return sglstore_save_end(&s->session->vm->env, s->dir, s->step, s->meta, sheets, s->in_parts, s->keep);
}

/* Each rank its files. All go from one stage to the next together, for none knows otherwise what became of the others. */
static sgl_status write_in_parts(saving *s, sglsession_note *note)
{
    sgl_session *session = s->session;
    sglsession_begin_busy(session, "saving a checkpoint");
    sgl_status status = begin_saving(s);
    sglsession_end_busy(session);
    note->unsaved = status == SGL_OK; /* another may have failed before it came here: then nothing is saved yet */
    SGLCORE_TRY(sglsession_agree(session, status, note));
    note->unsaved = 0;
    sglsession_begin_busy(session, "saving a checkpoint");
    status = write_files(session, s->dir, s->step, &s->own);
    sglsession_end_busy(session);
    SGLCORE_TRY(sglsession_agree(session, status, note));
    return gather_sheets(s);
}

static sgl_status write_whole(saving *s)
{
    SGLCORE_TRY(begin_saving(s));
    return s->is_first ? write_files(s->session, s->dir, s->step, &s->own) : SGL_OK;
}

static sgl_status save_together(saving *s, sglsession_note *note)
{
    note->unsaved = 0;
    if (s->in_parts) SGLCORE_TRY(write_in_parts(s, note));
    sglsession_begin_busy(s->session, "saving a checkpoint");
    sgl_status status = s->in_parts ? SGL_OK : write_whole(s);
    if (status == SGL_OK) status = end_saving(s);
    sglsession_end_busy(s->session);
    return sglsession_agree(s->session, status, note);
}

sgl_status sglsession_save(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep,
                           sglsession_note *note)
{
    sglcore_env *env = &session->vm->env;
    SGLCORE_TRY(sgl_world_check(session, 0)); /* of a world that is lost nothing is saved */
    saving s = { .session = session,
                 .dir = dir,
                 .meta = meta,
                 .step = step,
                 .keep = keep,
                 .is_first = sgl_session_rank(session) == 0,
                 .in_parts = session->splits.count > 0 };
    const bool held = session->locked && strcmp(session->locked, dir) == 0;
    sgl_status status = save_together(&s, note);
    if (status != SGL_OK && session->locked && strcmp(session->locked, dir) == 0) sglstore_save_abandon(env, dir, step);
    if (!held && session->locked && strcmp(session->locked, dir) == 0) sglsession_unlock(session);
    sglcore_text_free(env, &s.own);
    sglcore_text_free(env, &s.all);
    return status;
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
        if (!state->made || state->bytes == 0 || s->places.data[i].written) continue;
        SGLCORE_TRY(sglsession_begin_state(session, state));
        sglcore_log(&session->vm->env, SGL_LOG_INFO, "%s: %s is not in it and begins as %g", path, state->name,
                    state->initial);
    }
    return SGL_OK;
}

typedef enum source { CHECKPOINT, PARAMETERS_OF_CHECKPOINT, TENSORS } source;

/* One load, in two stages: what can be refused, then what is changed. */
typedef struct load {
    sgl_session *session;
    const char *path;
    source from;
    saved states;
    SGLCORE_VEC(sglstore_target) targets;
    sglstore_loading *loading;
} load;

static sgl_status make_targets(load *l)
{
    SGLCORE_TRY(sglsession_ready_states(l->session));
    SGLCORE_TRY(gather(l->session, l->from != CHECKPOINT, &l->states));
    for (int64_t i = 0; i < l->states.states.count; i++) {
        const sglsession_state *state = &l->states.states.data[i];
        const sglstore_target target = { .name = state->name,
                                         .type = state->type,
                                         .role = (uint8_t)state->role,
                                         .user = &l->states.places.data[i],
                                         .write = write_place,
                                         .box = state->split ? &state->box : NULL,
                                         .add = sglplan_residual_of(state->name) ? add_place : NULL };
        SGLCORE_TRY(sglcore_vec_push(&l->session->vm->env, &l->targets, target));
    }
    return SGL_OK;
}

/* The ranks share the work of checking a checkpoint. */
static sgl_status check_load(load *l)
{
    SGLCORE_TRY(make_targets(l));
    if (l->from == TENSORS) return SGL_OK;
    SGLCORE_TRY(sglstore_load_begin(&l->session->vm->env, l->path, l->targets.data, l->targets.count,
                                    l->from != CHECKPOINT, &l->loading));
    return sglstore_load_check(l->loading, sgl_session_rank(l->session), sgl_session_ranks(l->session));
}

/* What is added up begins with nothing. */
static sgl_status clear_residuals(load *l)
{
    for (int64_t i = 0; i < l->states.states.count; i++) {
        const sglsession_state *state = &l->states.states.data[i];
        if (sglplan_residual_of(state->name)) SGLCORE_TRY(sglsession_begin_state(l->session, state));
    }
    return SGL_OK;
}

static sgl_status take(load *l)
{
    SGLCORE_TRY(clear_residuals(l));
    SGLCORE_TRY(l->from == TENSORS
                    ? sglstore_tensors_load(&l->session->vm->env, l->path, l->targets.data, l->targets.count)
                    : sglstore_load_read(l->loading));
    SGLCORE_TRY(begin_unwritten(l->session, &l->states, l->path));
    if (l->from == CHECKPOINT) l->session->torn = false;
    return SGL_OK;
}

/* Every rank reads for itself what it has. */
static sgl_status load_from(sgl_session *session, const char *path, source from)
{
    sglsession_note note = { 0 };
    load l = { .session = session, .path = path, .from = from };
    sgl_status (*const stages[])(load *) = { check_load, take };
    sgl_status status = SGL_OK;
    for (int i = 0; i < 2 && status == SGL_OK; i++) {
        sglsession_begin_busy(session, "loading");
        status = stages[i](&l);
        sglsession_end_busy(session);
        status = sglsession_agree(session, status, &note);
    }
    sglstore_load_end(l.loading);
    sglcore_vec_free(&session->vm->env, &l.targets);
    scatter(session, &l.states);
    return status;
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

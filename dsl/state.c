/* state.c -- a job's Lua state: its allocator with a bound, its budgets, and the one way into Lua.
 *
 * Comes in: a VM. Goes out: a state with the sandbox in it, and sgldsl_enter. Lua's memory is the host's (sgl_realloc) and
 * is counted; a hook counts instructions and looks at the CPU clock.
 * Odd invariant: a hook that raises leaves hooks switched off until a pcall catches the error. Nothing may run Lua code in
 * between: that is why scripts get no message handlers (coroutine.c) and no finalizers (sandbox.c). */
#include <string.h>
#include <time.h>

#include "dsl/dsl.h"

enum { GC_PAUSE = 400 }; /* percent: the collector waits until memory is four times what the last round left */

const sgldsl_limits sgldsl_default_limits = {
    .instructions = 1000000000,
    .cpu_ms = 60000,
    .memory_bytes = (int64_t)512 << 20,
    .graph_units = 8000000,
};

const char sgldsl_key_tensors, sgldsl_key_graphs, sgldsl_key_signatures, sgldsl_key_settings, sgldsl_key_fields,
    sgldsl_key_modules, sgldsl_key_texts, sgldsl_key_stdlib, sgldsl_key_script, sgldsl_key_job, sgldsl_key_traced,
    sgldsl_key_meta, sgldsl_key_shown, sgldsl_key_console;

/* ---- memory ------------------------------------------------------------------------------------------------- */

static void *allocate(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    sgl_job *job = user;
    if (block == NULL) old_bytes = 0; /* Lua tells the kind of the new object there */
    int64_t more = (int64_t)new_bytes - (int64_t)old_bytes;
    if (more > 0 && job->bytes + more > job->limits.memory_bytes) {
        job->refusal = SGLDSL_REFUSED_BY_BOUND;
        return NULL;
    }
    void *moved = sgl_realloc(job->vm, block, old_bytes, new_bytes);
    if (moved != NULL || new_bytes == 0) {
        job->bytes += more;
    } else {
        job->refusal = SGLDSL_REFUSED_BY_HOST;
    }
    return moved;
}

void *sgldsl_scratch_get(lua_State *L, int index, size_t bytes)
{
    sgl_job *job = sgldsl_job(L);
    sgldsl_scratch *scratch = &job->scratch[index];
    if (bytes > scratch->bytes) {
        size_t room = scratch->bytes * 2 > bytes ? scratch->bytes * 2 : bytes < 256 ? 256 : bytes;
        void *data = sgl_realloc(job->vm, scratch->data, scratch->bytes, room);
        if (data == NULL) sgldsl_raise(L, SGL_OUT_OF_MEMORY);
        scratch->data = data;
        scratch->bytes = room;
    }
    return scratch->data;
}

/* ---- budgets ------------------------------------------------------------------------------------------------ */

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static const char *used_up(sgl_job *job)
{
    if (job->interrupted || sgl_interrupted(job->vm)) {
        job->interrupted_now = true;
        return "interrupted";
    }
    if (job->instructions_left <= 0) return "the script does not end: it ran as many instructions as it may";
    if (cpu_ns() > job->cpu_end_ns) return "the script does not end: it ran as long as it may";
    return NULL;
}

static void look(lua_State *L, lua_Debug *activation)
{
    (void)activation;
    sgl_job *job = sgldsl_job(L);
    int stride = lua_gethookcount(L);
    job->instructions_left -= stride;
    const char *what = used_up(job);
    if (what == NULL) {
        if (stride != SGLDSL_STRIDE) lua_sethook(L, look, LUA_MASKCOUNT, SGLDSL_STRIDE);
        return;
    }
    /* From here on each instruction of this thread raises again, so that no loop around a pcall goes on. */
    lua_sethook(L, look, LUA_MASKCOUNT, 1);
    sgldsl_expire(L, 0, what);
}

void sgldsl_charge(lua_State *L, int64_t instructions)
{
    sgl_job *job = sgldsl_job(L);
    job->instructions_left -= instructions;
    if (job->instructions_left > 0) return;
    sgldsl_expire(L, 1, used_up(job));
}

static void start_budgets(sgl_job *job)
{
    job->instructions_left = job->limits.instructions;
    job->cpu_end_ns = cpu_ns() + job->limits.cpu_ms * 1000000;
    job->expired = false;
    job->interrupted_now = false;
    job->interrupted = 0;
    job->wrong_setting = false;
    job->depth = 0;
    job->slice = ++job->slices;
    job->slice_depth = 0;
    lua_sethook(job->L, look, LUA_MASKCOUNT, SGLDSL_STRIDE);
}

/* ---- the way in --------------------------------------------------------------------------------------------- */

sgl_status sgldsl_enter(sgl_job *job, lua_CFunction body, void *argument)
{
    if (job->entered) {
        return sgl_fail(job->vm, SGL_WRONG_STATE, "the script of this job is running: a callback may not call into it");
    }
    lua_State *L = job->L;
    job->entered = true;
    start_budgets(job);
    lua_settop(L, 0);
    /* None of these pushes asks for memory. */
    lua_pushcfunction(L, sgldsl_message);
    lua_pushcfunction(L, body);
    lua_pushlightuserdata(L, argument);
    int result = lua_pcall(L, 1, 0, 1);
    sgldsl_leave_frames(L, 0); /* of a failure */
    job->entered = false;
    sgl_status status = result == LUA_OK ? SGL_OK : sgldsl_status(job, result);
    if (status == SGL_INTERRUPTED) sgl_resume(job->vm); /* told, and so done */
    lua_settop(L, 0);
    return status;
}

void *sgldsl_argument(lua_State *L) { return lua_touserdata(L, 1); }

/* ---- birth and death ---------------------------------------------------------------------------------------- */

sgl_status sgldsl_new(sgl_vm *vm, const sgldsl_limits *limits, sgl_job **job)
{
    *job = NULL;
    sgl_job *made = sgl_realloc(vm, NULL, 0, sizeof *made);
    if (made == NULL) return sgl_fail(vm, SGL_OUT_OF_MEMORY, "no memory for a job");
    memset(made, 0, sizeof *made);
    made->vm = vm;
    made->limits = *limits;
    made->frames[0].scope = "";
    made->L = lua_newstate(allocate, made);
    if (made->L == NULL) {
        sgl_realloc(vm, made, sizeof *made, 0);
        return sgl_fail(vm, SGL_OUT_OF_MEMORY, "no memory for a Lua state");
    }
    lua_gc(made->L, LUA_GCINC, GC_PAUSE, 0, 0);     /* a trace makes much and drops little */
    *(sgl_job **)lua_getextraspace(made->L) = made; /* threads made later inherit it, and the hook */
    sgl_status status = sgldsl_enter(made, sgldsl_open_sandbox, NULL);
    if (status != SGL_OK) {
        sgldsl_free(made);
        return status;
    }
    *job = made;
    return SGL_OK;
}

void sgldsl_free(sgl_job *job)
{
    sgl_vm *vm = job->vm;
    sgldsl_free_families(job);
    lua_close(job->L);                                        /* frees the graphs */
    if (job->session != NULL) sgl_session_free(job->session); /* and its programs */
    for (int i = 0; i < SGLDSL_SCRATCHES; i++) {
        if (job->scratch[i].data != NULL) sgl_realloc(vm, job->scratch[i].data, job->scratch[i].bytes, 0);
    }
    sgl_realloc(vm, job, sizeof *job, 0);
}

/* family.c -- the programs of one graph of a job, one for each choice of buckets: sgl_family_* of sgl.h.
 *
 * Comes in: a job, a session, a plan, "train" or "eval". Goes out: for a batch, or for a choice by its number, the program that
 * takes it: traced and frozen when it is first asked for, and kept. What the choices are, and which of them a batch needs, is
 * for stdlib/job to say. Odd invariant: programs belong to the session, so a family frees its own list alone. */
#include <string.h>

#include "dsl/job.h"

enum { MOST_PROGRAMS = 256 };

typedef struct family_member {
    char *text; /* "seq=512" */
    size_t bytes;
    sgl_program *program; /* NULL: not frozen yet */
} family_member;

struct sgl_family {
    sgl_family *next, **at; /* in the list of the job */
    sgl_job *job;
    sgl_session *session;
    const sgl_plan *plan;
    char which[8];
    family_member members[MOST_PROGRAMS];
    int count;
};

/* ---- made and freed ------------------------------------------------------------------------------------------------- */

sgl_status sgl_family_new(sgl_job *job, sgl_session *session, const sgl_plan *plan, const char *which,
                          sgl_family **family)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (session == NULL || which == NULL || family == NULL)
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_family_new: session, which or family is NULL");
    *family = NULL;
    if (strcmp(which, "train") != 0 && strcmp(which, "eval") != 0)
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_family_new: which is '%s', it must be train or eval",
                        which);
    sgl_family *made = sgl_realloc(job->vm, NULL, 0, sizeof *made);
    if (made == NULL) return sgl_fail(job->vm, SGL_OUT_OF_MEMORY, "sgl_family_new: no memory for it");
    memset(made, 0, sizeof *made);
    made->job = job;
    made->session = session;
    made->plan = plan;
    strcpy(made->which, which);
    made->next = job->families;
    made->at = &job->families;
    if (made->next != NULL) made->next->at = &made->next;
    job->families = made;
    *family = made;
    return SGL_OK;
}

void sgl_family_free(sgl_family *family)
{
    if (family == NULL) return;
    *family->at = family->next;
    if (family->next != NULL) family->next->at = family->at;
    sgl_vm *vm = family->job->vm;
    for (int i = 0; i < family->count; i++) sgl_realloc(vm, family->members[i].text, family->members[i].bytes, 0);
    sgl_realloc(vm, family, sizeof *family, 0);
}

void sgldsl_free_families(sgl_job *job)
{
    while (job->families != NULL) sgl_family_free(job->families);
}

/* ---- members ---------------------------------------------------------------------------------------------------------- */

static sgl_status find_member(sgl_family *family, const char *text, family_member **member)
{
    for (int i = 0; i < family->count; i++) {
        *member = &family->members[i];
        if (strcmp((*member)->text, text) == 0) return SGL_OK;
    }
    sgl_vm *vm = family->job->vm;
    if (family->count == MOST_PROGRAMS)
        return sgl_fail(vm, SGL_LIMIT, "dims: the batches need more than %d choices of buckets; give fewer buckets",
                        (int)MOST_PROGRAMS);
    size_t bytes = strlen(text) + 1;
    char *kept = sgl_realloc(vm, NULL, 0, bytes);
    if (kept == NULL) return sgl_fail(vm, SGL_OUT_OF_MEMORY, "dims: no memory for the choice %s", text);
    memcpy(kept, text, bytes);
    *member = &family->members[family->count++];
    **member = (family_member){ .text = kept, .bytes = bytes };
    return SGL_OK;
}

/* ---- what the job says --------------------------------------------------------------------------------------------------- */

typedef struct choice_request {
    sgl_family *family;
    int64_t cursor; /* of the batch, or the number of the choice */
    bool is_eval;
    bool found;
    sgl_status status; /* of what happened outside of Lua */
    family_member *member;
    int64_t tokens;
    sgl_graph *graph;
} choice_request;

/* What is on the stack: text of the choice or nil, tokens or nil. */
static int take_choice(lua_State *L, choice_request *request)
{
    request->found = lua_type(L, -2) == LUA_TSTRING;
    if (!request->found) return 0;
    request->tokens = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : -1;
    request->status = find_member(request->family, lua_tostring(L, -2), &request->member);
    return 0;
}

static int choose_by_batch(lua_State *L)
{
    choice_request *request = sgldsl_argument(L);
    sgldsl_push_job_call(L, "choose");
    lua_pushinteger(L, request->cursor);
    lua_pushboolean(L, request->is_eval);
    lua_call(L, 3, 2);
    return take_choice(L, request);
}

static int choose_by_number(lua_State *L)
{
    choice_request *request = sgldsl_argument(L);
    sgldsl_push_job_call(L, "choice");
    lua_pushinteger(L, request->cursor);
    lua_call(L, 2, 2);
    return take_choice(L, request);
}

static int trace_choice(lua_State *L)
{
    choice_request *request = sgldsl_argument(L);
    sgldsl_push_job_call(L, "trace_choice");
    lua_pushstring(L, request->family->which);
    lua_pushstring(L, request->member->text);
    lua_call(L, 3, 1);
    if (lua_isnil(L, -1)) return 0;
    if (sgldsl_to_graph(L, -1) == NULL) sgldsl_error(L, "trace_choice gave no graph");
    request->graph = sgldsl_to_graph(L, -1)->graph;
    return 0;
}

/* ---- the programs ----------------------------------------------------------------------------------------------------------- */

static sgl_status ready_member(choice_request *request, sgl_bucket *bucket)
{
    sgl_family *family = request->family;
    family_member *member = request->member;
    *bucket = (sgl_bucket){ .text = member->text, .tokens = request->tokens };
    if (member->program == NULL) {
        sgl_status status = sgldsl_enter(family->job, trace_choice, request);
        if (status == SGL_OK && request->graph == NULL)
            status = sgl_fail(family->job->vm, SGL_NOT_FOUND, "this job declares no %s graph", family->which);
        if (status == SGL_OK) status = sgl_freeze(family->session, request->graph, family->plan, &member->program);
        if (status != SGL_OK) return status;
        bucket->fresh = 1;
    }
    bucket->program = member->program;
    return SGL_OK;
}

static sgl_status check(sgl_family *family, sgl_bucket *bucket, const char *call)
{
    if (family == NULL) return SGL_INVALID_ARGUMENT;
    if (bucket == NULL) return sgl_fail(family->job->vm, SGL_INVALID_ARGUMENT, "%s: no place for the bucket", call);
    *bucket = (sgl_bucket){ .tokens = -1 };
    return SGL_OK;
}

sgl_status sgl_family_pick(sgl_family *family, int64_t cursor, int is_eval, sgl_bucket *bucket)
{
    choice_request request = { .family = family, .cursor = cursor, .is_eval = is_eval != 0 };
    sgl_status status = check(family, bucket, "sgl_family_pick");
    if (status == SGL_OK) status = sgldsl_enter(family->job, choose_by_batch, &request);
    if (status == SGL_OK) status = request.status;
    if (status == SGL_OK && !request.found)
        status = sgl_fail(family->job->vm, SGL_NOT_FOUND, "the job's data gives no batch %lld", (long long)cursor);
    return status == SGL_OK ? ready_member(&request, bucket) : status;
}

sgl_status sgl_family_at(sgl_family *family, int index, sgl_bucket *bucket)
{
    choice_request request = { .family = family, .cursor = index };
    sgl_status status = check(family, bucket, "sgl_family_at");
    if (status == SGL_OK) status = sgldsl_enter(family->job, choose_by_number, &request);
    if (status == SGL_OK) status = request.status;
    return status == SGL_OK && request.found ? ready_member(&request, bucket) : status;
}

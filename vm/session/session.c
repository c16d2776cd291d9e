/* session.c -- sessions: one device, the state block, and the programs bound to both.
 *
 * Comes in: graphs and plans. Goes out: programs that feed, step and fetch. The first program decides where a state
 * lives; later ones find it there (the layout graph is handed to the passes), and new states come behind, for which the
 * state block grows by moving. A freeze plans; device memory is taken when a program is first fed or stepped. Odd
 * invariant: a freeze that fails leaves the session as it was. */
#include <string.h>

#include "core/span.h"
#include "ir/text.h"
#include "session/session.h"
#include "wire.h"

/* ---- the session ---------------------------------------------------------------------------------------------- */

/* looks: it plans as for the device, which is not opened. */
static sgl_status make_session(sgl_vm *vm, const char *device, bool looks, sgl_session **session)
{
    const sglexec_device_ops *ops = NULL, *blank = NULL;
    SGLCORE_TRY(sglwire_device_find(&vm->env, device ? device : sglwire_device(0), &ops));
    if (looks) SGLCORE_TRY(sglwire_device_find(&vm->env, "null", &blank));
    sgl_session *made = sglcore_alloc_zero(&vm->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->vm = vm;
    made->ops = ops;
    if (looks) {
        made->looking = *blank;
        made->looking.name = ops->name;
        made->looking.native = ops->native;
        made->looking.workspace = ops->workspace;
        made->looking.computing = ops->computing;
        made->looking.source = ops->source;
        made->ops = ops = &made->looking;
    }
    made->world = (sglsession_world){ .ranks = 1, .told_by = -1 };
    const int64_t begun = sglcore_now_ns();
    sgl_status status = ops->open(&vm->env, vm->threads, &made->device);
    if (status != SGL_OK) {
        sglcore_free(&vm->env, made, sizeof *made);
        return status;
    }
    sglcore_span(&vm->env, begun, "opening the device %s", ops->name);
    sglsession_link_in(&vm->sessions, &made->link);
    *session = made;
    return SGL_OK;
}

sgl_status sgl_session_new(sgl_vm *vm, const char *device, sgl_session **session)
{
    SGLSESSION_NEEDS(vm && session, vm, "vm or session is NULL");
    *session = NULL;
    return make_session(vm, device, false, session);
}

sgl_status sgl_session_look(sgl_vm *vm, const char *device, sgl_session **session)
{
    SGLSESSION_NEEDS(vm && session, vm, "vm or session is NULL");
    *session = NULL;
    return make_session(vm, device, true, session);
}

/* Memory of the host that the device reaches; on a device whose memory is the host's any block is. */
static sgl_status alloc_host(sgl_session *session, int64_t bytes, void **block)
{
    const sglexec_device_ops *ops = session->ops;
    return ops->alloc_host ? ops->alloc_host(session->device, bytes, block) : ops->alloc(session->device, bytes, block);
}

static void free_host(sgl_session *session, void *block, int64_t bytes)
{
    const sglexec_device_ops *ops = session->ops;
    if (block) (ops->free_host ? ops->free_host : ops->free)(session->device, block, bytes);
}

void sgl_session_free(sgl_session *session)
{
    if (!session) return;
    sglcore_env *env = &session->vm->env;
    while (session->programs) sgl_program_free((sgl_program *)session->programs);
    sglsession_leave(session);
    if (session->state) session->ops->free(session->device, session->state, session->state_bytes);
    if (session->arena) session->ops->free(session->device, session->arena, session->arena_bytes);
    free_host(session, session->away, session->away_bytes);
    free_host(session, session->host, session->host_bytes);
    session->ops->close(session->device);
    sglsession_unlock(session);
    sglir_graph_free(session->layout);
    sglcore_vec_free(env, &session->splits);
    sglcore_map_free(env, &session->warned);
    sglsession_link_out(&session->link);
    sglcore_free(env, session, sizeof *session);
}

/* ---- freeze --------------------------------------------------------------------------------------------------- */

static bool is_state(const sglir_graph *g, const sglir_node *node)
{
    return node->op == SGLIR_OP_INPUT && sglir_attr_int(g, node, "role") != SGL_FEED;
}

/* A state that the session has and the graph names must be of one type and one role in both, and in the same parts. */
static sgl_status check_state(const sgl_session *session, const sglir_graph *g, const sglir_node *node,
                              const sglplan *plan)
{
    const char *name = sglir_attr_string(g, node, "name"), *mine = sglcore_string(g->strings, g->name);
    int64_t role = sglir_attr_int(g, node, "role");
    sglir_id same = sglir_input_find(session->layout, name);
    sglsession_state state;
    if (!sglsession_state_find(session, name, &state)) {
        if (same == SGLIR_NONE) return SGL_OK;
        return sglcore_fail(
            g->env, SGL_TYPE,
            "%s: program \"%s\" of this session has a section of this name; name the %s of program \"%s\" "
            "otherwise",
            name, sglsession_brought_by(session->layout, same), sglir_role_names[role], mine);
    }
    if (role != (int64_t)state.role)
        return sglcore_fail(g->env, SGL_TYPE,
                            "%s: program \"%s\" wants it as a %s, program \"%s\" of this session has it as a %s", name,
                            mine, sglir_role_names[role], state.program, sglir_role_names[state.role]);
    sglir_type has = sglir_type_make(state.type.dtype, state.type.rank, state.type.dims);
    if (sglir_type_equal(&has, sglir_type_of(g, node->out_first)))
        return sglsession_check_split(session, g, node, plan, state.program);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    return sglcore_fail(g->env, SGL_TYPE, "%s: program \"%s\" wants %s, program \"%s\" of this session has it as %s",
                        name, mine, sglir_type_text(sglir_type_of(g, node->out_first), a, sizeof a), state.program,
                        sglir_type_text(&has, b, sizeof b));
}

sgl_status sglsession_same_vm(sgl_vm *vm, const sgl_vm *other, const char *call, const char *what)
{
    if (vm == other) return SGL_OK;
    return sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "%s: the %s is of another VM; make it on this one", call, what);
}

sgl_status sglsession_check(const sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, const char *call)
{
    SGLCORE_TRY(sglsession_same_vm(session->vm, graph->vm, call, "graph"));
    if (plan) SGLCORE_TRY(sglsession_same_vm(session->vm, plan->vm, call, "plan"));
    const sglir_graph *g = graph->ir;
    const sglir_region *top = &g->regions.data[0];
    const sglplan wanted = sglsession_plan(session, plan);
    for (int64_t n = 0; session->layout && n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        if (is_state(g, node)) SGLCORE_TRY(check_state(session, g, node, &wanted));
    }
    return SGL_OK;
}

/* program NULL: `from` is a layout itself. */
static sgl_status layout_take_inputs(sglir_graph *layout, const sglir_graph *from, const char *program)
{
    const sglir_region *top = &from->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(from, top->nodes.data[n]);
        if (!is_state(from, node)) continue;
        const char *name = sglir_attr_string(from, node, "name");
        if (sglir_input_find(layout, name) != SGLIR_NONE) continue;
        const sglir_value *value = sglir_value_at(from, node->out_first);
        sglir_set_origin(layout, "", 0, program ? program : sglsession_brought_by(from, node->out_first), "");
        sglir_named attrs[SGLIR_MOST_ATTRS];
        int count = sglir_attrs_named(from, node, attrs);
        sglir_id made = sglir_emit(layout, SGLIR_OP_INPUT, NULL, 0, attrs, count, NULL);
        SGLCORE_TRY(sglir_status(layout));
        layout->values.data[made].space = value->space;
        layout->values.data[made].offset = value->offset;
    }
    return SGL_OK;
}

static sgl_status layout_take_members(sglir_graph *layout, const sglir_graph *from)
{
    for (int64_t m = 0; m < from->members.count; m++) {
        sglir_member member = from->members.data[m];
        const char *section = sglcore_string(from->strings, member.section);
        const char *name = sglcore_string(from->strings, member.name);
        SGLCORE_TRY(sglcore_intern(layout->strings, section, strlen(section), &member.section));
        SGLCORE_TRY(sglcore_intern(layout->strings, name, strlen(name), &member.name));
        bool known = false;
        for (int64_t k = 0; k < layout->members.count && !known; k++)
            known = layout->members.data[k].name == member.name;
        if (!known) SGLCORE_TRY(sglcore_vec_push(layout->env, &layout->members, member));
    }
    return SGL_OK;
}

/* The layout after this program: what was there, and what the program adds. */
static sgl_status merge_layout(sglcore_env *env, const sglir_graph *old, const sglir_graph *placed,
                               sglir_graph **merged)
{
    SGLCORE_TRY(sglir_graph_new(env, "layout", merged));
    sgl_status status = SGL_OK;
    if (old) {
        status = layout_take_inputs(*merged, old, NULL);
        if (status == SGL_OK) status = layout_take_members(*merged, old);
    }
    if (status == SGL_OK) status = layout_take_inputs(*merged, placed, sglcore_string(placed->strings, placed->name));
    if (status == SGL_OK) status = layout_take_members(*merged, placed);
    if (status != SGL_OK) {
        sglir_graph_free(*merged);
        *merged = NULL;
    }
    return status;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void free_space(sgl_program *program, sglir_space space, void *block)
{
    if (block) program->session->ops->free(program->session->device, block, program->program->space_bytes[space]);
}

void sgl_program_free(sgl_program *program)
{
    if (!program) return;
    sgl_session *session = program->session;
    sglcore_env *env = &session->vm->env;
    if (program->prepared) session->ops->release(session->device, program->prepared);
    free_space(program, SGLIR_SPACE_IO, program->io);
    free_space(program, SGLIR_SPACE_CONST, program->constants);
    sglcore_free(env, program->parameters, (size_t)program->parameter_bytes);
    sglexec_profile_free(program->profile);
    sglexec_trace_free(program->trace);
    sglexec_exchanges_free(program->exchanges);
    sglexec_program_free(program->program);
    sglir_graph_free(program->placed);
    if (program->link.at) sglsession_link_out(&program->link);
    sglcore_free(env, program, sizeof *program);
}

sglplan sglsession_plan(const sgl_session *session, const sgl_plan *plan)
{
    sglplan made;
    if (plan)
        made = plan->plan;
    else
        sglplan_init(&made);
    for (int op = 0; op < SGLIR_OP_COUNT; op++) made.native[op] = session->ops->native((sglir_op)op);
    return made;
}

static bool learns(const sglir_graph *placed)
{
    for (int64_t o = 0; o < placed->outputs.count; o++) {
        const sglir_output *output = &placed->outputs.data[o];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id input = sglir_input_find(placed, sglcore_string(placed->strings, output->name));
        if (sglir_attr_int(placed, sglir_maker(placed, input), "role") != SGL_CACHE) return true;
    }
    return false;
}

static sgl_status build_program(sgl_program *program, const sgl_graph *graph, const sgl_plan *plan)
{
    sgl_session *session = program->session;
    sglcore_env *env = &session->vm->env;
    sglplan own = program->plan = sglsession_plan(session, plan);
    SGLCORE_TRY(sglsession_place(session, &own, &program->rank, &program->ranks));
    if (program->ranks > 1) program->job = sglir_job_hash(graph->ir);
    const sglpass_context context = { .env = env,
                                      .plan = &own,
                                      .rank = program->rank,
                                      .layout = session->layout,
                                      .warned = &session->warned,
                                      .workspace = session->ops->workspace,
                                      .computing = session->ops->computing,
                                      .interrupted = &session->vm->interrupted };
    const char *name = sglcore_string(graph->ir->strings, graph->ir->name);
    int64_t begun = sglcore_now_ns();
    sgl_status status = sglpass_run(&context, graph->ir, NULL, &program->placed);
    if (status == SGL_INTERRUPTED) sglsession_resume(session->vm);
    SGLCORE_TRY(status);
    program->learns = learns(program->placed);
    program->max_skips = own.max_skips;
    if (sglir_input_find(program->placed, SGLPLAN_SCALE) != SGLIR_NONE)
        SGLCORE_TRY(sglsession_keep_names(program, graph->ir));
    SGLCORE_TRY(sglexec_freeze(env, program->placed, &program->program));
    SGLCORE_TRY(sglsession_lay_feeds(program, graph->ir));
    sglcore_span(env, begun, "passes over the program \"%s\"", name);
    begun = sglcore_now_ns();
    SGLCORE_TRY(session->ops->prepare(session->device, program->program, &program->prepared));
    sglcore_span(env, begun, "preparing the program \"%s\" for the device", name);
    return SGL_OK;
}

/* The last step of a freeze: what can fail is done before anything of the session changes. */
static sgl_status bind_program(sgl_program *program, const sgl_graph *graph)
{
    sgl_session *session = program->session;
    const int64_t *bytes = program->program->space_bytes, splits = session->splits.count;
    sglir_graph *layout = NULL;
    sgl_status status = sglsession_keep_splits(session, graph->ir, program->placed, &program->plan);
    if (status == SGL_OK) status = merge_layout(&session->vm->env, session->layout, program->placed, &layout);
    if (status != SGL_OK) {
        session->splits.count = splits;
        return status;
    }
    sglir_graph_free(session->layout);
    session->layout = layout;
    session->state_planned = larger(session->state_planned, bytes[SGLIR_SPACE_STATE]);
    session->arena_planned = larger(session->arena_planned, bytes[SGLIR_SPACE_ARENA]);
    session->away_planned = larger(session->away_planned, bytes[SGLIR_SPACE_AWAY]);
    session->host_planned = larger(session->host_planned, bytes[SGLIR_SPACE_HOST]);
    sglsession_link_in(&session->programs, &program->link);
    return SGL_OK;
}

sgl_status sgl_freeze(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, sgl_program **program)
{
    SGLSESSION_NEEDS(session && graph && program,
                     session ? session->vm
                     : graph ? graph->vm
                             : NULL,
                     "session, graph or program is NULL");
    *program = NULL;
    SGLCORE_TRY(sglsession_check(session, graph, plan, "sgl_freeze"));
    sgl_program *made = sglcore_alloc_zero(&session->vm->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->session = session;
    sglsession_begin_busy(session, "freezing a program");
    sgl_status status = build_program(made, graph, plan);
    sglsession_end_busy(session);
    if (status == SGL_OK) status = bind_program(made, graph);
    if (status == SGL_INTERRUPTED) sglsession_resume(session->vm);
    if (status != SGL_OK) {
        sgl_program_free(made);
        return status;
    }
    *program = made;
    return SGL_OK;
}

/* ---- device memory ------------------------------------------------------------------------------------------------ */

/* A larger block of states takes over the content of the old one. */
static sgl_status grow(sgl_session *session, void **block, int64_t *bytes, int64_t planned, bool away)
{
    void *larger_one = NULL;
    SGLCORE_TRY(away ? alloc_host(session, planned, &larger_one)
                     : session->ops->alloc(session->device, planned, &larger_one));
    sgl_status status = *block ? session->ops->copy(session->device, larger_one, *block, *bytes) : SGL_OK;
    if (status == SGL_OK && *block) status = session->ops->finish(session->device);
    void *const old = status == SGL_OK ? *block : larger_one;
    const int64_t old_bytes = status == SGL_OK ? *bytes : planned;
    if (away)
        free_host(session, old, old_bytes);
    else if (old)
        session->ops->free(session->device, old, old_bytes);
    if (status != SGL_OK) return status;
    *block = larger_one;
    *bytes = planned;
    return SGL_OK;
}

sgl_status sglsession_ready_states(sgl_session *session)
{
    const int64_t before = session->state_bytes, away_before = session->away_bytes;
    if (before < session->state_planned) {
        SGLCORE_TRY(grow(session, &session->state, &session->state_bytes, session->state_planned, false));
        SGLCORE_TRY(sglsession_begin_states(session, SGLIR_SPACE_STATE, before));
    }
    if (away_before >= session->away_planned) return SGL_OK;
    SGLCORE_TRY(grow(session, &session->away, &session->away_bytes, session->away_planned, true));
    return sglsession_begin_states(session, SGLIR_SPACE_AWAY, away_before);
}

static sgl_status ready_host(sgl_session *session)
{
    if (session->host_bytes >= session->host_planned) return SGL_OK;
    free_host(session, session->host, session->host_bytes);
    session->host = NULL;
    session->host_bytes = 0;
    SGLCORE_TRY(alloc_host(session, session->host_planned, &session->host));
    session->host_bytes = session->host_planned;
    return SGL_OK;
}

static sgl_status ready_arena(sgl_session *session)
{
    if (session->arena_bytes >= session->arena_planned) return SGL_OK;
    if (session->arena) session->ops->free(session->device, session->arena, session->arena_bytes);
    session->arena = NULL;
    session->arena_bytes = 0;
    SGLCORE_TRY(session->ops->alloc(session->device, session->arena_planned, &session->arena));
    session->arena_bytes = session->arena_planned;
    return SGL_OK;
}

static sgl_status ready_space(sgl_program *program, sglir_space space, void **block)
{
    int64_t bytes = program->program->space_bytes[space];
    if (bytes == 0 || *block) return SGL_OK;
    return program->session->ops->alloc(program->session->device, bytes, block);
}

sgl_status sglsession_ready(sgl_program *program)
{
    if (sglsession_has_met(program)) return sglsession_ready_memory(program);
    sgl_status status = sglsession_ready_memory(program);
    return status == SGL_OK ? sglsession_meet(program) : sglsession_lose(program->session, status);
}

static double gib(int64_t bytes) { return (double)bytes / (1 << 30); }

/* Before anything is allocated: all that the program still lacks must find room. */
static sgl_status check_room(const sgl_program *program)
{
    const sgl_session *session = program->session;
    const int64_t *spaces = program->program->space_bytes;
    if (!session->ops->room) return SGL_OK;
    const int64_t states = session->state_planned > session->state_bytes ? session->state_planned : 0;
    const int64_t arena = larger(session->arena_planned - session->arena_bytes, 0);
    const int64_t own =
        (program->io ? 0 : spaces[SGLIR_SPACE_IO]) + (program->constants ? 0 : spaces[SGLIR_SPACE_CONST]);
    if (states + arena + own == 0) return SGL_OK;
    const int64_t room = session->ops->room(session->device);
    if (states + arena + own <= room) return SGL_OK;
    return sglcore_fail(
        &session->vm->env, SGL_OUT_OF_MEMORY,
        "%s: device %s has %.2f GiB free, and %.2f are needed: %.2f of states, %.2f of what a step works with, %.2f "
        "of feeds, results and constants; a bound on memory (--memory), memory of the host (plan.offload), micro-batches or a plan over more "
        "ranks make it less",
        sglcore_string(program->program->strings, program->program->name), session->ops->name, gib(room),
        gib(states + arena + own), gib(states), gib(arena), gib(own));
}

static sgl_status take_memory(sgl_program *program)
{
    sgl_session *session = program->session;
    const sglexec_program *p = program->program;
    const int64_t begun = sglcore_now_ns(), had = session->state_bytes + session->arena_bytes;
    SGLCORE_TRY(check_room(program));
    SGLCORE_TRY(sglsession_ready_states(session));
    SGLCORE_TRY(ready_arena(session));
    SGLCORE_TRY(ready_host(session));
    SGLCORE_TRY(ready_space(program, SGLIR_SPACE_IO, &program->io));
    if (session->state_bytes + session->arena_bytes > had) sglcore_span(&session->vm->env, begun, "taking memory");
    if (program->constants || !p->constants.count) return SGL_OK;
    SGLCORE_TRY(ready_space(program, SGLIR_SPACE_CONST, &program->constants));
    sgl_status status =
        session->ops->write(session->device, program->constants, 0, p->constants.data, p->constants.count);
    if (status == SGL_OK) return SGL_OK;
    free_space(program, SGLIR_SPACE_CONST, program->constants); /* a block that is there holds the constants */
    program->constants = NULL;
    return status;
}

/* Its kernels are compiled meanwhile. */
sgl_status sglsession_ready_memory(sgl_program *program)
{
    const sglexec_device_ops *ops = program->session->ops;
    SGLCORE_TRY(take_memory(program));
    if (program->settled || !ops->settle) return SGL_OK;
    SGLCORE_TRY(ops->settle(program->session->device, program->prepared));
    program->settled = true;
    return SGL_OK;
}

/* ---- step ------------------------------------------------------------------------------------------------------ */

void *sglsession_space(const sgl_program *program, uint8_t space)
{
    const sgl_session *session = program->session;
    void *const bases[] = { NULL,          session->arena, session->state, program->io, program->constants,
                            session->host, session->away };
    return bases[space];
}

void sglsession_resume(sgl_vm *vm)
{
    vm->interrupted = 0;
    atomic_store(&vm->stop_now, false);
}

static sgl_status step(sgl_program *program)
{
    sgl_session *session = program->session;
    if (atomic_load(&session->vm->stop_now)) {
        sglsession_resume(session->vm);
        return sglcore_fail(&session->vm->env, SGL_INTERRUPTED, "stopped before a step");
    }
    SGLCORE_TRY(sglsession_ready(program));
    void *spaces[SGLIR_SPACES];
    for (uint8_t space = 0; space < SGLIR_SPACES; space++) spaces[space] = sglsession_space(program, space);
    const sglexec_watch watch = { .stop = &session->vm->stop_now,
                                  .profile = program->profile,
                                  .trace = program->trace };
    const int64_t begun = sglcore_now_ns();
    sgl_status status = sglexec_replay(&session->vm->env, session->ops, session->device, program->prepared,
                                       program->program, spaces, program->exchanges, &watch);
    if (status == SGL_OK) {
        if (program->steps_done == 0)
            sglcore_span(&session->vm->env, begun, "the first step of the program \"%s\"",
                         sglcore_string(program->program->strings, program->program->name));
        program->steps_done++;
        return SGL_OK;
    }
    session->torn = session->torn || program->learns;
    if (status == SGL_INTERRUPTED) sglsession_resume(session->vm);
    return status;
}

/* The other ranks of a program are in the midst of the same step, and do not wait for what this one will not do. */
sgl_status sgl_step(sgl_program *program)
{
    if (!program) return SGL_INVALID_ARGUMENT;
    sgl_status status = step(program);
    return status == SGL_OK || program->ranks == 1 ? status : sglsession_lose(program->session, status);
}

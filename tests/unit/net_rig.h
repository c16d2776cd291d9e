/* net_rig.h -- a program of one rank, from text to replay, for tests of programs that exchange over the loop.
 *
 * In: a rank of a comm_case, a graph as text, of that rank by itself. Out: all that a replay needs. Odd invariant: a text with
 * waits is not scheduled, since it says itself where they are. */
#ifndef NET_RIG_H
#define NET_RIG_H

#include "comm_case.h"

#include "backend/backend.h"
#include "exec/device.h"
#include "exec/net.h"
#include "passes/pass.h"

/* One program of one rank, from text to replay. */
typedef struct rig {
    comm_rank *r;
    sglcore_env *env;
    sglexec_device_ops ops;
    sglexec_device *device;
    sglir_graph *placed;
    sglexec_program *program;
    void *prepared;
    void *spaces[SGLIR_SPACES];
    sglexec_net *net;
    sglexec_exchanges *exchanges;
    sglplan plan;
    const sglpass *list; /* of passes; NULL: what most texts need */
    int64_t bucket;      /* of the plan; 0: its default */
    sglir_graph *traced; /* in place of a text: for the whole pipeline, as `rank` of the plan's mesh */
    int64_t rank;
} rig;

static inline sgl_status net_rig_trace(rig *g)
{
    for (int op = 0; op < SGLIR_OP_COUNT; op++) g->plan.native[op] = g->ops.native((sglir_op)op);
    const sglpass_context context = { .env = g->env, .plan = &g->plan, .rank = g->rank, .workspace = g->ops.workspace };
    return sglpass_run(&context, g->traced, NULL, &g->placed);
}

static inline sgl_status net_rig_parse(rig *g, const char *text)
{
    static const sglpass list[] = { { "fuse", sglpass_fuse, SGLIR_FUSED, false, "" },
                                    { "schedule", sglpass_schedule, SGLIR_FUSED, true, "" },
                                    { "memory", sglpass_memory, SGLIR_PLACED, false, "" },
                                    { NULL, NULL, SGLIR_LOGICAL, false, NULL } };
    const sglpass as_it_stands[] = { list[0], list[2], list[3] }; /* the text says where its waits are */
    sglplan alone;
    sglir_graph *parsed;
    sglplan_init(&alone);
    if (g->bucket > 0) alone.bucket = g->bucket;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) alone.native[op] = g->ops.native((sglir_op)op);
    const sglpass_context context = { .env = g->env, .plan = &alone, .workspace = g->ops.workspace };
    SGLCORE_TRY(sglir_parse(g->env, "rank", text, strlen(text), &parsed));
    const sglpass *passes = g->list ? g->list : strstr(text, "wait(") ? as_it_stands : list;
    sgl_status status = sglpass_run_list(&context, passes, parsed, NULL, &g->placed);
    sglir_graph_free(parsed);
    return status;
}

static inline sgl_status net_rig_freeze(rig *g, const char *text)
{
    SGLCORE_TRY(g->traced ? net_rig_trace(g) : net_rig_parse(g, text));
    return sglexec_freeze(g->env, g->placed, &g->program);
}

static inline sgl_status net_rig_build(rig *g, const char *text)
{
    SGLCORE_TRY(net_rig_freeze(g, text));
    return g->ops.prepare(g->device, g->program, &g->prepared);
}

/* g: empty but for `list`, `bucket`, `traced` and `rank`. */
static inline sgl_status net_rig_open(rig *g, comm_rank *r, const sglplan *plan, bool staged, const char *text)
{
    *g = (rig){ .r = r,
                .env = &r->env,
                .ops = sglexec_device_cpu,
                .plan = *plan,
                .list = g->list,
                .bucket = g->bucket,
                .traced = g->traced,
                .rank = g->rank };
    g->ops.host_memory = !staged;
    SGLCORE_TRY(g->ops.open(g->env, 1, &g->device));
    SGLCORE_TRY(net_rig_build(g, text));
    for (int space = 1; space < SGLIR_SPACES; space++)
        SGLCORE_TRY(g->ops.alloc(g->device, g->program->space_bytes[space], &g->spaces[space]));
    if (g->program->constants.count > 0)
        memcpy(g->spaces[SGLIR_SPACE_CONST], g->program->constants.data, (size_t)g->program->constants.count);
    SGLCORE_TRY(sglexec_net_open(g->env, &comm_case_ops, r->comm, &g->net));
    return sglexec_exchanges_new(g->net, g->program, plan, r->rank, &g->ops, &g->exchanges);
}

static inline void net_rig_close(rig *g)
{
    sglexec_exchanges_free(g->exchanges);
    sglexec_net_close(g->net);
    for (int space = 1; space < SGLIR_SPACES; space++) {
        if (g->spaces[space]) g->ops.free(g->device, g->spaces[space], g->program->space_bytes[space]);
    }
    if (g->prepared) g->ops.release(g->device, g->prepared);
    sglexec_program_free(g->program);
    sglir_graph_free(g->placed);
    if (g->device) g->ops.close(g->device);
}

#endif

/* plan_report.c -- what one rank of a mesh holds and exchanges, told before any rank is started: the report "plan".
 *
 * Comes in: a frozen program with its plan and rank. Goes out: bytes by kind, feeds as parts of the whole, exchanges of one step
 * by op and axes, as text or JSON. Odd invariant: bytes sent follow the formula of each kind of exchange (docs/transport.md),
 * as the mean of the ranks of a group where parts are uneven; nothing is measured, and no time is guessed. */

#include <stdio.h>
#include <string.h>

#include "ir/text.h"
#include "plan/mesh.h"
#include "session/report.h"

/* Exchanges of one kind over the same axes, in one step. */
typedef struct traffic {
    uint16_t op;
    sglplan_axes axes;
    int64_t ranks, count, sent;
} traffic;

typedef struct summary {
    const sgl_program *program;
    sglcore_env *env;
    SGLCORE_VEC(traffic) traffic;
    int64_t roles[SGL_CACHE + 1]; /* bytes by sgl_role */
} summary;

/* ---- counting ----------------------------------------------------------------------------------------------------- */

static sglir_type type_of(const sglexec_operand *o) { return sglir_type_make((sgl_dtype)o->dtype, o->rank, o->dims); }

static int64_t bytes_of(const sglexec_operand *o)
{
    const sglir_type type = type_of(o);
    return sglir_bytes(&type);
}

/* Of the whole: what goes in, but for a gather what comes out. */
static int64_t sent_by(const sglexec_program *p, const sglexec_instruction *i, int64_t ranks)
{
    const bool gathers = i->op == SGLIR_OP_ALL_GATHER || i->op == SGLIR_OP_ALL_GATHER_EACH;
    const sglexec_operand *first = &p->operands.data[i->operand_first + (gathers ? i->arg_count : 0)];
    int64_t bytes = 0;
    if (i->op == SGLIR_OP_RECEIVE) return 0;
    if (i->op == SGLIR_OP_SEND || (i->op == SGLIR_OP_RING_SHIFT && ranks > 1))
        return bytes_of(&p->operands.data[i->operand_first]);
    const bool twice = i->op == SGLIR_OP_ALL_REDUCE || i->op == SGLIR_OP_ALL_MAX;
    for (uint32_t m = 0; m < i->arg_count; m++) bytes += bytes_of(first + m);
    return (int64_t)((double)bytes * (twice ? 2 : 1) * (double)(ranks - 1) / (double)ranks + 0.5);
}

static sgl_status count_one(summary *s, const sglexec_instruction *i, int64_t launches)
{
    const sglexec_program *p = s->program->program;
    const sglplan_axes axes = sglexec_axes_of(p, i);
    const int64_t ranks = sglplan_group_size(&s->program->plan, axes);
    traffic *found = NULL;
    for (int64_t t = 0; t < s->traffic.count && !found; t++)
        if (s->traffic.data[t].op == i->op && s->traffic.data[t].axes == axes) found = &s->traffic.data[t];
    if (!found) {
        SGLCORE_TRY(sglcore_vec_reserve(s->env, &s->traffic, 1));
        found = &s->traffic.data[s->traffic.count++];
        *found = (traffic){ .op = i->op, .axes = axes, .ranks = ranks };
    }
    found->count += launches;
    found->sent += launches * sent_by(p, i, ranks);
    return SGL_OK;
}

static sgl_status count_block(summary *s, uint32_t block, int64_t launches)
{
    const sglexec_program *p = s->program->program;
    const sglexec_block *b = &p->blocks.data[block];
    for (uint32_t n = b->first; n < b->first + b->count; n++) {
        const sglexec_instruction *i = &p->instructions.data[n];
        if (sglir_is_exchange(i->op)) SGLCORE_TRY(count_one(s, i, launches));
        if (i->op == SGLIR_OP_WHILE || i->op == SGLIR_OP_COND)
            SGLCORE_TRY(count_block(s, i->other, launches * sglexec_turns(i)));
        if (sglexec_is_control(i)) SGLCORE_TRY(count_block(s, i->block, launches * sglexec_turns(i)));
    }
    return SGL_OK;
}

static void count_states(summary *s)
{
    const sglexec_program *p = s->program->program;
    for (int64_t i = 0; i < p->states.count; i++) {
        const sglexec_port *port = &p->states.data[i];
        if (port->role <= SGL_CACHE) s->roles[port->role] += bytes_of(&port->operand);
    }
}

/* ---- text --------------------------------------------------------------------------------------------------------- */

static sgl_status text_of_mesh(const summary *s, sglcore_text *text)
{
    const sgl_program *program = s->program;
    const sglplan_coordinate here = sglplan_mesh_coordinate(&program->plan, program->rank);
    bool any = false;
    SGLCORE_TRY(sglcore_text_add(s->env, text, "mesh"));
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axis == SGLIR_AXIS_MICRO || program->plan.mesh[axis] == 1) continue;
        SGLCORE_TRY(sglcore_text_add(s->env, text, "%s %s=%lld (here %lld)", any ? "," : "", sglir_axis_name(axis),
                                     (long long)program->plan.mesh[axis], (long long)here.at[axis]));
        any = true;
    }
    return sglcore_text_add(s->env, text, "%s\n", any ? "" : " of one rank");
}

static sgl_status text_of_bytes(const summary *s, sglcore_text *text)
{
    const sgl_program *program = s->program;
    const int64_t *space = program->program->space_bytes;
    const struct {
        const char *name;
        int64_t bytes;
    } rows[] = {
        { "parameters", s->roles[SGL_PARAMETER] },
        { "states of optimizers and counters", s->roles[SGL_STATE] },
        { "caches", s->roles[SGL_CACHE] },
        { "all of these, as they lie in sections", space[SGLIR_SPACE_STATE] },
        { "transient peak", space[SGLIR_SPACE_ARENA] },
        { "feeds and fetches", space[SGLIR_SPACE_IO] },
        { "constants", space[SGLIR_SPACE_CONST] },
    };
    char number[32];
    int64_t total = 0;
    for (int i = SGLIR_SPACE_ARENA; i <= SGLIR_SPACE_CONST; i++) total += space[i];
    SGLCORE_TRY(sglcore_text_add(s->env, text, "bytes of this rank\n"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        SGLCORE_TRY(
            sglcore_text_add(s->env, text, "  %-40s %20s\n", rows[i].name, sglsession_grouped(rows[i].bytes, number)));
    SGLCORE_TRY(sglcore_text_add(s->env, text, "  %-40s %20s\n", "total", sglsession_grouped(total, number)));
    if (space[SGLIR_SPACE_AWAY] + space[SGLIR_SPACE_HOST] > 0) {
        SGLCORE_TRY(sglcore_text_add(s->env, text, "  %-40s %20s\n", "beside that: states in memory of the host",
                                     sglsession_grouped(space[SGLIR_SPACE_AWAY], number)));
        SGLCORE_TRY(sglcore_text_add(s->env, text, "  %-40s %20s\n", "  values of a step there",
                                     sglsession_grouped(space[SGLIR_SPACE_HOST], number)));
    }
    SGLCORE_TRY(sglcore_text_add(s->env, text, "sections\n"));
    return sglsession_text_of_states(s->env, program->placed, text);
}

/* A feed as both forms tell it: the part of this rank, and where it begins: "1,0". */
typedef struct feed_words {
    const char *name;
    bool in_parts;
    char part[SGLIR_TYPE_ROOM], whole[SGLIR_TYPE_ROOM], at[SGL_MAX_RANK * 21];
} feed_words;

static void describe_feed(const sglexec_program *p, int64_t i, feed_words *words)
{
    const sglexec_port *port = &p->feeds.data[i];
    const sglir_type type = type_of(&port->operand);
    const sglir_type whole = sglir_type_make((sgl_dtype)port->operand.dtype, port->operand.rank, port->whole);
    size_t used = 0;
    words->name = sglcore_string(p->strings, port->name);
    words->in_parts = !sglir_same_shape(&type, &whole);
    sglir_type_text(&type, words->part, sizeof words->part);
    sglir_type_text(&whole, words->whole, sizeof words->whole);
    words->at[0] = '\0';
    for (int d = 0; d < port->operand.rank; d++)
        used +=
            (size_t)snprintf(words->at + used, sizeof words->at - used, "%s%lld", d ? "," : "", (long long)port->at[d]);
}

static sgl_status text_of_feeds(const summary *s, sglcore_text *text)
{
    const sglexec_program *p = s->program->program;
    SGLCORE_TRY(sglcore_text_add(s->env, text, "feeds, the part of this rank\n"));
    for (int64_t i = 0; i < p->feeds.count; i++) {
        feed_words f;
        describe_feed(p, i, &f);
        SGLCORE_TRY(sglcore_text_add(s->env, text, "  %-24s %s", f.name, f.part));
        if (f.in_parts) SGLCORE_TRY(sglcore_text_add(s->env, text, " of %s, from [%s] on", f.whole, f.at));
        SGLCORE_TRY(sglcore_text_add(s->env, text, "\n"));
    }
    return SGL_OK;
}

static sgl_status text_of_traffic(const summary *s, sglcore_text *text)
{
    char axes[SGLPLAN_AXES_ROOM], number[32];
    if (s->traffic.count == 0) return sglcore_text_add(s->env, text, "exchanges of a step: none\n");
    SGLCORE_TRY(sglcore_text_add(s->env, text, "exchanges of a step, and the bytes that this rank sends\n"));
    for (int64_t i = 0; i < s->traffic.count; i++) {
        const traffic *t = &s->traffic.data[i];
        SGLCORE_TRY(sglcore_text_add(s->env, text, "  %-20s over %-14s %4lld ranks %8lld times %20s\n",
                                     sglir_ops[t->op].name, sglplan_axes_text(t->axes, axes, sizeof axes),
                                     (long long)t->ranks, (long long)t->count, sglsession_grouped(t->sent, number)));
    }
    return SGL_OK;
}

static sgl_status plan_text(const summary *s, sglcore_text *text)
{
    const sgl_program *program = s->program;
    SGLCORE_TRY(sglcore_text_add(s->env, text, "plan of program \"%s\", rank %lld of %lld\n",
                                 sglcore_string(program->placed->strings, program->placed->name),
                                 (long long)program->rank, (long long)program->ranks));
    SGLCORE_TRY(text_of_mesh(s, text));
    SGLCORE_TRY(text_of_bytes(s, text));
    SGLCORE_TRY(text_of_feeds(s, text));
    return text_of_traffic(s, text);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

static sgl_status json_of_mesh(const summary *s, sglcore_text *text)
{
    const sgl_program *program = s->program;
    SGLCORE_TRY(sglcore_text_add(s->env, text, "{\"program\":"));
    SGLCORE_TRY(sglcore_text_quote(s->env, text, sglcore_string(program->placed->strings, program->placed->name)));
    SGLCORE_TRY(sglcore_text_add(s->env, text, ",\"rank\":%lld,\"ranks\":%lld,\"mesh\":{", (long long)program->rank,
                                 (long long)program->ranks));
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        if (axis != SGLIR_AXIS_MICRO)
            SGLCORE_TRY(sglcore_text_add(s->env, text, "%s\"%s\":%lld", axis ? "," : "", sglir_axis_name(axis),
                                         (long long)program->plan.mesh[axis]));
    return sglcore_text_add(s->env, text, "}");
}

static sgl_status json_of_bytes(const summary *s, sglcore_text *text)
{
    const int64_t *space = s->program->program->space_bytes;
    return sglcore_text_add(s->env, text,
                            ",\"parameter_bytes\":%lld,\"optimizer_bytes\":%lld,\"cache_bytes\":%lld,"
                            "\"state_bytes\":%lld,\"arena_bytes\":%lld,\"io_bytes\":%lld,\"const_bytes\":%lld,"
                            "\"host_bytes\":%lld,\"away_bytes\":%lld",
                            (long long)s->roles[SGL_PARAMETER], (long long)s->roles[SGL_STATE],
                            (long long)s->roles[SGL_CACHE], (long long)space[SGLIR_SPACE_STATE],
                            (long long)space[SGLIR_SPACE_ARENA], (long long)space[SGLIR_SPACE_IO],
                            (long long)space[SGLIR_SPACE_CONST], (long long)space[SGLIR_SPACE_HOST],
                            (long long)space[SGLIR_SPACE_AWAY]);
}

static sgl_status json_of_feeds(const summary *s, sglcore_text *text)
{
    const sglexec_program *p = s->program->program;
    SGLCORE_TRY(sglcore_text_add(s->env, text, ",\"feeds\":["));
    for (int64_t i = 0; i < p->feeds.count; i++) {
        feed_words f;
        describe_feed(p, i, &f);
        SGLCORE_TRY(sglcore_text_add(s->env, text, "%s{\"name\":", i ? "," : ""));
        SGLCORE_TRY(sglcore_text_quote(s->env, text, f.name));
        SGLCORE_TRY(
            sglcore_text_add(s->env, text, ",\"part\":\"%s\",\"whole\":\"%s\",\"at\":[%s]}", f.part, f.whole, f.at));
    }
    return sglcore_text_add(s->env, text, "]");
}

static sgl_status plan_json(const summary *s, sglcore_text *text)
{
    char axes[SGLPLAN_AXES_ROOM];
    SGLCORE_TRY(json_of_mesh(s, text));
    SGLCORE_TRY(json_of_bytes(s, text));
    SGLCORE_TRY(json_of_feeds(s, text));
    SGLCORE_TRY(sglcore_text_add(s->env, text, ",\"exchanges\":["));
    for (int64_t i = 0; i < s->traffic.count; i++) {
        const traffic *t = &s->traffic.data[i];
        SGLCORE_TRY(sglcore_text_add(
            s->env, text, "%s{\"op\":\"%s\",\"axes\":\"%s\",\"ranks\":%lld,\"count\":%lld,\"bytes_sent\":%lld}",
            i ? "," : "", sglir_ops[t->op].name, sglplan_axes_text(t->axes, axes, sizeof axes), (long long)t->ranks,
            (long long)t->count, (long long)t->sent));
    }
    return sglcore_text_add(s->env, text, "]}\n");
}

sgl_status sglsession_report_plan(const sgl_program *program, const char *format, sglcore_text *text)
{
    summary s = { .program = program, .env = &program->session->vm->env };
    const bool json = strcmp(format, "json") == 0;
    if (!json && strcmp(format, "text") != 0)
        return sglcore_fail(s.env, SGL_INVALID_ARGUMENT, "report plan: the formats are text and json, not '%s'",
                            format);
    count_states(&s);
    sgl_status status = count_block(&s, 0, 1);
    if (status == SGL_OK) status = json ? plan_json(&s, text) : plan_text(&s, text);
    sglcore_vec_free(s.env, &s.traffic);
    return status;
}

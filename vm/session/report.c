/* report.c -- what a program will need and do, told before it runs: memory, instructions, a summary.
 *
 * Comes in: a frozen program with the placed graph it came from. Goes out: text, JSON or SVG through the host's writer.
 * Odd invariant: but for the profile nothing here is measured; every figure is a property of the program. */
#include <stdio.h>
#include <string.h>

#include "ir/text.h"
#include "session/lifetimes.h"
#include "session/report.h"

/* ---- the pieces of a memory report -------------------------------------------------------------------------------- */

static double ratio(int64_t peak, int64_t bound) { return bound > 0 ? (double)peak / (double)bound : 1.0; }

const char *sglsession_grouped(int64_t number, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)number), at = 0;
    for (int i = 0; i < length; i++) {
        text[at++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-') text[at++] = ',';
    }
    text[at] = 0;
    return text;
}

static int64_t member_count(const sglir_graph *g, uint32_t section)
{
    int64_t count = 0;
    for (int64_t m = 0; m < g->members.count; m++) count += g->members.data[m].section == section;
    return count;
}

sgl_status sglsession_text_of_states(sglcore_env *env, const sglir_graph *g, sglcore_text *text)
{
    char bytes[32], type[160];
    const sglir_region *top = &g->regions.data[0];
    int64_t elsewhere = 0;
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(g, node, "role") == SGL_FEED) continue;
        const sglir_type *t = sglir_type_of(g, node->out_first);
        if (sglir_home_of(g, top->nodes.data[n]) >= 0 && sglir_elements(t) == 0) {
            elsewhere++;
            continue;
        }
        int64_t members = member_count(g, g->attrs.data[node->attr_first + 1].as.string);
        SGLCORE_TRY(sglcore_text_add(env, text, "  %-36s %-10s %-26s %16s", sglir_attr_string(g, node, "name"),
                                     sglir_role_names[sglir_attr_int(g, node, "role")],
                                     sglir_type_text(t, type, sizeof type), sglsession_grouped(sglir_bytes(t), bytes)));
        if (members) SGLCORE_TRY(sglcore_text_add(env, text, "   %lld tensors", (long long)members));
        if (sglir_value_at(g, node->out_first)->space == SGLIR_SPACE_AWAY)
            SGLCORE_TRY(sglcore_text_add(env, text, "   in memory of the host"));
        SGLCORE_TRY(sglcore_text_add(env, text, "\n"));
    }
    if (elsewhere == 0) return SGL_OK;
    return sglcore_text_add(env, text, "  and %lld that live on other stages\n", (long long)elsewhere);
}

enum { LARGEST = 12, ORIGIN_ROOM = 512 };

/* The module that a node comes from: "blocks.3.ffn", "" where there is none. */
static const char *scope_of(const sglir_graph *g, const sglir_node *node)
{
    return sglcore_string(g->strings, g->origins.data[node->origin].scope);
}

static sgl_status text_of_peak(sglcore_env *env, const sglir_graph *g, const sglsession_lifetimes *all,
                               sglcore_text *text)
{
    char bytes[32], type[160], origin[ORIGIN_ROOM];
    SGLCORE_TRY(sglcore_text_add(env, text, "largest values where most is live (instruction %lld of %lld)\n",
                                 (long long)all->peak_at, (long long)all->positions));
    int shown = 0;
    for (int64_t i = 0; i < all->count && shown < LARGEST; i++) {
        const sglsession_lifetime *life = &all->by_size[i];
        if (all->peak_at < life->from || all->peak_at > life->to) continue;
        const sglir_node *node = sglir_node_at(g, life->node);
        SGLCORE_TRY(sglcore_text_add(
            env, text, "  %16s  %-22s %-14s %s  %s\n", sglsession_grouped(life->bytes, bytes),
            life->value == SGLIR_NONE ? "workspace" : sglir_type_text(sglir_type_of(g, life->value), type, sizeof type),
            sglir_ops[node->op].name, sglir_origin_text(g, node->origin, origin, sizeof origin), scope_of(g, node)));
        shown++;
    }
    return SGL_OK;
}

/* Moves of a program, and their bytes in a step. */
typedef struct moves {
    int64_t out, in, out_bytes, in_bytes;
} moves;

static void count_moves(const sglexec_program *p, uint32_t block, int64_t turns, moves *m)
{
    const sglexec_block *b = &p->blocks.data[block];
    for (uint32_t n = b->first; n < b->first + b->count; n++) {
        const sglexec_instruction *i = &p->instructions.data[n];
        if (sglexec_is_control(i)) count_moves(p, i->block, turns * sglexec_turns(i), m);
        if (i->op == SGLIR_OP_COND) count_moves(p, i->other, turns, m);
        if (!sglir_is_move((sglir_op)i->op)) continue;
        const bool out = i->op == SGLIR_OP_OFFLOAD;
        *(out ? &m->out : &m->in) += turns;
        const sglexec_operand *moved = &p->operands.data[i->operand_first];
        *(out ? &m->out_bytes : &m->in_bytes) +=
            turns * sglcore_dtype_bytes((sgl_dtype)moved->dtype, sglexec_elements(moved));
    }
}

/* Beside the device's own; nothing where a program has nothing there. */
static sgl_status text_of_host(const sgl_program *program, sglcore_text *text)
{
    sglcore_env *env = &program->session->vm->env;
    const int64_t *space = program->program->space_bytes;
    moves m = { 0 };
    char a[32], b[32];
    if (space[SGLIR_SPACE_HOST] + space[SGLIR_SPACE_AWAY] == 0) return SGL_OK;
    count_moves(program->program, 0, 1, &m);
    SGLCORE_TRY(sglcore_text_add(env, text, "memory of the host, beside that %38s\n",
                                 sglsession_grouped(space[SGLIR_SPACE_HOST] + space[SGLIR_SPACE_AWAY], a)));
    SGLCORE_TRY(
        sglcore_text_add(env, text, "  states kept there %51s\n", sglsession_grouped(space[SGLIR_SPACE_AWAY], a)));
    SGLCORE_TRY(
        sglcore_text_add(env, text, "  values of a step %52s\n", sglsession_grouped(space[SGLIR_SPACE_HOST], a)));
    return sglcore_text_add(env, text, "  moves a step: %lld out, %s bytes; %lld in, %s bytes\n", (long long)m.out,
                            sglsession_grouped(m.out_bytes, a), (long long)m.in, sglsession_grouped(m.in_bytes, b));
}

static sgl_status memory_text(const sgl_program *program, const sglsession_lifetimes *all, sglcore_text *text)
{
    sglcore_env *env = &program->session->vm->env;
    const sglir_graph *g = program->placed;
    const int64_t *space = program->program->space_bytes;
    char a[32], b[32];
    int64_t total =
        space[SGLIR_SPACE_STATE] + space[SGLIR_SPACE_ARENA] + space[SGLIR_SPACE_IO] + space[SGLIR_SPACE_CONST];
    SGLCORE_TRY(sglcore_text_add(env, text, "memory of program \"%s\", bytes\n", sglcore_string(g->strings, g->name)));
    SGLCORE_TRY(sglcore_text_add(env, text, "states, kept between steps %43s\n",
                                 sglsession_grouped(space[SGLIR_SPACE_STATE], a)));
    SGLCORE_TRY(sglsession_text_of_states(env, g, text));
    SGLCORE_TRY(sglcore_text_add(env, text, "transient peak %55s\n", sglsession_grouped(space[SGLIR_SPACE_ARENA], a)));
    SGLCORE_TRY(sglcore_text_add(env, text, "  lower bound (largest sum of live bytes) %28s   peak / bound %.4f\n",
                                 sglsession_grouped(program->program->arena_lower_bound, b),
                                 ratio(space[SGLIR_SPACE_ARENA], program->program->arena_lower_bound)));
    SGLCORE_TRY(sglcore_text_add(env, text, "feeds and fetches %52s\n", sglsession_grouped(space[SGLIR_SPACE_IO], a)));
    SGLCORE_TRY(sglcore_text_add(env, text, "constants %60s\n", sglsession_grouped(space[SGLIR_SPACE_CONST], a)));
    SGLCORE_TRY(sglcore_text_add(env, text, "total %64s\n", sglsession_grouped(total, a)));
    SGLCORE_TRY(text_of_host(program, text));
    return text_of_peak(env, g, all, text);
}

/* One value of a memory report. Names of files and graphs are the host's: they are quoted. */
static sgl_status lifetime_json(sglcore_env *env, const sglir_graph *g, const sglsession_lifetime *life,
                                sglcore_text *text)
{
    const sglir_node *node = sglir_node_at(g, life->node);
    char origin[ORIGIN_ROOM];
    SGLCORE_TRY(sglcore_text_add(env, text, "{\"op\":\"%s\",\"line\":", sglir_ops[node->op].name));
    SGLCORE_TRY(sglcore_text_quote(env, text, sglir_origin_text(g, node->origin, origin, sizeof origin)));
    SGLCORE_TRY(sglcore_text_add(env, text, ",\"scope\":"));
    SGLCORE_TRY(sglcore_text_quote(env, text, scope_of(g, node)));
    return sglcore_text_add(env, text, ",\"offset\":%lld,\"bytes\":%lld,\"from\":%lld,\"to\":%lld}",
                            (long long)life->offset, (long long)life->bytes, (long long)life->from,
                            (long long)life->to);
}

static sgl_status memory_json(const sgl_program *program, const sglsession_lifetimes *all, sglcore_text *text)
{
    sglcore_env *env = &program->session->vm->env;
    const sglir_graph *g = program->placed;
    const int64_t *space = program->program->space_bytes;
    SGLCORE_TRY(sglcore_text_add(env, text, "{\"program\":"));
    SGLCORE_TRY(sglcore_text_quote(env, text, sglcore_string(g->strings, g->name)));
    SGLCORE_TRY(sglcore_text_add(
        env, text,
        ",\"state_bytes\":%lld,\"arena_bytes\":%lld,\"arena_lower_bound\":%lld,"
        "\"io_bytes\":%lld,\"const_bytes\":%lld,\"host_bytes\":%lld,\"away_bytes\":%lld,\"positions\":%lld,\"peak_at\":%lld,\"lifetimes\":[",
        (long long)space[SGLIR_SPACE_STATE], (long long)space[SGLIR_SPACE_ARENA],
        (long long)program->program->arena_lower_bound, (long long)space[SGLIR_SPACE_IO],
        (long long)space[SGLIR_SPACE_CONST], (long long)space[SGLIR_SPACE_HOST], (long long)space[SGLIR_SPACE_AWAY],
        (long long)all->positions, (long long)all->peak_at));
    for (int64_t i = 0; i < all->count; i++) {
        if (i) SGLCORE_TRY(sglcore_text_add(env, text, ","));
        SGLCORE_TRY(lifetime_json(env, g, &all->by_size[i], text));
    }
    return sglcore_text_add(env, text, "]}\n");
}

/* A text between tags. */
static sgl_status add_escaped(sglcore_env *env, sglcore_text *text, const char *raw)
{
    for (size_t plain; *raw; raw += plain + (raw[plain] != 0)) {
        plain = strcspn(raw, "&<>");
        SGLCORE_TRY(sglcore_text_bytes(env, text, raw, plain));
        if (raw[plain]) SGLCORE_TRY(sglcore_text_add(env, text, "&#%d;", raw[plain]));
    }
    return SGL_OK;
}

/* Where the drawing of lifetimes stands, and its scale. */
typedef struct canvas {
    double width, height, left, top, per_step, per_byte;
} canvas;

/* Bytes upwards, instructions to the right, five marks each, and the instruction where most is live. */
static sgl_status svg_axes(sglcore_env *env, const canvas *c, const sglsession_lifetimes *all, int64_t arena,
                           sglcore_text *text)
{
    enum { MARKS = 4 };
    char a[32];
    double bottom = c->top + c->height;
    for (int i = 0; i <= MARKS; i++) {
        double x = c->left + c->width * i / MARKS, y = bottom - c->height * i / MARKS;
        SGLCORE_TRY(
            sglcore_text_add(env, text, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\" font-size=\"11\">%s</text>\n",
                             c->left - 6, y + 4, sglsession_grouped(arena / MARKS * i + arena % MARKS * i / MARKS, a)));
        SGLCORE_TRY(sglcore_text_add(env, text,
                                     "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" font-size=\"11\">%lld</text>\n", x,
                                     bottom + 16, (long long)(all->positions * i / MARKS)));
    }
    double peak = c->left + ((double)all->peak_at + 0.5) * c->per_step;
    return sglcore_text_add(
        env, text,
        "<path d=\"M%.2f %g V%g\" stroke=\"#c03030\" stroke-dasharray=\"4 3\"/>\n"
        "<text x=\"%.2f\" y=\"%g\" text-anchor=\"middle\" font-size=\"11\" fill=\"#c03030\">most is live "
        "here: %lld</text>\n",
        peak, c->top, bottom, peak, c->top - 4, (long long)all->peak_at);
}

/* A bar that is large enough says what it is; hovering tells all of it. */
static sgl_status svg_bar(sglcore_env *env, const canvas *c, const sglir_graph *g, const sglsession_lifetime *life,
                          sglcore_text *text)
{
    const sglir_node *node = sglir_node_at(g, life->node);
    const char *name = sglir_ops[node->op].name, *scope = scope_of(g, node);
    char a[32], type[160], origin[ORIGIN_ROOM];
    bool derived = strncmp(sglir_origin_text(g, node->origin, origin, sizeof origin), "autodiff", 8) == 0;
    const char *colour = life->value == SGLIR_NONE ? "#bbbbbb" : derived ? "#e0915c" : "#5c8fd6";
    double x = c->left + (double)life->from * c->per_step, width = (double)(life->to - life->from + 1) * c->per_step;
    double height = (double)life->bytes * c->per_byte,
           y = c->top + c->height - (double)life->offset * c->per_byte - height;
    SGLCORE_TRY(sglcore_text_add(
        env, text,
        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"0.4\">"
        "<title>%s %s, %s bytes at %lld, ",
        x, y, width, height, colour, name,
        life->value == SGLIR_NONE ? "workspace" : sglir_type_text(sglir_type_of(g, life->value), type, sizeof type),
        sglsession_grouped(life->bytes, a), (long long)life->offset));
    SGLCORE_TRY(add_escaped(env, text, origin));
    SGLCORE_TRY(sglcore_text_add(env, text, " "));
    SGLCORE_TRY(add_escaped(env, text, scope));
    SGLCORE_TRY(sglcore_text_add(env, text, "</title></rect>\n"));
    if (height < 12 || width < 6.5 * (double)(strlen(name) + 1 + strlen(scope))) return SGL_OK;
    SGLCORE_TRY(sglcore_text_add(env, text, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"11\" pointer-events=\"none\">%s ",
                                 x + 3, y + height / 2 + 4, name));
    SGLCORE_TRY(add_escaped(env, text, scope));
    return sglcore_text_add(env, text, "</text>\n");
}

/* One rectangle per value: time to the right, address upwards. */
static sgl_status memory_svg(const sgl_program *program, const sglsession_lifetimes *all, sglcore_text *text)
{
    sglcore_env *env = &program->session->vm->env;
    const sglir_graph *g = program->placed;
    int64_t arena = program->program->space_bytes[SGLIR_SPACE_ARENA];
    canvas c = { .width = 1200, .height = 640, .left = 120, .top = 64 };
    c.per_step = c.width / (double)(all->positions > 0 ? all->positions : 1);
    c.per_byte = c.height / (double)(arena > 0 ? arena : 1);
    char a[32], b[32];
    SGLCORE_TRY(sglcore_text_add(
        env, text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"14\">\n",
        c.width + c.left + 40, c.height + c.top + 64));
    SGLCORE_TRY(sglcore_text_add(env, text, "<text x=\"20\" y=\"28\">"));
    SGLCORE_TRY(add_escaped(env, text, sglcore_string(g->strings, g->name)));
    SGLCORE_TRY(sglcore_text_add(env, text, ": transient peak %s bytes, lower bound %s (%.4f)",
                                 sglsession_grouped(arena, a),
                                 sglsession_grouped(program->program->arena_lower_bound, b),
                                 ratio(arena, program->program->arena_lower_bound)));
    SGLCORE_TRY(sglcore_text_add(env, text, "; beside it %s bytes of states, kept between steps</text>\n",
                                 sglsession_grouped(program->program->space_bytes[SGLIR_SPACE_STATE], a)));
    for (int64_t i = 0; i < all->count; i++) SGLCORE_TRY(svg_bar(env, &c, g, &all->by_size[i], text));
    SGLCORE_TRY(svg_axes(env, &c, all, arena, text));
    return sglcore_text_add(
        env, text,
        "<text x=\"%g\" y=\"%g\">bytes upwards, instructions to the right, in order; blue: of the script, "
        "orange: made by autodiff (gradients, and what it keeps for them), grey: workspace</text>\n</svg>\n",
        c.left, c.height + c.top + 44);
}

static sgl_status summary_json(const sgl_program *program, sglcore_text *text)
{
    const sglexec_program *p = program->program;
    return sglcore_text_add(p->env, text,
                            "{\"instructions\":%lld,\"kernels\":%lld,\"flops\":%.17g,\"bytes_moved\":%.17g,"
                            "\"arena_bytes\":%lld,\"arena_lower_bound\":%lld,\"state_bytes\":%lld}\n",
                            (long long)p->instructions.count, (long long)p->kernels.count, p->flops, p->bytes,
                            (long long)p->space_bytes[SGLIR_SPACE_ARENA], (long long)p->arena_lower_bound,
                            (long long)p->space_bytes[SGLIR_SPACE_STATE]);
}

static sgl_status report_profile(const sgl_program *program, const char *kind, const char *format, sglcore_text *text)
{
    sglcore_env *env = &program->session->vm->env;
    const bool timeline = strcmp(kind, "timeline") == 0;
    if (!program->profile)
        return sglcore_fail(env, SGL_WRONG_STATE,
                            "report %s: the program was not measured; call sgl_program_profile before the steps", kind);
    if (timeline && strcmp(format, "json") == 0)
        return sglexec_profile_timeline(program->profile, (int)program->rank, text);
    if (timeline)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "report timeline: the format is json, not '%s'", format);
    if (strcmp(format, "json") == 0) return sglexec_profile_json(program->profile, text);
    if (strcmp(format, "text") == 0) return sglexec_profile_print(program->profile, text);
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "report profile: the formats are text and json, not '%s'", format);
}

static sgl_status report_memory(const sgl_program *program, const char *format, sglcore_text *text)
{
    sglcore_env *env = &program->session->vm->env;
    sglsession_lifetimes all = { 0 };
    SGLCORE_TRY(sglsession_lifetimes_of(env, program->placed, &all));
    sgl_status status;
    if (strcmp(format, "text") == 0)
        status = memory_text(program, &all, text);
    else if (strcmp(format, "json") == 0)
        status = memory_json(program, &all, text);
    else if (strcmp(format, "svg") == 0)
        status = memory_svg(program, &all, text);
    else
        status = sglcore_fail(env, SGL_INVALID_ARGUMENT, "report memory: the formats are text, json and svg, not '%s'",
                              format);
    sglsession_lifetimes_free(env, &all);
    return status;
}

sgl_status sgl_program_report(const sgl_program *program, const char *kind, const char *format, sgl_write_fn write,
                              void *user)
{
    SGLSESSION_NEEDS(program && kind && format && write, program ? program->session->vm : NULL,
                     "program, kind, format or write is NULL");
    sglcore_env *env = &program->session->vm->env;
    sglcore_text text = { 0 };
    sgl_status status;
    if (strcmp(kind, "memory") == 0)
        status = report_memory(program, format, &text);
    else if (strcmp(kind, "profile") == 0 || strcmp(kind, "timeline") == 0)
        status = report_profile(program, kind, format, &text);
    else if (strcmp(kind, "program") == 0 && strcmp(format, "text") == 0)
        status = sglexec_program_print(program->program, false, NULL, &text);
    else if (strcmp(kind, "program") == 0 && strcmp(format, "json") == 0)
        status = sglexec_program_json(program->program, &text);
    else if (strcmp(kind, "kernels") == 0 && strcmp(format, "text") == 0)
        status = sglexec_program_print(program->program, true, program->session->ops->source, &text);
    else if (strcmp(kind, "plan") == 0)
        status = sglsession_report_plan(program, format, &text);
    else if (strcmp(kind, "summary") == 0 && strcmp(format, "json") == 0)
        status = summary_json(program, &text);
    else
        status = sglcore_fail(env, SGL_INVALID_ARGUMENT,
                              "there is no report '%s' in format '%s'; there are memory (text, json, svg), "
                              "program (text, json), kernels (text), plan (text, json), profile (text, json), "
                              "timeline (json) and summary (json)",
                              kind, format);
    if (status == SGL_OK) status = sglsession_hand(program->session->vm, __func__, &text, write, user);
    sglcore_text_free(env, &text);
    return status;
}

const char *sgl_pass_name(int index)
{
    for (int i = 0; index >= 0 && sglpass_pipeline[i].name; i++)
        if (i == index) return sglpass_pipeline[i].name;
    return NULL;
}

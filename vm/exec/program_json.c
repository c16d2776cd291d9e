/* program_json.c -- a program as JSON, and as text with its kernels described: what tools and front ends read.
 *
 * Comes in: a frozen program. Goes out: the objects that sgl.h describes at sgl_program_report. Names of files and graphs are
 * the host's: they are quoted. Odd invariant: the instructions stand in the order of a replay, not in that of their
 * numbers: a loop's block is laid down before the instructions around it. */
#include "exec/program.h"
#include "ir/text.h"

static sgl_status put_operand(const sglexec_program *p, const sglexec_operand *o, sglcore_text *text)
{
    char shape[SGLIR_TYPE_ROOM];
    sglir_type type = sglir_type_make(o->dtype, o->rank, o->dims);
    return sglcore_text_add(p->env, text, "\"type\":\"%s\",\"space\":\"%s\",\"offset\":%lld,\"bytes\":%lld",
                            sglir_type_text(&type, shape, sizeof shape), sglir_space_names[o->space],
                            (long long)o->offset, (long long)sglir_bytes(&type));
}

static sgl_status put_operands(const sglexec_program *p, const char *key, uint32_t first, uint32_t count,
                               sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(p->env, text, ",\"%s\":[", key));
    for (uint32_t a = 0; a < count; a++) {
        SGLCORE_TRY(sglcore_text_add(p->env, text, a ? ",{" : "{"));
        SGLCORE_TRY(put_operand(p, &p->operands.data[first + a], text));
        SGLCORE_TRY(sglcore_text_add(p->env, text, "}"));
    }
    return sglcore_text_add(p->env, text, "]");
}

static sgl_status put_name(const sglexec_program *p, const char *key, uint32_t name, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(p->env, text, "\"%s\":", key));
    return sglcore_text_quote(p->env, text, sglcore_string(p->strings, name));
}

sgl_status sglexec_origin_json(const sglexec_program *p, uint32_t origin, sglcore_text *text)
{
    const sglir_origin *o = &p->origins.data[origin];
    SGLCORE_TRY(put_name(p, "file", o->file, text));
    SGLCORE_TRY(sglcore_text_add(p->env, text, ",\"line\":%d,", o->line));
    SGLCORE_TRY(put_name(p, "scope", o->scope, text));
    SGLCORE_TRY(sglcore_text_add(p->env, text, ","));
    return put_name(p, "pass", o->pass, text);
}

static sgl_status put_instruction(const sglexec_program *p, uint32_t n, int depth, int64_t launches, bool first,
                                  sglcore_text *text)
{
    const sglexec_instruction *i = &p->instructions.data[n];
    if (sglexec_is_control(i)) launches *= sglexec_turns(i);
    SGLCORE_TRY(sglcore_text_add(p->env, text,
                                 "%s{\"number\":%u,\"op\":\"%s\",\"depth\":%d,\"launches\":%lld,\"kernel\":",
                                 first ? "" : ",\n", n, sglir_ops[i->op].name, depth, (long long)launches));
    SGLCORE_TRY(i->op == SGLIR_OP_FUSED ? sglcore_text_add(p->env, text, "%u", i->kernel)
                                        : sglcore_text_add(p->env, text, "null"));
    SGLCORE_TRY(put_operands(p, "arguments", i->operand_first, i->arg_count, text));
    SGLCORE_TRY(put_operands(p, "results", i->operand_first + i->arg_count, i->result_count, text));
    SGLCORE_TRY(i->work_bytes ? sglcore_text_add(p->env, text, ",\"work\":{\"offset\":%lld,\"bytes\":%lld}",
                                                 (long long)i->work_offset, (long long)i->work_bytes)
                              : sglcore_text_add(p->env, text, ",\"work\":null"));
    SGLCORE_TRY(sglcore_text_add(p->env, text, ",\"flops\":%.17g,\"bytes\":%.17g,", i->flops, i->bytes));
    SGLCORE_TRY(sglexec_origin_json(p, i->origin, text));
    return sglcore_text_add(p->env, text, "}");
}

static sgl_status put_block(const sglexec_program *p, uint32_t block, int depth, int64_t launches, sglcore_text *text)
{
    const sglexec_block *b = &p->blocks.data[block];
    for (uint32_t n = b->first; n < b->first + b->count; n++) {
        const sglexec_instruction *i = &p->instructions.data[n];
        SGLCORE_TRY(put_instruction(p, n, depth, launches, depth == 0 && n == b->first, text));
        if (i->op == SGLIR_OP_WHILE) SGLCORE_TRY(put_block(p, i->other, depth + 1, launches * sglexec_turns(i), text));
        if (sglexec_is_control(i)) SGLCORE_TRY(put_block(p, i->block, depth + 1, launches * sglexec_turns(i), text));
        if (i->op == SGLIR_OP_COND) SGLCORE_TRY(put_block(p, i->other, depth + 1, launches, text));
    }
    return SGL_OK;
}

static sgl_status put_ports(const sglexec_program *p, const char *key, const sglexec_port *ports, int64_t count,
                            sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(p->env, text, "\"%s\":[", key));
    for (int64_t i = 0; i < count; i++) {
        SGLCORE_TRY(sglcore_text_add(p->env, text, i ? ",{" : "{"));
        SGLCORE_TRY(put_name(p, "name", ports[i].name, text));
        SGLCORE_TRY(sglcore_text_add(p->env, text, ","));
        SGLCORE_TRY(put_operand(p, &ports[i].operand, text));
        SGLCORE_TRY(sglcore_text_add(p->env, text, "}"));
    }
    return sglcore_text_add(p->env, text, "],\n");
}

sgl_status sglexec_kernels_json(const sglexec_program *p, sglcore_text *text)
{
    sglcore_text one = { 0 };
    sgl_status status = sglcore_text_add(p->env, text, "\"kernels\":[");
    for (int64_t k = 0; k < p->kernels.count && status == SGL_OK; k++) {
        one.count = 0;
        status = sglexec_kernel_print(p->env, &p->kernels.data[k], &one);
        if (status == SGL_OK && k) status = sglcore_text_add(p->env, text, ",\n");
        if (status == SGL_OK) status = sglcore_text_quote(p->env, text, one.data);
    }
    sglcore_text_free(p->env, &one);
    return status == SGL_OK ? sglcore_text_add(p->env, text, "]") : status;
}

sgl_status sglexec_program_json(const sglexec_program *p, sglcore_text *text)
{
    const int64_t *bytes = p->space_bytes;
    SGLCORE_TRY(sglcore_text_add(p->env, text, "{"));
    SGLCORE_TRY(put_name(p, "program", p->name, text));
    SGLCORE_TRY(sglcore_text_add(p->env, text,
                                 ",\"arena_bytes\":%lld,\"arena_lower_bound\":%lld,\"state_bytes\":%lld,"
                                 "\"io_bytes\":%lld,\"const_bytes\":%lld,\"host_bytes\":%lld,\"away_bytes\":%lld,\n",
                                 (long long)bytes[SGLIR_SPACE_ARENA], (long long)p->arena_lower_bound,
                                 (long long)bytes[SGLIR_SPACE_STATE], (long long)bytes[SGLIR_SPACE_IO],
                                 (long long)bytes[SGLIR_SPACE_CONST], (long long)bytes[SGLIR_SPACE_HOST],
                                 (long long)bytes[SGLIR_SPACE_AWAY]));
    SGLCORE_TRY(put_ports(p, "feeds", p->feeds.data, p->feeds.count, text));
    SGLCORE_TRY(put_ports(p, "fetches", p->fetches.data, p->fetches.count, text));
    SGLCORE_TRY(put_ports(p, "states", p->states.data, p->states.count, text));
    SGLCORE_TRY(sglcore_text_add(p->env, text, "\"instructions\":["));
    SGLCORE_TRY(put_block(p, 0, 0, 1, text));
    SGLCORE_TRY(sglcore_text_add(p->env, text, "],\n"));
    SGLCORE_TRY(sglexec_kernels_json(p, text));
    return sglcore_text_add(p->env, text, "}\n");
}

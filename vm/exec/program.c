/* program.c -- a program as an object: freeing it, reading attributes of its instructions, printing it.
 *
 * Comes in: what freeze.c made. Goes out: text, one line per instruction, and attribute values for backends. A program
 * holds no addresses: every operand is a space and an offset. */
#include <assert.h>
#include <string.h>

#include "exec/program.h"
#include "ir/text.h"
#include "plan/mesh.h"

void sglexec_program_free(sglexec_program *program)
{
    if (!program) return;
    sglcore_env *env = program->env;
    for (int64_t i = 0; i < program->kernels.count; i++) sglexec_kernel_free(env, &program->kernels.data[i]);
    sglcore_vec_free(env, &program->instructions);
    sglcore_vec_free(env, &program->operands);
    sglcore_vec_free(env, &program->attrs);
    sglcore_vec_free(env, &program->ints);
    sglcore_vec_free(env, &program->floats);
    sglcore_vec_free(env, &program->kernels);
    sglcore_vec_free(env, &program->blocks);
    sglcore_vec_free(env, &program->feeds);
    sglcore_vec_free(env, &program->fetches);
    sglcore_vec_free(env, &program->states);
    sglcore_vec_free(env, &program->origins);
    sglcore_vec_free(env, &program->constants);
    sglcore_strings_free(program->strings);
    sglcore_free(env, program, sizeof *program);
}

static const sglir_attr *attr_at(const sglexec_program *p, const sglexec_instruction *i, const char *name)
{
    for (uint32_t at = 0; at < i->attr_count; at++) {
        const sglir_attr *attr = &p->attrs.data[i->attr_first + at];
        if (strcmp(sglcore_string(p->strings, attr->name), name) == 0) return attr;
    }
    assert(!"the op's schema has no attribute of this name");
    return NULL;
}

int64_t sglexec_attr_int(const sglexec_program *p, const sglexec_instruction *i, const char *name)
{
    return attr_at(p, i, name)->as.i;
}

double sglexec_attr_float(const sglexec_program *p, const sglexec_instruction *i, const char *name)
{
    return attr_at(p, i, name)->as.f;
}

uint32_t sglexec_axes_of(const sglexec_program *p, const sglexec_instruction *i)
{
    const bool pair = i->op == SGLIR_OP_SEND || i->op == SGLIR_OP_RECEIVE;
    return pair ? SGLPLAN_AXIS(sglexec_attr_int(p, i, "axis")) : (uint32_t)sglexec_attr_int(p, i, "axes");
}

const int64_t *sglexec_attr_ints(const sglexec_program *p, const sglexec_instruction *i, const char *name, int *count)
{
    const sglir_attr *attr = attr_at(p, i, name);
    *count = (int)attr->count;
    return attr->count ? &p->ints.data[attr->as.first] : NULL;
}

const double *sglexec_attr_floats(const sglexec_program *p, const sglexec_instruction *i, const char *name, int *count)
{
    const sglir_attr *attr = attr_at(p, i, name);
    *count = (int)attr->count;
    return attr->count ? &p->floats.data[attr->as.first] : NULL;
}

static sgl_status print_operand(sglcore_env *env, const sglexec_operand *o, sglcore_text *text)
{
    sglir_type type = sglir_type_make(o->dtype, o->rank, o->dims);
    char shape[SGLIR_TYPE_ROOM];
    return sglcore_text_add(env, text, "%s@%s+%lld", sglir_type_text(&type, shape, sizeof shape),
                            sglir_space_names[o->space], (long long)o->offset);
}

sgl_status sglexec_exchange_label(const sglexec_program *p, const sglexec_instruction *i, sglcore_text *text)
{
    const sglir_origin *origin = &p->origins.data[i->origin];
    SGLCORE_TRY(sglcore_text_add(p->env, text, "%s", sglir_ops[i->op].name));
    if (origin->scope) SGLCORE_TRY(sglcore_text_add(p->env, text, " of %s", sglcore_string(p->strings, origin->scope)));
    if (!origin->scope && !origin->file) {
        const sglexec_operand *o = &p->operands.data[i->operand_first];
        const sglir_type type = sglir_type_make((sgl_dtype)o->dtype, o->rank, o->dims);
        char shape[SGLIR_TYPE_ROOM];
        SGLCORE_TRY(sglcore_text_add(p->env, text, " of %s", sglir_type_text(&type, shape, sizeof shape)));
    }
    if (!origin->file) return SGL_OK;
    return sglcore_text_add(p->env, text, ", %s:%d", sglcore_string(p->strings, origin->file), (int)origin->line);
}

sgl_status sglexec_origin_print(const sglexec_program *p, uint32_t origin, sglcore_text *text)
{
    const sglir_origin *o = &p->origins.data[origin];
    if (!o->file) return SGL_OK;
    SGLCORE_TRY(sglcore_text_add(p->env, text, "  ; %s:%d", sglcore_string(p->strings, o->file), o->line));
    if (o->scope) SGLCORE_TRY(sglcore_text_add(p->env, text, " %s", sglcore_string(p->strings, o->scope)));
    if (o->pass) SGLCORE_TRY(sglcore_text_add(p->env, text, " (%s)", sglcore_string(p->strings, o->pass)));
    return SGL_OK;
}

typedef struct listing {
    const sglexec_program *p;
    sglcore_text *text;
    bool kernels; /* to be described */
    sglexec_source_fn source;
    uint32_t described; /* so many: kernels are numbered in the order of their first instructions */
} listing;

/* The description of instruction n's kernel and its source, indented by so many blanks. */
static sgl_status print_kernel(const listing *l, uint32_t n, int indent)
{
    const sglexec_program *p = l->p;
    sglcore_text one = { 0 }, *text = l->text;
    sgl_status status = sglexec_kernel_print(p->env, &p->kernels.data[p->instructions.data[n].kernel], &one);
    if (status == SGL_OK && l->source) status = l->source(p->env, p, n, &one);
    for (const char *line = one.data; status == SGL_OK && *line;) {
        size_t bytes = strcspn(line, "\n") + 1; /* every line is ended */
        status = sglcore_text_add(p->env, text, "%*s", indent, "");
        if (status == SGL_OK) status = sglcore_text_bytes(p->env, text, line, bytes);
        line += bytes;
    }
    sglcore_text_free(p->env, &one);
    return status;
}

static sgl_status print_instruction(listing *l, uint32_t n, int depth)
{
    const sglexec_program *p = l->p;
    const sglexec_instruction *i = &p->instructions.data[n];
    SGLCORE_TRY(sglcore_text_add(p->env, l->text, "%*s%5u  %s", depth * 2, "", n, sglir_ops[i->op].name));
    char axes[SGLPLAN_AXES_ROOM];
    if (i->op == SGLIR_OP_FUSED) SGLCORE_TRY(sglcore_text_add(p->env, l->text, " kernel %u", i->kernel));
    if (sglir_is_exchange(i->op)) {
        sglplan_axes_text(sglexec_axes_of(p, i), axes, sizeof axes);
        SGLCORE_TRY(sglcore_text_add(p->env, l->text, " over %s", axes));
    }
    if (sglir_is_wait(i->op)) SGLCORE_TRY(sglcore_text_add(p->env, l->text, " for %u", i->begun));
    if (i->op == SGLIR_OP_SCAN) SGLCORE_TRY(sglcore_text_add(p->env, l->text, " %lld times", (long long)i->steps));
    if (i->op == SGLIR_OP_WHILE && i->steps >= 0)
        SGLCORE_TRY(sglcore_text_add(p->env, l->text, " at most %lld times", (long long)i->steps));
    for (uint32_t a = 0; a < i->arg_count + i->result_count; a++) {
        SGLCORE_TRY(sglcore_text_add(p->env, l->text, a == i->arg_count ? " -> " : " "));
        SGLCORE_TRY(print_operand(p->env, &p->operands.data[i->operand_first + a], l->text));
    }
    if (i->work_bytes) {
        SGLCORE_TRY(sglcore_text_add(p->env, l->text, " work %lld@arena+%lld", (long long)i->work_bytes,
                                     (long long)i->work_offset));
    }
    SGLCORE_TRY(sglexec_origin_print(p, i->origin, l->text));
    SGLCORE_TRY(sglcore_text_add(p->env, l->text, "\n"));
    if (!l->kernels || i->op != SGLIR_OP_FUSED || i->kernel != l->described) return SGL_OK;
    l->described++;
    return print_kernel(l, n, depth * 2 + 9);
}

/* Between two blocks of one instruction. */
static sgl_status print_word(listing *l, const char *word, int depth)
{
    return sglcore_text_add(l->p->env, l->text, "%*s       %s\n", depth * 2, "", word);
}

static sgl_status print_block(listing *l, uint32_t block, int depth)
{
    const sglexec_block b = l->p->blocks.data[block];
    for (uint32_t n = b.first; n < b.first + b.count; n++) {
        const sglexec_instruction *i = &l->p->instructions.data[n];
        SGLCORE_TRY(print_instruction(l, n, depth));
        if (i->op == SGLIR_OP_WHILE) { /* what decides, then the turn */
            SGLCORE_TRY(print_block(l, i->other, depth + 1));
            SGLCORE_TRY(print_word(l, "do", depth));
        }
        if (sglexec_is_control(i)) SGLCORE_TRY(print_block(l, i->block, depth + 1));
        if (i->op == SGLIR_OP_COND) {
            SGLCORE_TRY(print_word(l, "else", depth));
            SGLCORE_TRY(print_block(l, i->other, depth + 1));
        }
    }
    return SGL_OK;
}

static sgl_status print_ports(const sglexec_program *p, const char *word, const sglexec_port *ports, int64_t count,
                              sglcore_text *text)
{
    for (int64_t i = 0; i < count; i++) {
        SGLCORE_TRY(sglcore_text_add(p->env, text, "%s \"%s\" ", word, sglcore_string(p->strings, ports[i].name)));
        SGLCORE_TRY(print_operand(p->env, &ports[i].operand, text));
        SGLCORE_TRY(sglcore_text_add(p->env, text, "\n"));
    }
    return SGL_OK;
}

sgl_status sglexec_program_print(const sglexec_program *program, bool kernels, sglexec_source_fn source,
                                 sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(
        program->env, text,
        "program \"%s\": %lld instructions, %lld kernels, arena %lld, state %lld, io %lld, const %lld bytes\n",
        sglcore_string(program->strings, program->name), (long long)program->instructions.count,
        (long long)program->kernels.count, (long long)program->space_bytes[SGLIR_SPACE_ARENA],
        (long long)program->space_bytes[SGLIR_SPACE_STATE], (long long)program->space_bytes[SGLIR_SPACE_IO],
        (long long)program->space_bytes[SGLIR_SPACE_CONST]));
    if (program->space_bytes[SGLIR_SPACE_HOST] + program->space_bytes[SGLIR_SPACE_AWAY] > 0)
        SGLCORE_TRY(sglcore_text_add(program->env, text, "in memory of the host: host %lld, away %lld bytes\n",
                                     (long long)program->space_bytes[SGLIR_SPACE_HOST],
                                     (long long)program->space_bytes[SGLIR_SPACE_AWAY]));
    SGLCORE_TRY(print_ports(program, "feed", program->feeds.data, program->feeds.count, text));
    SGLCORE_TRY(print_ports(program, "fetch", program->fetches.data, program->fetches.count, text));
    SGLCORE_TRY(print_ports(program, "state", program->states.data, program->states.count, text));
    listing all = { .p = program, .text = text, .kernels = kernels, .source = source };
    return print_block(&all, 0, 0);
}

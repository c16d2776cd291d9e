/* profile.c -- where the time of a replay goes: per instruction the launches and their nanoseconds, told as JSON or text.
 *
 * Comes in: what replay measured (profile.h). Goes out: the costliest first. The text tells sums by kernel, since equal
 * instructions of many layers share one, and then the single instructions with their script lines. What exchanges cost is the
 * time in their waits, and in those that are waited for at once. The roof of an instruction is what it takes at least: its bytes
 * at the rate of a copy, or its arithmetic at the rate of a product, whichever is longer (Williams, Waterman, Patterson, "Roofline",
 * 2009). Odd invariant: a loop has no time of its own: what is in it has. */
#include <stdlib.h>
#include <string.h>

#include "exec/profile.h"
#include "ir/text.h"

enum { MOST_LAUNCHED = 1 << 18 };

/* In one replay of a block, as far as its loops tell, and no more than are kept. */
static int64_t launches_of(const sglexec_program *p, uint32_t block)
{
    const sglexec_block *b = &p->blocks.data[block];
    int64_t count = 0;
    for (uint32_t n = b->first; n < b->first + b->count && count < MOST_LAUNCHED; n++) {
        const sglexec_instruction *i = &p->instructions.data[n];
        if (!sglexec_is_control(i)) {
            count++;
            continue;
        }
        int64_t inside = launches_of(p, i->block);
        if (i->op != SGLIR_OP_SCAN) inside += launches_of(p, i->other);
        const int64_t turns = sglexec_turns(i) < MOST_LAUNCHED ? sglexec_turns(i) : MOST_LAUNCHED;
        count += inside * turns;
    }
    return count < MOST_LAUNCHED ? count : MOST_LAUNCHED;
}

sgl_status sglexec_profile_new(const sglexec_program *program, sglexec_profile **profile)
{
    sglcore_env *env = program->env;
    *profile = NULL;
    sglexec_profile *made = sglcore_alloc_zero(env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->program = program;
    made->bytes = (size_t)program->instructions.count * sizeof *made->spent;
    made->spent = sglcore_alloc_zero(env, made->bytes);
    made->launched_room = launches_of(program, 0);
    made->launched = sglcore_alloc(env, (size_t)made->launched_room * sizeof *made->launched);
    if ((!made->spent && made->bytes) || (!made->launched && made->launched_room)) {
        sglexec_profile_free(made);
        return SGL_OUT_OF_MEMORY;
    }
    *profile = made;
    return SGL_OK;
}

void sglexec_profile_free(sglexec_profile *profile)
{
    if (!profile) return;
    sglcore_env *env = profile->program->env;
    sglcore_free(env, profile->spent, profile->bytes);
    sglcore_free(env, profile->launched, (size_t)profile->launched_room * sizeof *profile->launched);
    sglcore_free(env, profile, sizeof *profile);
}

/* ---- the roof ----------------------------------------------------------------------------------------------------- */

/* The rate of its products: by what they multiply, the first float among the arguments. */
static double flops_per_s(const sglexec_program *p, const sglexec_instruction *i, const sglexec_ceilings *c)
{
    for (uint32_t a = 0; a < i->arg_count && i->op != SGLIR_OP_FUSED; a++) {
        const sgl_dtype dtype = (sgl_dtype)p->operands.data[i->operand_first + a].dtype;
        if (sglcore_dtype_is_float(dtype))
            return sglcore_dtype_bits(dtype) < 32 ? c->narrow_flops_per_s : c->flops_per_s;
    }
    return c->flops_per_s;
}

double sglexec_roof_s(const sglexec_program *program, const sglexec_instruction *i, const sglexec_ceilings *ceilings)
{
    const double rate = flops_per_s(program, i, ceilings);
    const double computing = rate > 0 ? i->flops / rate : 0;
    const double moving = ceilings->bytes_per_s > 0 ? i->bytes / ceilings->bytes_per_s : 0;
    if (sglexec_is_exposed(i->op)) return 0;
    return computing > moving ? computing : moving;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* An instruction, or all that run the same kernel or the same op on the same types. */
typedef struct row {
    uint32_t first; /* instruction */
    int64_t instructions, launches, ns;
    double flops, bytes; /* of all launches */
    double roof_s;       /* of all launches */
} row;

typedef SGLCORE_VEC(row) row_list;

static int costliest_first(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static bool same_types(const sglexec_program *p, const sglexec_instruction *a, const sglexec_instruction *b)
{
    if (a->arg_count != b->arg_count || a->result_count != b->result_count) return false;
    for (uint32_t i = 0; i < a->arg_count + a->result_count; i++) {
        const sglexec_operand *x = &p->operands.data[a->operand_first + i],
                              *y = &p->operands.data[b->operand_first + i];
        if (x->dtype != y->dtype || x->rank != y->rank || memcmp(x->dims, y->dims, x->rank * sizeof x->dims[0]) != 0)
            return false;
    }
    return true;
}

static bool same_work(const sglexec_program *p, uint32_t a, uint32_t b)
{
    const sglexec_instruction *x = &p->instructions.data[a], *y = &p->instructions.data[b];
    if (x->op != y->op) return false;
    return x->op == SGLIR_OP_FUSED ? x->kernel == y->kernel : same_types(p, x, y);
}

static row row_of(const sglexec_profile *profile, uint32_t n)
{
    const sglexec_instruction *i = &profile->program->instructions.data[n];
    const sglexec_spent *spent = &profile->spent[n];
    return (row){ .first = n,
                  .instructions = 1,
                  .launches = spent->launches,
                  .ns = spent->ns,
                  .flops = i->flops * (double)spent->launches,
                  .bytes = i->bytes * (double)spent->launches,
                  .roof_s = (double)spent->launches * sglexec_roof_s(profile->program, i, &profile->ceilings) };
}

/* grouped: equal work in one row. */
static sgl_status make_rows(const sglexec_profile *profile, bool grouped, row_list *rows)
{
    const sglexec_program *p = profile->program;
    for (int64_t n = 0; n < p->instructions.count; n++) {
        if (sglexec_is_control(&p->instructions.data[n])) continue;
        row made = row_of(profile, (uint32_t)n);
        int64_t at = grouped ? 0 : rows->count;
        while (at < rows->count && !same_work(p, rows->data[at].first, made.first)) at++;
        if (at == rows->count) {
            SGLCORE_TRY(sglcore_vec_push(p->env, rows, made));
            continue;
        }
        row *sum = &rows->data[at];
        sum->instructions++;
        sum->launches += made.launches;
        sum->ns += made.ns;
        sum->flops += made.flops;
        sum->bytes += made.bytes;
        sum->roof_s += made.roof_s;
    }
    if (rows->count) qsort(rows->data, (size_t)rows->count, sizeof *rows->data, costliest_first);
    return SGL_OK;
}

static int64_t total_ns(const sglexec_profile *profile)
{
    int64_t total = 0;
    for (int64_t n = 0; n < profile->program->instructions.count; n++) total += profile->spent[n].ns;
    return total;
}

/* What exchanges cost beyond what is computed meanwhile: to wait for them. */
static int64_t exposed_ns(const sglexec_profile *profile)
{
    int64_t total = 0;
    for (int64_t n = 0; n < profile->program->instructions.count; n++) {
        const uint16_t op = profile->program->instructions.data[n].op;
        if (sglexec_is_exposed(op)) total += profile->spent[n].ns;
    }
    return total;
}

static bool exchanges(const sglexec_program *p)
{
    for (int64_t n = 0; n < p->instructions.count; n++)
        if (sglir_is_begun(p->instructions.data[n].op)) return true;
    return false;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static sgl_status put_row(const sglexec_program *p, const row *r, sglcore_text *text)
{
    const sglexec_instruction *i = &p->instructions.data[r->first];
    SGLCORE_TRY(
        sglcore_text_add(p->env, text, "{\"number\":%u,\"op\":\"%s\",\"kernel\":", r->first, sglir_ops[i->op].name));
    SGLCORE_TRY(i->op == SGLIR_OP_FUSED ? sglcore_text_add(p->env, text, "%u", i->kernel)
                                        : sglcore_text_add(p->env, text, "null"));
    SGLCORE_TRY(sglcore_text_add(p->env, text,
                                 ",\"launches\":%lld,\"ms\":%.6f,\"flops\":%.17g,\"bytes\":%.17g,\"roof_ms\":%.6f,",
                                 (long long)r->launches, (double)r->ns / 1e6, i->flops, i->bytes, r->roof_s * 1e3));
    SGLCORE_TRY(sglexec_origin_json(p, i->origin, text));
    return sglcore_text_add(p->env, text, "}");
}

static sgl_status profile_json(const sglexec_profile *profile, const row_list *rows, sglcore_text *text)
{
    const sglexec_program *p = profile->program;
    SGLCORE_TRY(sglcore_text_add(p->env, text, "{\"program\":"));
    SGLCORE_TRY(sglcore_text_quote(p->env, text, sglcore_string(p->strings, p->name)));
    const sglexec_ceilings *c = &profile->ceilings;
    SGLCORE_TRY(sglcore_text_add(p->env, text,
                                 ",\"steps\":%lld,\"ms\":%.6f,\"exposed_ms\":%.6f,\n\"flops_per_s\":%.17g,"
                                 "\"narrow_flops_per_s\":%.17g,\"bytes_per_s\":%.17g,\n\"instructions\":[",
                                 (long long)profile->replays, (double)total_ns(profile) / 1e6,
                                 (double)exposed_ns(profile) / 1e6, c->flops_per_s, c->narrow_flops_per_s,
                                 c->bytes_per_s));
    for (int64_t i = 0; i < rows->count; i++) {
        if (i) SGLCORE_TRY(sglcore_text_add(p->env, text, ",\n"));
        SGLCORE_TRY(put_row(p, &rows->data[i], text));
    }
    SGLCORE_TRY(sglcore_text_add(p->env, text, "],\n"));
    SGLCORE_TRY(sglexec_kernels_json(p, text));
    return sglcore_text_add(p->env, text, "}\n");
}

sgl_status sglexec_profile_json(const sglexec_profile *profile, sglcore_text *text)
{
    row_list rows = { 0 };
    sgl_status status = make_rows(profile, false, &rows);
    if (status == SGL_OK) status = profile_json(profile, &rows, text);
    sglcore_vec_free(profile->program->env, &rows);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

enum { SHOWN = 20 };

/* In units of 1e9. */
static double per_second(double amount, int64_t ns) { return ns > 0 ? amount / (double)ns : 0; }

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static sgl_status print_figures(const sglexec_profile *profile, const row *r, sglcore_text *text)
{
    sglcore_env *env = profile->program->env;
    const double steps = (double)profile->replays, total = (double)total_ns(profile);
    SGLCORE_TRY(
        sglcore_text_add(env, text, "%12.3f %5.1f%% ", (double)r->ns / 1e6 / steps, share((double)r->ns, total)));
    SGLCORE_TRY(r->roof_s > 0 ? sglcore_text_add(env, text, "%5.1f%% ", share(r->roof_s, (double)r->ns / 1e9))
                              : sglcore_text_add(env, text, "%6s ", "-"));
    return sglcore_text_add(env, text, "%9.1f %9.1f %9.1f  ", (double)r->launches / steps, per_second(r->flops, r->ns),
                            per_second(r->bytes, r->ns));
}

sgl_status sglexec_work_label(const sglexec_program *p, const sglexec_instruction *i, sglcore_text *text)
{
    char type[SGLIR_TYPE_ROOM];
    const char *name = sglir_ops[i->op].name;
    if (i->op == SGLIR_OP_FUSED) return sglcore_text_add(p->env, text, "%s kernel %u", name, i->kernel);
    if (i->result_count == 0) return sglcore_text_add(p->env, text, "%s", name);
    const sglexec_operand *made = &p->operands.data[i->operand_first + i->arg_count];
    const sglir_type made_type = sglir_type_make((sgl_dtype)made->dtype, made->rank, made->dims);
    return sglcore_text_add(p->env, text, "%s %s", name, sglir_type_text(&made_type, type, sizeof type));
}

static sgl_status print_rows(const sglexec_profile *profile, bool grouped, const row_list *rows, sglcore_text *text)
{
    const sglexec_program *p = profile->program;
    SGLCORE_TRY(sglcore_text_add(p->env, text, "%12s %6s %6s %9s %9s %9s  %s\n", "ms a step", "share", "roof",
                                 "launches", "GFLOP/s", "GB/s",
                                 grouped ? "kernel, and how many instructions run it" : "instruction"));
    for (int64_t n = 0; n < rows->count && n < SHOWN; n++) {
        const row *r = &rows->data[n];
        SGLCORE_TRY(print_figures(profile, r, text));
        if (!grouped) SGLCORE_TRY(sglcore_text_add(p->env, text, "%5u  ", r->first));
        SGLCORE_TRY(sglexec_work_label(p, &p->instructions.data[r->first], text));
        SGLCORE_TRY(grouped ? sglcore_text_add(p->env, text, "  x %lld", (long long)r->instructions)
                            : sglexec_origin_print(p, p->instructions.data[r->first].origin, text));
        SGLCORE_TRY(sglcore_text_add(p->env, text, "\n"));
    }
    if (rows->count <= SHOWN) return SGL_OK;
    return sglcore_text_add(p->env, text, "%12s and %lld cheaper ones\n", "", (long long)rows->count - SHOWN);
}

static sgl_status print_table(const sglexec_profile *profile, bool grouped, sglcore_text *text)
{
    row_list rows = { 0 };
    sgl_status status = make_rows(profile, grouped, &rows);
    if (status == SGL_OK) status = print_rows(profile, grouped, &rows, text);
    sglcore_vec_free(profile->program->env, &rows);
    return status;
}

/* How near all of a step is to what it would take at the ceilings, each kernel by itself. */
static sgl_status print_ceilings(const sglexec_profile *profile, sglcore_text *text)
{
    const sglexec_program *p = profile->program;
    const sglexec_ceilings *c = &profile->ceilings;
    double roof_s = 0;
    for (int64_t n = 0; n < p->instructions.count; n++)
        roof_s += (double)profile->spent[n].launches * sglexec_roof_s(p, &p->instructions.data[n], c);
    if (roof_s == 0) return SGL_OK;
    return sglcore_text_add(
        p->env, text,
        "roof: %.3f ms a step, %.1f%% of it; products %.3g TFLOP/s in f32, %.3g in bf16, copies %.3g "
        "GB/s\n",
        roof_s * 1e3 / (double)profile->replays, share(roof_s, (double)total_ns(profile) / 1e9), c->flops_per_s / 1e12,
        c->narrow_flops_per_s / 1e12, c->bytes_per_s / 1e9);
}

sgl_status sglexec_profile_print(const sglexec_profile *profile, sglcore_text *text)
{
    const sglexec_program *p = profile->program;
    const char *name = sglcore_string(p->strings, p->name);
    if (profile->replays == 0)
        return sglcore_text_add(p->env, text, "profile of program \"%s\": no step was measured\n", name);
    SGLCORE_TRY(sglcore_text_add(p->env, text, "profile of program \"%s\": %lld steps, %.3f ms a step\n", name,
                                 (long long)profile->replays,
                                 (double)total_ns(profile) / 1e6 / (double)profile->replays));
    if (exchanges(p))
        SGLCORE_TRY(sglcore_text_add(p->env, text, "exposed communication: %.3f ms a step\n",
                                     (double)exposed_ns(profile) / 1e6 / (double)profile->replays));
    SGLCORE_TRY(print_ceilings(profile, text));
    SGLCORE_TRY(print_table(profile, true, text));
    return print_table(profile, false, text);
}

/* trace.c -- finds the first instruction that makes a NaN or an infinity out of numbers that are none. See trace.h.
 *
 * Comes in: what goes into an instruction, before it runs, and what came out. Goes out: a message for a person. All numbers are
 * read through the device's port, piece by piece. Odd invariant: of arguments only figures are kept (how many, least,
 * largest, mean), because their place may be written over by the results. */
#include <math.h>
#include <string.h>

#include "exec/device.h"
#include "ir/text.h"

enum { PIECE_BYTES = 1 << 16, TOLD_ARGUMENTS = 8 };

/* Of the elements of one operand. */
typedef struct figures {
    int64_t count, nans, infinities, first; /* first: row-major number of the first that is not finite */
    double least, largest, sum;             /* of the finite ones */
} figures;

struct sglexec_trace {
    const sglexec_program *program;
    char *piece;
    SGLCORE_VEC(figures) before; /* of the arguments of the instruction at hand; count 0: integers */
    sglcore_text text;
};

sgl_status sglexec_trace_new(const sglexec_program *program, sglexec_trace **trace)
{
    sglcore_env *env = program->env;
    *trace = NULL;
    sglexec_trace *made = sglcore_alloc_zero(env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->program = program;
    made->piece = sglcore_alloc(env, PIECE_BYTES);
    if (!made->piece) {
        sglcore_free(env, made, sizeof *made);
        return SGL_OUT_OF_MEMORY;
    }
    *trace = made;
    return SGL_OK;
}

void sglexec_trace_free(sglexec_trace *trace)
{
    if (!trace) return;
    sglcore_env *env = trace->program->env;
    sglcore_vec_free(env, &trace->before);
    sglcore_text_free(env, &trace->text);
    sglcore_free(env, trace->piece, PIECE_BYTES);
    sglcore_free(env, trace, sizeof *trace);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* A float of 1 + exponent_bits + digits bits, as IEEE 754 lays it; f8e4m3 has no infinities, and one NaN. */
static double narrow_value(uint32_t code, int exponent_bits, int digits, bool infinities)
{
    int bits = 1 + exponent_bits + digits, bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
    int exponent = (int)(code >> digits) & top;
    uint32_t fraction = code & ((1u << digits) - 1);
    double sign = code >> (bits - 1) & 1 ? -1 : 1;
    if (infinities && exponent == top) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (!infinities && exponent == top && fraction == (1u << digits) - 1) return (double)NAN;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - digits);
    return sign * ldexp((double)fraction + (double)(1u << digits), exponent - bias - digits);
}

static double number_at(const char *data, sgl_dtype dtype, int64_t i)
{
    union {
        double f64;
        float f32;
        uint16_t u16;
    } got;
    switch (dtype) {
    case SGL_F64: memcpy(&got.f64, data + 8 * i, 8); return got.f64;
    case SGL_F32: memcpy(&got.f32, data + 4 * i, 4); return (double)got.f32;
    case SGL_BF16: memcpy(&got.u16, data + 2 * i, 2); return narrow_value(got.u16, 8, 7, true);
    case SGL_F16: memcpy(&got.u16, data + 2 * i, 2); return narrow_value(got.u16, 5, 10, true);
    case SGL_F8E4M3: return narrow_value((unsigned char)data[i], 4, 3, false);
    default: return narrow_value((unsigned char)data[i], 5, 2, true);
    }
}

static void count_number(figures *f, double number)
{
    if (isfinite(number)) {
        f->least = number < f->least ? number : f->least;
        f->largest = number > f->largest ? number : f->largest;
        f->sum += number;
    } else {
        if (f->nans + f->infinities == 0) f->first = f->count;
        f->nans += isnan(number) != 0;
        f->infinities += isinf(number) != 0;
    }
    f->count++;
}

/* Figures of an operand; of one that holds no floats none. */
static sgl_status look(sglexec_trace *t, const sglexec_memory *m, const sglexec_operand *o, figures *f)
{
    sgl_dtype dtype = (sgl_dtype)o->dtype;
    *f = (figures){ .least = (double)INFINITY, .largest = -(double)INFINITY };
    if (!sglcore_dtype_is_float(dtype)) return SGL_OK;
    int64_t count = 1, size = sglcore_dtype_bytes(dtype, 1), piece = PIECE_BYTES / size;
    for (int i = 0; i < o->rank; i++) count *= o->dims[i];
    for (int64_t at = 0; at < count; at += piece) {
        int64_t now = count - at < piece ? count - at : piece;
        SGLCORE_TRY(m->ops->read(m->device, m->spaces[o->space], o->offset + at * size, t->piece, now * size));
        for (int64_t i = 0; i < now; i++) count_number(f, number_at(t->piece, dtype, i));
    }
    return SGL_OK;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

#define PUT(t, ...) SGLCORE_TRY(sglcore_text_add((t)->program->env, &(t)->text, __VA_ARGS__))

static void type_of(const sglexec_operand *o, sglir_type *type)
{
    *type = sglir_type_make((sgl_dtype)o->dtype, o->rank, o->dims);
}

/* "f32[4,8]" */
static sgl_status put_type(sglexec_trace *t, const sglexec_operand *o)
{
    char text[SGLIR_TYPE_ROOM];
    sglir_type type;
    type_of(o, &type);
    PUT(t, "%s", sglir_type_text(&type, text, sizeof text));
    return SGL_OK;
}

/* "3 NaN and 1 infinity of 32 numbers, the first at [0,5]" */
static sgl_status put_fault(sglexec_trace *t, const sglexec_operand *o, const figures *f)
{
    int64_t left = f->first, place[SGL_MAX_RANK];
    if (f->nans > 0) PUT(t, "%lld NaN", (long long)f->nans);
    if (f->nans > 0 && f->infinities > 0) PUT(t, " and ");
    if (f->infinities > 0) PUT(t, "%lld %s", (long long)f->infinities, f->infinities == 1 ? "infinity" : "infinities");
    PUT(t, " of %lld number%s", (long long)f->count, f->count == 1 ? "" : "s");
    for (int i = o->rank - 1; i >= 0; i--) {
        place[i] = left % o->dims[i];
        left /= o->dims[i];
    }
    if (o->rank > 0) PUT(t, ", the first at ");
    for (int i = 0; i < o->rank; i++) PUT(t, "%c%lld", i == 0 ? '[' : ',', (long long)place[i]);
    if (o->rank > 0) PUT(t, "]");
    return SGL_OK;
}

/* "f32[4,8] from -1.5 to 2 (mean 0.1)" */
static sgl_status put_figures(sglexec_trace *t, const sglexec_operand *o, const figures *f)
{
    int64_t finite = f->count - f->nans - f->infinities;
    SGLCORE_TRY(put_type(t, o));
    if (finite == 1) PUT(t, " = %g", f->least);
    if (finite > 1) PUT(t, " from %g to %g (mean %g)", f->least, f->largest, f->sum / (double)finite);
    if (f->nans + f->infinities == 0) return SGL_OK;
    PUT(t, ", with ");
    return put_fault(t, o, f);
}

/* "llama.lua:42: gradient of div" with the module path behind it. */
static sgl_status put_origin(sglexec_trace *t, const sglexec_instruction *i)
{
    const sglexec_program *p = t->program;
    const sglir_origin *origin = &p->origins.data[i->origin];
    const char *file = sglcore_string(p->strings, origin->file), *pass = sglcore_string(p->strings, origin->pass);
    const char *scope = sglcore_string(p->strings, origin->scope);
    if (file[0] != '\0' && origin->line > 0) PUT(t, "%s:%d: ", file, (int)origin->line);
    if (strcmp(pass, "autodiff") == 0) PUT(t, "gradient of this line: ");
    PUT(t, "%s", sglir_ops[i->op].name);
    if (scope[0] != '\0') PUT(t, " (in %s)", scope);
    if (pass[0] != '\0' && strcmp(pass, "autodiff") != 0) PUT(t, " (made by the pass %s)", pass);
    return SGL_OK;
}

static sgl_status fail(sglexec_trace *t) { return sglcore_fail(t->program->env, SGL_NOT_FINITE, "%s", t->text.data); }

static sgl_status fail_instruction(sglexec_trace *t, uint32_t n, uint32_t result, const figures *f)
{
    const sglexec_instruction *i = &t->program->instructions.data[n];
    const sglexec_operand *operands = &t->program->operands.data[i->operand_first];
    t->text.count = 0;
    SGLCORE_TRY(put_origin(t, i));
    PUT(t, " gives ");
    SGLCORE_TRY(put_type(t, &operands[i->arg_count + result]));
    PUT(t, " with ");
    SGLCORE_TRY(put_fault(t, &operands[i->arg_count + result], f));
    PUT(t, i->arg_count == 0 ? ", of no arguments" : "; what went in: ");
    for (uint32_t a = 0; a < i->arg_count && a < TOLD_ARGUMENTS; a++) {
        PUT(t, a == 0 ? "" : "; ");
        SGLCORE_TRY(put_figures(t, &operands[a], &t->before.data[a]));
    }
    if (i->arg_count > TOLD_ARGUMENTS) PUT(t, "; and %u more", i->arg_count - TOLD_ARGUMENTS);
    return fail(t);
}

/* ---- before and after ------------------------------------------------------------------------------------------- */

/* Infinities are data in a feed (a mask) or a state (a least value so far), in a parameter they are none. */
static sgl_status look_at_ports(sglexec_trace *t, const sglexec_memory *m, const sglexec_port *ports, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        figures f;
        SGLCORE_TRY(look(t, m, &ports[i].operand, &f));
        if (f.nans == 0 && (f.infinities == 0 || ports[i].role != SGL_PARAMETER)) continue;
        t->text.count = 0;
        PUT(t, "before the step: the %s %s is ", sglir_role_names[ports[i].role],
            sglcore_string(t->program->strings, ports[i].name));
        SGLCORE_TRY(put_figures(t, &ports[i].operand, &f));
        return fail(t);
    }
    return SGL_OK;
}

sgl_status sglexec_trace_begin(sglexec_trace *trace, const sglexec_memory *memory)
{
    const sglexec_program *p = trace->program;
    SGLCORE_TRY(look_at_ports(trace, memory, p->feeds.data, p->feeds.count));
    return look_at_ports(trace, memory, p->states.data, p->states.count);
}

sgl_status sglexec_trace_before(sglexec_trace *trace, const sglexec_memory *memory, uint32_t n)
{
    const sglexec_instruction *i = &trace->program->instructions.data[n];
    trace->before.count = 0;
    SGLCORE_TRY(sglcore_vec_reserve(trace->program->env, &trace->before, i->arg_count));
    for (uint32_t a = 0; a < i->arg_count; a++)
        SGLCORE_TRY(look(trace, memory, &trace->program->operands.data[i->operand_first + a], &trace->before.data[a]));
    trace->before.count = i->arg_count;
    return SGL_OK;
}

/* Where an infinity is what the op means. */
static bool may_be_infinite(const sglexec_program *p, const sglexec_instruction *i, uint32_t result)
{
    const sglexec_operand *x = &p->operands.data[i->operand_first];
    switch (i->op) {
    case SGLIR_OP_PAD:
    case SGLIR_OP_WINDOWS: return isinf(sglexec_attr_float(p, i, "value"));
    case SGLIR_OP_ATTENTION: return result == 1;
    case SGLIR_OP_LOGSUMEXP:
    case SGLIR_OP_REDUCE_MAX:
    case SGLIR_OP_REDUCE_MIN:
        for (int d = 0; d < x->rank; d++) {
            if (x->dims[d] == 0) return true;
        }
        return false;
    default: return false;
    }
}

sgl_status sglexec_trace_after(sglexec_trace *trace, const sglexec_memory *memory, uint32_t n)
{
    const sglexec_instruction *i = &trace->program->instructions.data[n];
    int64_t nans = 0, infinities = 0;
    for (uint32_t a = 0; a < i->arg_count; a++) {
        nans += trace->before.data[a].nans;
        infinities += trace->before.data[a].infinities;
    }
    for (uint32_t r = 0; r < i->result_count && nans == 0; r++) {
        figures f;
        SGLCORE_TRY(look(trace, memory, &trace->program->operands.data[i->operand_first + i->arg_count + r], &f));
        bool infinite = f.infinities > 0 && infinities == 0 && !may_be_infinite(trace->program, i, r);
        if (f.nans > 0 || infinite) return fail_instruction(trace, n, r, &f);
    }
    return SGL_OK;
}

/* cpu_case.h -- runs a graph on the CPU as it stands, node by node, and holds what comes out against the interpreter.
 *
 * In: a graph (composites whole, fused nodes through the kernel builder), values for its inputs. Every value gets a place
 * of its own, as far off alignment as its elements allow, in memory full of NaN; so no pass and no plan stands between an
 * op and its test. Each graph runs on one, two and three threads, which must give the same bits, and on every instruction
 * set of this machine. Out: a failed assertion of cmocka that names op, place and numbers. */
#ifndef CPU_CASE_H
#define CPU_CASE_H

#include "fault.h"

#include <math.h>
#include <stdio.h>

#include "backend/cpu/isa.h"
#include "backend/backend.h"
#include "tests/support/ir_case.h"

typedef struct cpu_options {
    double relative; /* of the largest number of a result, in f32; f64: 1e-13 or as given */
    double relative_f64;
    double ulps;     /* of floats narrower than 32 bits: units in the last place of the number itself */
    double absolute; /* besides, for results that cancel to nothing; f64: a billionth of it */
    void (*fill)(interp *in, const char *name,
                 interp_tensor *t); /* changes an input after its seeded values; may be NULL */
    sglir_id in_place_node;         /* its result 0 takes the place of argument in_place_arg; 0: none */
    int in_place_arg;
    bool one_variant; /* the best instruction set alone */
} cpu_options;

typedef struct cpu_case {
    sglcore_env env;
    sglir_graph *g;
    interp oracle;
    cpu_options options;
    sglexec_program program;
    int64_t *offsets; /* of each value, in the one space that all share */
    int64_t bytes;
    char *first; /* what the first run gave */
    char *memory;
} cpu_case;

enum { CPU_CASE_PAD = 64 };

static inline sglir_graph *cpu_graph(sglcore_env *env, const char *name)
{
    sglir_graph *g = NULL;
    assert_int_equal(sglir_graph_new(env, name, &g), SGL_OK);
    return g;
}

static inline sglir_id cpu_input(sglir_graph *g, const char *name, sgl_dtype dtype, int rank, const int64_t *dims)
{
    sglir_type type = sglir_type_make(dtype, rank, dims);
    return sglir_input(g, SGL_FEED, name, &type);
}

/* ---- a program by hand --------------------------------------------------------------------------------------- */

static inline void cpu_place(cpu_case *c, sglir_id value)
{
    const sglir_type *type = sglir_type_of(c->g, value);
    int64_t size = (sglcore_dtype_bits((sgl_dtype)type->dtype) + 7) / 8;
    c->offsets[value] = c->bytes + size; /* off every larger alignment */
    c->bytes = (c->offsets[value] + sglir_bytes(type) + 2 * CPU_CASE_PAD - 1) / CPU_CASE_PAD * CPU_CASE_PAD;
}

static inline void cpu_operand(cpu_case *c, sglir_id value)
{
    const sglir_type *type = sglir_type_of(c->g, value);
    sglexec_operand o = {
        .space = SGLIR_SPACE_ARENA, .dtype = type->dtype, .rank = type->rank, .offset = c->offsets[value]
    };
    memcpy(o.dims, type->dims, sizeof o.dims);
    assert_int_equal(sglcore_vec_push(&c->env, &c->program.operands, o), SGL_OK);
}

static inline void cpu_instruction(cpu_case *c, sglir_id id)
{
    const sglir_node *node = sglir_node_at(c->g, id);
    sglexec_instruction i = { .op = node->op,
                              .operand_first = (uint32_t)c->program.operands.count,
                              .arg_count = node->arg_count,
                              .result_count = node->out_count,
                              .attr_first = node->attr_first,
                              .attr_count = node->attr_count };
    for (uint32_t a = 0; a < node->arg_count; a++) cpu_operand(c, sglir_arg(c->g, node, a));
    for (uint32_t r = 0; r < node->out_count; r++) {
        cpu_place(c, node->out_first + r);
        if (r == 0 && id == c->options.in_place_node && id != 0) {
            c->offsets[node->out_first] = c->offsets[sglir_arg(c->g, node, (uint32_t)c->options.in_place_arg)];
        }
        cpu_operand(c, node->out_first + r);
    }
    i.work_bytes = sglexec_device_cpu.workspace(c->g, id);
    assert_true(i.work_bytes >= 0);
    i.work_offset = c->bytes;
    c->bytes += (i.work_bytes + CPU_CASE_PAD - 1) / CPU_CASE_PAD * CPU_CASE_PAD + CPU_CASE_PAD;
    if (node->op == SGLIR_OP_FUSED) {
        sglexec_kernel kernel;
        sgl_status status = sglexec_kernel_build(&c->env, c->g, id, &kernel);
        if (status != SGL_OK) fail_msg("the kernel was refused: %s", c->env.message);
        i.kernel = (uint32_t)c->program.kernels.count;
        assert_int_equal(sglcore_vec_push(&c->env, &c->program.kernels, kernel), SGL_OK);
    }
    assert_int_equal(sglcore_vec_push(&c->env, &c->program.instructions, i), SGL_OK);
}

static inline void cpu_program(cpu_case *c)
{
    c->program.env = &c->env;
    c->program.strings = c->g->strings; /* the attributes are named in them; they stay the graph's */
    c->offsets = calloc((size_t)c->g->values.count, sizeof *c->offsets);
    for (int64_t a = 0; a < c->g->attrs.count; a++) {
        assert_int_equal(sglcore_vec_push(&c->env, &c->program.attrs, c->g->attrs.data[a]), SGL_OK);
    }
    for (int64_t a = 0; a < c->g->ints.count; a++) {
        assert_int_equal(sglcore_vec_push(&c->env, &c->program.ints, c->g->ints.data[a]), SGL_OK);
    }
    for (int64_t a = 0; a < c->g->floats.count; a++) {
        assert_int_equal(sglcore_vec_push(&c->env, &c->program.floats, c->g->floats.data[a]), SGL_OK);
    }
    const sglir_region *top = &c->g->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        sglir_id id = top->nodes.data[n];
        const sglir_node *node = sglir_node_at(c->g, id);
        if (node->op == SGLIR_OP_INPUT)
            cpu_place(c, node->out_first);
        else
            cpu_instruction(c, id);
    }
    c->bytes += CPU_CASE_PAD;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Digits behind the point, and bias of the exponent, of a float narrower than 32 bits; 0 digits: it is none. */
static inline int cpu_digits(sgl_dtype dtype)
{
    return dtype == SGL_BF16 ? 7 : dtype == SGL_F16 ? 10 : dtype == SGL_F8E4M3 ? 3 : dtype == SGL_F8E5M2 ? 2 : 0;
}
static inline int cpu_bias(sgl_dtype dtype) { return dtype == SGL_BF16 ? 127 : dtype == SGL_F8E4M3 ? 7 : 15; }

/* What one in the last digit of a number near `value` is worth. */
static inline double cpu_ulp(sgl_dtype dtype, double value)
{
    int exponent = 0;
    if (value != 0 && isfinite(value)) frexp(value, &exponent);
    int least = 2 - cpu_bias(dtype); /* of the smallest normal number, as frexp has it */
    return ldexp(1, (value == 0 || exponent < least ? least : exponent) - 1 - cpu_digits(dtype));
}

/* The nearest code, ties to the even one. */
static inline unsigned cpu_code(sgl_dtype dtype, double value)
{
    int digits = cpu_digits(dtype), bits = sglcore_dtype_bits(dtype);
    unsigned sign = signbit(value) ? 1u << (bits - 1) : 0, top = dtype == SGL_F8E4M3 ? 0x7f : 0;
    unsigned above = top ? top : ((1u << (bits - 1 - digits)) - 1) << digits; /* infinity, or f8e4m3's NaN */
    if (isnan(value)) return above | 1u << (digits - 1) | top;
    double ulp = cpu_ulp(dtype, value), steps = nearbyint(fabs(value) / ulp);
    int exponent = ilogb(ulp) + digits + cpu_bias(dtype); /* biased; of subnormal numbers 1 */
    double code = isinf(value) ? above : steps + ldexp(exponent - 1, digits);
    if (code >= above) return top ? top : above | sign;
    return (unsigned)code | sign;
}

static inline double cpu_decoded(sgl_dtype dtype, unsigned code)
{
    int digits = cpu_digits(dtype), bits = sglcore_dtype_bits(dtype);
    unsigned magnitude = code & ((1u << (bits - 1)) - 1), fraction = magnitude & ((1u << digits) - 1);
    int exponent = (int)(magnitude >> digits), last = (1 << (bits - 1 - digits)) - 1;
    double value =
        ldexp(exponent ? fraction + (1u << digits) : fraction, (exponent ? exponent : 1) - cpu_bias(dtype) - digits);
    if (dtype == SGL_F8E4M3 ? magnitude == 0x7f : exponent == last) value = fraction ? NAN : INFINITY;
    return code >> (bits - 1) & 1 ? -value : value;
}

static inline void cpu_put(void *at, sgl_dtype dtype, const interp_tensor *t)
{
    for (int64_t e = 0; e < t->count; e++) {
        switch (dtype) {
        case SGL_BF16:
        case SGL_F16: ((uint16_t *)at)[e] = (uint16_t)cpu_code(dtype, t->floats[e]); break;
        case SGL_F8E4M3:
        case SGL_F8E5M2: ((uint8_t *)at)[e] = (uint8_t)cpu_code(dtype, t->floats[e]); break;
        case SGL_I4:
            if (e % 2 == 0) ((uint8_t *)at)[e / 2] = 0;
            ((uint8_t *)at)[e / 2] |= (uint8_t)((t->ints[e] & 15) << (e % 2 ? 4 : 0));
            break;
        case SGL_F64: ((double *)at)[e] = t->floats[e]; break;
        case SGL_F32: ((float *)at)[e] = (float)t->floats[e]; break;
        case SGL_I64: ((int64_t *)at)[e] = t->ints[e]; break;
        case SGL_I32: ((int32_t *)at)[e] = (int32_t)t->ints[e]; break;
        case SGL_I16: ((int16_t *)at)[e] = (int16_t)t->ints[e]; break;
        case SGL_U32: ((uint32_t *)at)[e] = (uint32_t)t->ints[e]; break;
        case SGL_U16: ((uint16_t *)at)[e] = (uint16_t)t->ints[e]; break;
        default: ((uint8_t *)at)[e] = (uint8_t)t->ints[e]; break;
        }
    }
}

static inline double cpu_get(const void *at, sgl_dtype dtype, int64_t e)
{
    switch (dtype) {
    case SGL_F64: return ((const double *)at)[e];
    case SGL_F32: return (double)((const float *)at)[e];
    case SGL_I64: return (double)((const int64_t *)at)[e];
    case SGL_I32: return ((const int32_t *)at)[e];
    case SGL_I16: return ((const int16_t *)at)[e];
    case SGL_I8: return ((const int8_t *)at)[e];
    case SGL_U32: return ((const uint32_t *)at)[e];
    case SGL_U16: return ((const uint16_t *)at)[e];
    case SGL_BF16:
    case SGL_F16: return cpu_decoded(dtype, ((const uint16_t *)at)[e]);
    case SGL_F8E4M3:
    case SGL_F8E5M2: return cpu_decoded(dtype, ((const uint8_t *)at)[e]);
    case SGL_I4: return ((((const uint8_t *)at)[e / 2] >> (e % 2 ? 4 : 0) & 15) ^ 8) - 8;
    default: return ((const uint8_t *)at)[e];
    }
}

/* Inputs as the dtype holds them, so that oracle and device begin with the same numbers. */
static inline void cpu_fill(cpu_case *c)
{
    ir_case_fill(&c->oracle, c->g, 7);
    for (int i = 0; i < c->oracle.input_count; i++) {
        interp_tensor *t = &c->oracle.inputs[i].tensor;
        if (c->options.fill != NULL) c->options.fill(&c->oracle, c->oracle.inputs[i].name, t);
        for (int64_t e = 0; t->dtype == SGL_F32 && e < t->count; e++) t->floats[e] = (double)(float)t->floats[e];
        for (int64_t e = 0; cpu_digits(t->dtype) && e < t->count; e++)
            t->floats[e] = cpu_decoded(t->dtype, cpu_code(t->dtype, t->floats[e]));
        for (int64_t e = 0; t->dtype == SGL_I4 && e < t->count; e++) t->ints[e] = ((t->ints[e] & 15) ^ 8) - 8;
    }
}

static inline void cpu_write_inputs(cpu_case *c)
{
    const sglir_region *top = &c->g->regions.data[0];
    memset(c->memory, 0xFF, (size_t)c->bytes);
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(c->g, top->nodes.data[n]);
        if (node->op != SGLIR_OP_INPUT) continue;
        const char *name = sglir_attr_string(c->g, node, "name");
        for (int i = 0; i < c->oracle.input_count; i++) {
            if (strcmp(c->oracle.inputs[i].name, name) != 0) continue;
            cpu_put(c->memory + c->offsets[node->out_first], (sgl_dtype)sglir_type_of(c->g, node->out_first)->dtype,
                    &c->oracle.inputs[i].tensor);
        }
    }
}

static inline void cpu_compare(const cpu_case *c, const char *isa)
{
    for (int64_t o = 0; o < c->g->outputs.count; o++) {
        const sglir_output *output = &c->g->outputs.data[o];
        const char *name = sglcore_string(c->g->strings, output->name);
        const interp_tensor *expected = interp_fetch(&c->oracle, name);
        assert_non_null(expected);
        sgl_dtype dtype = (sgl_dtype)sglir_type_of(c->g, output->value)->dtype;
        const char *at = c->memory + c->offsets[output->value];
        double besides = dtype == SGL_F64 ? 1e-9 * c->options.absolute : c->options.absolute;
        double largest = 0, allowed = dtype == SGL_F64   ? c->options.relative_f64
                                      : dtype == SGL_F32 ? c->options.relative
                                                         : 0;
        for (int64_t e = 0; e < expected->count; e++) {
            double value = fabs(interp_get(expected, e));
            if (isfinite(value) && value > largest) largest = value;
        }
        for (int64_t e = 0; e < expected->count; e++) {
            double want = interp_get(expected, e), got = cpu_get(at, dtype, e);
            if (cpu_digits(dtype)) besides = c->options.absolute + c->options.ulps * cpu_ulp(dtype, want);
            bool same = want == got || (isnan(want) && isnan(got)) || fabs(want - got) <= allowed * largest + besides;
            if (!same) {
                fail_msg("%s (%s): \"%s\"[%lld] is %.17g, expected %.17g, off by %.3g of the largest, %.3g",
                         sglcore_string(c->g->strings, c->g->name), isa, name, (long long)e, got, want,
                         fabs(want - got) / largest, largest);
            }
        }
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Results of all instructions but not their workspace: the same bits for any number of threads. */
static inline void cpu_same_bits(const cpu_case *c, int threads, const char *isa)
{
    for (int64_t o = 0; o < c->g->outputs.count; o++) {
        sglir_id value = c->g->outputs.data[o].value;
        size_t bytes = (size_t)sglir_bytes(sglir_type_of(c->g, value));
        if (memcmp(c->first + c->offsets[value], c->memory + c->offsets[value], bytes) != 0) {
            fail_msg("%s (%s): %d threads give other bits than one", sglcore_string(c->g->strings, c->g->name), isa,
                     threads);
        }
    }
}

static inline void cpu_run_once(cpu_case *c, int threads)
{
    const sglexec_device_ops *ops = &sglexec_device_cpu;
    sglexec_device *device;
    void *prepared;
    assert_int_equal(ops->open(&c->env, threads, &device), SGL_OK);
    if (ops->prepare(device, &c->program, &prepared) != SGL_OK) {
        fail_msg("%s: %s", sglcore_string(c->g->strings, c->g->name), c->env.message);
    }
    void *spaces[SGLIR_SPACES] = { c->memory, c->memory, c->memory, c->memory, c->memory };
    cpu_write_inputs(c);
    int64_t before = c->env.allocations;
    for (uint32_t i = 0; i < c->program.instructions.count; i++) {
        assert_int_equal(ops->launch(device, prepared, i, spaces), SGL_OK);
    }
    assert_int_equal(ops->finish(device), SGL_OK);
    assert_int_equal(c->env.allocations, before);
    ops->release(device, prepared);
    ops->close(device);
}

static inline void cpu_run_variants(cpu_case *c)
{
    for (int v = 0; sglcpu_isa_at(v) != NULL && (v == 0 || !c->options.one_variant); v++) {
        const char *isa = sglcpu_isa_at(v)->name;
        setenv("SGL_ISA", isa, 1);
        for (int threads = 1; threads <= 3; threads++) {
            cpu_run_once(c, threads);
            if (threads == 1) {
                cpu_compare(c, isa);
                memcpy(c->first, c->memory, (size_t)c->bytes);
            }
            cpu_same_bits(c, threads, isa);
        }
    }
    unsetenv("SGL_ISA");
}

/* Values, what the oracle makes of them, the program, and memory for it. */
static inline void cpu_prepare_case(cpu_case *c)
{
    cpu_fill(c);
    if (!interp_run(&c->oracle, c->g)) fail_msg("the interpreter: %s", c->oracle.error);
    cpu_program(c);
    c->first = malloc((size_t)c->bytes);
    c->memory = malloc((size_t)c->bytes);
}

static inline void cpu_free_case(cpu_case *c)
{
    free(c->first);
    free(c->memory);
    free(c->offsets);
    interp_free(&c->oracle);
    for (int64_t i = 0; i < c->program.kernels.count; i++) sglexec_kernel_free(&c->env, &c->program.kernels.data[i]);
    sglcore_vec_free(&c->env, &c->program.kernels);
    sglcore_vec_free(&c->env, &c->program.instructions);
    sglcore_vec_free(&c->env, &c->program.operands);
    sglcore_vec_free(&c->env, &c->program.attrs);
    sglcore_vec_free(&c->env, &c->program.ints);
    sglcore_vec_free(&c->env, &c->program.floats);
    assert_int_equal(c->env.bytes_in_use, 0);
    sglir_graph_free(c->g);
}

/* Runs and frees the graph, which must have fetches and no loops. */
static inline void cpu_check(sglir_graph *g, cpu_options options)
{
    cpu_case c = { .g = g, .options = options };
    if (g->status != SGL_OK) fail_msg("the graph is wrong: %s", g->env->message);
    if (c.options.relative == 0) c.options.relative = 1e-6;
    if (c.options.relative_f64 == 0) c.options.relative_f64 = 1e-13;
    sglcore_env_init(&c.env, NULL, NULL, NULL, NULL);
    for (int64_t v = 0; v < g->values.count; v++)
        c.oracle.round |= cpu_digits((sgl_dtype)g->values.data[v].type.dtype) != 0;
    cpu_prepare_case(&c);
    cpu_run_variants(&c);
    cpu_free_case(&c);
}

#endif

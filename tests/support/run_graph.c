/* run_graph.c -- passes one by one, freeze, replay, on the device that SGL_TESTS_DEVICE names. In and out: run_graph.h.
 *
 * Numbers of every dtype are put into and read from memory by the definition of the format, so that the library's own
 * conversions have an oracle. Four-bit integers lie two in a byte, the first in the lower half. */
#include "tests/support/run_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "wire.h"

/* ---- numbers in memory --------------------------------------------------------------------------------------- */

/* Sign, exponent and mantissa bits of the floats that C has no type for. e4m3 has no infinities. */
typedef struct small_float {
    int exponent_bits, mantissa_bits;
} small_float;

static bool small_float_of(sgl_dtype dtype, small_float *f)
{
    switch (dtype) {
    case SGL_BF16: *f = (small_float){ 8, 7 }; return true;
    case SGL_F16: *f = (small_float){ 5, 10 }; return true;
    case SGL_F8E4M3: *f = (small_float){ 4, 3 }; return true;
    case SGL_F8E5M2: *f = (small_float){ 5, 2 }; return true;
    default: return false;
    }
}

static double small_to_double(sgl_dtype dtype, small_float f, unsigned bits)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1, most = (1 << f.exponent_bits) - 1;
    int exponent = (int)(bits >> f.mantissa_bits) & most, mantissa = (int)bits & ((1 << f.mantissa_bits) - 1);
    double sign = bits >> (f.exponent_bits + f.mantissa_bits) & 1 ? -1 : 1;
    if (dtype == SGL_F8E4M3) {
        if (exponent == most && mantissa == 7) return NAN;
    } else if (exponent == most) {
        return mantissa == 0 ? sign * INFINITY : NAN;
    }
    double fraction = ldexp(mantissa, -f.mantissa_bits) + (exponent > 0);
    return sign * ldexp(fraction, (exponent > 0 ? exponent : 1) - bias);
}

/* The bits whose number is the value, which is one of the format's; NaN where it has none. */
static unsigned small_from_double(sgl_dtype dtype, small_float f, double value)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1, most = (1 << f.exponent_bits) - 1, power;
    unsigned sign = signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    unsigned not_a_number = (unsigned)most << f.mantissa_bits | ((1u << f.mantissa_bits) - 1);
    if (isnan(value) || (isinf(value) && dtype == SGL_F8E4M3)) return sign | not_a_number;
    if (isinf(value)) return sign | (unsigned)most << f.mantissa_bits;
    if (value == 0) return sign;
    frexp(value, &power);
    int exponent = power - 1 + bias;
    if (exponent < 1) return sign | (unsigned)ldexp(fabs(value), bias - 1 + f.mantissa_bits);
    double fraction = ldexp(fabs(value), f.mantissa_bits - (power - 1));
    return sign | (unsigned)exponent << f.mantissa_bits | ((unsigned)fraction & ((1u << f.mantissa_bits) - 1));
}

static void put_number(void *at, sgl_dtype dtype, int64_t e, const interp_tensor *t)
{
    small_float f;
    if (small_float_of(dtype, &f)) {
        unsigned bits = small_from_double(dtype, f, t->floats[e]);
        if (f.exponent_bits + f.mantissa_bits == 15)
            ((uint16_t *)at)[e] = (uint16_t)bits;
        else
            ((uint8_t *)at)[e] = (uint8_t)bits;
        return;
    }
    switch (dtype) {
    case SGL_F64: ((double *)at)[e] = t->floats[e]; break;
    case SGL_F32: ((float *)at)[e] = (float)t->floats[e]; break;
    case SGL_I64: ((int64_t *)at)[e] = t->ints[e]; break;
    case SGL_I32:
    case SGL_U32: ((uint32_t *)at)[e] = (uint32_t)t->ints[e]; break;
    case SGL_I16:
    case SGL_U16: ((uint16_t *)at)[e] = (uint16_t)t->ints[e]; break;
    case SGL_I4: {
        uint8_t *byte = (uint8_t *)at + e / 2, half = (uint8_t)(t->ints[e] & 15);
        *byte = (uint8_t)(e % 2 == 0 ? (*byte & 0xF0) | half : (*byte & 0x0F) | half << 4);
        break;
    }
    default: ((uint8_t *)at)[e] = (uint8_t)t->ints[e]; break;
    }
}

static void get_number(const void *at, sgl_dtype dtype, int64_t e, interp_tensor *t)
{
    small_float f;
    if (small_float_of(dtype, &f)) {
        bool wide = f.exponent_bits + f.mantissa_bits == 15;
        t->floats[e] = small_to_double(dtype, f, wide ? ((const uint16_t *)at)[e] : (unsigned)((const uint8_t *)at)[e]);
        return;
    }
    switch (dtype) {
    case SGL_F64: t->floats[e] = ((const double *)at)[e]; break;
    case SGL_F32: t->floats[e] = (double)((const float *)at)[e]; break;
    case SGL_I64: t->ints[e] = ((const int64_t *)at)[e]; break;
    case SGL_I32: t->ints[e] = ((const int32_t *)at)[e]; break;
    case SGL_U32: t->ints[e] = ((const uint32_t *)at)[e]; break;
    case SGL_I16: t->ints[e] = ((const int16_t *)at)[e]; break;
    case SGL_U16: t->ints[e] = ((const uint16_t *)at)[e]; break;
    case SGL_I8: t->ints[e] = ((const int8_t *)at)[e]; break;
    case SGL_I4: {
        int half = ((const uint8_t *)at)[e / 2] >> (e % 2 == 0 ? 0 : 4) & 15;
        t->ints[e] = half >= 8 ? half - 16 : half;
        break;
    }
    default: t->ints[e] = ((const uint8_t *)at)[e]; break;
    }
}

/* ---- compiled ------------------------------------------------------------------------------------------------- */

typedef struct runner {
    sglcore_env env;
    const sglexec_device_ops *ops;
    sglexec_device *device;
    sglir_graph *placed;
    sglexec_program *program;
    void *prepared;
    void *spaces[SGLIR_SPACES];
    int64_t space_bytes[SGLIR_SPACES];
} runner;

/* SGL_TESTS_DEVICE. One device of it stays open between graphs, since what opens first takes longest: a GPU's context. */
static sgl_status find_device(sglcore_env *env, const sglexec_device_ops **ops)
{
    static sglcore_env kept_env;
    static sglexec_device *kept;
    const char *name = getenv("SGL_TESTS_DEVICE");
    SGLCORE_TRY(sglwire_device_find(env, name != NULL ? name : "cpu", ops));
    if ((*ops)->host_memory || kept != NULL) return SGL_OK;
    sglcore_env_init(&kept_env, NULL, NULL, NULL, NULL);
    sgl_status status = (*ops)->open(&kept_env, 1, &kept);
    return status == SGL_OK ? SGL_OK : sglcore_fail(env, SGL_DEVICE, "%s", kept_env.message);
}

static const char *const optional_passes[] = { "simplify", "sections", "simplify-again", "recompute", "fuse",
                                               "schedule", NULL };

const char *run_optional_pass(int index) { return optional_passes[index]; }

/* The pipeline, pass by pass, whatever may be left out in sessions. */
static sgl_status run_each(runner *r, const sglpass_context *given, const run_options *options, uint32_t *changes)
{
    for (int i = 0; sglpass_pipeline[i].name != NULL; i++) {
        const sglpass *pass = &sglpass_pipeline[i];
        sglir_graph *next = NULL;
        bool changed = true;
        sglpass_context context = *given;
        context.changed = &changed;
        if (sglcore_list_has(options->without, pass->name)) continue;
        sgl_status status = pass->run(&context, r->placed, &next);
        sglir_graph_free(r->placed);
        r->placed = next;
        if (status != SGL_OK) return sglcore_fail_at(&r->env, status, "pass %s", pass->name);
        if (changed) *changes |= 1u << i;
        /* Later stages hold generators and movement to stand in fused regions. */
        bool whole = !sglcore_list_has(options->without, "fuse") || pass->stage < SGLIR_FUSED;
        status = sglir_verify(next, whole ? pass->stage : SGLIR_PER_RANK);
        if (status != SGL_OK) return sglcore_fail_at(&r->env, SGL_INTERNAL, "verified after %s", pass->name);
    }
    return SGL_OK;
}

static sgl_status run_pipeline(runner *r, const sglpass_context *context)
{
    sglir_graph *made = NULL;
    SGLCORE_TRY(sglpass_run(context, r->placed, NULL, &made));
    sglir_graph_free(r->placed);
    r->placed = made;
    return SGL_OK;
}

static sgl_status run_passes(runner *r, const sglir_graph *g, const run_options *options, uint32_t *changes)
{
    sglplan plan;
    sglplan_init(&plan);
    if (options->precision == SGL_BF16 || options->precision == SGL_F16) plan.precision = (uint8_t)options->precision;
    plan.scale = RUN_SCALE;
    plan.memory = options->memory;
    plan.offload = options->offload ? (1u << SGLPLAN_OFFLOAD_COUNT) - 1 : 0;
    plan.bucket = options->offload ? 1 : plan.bucket;
    plan.mesh[SGLIR_AXIS_MICRO] = options->micro > 0 ? options->micro : 1;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) plan.native[op] = r->ops->native((sglir_op)op);
    const sglpass_context context = { .env = &r->env,
                                      .plan = &plan,
                                      .workspace = r->ops->workspace,
                                      .computing = r->ops->computing,
                                      .give_back = options->marked_only || options->memory > 0 ? 0 : INT64_MAX };
    /* A graph of this env: what a pass frees was counted where it was asked for. */
    sglcore_text text = ir_case_print(g->env, g);
    sgl_status parsed = sglir_parse(&r->env, "case", text.data, strlen(text.data), &r->placed);
    sglcore_text_free(g->env, &text);
    SGLCORE_TRY(parsed);
    return options->memory > 0 ? run_pipeline(r, &context) : run_each(r, &context, options, changes);
}

/* Every byte of a block 0xFF: floats that are NaN. */
static sgl_status fill(runner *r, void *block, int64_t bytes)
{
    char piece[1 << 16];
    memset(piece, 0xFF, sizeof piece);
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof piece) {
        const int64_t left = bytes - at, now = left < (int64_t)sizeof piece ? left : (int64_t)sizeof piece;
        SGLCORE_TRY(r->ops->write(r->device, block, at, piece, now));
    }
    return SGL_OK;
}

static sgl_status make_ready(runner *r, const sglir_graph *g, const run_options *options, run_results *results)
{
    SGLCORE_TRY(find_device(&r->env, &r->ops));
    SGLCORE_TRY(r->ops->open(&r->env, options->threads > 0 ? options->threads : 1, &r->device));
    SGLCORE_TRY(run_passes(r, g, options, &results->changed));
    results->bytes = sglpass_bytes(r->placed);
    if (options->placed != NULL) options->placed(r->placed);
    SGLCORE_TRY(sglexec_freeze(&r->env, r->placed, &r->program));
    SGLCORE_TRY(r->ops->prepare(r->device, r->program, &r->prepared));
    if (r->ops->settle != NULL) SGLCORE_TRY(r->ops->settle(r->device, r->prepared));
    for (int space = 1; space < SGLIR_SPACES; space++) {
        int64_t bytes = r->space_bytes[space] = r->program->space_bytes[space];
        if (bytes == 0) continue;
        SGLCORE_TRY(r->ops->alloc(r->device, bytes, &r->spaces[space]));
        SGLCORE_TRY(fill(r, r->spaces[space], bytes));
    }
    if (r->program->constants.count == 0) return SGL_OK;
    return r->ops->write(r->device, r->spaces[SGLIR_SPACE_CONST], 0, r->program->constants.data,
                         r->program->constants.count);
}

/* A copy of the operand's bytes, freed by the caller; NULL when there are none or they cannot be had. */
static char *bytes_of(runner *r, const sglexec_operand *o, int64_t *bytes, sgl_status *status)
{
    int64_t count = 1;
    for (int d = 0; d < o->rank; d++) count *= o->dims[d];
    *bytes = sglcore_dtype_bytes((sgl_dtype)o->dtype, count);
    *status = SGL_OK;
    if (*bytes == 0) return NULL;
    char *copy = malloc((size_t)*bytes);
    *status = copy == NULL ? SGL_OUT_OF_MEMORY : r->ops->read(r->device, r->spaces[o->space], o->offset, copy, *bytes);
    if (*status == SGL_OK) return copy;
    free(copy);
    return NULL;
}

static sgl_status put_port(runner *r, const sglexec_port *port, const interp *inputs)
{
    const char *name = sglcore_string(r->program->strings, port->name);
    const sglexec_operand *o = &port->operand;
    for (int i = 0; i < inputs->input_count; i++) {
        const interp_tensor *t = &inputs->inputs[i].tensor;
        int64_t bytes;
        sgl_status status;
        if (strcmp(inputs->inputs[i].name, name) != 0) continue;
        char *copy = bytes_of(r, o, &bytes, &status);
        for (int64_t e = 0; copy != NULL && e < t->count; e++) put_number(copy, (sgl_dtype)o->dtype, e, t);
        if (copy != NULL) status = r->ops->write(r->device, r->spaces[o->space], o->offset, copy, bytes);
        free(copy);
        SGLCORE_TRY(status);
    }
    return SGL_OK;
}

static sgl_status take_port(runner *r, const sglexec_port *port, bool update, run_results *results)
{
    const sglexec_operand *o = &port->operand;
    int64_t bytes;
    sgl_status status;
    results->items = realloc(results->items, (size_t)(results->count + 1) * sizeof *results->items);
    run_result *item = &results->items[results->count++];
    *item = (run_result){ .update = update, .tensor = interp_tensor_new((sgl_dtype)o->dtype, o->rank, o->dims) };
    snprintf(item->name, sizeof item->name, "%s", sglcore_string(r->program->strings, port->name));
    char *copy = bytes_of(r, o, &bytes, &status);
    for (int64_t e = 0; copy != NULL && e < item->tensor.count; e++)
        get_number(copy, (sgl_dtype)o->dtype, e, &item->tensor);
    free(copy);
    return status;
}

static sgl_status put_ports(runner *r, const interp *inputs)
{
    for (int64_t i = 0; i < r->program->feeds.count; i++) SGLCORE_TRY(put_port(r, &r->program->feeds.data[i], inputs));
    for (int64_t i = 0; i < r->program->states.count; i++)
        SGLCORE_TRY(put_port(r, &r->program->states.data[i], inputs));
    return SGL_OK;
}

static sgl_status take_ports(runner *r, run_results *results)
{
    for (int64_t i = 0; i < r->program->fetches.count; i++)
        SGLCORE_TRY(take_port(r, &r->program->fetches.data[i], false, results));
    for (int64_t i = 0; i < r->program->states.count; i++)
        SGLCORE_TRY(take_port(r, &r->program->states.data[i], true, results));
    return SGL_OK;
}

static void close_runner(runner *r)
{
    if (r->prepared != NULL) r->ops->release(r->device, r->prepared);
    for (int space = 1; space < SGLIR_SPACES; space++) {
        if (r->spaces[space] != NULL) r->ops->free(r->device, r->spaces[space], r->space_bytes[space]);
    }
    sglexec_program_free(r->program);
    sglir_graph_free(r->placed);
    if (r->device != NULL) r->ops->close(r->device);
}

/* SGL_LOG=debug: what the library tells, such as where the time of a start goes, stands on stderr. */
static void tell(void *user, sgl_log_level level, const char *message)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", message);
}

run_outcome run_graph(const sglir_graph *g, run_options options, const interp *inputs, run_results *results,
                      ir_message *message)
{
    runner r = { 0 };
    if (options.without == NULL) options.without = "";
    *results = (run_results){ 0 };
    const char *log = getenv("SGL_LOG");
    sglcore_env_init(&r.env, NULL, NULL, log != NULL && strcmp(log, "debug") == 0 ? tell : NULL, NULL);
    sgl_status status = make_ready(&r, g, &options, results);
    if (status == SGL_OK) status = put_ports(&r, inputs);
    int64_t allocations = r.env.allocations;
    for (int step = 0; status == SGL_OK && step < (options.steps > 0 ? options.steps : 1); step++)
        status = sglexec_replay(&r.env, r.ops, r.device, r.prepared, r.program, r.spaces, NULL, NULL);
    if (status == SGL_OK && r.env.allocations != allocations)
        status = sglcore_fail(&r.env, SGL_INTERNAL, "the replay allocated");
    if (status == SGL_OK) status = take_ports(&r, results);
    snprintf(message->text, sizeof message->text, "%s", status == SGL_OK ? "" : r.env.message);
    close_runner(&r);
    if (r.env.bytes_in_use != 0) {
        snprintf(message->text, sizeof message->text, "%lld bytes are leaked", (long long)r.env.bytes_in_use);
        return RUN_FAILED;
    }
    return status == SGL_OK ? RUN_DONE : status == SGL_UNSUPPORTED ? RUN_UNSUPPORTED : RUN_FAILED;
}

const interp_tensor *run_result_of(const run_results *results, const char *name, bool update)
{
    for (int i = 0; i < results->count; i++) {
        if (results->items[i].update == update && strcmp(results->items[i].name, name) == 0)
            return &results->items[i].tensor;
    }
    return NULL;
}

void run_results_free(run_results *results)
{
    for (int i = 0; i < results->count; i++) interp_tensor_free(&results->items[i].tensor);
    free(results->items);
    *results = (run_results){ 0 };
}

/* test_golden.c -- the whole training curve of each golden model against PyTorch's, 50 steps: float64 within 1e-9
 * relative, float32 no further from the float64 curve than four times PyTorch's own float32, micro-batches as one batch,
 * and bf16 and fp16 no further than four times PyTorch's autocast (narrow.json, made by make_narrow.py).
 *
 * In: tests/golden/NAME.lua (the model, through the standard library) and NAME.json (numbers made by make_curves.py and
 * make_models.py). Weights, tokens and images come from the formulas of tests/golden/README.md. Everything goes through sgl.h, as a host does it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "sgl.h"

enum { STEPS = 50 };

/* ---- the formulas ------------------------------------------------------------------------------------------------------ */

static uint64_t splitmix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t fnv1a64(const char *text)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001B3u;
    return hash;
}

static double uniform(const char *name, int64_t i)
{
    return 2 * ((double)(splitmix64(fnv1a64(name) + (uint64_t)i) >> 11) * 0x1p-53) - 1;
}

static bool is_gain(const char *name)
{
    size_t length = strlen(name);
    return strstr(name, "norm") != NULL && length > 7 && strcmp(name + length - 7, ".weight") == 0;
}

static int64_t elements(const sgl_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->dims[i];
    return count;
}

/* ---- one run ------------------------------------------------------------------------------------------------------------- */

typedef struct run {
    sgl_vm *vm;
    sgl_job *job;
    sgl_plan *plan;
    sgl_session *session;
    sgl_program *train;
    json_t *golden;
    double loss[STEPS], grad_norm[STEPS], lr[STEPS];
} run;

static void check(const run *r, sgl_status status)
{
    if (status != SGL_OK) print_error("%s: %s\n", sgl_status_name(status), sgl_error_message(r->vm));
    assert_int_equal(status, SGL_OK);
}

static void write_parameters(run *r)
{
    const char *name;
    sgl_role role;
    sgl_type type;
    for (int i = 0; sgl_state_info(r->session, i, &name, &role, &type) == SGL_OK && name; i++) {
        if (role != SGL_PARAMETER) continue;
        int64_t count = elements(&type);
        size_t bytes = (size_t)count * (type.dtype == SGL_F64 ? 8 : 4);
        void *data = malloc(bytes);
        assert_non_null(data);
        for (int64_t k = 0; k < count; k++) {
            double value = (is_gain(name) ? 1.0 : 0.0) + 0.05 * uniform(name, k);
            if (type.dtype == SGL_F64)
                ((double *)data)[k] = value;
            else
                ((float *)data)[k] = (float)value;
        }
        const json_t *known = json_object_get(json_object_get(r->golden, "parameters"), name);
        assert_non_null(known); /* the library names its parameters as the golden model does */
        check(r, sgl_state_write(r->session, name, data, bytes));
        free(data);
    }
}

static int64_t configured(const run *r, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(r->golden, "config"), name));
}

static void feed_tokens(run *r, int64_t step)
{
    int64_t vocab = configured(r, "vocab"), seq = configured(r, "seq"), batch = configured(r, "batch");
    int32_t tokens[256], targets[256];
    assert_true(batch * seq <= 256);
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t t = 0; t < seq; t++) {
            uint64_t at = (uint64_t)(1000003 * step + 1009 * b + t);
            tokens[b * seq + t] = (int32_t)(splitmix64(at + 12345) % (uint64_t)vocab);
            targets[b * seq + t] = (int32_t)(splitmix64(at + 1 + 12345) % (uint64_t)vocab);
            if (splitmix64(777 + at) % 7 == 0) targets[b * seq + t] = -1;
        }
    }
    size_t bytes = (size_t)(batch * seq) * sizeof(int32_t);
    check(r, sgl_feed(r->train, "tokens", tokens, bytes));
    check(r, sgl_feed(r->train, "targets", targets, bytes));
}

static void feed_images(run *r, int64_t step)
{
    int64_t batch = configured(r, "batch"), side = configured(r, "image"), classes = configured(r, "classes"),
            count = batch * side * side * configured(r, "channels");
    float images[2048];
    int32_t labels[16];
    assert_true(count <= 2048 && batch <= 16);
    for (int64_t i = 0; i < count; i++)
        images[i] = (float)(splitmix64((uint64_t)(1000003 * step + i) + 12345) % 257) / 128 - 1;
    for (int64_t b = 0; b < batch; b++)
        labels[b] = (int32_t)(splitmix64((uint64_t)(777 + 1000003 * step + 1009 * b)) % (uint64_t)classes);
    check(r, sgl_feed(r->train, "images", images, (size_t)count * sizeof(float)));
    check(r, sgl_feed(r->train, "labels", labels, (size_t)batch * sizeof(int32_t)));
}

static void feed_batch(run *r, int64_t step)
{
    if (configured(r, "image"))
        feed_images(r, step);
    else
        feed_tokens(r, step);
    check(r, sgl_feed(r->train, "step", &(int64_t){ step + 1 }, sizeof(int64_t)));
}

static double fetch(run *r, const char *name)
{
    const char *has;
    sgl_type type;
    for (int i = 0; sgl_program_fetch(r->train, i, &has, &type) == SGL_OK && has; i++) {
        if (strcmp(has, name) != 0) continue;
        double wide = 0;
        float narrow = 0;
        bool is_wide = type.dtype == SGL_F64;
        check(r, sgl_fetch(r->train, name, is_wide ? (void *)&wide : (void *)&narrow, is_wide ? 8 : 4));
        return is_wide ? wide : (double)narrow;
    }
    fail_msg("there is no fetch %s", name);
    return 0;
}

/* What no optimizer learns, after the last step. */
static void compare_buffers(run *r)
{
    const char *name;
    json_t *wanted;
    json_object_foreach(json_object_get(r->golden, "buffers_last"), name, wanted)
    {
        double values[64];
        size_t count = json_array_size(wanted);
        assert_in_range(count, 1, 64);
        check(r, sgl_state_read(r->session, name, values, count * sizeof(double)));
        for (size_t i = 0; i < count; i++) {
            double number = json_number_value(json_array_get(wanted, i));
            if (!(fabs(values[i] - number) <= 1e-9 * fmax(fabs(number), 1e-2)))
                fail_msg("%s[%zu] is %.17g, not %.17g", name, i, values[i], number);
        }
    }
}

static void train(run *r, const char *name, const char *precision, const char *micro)
{
    char path[4096];
    sgl_graph *graph = NULL;
    const sgl_setting settings[] = { { "precision", precision }, { "micro", micro } };
    memset(r, 0, sizeof *r);
    snprintf(path, sizeof path, "%s/tests/golden/%s.json", getenv("ROOT"), name);
    json_error_t error;
    r->golden = json_load_file(path, 0, &error);
    assert_non_null(r->golden);
    snprintf(path, sizeof path, "%s/tests/golden/%s.lua", getenv("ROOT"), name);
    check(r, sgl_open(NULL, &r->vm));
    check(r, sgl_load_file(r->vm, path, settings, 2, &r->job));
    check(r, sgl_job_plan(r->job, &r->plan));
    check(r, sgl_job_graph(r->job, "train", &graph));
    check(r, sgl_session_new(r->vm, "cpu", &r->session));
    check(r, sgl_freeze(r->session, graph, r->plan, &r->train));
    write_parameters(r);
    for (int64_t s = 0; s < STEPS; s++) {
        feed_batch(r, s);
        check(r, sgl_step(r->train));
        r->loss[s] = fetch(r, "loss");
        r->grad_norm[s] = fetch(r, "grad_norm");
        r->lr[s] = fetch(r, "lr");
    }
    if (strcmp(precision, "fp64") == 0) compare_buffers(r);
    sgl_close(r->vm);
}

/* ---- comparisons ------------------------------------------------------------------------------------------------------------ */

static double number(const run *r, const char *precision, const char *what, int step)
{
    return json_real_value(json_array_get(json_object_get(json_object_get(r->golden, precision), what), (size_t)step));
}

static double distance(const run *r, const double *values, const char *what)
{
    double most = 0;
    for (int s = 0; s < STEPS; s++) {
        double wanted = number(r, "float64", what, s), apart = fabs(values[s] - wanted) / fabs(wanted);
        if (!(apart <= most)) most = apart; /* NaN counts as far */
    }
    return most;
}

static void compare_float64(const char *name, const char *micro)
{
    run r;
    train(&r, name, "fp64", micro);
    for (int s = 0; s < STEPS; s++) {
        double wanted = json_real_value(json_array_get(json_object_get(r.golden, "lr"), (size_t)s));
        assert_true(fabs(r.lr[s] - wanted) <= 1e-14 * wanted);
    }
    double loss = distance(&r, r.loss, "loss"), norm = distance(&r, r.grad_norm, "grad_norm");
    print_message("%s float64, %s micro-batch(es): loss within %.2e, gradient norm within %.2e of PyTorch\n", name,
                  micro, loss, norm);
    assert_true(loss <= 1e-9);
    assert_true(norm <= 1e-9);
    json_decref(r.golden);
}

static void compare_float32(const char *name)
{
    run r;
    train(&r, name, "fp32", "1");
    double bound = 4 * json_real_value(json_object_get(json_object_get(r.golden, "float32_distance"), "loss"));
    double loss = distance(&r, r.loss, "loss");
    print_message("%s float32: loss within %.2e of the float64 curve, the bound is %.2e\n", name, loss, bound);
    assert_true(loss <= bound);
    json_decref(r.golden);
}

static void compare_narrow(const char *name, const char *precision, const char *micro)
{
    run r;
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/golden/narrow.json", getenv("ROOT"));
    json_t *narrow = json_load_file(path, 0, &error);
    assert_non_null(narrow);
    train(&r, name, precision, micro);
    const json_t *theirs = json_object_get(json_object_get(narrow, name), precision);
    double bound = 4 * json_real_value(json_object_get(theirs, "loss"));
    double norm_bound = 4 * json_real_value(json_object_get(theirs, "grad_norm"));
    double loss = distance(&r, r.loss, "loss"), norm = distance(&r, r.grad_norm, "grad_norm");
    print_message(
        "%s %s, %s micro-batch(es): loss within %.2e, gradient norm within %.2e of the float64 curve, the bounds are "
        "%.2e and %.2e\n",
        name, precision, micro, loss, norm, bound, norm_bound);
    assert_true(loss <= bound);
    assert_true(norm <= norm_bound);
    assert_true(loss > 1e-7); /* or nothing was narrow */
    json_decref(narrow);
    json_decref(r.golden);
}

static void llama_narrow(void **state)
{
    (void)state;
    compare_narrow("llama", "bf16", "1");
    compare_narrow("llama", "fp16", "1");
    compare_narrow("llama", "fp16", "2");
}

static void gpt2_narrow(void **state)
{
    (void)state;
    compare_narrow("gpt2", "bf16", "5");
    compare_narrow("gpt2", "fp16", "1");
}

static void llama_float64(void **state)
{
    (void)state;
    compare_float64("llama", "1");
}

static void gpt2_float64(void **state)
{
    (void)state;
    compare_float64("gpt2", "1");
}

static void variants_float64(void **state)
{
    (void)state;
    compare_float64("variants", "1");
}

static void variants_micro(void **state)
{
    (void)state;
    compare_float64("variants", "2");
}

static void variants_float32(void **state)
{
    (void)state;
    compare_float32("variants");
}

static void llama_micro(void **state)
{
    (void)state;
    compare_float64("llama", "2");
    compare_float64("llama", "4");
}

static void gpt2_micro(void **state)
{
    (void)state;
    compare_float64("gpt2", "5");
}

static void llama_float32(void **state)
{
    (void)state;
    compare_float32("llama");
}

static void gpt2_float32(void **state)
{
    (void)state;
    compare_float32("gpt2");
}

static void convnet_float64(void **state)
{
    (void)state;
    compare_float64("convnet", "1");
    compare_float64("convnet", "3"); /* each batch_norm waits for the whole batch */
}

static void vit_float64(void **state)
{
    (void)state;
    compare_float64("vit", "1");
    compare_float64("vit", "2");
}

static void layers_float64(void **state)
{
    (void)state;
    compare_float64("layers", "1");
    compare_float64("layers", "3"); /* micro-batches of the two samples of a ghost batch */
}

static void moe_float64(void **state)
{
    (void)state;
    compare_float64("moe", "1");
    compare_float64("moe", "2");
}

static void recurrent_float64(void **state)
{
    (void)state;
    compare_float64("recurrent", "1");
    compare_float64("recurrent", "2");
}

static void models_float32(void **state)
{
    (void)state;
    compare_float32("convnet");
    compare_float32("vit");
    compare_float32("layers");
    compare_float32("moe");
    compare_float32("recurrent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_float64),    cmocka_unit_test(gpt2_float64),      cmocka_unit_test(llama_micro),
        cmocka_unit_test(gpt2_micro),       cmocka_unit_test(llama_float32),     cmocka_unit_test(gpt2_float32),
        cmocka_unit_test(variants_float64), cmocka_unit_test(variants_micro),    cmocka_unit_test(variants_float32),
        cmocka_unit_test(convnet_float64),  cmocka_unit_test(vit_float64),       cmocka_unit_test(layers_float64),
        cmocka_unit_test(moe_float64),      cmocka_unit_test(recurrent_float64), cmocka_unit_test(models_float32),
        cmocka_unit_test(llama_narrow),     cmocka_unit_test(gpt2_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

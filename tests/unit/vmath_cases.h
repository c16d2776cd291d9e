/*
 * vmath_cases.h -- the tests of backend/cpu/vmath.h for the instruction set that the including file is compiled for.
 *
 * In: nothing but SGL_VMATH_FULL in the environment, which makes the sweep visit each of the 2^32 floats in place of
 * every 1009th (some ten minutes a variant). Out: vmath_tests, for the main of test_vmath.c and of its siblings, and
 * the largest error of each function on standard output.
 * Odd invariant: gcc vectorises the loops here in every build type, since a test of vector bodies that were compiled
 * as scalars would show nothing.
 */
#ifndef SGL_TESTS_UNIT_VMATH_CASES_H
#define SGL_TESTS_UNIT_VMATH_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if !defined(__clang__)
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#endif
#include "backend/cpu/vmath.h"

typedef struct vmath_case {
    const char *name;
    void (*f32)(float *out, const float *in, int64_t count);
    void (*f64)(double *out, const double *in, int64_t count);
    double (*reference)(double x);
    double (*floor)(double x); /* errors are counted in ulps of the result, or of this where it is larger */
    double ulps;               /* the bound */
} vmath_case;

static double sigmoid_reference(double x) { return 1.0 / (1.0 + exp(-x)); }
static double silu_reference(double x) { return x / (1.0 + exp(-x)); }

/* u of gelu_tanh(x) = x/2 (1 + tanh(u)) = x / (1 + exp(-2u)); the second form does not cancel on the left. */
static double gelu_tanh_inner(double x) { return sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x); }
static double gelu_tanh_reference(double x) { return x / (1.0 + exp(-2.0 * gelu_tanh_inner(x))); }

static double no_floor(double x)
{
    (void)x;
    return 0.0;
}

/* x exp(x) far on the left: exp(x) is subnormal there and has few digits. */
static double silu_floor(double x) { return x < -80.0 ? 0x1p-121 : 0.0; }

/* Far on the left an error of 2u counts 2u times over; what is left there is small beside x. */
static double gelu_tanh_floor(double x) { return x < 0.0 ? -x / 8.0 : 0.0; }

/* clang-format off */
#define VMATH_CASE(name, reference, floor, ulps) \
    { #name, sglcpu_##name##_f32, sglcpu_##name##_f64, reference, floor, ulps }

static const vmath_case vmath_all[] = {
    VMATH_CASE(exp, exp, no_floor, SGLCPU_VMATH_HAS_FMA ? 1.0 : 1.25),
    VMATH_CASE(expm1, expm1, no_floor, 2.0),
    VMATH_CASE(log, log, no_floor, 1.0),
    VMATH_CASE(log1p, log1p, no_floor, 2.0),
    VMATH_CASE(tanh, tanh, no_floor, 2.0),
    VMATH_CASE(erf, erf, no_floor, 2.0),
    VMATH_CASE(sin, sin, no_floor, 2.0),
    VMATH_CASE(cos, cos, no_floor, 2.0),
    VMATH_CASE(sigmoid, sigmoid_reference, no_floor, 2.75),
    VMATH_CASE(silu, silu_reference, silu_floor, 4.0),
    VMATH_CASE(gelu_tanh, gelu_tanh_reference, gelu_tanh_floor, 4.0),
};
/* clang-format on */
enum { VMATH_CASES = sizeof vmath_all / sizeof vmath_all[0] };

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* One unit in the last place of a float of this size. */
static double ulp_at(double value)
{
    int exponent;
    frexp(fmax(fabs(value), 0x1p-126), &exponent);
    return ldexp(1.0, exponent - 24);
}

/* The error of got in ulps; infinite where got is another kind of number than the reference. */
static double error_in_ulps(const vmath_case *function, float x, float got)
{
    const double reference = function->reference(x);
    if (isnan(reference) || isnan(got)) return isnan(reference) && isnan(got) ? 0.0 : INFINITY;
    if (isinf((float)reference) && got == (float)reference) return 0.0;
    if (isinf(reference)) return INFINITY;
    if (reference == 0.0) return got == 0.0f && !signbit(got) == !signbit(reference) ? 0.0 : INFINITY;
    /* an infinity stands for 2^128, the number to which the last finite float rounds up */
    const double value = isinf(got) ? copysign(0x1p128, got) : (double)got;
    const double scale = fmax(fabs(reference), function->floor(x));
    return fabs(value - reference) / ulp_at(fmin(scale, 0x1.fffffep127));
}

/* ---- every float, or every 1009th ---------------------------------------------------------------------------- */

/* Whether the function keeps its bound. */
static bool sweep(const vmath_case *function, uint64_t step)
{
    enum { BATCH = 4099 };
    static float in[BATCH], out[BATCH];
    double worst = 0.0;
    float worst_at = 0.0f;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
        int64_t count = 0;
        for (; count < BATCH && bits < UINT64_C(1) << 32; bits += step) in[count++] = float_of((uint32_t)bits);
        function->f32(out, in, count);
        for (int64_t i = 0; i < count; i++) {
            const double error = error_in_ulps(function, in[i], out[i]);
            if (error <= worst) continue;
            worst = error;
            worst_at = in[i];
        }
    }
    print_message("%-10s at most %.3f ulp, at %a (bound %.2f)\n", function->name, worst, (double)worst_at,
                  function->ulps);
    return worst <= function->ulps;
}

static void test_sweep(void **state)
{
    (void)state;
    const uint64_t step = getenv("SGL_VMATH_FULL") ? 1 : 1009;
    int beyond = 0;
    for (int i = 0; i < VMATH_CASES; i++) beyond += !sweep(&vmath_all[i], step);
    assert_int_equal(beyond, 0);
}

/* ---- special and hard values --------------------------------------------------------------------------------- */

/* Bit patterns, a row or two per subject; each is tried with both signs. */
/* clang-format off */
static const uint32_t special_bits[] = {
    /* zero, subnormals, the least normal; the largest, inf, two quiet nans */
    0x00000000, 0x00000001, 0x00000002, 0x00012345, 0x007fffff, 0x00800000, 0x00800001,
    0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7fc12345,
    /* 1 and sqrt(1/2), the seams of log */
    0x3f800000, 0x3f7fffff, 0x3f800001, 0x3f3504f3, 0x3f3504f4,
    /* where exp over- and underflows */
    0x42b17217, 0x42b17218, 0x42b17219, 0x42aeac50, 0x42cff1b4, 0x42cff1b5, 0x42d00000,
    /* ln(2)/2; the seam and the clamp of tanh, those of erf */
    0x3eb17218, 0x3eb17219, 0x3f0ccccc, 0x3f0ccccd, 0x411021fb, 0x41140000, 0x41140001,
    0x3f6b851e, 0x3f6b851f, 0x407ae147, 0x407fffff, 0x40800000,
    /* multiples of pi/4; where sin and cos change their path, without and with fma; what is closest to k pi/2 */
    0x3f490fda, 0x3f490fdb, 0x3fc90fda, 0x3fc90fdb, 0x40490fdb, 0x40c90fdb,
    0x45c7ffff, 0x45c80000, 0x45c80001, 0x47c34fff, 0x47c35000, 0x47c35001,
    0x474d246f, 0x4c2332e9, 0x50a3e87f, 0x6f79be45, 0x77584625, 0x7ebdcda0,
};
/* clang-format on */
enum { SPECIALS = 2 * sizeof special_bits / sizeof special_bits[0] };

static void fill_specials(float *out)
{
    for (int i = 0; i < SPECIALS; i++) out[i] = float_of(special_bits[i / 2] | (i & 1 ? 0x80000000u : 0));
}

static void test_special_values(void **state)
{
    (void)state;
    float in[SPECIALS], out[SPECIALS];
    fill_specials(in);
    for (int i = 0; i < VMATH_CASES; i++) {
        vmath_all[i].f32(out, in, SPECIALS);
        for (int k = 0; k < SPECIALS; k++) {
            const double error = error_in_ulps(&vmath_all[i], in[k], out[k]);
            if (!(error <= vmath_all[i].ulps)) {
                fail_msg("%s(%a) = %a, %g ulp off", vmath_all[i].name, (double)in[k], (double)out[k], error);
            }
        }
    }
}

/* What the bounds above would let pass by a bit. */
static void test_exact_values(void **state)
{
    (void)state;
    static const struct {
        void (*function)(float *out, const float *in, int64_t count);
        float in, out;
    } exact[] = {
        { sglcpu_exp_f32, 0.0f, 1.0f },          { sglcpu_exp_f32, -0.0f, 1.0f },
        { sglcpu_exp_f32, -104.0f, 0.0f },       { sglcpu_exp_f32, -1e30f, 0.0f },
        { sglcpu_exp_f32, 89.0f, INFINITY },     { sglcpu_log_f32, 1.0f, 0.0f },
        { sglcpu_log_f32, -0.0f, -INFINITY },    { sglcpu_tanh_f32, 1e30f, 1.0f },
        { sglcpu_expm1_f32, -0.0f, -0.0f },      { sglcpu_expm1_f32, 1e-40f, 1e-40f },
        { sglcpu_expm1_f32, -1e30f, -1.0f },     { sglcpu_expm1_f32, 89.0f, INFINITY },
        { sglcpu_log1p_f32, -0.0f, -0.0f },      { sglcpu_log1p_f32, -1e-40f, -1e-40f },
        { sglcpu_log1p_f32, -1.0f, -INFINITY },  { sglcpu_log1p_f32, INFINITY, INFINITY },
        { sglcpu_tanh_f32, -0.0f, -0.0f },       { sglcpu_tanh_f32, 1e-40f, 1e-40f },
        { sglcpu_erf_f32, -1e30f, -1.0f },       { sglcpu_erf_f32, -0.0f, -0.0f },
        { sglcpu_sin_f32, -0.0f, -0.0f },        { sglcpu_sin_f32, 1e-40f, 1e-40f },
        { sglcpu_cos_f32, -0.0f, 1.0f },         { sglcpu_sigmoid_f32, 0.0f, 0.5f },
        { sglcpu_sigmoid_f32, 40.0f, 1.0f },     { sglcpu_silu_f32, -0.0f, -0.0f },
        { sglcpu_silu_f32, 1e30f, 1e30f },       { sglcpu_silu_f32, -1e30f, -0.0f },
        { sglcpu_gelu_tanh_f32, 9.0f, 9.0f },    { sglcpu_gelu_tanh_f32, 1e30f, 1e30f },
        { sglcpu_gelu_tanh_f32, -1e30f, -0.0f },
    };
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        float out;
        exact[i].function(&out, &exact[i].in, 1);
        if (bits_of(out) != bits_of(exact[i].out)) {
            fail_msg("row %zu: f(%a) = %a, not %a", i, (double)exact[i].in, (double)out, (double)exact[i].out);
        }
    }
}

/* ---- an element's result depends on nothing but the element --------------------------------------------------- */

enum { LENGTHS = 150, MARGIN = 16 };
_Static_assert(SPECIALS <= LENGTHS + MARGIN, "the special values fit");

/* Each element's bits by itself, which is the scalar tail's work. */
static void one_by_one(const vmath_case *function, const float *in, uint32_t *bits)
{
    for (int i = 0; i < LENGTHS + MARGIN; i++) {
        float out;
        function->f32(&out, &in[i], 1);
        bits[i] = bits_of(out);
    }
}

static void check_position(const vmath_case *function, const float *in, const uint32_t *alone, int start, int length,
                           bool in_place)
{
    float out[LENGTHS + 2 * MARGIN];
    for (int i = 0; i < LENGTHS + 2 * MARGIN; i++) out[i] = 12345.0f;
    float *first = out + start;
    if (in_place) memcpy(first, in + start, (size_t)length * sizeof *in);
    function->f32(first, in_place ? first : in + start, length);
    for (int i = 0; i < LENGTHS + 2 * MARGIN; i++) {
        const bool inside = i >= start && i < start + length;
        const uint32_t expected = inside ? alone[i] : bits_of(12345.0f);
        if (bits_of(out[i]) != expected) {
            fail_msg("%s: element %d of [%d, %d) has the bits %08x, alone %08x", function->name, i, start,
                     start + length, (unsigned)bits_of(out[i]), (unsigned)expected);
        }
    }
}

/* far: with inf, nan and huge arguments, which also send sin and cos off their vector loop. */
static void check_positions(const vmath_case *function, bool far)
{
    float in[LENGTHS + MARGIN];
    uint32_t alone[LENGTHS + MARGIN], random = 12345;
    fill_specials(in);
    for (int i = 0; i < LENGTHS + MARGIN; i++) {
        random = random * 1664525u + 1013904223u;
        const float ordinary = ((float)(random >> 8) * 0x1p-24f - 0.5f) * 40.0f;
        if (i >= SPECIALS || (!far && !(fabsf(in[i]) < 6000.0f))) in[i] = ordinary;
    }
    one_by_one(function, in, alone);
    for (int start = 0; start < MARGIN; start++) {
        for (int length = 0; length <= LENGTHS; length++) {
            check_position(function, in, alone, start, length, false);
            check_position(function, in, alone, start, length, true);
        }
    }
}

static void test_position_and_length_do_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < VMATH_CASES; i++) {
        check_positions(&vmath_all[i], false);
        check_positions(&vmath_all[i], true);
    }
}

/* A far argument changes the path of its block of sin and cos, and of no other element's bits. */
static void test_far_neighbours_do_not_matter(void **state)
{
    (void)state;
    enum { COUNT = 3 * SGLCPU_VMATH_TRIG_BLOCK + 5 };
    static float near[COUNT], mixed[COUNT], out_near[COUNT], out_mixed[COUNT];
    for (int i = 0; i < COUNT; i++) near[i] = mixed[i] = (float)(i - COUNT / 2) * 3.7f;
    for (int i = 7; i < COUNT; i += 2 * SGLCPU_VMATH_TRIG_BLOCK) mixed[i] = i & 1 ? 1e20f : INFINITY;
    for (int k = 0; k < 2; k++) {
        void (*function)(float *, const float *, int64_t) = k ? sglcpu_sin_f32 : sglcpu_cos_f32;
        function(out_near, near, COUNT);
        function(out_mixed, mixed, COUNT);
        for (int i = 0; i < COUNT; i++) {
            if (mixed[i] == near[i]) assert_int_equal(bits_of(out_near[i]), bits_of(out_mixed[i]));
        }
    }
}

/* ---- float64 -------------------------------------------------------------------------------------------------- */

static void test_f64(void **state)
{
    (void)state;
    for (double x = -8.0; x < 8.0; x += 0.00137) {
        double out;
        for (int i = 0; i < VMATH_CASES; i++) {
            vmath_all[i].f64(&out, &x, 1);
            const double reference = vmath_all[i].reference(x);
            /* where float32 has a floor, float64 needs as many more ulps */
            const double tolerance = (vmath_all[i].floor(x) > 0.0 ? 0x1p-45 : 0x1p-50) * fabs(reference);
            if (isnan(reference) ? !isnan(out) : !(fabs(out - reference) <= tolerance)) {
                fail_msg("%s_f64(%.17g) = %.17g, not %.17g", vmath_all[i].name, x, out, reference);
            }
        }
        sglcpu_gelu_tanh_f64(&out, &x, 1);
        assert_true(fabs(out - 0.5 * x * (1.0 + tanh(gelu_tanh_inner(x)))) <= 0x1p-51 * fabs(x));
    }
    const double edges[] = { -INFINITY, -1e300, -0.0, 0.0, 1e300, INFINITY, NAN };
    for (size_t k = 0; k < sizeof edges / sizeof edges[0]; k++) {
        double out;
        sglcpu_sigmoid_f64(&out, &edges[k], 1);
        assert_true(isnan(edges[k]) ? isnan(out) : out == sigmoid_reference(edges[k]));
        sglcpu_gelu_tanh_f64(&out, &edges[k], 1);
        assert_true(isnan(edges[k]) || edges[k] == -INFINITY ? isnan(out) : out == fmax(edges[k], 0.0));
        sglcpu_silu_f64(&out, &edges[k], 1);
        assert_true(isnan(edges[k]) || edges[k] == -INFINITY ? isnan(out) : out == fmax(edges[k], 0.0));
    }
}

static const struct CMUnitTest vmath_tests[] = {
    cmocka_unit_test(test_sweep),
    cmocka_unit_test(test_special_values),
    cmocka_unit_test(test_exact_values),
    cmocka_unit_test(test_position_and_length_do_not_matter),
    cmocka_unit_test(test_far_neighbours_do_not_matter),
    cmocka_unit_test(test_f64),
};

#endif

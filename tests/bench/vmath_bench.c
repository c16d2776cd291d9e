/*
 * vmath_bench.c -- nanoseconds per float of each function of backend/cpu/vmath.h, in L1, one thread.
 * In: nothing; built by hand from the repository's root with the flags of cmake/isa.cmake, for instance
 *   cc -std=c11 -D_GNU_SOURCE -I. -O3 -fno-math-errno -fno-trapping-math -mavx2 -mfma tests/bench/vmath_bench.c -lm
 * Out: one line per function, the best and the median of many short runs: clocks change while one measures, so compare
 * lines of one run only.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cpu/vmath.h"

enum { COUNT = 1024, CALLS = 32, RUNS = 501 };

typedef void vmath_function(float *out, const float *in, int64_t count);

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, vmath_function *volatile function, float low, float high)
{
    static float in[COUNT], out[COUNT];
    static double ns[RUNS];
    for (int i = 0; i < COUNT; i++) in[i] = low + (high - low) * ((float)i + 0.5f) / COUNT;
    for (int run = 0; run < RUNS; run++) {
        const double start = now_ns();
        for (int call = 0; call < CALLS; call++) function(out, in, COUNT);
        ns[run] = (now_ns() - start) / (CALLS * COUNT);
    }
    qsort(ns, RUNS, sizeof ns[0], by_size);
    printf("%-10s %.3f best, %.3f median ns per float\n", name, ns[0], ns[RUNS / 2]);
}

int main(void)
{
    measure("exp", sglcpu_exp_f32, -10.0f, 10.0f);
    measure("log", sglcpu_log_f32, 0.01f, 10.0f);
    measure("tanh", sglcpu_tanh_f32, -4.0f, 4.0f);
    measure("erf", sglcpu_erf_f32, -4.0f, 4.0f);
    measure("sin", sglcpu_sin_f32, -100.0f, 100.0f);
    measure("cos", sglcpu_cos_f32, -100.0f, 100.0f);
    measure("sin far", sglcpu_sin_f32, 1e6f, 1e9f);
    measure("sigmoid", sglcpu_sigmoid_f32, -10.0f, 10.0f);
    measure("silu", sglcpu_silu_f32, -10.0f, 10.0f);
    measure("gelu_tanh", sglcpu_gelu_tanh_f32, -4.0f, 4.0f);
    return 0;
}

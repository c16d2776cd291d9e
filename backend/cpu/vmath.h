/*
 * vmath.h: elementary functions over arrays, for the CPU backend's elementwise loops.
 *
 * sglcpu_<name>_f32(out, in, count) and sglcpu_<name>_f64(out, in, count) for <name> in exp, expm1, log, log1p, tanh, erf, sin, cos,
 * sigmoid, silu, gelu_tanh, and the scalar sglcpu_<name>_f32_one / _f64_one behind them.
 * In: count elements at in. Out: as many at out, which is either in itself or does not overlap it.
 * float32 is ours, vectorised by the compiler for the ISA of the including unit (accuracy: vmath_f32.h); float64 is
 * libm's, as its use here is accuracy. An element's result never depends on its place in the array.
 */
#ifndef SGL_BACKEND_CPU_VMATH_H
#define SGL_BACKEND_CPU_VMATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmath_f32.h"
#include "vmath_trig_f32.h"

/*
 * Before a loop over in and out: they may be the same array but do not overlap otherwise, so vectorise unchecked. clang
 * warns where it then does not (at -O1, under a sanitizer): such builds want the numbers, not the speed.
 */
#if defined(__clang__)
#define SGLCPU_VMATH_LOOP _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define SGLCPU_VMATH_LOOP _Pragma("GCC ivdep")
#endif

/* Defines the array function of a scalar one. */
#define SGLCPU_VMATH_ARRAY(name)                                                                                       \
    static inline void name(float *out, const float *in, int64_t count)                                                \
    {                                                                                                                  \
        SGLCPU_VMATH_LOOP                                                                                              \
        for (int64_t i = 0; i < count; i++) { out[i] = name##_one(in[i]); }                                            \
    }

SGLCPU_VMATH_ARRAY(sglcpu_exp_f32)
SGLCPU_VMATH_ARRAY(sglcpu_expm1_f32)
SGLCPU_VMATH_ARRAY(sglcpu_log_f32)
SGLCPU_VMATH_ARRAY(sglcpu_log1p_f32)
SGLCPU_VMATH_ARRAY(sglcpu_tanh_f32)
SGLCPU_VMATH_ARRAY(sglcpu_erf_f32)
SGLCPU_VMATH_ARRAY(sglcpu_sigmoid_f32)
SGLCPU_VMATH_ARRAY(sglcpu_silu_f32)
SGLCPU_VMATH_ARRAY(sglcpu_gelu_tanh_f32)

/* Whether all of the block can take the branch-free cores of sin and cos. */
static inline bool sglcpu_trig_all_near_f32(const float *in, int64_t count)
{
    uint32_t far = 0;
    for (int64_t i = 0; i < count; i++) { far |= (uint32_t)!sglcpu_trig_is_near_f32(in[i]); }
    return far == 0;
}

/* sin and cos look at a block before they compute it, so that one far element slows its block only. */
#define SGLCPU_VMATH_TRIG_BLOCK 512
#define SGLCPU_VMATH_TRIG_ARRAY(name, near)                                                                            \
    static inline void name(float *out, const float *in, int64_t count)                                                \
    {                                                                                                                  \
        for (int64_t start = 0; start < count; start += SGLCPU_VMATH_TRIG_BLOCK) {                                     \
            const int64_t rest = count - start;                                                                        \
            const int64_t block = rest < SGLCPU_VMATH_TRIG_BLOCK ? rest : SGLCPU_VMATH_TRIG_BLOCK;                     \
            if (sglcpu_trig_all_near_f32(in + start, block)) {                                                         \
                SGLCPU_VMATH_LOOP                                                                                      \
                for (int64_t i = start; i < start + block; i++) { out[i] = near(in[i]); }                              \
            } else {                                                                                                   \
                for (int64_t i = start; i < start + block; i++) { out[i] = name##_one(in[i]); }                        \
            }                                                                                                          \
        }                                                                                                              \
    }

SGLCPU_VMATH_TRIG_ARRAY(sglcpu_sin_f32, sglcpu_sin_near_f32)
SGLCPU_VMATH_TRIG_ARRAY(sglcpu_cos_f32, sglcpu_cos_near_f32)

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

/* The same in float64, which is libm's. */
#define SGLCPU_VMATH_ARRAY_F64(name)                                                                                   \
    static inline void name(double *out, const double *in, int64_t count)                                              \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++) { out[i] = name##_one(in[i]); }                                            \
    }

static inline double sglcpu_exp_f64_one(double x) { return exp(x); }

static inline double sglcpu_expm1_f64_one(double x) { return expm1(x); }

static inline double sglcpu_log_f64_one(double x) { return log(x); }

static inline double sglcpu_log1p_f64_one(double x) { return log1p(x); }

static inline double sglcpu_tanh_f64_one(double x) { return tanh(x); }

static inline double sglcpu_erf_f64_one(double x) { return erf(x); }

static inline double sglcpu_sin_f64_one(double x) { return sin(x); }

static inline double sglcpu_cos_f64_one(double x) { return cos(x); }

/* The three below have the form of their float32 cores: exp of a negative number, no cancellation. */
static inline double sglcpu_sigmoid_f64_one(double x)
{
    const double z = exp(-fabs(x));
    return (x < 0.0 ? z : 1.0) / (1.0 + z);
}

static inline double sglcpu_silu_f64_one(double x)
{
    const double z = exp(-fabs(x));
    return (x < 0.0 ? z * x : x) / (1.0 + z);
}

static inline double sglcpu_gelu_tanh_f64_one(double x)
{
    const double root_two_over_pi = 0x1.9884533d43651p-1;
    const double z = exp(-2.0 * root_two_over_pi * fabs(x) * (1.0 + 0.044715 * (x * x)));
    return (x < 0.0 ? z * x : x) / (1.0 + z);
}

SGLCPU_VMATH_ARRAY_F64(sglcpu_exp_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_expm1_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_log_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_log1p_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_tanh_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_erf_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_sin_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_cos_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_sigmoid_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_silu_f64)
SGLCPU_VMATH_ARRAY_F64(sglcpu_gelu_tanh_f64)

#endif

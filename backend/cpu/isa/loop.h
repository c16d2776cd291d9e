/* loop.h -- how the files of this folder are written: names per variant, loops that vectorise, vectors by hand.
 *
 * In: SGLCPU_ISA from the build. A public name is SGLCPU_NAME(x): sglcpu_avx2_x. Sums are written with vectors of the
 * compiler (not of one machine), because no compiler may reorder a float sum by itself. */
#ifndef SGLCPU_LOOP_H
#define SGLCPU_LOOP_H

#include "backend/cpu/isa.h"
#include "backend/cpu/vmath.h"

#if defined(__clang__) /* loops over libm's functions, float64's, stay scalar */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#define SGLCPU_PASTE_NAMES(variant, name) sglcpu_##variant##_##name
#define SGLCPU_PASTE(variant, name) SGLCPU_PASTE_NAMES(variant, name)
#define SGLCPU_NAME(name) SGLCPU_PASTE(SGLCPU_ISA, name)

/* A loop over elements: out is an argument itself or overlaps none, so no order is to be kept. */
#define SGLCPU_LOOP SGLCPU_VMATH_LOOP for (int64_t i = 0; i < count; i++)

#if defined(__AVX512F__)
#define SGLCPU_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define SGLCPU_VECTOR_BYTES 32
#else
#define SGLCPU_VECTOR_BYTES 16
#endif

extern const sglcpu_float_ops SGLCPU_NAME(ops_f32), SGLCPU_NAME(ops_f64);
void SGLCPU_NAME(uniform_f32)(void *out, const sglcpu_stream *stream, int64_t count);
void SGLCPU_NAME(uniform_f64)(void *out, const sglcpu_stream *stream, int64_t count);
void SGLCPU_NAME(normal_f32)(void *out, const sglcpu_stream *stream, int64_t count);
void SGLCPU_NAME(normal_f64)(void *out, const sglcpu_stream *stream, int64_t count);
extern const sglcpu_narrow_ops SGLCPU_NAME(narrow)[SGL_DTYPE_COUNT];
extern const sglcpu_isa SGLCPU_NAME(isa);

#endif

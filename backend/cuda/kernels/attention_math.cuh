/* attention_math.cuh -- what scores and weights take, by one name in float and in double.
 *
 * In and out: numbers. Odd invariant: as exact as CUDA's own functions, which the plain kernels and those of few queries promise. */
#ifndef SGLCUDA_ATTENTION_MATH_CUH
#define SGLCUDA_ATTENTION_MATH_CUH

#include "dtypes.cuh"

namespace
{

SGL_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
SGL_DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }
SGL_DEVICE float exponential(float x) { return expf(x); }
SGL_DEVICE double exponential(double x) { return exp(x); }
SGL_DEVICE float logarithm(float x) { return logf(x); }
SGL_DEVICE double logarithm(double x) { return log(x); }
SGL_DEVICE float greater(float a, float b) { return fmaxf(a, b); }
SGL_DEVICE double greater(double a, double b) { return fmax(a, b); }

} // namespace

#endif

/* ops_f64.c -- the loops of isa/float_ops.h in float64. In: the build's SGLCPU_ISA. Out: sglcpu_<isa>_ops_f64. */
#define REAL double
#define REAL_NAME(name) name##_f64
#define REAL_IS_F32 0
#include "backend/cpu/isa/float_ops.h"

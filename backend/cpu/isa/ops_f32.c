/* ops_f32.c -- the loops of isa/float_ops.h in float32. In: the build's SGLCPU_ISA. Out: sglcpu_<isa>_ops_f32. */
#define REAL float
#define REAL_NAME(name) name##_f32
#define REAL_IS_F32 1
#include "backend/cpu/isa/float_ops.h"

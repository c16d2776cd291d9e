/* table.c -- one row per instruction set: everything that this folder holds, under one name. */
#include "backend/cpu/isa/loop.h"

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

const sglcpu_isa SGLCPU_NAME(isa) = {
    .name = TEXT(SGLCPU_ISA),
    .floats = { &SGLCPU_NAME(ops_f32), &SGLCPU_NAME(ops_f64) },
    .narrow = SGLCPU_NAME(narrow),
    .uniform = { SGLCPU_NAME(uniform_f32), SGLCPU_NAME(uniform_f64) },
    .normal = { SGLCPU_NAME(normal_f32), SGLCPU_NAME(normal_f64) },
};

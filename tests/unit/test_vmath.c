/*
 * test_vmath.c -- backend/cpu/vmath.h as the least instruction set has it (SSE2 on x86-64, NEON on AArch64): accuracy
 * over a sweep of all floats, special values, independence of position and length.
 * In: SGL_VMATH_FULL, see vmath_cases.h. Out: cmocka's report and the largest error of each function.
 * ctest: label vmath
 */
#include "vmath_cases.h"

int main(void) { return cmocka_run_group_tests_name("vmath", vmath_tests, NULL, NULL); }

/*
 * test_vmath_avx2.c -- the tests of test_vmath.c, compiled with -mavx2 -mfma (the build goes by this file's name).
 * In: SGL_VMATH_FULL, see vmath_cases.h. Out: cmocka's report; where the compiler's target or the CPU lacks AVX2 or
 * FMA, one skipped test that says so.
 * Odd invariant: main asks the CPU before it calls anything that was compiled for AVX2.
 */
#include "vmath_cases.h"

static void test_cpu_lacks_avx2(void **state)
{
    (void)state;
    skip();
}

static bool can_run(void)
{
#if defined(__AVX2__) && defined(__FMA__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

int main(void)
{
    const struct CMUnitTest skipped[] = { cmocka_unit_test(test_cpu_lacks_avx2) };
    if (!can_run()) return cmocka_run_group_tests_name("vmath avx2", skipped, NULL, NULL);
    return cmocka_run_group_tests_name("vmath avx2", vmath_tests, NULL, NULL);
}

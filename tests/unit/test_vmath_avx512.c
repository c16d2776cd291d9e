/*
 * test_vmath_avx512.c -- the tests of test_vmath.c, compiled for AVX-512 (the build goes by this file's name).
 * In: SGL_VMATH_FULL, see vmath_cases.h. Out: cmocka's report; where the compiler's target or the CPU lacks it,
 * one skipped test that says so.
 * Odd invariant: main asks the CPU before it calls anything that was compiled for AVX-512.
 */
#include "vmath_cases.h"

static void test_cpu_lacks_avx512(void **state)
{
    (void)state;
    skip();
}

static bool can_run(void)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

int main(void)
{
    const struct CMUnitTest skipped[] = { cmocka_unit_test(test_cpu_lacks_avx512) };
    if (!can_run()) return cmocka_run_group_tests_name("vmath avx512", skipped, NULL, NULL);
    return cmocka_run_group_tests_name("vmath avx512", vmath_tests, NULL, NULL);
}

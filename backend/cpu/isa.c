/* isa.c -- which instruction sets were built, which this CPU has, and which one is taken.
 *
 * In: SGLCPU_HAVE_<VARIANT> from the build, and the CPU. Out: an sglcpu_isa. Odd invariant: a variant is usable when every
 * instruction that its compiler flags allow (cmake/isa.cmake) is there. */
#include <string.h>

#include "backend/cpu/isa.h"

extern const sglcpu_isa sglcpu_base_isa, sglcpu_avx2_isa, sglcpu_avx512_isa, sglcpu_neon_isa;

typedef struct variant {
    const sglcpu_isa *isa;
    bool (*usable)(void);
} variant;

#if defined(SGLCPU_HAVE_BASE)
static bool always(void) { return true; }
#endif
#if defined(SGLCPU_HAVE_NEON)
static bool has_neon(void) { return true; } /* a part of the architecture */
#endif
#if defined(SGLCPU_HAVE_AVX2)
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif
#if defined(SGLCPU_HAVE_AVX512)
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && has_avx2();
}
#endif

static const variant variants[] = {
#if defined(SGLCPU_HAVE_AVX512)
    { &sglcpu_avx512_isa, has_avx512 },
#endif
#if defined(SGLCPU_HAVE_AVX2)
    { &sglcpu_avx2_isa, has_avx2 },
#endif
#if defined(SGLCPU_HAVE_NEON)
    { &sglcpu_neon_isa, has_neon },
#endif
#if defined(SGLCPU_HAVE_BASE)
    { &sglcpu_base_isa, always },
#endif
};

const sglcpu_isa *sglcpu_isa_at(int index)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        if (variants[i].usable() && index-- == 0) return variants[i].isa;
    }
    return NULL;
}

sgl_status sglcpu_isa_choose(sglcore_env *env, const char *name, const sglcpu_isa **isa)
{
    char names[64] = "";
    for (int i = 0; (*isa = sglcpu_isa_at(i)) != NULL; i++) {
        if (name[0] == '\0' || strcmp(name, (*isa)->name) == 0) return SGL_OK;
        if (i > 0) strcat(names, ", ");
        strcat(names, (*isa)->name);
    }
    return sglcore_fail(env, SGL_UNSUPPORTED, "SGL_ISA is '%s'; this machine and build have: %s", name, names);
}

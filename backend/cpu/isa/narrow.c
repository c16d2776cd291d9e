/* narrow.c -- loops over floats narrower than 32 bits: widened, narrowed, rounded where they lie as float32.
 *
 * In: narrow.h's cores. Out: sglcpu_<isa>_narrow, by dtype. */
#include "backend/cpu/isa/loop.h"
#include "backend/cpu/narrow.h"

#define SIGNATURE void *out_, const void *a_, const void *b_, const void *c_, int64_t count
#define LOOP(name, OUT, IN)                                                                                            \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        (void)b_, (void)c_;                                                                                            \
        OUT *out = out_;                                                                                               \
        const IN *a = a_;                                                                                              \
        SGLCPU_LOOP out[i] = sglcpu_##name(a[i]);                                                                      \
    }
#define LOOPS(suffix, dtype, T, ...)                                                                                   \
    LOOP(widen_##suffix, float, T)                                                                                     \
    LOOP(narrow_##suffix, T, float)                                                                                    \
    LOOP(round_##suffix, float, float)
SGLCPU_NARROWS(LOOPS)

#define ROW(suffix, dtype, ...) [dtype] = { widen_##suffix, narrow_##suffix, round_##suffix },
const sglcpu_narrow_ops SGLCPU_NAME(narrow)[SGL_DTYPE_COUNT] = { SGLCPU_NARROWS(ROW) };

/* broken.h -- switches that break one decision of the passes each, so that tests can show that they would notice.
 *
 * In: builds with tests alone have them (SGL_BREAKS), and there a test sets sglcore_broken before it runs passes. Out: whether a
 * decision is to be taken wrongly; in every other build `false`, and nothing is left of it. Odd invariant: what is broken
 * is one number of the mathematics, never memory: programs end and are freed as ever. */
#ifndef SGLCORE_BROKEN_H
#define SGLCORE_BROKEN_H

#include <stdbool.h>

/* Each is an invariant, with the file that holds it, and what happens instead. */
#define SGLCORE_BREAKS(X)                                                                                              \
    X(SUM_ONCE, "sum_once")           /* passes/shard_turn.c: what is whole is a term of one rank; of every one */     \
    X(SUM_PAID, "sum_paid")           /* passes/shard_turn.c: a sum that is owed is paid; it is called whole */        \
    X(DIVIDE_ONCE, "divide_once")     /* passes/shard_apart.c: a mean has one count; each rank divides by its own */   \
    X(CLIP_GLOBAL, "clip_global")     /* passes/shard_packs.c: a norm is of all pieces of a pack; of the last one */   \
    X(MASK_SLICE, "mask_slice")       /* passes/shard_emit.c: a part of random numbers begins where it lies; at 0 */   \
    X(KV_SUMMED, "kv_summed")         /* passes/shard_apart.c: repeated key heads' gradients add up; the largest */    \
    X(TIED_SUMMED, "tied_summed")     /* passes/autodiff.c: a parameter's uses add up; the first use alone counts */   \
    X(STAGES_SUMMED, "stages_summed") /* passes/stages_emit.c: stages add up what they share; one's alone counts */

typedef enum sglcore_break {
    SGLCORE_BREAK_NONE,
#define SGLCORE_BREAK_ENUM(name, text) SGLCORE_BREAK_##name,
    SGLCORE_BREAKS(SGLCORE_BREAK_ENUM)
#undef SGLCORE_BREAK_ENUM
        SGLCORE_BREAK_COUNT
} sglcore_break;

#ifdef SGL_BREAKS
extern sglcore_break sglcore_broken; /* of the whole process; no pass may be running when it is set */
static inline bool sglcore_is_broken(sglcore_break what) { return sglcore_broken == what; }
#else
static inline bool sglcore_is_broken(sglcore_break what)
{
    (void)what;
    return false;
}
#endif

#endif

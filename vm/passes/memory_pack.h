/* memory_pack.h -- blocks with lifetimes into as few bytes as can be.
 *
 * In: blocks: bytes, and the first and the last moment at which they are needed, both included. Out: their offsets, such
 * that no two blocks share a byte at one moment; the bytes needed; and the bound that no packing can beat. The same
 * blocks give the same offsets, on any machine. */
#ifndef SGLPASS_MEMORY_PACK_H
#define SGLPASS_MEMORY_PACK_H

#include "core/core.h"

/* alignment: a power of two. */
static inline int64_t sglpass_align_up(int64_t value, int64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

typedef struct sglpass_block {
    int64_t bytes;
    int64_t first, last; /* moments, first <= last */
    int64_t offset;      /* out */
} sglpass_block;

typedef struct sglpass_packing {
    int64_t bytes;       /* the largest offset + bytes */
    int64_t lower_bound; /* the largest sum of bytes that are needed at one moment */
} sglpass_packing;

/* alignment: a power of two, that all offsets are multiples of. Moments lie in [0, moments). */
sgl_status sglpass_pack_blocks(sglcore_env *env, sglpass_block *blocks, int64_t count, int64_t moments,
                               int64_t alignment, sglpass_packing *packing);

#endif

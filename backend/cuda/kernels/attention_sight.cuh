/* attention_sight.cuh -- which keys a query sees by its place in time, and which queries see a key.
 *
 * In: the shapes, and the offset of the first query, which lies on the device. Out: ranges. Query i sees keys 0 ..
 * offset + i when causal, of these the last `window`; segments are asked beside. Odd invariant: all ranges are
 * clamped to what there is, so that a range is empty and never reversed. */
#ifndef SGLCUDA_ATTENTION_SIGHT_CUH
#define SGLCUDA_ATTENTION_SIGHT_CUH

#include "attention.h"
#include "dtypes.cuh"

SGL_DEVICE int64 sgl_clamp(int64 x, int64 most) { return x < 0 ? 0 : x > most ? most : x; }

/* Keys first_key .. last_key - 1 are seen by query i. */
SGL_DEVICE int64 sgl_first_key(const sgl_attention &a, int64 offset, int64 i)
{
    return a.causal && a.window > 0 ? sgl_clamp(offset + i + 1 - a.window, a.s) : 0;
}
SGL_DEVICE int64 sgl_last_key(const sgl_attention &a, int64 offset, int64 i)
{
    return a.causal ? sgl_clamp(offset + i + 1, a.s) : a.s;
}
/* Queries first_query .. last_query - 1 see key j. */
SGL_DEVICE int64 sgl_first_query(const sgl_attention &a, int64 offset, int64 j)
{
    return a.causal ? sgl_clamp(j - offset, a.t) : 0;
}
SGL_DEVICE int64 sgl_last_query(const sgl_attention &a, int64 offset, int64 j)
{
    return a.causal && a.window > 0 ? sgl_clamp(j - offset + a.window, a.t) : a.t;
}

#endif

/* box.h -- parts of tensors as boxes: offsets and dims along each dimension. Arithmetic alone.
 *
 * In: a whole tensor's type, boxes within it. Out: what two boxes share, as runs of elements. The rank is the whole's. */
#ifndef SGLSTORE_BOX_H
#define SGLSTORE_BOX_H

#include "core/core.h"

typedef struct sglstore_box {
    int64_t offsets[SGL_MAX_RANK], dims[SGL_MAX_RANK];
} sglstore_box;

sglstore_box sglstore_box_whole(const sgl_type *type);
bool sglstore_box_equal(int rank, const sglstore_box *a, const sglstore_box *b);
int64_t sglstore_box_elements(int rank, const sglstore_box *box);
/* False where they share nothing. */
bool sglstore_box_common(int rank, const sglstore_box *a, const sglstore_box *b, sglstore_box *common);

/* What boxes a and b, which outlive it, have in common: each run is `count` elements, which lie together in both. */
typedef struct sglstore_runs {
    int rank, outer;
    const sglstore_box *a, *b;
    sglstore_box common;
    int64_t count, at[SGL_MAX_RANK];
    bool more;
} sglstore_runs;
sglstore_runs sglstore_runs_of(int rank, const sglstore_box *a, const sglstore_box *b);
/* The next run: at which element of a and of b it begins; false: there is none left. */
bool sglstore_runs_next(sglstore_runs *runs, int64_t *in_a, int64_t *in_b);

#endif

/* box.c -- boxes: which elements of a tensor a rank has, or a file; what two of them have in common, run by run.
 *
 * In: offsets and dims within the whole. Out: ranges of elements that lie together in both, in rising order of both. Each
 * box is dense: its elements in row-major order of its own dims. Odd invariant: offsets and dims were checked before; nothing
 * here overflows that the whole does not. */
#include "store/box.h"

#include <string.h>

sglstore_box sglstore_box_whole(const sgl_type *type)
{
    sglstore_box box = { .offsets = { 0 } };
    memcpy(box.dims, type->dims, (size_t)type->rank * sizeof box.dims[0]);
    return box;
}

bool sglstore_box_equal(int rank, const sglstore_box *a, const sglstore_box *b)
{
    const size_t bytes = (size_t)rank * sizeof a->dims[0];
    return memcmp(a->offsets, b->offsets, bytes) == 0 && memcmp(a->dims, b->dims, bytes) == 0;
}

int64_t sglstore_box_elements(int rank, const sglstore_box *box)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++) count *= box->dims[d];
    return count;
}

bool sglstore_box_common(int rank, const sglstore_box *a, const sglstore_box *b, sglstore_box *common)
{
    bool any = true;
    for (int d = 0; d < rank; d++) {
        const int64_t a_end = a->offsets[d] + a->dims[d], b_end = b->offsets[d] + b->dims[d];
        const int64_t end = a_end < b_end ? a_end : b_end;
        common->offsets[d] = a->offsets[d] > b->offsets[d] ? a->offsets[d] : b->offsets[d];
        common->dims[d] = end > common->offsets[d] ? end - common->offsets[d] : 0;
        any = any && common->dims[d] > 0;
    }
    return any;
}

/* Dimensions before `cut - 1` are gone through; from that one on all is one run, for those behind it are whole in both. */
sglstore_runs sglstore_runs_of(int rank, const sglstore_box *a, const sglstore_box *b)
{
    sglstore_runs runs = { .rank = rank, .a = a, .b = b };
    runs.more = sglstore_box_common(rank, a, b, &runs.common);
    int cut = rank;
    while (cut > 0 && runs.common.dims[cut - 1] == a->dims[cut - 1] && runs.common.dims[cut - 1] == b->dims[cut - 1])
        cut--;
    runs.outer = cut > 0 ? cut - 1 : 0;
    runs.count = 1;
    for (int d = runs.outer; d < rank; d++) runs.count *= runs.common.dims[d];
    return runs;
}

static int64_t element(const sglstore_runs *runs, const sglstore_box *box)
{
    int64_t at = 0;
    for (int d = 0; d < runs->rank; d++)
        at = at * box->dims[d] + runs->common.offsets[d] + runs->at[d] - box->offsets[d];
    return at;
}

bool sglstore_runs_next(sglstore_runs *runs, int64_t *in_a, int64_t *in_b)
{
    if (!runs->more) return false;
    *in_a = element(runs, runs->a);
    *in_b = element(runs, runs->b);
    int d = runs->outer - 1;
    while (d >= 0 && ++runs->at[d] == runs->common.dims[d]) runs->at[d--] = 0;
    runs->more = d >= 0;
    return true;
}

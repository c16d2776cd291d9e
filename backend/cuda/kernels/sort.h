/* sort.h -- the values that the kernels of sort.cu take: lines of entries, a key and where it stood, in the order of
 * the keys. */
#ifndef SGLCUDA_SORT_H
#define SGLCUDA_SORT_H

#include "index.h"

/* How an element becomes a key. */
enum { SGLCUDA_KEY_UNSIGNED, SGLCUDA_KEY_SIGNED, SGLCUDA_KEY_FLOAT, SGLCUDA_KEY_ROW };

enum {
    /* One block sorts a line of up to so many in shared memory: 24 KiB of 64-bit keys and indices, so that two blocks
     * share a processor of any size; its 66 rounds are still fewer than the passes of a radix sort take launches. */
    SGLCUDA_ORDER_FEW = 2048,
    SGLCUDA_ORDER_FEW_THREADS = 512,
    /* Longer lines go in tiles: 8 entries of each thread hide the memory, and 8 warps' counts of 256 digits fill 8
     * KiB. */
    SGLCUDA_ORDER_THREADS = 256,
    SGLCUDA_ORDER_EACH = 8,
    SGLCUDA_ORDER_TILE = SGLCUDA_ORDER_THREADS * SGLCUDA_ORDER_EACH,
    SGLCUDA_ORDER_DIGITS = 256
};

/* What is sorted: line (o, c) of a tensor [outer, extent, inner]. */
typedef struct sglcuda_order_values {
    long long lines, extent, inner;
    unsigned long long infinity; /* KEY_FLOAT: magnitudes above are NaN */
    long long rows;              /* KEY_ROW: keys are indices, `rows` for each that is outside 0 .. rows - 1 */
    int bits, kind, index_kind;  /* of an element; SGLCUDA_KEY; KEY_ROW: SGLCUDA_INDEX */
    int descending;
    int room;        /* few: entries of a line's place in the block, a power of two */
    int lines_block; /* few: lines of a block */
    long long tiles; /* many: of a line */
    int shift;       /* many: of the digit within the key */
} sglcuda_order_values;

/* What is given of each line: its first `count` in order. */
typedef struct sglcuda_sort_put {
    long long total, count, extent, inner; /* total: elements of the result */
    sglcuda_fill_value value;              /* never used: each has a source */
} sglcuda_sort_put;

#endif

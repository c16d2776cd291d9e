/* index.h -- numbers that the C side and the kernels of index.cuh agree on: kinds of indices, how results are cut into
 * blocks. */
#ifndef SGLCUDA_INDEX_H
#define SGLCUDA_INDEX_H

enum {
    SGLCUDA_INDEX_I64,
    SGLCUDA_INDEX_I32,
    SGLCUDA_INDEX_I16,
    SGLCUDA_INDEX_I8,
    SGLCUDA_INDEX_U32,
    SGLCUDA_INDEX_U16,
    SGLCUDA_INDEX_U8, /* and bool */
    SGLCUDA_INDEX_I4
};

/* Of kernels that move units: 4 of 16 bytes for each thread are 64 KiB on their way in a processor that holds 4 blocks,
 * about what memory needs to be busy; a block of 16 KiB is small enough that a few MB fill all processors. */
enum { SGLCUDA_FILL_THREADS = 256, SGLCUDA_FILL_UNITS = 4 * SGLCUDA_FILL_THREADS };

/* One element, again and again over a unit's 16 bytes. */
typedef struct sglcuda_fill_value {
    unsigned words[4];
} sglcuda_fill_value;

#endif

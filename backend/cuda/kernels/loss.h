/* loss.h -- what the kernels of the vocabulary loss take beside pointers: included by loss.c and loss.cu. */
#ifndef SGLCUDA_KERNELS_LOSS_H
#define SGLCUDA_KERNELS_LOSS_H

enum {
    SGLCUDA_LOSS_THREADS = 256,
    SGLCUDA_LOSS_BLOCKS = 4,  /* of a multiprocessor: while one waits for memory, others compute */
    SGLCUDA_LOSS_CLUSTER = 8, /* blocks that share a row, at most */
    SGLCUDA_LOSS_CONVERT_THREADS = 256
};

typedef struct sglcuda_loss_values {
    long long rows, vocab, pitch; /* of the chunk: rows of `vocab` logits, `pitch` elements apart */
    long long first;              /* row of the chunk's first among all */
    long long ignore;
    long long part; /* logits that are in shared memory at a time, a multiple of 8 */
    int parts;      /* of a row; the last one may be shorter */
    int target_bytes, target_signed;
    int gradient; /* it is written over the logits, from the beginning of each row on */
} sglcuda_loss_values;

#endif

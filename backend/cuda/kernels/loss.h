/* loss.h -- what the kernels of the vocabulary loss take beside pointers: included by loss.c and loss.cu. */
#ifndef SGLCUDA_KERNELS_LOSS_H
#define SGLCUDA_KERNELS_LOSS_H

enum { SGLCUDA_LOSS_THREADS = 1024, SGLCUDA_LOSS_CONVERT_THREADS = 256 };

typedef struct sglcuda_loss_values {
    long long rows, vocab, pitch; /* of the chunk: rows of `vocab` logits, `pitch` elements apart */
    long long first;              /* row of the chunk's first among all */
    long long ignore;
    int target_bytes, target_signed;
    int gradient; /* it is written over the logits, from the beginning of each row on */
    int resident; /* a row fits shared memory */
} sglcuda_loss_values;

#endif

/* exchange.h -- the values that the kernels of exchange.cu take. */
#ifndef SGLCUDA_EXCHANGE_H
#define SGLCUDA_EXCHANGE_H

enum {
    SGLCUDA_EXCHANGE_THREADS = 256,
    SGLCUDA_EXCHANGE_VECTOR = 8,                                    /* elements that a thread takes at once */
    SGLCUDA_EXCHANGE_TURNS = 4,                                     /* so often */
    SGLCUDA_EXCHANGE_COPY_BYTES = 16 * SGLCUDA_EXCHANGE_THREADS * 4 /* of a block */
};

/* A word of the host says what a link is at: this many low bits are one more than the exchange's place among those that were
 * routed (0: none), the others count the exchanges that the device has begun. */
enum { SGLCUDA_EXCHANGE_BITS = 24 };

/* Elements of all ranks of a group become one: this rank's own lie by themselves, those of the others in rows, in the order of
 * their places. */
typedef struct sglcuda_exchange_sum {
    unsigned char *to;
    const unsigned char *own, *others;
    long long count, pitch; /* elements; pitch: bytes from row to row */
    unsigned first_block;   /* of the launch */
    int wide;               /* all is aligned to 16 bytes */
} sglcuda_exchange_sum;

/* As many as the 4 KiB of a kernel's arguments hold, rounded down. */
enum { SGLCUDA_EXCHANGE_SUMS = 64, SGLCUDA_EXCHANGE_COPIES = 64 };

typedef struct sglcuda_exchange_sums {
    int count, ranks, place;
    sglcuda_exchange_sum sums[SGLCUDA_EXCHANGE_SUMS];
} sglcuda_exchange_sums;

typedef struct sglcuda_exchange_copy {
    unsigned char *to;
    const unsigned char *from;
    long long bytes;
    unsigned first_block;
    int wide;
} sglcuda_exchange_copy;

typedef struct sglcuda_exchange_copies {
    long long count;
    sglcuda_exchange_copy copies[SGLCUDA_EXCHANGE_COPIES];
} sglcuda_exchange_copies;

typedef struct sglcuda_exchange_mark {
    unsigned long long *begun; /* of the device: exchanges so far */
    unsigned long long *word;
    unsigned id; /* 0: it has ended */
} sglcuda_exchange_mark;

/* As many as a number of any dtype has, i4 aside. */
typedef struct sglcuda_exchange_number {
    int bytes;
    char number[12];
} sglcuda_exchange_number;

#endif

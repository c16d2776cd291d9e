/* exchange.h -- the values that the kernels of exchange.cu take. */
#ifndef SGLCUDA_EXCHANGE_H
#define SGLCUDA_EXCHANGE_H

enum { SGLCUDA_EXCHANGE_THREADS = 256, SGLCUDA_EXCHANGE_VECTOR = 8 };

/* A word of the host says what a link is at: this many low bits are one more than the exchange's place among those that were
 * routed (0: none), the others count the exchanges that the device has begun. */
enum { SGLCUDA_EXCHANGE_BITS = 24 };

/* Elements of all ranks of a group become one: this rank's own lie by themselves, those of the others in rows, in the order of
 * their places. */
typedef struct sglcuda_exchange_sum {
    unsigned char *to;
    const unsigned char *own, *others;
    long long count, pitch; /* elements; pitch: bytes from row to row */
    int ranks, place;
    int wide; /* all is aligned to 16 bytes */
} sglcuda_exchange_sum;

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

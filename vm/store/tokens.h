/* tokens.h -- an open set of token files, as tokens.c reads it and ngram.c counts it. */
#ifndef SGLSTORE_TOKENS_H
#define SGLSTORE_TOKENS_H

#include "store/store.h"

typedef struct sglstore_token_file {
    char *path;
    const unsigned char *mapped; /* the whole file */
    int64_t mapped_bytes;
    int64_t start; /* of the tokens, bytes */
    int width;     /* bytes of a token */
    int64_t count; /* tokens */
    int64_t limit; /* tokens below it are for training, the others held out */
    int64_t train_windows, eval_windows;
    int64_t slack; /* by so many tokens the grid of training windows can be moved */
} sglstore_token_file;

struct sglstore_tokens {
    sglcore_env *env;
    sglstore_token_file *files;
    int file_count;
    int64_t seq, batch, vocab;
    uint64_t seed;
    int64_t train_windows, eval_windows; /* of all files */
    sglstore_tokens_sizes sizes;
};

#endif

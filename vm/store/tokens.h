/* tokens.h -- an open set of token files, as tokens.c opens it, tokens_read.c reads it and ngram.c counts it. */
#ifndef SGLSTORE_TOKENS_H
#define SGLSTORE_TOKENS_H

#include "store/store.h"

typedef struct sglstore_token_file {
    char *path;
    int fd;        /* -1: closed */
    bool known;    /* its size is */
    int64_t bytes; /* of the whole file; another size later on is an error */
    int64_t start; /* of the tokens, bytes */
    int width;     /* bytes of a token */
    int64_t count; /* tokens */
    int64_t limit; /* tokens below it are for training, the others held out */
    int64_t train_windows, eval_windows;
    int64_t slack; /* by so many tokens the grid of training windows can be moved */
} sglstore_token_file;

enum {
    SGLSTORE_TOKENS_OPENED = 64
}; /* of the files so many are open at a time: a set may have more than a process may open */

struct sglstore_tokens {
    sglcore_env *env;
    sglstore_token_file *files;
    int file_count;
    sglstore_token_file *opened[SGLSTORE_TOKENS_OPENED]; /* a ring: the one that was opened first is closed first */
    int opened_next;
    void *window; /* bytes of one */
    int64_t window_bytes;
    int64_t seq, batch, vocab;
    uint64_t seed;
    int64_t train_windows, eval_windows; /* of all files */
    sglstore_tokens_sizes sizes;
};

/* Opens the file unless it is open; it must be as long as before. */
sgl_status sglstore_tokens_reach(sglstore_tokens *tokens, sglstore_token_file *file);
/* All of these bytes, or an error with the file and the offset. */
sgl_status sglstore_tokens_bytes(sglstore_tokens *tokens, sglstore_token_file *file, int64_t offset, void *data,
                                 int64_t bytes);

/* What the paths of a host name (paths.c): each a file, or with *, ? or [...] in its last part all files that match, in the
 * order of their names. Freed also after a failure. */
typedef struct sglstore_paths {
    sglcore_arena arena;
    SGLCORE_VEC(const char *) list;
} sglstore_paths;
sgl_status sglstore_paths_list(sglcore_env *env, const char *const *named, int count, sglstore_paths *paths);
void sglstore_paths_free(sglstore_paths *paths);

#endif

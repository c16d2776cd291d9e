/* store.h -- what is on disk: safetensors files, checkpoints, token files. Knows no graph: tensors by name, dtype, dims.
 *
 * A checkpoint is a folder DIR/step-NNNNNNNN with one safetensors file per role (parameters.safetensors,
 * states.safetensors) and manifest.json: format version, step, meta, and of each file its bytes and the XXH3-128 of its
 * header, of each tensor its name, dtype, shape and XXH3-128, and of the manifest itself its own. Where several ranks have
 * parts of tensors, each of them writes such files of its own beside these (parameters.rank-00001.safetensors), whose
 * entries are named with their places, as in wq[0:8,0:16], and the manifest (format 2) has of each part its offsets and the
 * shape of the whole: no two parts overlap, and together they are the whole. It is written as
 * DIR/.step-NNNNNNNN.partial, synced, read back and checked, then renamed: what carries the final name was complete when
 * it got it. Everything read is checked before it is used. Files are little-endian, as the hosts that sgl runs on are. */
#ifndef SGLSTORE_STORE_H
#define SGLSTORE_STORE_H

#include <stdatomic.h>

#include "core/core.h"
#include "core/io.h"
#include "store/box.h"

/* ---- safetensors --------------------------------------------------------------------------------------------- */

/* One tensor to be written, or a part of it, dense: `read` copies its bytes [offset, offset + bytes) so that a device need not
 * hand out memory. */
typedef struct sglstore_source {
    const char *name;
    sgl_type type; /* of the whole */
    uint8_t role;  /* sgl_role: PARAMETER or STATE */
    void *user;
    sgl_status (*read)(void *user, int64_t offset, void *data, int64_t bytes);
    const sglstore_box *box; /* NULL: the whole. Checkpoints alone look at it */
} sglstore_source;

/* One tensor wanted back, or a part of it: `write` receives the bytes of that. */
typedef struct sglstore_target {
    const char *name;
    sgl_type type; /* of the whole */
    uint8_t role;
    void *user;
    sgl_status (*write)(void *user, int64_t offset, const void *data, int64_t bytes);
    const sglstore_box *box; /* NULL: the whole */
    /* NULL, or of a tensor whose first dimension counts terms of a sum, of which a checkpoint may hold another number: adds what comes
     * to what is there. All terms go to the first place; the target is zeros before. */
    sgl_status (*add)(void *user, int64_t offset, const void *data, int64_t bytes);
} sglstore_target;

typedef struct sglstore_tensors sglstore_tensors; /* an open safetensors file */

/* What a file is besides its entries. */
typedef struct sglstore_extent {
    int64_t bytes;
    sglcore_hash header; /* of all bytes before the data */
} sglstore_extent;

/* Header errors (length, JSON, dtype, shape, overlapping, missing or spare data, duplicate names) are SGL_CORRUPT and name
 * the file, the entry, and the place within the header. */
sgl_status sglstore_tensors_open(sglcore_env *env, const char *path, sglstore_tensors **file);
void sglstore_tensors_close(sglstore_tensors *file);
int64_t sglstore_tensors_count(const sglstore_tensors *file);
/* In the order of their data; offset is from the start of the file. type, offset, bytes may be NULL. */
const char *sglstore_tensors_entry(const sglstore_tensors *file, int64_t index, sgl_type *type, int64_t *offset,
                                   int64_t *bytes);
/* *index is -1 when there is no entry of that name. Takes constant time, and memory. */
sgl_status sglstore_tensors_find(sglstore_tensors *file, const char *name, int64_t *index);
sglstore_extent sglstore_tensors_extent(const sglstore_tensors *file);
sgl_status sglstore_tensors_read(sglstore_tensors *file, int64_t index, int64_t offset, void *data, int64_t bytes);
/* Writes the file at `path` itself and syncs it; after a failure half of it may be there. (The caller writes into a folder
 * that is not yet in use.) Data are laid by width of their elements, so that each is aligned, and otherwise in the order
 * of the sources. hashes: one per source; hashes and extent may be NULL. */
sgl_status sglstore_tensors_write(sglcore_env *env, const char *path, const sglstore_source *sources, int64_t count,
                                  sglcore_hash *hashes, sglstore_extent *extent);

/* Gives every target its tensor of the file. TYPE, and nothing is written, unless names, dtypes and shapes are those of the
 * targets. */
sgl_status sglstore_tensors_load(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count);

/* ---- checkpoints --------------------------------------------------------------------------------------------- */

/* meta: a JSON object as text, kept byte for byte; NULL: an empty one. keep: so many checkpoints stay, 0: all; the one just
 * saved is always among them. What killed processes left half-done in `dir` is swept first. A leftover that cannot be
 * removed is a warning. */
sgl_status sglstore_checkpoint_save(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                                    const sglstore_source *sources, int64_t count, int keep);
/* The same by several ranks: one begins, each writes its files and gets their text for the manifest, and when all of them have
 * the first ends it with their texts, one behind the other, in the order of ranks. Where one of them has failed the first
 * abandons it, which leaves the message. */
sgl_status sglstore_save_begin(sglcore_env *env, const char *dir, int64_t step, const char *meta);
sgl_status sglstore_save_files(sglcore_env *env, const char *dir, int64_t step, int64_t rank,
                               const sglstore_source *sources, int64_t count, sglcore_text *sheets);
sgl_status sglstore_save_end(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                             const sglcore_text *sheets, bool in_parts, int keep);
void sglstore_save_abandon(sglcore_env *env, const char *dir, int64_t step);
/* The last complete checkpoint of `dir` (the highest step), or `dir` itself. path and meta are freed by the caller with
 * sglcore_free(env, x, strlen(x) + 1). A folder without a manifest is half-written and passed over with a warning;
 * with no other one, the error names the newest. What was changed, cut off or taken away is an error and not passed over: a
 * run does not go on from an older state unasked. Data are not read here: sglstore_checkpoint_load does so. */
sgl_status sglstore_checkpoint_find(sglcore_env *env, const char *dir, char **path, char **meta, int64_t *step);
/* States that passes make for themselves, which a plan has and another has not: their names begin so. */
static inline bool sglstore_is_made(const char *name) { return name[0] == '~'; }
/* Checks names, dtypes, shapes, sizes and every tensor's hash against manifest and targets, then, only when all is
 * right, calls each target's write. Missing and extra entries are errors that name them,
 * but for those that passes make: these are told to the log. parameters_only: states in the
 * file are no error and are not read. */
sgl_status sglstore_checkpoint_load(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count,
                                    bool parameters_only);

/* The same by several ranks: `begin` checks all but the data, `check` the data of this rank's share, `read` calls the targets.
 * None of them reads before all have checked. Path and targets outlive it; `end` after a failure too, NULL is allowed. */
typedef struct sglstore_loading sglstore_loading;
sgl_status sglstore_load_begin(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count,
                               bool parameters_only, sglstore_loading **loading);
sgl_status sglstore_load_check(const sglstore_loading *loading, int64_t rank, int64_t ranks);
sgl_status sglstore_load_read(const sglstore_loading *loading);
void sglstore_load_end(sglstore_loading *loading);

/* Makes the folder and keeps everybody else from claiming it, until the lock is given back or the process ends. WRONG_STATE:
 * another has it. On a file system without locks *fd is -1, with a warning. */
sgl_status sglstore_lock(sglcore_env *env, const char *dir, int *fd);
void sglstore_unlock(sglcore_env *env, int fd); /* -1 is allowed */
/* Renames the checkpoints of later steps, so that they are found no more unless they are named, with a warning for each. */
sgl_status sglstore_set_aside(sglcore_env *env, const char *dir, int64_t step);

/* ---- token files ----------------------------------------------------------------------------------------------- */

/* Token files and their windows; what each call means stands at sgl_tokens_* in sgl.h. */
typedef struct sglstore_tokens sglstore_tokens;
sgl_status sglstore_tokens_open(sglcore_env *env, const sgl_tokens_config *config, sglstore_tokens **tokens);
void sglstore_tokens_free(sglstore_tokens *tokens);
/* Looks for tokens outside the vocabulary: in all of up to 1 GiB, beyond that in blocks of 1 MiB spread evenly, the first and
 * last of every file among them. Files in which none can be are not read. INTERRUPTED when *interrupted (NULL: never) is set. */
sgl_status sglstore_tokens_scan(sglstore_tokens *tokens, const atomic_int *interrupted);
sgl_status sglstore_tokens_train(sglstore_tokens *tokens, int64_t cursor, int32_t *inputs, int32_t *targets);
sgl_status sglstore_tokens_eval(sglstore_tokens *tokens, int64_t cursor, int32_t *inputs, int32_t *targets);
/* Rows first .. first + count - 1 of such a batch alone, at their places in inputs and targets: what one rank of several needs. */
sgl_status sglstore_tokens_rows(sglstore_tokens *tokens, bool is_eval, int64_t cursor, int64_t first, int64_t count,
                                int32_t *inputs, int32_t *targets);
typedef struct sglstore_tokens_sizes {
    int64_t train, held_out;             /* tokens */
    int64_t train_batches, eval_batches; /* whole batches of an epoch, of the held-out part */
    int64_t batch, seq;
} sglstore_tokens_sizes;
sglstore_tokens_sizes sglstore_tokens_sizes_of(const sglstore_tokens *tokens);
sgl_status sglstore_tokens_ngram_loss(sglstore_tokens *tokens, int order, double *nats);

#endif

/* internal.h -- what the files of the store share and nobody else needs: limits, facts of types, the two files of a
 * checkpoint and how their paths are made, the manifest as it stands in memory. */
#ifndef SGLSTORE_INTERNAL_H
#define SGLSTORE_INTERNAL_H

#include "store/store.h"

/* ---- safetensors ------------------------------------------------------------------------------------------------ */

enum {
    SGLSTORE_PIECE = 1 << 18,         /* tensors are read, hashed and written in pieces of this many bytes (fits L2) */
    SGLSTORE_HEADER_MOST = 100000000, /* bytes of a header that the format allows */
};

/* Of a dense tensor; -1 when it overflows. */
int64_t sglstore_bytes_of(const sgl_type *type);
/* The format's name of a dtype, NULL when it has none (i4). */
const char *sglstore_dtype_text(sgl_dtype dtype);

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

/* The files of a checkpoint: parameters first, then what the optimizer and the rest keep. */
enum { SGLSTORE_PARTS = 2 };
typedef struct sglstore_part {
    const char *file;
    uint8_t role;
    const char *noun;
} sglstore_part;
extern const sglstore_part sglstore_parts[SGLSTORE_PARTS];

typedef struct sglstore_path {
    char text[4096];
} sglstore_path;
/* Makes a folder and those above it (save.c). */
sgl_status sglstore_make_dirs(sglcore_env *env, const char *dir);
sgl_status sglstore_join(sglcore_env *env, sglstore_path *path, const char *dir, const char *name);

/* A tensor as the manifest has it. */
typedef struct sglstore_row {
    const char *name;
    sgl_type type;
    char hash[33];
} sglstore_row;

/* One file as the manifest has it. */
typedef struct sglstore_sheet {
    int64_t bytes;
    char header[33]; /* hash */
    SGLCORE_VEC(sglstore_row) rows;
} sglstore_sheet;

typedef struct sglstore_manifest {
    sglcore_env *env;
    sglcore_arena arena; /* of the names */
    int64_t step;
    sglcore_text meta;
    sglstore_sheet sheets[SGLSTORE_PARTS];
} sglstore_manifest;

/* meta is text of a JSON object, kept byte for byte. */
sgl_status sglstore_manifest_write(const sglstore_manifest *manifest, const char *folder);
/* On failure the manifest is empty. NOT_FOUND: there is none. */
sgl_status sglstore_manifest_read(sglcore_env *env, const char *folder, sglstore_manifest *manifest);
void sglstore_manifest_free(sglstore_manifest *manifest);
/* INVALID_ARGUMENT unless the text is one JSON object. */
sgl_status sglstore_check_meta(sglcore_env *env, const char *meta);

/* An open file of a checkpoint, and what belongs to each of its entries. */
typedef struct sglstore_opened {
    sglstore_tensors *file;
    SGLCORE_VEC(const sglstore_row *) rows;       /* by entry */
    SGLCORE_VEC(const sglstore_target *) targets; /* by entry */
} sglstore_opened;

/* Opens a file of the folder and holds it against the manifest: entries, types, bytes, header. Not yet the data. Closed
 * by the caller, also after a failure. A missing file is CORRUPT. */
sgl_status sglstore_part_open(const sglstore_manifest *manifest, const char *folder, int part, sglstore_opened *opened);
/* Gives every entry its target of the same type, every target of this part's role its entry. */
sgl_status sglstore_part_match(sglcore_env *env, const char *folder, int part, const sglstore_target *targets,
                               int64_t count, sglstore_opened *opened);
/* Hashes the data of every entry. `piece` has SGLSTORE_PIECE bytes. */
sgl_status sglstore_part_check(const sglstore_manifest *manifest, const char *folder, int part,
                               const sglstore_opened *opened, char *piece);
/* Hands the data of every entry to its target. */
sgl_status sglstore_part_load(const sglstore_manifest *manifest, const char *folder, int part,
                              const sglstore_opened *opened, char *piece);
void sglstore_part_close(sglcore_env *env, sglstore_opened *opened);

/* Names of a checkpoint's folders in DIR: "step-00000012" when complete, ".step-00000012.partial" while it is written or
 * removed, ".step-00000012.replaced" while a new one of the same step takes its place. */
typedef enum sglstore_suffix { SGLSTORE_FINAL, SGLSTORE_PARTIAL, SGLSTORE_REPLACED, SGLSTORE_SUFFIXES } sglstore_suffix;
typedef struct sglstore_folder {
    int64_t step;
    sglstore_suffix suffix;
} sglstore_folder;
typedef struct sglstore_folders {
    sglcore_env *env;
    SGLCORE_VEC(sglstore_folder) list;
    sgl_status status;
} sglstore_folders;
/* All of DIR, the newest step first; freed with sglcore_vec_free of list, also after a failure. */
sgl_status sglstore_list_folders(sglcore_env *env, const char *dir, sglstore_folders *folders);
sgl_status sglstore_folder_path(sglcore_env *env, sglstore_path *path, const char *dir, sglstore_folder folder);

#endif

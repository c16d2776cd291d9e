/* internal.h -- what the files of the store share and nobody else needs: limits, facts of types, the files of a
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

/* The kinds of files of a checkpoint: parameters first, then what the optimizer and the rest keep. */
enum { SGLSTORE_KINDS = 2, SGLSTORE_FILE_ROOM = 48, SGLSTORE_MOST_RANKS = 1 << 24 };
typedef struct sglstore_kind {
    const char *stem;
    uint8_t role;
    const char *noun;
} sglstore_kind;
extern const sglstore_kind sglstore_kinds[SGLSTORE_KINDS];
/* "parameters.safetensors" of rank 0, "parameters.rank-00001.safetensors" of another. Returns name. */
const char *sglstore_file_name(int kind, int64_t rank, char name[SGLSTORE_FILE_ROOM]);

typedef struct sglstore_path {
    char text[4096];
} sglstore_path;
/* Makes a folder and those above it (save.c). */
sgl_status sglstore_make_dirs(sglcore_env *env, const char *dir);
sgl_status sglstore_join(sglcore_env *env, sglstore_path *path, const char *dir, const char *name);

/* A tensor, or a part of one, as the manifest has it. */
typedef struct sglstore_row {
    const char *name;  /* of the tensor */
    const char *entry; /* of what the file has: the same, with the box behind where it is a part, as in wq[0:8,0:16] */
    sgl_type type;     /* of the whole */
    bool is_part;
    sglstore_box box; /* what the file has of it */
    char hash[33];
} sglstore_row;
/* Of what the file has. */
sgl_type sglstore_row_type(const sglstore_row *row);
/* Names the entry; the text lives as the arena does. */
sgl_status sglstore_row_name(sglcore_env *env, sglcore_arena *arena, sglstore_row *row);

/* One file as the manifest has it. */
typedef struct sglstore_sheet {
    int kind;
    int64_t rank; /* who wrote it */
    int64_t bytes;
    char header[33]; /* hash */
    SGLCORE_VEC(sglstore_row) rows;
} sglstore_sheet;

typedef struct sglstore_manifest {
    sglcore_env *env;
    sglcore_arena arena; /* of the names */
    int64_t step;
    sglcore_text meta;
    SGLCORE_VEC(sglstore_sheet) sheets; /* those of rank 0 first, one of each kind */
} sglstore_manifest;

/* Adds the sheet's text, as the manifest holds it. */
sgl_status sglstore_sheet_text(sglcore_env *env, const sglstore_sheet *sheet, sglcore_text *text);
/* meta is text of a JSON object, kept byte for byte; sheets: of all files, one text behind the other. */
sgl_status sglstore_manifest_write(sglcore_env *env, const char *folder, int64_t step, const char *meta,
                                   const sglcore_text *sheets, bool in_parts);
/* On failure the manifest is empty. NOT_FOUND: there is none. */
sgl_status sglstore_manifest_read(sglcore_env *env, const char *folder, sglstore_manifest *manifest);
void sglstore_manifest_free(sglstore_manifest *manifest);
/* INVALID_ARGUMENT unless the text is one JSON object. */
sgl_status sglstore_check_meta(sglcore_env *env, const char *meta);

/* An open file of a checkpoint, and the row of each of its entries. */
typedef struct sglstore_opened {
    sglcore_env *env;
    const char *folder;
    const sglstore_sheet *sheet;
    sglstore_tensors *file;
    SGLCORE_VEC(const sglstore_row *) rows; /* by entry */
} sglstore_opened;

/* Opens the file of the sheet and holds it against that: entries, types, bytes, header. Not yet the data. Folder and sheet
 * outlive it; closed by the caller, also after a failure. A missing file is CORRUPT. */
sgl_status sglstore_file_open(sglcore_env *env, const char *folder, const sglstore_sheet *sheet,
                              sglstore_opened *opened);
void sglstore_file_close(sglstore_opened *opened);
/* Hashes the data of the entry, and hands to the target (NULL: none) what it wants of it. `piece` has SGLSTORE_PIECE bytes. */
sgl_status sglstore_file_check(const sglstore_opened *opened, int64_t entry, char *piece);
sgl_status sglstore_file_load(const sglstore_opened *opened, int64_t entry, const sglstore_target *target, char *piece);
/* Hands to the target what it has in common with the entry of an open file, which is `box` of the same whole; reads no more than
 * that, but for what lies between short runs. */
sgl_status sglstore_read_common(sglstore_tensors *file, int64_t entry, const sglstore_box *box,
                                const sglstore_target *target, char *piece);

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

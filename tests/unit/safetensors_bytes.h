/* safetensors_bytes.h -- a safetensors file that lies in memory, opened and held against what the reader promises.
 *
 * In: any bytes. Out: safetensors_bytes_try() says whether they were taken for a file, and ends the process (abort) when
 * the reader broke a promise: a range beyond the file, data that overlap, a read beyond the block, memory not given back.
 * Shared by the unit test with its seeded mutations and by tests/fuzz. No file is touched, so a try takes microseconds. */
#ifndef SAFETENSORS_BYTES_H
#define SAFETENSORS_BYTES_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/io.h"
#include "store/store.h"

/* One open file at a time; `data` has exactly `bytes` bytes, so that the sanitizers see a step too far. */
typedef struct safetensors_bytes {
    const unsigned char *data;
    int64_t bytes;
    int open_files;
} safetensors_bytes;

static inline void safetensors_demand(bool held)
{
    if (!held) abort();
}

static inline int safetensors_bytes_open(void *user, const char *path, int *fd)
{
    (void)path;
    ((safetensors_bytes *)user)->open_files++;
    *fd = 7;
    return 0;
}

static inline int safetensors_bytes_close(void *user, int fd)
{
    safetensors_demand(fd == 7);
    ((safetensors_bytes *)user)->open_files--;
    return 0;
}

static inline int safetensors_bytes_size(void *user, int fd, int64_t *bytes)
{
    safetensors_demand(fd == 7);
    *bytes = ((safetensors_bytes *)user)->bytes;
    return 0;
}

static inline int safetensors_bytes_read(void *user, int fd, void *data, size_t bytes, int64_t offset, size_t *got)
{
    const safetensors_bytes *file = user;
    safetensors_demand(fd == 7 && offset >= 0 && offset <= file->bytes);
    safetensors_demand((int64_t)bytes <= file->bytes - offset); /* whoever knows the size never asks for more */
    if (bytes > 0) memcpy(data, file->data + offset, bytes);
    *got = bytes;
    return 0;
}

/* Entries tile the data, have names that are found again, and can be read whole. */
static inline void safetensors_check_entries(sglstore_tensors *file, int64_t file_bytes)
{
    int64_t end = -1, index, count = sglstore_tensors_count(file);
    for (int64_t i = 0; i < count; i++) {
        sgl_type type;
        int64_t offset, bytes;
        const char *name = sglstore_tensors_entry(file, i, &type, &offset, &bytes);
        safetensors_demand(name[0] != 0 && (unsigned)type.dtype < SGL_DTYPE_COUNT);
        safetensors_demand(type.rank >= 0 && type.rank <= SGL_MAX_RANK);
        safetensors_demand(offset >= 8 && bytes >= 0 && bytes <= file_bytes - offset);
        safetensors_demand(end < 0 || offset == end);
        end = offset + bytes;
        safetensors_demand(sglstore_tensors_find(file, name, &index) == SGL_OK && index == i);
        char *data = malloc((size_t)bytes + 1);
        safetensors_demand(sglstore_tensors_read(file, i, 0, data, bytes) == SGL_OK);
        safetensors_demand(sglstore_tensors_read(file, i, 1, data, bytes) == SGL_INVALID_ARGUMENT);
        free(data);
    }
    safetensors_demand(count == 0 || end == file_bytes);
}

/* The status of opening the bytes; `message` (at least 2048 bytes, or NULL) receives what was said. */
static inline sgl_status safetensors_bytes_try(const unsigned char *data, size_t bytes, char *message)
{
    safetensors_bytes file = { .data = malloc(bytes > 0 ? bytes : 1), .bytes = (int64_t)bytes };
    safetensors_demand(file.data != NULL);
    if (bytes > 0) memcpy((void *)(uintptr_t)file.data, data, bytes);
    sglcore_io io = { .user = &file,
                      .open_read = safetensors_bytes_open,
                      .read_at = safetensors_bytes_read,
                      .close = safetensors_bytes_close,
                      .size = safetensors_bytes_size };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    env.io = &io;
    sglstore_tensors *opened;
    sgl_status status = sglstore_tensors_open(&env, "the.file", &opened);
    if (status == SGL_OK) {
        safetensors_check_entries(opened, file.bytes);
    } else {
        safetensors_demand(opened == NULL && status == SGL_CORRUPT);
        safetensors_demand(strncmp(env.message, "the.file: ", 10) == 0);
    }
    if (message != NULL) memcpy(message, env.message, sizeof env.message);
    sglstore_tensors_close(opened);
    safetensors_demand(env.bytes_in_use == 0 && file.open_files == 0);
    free((void *)(uintptr_t)file.data);
    return status;
}

/* A file: length, header, `data_bytes` bytes of data. */
static inline size_t safetensors_make(unsigned char *file, const char *header, int64_t data_bytes)
{
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length);
    for (int64_t i = 0; i < data_bytes; i++) file[8 + length + (size_t)i] = (unsigned char)i;
    return 8 + length + (size_t)data_bytes;
}

/* An entry of a header. */
#define ENTRY(name, dtype, shape, from, to)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

#endif

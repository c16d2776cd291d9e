/* checkpoint_cases.h -- a small set of tensors whose content follows from a number, saved to and loaded from checkpoints.
 *
 * In: a number. Out: sources and targets over memory, counted writes, and checks that what is on disk is a whole state of
 * one number. Shared by the tests of checkpoints. The process runs in a folder of its own. */
#ifndef CHECKPOINT_CASES_H
#define CHECKPOINT_CASES_H

#include "fault.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"

enum { MODEL_TENSORS = 7, MODEL_BYTES = 2048 };

typedef struct model_tensor {
    const char *name;
    sgl_type type;
    uint8_t role;
    int64_t *writes; /* counted over all tensors of a model */
    unsigned char data[MODEL_BYTES];
} model_tensor;

typedef struct model {
    model_tensor tensors[MODEL_TENSORS];
    sglstore_source sources[MODEL_TENSORS];
    sglstore_target targets[MODEL_TENSORS];
    int64_t writes;
} model;

/* The files of POSIX without waiting for the disk: hundreds of saves would take minutes on a busy one. What a killed
 * process wrote is there all the same; only the machine's own end would show the difference. */
static inline int skip_sync(void *user, int fd)
{
    (void)user;
    (void)fd;
    return 0;
}

static inline int skip_sync_dir(void *user, const char *path)
{
    (void)user;
    (void)path;
    return 0;
}

static inline const sglcore_io *unsynced_io(void)
{
    static _Thread_local sglcore_io io; /* ranks are threads in some tests */
    io = sglcore_io_posix;
    io.sync = skip_sync;
    io.sync_dir = skip_sync_dir;
    return &io;
}

static inline sglcore_env plain_env(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    env.io = unsynced_io();
    return env;
}

/* Every warning, a line each, until the next environment of this sort. */
static char checkpoint_warnings[8192];

static inline void keep_warning(void *user, sgl_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, SGL_LOG_WARNING);
    strcat(checkpoint_warnings, message);
    strcat(checkpoint_warnings, "\n");
}

static inline sglcore_env logging_env(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, keep_warning, NULL);
    env.io = unsynced_io();
    checkpoint_warnings[0] = 0;
    return env;
}

static inline void must(sgl_status status) { assert_int_equal(status, SGL_OK); }

static inline int64_t model_bytes(const model_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->type.rank; i++) count *= t->type.dims[i];
    return sglcore_dtype_bytes(t->type.dtype, count);
}

static inline sgl_status model_read(void *user, int64_t offset, void *data, int64_t bytes)
{
    const model_tensor *t = user;
    assert_true(offset >= 0 && bytes > 0 && offset + bytes <= model_bytes(t));
    memcpy(data, t->data + offset, (size_t)bytes);
    return SGL_OK;
}

static inline sgl_status model_write(void *user, int64_t offset, const void *data, int64_t bytes)
{
    model_tensor *t = user;
    assert_true(offset >= 0 && bytes > 0 && offset + bytes <= model_bytes(t));
    memcpy(t->data + offset, data, (size_t)bytes);
    ++*t->writes;
    return SGL_OK;
}

/* Every byte depends on the number, the tensor and its place. */
static inline void model_fill(model *m, uint64_t number)
{
    for (int i = 0; i < MODEL_TENSORS; i++)
        for (int at = 0; at < MODEL_BYTES; at++)
            m->tensors[i].data[at] = (unsigned char)((number * 2654435761u + (uint64_t)i * 40503u + (uint64_t)at) *
                                                         UINT64_C(0x9E3779B97F4A7C15) >>
                                                     56);
}

/* Targets stand in another order than sources, as those of another program may. */
static inline void model_init(model *m, uint64_t number)
{
    static const struct {
        const char *name;
        sgl_type type;
        uint8_t role;
    } rows[MODEL_TENSORS] = {
        { "embed.weight", { SGL_F32, 2, { 7, 11 } }, SGL_PARAMETER },
        { "embed.weight.m", { SGL_F32, 2, { 7, 11 } }, SGL_STATE },
        { "norm.gain", { SGL_BF16, 1, { 13 } }, SGL_PARAMETER },
        { "step", { SGL_I64, 0, { 0 } }, SGL_STATE },
        { "mask", { SGL_BOOL, 1, { 5 } }, SGL_STATE },
        { "none", { SGL_F32, 2, { 0, 4 } }, SGL_PARAMETER },
        { "caf\xC3\xA9 \"x\"", { SGL_F64, 1, { 3 } }, SGL_PARAMETER },
    };
    memset(m, 0, sizeof *m);
    for (int i = 0; i < MODEL_TENSORS; i++) {
        model_tensor *t = &m->tensors[i];
        *t = (model_tensor){ .name = rows[i].name, .type = rows[i].type, .role = rows[i].role, .writes = &m->writes };
        m->sources[i] = (sglstore_source){ t->name, t->type, t->role, t, model_read, NULL };
        m->targets[MODEL_TENSORS - 1 - i] = (sglstore_target){ t->name, t->type, t->role, t, model_write, NULL, NULL };
    }
    model_fill(m, number);
}

/* Saves the state of a number; the number goes into meta too. */
static inline sgl_status model_save(sglcore_env *env, const char *dir, int64_t step, uint64_t number, int keep)
{
    model *m = malloc(sizeof *m);
    char meta[64];
    model_init(m, number);
    snprintf(meta, sizeof meta, "{\"number\": %llu}", (unsigned long long)number);
    sgl_status status = sglstore_checkpoint_save(env, dir, step, meta, m->sources, MODEL_TENSORS, keep);
    free(m);
    return status;
}

/* The checkpoint at `path` is the state of that number, whole. */
static inline void assert_holds(const char *path, uint64_t number)
{
    sglcore_env env = plain_env();
    model *loaded = malloc(sizeof *loaded), *expected = malloc(sizeof *expected);
    model_init(loaded, number + 1);
    model_init(expected, number);
    if (sglstore_checkpoint_load(&env, path, loaded->targets, MODEL_TENSORS, false) != SGL_OK)
        fail_msg("%s", env.message);
    for (int i = 0; i < MODEL_TENSORS; i++)
        assert_memory_equal(loaded->tensors[i].data, expected->tensors[i].data, model_bytes(&expected->tensors[i]));
    free(loaded);
    free(expected);
    assert_int_equal(env.bytes_in_use, 0);
}

/* Finds the last checkpoint of the folder and checks that it is whole; -1 when there is none. */
static inline int64_t find_number(const char *dir, int64_t *step)
{
    sglcore_env env = plain_env();
    char *path, *meta;
    unsigned long long number = 0;
    sgl_status status = sglstore_checkpoint_find(&env, dir, &path, &meta, step);
    if (status == SGL_NOT_FOUND) return -1;
    if (status != SGL_OK) fail_msg("%s", env.message);
    assert_int_equal(sscanf(meta, "{\"number\": %llu}", &number), 1);
    assert_holds(path, number);
    sglcore_free(&env, path, strlen(path) + 1);
    sglcore_free(&env, meta, strlen(meta) + 1);
    assert_int_equal(env.bytes_in_use, 0);
    return (int64_t)number;
}

/* ---- folders and files ------------------------------------------------------------------------------------------ */

static inline int list_one(void *context, const char *name)
{
    char *list = context;
    if (list[0] != 0) strcat(list, " ");
    strcat(list, name);
    return 0;
}

static inline int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names in the folder, sorted, a blank between them. */
static inline const char *names_in(const char *dir)
{
    static char sorted[4096];
    char list[4096] = "", *words[64];
    int count = 0;
    assert_int_equal(sglcore_io_posix.list(NULL, dir, list_one, list), 0);
    for (char *word = strtok(list, " "); word != NULL; word = strtok(NULL, " ")) words[count++] = word;
    qsort(words, (size_t)count, sizeof words[0], compare_texts);
    sorted[0] = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0) strcat(sorted, " ");
        strcat(sorted, words[i]);
    }
    return sorted;
}

static inline void remove_tree(const char *dir)
{
    char list[4096] = "", path[4096], *at = list;
    sglcore_env env = plain_env();
    if (sglcore_io_posix.list(NULL, dir, list_one, list) != 0) return;
    for (char *word = strtok_r(list, " ", &at); word != NULL; word = strtok_r(NULL, " ", &at)) {
        snprintf(path, sizeof path, "%s/%s", dir, word);
        if (remove(path) != 0) assert_int_equal(sglcore_remove_dir(&env, path), SGL_OK);
    }
    assert_int_equal(remove(dir), 0);
}

/* Terminated; freed with free. */
static inline char *read_all(const char *path, int64_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = ftell(file);
    rewind(file);
    char *data = calloc(1, (size_t)*bytes + 1);
    assert_int_equal(fread(data, 1, (size_t)*bytes, file), *bytes);
    assert_int_equal(fclose(file), 0);
    return data;
}

static inline void write_all(const char *path, const void *data, int64_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, (size_t)bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* In place: a file that is cut to nothing and written anew waits for the disk on some file systems. */
static inline void flip_bit(const char *path, int64_t at, int bit)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_true(byte >= 0);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_true(fputc(byte ^ 1 << bit, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#endif

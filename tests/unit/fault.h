/* fault.h -- faults on demand for unit tests: an allocator that fails its n-th request, a table of file operations that
 * fails its n-th operation, and loops that try every n.
 *
 * In: a body, `sgl_status body(sglcore_env *env, void *context)`, that does a whole job through the env it is given and
 * frees all it made. (A body that opens a VM passes env->alloc and env->alloc_user on in its sgl_config.) Out: a failed
 * assertion of cmocka when the body leaks, frees with a wrong size, or hides a failure. Each n fails in two ways: once,
 * and from then on for ever. The loops end with the first n that the body does not reach, and it must be OK then. */
#ifndef FAULT_H
#define FAULT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/core.h"
#include "core/io.h"

typedef sgl_status (*fault_body)(sglcore_env *env, void *context);

/* Counts operations and says which of them fail. */
typedef struct fault_counter {
    int64_t fail_at; /* 1, 2, ...; 0: none fails */
    bool for_ever;   /* the later ones fail too */
    int64_t seen;
    bool tripped; /* something was failed */
} fault_counter;

static inline bool fault_now(fault_counter *counter)
{
    counter->seen++;
    bool now = counter->fail_at > 0 &&
               (counter->for_ever ? counter->seen >= counter->fail_at : counter->seen == counter->fail_at);
    if (now) counter->tripped = true;
    return now;
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

/* An allocator for sgl_config and sglcore_env. It checks each size it is told against the one it gave out, moves every
 * block it resizes, and fills new bytes with rubbish. */
typedef struct fault_heap {
    fault_counter counter;
    int64_t live_bytes, live_blocks, peak_bytes;
} fault_heap;

enum { FAULT_HEADER = 32 }; /* of each block: its size, and a mark that shows a write before the block */
#define FAULT_MARK 0x5A17F00D5A17F00Du

static inline void *fault_give(fault_heap *heap, size_t bytes)
{
    unsigned char *whole = malloc(FAULT_HEADER + bytes);
    if (whole == NULL) return NULL;
    uint64_t header[FAULT_HEADER / 8] = { bytes, FAULT_MARK, FAULT_MARK, FAULT_MARK };
    memcpy(whole, header, FAULT_HEADER);
    memset(whole + FAULT_HEADER, 0xCB, bytes);
    heap->live_bytes += (int64_t)bytes;
    heap->live_blocks++;
    if (heap->live_bytes > heap->peak_bytes) heap->peak_bytes = heap->live_bytes;
    return whole + FAULT_HEADER;
}

static inline void fault_take(fault_heap *heap, void *block, size_t bytes)
{
    unsigned char *whole = (unsigned char *)block - FAULT_HEADER;
    uint64_t header[FAULT_HEADER / 8];
    memcpy(header, whole, FAULT_HEADER);
    assert_int_equal(header[0], bytes);
    for (int i = 1; i < FAULT_HEADER / 8; i++) assert_true(header[i] == FAULT_MARK);
    memset(block, 0xDE, bytes);
    free(whole);
    heap->live_bytes -= (int64_t)bytes;
    heap->live_blocks--;
}

static inline void *fault_alloc(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    fault_heap *heap = user;
    if (new_bytes == 0) {
        if (block != NULL) fault_take(heap, block, old_bytes);
        return NULL;
    }
    if (fault_now(&heap->counter)) return NULL;
    void *moved = fault_give(heap, new_bytes);
    if (moved != NULL && block != NULL) {
        memcpy(moved, block, old_bytes < new_bytes ? old_bytes : new_bytes);
        fault_take(heap, block, old_bytes);
    }
    return moved;
}

static inline sglcore_env fault_env(fault_heap *heap)
{
    sglcore_env env;
    sglcore_env_init(&env, fault_alloc, heap, NULL, NULL);
    return env;
}

/* A loop over every request of a job takes as the square of their number: of more than FAULT_MOST it walks at uneven steps, about
 * so many of them. SGL_FAULT_FULL=1 takes every one (scripts/nightly); not with SGL_HARD_MODE, where a job asks for memory ten
 * times as often (every append moves its array). */
enum { FAULT_MOST = 1000 };

static inline int64_t fault_step(int64_t n, int64_t allocations)
{
#ifndef SGL_HARD_MODE
    if (getenv("SGL_FAULT_FULL") != NULL) return 1;
#endif
    const uint64_t mean = (uint64_t)(allocations / FAULT_MOST);
    if (mean > 0) return 1 + (int64_t)((((uint64_t)n * 0x9E3779B97F4A7C15u) >> 32) % (2 * mean));
    return 1;
}

/* Runs body with the n-th allocation failing, n = 1, 2, ... With `strict`, a failed allocation must come back as
 * OUT_OF_MEMORY; without it the body may also recover and be OK (Lua collects garbage and asks again). Returns the
 * number of allocations of a run without faults. */
static inline int64_t fault_allocations(fault_body body, void *context, bool strict)
{
    fault_heap whole = { .counter = { 0 } };
    sglcore_env plain = fault_env(&whole);
    assert_int_equal(body(&plain, context), SGL_OK);
    assert_int_equal(whole.live_bytes, 0);
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        bool tripped = true;
        int64_t reported = 0;
        for (int64_t n = 1; tripped; n += fault_step(n, whole.counter.seen)) {
            fault_heap heap = { .counter = { .fail_at = n, .for_ever = for_ever != 0 } };
            sglcore_env env = fault_env(&heap);
            sgl_status status = body(&env, context);
            tripped = heap.counter.tripped;
            if (tripped && strict) assert_int_equal(status, SGL_OUT_OF_MEMORY);
            if (!tripped || status != SGL_OUT_OF_MEMORY) assert_int_equal(status, SGL_OK);
            if (status != SGL_OK) reported++;
            assert_int_equal(heap.live_bytes, 0);
            assert_int_equal(heap.live_blocks, 0);
            assert_int_equal(env.bytes_in_use, 0);
        }
        assert_true(reported > 0); /* a body that allocates nothing, or hides every failure, proves nothing */
    }
    return whole.counter.seen;
}

#define fault_each_allocation(body, context) fault_allocations((body), (context), true)
#define fault_each_allocation_tolerant(body, context) fault_allocations((body), (context), false)

/* ---- files -------------------------------------------------------------------------------------------------- */

/* A table of file operations around another one. A failing write leaves half of its bytes behind, as a full disk or a
 * kill does; a failing close still closes. */
typedef struct fault_files {
    sglcore_io io; /* env->io = &files.io */
    const sglcore_io *real;
    fault_counter counter;
    int error; /* errno of the failure */
    int64_t open_files;
} fault_files;

static inline int fault_refuse(const fault_files *files)
{
    errno = files->error;
    return -1;
}

static inline int fault_open_read(void *user, const char *path, int *fd)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    int result = files->real->open_read(files->real->user, path, fd);
    if (result == 0) files->open_files++;
    return result;
}

static inline int fault_open_write(void *user, const char *path, int *fd)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    int result = files->real->open_write(files->real->user, path, fd);
    if (result == 0) files->open_files++;
    return result;
}

static inline int fault_read_at(void *user, int fd, void *data, size_t bytes, int64_t offset, size_t *got)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->read_at(files->real->user, fd, data, bytes, offset, got);
}

static inline int fault_write(void *user, int fd, const void *data, size_t bytes)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) {
        if (files->counter.seen == files->counter.fail_at) {
            (void)files->real->write(files->real->user, fd, data, bytes / 2);
        }
        return fault_refuse(files);
    }
    return files->real->write(files->real->user, fd, data, bytes);
}

static inline int fault_sync(void *user, int fd)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->sync(files->real->user, fd);
}

static inline int fault_close(void *user, int fd)
{
    fault_files *files = user;
    int result = files->real->close(files->real->user, fd);
    files->open_files--;
    return fault_now(&files->counter) ? fault_refuse(files) : result;
}

static inline int fault_size(void *user, int fd, int64_t *bytes)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->size(files->real->user, fd, bytes);
}

static inline int fault_rename(void *user, const char *from, const char *to)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->rename(files->real->user, from, to);
}

static inline int fault_remove(void *user, const char *path)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->remove(files->real->user, path);
}

static inline int fault_make_dir(void *user, const char *path)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->make_dir(files->real->user, path);
}

static inline int fault_sync_dir(void *user, const char *path)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->sync_dir(files->real->user, path);
}

static inline int fault_list(void *user, const char *path, int (*each)(void *context, const char *name), void *context)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    return files->real->list(files->real->user, path, each, context);
}

static inline int fault_lock(void *user, const char *path, int *fd)
{
    fault_files *files = user;
    if (fault_now(&files->counter)) return fault_refuse(files);
    int result = files->real->lock(files->real->user, path, fd);
    if (result == 0) files->open_files++;
    return result;
}

/* `files` must not move afterwards: the table points to it. */
static inline void fault_files_init(fault_files *files, int64_t fail_at, bool for_ever)
{
    *files = (fault_files){
        .io = { .user = files,
                .open_read = fault_open_read,
                .open_write = fault_open_write,
                .read_at = fault_read_at,
                .write = fault_write,
                .sync = fault_sync,
                .close = fault_close,
                .size = fault_size,
                .rename = fault_rename,
                .remove = fault_remove,
                .make_dir = fault_make_dir,
                .sync_dir = fault_sync_dir,
                .list = fault_list,
                .lock = fault_lock },
        .real = &sglcore_io_posix,
        .counter = { .fail_at = fail_at, .for_ever = for_ever },
        .error = EIO,
    };
}

/* Called after each run with the real files in place: asserts what must hold whatever failed. Failing for ever is what a
 * kill looks like from outside: nothing after the n-th operation happened, not even the cleaning up. */
typedef void (*fault_check)(void *context, sgl_status status, bool tripped, bool for_ever);

/* Runs body with the n-th file operation failing, n = 1, 2, ... With `strict` a failed operation must come back as
 * SGL_IO; without it the body may be OK (a failure to remove a leftover, say). Returns the number of operations of a
 * run without faults. */
static inline int64_t fault_operations(fault_body body, void *context, fault_check check, bool strict)
{
    int64_t reached = 0;
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        bool tripped = true;
        int64_t reported = 0;
        for (int64_t n = 1; tripped; n++) {
            fault_heap heap = { .counter = { 0 } };
            fault_files files;
            sglcore_env env = fault_env(&heap);
            fault_files_init(&files, n, for_ever != 0);
            env.io = &files.io;
            sgl_status status = body(&env, context);
            tripped = files.counter.tripped;
            if (tripped && strict) assert_int_equal(status, SGL_IO);
            if (!tripped || status != SGL_IO) assert_int_equal(status, SGL_OK);
            if (status != SGL_OK) reported++;
            assert_int_equal(heap.live_bytes, 0);
            assert_int_equal(env.bytes_in_use, 0);
            assert_int_equal(files.open_files, 0);
            if (check != NULL) check(context, status, tripped, for_ever != 0);
            reached = n - 1;
        }
        assert_true(reported > 0);
    }
    return reached;
}

#define fault_each_io(body, context, check) fault_operations((body), (context), (check), true)
#define fault_each_io_tolerant(body, context, check) fault_operations((body), (context), (check), false)

#endif

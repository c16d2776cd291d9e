/* memory.c -- host memory: plain and aligned blocks, arenas, the growth of vectors.
 *
 * In: the env's allocator, the only one the library uses. Out: blocks, counted exactly in env->bytes_in_use; a failure
 * is a NULL and a recorded message. Sizes stand with their owners, not before the blocks: who frees says how much. Odd
 * invariant: with SGL_HARD_MODE every growth of a short vector moves it and every arena block is a chunk of its own, so that
 * stale pointers and overruns are found by the sanitizers. */
#include <assert.h>
#include <string.h>

#include "core/core.h"

/* ---- blocks ------------------------------------------------------------------------------------------------- */

void *sglcore_realloc(sglcore_env *env, void *block, size_t old_bytes, size_t new_bytes)
{
    assert((block == NULL) == (old_bytes == 0));
    if (new_bytes == 0) {
        sglcore_free(env, block, old_bytes);
        return NULL;
    }
    env->allocations++;
    void *moved = new_bytes > PTRDIFF_MAX ? NULL : env->alloc(env->alloc_user, block, old_bytes, new_bytes);
    if (moved == NULL) {
        sglcore_fail(env, SGL_OUT_OF_MEMORY, "out of memory: %zu bytes were refused, %lld bytes are in use", new_bytes,
                     (long long)env->bytes_in_use);
        return NULL;
    }
    env->bytes_in_use += (int64_t)new_bytes - (int64_t)old_bytes;
    return moved;
}

void *sglcore_alloc(sglcore_env *env, size_t bytes) { return sglcore_realloc(env, NULL, 0, bytes); }

void *sglcore_alloc_zero(sglcore_env *env, size_t bytes)
{
    void *block = sglcore_alloc(env, bytes);
    if (block != NULL) memset(block, 0, bytes);
    return block;
}

void sglcore_free(sglcore_env *env, void *block, size_t bytes)
{
    if (block == NULL) return;
    env->alloc(env->alloc_user, block, bytes, 0);
    env->bytes_in_use -= (int64_t)bytes;
}

/* An aligned block lies in a plain one that is larger by aligned_extra; the address of the plain one stands right
 * before the aligned one. */
static size_t aligned_extra(size_t alignment) { return alignment - 1 + sizeof(void *); }

void *sglcore_alloc_aligned(sglcore_env *env, size_t bytes, size_t alignment)
{
    assert(alignment > 0 && alignment <= 4096 && (alignment & (alignment - 1)) == 0);
    if (bytes == 0) return NULL;
    size_t total = bytes > PTRDIFF_MAX ? bytes : bytes + aligned_extra(alignment); /* too much either way: refused */
    unsigned char *plain = sglcore_alloc(env, total);
    if (plain == NULL) return NULL;
    uintptr_t least = (uintptr_t)plain + sizeof(void *);
    unsigned char *aligned = plain + sizeof(void *) + (-least & (alignment - 1));
    memcpy(aligned - sizeof(void *), &plain, sizeof plain);
    return aligned;
}

void sglcore_free_aligned(sglcore_env *env, void *block, size_t bytes, size_t alignment)
{
    if (block == NULL) return;
    void *plain;
    memcpy(&plain, (unsigned char *)block - sizeof(void *), sizeof plain);
    sglcore_free(env, plain, bytes + aligned_extra(alignment));
}

/* ---- arenas ------------------------------------------------------------------------------------------------- */

enum { ARENA_ALIGNMENT = 16, ARENA_FIRST_BYTES = 4096, ARENA_MOST_BYTES = 1 << 20 };

typedef struct sglcore_arena_chunk {
    _Alignas(ARENA_ALIGNMENT) struct sglcore_arena_chunk *next;
    size_t used, capacity; /* bytes after this header */
} chunk;

_Static_assert(_Alignof(max_align_t) >= ARENA_ALIGNMENT, "the header of a chunk is as aligned as malloc's blocks");

static size_t next_capacity(const sglcore_arena *arena, size_t bytes)
{
#ifdef SGL_HARD_MODE
    (void)arena;
    return bytes;
#else
    size_t capacity = arena->chunks == NULL ? ARENA_FIRST_BYTES - sizeof(chunk) : 2 * arena->chunks->capacity;
    if (capacity > ARENA_MOST_BYTES) capacity = ARENA_MOST_BYTES;
    return bytes > capacity ? bytes : capacity;
#endif
}

void *sglcore_arena_alloc(sglcore_arena *arena, size_t bytes)
{
    if (bytes > PTRDIFF_MAX - sizeof(chunk) - ARENA_ALIGNMENT) {
        sglcore_fail(arena->env, SGL_OUT_OF_MEMORY, "out of memory: %zu bytes were refused", bytes);
        return NULL;
    }
    /* A block of no bytes has a place of its own too: NULL is kept for failure. */
    size_t rounded = bytes == 0 ? ARENA_ALIGNMENT : (bytes + ARENA_ALIGNMENT - 1) & ~(size_t)(ARENA_ALIGNMENT - 1);
    chunk *head = arena->chunks;
    if (head == NULL || head->capacity - head->used < rounded) {
        size_t capacity = next_capacity(arena, rounded);
        head = sglcore_alloc(arena->env, sizeof(chunk) + capacity);
        if (head == NULL) return NULL;
        *head = (chunk){ .next = arena->chunks, .capacity = capacity };
        arena->chunks = head;
    }
    void *block = (unsigned char *)(head + 1) + head->used;
    head->used += rounded;
    memset(block, 0, rounded);
    return block;
}

char *sglcore_arena_string(sglcore_arena *arena, const char *text, size_t length)
{
    char *copy = sglcore_arena_alloc(arena, length + 1);
    if (copy != NULL && length > 0) memcpy(copy, text, length);
    return copy; /* the arena's zeroes terminate it */
}

void sglcore_arena_free(sglcore_arena *arena)
{
    while (arena->chunks != NULL) {
        chunk *head = arena->chunks;
        arena->chunks = head->next;
        sglcore_free(arena->env, head, sizeof(chunk) + head->capacity);
    }
}

/* ---- vectors ------------------------------------------------------------------------------------------------ */

#ifdef SGL_HARD_MODE
enum {
    HARD_MOST = 1024
}; /* elements; a longer vector moves when it is full: else building it takes time of its square */
#endif

sgl_status sglcore_vec_grow(sglcore_env *env, void **data, int64_t *capacity, int64_t count, int64_t more, size_t size)
{
    assert(count >= 0 && count <= *capacity && more >= 0);
    int64_t most = PTRDIFF_MAX / (int64_t)size;
    if (more > most - count) {
        return sglcore_fail(env, SGL_OUT_OF_MEMORY, "out of memory: %lld more elements of %zu bytes were refused",
                            (long long)more, size);
    }
    int64_t needed = count + more, old_capacity = *capacity, new_capacity = old_capacity;
    if (needed > old_capacity) {
        new_capacity = old_capacity > most / 2 ? most : 2 * old_capacity;
        if (new_capacity < needed) new_capacity = needed;
#ifdef SGL_HARD_MODE
        new_capacity = needed <= HARD_MOST ? needed : needed + needed / 8;
#else
        if (new_capacity < 8 && most >= 8) new_capacity = 8;
#endif
    }
    void *old; /* *data is a T * of the caller's: copied, not read as another type */
    memcpy(&old, data, sizeof old);
#ifdef SGL_HARD_MODE
    if (more == 0 || (needed <= old_capacity && needed > HARD_MOST)) return SGL_OK;
    void *moved = sglcore_alloc(env, (size_t)new_capacity * size);
    if (moved == NULL) return SGL_OUT_OF_MEMORY;
    if (old != NULL) {
        memcpy(moved, old, (size_t)count * size);
        memset(old, 0xA5, (size_t)old_capacity * size);
        sglcore_free(env, old, (size_t)old_capacity * size);
    }
#else
    if (new_capacity == old_capacity) return SGL_OK;
    void *moved = sglcore_realloc(env, old, (size_t)old_capacity * size, (size_t)new_capacity * size);
    if (moved == NULL) return SGL_OUT_OF_MEMORY;
#endif
    memcpy(data, &moved, sizeof moved);
    *capacity = new_capacity;
    return SGL_OK;
}

/* core.h -- the ground every room stands on: the environment (allocator, error message, log, files), vectors, arenas,
 * interned strings, maps, hashes, knobs.
 *
 * An sglcore_env is to the library what lua_State's global part is to Lua: one per VM, handed to whatever allocates or
 * fails. It is used by one thread at a time. Functions that can fail return sgl_status; the message stands in the env. */
#ifndef SGLCORE_CORE_H
#define SGLCORE_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sgl.h"

/* ---- environment -------------------------------------------------------------------------------------------- */

struct sglcore_io; /* core/io.h */

typedef struct sglcore_env {
    sgl_alloc_fn alloc;
    void *alloc_user;
    sgl_log_fn log; /* never NULL after init */
    void *log_user;
    const struct sglcore_io *io; /* file operations; tests put a failing one here */
    int64_t bytes_in_use;        /* of this env's allocations: must be 0 at the end */
    int64_t allocations;         /* count of calls that asked for memory, for "no allocation in replay" tests */
    char message[2048];          /* of the last failure */
} sglcore_env;

/* alloc NULL: malloc; log NULL: silence. */
void sglcore_env_init(sglcore_env *env, sgl_alloc_fn alloc, void *alloc_user, sgl_log_fn log, void *log_user);

/* Records the message (printf form) and returns status, so that a caller writes `return sglcore_fail(...)`. */
sgl_status sglcore_fail(sglcore_env *env, sgl_status status, const char *format, ...) SGL_PRINTF(3, 4);
sgl_status sglcore_fail_v(sglcore_env *env, sgl_status status, const char *format, va_list arguments);
/* Puts "prefix: " before the recorded message; for callers that know the place (a file, a script line). */
sgl_status sglcore_fail_at(sglcore_env *env, sgl_status status, const char *format, ...) SGL_PRINTF(3, 4);
/* Hands one line (no line end) to the host's log callback. */
void sglcore_log(sglcore_env *env, sgl_log_level level, const char *format, ...) SGL_PRINTF(3, 4);
void sglcore_log_v(sglcore_env *env, sgl_log_level level, const char *format, va_list arguments);

#define SGLCORE_TRY(call)                                                                                              \
    do {                                                                                                               \
        sgl_status sglcore_try_status = (call);                                                                        \
        if (sglcore_try_status != SGL_OK) return sglcore_try_status;                                                   \
    } while (0)

/* ---- memory ------------------------------------------------------------------------------------------------- */

/* NULL and a recorded message when it fails. bytes 0 gives NULL without failing. */
void *sglcore_alloc(sglcore_env *env, size_t bytes);
void *sglcore_alloc_zero(sglcore_env *env, size_t bytes);
void *sglcore_realloc(sglcore_env *env, void *block, size_t old_bytes, size_t new_bytes);
void sglcore_free(sglcore_env *env, void *block, size_t bytes);
/* Blocks aligned to `alignment` (a power of two up to 4096), freed with the same size and alignment. */
void *sglcore_alloc_aligned(sglcore_env *env, size_t bytes, size_t alignment);
void sglcore_free_aligned(sglcore_env *env, void *block, size_t bytes, size_t alignment);

/* A bump allocator for what dies together. Zero-initialise with { .env = env }. */
typedef struct sglcore_arena {
    sglcore_env *env;
    struct sglcore_arena_chunk *chunks;
} sglcore_arena;
void *sglcore_arena_alloc(sglcore_arena *arena, size_t bytes); /* zeroed, aligned to 16; NULL when it fails */
char *sglcore_arena_string(sglcore_arena *arena, const char *text, size_t length); /* copied, terminated */
void sglcore_arena_free(sglcore_arena *arena);

/* ---- vectors ------------------------------------------------------------------------------------------------ */

/* A growing array of T: `SGLCORE_VEC(int64_t) sizes = { 0 };`. data is NULL while capacity is 0. */
#define SGLCORE_VEC(T)                                                                                                 \
    struct {                                                                                                           \
        T *data;                                                                                                       \
        int64_t count, capacity;                                                                                       \
    }

/* Makes room for `more` further elements. Hard-mode builds move a short array every time, so that a pointer kept across a
 * push is found out. Fails only with OUT_OF_MEMORY, and then the vector is as it was. */
#define sglcore_vec_reserve(env, vec, more)                                                                            \
    sglcore_vec_grow((env), (void **)(void *)&(vec)->data, &(vec)->capacity, (vec)->count, (more), sizeof *(vec)->data)
/* Appends one element; evaluates to a status. `value` is evaluated after the room is made. */
#define sglcore_vec_push(env, vec, ...)                                                                                \
    (sglcore_vec_reserve(env, vec, 1) == SGL_OK ? ((vec)->data[(vec)->count++] = (__VA_ARGS__), SGL_OK)                \
                                                : SGL_OUT_OF_MEMORY)
#define sglcore_vec_free(env, vec)                                                                                     \
    (sglcore_free((env), (vec)->data, (size_t)(vec)->capacity * sizeof *(vec)->data), (vec)->data = NULL,              \
     (vec)->count = (vec)->capacity = 0)
sgl_status sglcore_vec_grow(sglcore_env *env, void **data, int64_t *capacity, int64_t count, int64_t more, size_t size);

/* ---- text --------------------------------------------------------------------------------------------------- */

/* A growing text; `data` is terminated whenever count > 0. What is added must not lie in the text itself. */
typedef SGLCORE_VEC(char) sglcore_text;
sgl_status sglcore_text_add(sglcore_env *env, sglcore_text *text, const char *format, ...) SGL_PRINTF(3, 4);
sgl_status sglcore_text_bytes(sglcore_env *env, sglcore_text *text, const char *data, size_t bytes);
void sglcore_text_free(sglcore_env *env, sglcore_text *text);
/* Adds raw in the quotes of JSON; INVALID_ARGUMENT when it is not UTF-8. */
sgl_status sglcore_text_quote(sglcore_env *env, sglcore_text *text, const char *raw);
/* vsnprintf and strtod with '.' as the decimal point whatever locale the host has set. All of core's own printf forms
 * (fail, log, text_add) go through the first; whoever reads numbers from a text must use the second. */
int sglcore_format(char *out, size_t capacity, const char *format, va_list arguments);
double sglcore_strtod(const char *text, char **end);

/* Interned strings: equal texts have equal ids; id 0 is "". */
typedef struct sglcore_strings sglcore_strings;
sgl_status sglcore_strings_new(sglcore_env *env, sglcore_strings **strings);
void sglcore_strings_free(sglcore_strings *strings);
sgl_status sglcore_intern(sglcore_strings *strings, const char *text, size_t length, uint32_t *id);
/* The id of a text that is interned; false when it is not. Asks for no memory. */
bool sglcore_interned(const sglcore_strings *strings, const char *text, size_t length, uint32_t *id);
const char *sglcore_string(const sglcore_strings *strings, uint32_t id);

/* The nearest of `count` names to `name` by edit distance, or NULL when none is near: for "did you mean". */
const char *sglcore_nearest(const char *name, const char *const *names, int count);
/* "; did you mean 'x'?" with the nearest name, or "" when none is near; SGLCORE_HINT_ROOM bytes hold either. */
enum { SGLCORE_HINT_ROOM = 96 };
const char *sglcore_hint(const char *name, const char *const *names, int count, char text[SGLCORE_HINT_ROOM]);
/* True when the list, words with commas or blanks between them, has the word. */
bool sglcore_list_has(const char *list, const char *word);

/* ---- hashes and maps ---------------------------------------------------------------------------------------- */

typedef struct sglcore_hash {
    uint64_t low, high;
} sglcore_hash; /* XXH3-128 */

sglcore_hash sglcore_hash_bytes(const void *data, size_t bytes);
static inline bool sglcore_hash_equal(sglcore_hash a, sglcore_hash b) { return a.low == b.low && a.high == b.high; }
/* Writes 32 hexadecimal digits and a terminating zero. */
void sglcore_hash_text(sglcore_hash hash, char text[33]);

/* Streaming. A hasher is plain data on the caller's stack. */
typedef struct sglcore_hasher {
    _Alignas(64) unsigned char state[640];
} sglcore_hasher;
void sglcore_hasher_init(sglcore_hasher *hasher);
void sglcore_hasher_add(sglcore_hasher *hasher, const void *data, size_t bytes);
void sglcore_hasher_u64(sglcore_hasher *hasher, uint64_t value);
void sglcore_hasher_string(sglcore_hasher *hasher, const char *text); /* length first, so that "a","b" is not "ab","" */
sglcore_hash sglcore_hasher_end(const sglcore_hasher *hasher);

/* A map from 128-bit keys (a hash, or a small number in .low) to 64-bit values. Zero-initialise. */
typedef struct sglcore_map {
    struct sglcore_map_entry *entries;
    int64_t count, capacity;
} sglcore_map;
sgl_status sglcore_map_put(sglcore_env *env, sglcore_map *map, sglcore_hash key, uint64_t value); /* replaces */
bool sglcore_map_get(const sglcore_map *map, sglcore_hash key, uint64_t *value);
void sglcore_map_free(sglcore_env *env, sglcore_map *map);

/* ---- counter-based random numbers ---------------------------------------------------------------------------- */

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). */
void sglcore_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* ---- dtypes ------------------------------------------------------------------------------------------------- */

int sglcore_dtype_bits(sgl_dtype dtype);
bool sglcore_dtype_is_float(sgl_dtype dtype);
bool sglcore_dtype_is_signed(sgl_dtype dtype); /* floats and signed integers */
/* Bytes of `count` elements; -1 when it overflows. */
int64_t sglcore_dtype_bytes(sgl_dtype dtype, int64_t count);

/* ---- time --------------------------------------------------------------------------------------------------- */

int64_t sglcore_now_ns(void); /* monotonic */

#endif

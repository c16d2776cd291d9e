/* text.c -- growing texts, interned strings, lists of words, and the nearest name to a misspelt one.
 *
 * In: bytes and printf forms. Out: terminated texts; ids. Numbers are printed and read in the C locale whatever the host
 * has set, because the text form of a graph must parse back anywhere. */
#include <assert.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

/* ---- numbers and texts -------------------------------------------------------------------------------------- */

/* The locale of this thread becomes "C" until leave_c_locale. glibc hands out its one C locale here, without malloc. */
typedef struct locale_swap {
    locale_t c, before;
} locale_swap;

static locale_swap enter_c_locale(void)
{
    locale_swap swap = { .c = newlocale(LC_ALL_MASK, "C", (locale_t)0), .before = (locale_t)0 };
    if (swap.c != (locale_t)0) swap.before = uselocale(swap.c);
    return swap;
}

static void leave_c_locale(locale_swap swap)
{
    if (swap.c == (locale_t)0) return;
    uselocale(swap.before);
    freelocale(swap.c);
}

int sglcore_format(char *out, size_t capacity, const char *format, va_list arguments)
{
    locale_swap swap = enter_c_locale();
    int length = vsnprintf(out, capacity, format, arguments);
    leave_c_locale(swap);
    return length;
}

double sglcore_strtod(const char *text, char **end)
{
    locale_swap swap = enter_c_locale();
    double value = strtod(text, end);
    leave_c_locale(swap);
    return value;
}

sgl_status sglcore_text_add(sglcore_env *env, sglcore_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = sglcore_format(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) return sglcore_fail(env, SGL_INTERNAL, "a text could not be formatted from \"%.100s\"", format);
    SGLCORE_TRY(sglcore_vec_reserve(env, text, (int64_t)length + 1));
    va_start(arguments, format);
    sglcore_format(text->data + text->count, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->count += length;
    return SGL_OK;
}

sgl_status sglcore_text_bytes(sglcore_env *env, sglcore_text *text, const char *data, size_t bytes)
{
    if (bytes >= PTRDIFF_MAX) return sglcore_fail(env, SGL_OUT_OF_MEMORY, "out of memory: a text of %zu bytes", bytes);
    SGLCORE_TRY(sglcore_vec_reserve(env, text, (int64_t)bytes + 1));
    if (bytes > 0) memcpy(text->data + text->count, data, bytes);
    text->count += (int64_t)bytes;
    text->data[text->count] = '\0';
    return SGL_OK;
}

void sglcore_text_free(sglcore_env *env, sglcore_text *text) { sglcore_vec_free(env, text); }

/* ---- interned strings --------------------------------------------------------------------------------------- */

typedef struct interned {
    const char *text; /* in the arena: stays where it is */
    size_t length;
    uint64_t hash;
} interned;

struct sglcore_strings {
    sglcore_env *env;
    sglcore_arena arena;
    SGLCORE_VEC(interned) entries; /* by id */
    uint32_t *slots;               /* open addressing: id + 1, 0 is free */
    int64_t slot_count;            /* a power of two, at most half full */
};

sgl_status sglcore_strings_new(sglcore_env *env, sglcore_strings **strings)
{
    *strings = NULL;
    sglcore_strings *made = sglcore_alloc_zero(env, sizeof *made);
    if (made == NULL) return SGL_OUT_OF_MEMORY;
    made->env = env;
    made->arena.env = env;
    uint32_t empty;
    sgl_status status = sglcore_intern(made, "", 0, &empty);
    if (status != SGL_OK) {
        sglcore_strings_free(made);
        return status;
    }
    *strings = made;
    return SGL_OK;
}

void sglcore_strings_free(sglcore_strings *strings)
{
    if (strings == NULL) return;
    sglcore_env *env = strings->env;
    sglcore_arena_free(&strings->arena);
    sglcore_vec_free(env, &strings->entries);
    sglcore_free(env, strings->slots, (size_t)strings->slot_count * sizeof *strings->slots);
    sglcore_free(env, strings, sizeof *strings);
}

/* The slot of the string, or the free slot where it belongs. */
static uint32_t *find_slot(const sglcore_strings *strings, const char *text, size_t length, uint64_t hash)
{
    uint64_t mask = (uint64_t)strings->slot_count - 1;
    for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
        uint32_t held = strings->slots[at];
        if (held == 0) return &strings->slots[at];
        const interned *entry = &strings->entries.data[held - 1];
        if (entry->hash == hash && entry->length == length && (length == 0 || memcmp(entry->text, text, length) == 0)) {
            return &strings->slots[at];
        }
    }
}

static sgl_status grow_slots(sglcore_strings *strings)
{
    int64_t count = strings->slot_count == 0 ? 64 : 2 * strings->slot_count;
    uint32_t *slots = sglcore_alloc_zero(strings->env, (size_t)count * sizeof *slots);
    if (slots == NULL) return SGL_OUT_OF_MEMORY;
    uint64_t mask = (uint64_t)count - 1;
    for (int64_t id = 0; id < strings->entries.count; id++) { /* all differ: the first free slot is right */
        uint64_t at = strings->entries.data[id].hash & mask;
        while (slots[at] != 0) at = (at + 1) & mask;
        slots[at] = (uint32_t)id + 1;
    }
    sglcore_free(strings->env, strings->slots, (size_t)strings->slot_count * sizeof *slots);
    strings->slots = slots;
    strings->slot_count = count;
    return SGL_OK;
}

bool sglcore_interned(const sglcore_strings *strings, const char *text, size_t length, uint32_t *id)
{
    uint32_t held = *find_slot(strings, text, length, sglcore_hash_bytes(text, length).low);
    if (held != 0) *id = held - 1;
    return held != 0;
}

sgl_status sglcore_intern(sglcore_strings *strings, const char *text, size_t length, uint32_t *id)
{
    uint64_t hash = sglcore_hash_bytes(text, length).low;
    uint32_t *slot = strings->slot_count > 0 ? find_slot(strings, text, length, hash) : NULL;
    if (slot != NULL && *slot != 0) {
        *id = *slot - 1;
        return SGL_OK;
    }
    int64_t count = strings->entries.count;
    if (count >= UINT32_MAX - 1) {
        return sglcore_fail(strings->env, SGL_LIMIT, "more than %lld different strings", (long long)count);
    }
    if (2 * (count + 1) > strings->slot_count) {
        SGLCORE_TRY(grow_slots(strings));
        slot = find_slot(strings, text, length, hash);
    }
    SGLCORE_TRY(sglcore_vec_reserve(strings->env, &strings->entries, 1));
    const char *copy = sglcore_arena_string(&strings->arena, text, length);
    if (copy == NULL) return SGL_OUT_OF_MEMORY;
    strings->entries.data[strings->entries.count++] = (interned){ copy, length, hash };
    *slot = (uint32_t)count + 1;
    *id = (uint32_t)count;
    return SGL_OK;
}

const char *sglcore_string(const sglcore_strings *strings, uint32_t id)
{
    assert(id < strings->entries.count);
    return strings->entries.data[id].text;
}

/* ---- lists of words ------------------------------------------------------------------------------------------ */

bool sglcore_list_has(const char *list, const char *word)
{
    size_t wanted = strlen(word), length;
    for (const char *at = list + strspn(list, ", "); (length = strcspn(at, ", ")) > 0; at += strspn(at, ", ")) {
        if (length == wanted && memcmp(at, word, length) == 0) return true;
        at += length;
    }
    return false;
}

/* ---- nearest name ------------------------------------------------------------------------------------------- */

enum { NEAREST_MOST = 64 }; /* longer names are not compared */

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static int least(int a, int b) { return a < b ? a : b; }

/* Insertions, deletions, substitutions and swaps of neighbours that turn one name into the other; case is free. */
static int edit_distance(const char *a, int a_length, const char *b, int b_length)
{
    int rows[3][NEAREST_MOST + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (int j = 0; j <= b_length; j++) last[j] = j;
    for (int i = 1; i <= a_length; i++) {
        now[0] = i;
        for (int j = 1; j <= b_length; j++) {
            char x = lower(a[i - 1]), y = lower(b[j - 1]);
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_length];
}

const char *sglcore_nearest(const char *name, const char *const *names, int count)
{
    size_t length = strlen(name);
    if (length < 3 || length > NEAREST_MOST) return NULL; /* of two letters one wrong is another name */
    int most = (int)length / 3;                           /* near: one edit in three characters */
    const char *nearest = NULL;
    for (int i = 0; i < count; i++) {
        size_t other = strlen(names[i]);
        if (other == 0 || other > NEAREST_MOST) continue;
        int distance = edit_distance(name, (int)length, names[i], (int)other);
        if (distance <= most) {
            nearest = names[i];
            most = distance - 1; /* only a nearer one replaces it: the first of equals wins */
        }
    }
    return nearest;
}

const char *sglcore_hint(const char *name, const char *const *names, int count, char text[SGLCORE_HINT_ROOM])
{
    _Static_assert(NEAREST_MOST + sizeof "; did you mean ''?" <= SGLCORE_HINT_ROOM, "the longest name fits");
    const char *nearest = sglcore_nearest(name, names, count);
    text[0] = '\0';
    if (nearest != NULL) snprintf(text, SGLCORE_HINT_ROOM, "; did you mean '%s'?", nearest);
    return text;
}

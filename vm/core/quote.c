/* quote.c -- texts as others read them: UTF-8 checked, texts quoted for JSON, the type of a tensor as text.
 *
 * In: bytes of the host's or of a script's, trusted by nobody. Out: bytes in the caller's buffer, or in a growing text.
 * Odd invariant: the forms with a buffer take no memory and need no env, so that front ends use them through sgl.h. */
#include <stdio.h>
#include <string.h>

#include "core/core.h"

/* The table of Unicode 3.9 (well-formed byte sequences). */
int sgl_utf8_bytes(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;
    if (left < 1) return 0;
    if (s[0] < 0x80) return 1;
    int bytes = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : 0;
    if (bytes == 0 || (size_t)bytes > left) return 0;
    unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < low || s[1] > high) return 0;
    for (int i = 2; i < bytes; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return bytes;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

enum { ESCAPE_ROOM = 8 };

/* What stands for this character within quotes; NULL: itself. */
static const char *escape_of(unsigned char c, char room[ESCAPE_ROOM])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\t': return "\\t";
    default: break;
    }
    if (c >= 0x20) return NULL;
    snprintf(room, ESCAPE_ROOM, "\\u%04x", (unsigned)c);
    return room;
}

/* Copies what there is room for; the caller's count goes on. */
static void put(char *out, size_t capacity, size_t *used, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, ++*used)
        if (*used < capacity) out[*used] = data[i];
}

size_t sgl_json_quote(const char *text, size_t bytes, char *out, size_t capacity)
{
    size_t used = 0;
    char room[ESCAPE_ROOM];
    put(out, capacity, &used, "\"", 1);
    for (size_t at = 0; at < bytes;) {
        int length = sgl_utf8_bytes(text + at, bytes - at);
        if (length == 0) return 0;
        const char *escape = escape_of((unsigned char)text[at], room);
        put(out, capacity, &used, escape ? escape : text + at, escape ? strlen(escape) : (size_t)length);
        at += (size_t)length;
    }
    put(out, capacity, &used, "\"", 1);
    return used;
}

sgl_status sglcore_text_quote(sglcore_env *env, sglcore_text *text, const char *raw)
{
    size_t bytes = strlen(raw), quoted = sgl_json_quote(raw, bytes, NULL, 0);
    if (quoted == 0) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "'%.200s' is not UTF-8 text", raw);
    SGLCORE_TRY(sglcore_vec_reserve(env, text, (int64_t)quoted + 1));
    sgl_json_quote(raw, bytes, text->data + text->count, quoted);
    text->count += (int64_t)quoted;
    text->data[text->count] = '\0';
    return SGL_OK;
}

/* ---- types ------------------------------------------------------------------------------------------------------ */

const char *sgl_type_text(const sgl_type *type, char *text, size_t capacity)
{
    size_t used = 0;
    char number[24];
    if (capacity == 0) return text;
    const char *name = sgl_dtype_name(type->dtype);
    put(text, capacity - 1, &used, name, strlen(name));
    put(text, capacity - 1, &used, "[", 1);
    for (int i = 0; i < type->rank && i < SGL_MAX_RANK; i++) {
        int length = snprintf(number, sizeof number, i > 0 ? ",%lld" : "%lld", (long long)type->dims[i]);
        put(text, capacity - 1, &used, number, (size_t)length);
    }
    put(text, capacity - 1, &used, "]", 1);
    text[used < capacity ? used : capacity - 1] = '\0';
    return text;
}

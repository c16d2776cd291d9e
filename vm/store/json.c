/* json.c -- a reader of JSON (RFC 8259) that hands out one value at a time, and the quoting of texts.
 *
 * In: bytes of a file. Out: keys, texts, whole numbers, or a failure with line and column. Strict: UTF-8 without
 * overlong forms and surrogates, no leading zeros, no bare control characters, at most 64 levels. Odd invariant: the
 * reader never looks at a byte beyond text + bytes, so the text needs no terminating zero. */
#include <string.h>

#include "store/json.h"

enum { DEPTH_MOST = 64 };

/* ---- places ----------------------------------------------------------------------------------------------------- */

sgl_status sglstore_json_fail(const sglstore_json *json, const char *format, ...)
{
    int64_t line = 1, column = 1; /* columns count characters */
    for (int64_t i = 0; i < json->at && i < json->bytes; i++) {
        if (json->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)json->text[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    va_list arguments;
    va_start(arguments, format);
    sglcore_fail_v(json->env, SGL_CORRUPT, format, arguments);
    va_end(arguments);
    return sglcore_fail_at(json->env, SGL_CORRUPT, "line %lld column %lld", (long long)line, (long long)column);
}

/* The byte at hand, or -1 at the end. */
static int here(const sglstore_json *json) { return json->at < json->bytes ? (unsigned char)json->text[json->at] : -1; }

static void skip_blanks(sglstore_json *json)
{
    for (int c = here(json); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = here(json)) json->at++;
}

static bool take(sglstore_json *json, char c)
{
    if (here(json) != (unsigned char)c) return false;
    json->at++;
    return true;
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

/* out NULL: the text is only checked. */
static sgl_status add(sglstore_json *json, sglcore_text *out, const char *data, int64_t bytes)
{
    return out != NULL ? sglcore_text_bytes(json->env, out, data, (size_t)bytes) : SGL_OK;
}

static sgl_status read_hex4(sglstore_json *json, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        int c = here(json);
        if (c >= '0' && c <= '9')
            *code = *code << 4 | (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *code = *code << 4 | (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            *code = *code << 4 | (uint32_t)(c - 'A' + 10);
        else
            return sglstore_json_fail(json, "\\u wants four hexadecimal digits");
    }
    return SGL_OK;
}

/* After "\u": one code point, of two escapes when the first is a high surrogate. */
static sgl_status read_code(sglstore_json *json, sglcore_text *out)
{
    uint32_t code, low;
    SGLCORE_TRY(read_hex4(json, &code));
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (!take(json, '\\') || !take(json, 'u')) return sglstore_json_fail(json, "half of a surrogate pair");
        SGLCORE_TRY(read_hex4(json, &low));
        if (low < 0xDC00 || low > 0xDFFF) return sglstore_json_fail(json, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return sglstore_json_fail(json, "half of a surrogate pair");
    }
    if (code == 0 && out != NULL) return sglstore_json_fail(json, "a zero byte in a text");
    char utf8[4];
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, code >>= 6) utf8[i] = (char)(0x80 | (code & 0x3F));
    utf8[0] = (char)(bytes == 1 ? code : (0xF00u >> bytes & 0xFF) | code);
    return add(json, out, utf8, bytes);
}

static sgl_status read_escape(sglstore_json *json, sglcore_text *out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    int c = here(json);
    if (c == 'u') {
        json->at++;
        return read_code(json, out);
    }
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    if (letter == NULL) return sglstore_json_fail(json, "an escape that JSON does not have");
    json->at++;
    return add(json, out, &meant[letter - letters], 1);
}

static sgl_status read_text(sglstore_json *json, sglcore_text *out)
{
    if (!take(json, '"')) return sglstore_json_fail(json, "a text in quotes is expected");
    int64_t run = json->at; /* bytes from here on are taken as they are */
    for (;;) {
        int c = here(json);
        while (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            json->at++;
            c = here(json);
        }
        if (c == '"' || c == '\\') {
            SGLCORE_TRY(add(json, out, json->text + run, json->at - run));
            json->at++;
            if (c == '"') return SGL_OK;
            SGLCORE_TRY(read_escape(json, out));
            run = json->at;
            continue;
        }
        if (c < 0) return sglstore_json_fail(json, "a text has no closing quote");
        if (c < 0x20) return sglstore_json_fail(json, "a control character in a text");
        int bytes = sgl_utf8_bytes(json->text + json->at, (size_t)(json->bytes - json->at));
        if (bytes == 0) return sglstore_json_fail(json, "a byte that is not UTF-8");
        json->at += bytes;
    }
}

sgl_status sglstore_json_string(sglstore_json *json, sglcore_text *text)
{
    text->count = 0;
    skip_blanks(json);
    SGLCORE_TRY(sglcore_text_bytes(json->env, text, "", 0)); /* terminated, even when nothing follows */
    return read_text(json, text);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static int64_t skip_digits(sglstore_json *json)
{
    int64_t from = json->at;
    while (here(json) >= '0' && here(json) <= '9') json->at++;
    return json->at - from;
}

sgl_status sglstore_json_count(sglstore_json *json, int64_t *value)
{
    skip_blanks(json);
    int64_t from = json->at, digits = skip_digits(json), count = 0;
    int next = here(json);
    bool plain = digits > 0 && next != '.' && next != 'e' && next != 'E' && (digits == 1 || json->text[from] != '0');
    for (int64_t i = 0; i < digits && plain; i++) {
        int digit = json->text[from + i] - '0';
        plain = count <= (INT64_MAX - digit) / 10;
        count = plain ? count * 10 + digit : 0;
    }
    if (!plain) {
        json->at = from;
        return sglstore_json_fail(json, "a whole number of 0 .. 2^63 - 1 is expected");
    }
    *value = count;
    return SGL_OK;
}

static sgl_status skip_number(sglstore_json *json)
{
    take(json, '-');
    int64_t from = json->at, digits = skip_digits(json);
    if (digits == 0 || (digits > 1 && json->text[from] == '0')) return sglstore_json_fail(json, "no JSON value");
    if (take(json, '.') && skip_digits(json) == 0) return sglstore_json_fail(json, "a digit is expected");
    if (take(json, 'e') || take(json, 'E')) {
        if (!take(json, '+')) take(json, '-');
        if (skip_digits(json) == 0) return sglstore_json_fail(json, "a digit is expected");
    }
    return SGL_OK;
}

/* ---- objects and arrays ----------------------------------------------------------------------------------------- */

sgl_status sglstore_json_open(sglstore_json *json, char bracket)
{
    skip_blanks(json);
    if (!take(json, bracket))
        return sglstore_json_fail(json, "%s is expected", bracket == '{' ? "an object, '{'," : "an array, '[',");
    if (++json->depth > DEPTH_MOST) return sglstore_json_fail(json, "more than %d levels", DEPTH_MOST);
    json->first = true;
    return SGL_OK;
}

/* What stands between two members or items, or the closing bracket. */
static sgl_status step(sglstore_json *json, char bracket, bool *more)
{
    bool first = json->first;
    json->first = false;
    skip_blanks(json);
    *more = !take(json, bracket);
    if (!*more) {
        json->depth--;
        return SGL_OK;
    }
    if (!first && !take(json, ',')) return sglstore_json_fail(json, "',' or '%c' is expected", bracket);
    skip_blanks(json);
    return SGL_OK;
}

sgl_status sglstore_json_item(sglstore_json *json, bool *more) { return step(json, ']', more); }

static sgl_status next_member(sglstore_json *json, sglcore_text *key, bool *more)
{
    SGLCORE_TRY(step(json, '}', more));
    if (!*more) return SGL_OK;
    SGLCORE_TRY(read_text(json, key));
    skip_blanks(json);
    return take(json, ':') ? SGL_OK : sglstore_json_fail(json, "':' is expected");
}

sgl_status sglstore_json_member(sglstore_json *json, sglcore_text *key, bool *more)
{
    key->count = 0;
    SGLCORE_TRY(sglcore_text_bytes(json->env, key, "", 0));
    return next_member(json, key, more);
}

static sgl_status skip_value(sglstore_json *json);

static sgl_status skip_inside(sglstore_json *json, char bracket)
{
    bool more = true;
    SGLCORE_TRY(sglstore_json_open(json, bracket));
    for (;;) {
        SGLCORE_TRY(bracket == '{' ? next_member(json, NULL, &more) : sglstore_json_item(json, &more));
        if (!more) return SGL_OK;
        SGLCORE_TRY(skip_value(json));
    }
}

static sgl_status skip_word(sglstore_json *json, const char *word)
{
    int64_t length = (int64_t)strlen(word);
    if (json->bytes - json->at < length || memcmp(json->text + json->at, word, (size_t)length) != 0)
        return sglstore_json_fail(json, "no JSON value");
    json->at += length;
    return SGL_OK;
}

static sgl_status skip_value(sglstore_json *json)
{
    skip_blanks(json);
    switch (here(json)) {
    case '{': return skip_inside(json, '{');
    case '[': return skip_inside(json, '[');
    case '"': return read_text(json, NULL);
    case 't': return skip_word(json, "true");
    case 'f': return skip_word(json, "false");
    case 'n': return skip_word(json, "null");
    default: return skip_number(json);
    }
}

sgl_status sglstore_json_skip(sglstore_json *json, int64_t *from)
{
    skip_blanks(json);
    if (from != NULL) *from = json->at;
    return skip_value(json);
}

sgl_status sglstore_json_end(sglstore_json *json)
{
    skip_blanks(json);
    return here(json) < 0 ? SGL_OK : sglstore_json_fail(json, "there is something behind the value");
}

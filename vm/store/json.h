/* json.h -- JSON read value by value: what headers and manifests are written in. (Texts are quoted by core/quote.c.)
 *
 * A reader walks a text that nobody trusts and keeps nothing of it: memory is the env's, and none is taken but for the
 * texts asked for. (jansson, which other rooms use, takes memory behind the host's allocator and, when that fails,
 * drops bytes of a text without a word: lex_save() in its load.c.) Every failure is SGL_CORRUPT with the message "line
 * L column C: what"; the caller puts the file and the entry before it. */
#ifndef SGLSTORE_JSON_H
#define SGLSTORE_JSON_H

#include "core/core.h"

typedef struct sglstore_json {
    sglcore_env *env;
    const char *text;
    int64_t bytes, at;
    int depth;
    bool first; /* nothing of the innermost object or array was read yet */
} sglstore_json;

/* { .env = env, .text = text, .bytes = bytes } is a reader before the first value. */

/* Steps into an object or an array: bracket is '{' or '['. */
sgl_status sglstore_json_open(sglstore_json *json, char bracket);
/* Reads the key of the next member, or steps out of the object: *more says which. Keys are not compared. */
sgl_status sglstore_json_member(sglstore_json *json, sglcore_text *key, bool *more);
/* Goes to the next item, or steps out of the array. */
sgl_status sglstore_json_item(sglstore_json *json, bool *more);
/* The value must be a text; *text is replaced by it, terminated even when it is empty. A zero byte in it is refused. */
sgl_status sglstore_json_string(sglstore_json *json, sglcore_text *text);
/* The value must be a whole number of 0 .. INT64_MAX. */
sgl_status sglstore_json_count(sglstore_json *json, int64_t *value);
/* Any value, whole. `from` .. json->at is its text. */
sgl_status sglstore_json_skip(sglstore_json *json, int64_t *from);
/* Nothing but blanks may be left. */
sgl_status sglstore_json_end(sglstore_json *json);
/* Fails at the reader's place. */
sgl_status sglstore_json_fail(const sglstore_json *json, const char *format, ...) SGL_PRINTF(2, 3);

#endif

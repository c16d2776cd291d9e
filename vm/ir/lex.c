/* lex.c -- the tokens of the text form. In: bytes, of whatever content. Out: tokens that point into them; strings are
 * copied, unescaped, into the arena. Blanks and comments (`#` up to the line's end) part tokens and mean nothing else.
 * Odd invariant: the text need not be terminated, so a number is copied before the C library reads it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lex.h"

enum { NUMBER_BYTES = 64, FOUND_BYTES = 40 };

/* ---- failing ------------------------------------------------------------------------------------------------ */

bool sglir_lex_fail_at(sglir_lexer *lexer, const sglir_token *at, sgl_status status)
{
    if (lexer->status == SGL_OK) {
        lexer->status = sglcore_fail_at(lexer->env, status, "%s:%d:%d", lexer->name, at->line, at->column);
    }
    return false;
}

bool sglir_lex_fail(sglir_lexer *lexer, const sglir_token *at, sgl_status status, const char *format, ...)
{
    if (lexer->status != SGL_OK) return false;
    va_list arguments;
    va_start(arguments, format);
    sglcore_fail_v(lexer->env, status, format, arguments);
    va_end(arguments);
    return sglir_lex_fail_at(lexer, at, status);
}

bool sglir_lex_expected(sglir_lexer *lexer, const char *what)
{
    const sglir_token *token = &lexer->token;
    if (token->kind == SGLIR_TOKEN_END) {
        return sglir_lex_fail(lexer, token, SGL_CORRUPT, "expected %s, found the end of the text", what);
    }
    char found[FOUND_BYTES + 1];
    size_t length = token->length < FOUND_BYTES ? token->length : FOUND_BYTES;
    for (size_t i = 0; i < length; i++) {
        char c = token->start[i];
        found[i] = c >= 0x20 && c < 0x7f ? c : '?';
    }
    found[length] = '\0';
    return sglir_lex_fail(lexer, token, SGL_CORRUPT, "expected %s, found '%s'", what, found);
}

/* ---- making tokens ------------------------------------------------------------------------------------------ */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void skip_blanks(sglir_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        char c = *lexer->at;
        if (c == '#') {
            while (lexer->at < lexer->end && *lexer->at != '\n') lexer->at++;
        } else if (c == '\n') {
            lexer->at++;
            lexer->line++;
            lexer->line_start = lexer->at;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            lexer->at++;
        } else {
            return;
        }
    }
}

/* The length of a number at `at`: a sign, then letters, digits and points, and the sign of an exponent. */
static size_t number_length(const char *at, const char *end)
{
    const char *from = at;
    if (at < end && *at == '-') at++;
    while (at < end && (is_letter(*at) || is_digit(*at) || *at == '.' ||
                        ((*at == '-' || *at == '+') && (at[-1] == 'e' || at[-1] == 'E')))) {
        at++;
    }
    return (size_t)(at - from);
}

/* With its quotes; 0 when the line ends before the string does. */
static size_t string_length(const char *at, const char *end)
{
    for (const char *c = at + 1; c < end && *c != '\n'; c++) {
        if (*c == '"') return (size_t)(c + 1 - at);
        if (*c == '\\' && ++c >= end) break;
    }
    return 0;
}

static size_t word_length(const char *at, const char *end)
{
    size_t length = 0;
    while (at + length < end && (is_letter(at[length]) || is_digit(at[length]))) length++;
    return length;
}

bool sglir_lex_advance(sglir_lexer *lexer)
{
    if (lexer->status != SGL_OK) return false;
    skip_blanks(lexer);
    const char *at = lexer->at, *end = lexer->end;
    sglir_token *token = &lexer->token;
    *token = (sglir_token){ .start = at, .line = lexer->line, .column = (int)(at - lexer->line_start) + 1 };
    if (at == end) {
        token->kind = SGLIR_TOKEN_END;
    } else if (is_letter(*at)) {
        token->kind = SGLIR_TOKEN_WORD;
        token->length = word_length(at, end);
    } else if (is_digit(*at) || *at == '-') {
        token->kind = SGLIR_TOKEN_NUMBER;
        token->length = number_length(at, end);
    } else if (*at == '%') {
        token->kind = SGLIR_TOKEN_VALUE;
        token->length = 1 + word_length(at + 1, end);
    } else if (*at == '"') {
        token->kind = SGLIR_TOKEN_STRING;
        token->length = string_length(at, end);
        if (token->length == 0) {
            return sglir_lex_fail(lexer, token, SGL_CORRUPT, "a string has no closing quote on its line");
        }
    } else if (*at != '\0' && strchr("()[]{},:=+@", *at) != NULL) {
        token->kind = SGLIR_TOKEN_SIGN;
        token->length = 1;
    } else {
        token->kind = SGLIR_TOKEN_SIGN;
        token->length = 1;
        return sglir_lex_expected(lexer, "a word, number, string, value or sign");
    }
    lexer->at += token->length;
    return true;
}

void sglir_lex_begin(sglir_lexer *lexer, sglcore_env *env, sglcore_arena *arena, const char *name, const char *text,
                     size_t length)
{
    *lexer = (sglir_lexer){
        .env = env, .name = name, .at = text, .end = text + length, .line_start = text, .line = 1, .arena = arena
    };
    sglir_lex_advance(lexer);
}

/* ---- taking tokens ------------------------------------------------------------------------------------------ */

bool sglir_lex_is_sign(const sglir_lexer *lexer, char sign)
{
    return lexer->status == SGL_OK && lexer->token.kind == SGLIR_TOKEN_SIGN && *lexer->token.start == sign;
}

bool sglir_lex_is_word(const sglir_lexer *lexer, const char *word)
{
    const sglir_token *token = &lexer->token;
    return lexer->status == SGL_OK && token->kind == SGLIR_TOKEN_WORD && token->length == strlen(word) &&
           memcmp(token->start, word, token->length) == 0;
}

bool sglir_lex_take_sign(sglir_lexer *lexer, char sign)
{
    return sglir_lex_is_sign(lexer, sign) && sglir_lex_advance(lexer);
}

bool sglir_lex_take_word(sglir_lexer *lexer, const char *word)
{
    return sglir_lex_is_word(lexer, word) && sglir_lex_advance(lexer);
}

bool sglir_lex_sign(sglir_lexer *lexer, char sign)
{
    if (sglir_lex_is_sign(lexer, sign)) return sglir_lex_advance(lexer);
    char what[] = { '\'', sign, '\'', '\0' };
    return sglir_lex_expected(lexer, what);
}

bool sglir_lex_word(sglir_lexer *lexer, const char *word)
{
    if (sglir_lex_is_word(lexer, word)) return sglir_lex_advance(lexer);
    return sglir_lex_expected(lexer, word);
}

/* The token's text, terminated; false when it is too long for a number. */
static bool copy_number(const sglir_token *token, size_t skip, char text[NUMBER_BYTES])
{
    if (token->length - skip >= NUMBER_BYTES) return false;
    memcpy(text, token->start + skip, token->length - skip);
    text[token->length - skip] = '\0';
    return true;
}

bool sglir_lex_int(sglir_lexer *lexer, int64_t least, int64_t most, int64_t *value)
{
    if (lexer->status != SGL_OK) return false;
    char text[NUMBER_BYTES], *end;
    if (lexer->token.kind != SGLIR_TOKEN_NUMBER || !copy_number(&lexer->token, 0, text)) {
        return sglir_lex_expected(lexer, "a whole number");
    }
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (*end != '\0' || end == text) return sglir_lex_expected(lexer, "a whole number");
    if (errno != 0 || number < least || number > most) {
        return sglir_lex_fail(lexer, &lexer->token, SGL_CORRUPT, "expected a whole number from %lld to %lld, found %s",
                              (long long)least, (long long)most, text);
    }
    *value = number;
    return sglir_lex_advance(lexer);
}

bool sglir_lex_float(sglir_lexer *lexer, double *value)
{
    if (lexer->status != SGL_OK) return false;
    char text[NUMBER_BYTES], *end;
    bool named = sglir_lex_is_word(lexer, "inf") || sglir_lex_is_word(lexer, "nan");
    if ((lexer->token.kind != SGLIR_TOKEN_NUMBER && !named) || !copy_number(&lexer->token, 0, text)) {
        return sglir_lex_expected(lexer, "a number");
    }
    *value = sglcore_strtod(text, &end);
    if (*end != '\0' || end == text) return sglir_lex_expected(lexer, "a number");
    return sglir_lex_advance(lexer);
}

static int hex_digit(char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Unescapes `length` bytes into out; the length there, or -1 for an escape that is none (\" \\ \n \t \xHH are). */
static int64_t unescape(const char *from, size_t length, char *out)
{
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) {
        char c = from[i];
        if (c == '\0') return -1;
        if (c == '\\') {
            c = from[++i]; /* string_length saw to it that there is one */
            if (c == 'n') {
                c = '\n';
            } else if (c == 't') {
                c = '\t';
            } else if (c == 'x') {
                int high = i + 1 < length ? hex_digit(from[i + 1]) : -1,
                    low = i + 2 < length ? hex_digit(from[i + 2]) : -1;
                if (high < 0 || low < 0 || (high == 0 && low == 0)) return -1;
                c = (char)(high * 16 + low);
                i += 2;
            } else if (c != '"' && c != '\\') {
                return -1;
            }
        }
        out[count++] = c;
    }
    return count;
}

bool sglir_lex_string(sglir_lexer *lexer, const char **string)
{
    if (lexer->status != SGL_OK) return false;
    const sglir_token *token = &lexer->token;
    if (token->kind != SGLIR_TOKEN_STRING) return sglir_lex_expected(lexer, "a string");
    char *copy = sglcore_arena_alloc(lexer->arena, token->length); /* zeroed, and shorter than with its quotes */
    if (copy == NULL) return sglir_lex_fail_at(lexer, token, SGL_OUT_OF_MEMORY);
    if (unescape(token->start + 1, token->length - 2, copy) < 0) {
        return sglir_lex_fail(lexer, token, SGL_CORRUPT,
                              "a string holds an escape other than \\\" \\\\ \\n \\t \\xHH, or a zero byte");
    }
    *string = copy;
    return sglir_lex_advance(lexer);
}

bool sglir_lex_value(sglir_lexer *lexer, uint32_t *number)
{
    if (lexer->status != SGL_OK) return false;
    char text[NUMBER_BYTES], *end;
    if (lexer->token.kind != SGLIR_TOKEN_VALUE || lexer->token.length < 2 || !copy_number(&lexer->token, 1, text)) {
        return sglir_lex_expected(lexer, "a value such as %0");
    }
    errno = 0;
    unsigned long long read = strtoull(text, &end, 10);
    if (!is_digit(text[0]) || *end != '\0' || errno != 0 || read >= SGLIR_NONE) {
        return sglir_lex_expected(lexer, "a value such as %0");
    }
    *number = (uint32_t)read;
    return sglir_lex_advance(lexer);
}

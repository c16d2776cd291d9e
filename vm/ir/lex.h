/* lex.h -- the tokens of the text form, and how its reader complains. In: bytes that nobody vouches for. Out: one token
 * of look-ahead, or a message "name:line:column: expected this, found that". Odd invariant: after a failure every call
 * returns false and changes nothing, so that the parser is a chain of calls that stops by itself. */
#ifndef SGLIR_LEX_H
#define SGLIR_LEX_H

#include "ir/ir.h"

typedef enum sglir_token_kind {
    SGLIR_TOKEN_END,
    SGLIR_TOKEN_WORD,   /* graph, add, f32 */
    SGLIR_TOKEN_NUMBER, /* 12, -3, 1e-05, -inf */
    SGLIR_TOKEN_STRING, /* "embed.weight" */
    SGLIR_TOKEN_VALUE,  /* %12 */
    SGLIR_TOKEN_SIGN    /* one of ( ) [ ] { } , : = + @ */
} sglir_token_kind;

typedef struct sglir_token {
    sglir_token_kind kind;
    const char *start; /* in the text */
    size_t length;
    int line, column;
} sglir_token;

typedef struct sglir_lexer {
    sglcore_env *env;
    const char *name; /* of the text, for messages */
    const char *at, *end;
    const char *line_start;
    int line;
    sglir_token token;    /* the one to be looked at next */
    sgl_status status;    /* sticky */
    sglcore_arena *arena; /* strings that were read live here */
} sglir_lexer;

void sglir_lex_begin(sglir_lexer *lexer, sglcore_env *env, sglcore_arena *arena, const char *name, const char *text,
                     size_t length);
bool sglir_lex_advance(sglir_lexer *lexer);

/* Look, without taking. */
bool sglir_lex_is_sign(const sglir_lexer *lexer, char sign);
bool sglir_lex_is_word(const sglir_lexer *lexer, const char *word);

/* Take the token when it is that one (the first two), or fail (the others). */
bool sglir_lex_take_sign(sglir_lexer *lexer, char sign);
bool sglir_lex_take_word(sglir_lexer *lexer, const char *word);
bool sglir_lex_sign(sglir_lexer *lexer, char sign);
bool sglir_lex_word(sglir_lexer *lexer, const char *word);
bool sglir_lex_int(sglir_lexer *lexer, int64_t least, int64_t most, int64_t *value);
bool sglir_lex_float(sglir_lexer *lexer, double *value);
bool sglir_lex_string(sglir_lexer *lexer, const char **string);
bool sglir_lex_value(sglir_lexer *lexer, uint32_t *number);

/* Fail at the present token ("expected WHAT, found ..."), or with a message of one's own at a token; return false. */
bool sglir_lex_expected(sglir_lexer *lexer, const char *what);
bool sglir_lex_fail(sglir_lexer *lexer, const sglir_token *at, sgl_status status, const char *format, ...)
    SGL_PRINTF(4, 5);
/* Puts the place of the token before the message of a call that failed with status; returns false. */
bool sglir_lex_fail_at(sglir_lexer *lexer, const sglir_token *at, sgl_status status);

#endif

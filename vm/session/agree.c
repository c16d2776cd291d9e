/* agree.c -- whether a model may generate token by token.
 *
 * Comes in: a decode program, and one of the same model that reads a few tokens at once and has no caches. Goes out: whether
 * both give the same logits. They do not where a part of the model looks at other places and keeps nothing of them in a
 * cache: it would see one token where it was trained on many, and nothing else would tell.
 * Odd invariant: a model whose logits change with later tokens is refused, for no way of reading makes it right. */
#include <math.h>
#include <string.h>

#include "session/session.h"

enum { MOST = 64 }; /* tokens of `few` */

typedef struct comparison {
    sglcore_env *env;
    sgl_program *decode, *few;
    int32_t tokens[MOST];
    int64_t count;
    sgl_type logits;
    size_t bytes;
    void *single, *together;
} comparison;

static bool find(sgl_status (*list)(const sgl_program *, int, const char **, sgl_type *), const sgl_program *program,
                 const char *wanted, sgl_type *type)
{
    const char *name;
    for (int i = 0; list(program, i, &name, type) == SGL_OK && name; i++)
        if (strcmp(name, wanted) == 0) return true;
    return false;
}

static bool is_row(const sgl_type *t)
{
    return (t->dtype == SGL_F32 || t->dtype == SGL_F64) && t->rank == 2 && t->dims[0] == 1 && t->dims[1] >= 1;
}

static sgl_status find_types(comparison *c)
{
    sgl_type one, several, row;
    bool fits = find(sgl_program_feed, c->decode, "tokens", &one) && one.rank == 2 && one.dims[1] == 1 &&
                find(sgl_program_feed, c->few, "tokens", &several) && several.rank == 2 && several.dims[1] <= MOST &&
                find(sgl_program_fetch, c->decode, "logits", &c->logits) && is_row(&c->logits) &&
                find(sgl_program_fetch, c->few, "logits", &row) && is_row(&row) && row.dtype == c->logits.dtype &&
                row.dims[1] == c->logits.dims[1];
    if (!fits)
        return sglcore_fail(c->env, SGL_TYPE,
                            "sgl_generate_agrees: decode must feed tokens i32[1,1] and few i32[1,n], n up to %d; both "
                            "fetch logits f32[1,vocab]",
                            MOST);
    c->count = several.dims[1];
    c->bytes = (size_t)sglcore_dtype_bytes(row.dtype, row.dims[1]);
    for (int64_t i = 0; i < c->count; i++) c->tokens[i] = (int32_t)((7919 * i + 1) % row.dims[1]);
    return SGL_OK;
}

static double at(const comparison *c, const void *row, int64_t i)
{
    return c->logits.dtype == SGL_F64 ? ((const double *)row)[i] : (double)((const float *)row)[i];
}

/* Roundings of f32 differ, and nothing else may. What is not finite is no matter of places. */
static bool near(const comparison *c)
{
    double largest = 0, distance = 0;
    for (int64_t i = 0; i < c->logits.dims[1]; i++) {
        double a = at(c, c->single, i), b = at(c, c->together, i);
        if (!isfinite(a) || !isfinite(b)) return true;
        largest = fmax(largest, fmax(fabs(a), fabs(b)));
        distance = fmax(distance, fabs(a - b));
    }
    return distance <= 1e-3 * largest;
}

/* The logits after the first `count` tokens, with others behind them, of which a model must not see anything. */
static sgl_status read_together(comparison *c, const int32_t *tokens, int64_t count, void *logits)
{
    int64_t last = count - 1;
    SGLCORE_TRY(sgl_feed(c->few, "tokens", tokens, (size_t)c->count * sizeof *tokens));
    SGLCORE_TRY(sgl_feed(c->few, "last", &last, sizeof last));
    SGLCORE_TRY(sgl_step(c->few));
    return sgl_fetch(c->few, "logits", logits, c->bytes);
}

static sgl_status check_later(comparison *c)
{
    int32_t others[MOST] = { 0 };
    int64_t half = (c->count + 1) / 2;
    memcpy(others, c->tokens, (size_t)half * sizeof *others);
    SGLCORE_TRY(read_together(c, others, half, c->single));
    SGLCORE_TRY(read_together(c, c->tokens, half, c->together));
    if (near(c)) return SGL_OK;
    return sglcore_fail(
        c->env, SGL_UNSUPPORTED,
        "generate: what this model gives after a token changes with the tokens behind it, so it cannot go "
        "on with a text: attention must be causal, and what else looks at other places must look back");
}

static sgl_status compare(comparison *c, int *agrees)
{
    sgl_type type;
    bool has_position = find(sgl_program_feed, c->decode, "position", &type);
    SGLCORE_TRY(check_later(c));
    for (int64_t i = 0; i < c->count; i++) {
        SGLCORE_TRY(sgl_feed(c->decode, "tokens", &c->tokens[i], sizeof c->tokens[i]));
        if (has_position) SGLCORE_TRY(sgl_feed(c->decode, "position", &i, sizeof i));
        SGLCORE_TRY(sgl_step(c->decode));
    }
    SGLCORE_TRY(sgl_fetch(c->decode, "logits", c->single, c->bytes));
    SGLCORE_TRY(read_together(c, c->tokens, c->count, c->together));
    *agrees = near(c);
    return SGL_OK;
}

static sgl_status prepare(comparison *c)
{
    SGLCORE_TRY(find_types(c));
    c->single = sglcore_alloc(c->env, c->bytes);
    c->together = sglcore_alloc(c->env, c->bytes);
    return c->single && c->together ? SGL_OK : SGL_OUT_OF_MEMORY;
}

sgl_status sgl_generate_agrees(sgl_session *session, sgl_program *decode, sgl_program *few, int *agrees)
{
    SGLSESSION_NEEDS(session && decode && few && agrees, session ? session->vm : NULL, "an argument is NULL");
    SGLSESSION_NEEDS(decode->session == session && few->session == session, session->vm,
                     "both must be programs of this session");
    comparison c = { .env = &session->vm->env, .decode = decode, .few = few };
    /* A rank that cannot begin must not leave the others in the exchanges of a step. */
    sgl_status status = sgl_session_agree(session, prepare(&c));
    if (status == SGL_OK) status = compare(&c, agrees);
    sglcore_free(c.env, c.single, c.bytes);
    sglcore_free(c.env, c.together, c.bytes);
    return status;
}

/* generate.c -- generation: a decode program, one token after another, and the choice of the next one.
 *
 * Comes in: a decode program bound to the session whose parameters it reads, a prompt. Goes out: tokens, one by one. The
 * program keeps keys and values in caches of the session; here is only the position. When the context is full, its last
 * half is read in anew from position 0. A program of several tokens keeps nothing and reads the whole text each time; what
 * stands behind its last token is zeros. Choice: softmax at a temperature over the top k, then the smallest set whose
 * probability reaches p (Holtzman et al., arXiv:1904.09751), drawn with Philox keyed by seed and number of the token. Odd
 * invariant: of several ranks each chooses for itself, and the same, since all fetch the same bits. */
#include <math.h>
#include <string.h>

#include "session/session.h"

typedef struct candidate {
    double logit;
    int32_t token;
} candidate;

typedef struct generator {
    sglcore_env *env;
    const sgl_generate_config *config;
    sgl_dtype dtype; /* of the logits */
    int64_t vocab;
    void *logits;
    int64_t logits_bytes;
    candidate *heap;  /* vocab of them: the first `taken` are the chosen, sorted */
    int32_t *history; /* prompt and made tokens */
    int64_t history_count, history_capacity;
    int64_t position;  /* of the next token to be read in */
    bool has_position; /* the program wants to know; one without caches does not */
    int64_t window;    /* tokens of one step */
    int32_t *text;     /* so many, where they are several */
    sgl_vm *vm;
    bool stopped; /* of several ranks: as they have agreed, whatever this one was asked since */
} generator;

/* ---- choice --------------------------------------------------------------------------------------------------------- */

static double logit_at(const generator *g, int64_t i)
{
    return g->dtype == SGL_F64 ? ((const double *)g->logits)[i] : (double)((const float *)g->logits)[i];
}

/* Larger logit first, smaller token first among equals: the order does not depend on how it was found. */
static bool before(candidate a, candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.token < b.token); }

static void sift(candidate *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t best = at, left = 2 * at + 1;
        if (left < count && before(heap[left], heap[best])) best = left;
        if (left + 1 < count && before(heap[left + 1], heap[best])) best = left + 1;
        if (best == at) return;
        candidate swapped = heap[at];
        heap[at] = heap[best];
        heap[best] = swapped;
        at = best;
    }
}

static double weight(const generator *g, double logit, double largest)
{
    return exp((logit - largest) / g->config->temperature);
}

/* Moves the `count` likeliest to the end of the heap's array, the likeliest last: number i is heap[vocab - 1 - i]. */
static void take_best(const generator *g, int64_t count)
{
    for (int64_t i = 0; i < g->vocab; i++) g->heap[i] = (candidate){ logit_at(g, i), (int32_t)i };
    for (int64_t i = g->vocab / 2; i-- > 0;) sift(g->heap, g->vocab, i);
    for (int64_t i = 0; i < count; i++) {
        int64_t last = g->vocab - 1 - i;
        candidate top = g->heap[0];
        g->heap[0] = g->heap[last];
        g->heap[last] = top;
        sift(g->heap, last, 0);
    }
}

/* The token in which the draw falls, among the top k and of these the fewest that hold the share top_p. */
static int32_t draw(const generator *g, double uniform)
{
    const sgl_generate_config *c = g->config;
    int64_t count = c->top_k > 0 && c->top_k < g->vocab ? c->top_k : g->vocab;
    take_best(g, count);
    const candidate *best = &g->heap[g->vocab - 1];
    double all = 0;
    for (int64_t i = 0; i < count; i++) all += weight(g, best[-i].logit, best->logit);
    double share = c->top_p > 0 && c->top_p < 1 ? c->top_p : 1;
    double kept = 0;
    int64_t within = 0;
    while (within < count && (within == 0 || kept < share * all)) kept += weight(g, best[-within++].logit, best->logit);
    double left = uniform * kept;
    for (int64_t i = 0; i < within; i++) {
        left -= weight(g, best[-i].logit, best->logit);
        if (left < 0) return best[-i].token;
    }
    return best[1 - within].token;
}

static int32_t likeliest(const generator *g)
{
    int64_t best = 0;
    for (int64_t i = 1; i < g->vocab; i++)
        if (logit_at(g, i) > logit_at(g, best)) best = i;
    return (int32_t)best;
}

static sgl_status choose(const generator *g, int64_t number, int32_t *token)
{
    for (int64_t i = 0; i < g->vocab; i++)
        if (isnan(logit_at(g, i)))
            return sglcore_fail(g->env, SGL_CORRUPT,
                                "generate: the logit of token %lld is NaN; the parameters are damaged", (long long)i);
    if (g->config->temperature <= 0) {
        *token = likeliest(g);
        return SGL_OK;
    }
    uint64_t seed = g->config->seed;
    uint32_t counter[4] = { (uint32_t)number, (uint32_t)((uint64_t)number >> 32), 0, 0 }, words[4];
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    sglcore_philox(counter, key, words);
    *token = draw(g, ((double)words[0] + 0.5) / 4294967296.0);
    return SGL_OK;
}

/* ---- reading in ------------------------------------------------------------------------------------------------------ */

static bool is_alone(const generator *g) { return g->config->decode->ranks == 1; }

/* Whether to stop. Of several ranks one that is asked in the midst of a token does not leave the others in it. */
static bool is_stopped(const generator *g) { return is_alone(g) ? g->vm->interrupted != 0 : g->stopped; }

/* Once a token: of several ranks all stop when one is asked to, and fail when one does. */
static sgl_status agree(generator *g, sgl_status mine)
{
    sglsession_note note = { .stop = g->vm->interrupted != 0 };
    if (is_alone(g)) return mine;
    SGLCORE_TRY(sglsession_agree(g->config->decode->session, mine, &note));
    g->stopped = note.stop != 0;
    return SGL_OK;
}

static sgl_status feed_token(generator *g, int32_t token)
{
    sgl_program *decode = g->config->decode;
    SGLCORE_TRY(sgl_feed(decode, "tokens", &token, sizeof token));
    return g->has_position ? sgl_feed(decode, "position", &g->position, sizeof g->position) : SGL_OK;
}

/* Feeds the end of history, which begins where it would in steps of one token. */
static sgl_status feed_text(generator *g, int64_t from)
{
    int64_t most = g->config->context > 0 && g->config->context < g->window ? g->config->context : g->window;
    for (int64_t i = from; i < g->history_count; i++) g->position = g->position < most ? g->position + 1 : most / 2 + 1;
    int64_t last = g->position - 1;
    memset(g->text, 0, (size_t)g->window * sizeof *g->text);
    memcpy(g->text, g->history + g->history_count - g->position, (size_t)g->position * sizeof *g->text);
    SGLCORE_TRY(sgl_feed(g->config->decode, "tokens", g->text, (size_t)g->window * sizeof *g->text));
    return sgl_feed(g->config->decode, "last", &last, sizeof last);
}

/* fed: what became of feeding. */
static sgl_status step(generator *g, sgl_status fed)
{
    SGLCORE_TRY(agree(g, fed));
    return is_stopped(g) ? SGL_OK : sgl_step(g->config->decode);
}

/* Reads in history[from..], beginning anew with the last half whenever the context is full. */
static sgl_status read_history(generator *g, int64_t from)
{
    if (g->window > 1) return step(g, feed_text(g, from));
    for (int64_t i = from; i < g->history_count && !is_stopped(g); i++) {
        if (g->config->context > 0 && g->position >= g->config->context) {
            g->position = 0;
            i -= g->config->context / 2;
        }
        SGLCORE_TRY(step(g, feed_token(g, g->history[i])));
        g->position++;
    }
    return SGL_OK;
}

static sgl_status make_token(generator *g, int64_t number)
{
    int32_t token = 0;
    SGLCORE_TRY(sgl_fetch(g->config->decode, "logits", g->logits, (size_t)g->logits_bytes));
    SGLCORE_TRY(choose(g, number, &token));
    g->history[g->history_count++] = token;
    return g->config->on_token ? g->config->on_token(g->config->user, token) : SGL_OK;
}

static sgl_status run(generator *g)
{
    SGLCORE_TRY(read_history(g, 0));
    for (int64_t n = 0; n < g->config->count && !is_stopped(g); n++) {
        SGLCORE_TRY(agree(g, make_token(g, n)));
        if (n + 1 < g->config->count && !is_stopped(g)) SGLCORE_TRY(read_history(g, g->history_count - 1));
    }
    if (!is_stopped(g)) return SGL_OK;
    sglsession_resume(g->vm);
    return sglcore_fail(g->env, SGL_INTERRUPTED, "generation was interrupted");
}

/* ---- set-up ---------------------------------------------------------------------------------------------------------- */

static sgl_status check(sglcore_env *env, const sgl_session *session, const sgl_generate_config *c)
{
    if (!c->decode || c->decode->session != session)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "sgl_generate: decode must be a program of this session");
    if (!c->prompt || c->prompt_count < 1)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "generate: the prompt is empty; give at least one token");
    if (c->count < 0 || c->top_k < 0 || !(c->temperature >= 0) || !(c->top_p >= 0 && c->top_p <= 1) || c->context < 0 ||
        c->context == 1)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "generate: tokens, temperature and top_k must not be negative, top_p within 0..1, "
                            "a context at least 2");
    return SGL_OK;
}

static sgl_status find_logits(generator *g)
{
    const char *name;
    sgl_type type;
    for (int i = 0; sgl_program_fetch(g->config->decode, i, &name, &type) == SGL_OK && name; i++) {
        if (strcmp(name, "logits") != 0) continue;
        if ((type.dtype != SGL_F32 && type.dtype != SGL_F64) || type.rank != 2 || type.dims[0] != 1 || type.dims[1] < 1)
            break;
        g->dtype = type.dtype;
        g->vocab = type.dims[1];
        g->logits_bytes = sglcore_dtype_bytes(type.dtype, g->vocab);
        return SGL_OK;
    }
    return sglcore_fail(g->env, SGL_TYPE, "generate: the decode program fetches no logits f32[1, vocab]");
}

static void find_feeds(generator *g)
{
    const char *name;
    sgl_type type;
    g->window = 1;
    for (int i = 0; sgl_program_feed(g->config->decode, i, &name, &type) == SGL_OK && name; i++) {
        if (strcmp(name, "position") == 0) g->has_position = true;
        if (strcmp(name, "tokens") == 0 && type.rank == 2 && type.dims[1] > 1) g->window = type.dims[1];
    }
}

static sgl_status check_prompt(const generator *g)
{
    for (int64_t i = 0; i < g->config->prompt_count; i++)
        if (g->config->prompt[i] < 0 || g->config->prompt[i] >= g->vocab)
            return sglcore_fail(g->env, SGL_INVALID_ARGUMENT,
                                "generate: token %lld of the prompt is %d, outside the vocabulary of %lld",
                                (long long)i, g->config->prompt[i], (long long)g->vocab);
    return SGL_OK;
}

static sgl_status set_up(generator *g)
{
    SGLCORE_TRY(find_logits(g));
    SGLCORE_TRY(check_prompt(g));
    find_feeds(g);
    if (__builtin_add_overflow(g->config->prompt_count, g->config->count, &g->history_capacity) ||
        g->history_capacity > PTRDIFF_MAX / (int64_t)sizeof *g->history) {
        g->history_capacity = 0;
        return sglcore_fail(g->env, SGL_LIMIT, "generate: %lld tokens are more than memory can hold; ask for fewer",
                            (long long)g->config->count);
    }
    g->logits = sglcore_alloc(g->env, (size_t)g->logits_bytes);
    g->heap = sglcore_alloc(g->env, (size_t)g->vocab * sizeof *g->heap);
    g->history = sglcore_alloc(g->env, (size_t)g->history_capacity * sizeof *g->history);
    if (g->window > 1) g->text = sglcore_alloc(g->env, (size_t)g->window * sizeof *g->text);
    if (!g->logits || !g->heap || !g->history || (g->window > 1 && !g->text)) return SGL_OUT_OF_MEMORY;
    memcpy(g->history, g->config->prompt, (size_t)g->config->prompt_count * sizeof *g->history);
    g->history_count = g->config->prompt_count;
    return SGL_OK;
}

static sgl_status generate(generator *g)
{
    SGLCORE_TRY(agree(g, set_up(g)));
    return run(g);
}

sgl_status sgl_generate(sgl_session *session, const sgl_generate_config *config)
{
    SGLSESSION_NEEDS(session && config, session ? session->vm : NULL, "session or config is NULL");
    sglcore_env *env = &session->vm->env;
    SGLCORE_TRY(check(env, session, config));
    generator g = { .env = env, .config = config, .vm = session->vm };
    sgl_status status = generate(&g);
    sglcore_free(env, g.logits, (size_t)g.logits_bytes);
    sglcore_free(env, g.heap, (size_t)g.vocab * sizeof *g.heap);
    sglcore_free(env, g.history, (size_t)g.history_capacity * sizeof *g.history);
    sglcore_free(env, g.text, (size_t)g.window * sizeof *g.text);
    return status;
}

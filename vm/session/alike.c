/* alike.c -- whether the ranks of a run were told to train alike.
 *
 * Comes in: what each rank's host gave sgl_train, and its token files. Goes out: nothing, or on every rank the same error, before
 * the first step: the seed, the steps, when to evaluate and save, the sizes of the data, and what stands in them. Where one of
 * these differs, ranks would learn different things in silence, or wait for one another until the deadline.
 * Odd invariant: of the data that is a sample, one row of each of the first batches of the run: no rank reads all of them. */
#include <string.h>

#include "session/session.h"

enum { SAMPLES = 16 }; /* batches */

/* clang-format off */
#define ALIKE(row)                                                     \
    row(start_step,   "the step they begin after")                     \
    row(steps,        "the number of steps")                           \
    row(stop_at,      "the step to stop at")                           \
    row(seed,         "the seed")                                      \
    row(evaluates,    "whether there is an evaluation")                \
    row(evaluated,    "the step of the last evaluation")               \
    row(eval_every,   "how often to evaluate")                         \
    row(eval_batches, "the number of batches of an evaluation")        \
    row(saves,        "whether there is a folder of checkpoints")      \
    row(save_every,   "how often to save")                             \
    row(train_tokens, "the number of training tokens")                 \
    row(held_out,     "the number of held-out tokens")                 \
    row(content,      "the hash of the first batches")
/* clang-format on */

typedef struct told {
#define MEMBER(name, text) int64_t name;
    ALIKE(MEMBER)
#undef MEMBER
} told;

static const char *const texts[] = {
#define TEXT(name, text) text,
    ALIKE(TEXT)
#undef TEXT
};

enum { NUMBERS = sizeof texts / sizeof texts[0] };

/* A row that cannot be read is no matter here: the step that wants it tells. */
static int64_t sample(const sgl_train_config *c)
{
    sgl_tokens *tokens = c->tokens;
    const int64_t seq = sglstore_tokens_sizes_of(tokens->tokens).seq;
    sglcore_env *env = &tokens->vm->env;
    char kept[sizeof env->message];
    uint64_t sum = 0;
    memcpy(kept, env->message, sizeof kept);
    for (int64_t i = 0; i < SAMPLES && c->start_step + i < c->steps; i++) {
        if (sglstore_tokens_rows(tokens->tokens, false, c->start_step + i, 0, 1, tokens->inputs, tokens->targets) !=
            SGL_OK)
            break;
        const sglcore_hash row = sglcore_hash_bytes(tokens->inputs, (size_t)seq * sizeof *tokens->inputs);
        sum = sum * 31 + row.low;
    }
    memcpy(env->message, kept, sizeof kept);
    return (int64_t)(sum & INT64_MAX);
}

static told tell(const sgl_train_config *c)
{
    told mine = { .start_step = c->start_step,
                  .steps = c->steps,
                  .stop_at = c->stop_at,
                  .seed = (int64_t)c->seed,
                  .evaluates = c->eval != NULL,
                  .evaluated = c->evaluated,
                  .eval_every = c->eval_every,
                  .eval_batches = c->eval_batches,
                  .saves = c->out != NULL,
                  .save_every = c->save_every };
    if (c->tokens) {
        const sglstore_tokens_sizes sizes = sglstore_tokens_sizes_of(c->tokens->tokens);
        mine.train_tokens = sizes.train;
        mine.held_out = sizes.held_out;
        mine.content = sample(c);
    }
    return mine;
}

static sgl_status compare(sgl_session *session, const told *all)
{
    sglsession_world *w = &session->world;
    for (int r = 1; r < w->ranks; r++) {
        int64_t first[NUMBERS], other[NUMBERS];
        memcpy(first, &all[0], sizeof first);
        memcpy(other, &all[r], sizeof other);
        for (int i = 0; i < NUMBERS; i++) {
            if (first[i] == other[i]) continue;
            w->told_by = 0;
            return sglcore_fail(&session->vm->env, SGL_INVALID_ARGUMENT,
                                "%s is %lld on rank 0 (%s) and %lld on rank %d (%s): all ranks must be given the same",
                                texts[i], (long long)first[i], w->ops->host(w->comm, 0), (long long)other[i], r,
                                w->ops->host(w->comm, r));
        }
    }
    return SGL_OK;
}

sgl_status sglsession_compare_runs(sgl_session *session, const sgl_train_config *config)
{
    const sglsession_world *w = &session->world;
    if (!w->comm || w->ranks == 1) return SGL_OK;
    const told mine = tell(config);
    const size_t bytes = (size_t)w->ranks * sizeof mine;
    told *all = sglcore_alloc(&session->vm->env, bytes);
    if (!all) return sglsession_lose(session, SGL_OUT_OF_MEMORY);
    sgl_status status = sglexec_net_gather(w->net, &mine, sizeof mine, all, "comparing what they are to do");
    status = status == SGL_OK ? compare(session, all) : sglsession_lose(session, status);
    sglcore_free(&session->vm->env, all, bytes);
    return status;
}

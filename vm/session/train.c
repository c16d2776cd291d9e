/* train.c -- the training loop: batches in, steps, evaluation, checkpoints.
 *
 * Comes in: a train program, perhaps an evaluation program, data, and what the host wants to be told. Goes out: a
 * session whose states have learnt, checkpoints on disk. The loop decides nothing about the mathematics: learning rate,
 * clipping and norms are fetches of the program. Whatever fails but a step itself (a log that is full, data that end,
 * an evaluation), the steps since the last checkpoint are saved first. Of several ranks each runs the loop, and before
 * each step of a program, after each checkpoint, they agree whether one of them stops or has failed since: whatever it
 * was, and wherever the others are in the loop, the next time that they agree is the same for all. Odd invariant:
 * between the first step and the last the loop itself allocates nothing; only evaluation and saving may. */
#include <stdio.h>
#include <string.h>

#include "session/session.h"
#include "session/train_scalars.h"

typedef struct trainer {
    sgl_session *session;
    sglcore_env *env;
    const sgl_train_config *config;
    int64_t step;      /* done */
    int64_t end;       /* leave after this one */
    int64_t saved;     /* step of the last checkpoint, written or tried, -1: none yet */
    int64_t evaluated; /* step of the last evaluation, -1: none yet */
    int64_t tokens;    /* of the step at hand */
    int64_t tokens_done;
    const char *bucket;
    bool frozen;       /* its program, just now */
    bool lost;         /* a step failed, or was stopped within: nothing is saved after it */
    bool interrupted;  /* what gives the data was interrupted */
    bool many;         /* ranks, and what these have agreed on: */
    bool stopped;      /* one of them wants to stop */
    bool unsaved;      /* rank 0 has something to save */
    sgl_status agreed; /* what they have failed with; they agree on nothing further but a last save */
    sglsession_scalars of_step, of_eval;
} trainer;

/* ---- feeds ------------------------------------------------------------------------------------------------------- */

static bool has_feed(const sgl_program *program, const char *name, sgl_type *type)
{
    const char *has;
    for (int i = 0; sgl_program_feed(program, i, &has, type) == SGL_OK && has; i++)
        if (strcmp(has, name) == 0) return true;
    return false;
}

static sgl_status feed_number(sgl_program *program, const char *name, int64_t value)
{
    sgl_type type;
    if (!has_feed(program, name, &type)) return SGL_OK;
    return sgl_feed(program, name, &value, sizeof value);
}

/* A graph need not read all that the data give. */
static sgl_status feed_if_read(sgl_program *program, const char *name, const void *data, int64_t bytes)
{
    sgl_type type;
    return has_feed(program, name, &type) ? sgl_feed(program, name, data, (size_t)bytes) : SGL_OK;
}

typedef struct batch_rows {
    int64_t first, count;
} batch_rows;

/* Rows of the batch of which the program keeps something: a rank reads no others. */
static batch_rows rows_kept(const sgl_program *program, int64_t batch)
{
    const char *name;
    sgl_type type;
    batch_rows kept = { 0 };
    for (int i = 0; sgl_program_feed(program, i, &name, &type) == SGL_OK && name; i++) {
        int64_t offsets[SGL_MAX_RANK], dims[SGL_MAX_RANK];
        if (strcmp(name, "tokens") != 0 && strcmp(name, "targets") != 0) continue;
        const bool fits = type.rank > 0 && type.dims[0] == batch; /* if not, the feed is refused */
        if (!fits || sgl_program_feed_part(program, i, offsets, dims) != SGL_OK) return (batch_rows){ 0, batch };
        const int64_t first = kept.count > 0 && kept.first < offsets[0] ? kept.first : offsets[0];
        const int64_t end = offsets[0] + dims[0], kept_end = kept.first + kept.count;
        kept = (batch_rows){ first, (kept.count > 0 && kept_end > end ? kept_end : end) - first };
    }
    return kept;
}

static sgl_status feed_tokens(trainer *t, sgl_program *program, int64_t cursor, bool is_eval)
{
    sgl_tokens *tokens = t->config->tokens;
    const int64_t batch = sglstore_tokens_sizes_of(tokens->tokens).batch;
    const batch_rows rows = t->many ? rows_kept(program, batch) : (batch_rows){ 0, batch };
    SGLCORE_TRY(
        sglstore_tokens_rows(tokens->tokens, is_eval, cursor, rows.first, rows.count, tokens->inputs, tokens->targets));
    SGLCORE_TRY(feed_if_read(program, "tokens", tokens->inputs, tokens->buffer_bytes));
    return feed_if_read(program, "targets", tokens->targets, tokens->buffer_bytes);
}

/* INTERRUPTED: a script that makes the data was left; nothing is lost by it, and the loop ends as if it had looked
 * itself. */
static sgl_status feed_batch(trainer *t, sgl_program *program, int64_t cursor, bool is_eval)
{
    if (t->config->tokens) return feed_tokens(t, program, cursor, is_eval);
    if (!t->config->feed) return SGL_OK;
    sgl_status status = t->config->feed(t->config->user, program, cursor, is_eval);
    if (status == SGL_INTERRUPTED) t->interrupted = true;
    return status;
}

static int64_t tokens_of(const sgl_program *program)
{
    sgl_type type;
    int64_t count = 1;
    if (!has_feed(program, "tokens", &type)) return 0;
    for (int i = 0; i < type.rank; i++) count *= type.dims[i];
    return count;
}

/* The program that takes the batch; the statuses are those of feed_batch. */
static sgl_status pick_program(trainer *t, int64_t cursor, bool is_eval, sgl_program **program)
{
    sgl_bucket bucket = { .program = is_eval ? t->config->eval : t->config->train, .text = "", .tokens = -1 };
    if (t->config->pick) {
        sgl_status status = t->config->pick(t->config->user, cursor, is_eval, &bucket);
        if (status == SGL_INTERRUPTED) t->interrupted = true;
        if (status != SGL_OK) return status;
        if (!bucket.program || bucket.program->session != t->session)
            return sglcore_fail(t->env, SGL_INVALID_ARGUMENT, "sgl_train: pick gave no program of this session");
    }
    *program = bucket.program;
    t->frozen = bucket.fresh != 0;
    t->tokens = bucket.tokens >= 0 ? bucket.tokens : tokens_of(bucket.program);
    t->bucket = bucket.text ? bucket.text : "";
    return SGL_OK;
}

/* ---- agreeing ---------------------------------------------------------------------------------------------------- */

enum { NEWS_MS = 300 }; /* how long the news of a lost rank may take behind the signal that came of it */

static bool wants_stop(const trainer *t) { return t->interrupted || t->session->vm->interrupted; }
static bool stopping(const trainer *t) { return t->many ? t->stopped : wants_stop(t); }
/* The batch at hand is not stepped. */
static bool is_left_out(const trainer *t) { return t->many ? t->stopped : t->interrupted; }

static bool is_unsaved(const trainer *t)
{
    return t->config->out && t->saved != t->step && t->step > t->config->start_step;
}

/* The status of this rank becomes that of all. */
static sgl_status agree(trainer *t, sgl_status mine)
{
    if (!t->many) return mine;
    if (t->agreed != SGL_OK) return t->agreed;
    sglsession_note note = { .stop = wants_stop(t), .unsaved = is_unsaved(t) };
    t->lost = t->lost || sglsession_is_lost(t->session);
    if (t->lost && mine != SGL_OK) return t->agreed = mine;
    sgl_status status = note.stop && !t->stopped ? sgl_world_check(t->session, NEWS_MS) : SGL_OK;
    if (status == SGL_OK) status = sglsession_agree(t->session, mine, &note);
    t->stopped = note.stop;
    t->unsaved = note.unsaved;
    if (status != SGL_NOT_FOUND) t->agreed = status; /* that is an end of data, of all */
    if (status == SGL_OK || !sglsession_is_lost(t->session)) return status;
    t->lost = true;
    return sglcore_fail_at(t->env, status, "after step %lld", (long long)t->step);
}

/* All that comes before a step of the program that takes the batch. */
static sgl_status prepare(trainer *t, int64_t cursor, bool is_eval, sgl_program **program)
{
    sgl_status status = pick_program(t, cursor, is_eval, program);
    if (status == SGL_OK && !sglsession_has_met(*program)) { /* none goes to meet where not all do */
        status = agree(t, sglsession_ready_memory(*program));
        if (status == SGL_OK) status = sglsession_meet(*program);
    }
    if (status == SGL_OK) status = feed_batch(t, *program, cursor, is_eval);
    if (t->interrupted) return SGL_OK;
    if (status == SGL_OK) status = feed_number(*program, "step", is_eval ? t->step : t->step + 1);
    return status == SGL_OK ? feed_number(*program, "seed", (int64_t)t->config->seed) : status;
}

static sgl_status step_program(trainer *t, sgl_program *program, bool is_eval)
{
    sgl_status status = sgl_step(program);
    if (status == SGL_OK) return SGL_OK;
    t->lost = t->lost || status == SGL_INTERRUPTED || !is_eval || sglsession_is_lost(t->session);
    return t->many ? sglcore_fail_at(t->env, status, "step %lld", (long long)t->step + !is_eval) : status;
}

/* ---- evaluation and checkpoints ---------------------------------------------------------------------------------- */

static int64_t eval_batches(const trainer *t)
{
    int64_t wanted = t->config->eval_batches > 0 ? t->config->eval_batches : INT64_MAX;
    if (!t->config->tokens) return wanted;
    int64_t has = 0;
    sgl_tokens_sizes(t->config->tokens, NULL, NULL, NULL, &has);
    return has < wanted ? has : wanted;
}

/* Mean loss over the held-out batches, each weighted by its valid targets, and so the numbers that are logged. */
static sgl_status evaluate(trainer *t)
{
    sgl_program *eval = t->config->eval;
    double loss_sum = 0, count = 0;
    int64_t batches = eval_batches(t);
    for (int i = 0; i < t->of_eval.count; i++) t->of_eval.values[i] = 0;
    for (int64_t b = 0; b < batches && !stopping(t); b++) {
        sgl_status status = agree(t, prepare(t, b, true, &eval));
        if (is_left_out(t) || (status == SGL_NOT_FOUND && !t->config->tokens)) break;
        if (status != SGL_OK) return status;
        SGLCORE_TRY(step_program(t, eval, true));
        double batch_sum, batch_count;
        SGLCORE_TRY(sglsession_fetch_scalar(eval, "loss_sum", &batch_sum));
        SGLCORE_TRY(sglsession_fetch_scalar(eval, "count", &batch_count));
        loss_sum += batch_sum;
        count += batch_count;
        SGLCORE_TRY(sglsession_scalars_add(&t->of_eval, eval, batch_count));
    }
    if (stopping(t)) return SGL_OK; /* of some batches: no figure to tell */
    t->evaluated = t->step;
    if (!t->config->on_eval || count <= 0 || sgl_session_rank(t->session) != 0) return SGL_OK;
    for (int i = 0; i < t->of_eval.count; i++) t->of_eval.values[i] /= count;
    const sgl_eval_record record = { .step = t->step,
                                     .loss = loss_sum / count,
                                     .targets = (int64_t)count,
                                     .count = t->of_eval.count,
                                     .names = t->of_eval.names,
                                     .values = t->of_eval.values };
    return t->config->on_eval(t->config->user, &record);
}

static sgl_status make_meta(const trainer *t, sglcore_text *text)
{
    const sglsession_progress progress = { t->step, t->evaluated, t->tokens_done };
    return sglsession_train_meta(t->env, t->config, &progress, text);
}

/* Before the first step: a run of hours does not end with a meta that cannot be kept. */
static sgl_status check_meta(const trainer *t)
{
    sglcore_text meta = { 0 };
    sgl_status status = t->config->out ? make_meta(t, &meta) : SGL_OK;
    sglcore_text_free(t->env, &meta);
    return status;
}

static sgl_status tell_saved(const trainer *t)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/step-%08lld", t->config->out, (long long)t->step);
    if (!t->config->on_save || length < 0 || length >= (int)sizeof path) return SGL_OK;
    return t->config->on_save(t->config->user, t->step, path);
}

/* Of several ranks all come here; a rank that comes to agree elsewhere has failed before, and all learn of it here. */
static sgl_status save(trainer *t)
{
    sglcore_text meta = { 0 };
    sglsession_note note = { 0 };
    t->saved = t->step;
    sgl_status status = make_meta(t, &meta);
    if (status == SGL_OK) {
        status = sglsession_save(t->session, t->config->out, t->step, meta.data, t->config->keep, &note);
        t->unsaved = note.unsaved;
        if (t->many) t->agreed = status;
    }
    sglcore_text_free(t->env, &meta);
    t->lost = t->lost || (status != SGL_OK && sglsession_is_lost(t->session));
    return status == SGL_OK && sgl_session_rank(t->session) == 0 ? tell_saved(t) : status;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* start: when the work for it began. */
static sgl_status take_step(trainer *t, sgl_program *train, int64_t start)
{
    sgl_status status = step_program(t, train, false);
    if (status == SGL_INTERRUPTED && !t->many)
        return sglcore_fail_at(t->env, status, "step %lld is not finished and not kept", (long long)t->step + 1);
    if (status != SGL_OK) return status;
    t->step++;
    t->tokens_done += t->tokens;
    SGLCORE_TRY(sglsession_scalars_read(&t->of_step, train));
    sgl_step_record record = { .step = t->step,
                               .steps = t->config->steps,
                               .tokens = t->tokens,
                               .tokens_done = t->tokens_done,
                               .bucket = t->bucket,
                               .count = t->of_step.count,
                               .step_ms = (double)(sglcore_now_ns() - start) / 1e6,
                               .names = t->of_step.names,
                               .values = t->of_step.values };
    if (t->config->on_step) SGLCORE_TRY(t->config->on_step(t->config->user, &record));
    return sglsession_check_skips(train, t->step);
}

static bool due(int64_t step, int64_t every) { return every > 0 && step > 0 && step % every == 0; }

static sgl_status evaluate_if_due(trainer *t)
{
    const sgl_train_config *c = t->config;
    bool wanted = c->eval && !t->session->ops->blank && (due(t->step, c->eval_every) || t->step == c->steps);
    return wanted && t->evaluated != t->step && !stopping(t) ? evaluate(t) : SGL_OK;
}

/* What failed outside of a step need not cost the steps since the last checkpoint. The first error stays the one told. */
static sgl_status save_what_is_done(trainer *t, sgl_status failed)
{
    if (failed == SGL_OK || t->lost || !(t->many ? t->unsaved : is_unsaved(t))) return failed;
    char why[sizeof t->env->message];
    memcpy(why, t->env->message, sizeof why);
    t->agreed = SGL_OK;
    if (save(t) == SGL_OK)
        memcpy(t->env->message, why, sizeof why);
    else
        sglcore_fail_at(t->env, failed, "%s; and what was learnt until step %lld could not be saved", why,
                        (long long)t->step);
    return failed;
}

static sgl_status end_run(trainer *t)
{
    if (is_unsaved(t)) SGLCORE_TRY(agree(t, save(t)));
    if (!stopping(t)) return SGL_OK;
    sglsession_resume(t->session->vm);
    t->session->world.told_by = 0;
    return sglcore_fail(t->env, SGL_INTERRUPTED, "interrupted after step %lld", (long long)t->step);
}

/* `status`: of this rank, since the ranks agreed last. */
static sgl_status run(trainer *t)
{
    const sgl_train_config *c = t->config;
    sgl_status status = evaluate_if_due(t); /* one that a run which was interrupted at this step has left out */
    for (;;) {
        sgl_program *train = NULL;
        int64_t start = sglcore_now_ns();
        if (status == SGL_OK && t->step < t->end && !wants_stop(t)) status = prepare(t, t->step, false, &train);
        if (train && t->frozen) start = sglcore_now_ns(); /* what a freeze takes is no step's */
        SGLCORE_TRY(agree(t, status));
        if (!train || is_left_out(t)) return end_run(t);
        status = take_step(t, train, start);
        if (t->lost) return status;
        if (status == SGL_OK) status = evaluate_if_due(t);
        if (status == SGL_OK && c->out && due(t->step, c->save_every) && t->saved != t->step) status = save(t);
    }
}

static sgl_status check(const sgl_session *session, const sgl_train_config *c)
{
    sglcore_env *env = &session->vm->env;
    if (!c->train || c->train->session != session || (c->eval && c->eval->session != session))
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "sgl_train: the programs must be of this session");
    if (c->tokens) SGLCORE_TRY(sglsession_same_vm(session->vm, c->tokens->vm, "sgl_train", "token data"));
    if (session->world.ranks > 1 && c->train->ranks == 1)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "sgl_train: this run has %d ranks, and the plan is of one: give it a mesh of as many "
                            "(mesh.dp = %d, or --mesh dp=%d)",
                            session->world.ranks, session->world.ranks, session->world.ranks);
    if (!session->world.comm) SGLCORE_TRY(sglsession_meet(c->train)); /* refuses one of several */
    if (c->start_step < 0 || c->steps < 0 || c->stop_at < 0)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "sgl_train: start_step, steps and stop_at must not be negative");
    if (c->eval && !c->tokens && !c->feed && c->eval_batches <= 0)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "sgl_train: nothing says where evaluation ends; give tokens, feed or eval_batches");
    if (c->out && session->ops->blank)
        return sglcore_fail(
            env, SGL_UNSUPPORTED,
            "sgl_train: the device '%s' computes nothing: there is nothing to save in %s, leave out NULL",
            session->ops->name, c->out);
    if (c->start_step > c->steps)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "sgl_train: %lld steps are done already, the run has %lld; ask for more steps",
                            (long long)c->start_step, (long long)c->steps);
    return SGL_OK;
}

/* A run that goes on from a step leaves the later ones that are there: they are not to be found as its own. */
static sgl_status claim_folder(const trainer *t)
{
    const sgl_train_config *c = t->config;
    if (!c->out || sgl_session_rank(t->session) != 0) return SGL_OK;
    SGLCORE_TRY(sgl_checkpoint_lock(t->session, c->out));
    return c->start_step > 0 ? sglstore_set_aside(t->env, c->out, c->start_step) : SGL_OK;
}

sgl_status sgl_train(sgl_session *session, const sgl_train_config *config)
{
    SGLSESSION_NEEDS(session && config, session ? session->vm : NULL, "session or config is NULL");
    SGLCORE_TRY(check(session, config));
    trainer t = { .session = session,
                  .env = &session->vm->env,
                  .config = config,
                  .many = session->world.ranks > 1,
                  .step = config->start_step,
                  .saved = -1,
                  .evaluated = config->evaluated > 0 ? config->evaluated : -1,
                  .end = config->steps,
                  .tokens_done = config->pick ? config->start_tokens : config->start_step * tokens_of(config->train) };
    if (config->stop_at > 0 && config->stop_at < t.end) t.end = config->stop_at;
    bool held = config->out && session->locked && strcmp(session->locked, config->out) == 0;
    session->world.told_by = -1;
    sgl_status status = sglsession_ready_memory(config->train);
    if (status == SGL_OK) status = check_meta(&t);
    if (status == SGL_OK) status = claim_folder(&t);
    if (status == SGL_OK) status = sglsession_scalars_find(config->train, false, &t.of_step);
    if (status == SGL_OK && config->eval) status = sglsession_scalars_find(config->eval, true, &t.of_eval);
    status = agree(&t, status);
    if (status == SGL_OK) status = sglsession_compare_runs(session, config);
    if (status == SGL_OK) status = sglsession_meet(config->train);
    if (status == SGL_OK) status = save_what_is_done(&t, run(&t));
    if (config->out && !held) sglsession_unlock(session);
    sglsession_scalars_free(t.env, &t.of_step);
    sglsession_scalars_free(t.env, &t.of_eval);
    return status;
}

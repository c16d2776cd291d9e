/* command_eval.c -- `sgl eval`: the held-out loss of a checkpoint.
 *
 * Comes in: a folder of checkpoints; its meta holds the script's text and settings. Goes out: the loss and what it logs; of
 * tokens the perplexity, and bits per byte where they are bytes; as text or as one JSON object. Nothing is learnt or written.
 * Odd invariant: the evaluation is that of sgl_train at the end of a run, of a run that has no step left to do. */
#include <math.h>
#include <string.h>

#include "dsl/command_model.h"
#include "dsl/command_progress.h"
#include "dsl/command_ranks.h"

typedef struct evaluation {
    command_model model;
    sgl_session *session;
    sgl_tokens *tokens;
    sgl_program *eval;
    sgl_family *evals; /* of a job that has dims with buckets, else NULL */
    command_mean mean;
    bool measured;
    double loss;
    int64_t targets;
    json_t *logged; /* members "eval_NAME", as they came */
} evaluation;

static sgl_status no_loss(const evaluation *e)
{
    return sgl_fail(e->model.vm, SGL_NOT_FOUND, "%s: its job has a step of its own and no loss to evaluate",
                    e->model.path);
}

static sgl_status freeze(evaluation *e, const char *which, sgl_program **program)
{
    sgl_graph *graph = NULL;
    sgl_plan *plan = NULL;
    sgl_status status = sgl_job_graph(e->model.job, which, &graph);
    if (status == SGL_NOT_FOUND) return no_loss(e);
    if (status == SGL_OK) status = command_plan(e->model.job, which, e->model.meshed, &plan);
    return status == SGL_OK ? sgl_freeze(e->session, graph, plan, program) : status;
}

static sgl_status on_eval(void *user, const sgl_eval_record *record)
{
    evaluation *e = user;
    e->loss = record->loss;
    e->targets = record->targets;
    e->logged = json_object();
    command_add_logged(e->logged, record->count, record->names, record->values);
    e->measured = true;
    return SGL_OK;
}

static sgl_status feed_job(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    return sgl_job_feed(((evaluation *)user)->model.job, program, cursor, is_eval);
}

static sgl_status pick(void *user, int64_t cursor, int is_eval, sgl_bucket *bucket)
{
    return sgl_family_pick(((evaluation *)user)->evals, cursor, is_eval, bucket);
}

/* Of a job with dims the program of the smallest buckets stands for all that batches will need. */
static sgl_status freeze_family(evaluation *e)
{
    sgl_plan *plan = NULL;
    sgl_bucket bucket = { .tokens = -1 };
    sgl_status status = command_plan(e->model.job, "eval", e->model.meshed, &plan);
    if (status == SGL_OK) status = sgl_family_new(e->model.job, e->session, plan, "eval", &e->evals);
    if (status == SGL_OK) status = sgl_family_at(e->evals, 0, &bucket);
    e->eval = bucket.program;
    return status;
}

static sgl_status freeze_eval(evaluation *e)
{
    double dims = 0;
    sgl_status status = sgl_job_number(e->model.job, "dims", &dims);
    if (status != SGL_OK || dims == 0) return freeze(e, "eval", &e->eval);
    status = freeze_family(e);
    return status == SGL_NOT_FOUND ? no_loss(e) : status;
}

static sgl_status measure(evaluation *e, int64_t batches)
{
    double of_job = 0;
    if (batches == 0 && !e->tokens && sgl_job_number(e->model.job, "eval_batches", &of_job) == SGL_OK)
        batches = (int64_t)of_job;
    const sgl_train_config config = {
        .train = e->eval,
        .eval = e->eval,
        .tokens = e->tokens,
        .feed = e->tokens ? NULL : feed_job,
        .pick = e->evals ? pick : NULL,
        .user = e,
        .start_step = e->model.step,
        .steps = e->model.step,
        .eval_batches = batches,
        .on_eval = on_eval,
    };
    sgl_status status = sgl_train(e->session, &config);
    if (status != SGL_OK || e->measured || sgl_session_rank(e->session) > 0) return status; /* rank 0 is told */
    return sgl_fail(e->model.vm, SGL_NOT_FOUND, "%s: its data hold no batch out for evaluation", e->model.path);
}

static sgl_status evaluate(evaluation *e, const command_ranks *ranks, const char *dir, const command_settings *settings,
                           int64_t batches)
{
    sgl_status status = sgl_session_new(e->model.vm, "cpu", &e->session);
    if (status == SGL_OK) status = command_join(ranks, e->session);
    e->model.meshed = ranks->mesh || (e->session && sgl_session_ranks(e->session) > 1);
    if (status == SGL_OK) status = command_model_load(&e->model, dir, settings);
    if (status == SGL_OK) {
        status = sgl_job_tokens(e->model.job, &e->tokens);
        if (status == SGL_NOT_FOUND) status = SGL_OK; /* batches of Lua */
    }
    if (status == SGL_OK) status = freeze_eval(e);
    if (status == SGL_OK) status = command_model_read(&e->model, e->session);
    return status == SGL_OK ? measure(e, batches) : status;
}

static void print_json(const evaluation *e)
{
    json_t *line = json_object();
    json_object_set_new(line, "checkpoint", json_string(e->model.path));
    json_object_set_new(line, "step", json_integer(e->model.step));
    json_object_set_new(line, "eval_loss", command_number(e->loss));
    json_object_set_new(line, e->mean.count, json_integer(e->targets));
    if (e->mean.is_of_tokens) json_object_set_new(line, "perplexity", command_number(exp(e->loss)));
    if (e->mean.is_of_bytes) json_object_set_new(line, "bits_per_byte", command_number(e->loss / log(2)));
    json_object_update(line, e->logged);
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    printf("\n");
    json_decref(line);
}

static void print_text(const evaluation *e)
{
    const char *key;
    json_t *value;
    printf("%s\n", e->model.path);
    printf("held-out loss %.4f%s over %lld %s\n", e->loss, e->mean.in_nats, (long long)e->targets, e->mean.over);
    if (e->mean.is_of_tokens) printf("perplexity %.4g", exp(e->loss));
    if (e->mean.is_of_bytes) printf(", %.4f bits per byte", e->loss / log(2));
    if (e->mean.is_of_tokens) printf("\n");
    json_object_foreach(e->logged, key, value)
    {
        const char *name = key + strlen("eval_");
        if (strchr(name, '/')) continue; /* one of many: --json tells them */
        if (json_is_real(value))
            printf("%s %.4g\n", name, json_real_value(value));
        else
            printf("%s %s\n", name, json_string_value(value));
    }
}

int command_eval(int argc, char **argv)
{
    command_settings settings = { 0 };
    int64_t batches = 0, threads = 0;
    const char *data = NULL;
    bool json = false, ema = false, done;
    command_ranks ranks = { .columns = -1 };
    const command_option options[] = {
        { "--data", 's', &data, "FILE", "the held-out part of this file, in place of the run's own" },
        { "--batches", 'i', &batches, "N", "so many batches, 0: all of the held-out part (default)" },
        { "--set", 'k', &settings, "key=value", "a field of the script's sgl.config; any number of times" },
        { "--ema", 'b', &ema, "", "by the averages that its optimizer keeps, as with --set job.ema=true" },
        { "--json", 'b', &json, "", "one JSON object" },
        COMMAND_RANKS_OPTIONS(ranks),
        { "--threads", 'i', &threads, "N", "compute threads (default: one per core); results do not depend on it" },
        { 0 },
    };
    const command c = {
        "eval",
        "DIR",
        "Tells the held-out loss of DIR's last checkpoint.",
        "DIR is what `sgl train --out` wrote, or one step-NNNNNNNN folder in it. The loss is a mean over "
        "the targets\nthat are not ignored; of tokens it is in nats, and perplexity is e to it. What the "
        "loss logs (sgl.log) is told too. One rank\ncomputes it, whatever the run had, unless --mesh and --nproc, or a "
        "launcher, say otherwise.",
        1,
        1,
        options
    };
    const char *positional[1];
    int count;
    bool helped;
    int code = command_parse(&c, argc, argv, positional, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    code = command_ranks_begin(&c, &ranks, argc, argv, &done);
    if (code == COMMAND_OK && !done) code = command_mesh(&c, &ranks, &settings, &settings);
    if (code != COMMAND_OK || done) return code;
    if (data && !command_set(&settings, "data.path", data)) return COMMAND_USAGE;
    if (ema && !command_set(&settings, "job.ema", "true")) return COMMAND_USAGE;
    evaluation e = { .model.vm = command_open(threads, stderr) };
    if (!e.model.vm) return COMMAND_FAILED;
    command_signals(e.model.vm);
    sgl_status status = evaluate(&e, &ranks, positional[0], &settings, batches);
    if (status == SGL_OK) {
        e.mean = command_mean_of(e.model.job);
        json ? print_json(&e) : print_text(&e);
    }
    code = command_ranks_status(e.model.vm, e.session, &status);
    json_decref(e.logged);
    json_decref(e.model.meta);
    sgl_close(e.model.vm);
    return code;
}

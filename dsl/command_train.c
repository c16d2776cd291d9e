/* command_train.c -- `sgl train`: loads a script, freezes its programs, runs the loop, tells how it goes.
 *
 * Comes in: a script and options. Goes out: checkpoints, a log, a last line with the loss. Everything learnt is in the
 * session; this file only connects. Ctrl-C and SIGTERM ask the loop to stop after the step at hand, or what comes before
 * it; a second Ctrl-C cuts the step.
 * Odd invariant: what decides the numbers of a run (steps, seed, data, fields) reaches the job as a setting, which its
 * checkpoints keep, so that --resume needs no option said again; an option said again wins. */
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/command_folder.h"
#include "dsl/command_kept.h"
#include "dsl/command_measure.h"
#include "dsl/command_progress.h"
#include "dsl/command_train.h"

typedef struct train {
    const command_train_options *o;
    const char *script;
    char out[COMMAND_PATH_ROOM];
    command_kept kept; /* the checkpoint that the run goes on from */
    sgl_vm *vm;
    sgl_job *job;
    sgl_plan *plan;
    sgl_session *session;
    sgl_program *train, *eval;
    bool has_dims;
    sgl_family *trains, *evals; /* of a job that has dims with buckets, else NULL; evals NULL: nothing to evaluate */
    sgl_tokens *tokens;
    sgl_train_config config;
    command_measure measure;
    command_progress progress;
} train;

/* ---- set-up ----------------------------------------------------------------------------------------------------------- */

static sgl_status job_integer(const train *t, const char *key, int64_t otherwise, int64_t *value)
{
    double number = 0;
    sgl_status status = sgl_job_number(t->job, key, &number);
    if (status == SGL_NOT_FOUND)
        number = (double)otherwise;
    else if (status != SGL_OK)
        return status;
    if (!(number >= 0 && number < 9e15) || number != (double)(int64_t)number)
        return sgl_fail(t->vm, SGL_INVALID_ARGUMENT, "job: %s must be a whole number of at least 0, it is %g", key,
                        number);
    *value = (int64_t)number;
    return SGL_OK;
}

/* The last checkpoint of the run, if it is to go on; the folder that it lies in is the run's, unless --out says otherwise. */
static sgl_status find_start(train *t)
{
    const char *path, *meta, *asked = t->o->resume;
    char parent[sizeof t->kept.from];
    json_error_t error;
    if (!asked) return sgl_session_computes(t->session) ? command_folder_free(t->vm, t->out) : SGL_OK;
    sgl_status status = sgl_checkpoint_find(t->vm, *asked ? asked : t->out, &path, &meta, &t->config.start_step);
    if (status != SGL_OK) return status;
    if (strlen(path) >= sizeof t->kept.from) return sgl_fail(t->vm, SGL_LIMIT, "%s: the path is too long", path);
    strcpy(t->kept.from, path);
    strcpy(parent, path);
    t->kept.meta = json_loads(meta, 0, &error);
    if (!t->kept.meta) return sgl_fail(t->vm, SGL_CORRUPT, "%s: its meta cannot be read: %s", path, error.text);
    t->config.evaluated = json_integer_value(json_object_get(t->kept.meta, "evaluated"));
    t->config.start_tokens = json_integer_value(json_object_get(t->kept.meta, "tokens"));
    if (!*asked) return SGL_OK;
    if (t->o->out) return command_folder_same(dirname(parent), t->out) ? SGL_OK : command_folder_free(t->vm, t->out);
    snprintf(t->out, sizeof t->out, "%s", dirname(parent));
    return SGL_OK;
}

/* Options that are numbers of the job, as settings. The texts live as long as `storage`. */
static bool add_own_settings(const command_train_options *o, command_settings *settings, char storage[][32])
{
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = { { "job.steps", o->steps },
                    { "job.seed", o->seed },
                    { "job.save_every", o->save_every },
                    { "job.eval_every", o->eval_every },
                    { "job.keep", o->keep } };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].value < 0) continue;
        snprintf(storage[i], 32, "%lld", (long long)numbers[i].value);
        if (!command_set(settings, numbers[i].key, storage[i])) return false;
    }
    if (o->memory && !command_set(settings, "plan.memory", o->memory)) return false;
    for (int i = 0; i < o->mesh.count; i++)
        if (!command_set(settings, o->mesh.list[i].key, o->mesh.list[i].value)) return false;
    return !o->data || command_set(settings, "data.path", o->data);
}

/* The kept settings come first: of two settings with one key the last one counts. */
static sgl_status load_job(train *t)
{
    command_settings all = { 0 };
    char storage[8][32];
    sgl_status status = command_kept_settings(t->vm, &t->kept, &all);
    if (status != SGL_OK) return status;
    const int kept = all.count;
    bool fits = true;
    for (int i = 0; i < t->o->settings.count && fits; i++)
        fits = command_set(&all, t->o->settings.list[i].key, t->o->settings.list[i].value);
    if (t->kept.meta && sgl_session_rank(t->session) == 0) command_kept_changes(&t->kept, &t->o->settings);
    if (!fits || !add_own_settings(t->o, &all, storage) || !command_mark_kept(&all, kept))
        return sgl_fail(t->vm, SGL_LIMIT, "too many settings");
    status = sgl_load_file(t->vm, t->script, all.list, all.count, &t->job);
    if (status == SGL_OK) status = sgl_job_plan(t->job, &t->plan);
    if (status == SGL_OK) status = sgl_job_tokens(t->job, &t->tokens);
    return status == SGL_NOT_FOUND && t->plan ? SGL_OK : status;
}

static sgl_status load(train *t)
{
    const sgl_status status = load_job(t);
    return command_kept_script(t->vm, &t->kept, t->script, t->job, status);
}

static sgl_status freeze(train *t, const char *which, sgl_program **program)
{
    sgl_graph *graph = NULL;
    sgl_status status = sgl_job_graph(t->job, which, &graph);
    return status == SGL_OK ? sgl_freeze(t->session, graph, t->plan, program) : status;
}

/* The program that takes the batch; one that is new is looked at as the options say. */
static sgl_status pick(void *user, int64_t cursor, int is_eval, sgl_bucket *bucket)
{
    train *t = user;
    sgl_status status = sgl_family_pick(is_eval ? t->evals : t->trains, cursor, is_eval, bucket);
    if (status != SGL_OK || is_eval) return status;
    t->progress.program = bucket->program;
    return bucket->fresh ? sgl_program_trace(bucket->program, t->o->trace_nan) : SGL_OK;
}

/* Of a job with dims: the program of the first batch, and of the first one to evaluate by. Where the data give none, those
 * of the smallest buckets stand for all: they bring the states, too. */
static sgl_status freeze_first(train *t, sgl_family *family, bool is_eval, sgl_program **program)
{
    sgl_bucket bucket;
    sgl_status status = sgl_family_pick(family, is_eval ? 0 : t->config.start_step, is_eval, &bucket);
    if (status == SGL_NOT_FOUND) status = sgl_family_at(family, 0, &bucket);
    if (status == SGL_OK) *program = bucket.program;
    return status;
}

static sgl_status freeze_train(train *t)
{
    if (!t->has_dims) return freeze(t, "train", &t->train);
    sgl_status status = sgl_family_new(t->job, t->session, t->plan, "train", &t->trains);
    t->config.pick = pick;
    return status == SGL_OK ? freeze_first(t, t->trains, false, &t->train) : status;
}

/* A job with a step of its own has none. */
static sgl_status freeze_eval(train *t)
{
    if (t->o->measured_only) return SGL_OK;
    sgl_status status =
        t->has_dims ? sgl_family_new(t->job, t->session, t->plan, "eval", &t->evals) : freeze(t, "eval", &t->eval);
    if (status == SGL_OK && t->has_dims) status = freeze_first(t, t->evals, true, &t->eval);
    return status == SGL_NOT_FOUND ? SGL_OK : status;
}

static sgl_status initialise(train *t)
{
    sgl_program *init = NULL;
    sgl_status status = freeze(t, "init", &init);
    if (status != SGL_OK) return status;
    status = sgl_feed(init, "seed", &t->config.seed, sizeof t->config.seed);
    if (status == SGL_NOT_FOUND) status = SGL_OK; /* nothing random in it */
    if (status == SGL_OK) status = sgl_step(init);
    sgl_program_free(init);
    return status;
}

static sgl_status begin(train *t)
{
    if (t->kept.meta) {
        sgl_status status =
            command_kept_script(t->vm, &t->kept, t->script, t->job, sgl_checkpoint_load(t->session, t->kept.from, 0));
        if (status == SGL_OK && !t->o->quiet) printf("resumed %s\n", t->kept.from);
        return status;
    }
    sgl_status status = initialise(t);
    if (status == SGL_OK && t->o->init_from) status = command_parameters(t->session, t->vm, t->o->init_from);
    return status;
}

/* A job with Lua data hands its feed function the job; the other callbacks get this command's state. */
static sgl_status feed_job(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    return sgl_job_feed(((train *)user)->job, program, cursor, is_eval);
}

/* That of the option, of the run that goes on, of the job. All 64 bits count, which a job's number cannot hold. */
static sgl_status choose_seed(train *t)
{
    const json_t *kept = json_object_get(t->kept.meta, "seed");
    int64_t seed = t->o->seed >= 0 ? t->o->seed : json_integer_value(kept);
    sgl_status status = t->o->seed >= 0 || kept ? SGL_OK : job_integer(t, "seed", 0, &seed);
    t->config.seed = (uint64_t)seed;
    return status;
}

static sgl_status configure(train *t)
{
    sgl_train_config *c = &t->config;
    int64_t keep = 0;
    sgl_status status = job_integer(t, "steps", 1000, &c->steps);
    if (status == SGL_OK) status = job_integer(t, "eval_every", 0, &c->eval_every);
    if (status == SGL_OK) status = job_integer(t, "eval_batches", 0, &c->eval_batches);
    if (status == SGL_OK) status = job_integer(t, "save_every", 0, &c->save_every);
    if (status == SGL_OK) status = job_integer(t, "keep", 3, &keep);
    if (status == SGL_OK) status = choose_seed(t);
    if (status == SGL_OK) status = sgl_job_meta(t->job, &c->meta);
    c->keep = (int)(keep > 1000000 ? 1000000 : keep);
    c->stop_at = t->o->stop_at > 0 ? t->o->stop_at : 0;
    if (status == SGL_OK && t->o->stop_at > 0 && t->o->stop_at <= c->start_step)
        status = sgl_fail(t->vm, SGL_INVALID_ARGUMENT,
                          "--stop-at %lld: step %lld is done already; give a later step, the run has %lld",
                          (long long)t->o->stop_at, (long long)c->start_step, (long long)c->steps);
    c->out = t->o->measured_only ? NULL : t->out;
    c->tokens = t->tokens;
    c->feed = t->tokens ? NULL : feed_job;
    return status;
}

/* Before the log is opened, which another run may be writing. */
static sgl_status claim_output(train *t)
{
    if (!sgl_session_computes(t->session) || t->o->measured_only) {
        t->config.out = NULL;
        return SGL_OK;
    }
    if (sgl_session_rank(t->session) > 0) return SGL_OK; /* rank 0 writes */
    sgl_status status = command_folder_make(t->vm, t->out);
    return status == SGL_OK ? sgl_checkpoint_lock(t->session, t->out) : status;
}

static sgl_status prepare(train *t)
{
    sgl_status status = configure(t);
    const sgl_attr unfused = { .name = "unfused", .kind = SGL_ATTR_INT, .i = t->o->trace_nan };
    if (status == SGL_OK) status = sgl_plan_set(t->plan, &unfused);
    int64_t dims = 0;
    if (status == SGL_OK) status = job_integer(t, "dims", 0, &dims);
    t->has_dims = dims > 0;
    if (status == SGL_OK) status = freeze_train(t);
    if (status == SGL_OK) status = sgl_program_trace(t->train, t->o->trace_nan);
    if (status == SGL_OK) status = command_measure_begin(&t->measure, t->o, t->session, t->train, t->config.start_step);
    if (status == SGL_OK) status = begin(t);
    if (status == SGL_OK) status = freeze_eval(t); /* whose kernels the first steps need not wait for */
    if (status == SGL_OK) status = claim_output(t);
    t->config.train = t->train;
    t->config.eval = t->eval;
    return status;
}

/* ---- the run ------------------------------------------------------------------------------------------------------------ */

/* A run that nobody hears any more ends, and is saved. */
static sgl_status told(const train *t, sgl_status status)
{
    return status == SGL_OK && ferror(stdout) ? sgl_fail(t->vm, SGL_IO, "stdout cannot be written to") : status;
}

static sgl_status on_step(void *user, const sgl_step_record *record)
{
    train *t = user;
    sgl_status status = command_progress_step(&t->progress, record);
    if (status == SGL_OK) status = command_measure_step(&t->measure, &t->progress, record->step);
    if (t->progress.lost_step > 0) t->config.keep = 0;
    return told(t, status);
}
static sgl_status on_eval(void *user, const sgl_eval_record *record)
{
    return told(user, command_progress_eval(&((train *)user)->progress, record));
}
static sgl_status on_save(void *user, int64_t step, const char *path)
{
    return command_progress_save(&((train *)user)->progress, step, path);
}

/* What a run that was asked to stop leaves behind. */
static void tell_stopped(const train *t)
{
    bool is_saved = t->progress.saved && t->progress.saved_step == t->progress.last_step;
    if (!t->config.out)
        printf("%s; nothing was computed, nothing is saved\n", sgl_error_message(t->vm));
    else if (!is_saved)
        printf("%s; nothing was saved for it\n", sgl_error_message(t->vm));
    else
        printf("%s; saved in %s; `sgl train %s --out %s --resume` goes on\n", sgl_error_message(t->vm), t->out,
               t->script, t->out);
}

static int finish(train *t, sgl_status status)
{
    command_progress_end(&t->progress);
    if (status == SGL_OK || status == SGL_INTERRUPTED) { /* of a run that is shorter */
        sgl_status printed = command_measure_end(&t->measure, &t->progress);
        if (printed != SGL_OK) status = printed;
    }
    const int code = command_ranks_status(t->vm, t->session, &status);
    if (status == SGL_INTERRUPTED && !t->o->quiet) tell_stopped(t);
    if (status != SGL_OK) return status == SGL_NOT_FINITE ? COMMAND_NOT_FINITE : code;
    if (t->o->measured_only) return COMMAND_OK;
    if (!t->o->quiet) command_progress_summary(&t->progress, t->tokens, t->out);
    if (!t->o->quiet && !t->config.out) printf("device %s: nothing computed, nothing saved\n", t->o->device);
    return COMMAND_OK;
}

static int run(train *t)
{
    sgl_status status = command_folder_name(t->vm, t->script, t->o->out, t->out);
    if (status == SGL_OK) status = sgl_session_new(t->vm, t->o->device, &t->session);
    if (status == SGL_OK) status = command_join(&t->o->ranks, t->session);
    if (status == SGL_OK) status = find_start(t);
    if (status == SGL_OK) status = load(t);
    if (status == SGL_OK) status = prepare(t);
    if (status == SGL_OK)
        status = command_progress_begin(&t->progress, t->vm, t->session, &t->config,
                                        &(command_told){ .log = t->o->log,
                                                         .quiet = t->o->quiet,
                                                         .columns = t->o->ranks.columns,
                                                         .rank = sgl_session_rank(t->session) });
    if (status != SGL_OK) {
        const int code = command_ranks_status(t->vm, t->session, &status);
        if (status == SGL_INTERRUPTED && command_first()) (void)command_error(t->vm);
        return code;
    }
    t->progress.mean = command_mean_of(t->job);
    t->config.user = t;
    t->config.on_step = on_step;
    t->config.on_eval = on_eval;
    t->config.on_save = on_save;
    return finish(t, sgl_train(t->session, &t->config));
}

/* "" is 10 steps; -1: it is no number of steps. */
static int64_t steps_to_measure(const char *text)
{
    char *end;
    if (!text) return 0;
    if (!*text) return 10;
    errno = 0;
    long long steps = strtoll(text, &end, 10);
    return *end || errno || steps < 1 ? -1 : steps;
}

int command_train_run(const char *script, const command_train_options *options)
{
    train t = { .o = options, .script = script };
    t.vm = command_open(options->threads, stderr);
    if (!t.vm) return COMMAND_FAILED;
    command_signals(t.vm);
    const int code = run(&t);
    command_measure_close(&t.measure);
    command_progress_close(&t.progress);
    sgl_close(t.vm);
    json_decref(t.kept.meta);
    return code;
}

int command_train(int argc, char **argv)
{
    command_train_options o = { .steps = -1,
                                .save_every = -1,
                                .keep = -1,
                                .eval_every = -1,
                                .seed = -1,
                                .device = "cpu",
                                .format = "text",
                                .unmeasured = 1,
                                .ranks.columns = -1 };
    const char *profile = NULL, *machine = "";
    const command_option options[] = {
        { "--steps", 'i', &o.steps, "N", "length of the run (also of its learning-rate schedule)" },
        { "--stop-at", 'p', &o.stop_at, "N", "leave after step N of the same run, to be resumed" },
        { "--set", 'k', &o.settings, "key=value",
          "a field of the script's sgl.config, or plan.micro=4 ...; any number of times" },
        { "--data", 's', &o.data, "FILE", "train on this file" },
        { "--out", 's', &o.out, "DIR", "folder of checkpoints (default: the script's name with .run)" },
        { "--resume", 'o', &o.resume, "DIR", "go on from the last complete checkpoint of DIR (default: --out)" },
        { "--init-from", 's', &o.init_from, "FILE",
          "take the parameters of a checkpoint or of a safetensors file, begin at step 0" },
        { "--save-every", 'i', &o.save_every, "N", "a checkpoint every N steps (default: at the end alone)" },
        { "--keep", 'i', &o.keep, "N", "keep the last N checkpoints, 0: all (default 3)" },
        { "--eval-every", 'i', &o.eval_every, "N", "held-out loss every N steps, 0: at the end alone" },
        { "--log", 's', &o.log, "FILE",
          "one JSON object per step; of several ranks that of rank 0, or with %r, which stands for the rank, of each" },
        { "--device", 's', &o.device, "NAME", "cpu (default), cuda, or null (plans, computes nothing)" },
        { "--memory", 's', &o.memory, "BYTES",
          "a bound, such as 2GiB: what does not fit is made again in the backward instead of being kept" },
        { "--threads", 'i', &o.threads, "N", "compute threads (default: one per core); results do not depend on it" },
        { "--seed", 'i', &o.seed, "N", "of initial weights, dropout and the order of data (default 0)" },
        { "--profile", 'o', &profile, "N",
          "after the first step measure N (default 10), and print the kernels as `sgl profile` does (of data with buckets: "
          "those of the first batch's program)" },
        COMMAND_MEASURE_OPTIONS(o, machine),
        { "--trace-nan", 'b', &o.trace_nan, "",
          "look at every number of every step; at the first infinity or NaN that comes of none, tell line, op and what went "
          "in, and leave with status 3" },
        COMMAND_RANKS_OPTIONS(o.ranks),
        { "--columns", 'i', &o.ranks.columns, "N",
          "of the bar of progress, 0: lines (default: as the terminal has, lines where there is none)" },
        { "--quiet", 'b', &o.quiet, "", "print nothing but errors" },
        { 0 },
    };
    const command c = {
        "train",
        "SCRIPT",
        "Trains the model that SCRIPT declares.",
        "mfu is model-flops utilisation: (2 per multiply-add of the products of one step) / (seconds of the step *\n"
        "flops per second that a large float32 product reaches on this machine, measured at the start; or that the\n"
        "steps themselves reach, where that is more: it is never above 100%).\n"
        "Measured steps (--profile) take longer: each kernel is waited for.\n"
        "Traced ones (--trace-nan) take many times as long: nothing is fused, and all numbers are read. An infinity that goes\n"
        "in may come out again (a mask); in fp16 a gradient that overflows is told too, where a run would skip the step.\n"
        "A run lasts the job's steps (1000 when it gives none). Ctrl-C and SIGTERM finish the step, save and leave with\n"
        "status 130 and 143; a second Ctrl-C leaves within the step, which is lost. Of several ranks, rank 0 prints.",
        1,
        1,
        options
    };
    const char *positional[1];
    int count;
    bool helped;
    int code = command_parse(&c, argc, argv, positional, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    if (o.resume && o.init_from)
        return command_usage(&c, "--init-from begins a run, --resume goes on with one: give one of them");
    o.measured = steps_to_measure(profile);
    if (o.measured < 0) return command_usage(&c, "--profile '%s' is no number of steps", profile);
    if (!profile && (o.timeline || *machine))
        return command_usage(&c, "--timeline and --machine are of steps that are measured: give --profile too");
    code = command_machine(&c, machine, &o.machine);
    if (code != COMMAND_OK) return code;
    bool done;
    code = command_ranks_begin(&c, &o.ranks, argc, argv, &done);
    if (code != COMMAND_OK || done) return code;
    code = command_mesh(&c, &o.ranks, &o.settings, &o.mesh);
    if (code != COMMAND_OK) return code;
    o.quiet = o.quiet || o.ranks.rank > 0;
    return command_train_run(positional[0], &o);
}

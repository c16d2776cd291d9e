/* command_progress.c -- tells how a training run goes. See command_progress.h. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dsl/command_progress.h"
#include "dsl/command_train.h"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* NULL: the script gives no number of that name. */
static const double *find_value(const sgl_step_record *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->names[i], name) == 0) return &r->values[i];
    return NULL;
}

/* ---- the log -------------------------------------------------------------------------------------------------------- */

/* The step of a line of a log, -1 when it is none. */
static int64_t step_of_line(const char *line, bool *is_eval)
{
    json_error_t error;
    json_t *object = json_loads(line, 0, &error), *step = json_object_get(object, "step");
    int64_t value = json_is_integer(step) ? json_integer_value(step) : -1;
    *is_eval = json_object_get(object, "eval_loss") != NULL;
    json_decref(object);
    return value;
}

/* A file that is there and no log is somebody's data or script, named by mistake. */
static bool is_log(const char *path)
{
    bool is_eval;
    char *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen(path, "r");
    if (!file) return true; /* to open it for writing says why */
    ssize_t bytes = getline(&line, &capacity, file);
    bool whole = bytes > 0 && line[bytes - 1] == '\n';
    bool good = bytes <= 0 || (whole ? step_of_line(line, &is_eval) >= 0 : line[0] == '{');
    free(line);
    fclose(file);
    return good;
}

static sgl_status refuse_log(const command_progress *p)
{
    return sgl_fail(p->vm, SGL_CORRUPT, "--log %s: it is no log of steps; it is left as it is, name another file",
                    p->log_path);
}

/* Where the lines of what is done end. What comes behind them was written by a process that got further than its last
 * checkpoint, or ended within a line. -1 when the file is no log of ours. */
static long end_of_steps(FILE *file, const sgl_train_config *done)
{
    char *line = NULL;
    size_t capacity = 0;
    long end = 0;
    ssize_t bytes;
    while (end >= 0 && (bytes = getline(&line, &capacity, file)) > 0 && line[bytes - 1] == '\n') {
        bool is_eval;
        int64_t found = step_of_line(line, &is_eval);
        bool left_out =
            is_eval && found == done->start_step && found != done->evaluated; /* is made up, and written then */
        if (found > done->start_step || left_out) break;
        end = found < 0 ? -1 : ftell(file);
    }
    free(line);
    return end;
}

static sgl_status open_log(command_progress *p, const sgl_train_config *done)
{
    struct stat info;
    bool is_there = stat(p->log_path, &info) == 0, goes_on = done->start_step > 0 && is_there;
    if (is_there && S_ISREG(info.st_mode) && !is_log(p->log_path)) return refuse_log(p);
    p->log = fopen(p->log_path, !goes_on ? "w" : S_ISREG(info.st_mode) ? "r+" : "a");
    if (!p->log) return sgl_fail(p->vm, SGL_IO, "--log %s: %s", p->log_path, strerror(errno));
    if (!goes_on || !S_ISREG(info.st_mode)) return SGL_OK;
    long end = end_of_steps(p->log, done);
    if (end < 0) {
        fclose(p->log);
        p->log = NULL;
        return refuse_log(p);
    }
    if (fseek(p->log, end, SEEK_SET) == 0 && ftruncate(fileno(p->log), end) == 0) return SGL_OK;
    return sgl_fail(p->vm, SGL_IO, "--log %s: %s", p->log_path, strerror(errno));
}

sgl_status command_rank_path(sgl_vm *vm, const char *option, const char *name, int rank, char *path, size_t room)
{
    const char *mark = name ? strstr(name, "%r") : NULL;
    *path = 0;
    if (!name || (!mark && rank > 0)) return SGL_OK;
    const int before = mark ? (int)(mark - name) : (int)strlen(name);
    int bytes = snprintf(path, room, "%.*s", before, name);
    if (mark && bytes < (int)room) bytes += snprintf(path + bytes, room - (size_t)bytes, "%d%s", rank, mark + 2);
    if (bytes < (int)room) return SGL_OK;
    return sgl_fail(vm, SGL_LIMIT, "%s: a path of %d bytes is too long", option, bytes);
}

sgl_status command_progress_begin(command_progress *p, sgl_vm *vm, sgl_session *session, const sgl_train_config *config,
                                  const command_told *told)
{
    *p = (command_progress){ .vm = vm,
                             .session = session,
                             .program = config->train,
                             .quiet = told->quiet || told->rank > 0,
                             .rank = told->rank,
                             .columns = told->columns > 0 && told->columns < 4096 ? (int)told->columns : 0,
                             .started_s = now_s(),
                             .first_step = -1 };
    /* A launcher gives each rank a terminal of its own making: nobody may look at it. */
    p->terminal =
        told->columns != 0 && (told->columns > 0 || (isatty(STDOUT_FILENO) == 1 && !sgl_launched(NULL, NULL)));
    sgl_status status = command_rank_path(vm, "--log", told->log, told->rank, p->log_path, sizeof p->log_path);
    return status == SGL_OK && *p->log_path ? open_log(p, config) : status;
}

json_t *command_number(double value)
{
    if (isfinite(value)) return json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static void add_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, command_number(value));
}

void command_add_logged(json_t *object, int count, const char *const *names, const double *values)
{
    for (int i = 0; i < count; i++) {
        char key[1100]; /* names of fetches are shorter */
        snprintf(key, sizeof key, "eval_%s", names[i]);
        add_number(object, key, values[i]);
    }
}

static sgl_status write_line(command_progress *p, json_t *object)
{
    int bad = json_dumpf(object, p->log, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (bad || fputc('\n', p->log) == EOF || fflush(p->log) != 0)
        return sgl_fail(p->vm, SGL_IO, "--log %s: %s", p->log_path, strerror(errno));
    return SGL_OK;
}

static sgl_status log_step(command_progress *p, const sgl_step_record *r)
{
    json_t *line = json_object();
    json_object_set_new(line, "step", json_integer(r->step));
    for (int i = 0; i < r->count; i++) add_number(line, r->names[i], r->values[i]);
    json_object_set_new(line, "tokens", json_integer(r->tokens_done));
    add_number(line, "tokens_per_s", (double)r->tokens / (r->step_ms / 1000));
    add_number(line, "step_ms", r->step_ms);
    if (*r->bucket) json_object_set_new(line, "bucket", json_string(r->bucket));
    return write_line(p, line);
}

/* ---- the screen ------------------------------------------------------------------------------------------------------ */

/* "12.3k" */
static const char *shortened(double number, char text[16])
{
    if (number >= 1e9)
        snprintf(text, 16, "%.2fG", number / 1e9);
    else if (number >= 1e6)
        snprintf(text, 16, "%.2fM", number / 1e6);
    else if (number >= 1e4)
        snprintf(text, 16, "%.1fk", number / 1e3);
    else
        snprintf(text, 16, "%.0f", number);
    return text;
}

static const char *duration(double seconds, char text[32])
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, 32, "%lld:%02lld:%02lld", (long long)(s / 3600), (long long)(s / 60 % 60), (long long)(s % 60));
    else
        snprintf(text, 32, "%lld:%02lld", (long long)(s / 60), (long long)(s % 60));
    return text;
}

/* What is told of a step, cut off where it is too long. */
typedef struct step_text {
    char text[1024];
    size_t used;
} step_text;

SGL_PRINTF(2, 3) static void put(step_text *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(l->text + l->used, sizeof l->text - l->used, format, arguments);
    va_end(arguments);
    if (length > 0) l->used += (size_t)length;
    if (l->used >= sizeof l->text) l->used = sizeof l->text - 1;
}

/* "  loss 1.2345", nothing where the script gives no such number. A NaN may be printed with a sign, which tells nothing. */
static void put_value(step_text *l, const char *label, const char *digits, const double *value)
{
    char text[64];
    if (!value || strfromd(text, sizeof text, digits, *value) < 0) return;
    put(l, "  %s %s", label, isnan(*value) ? "nan" : text);
}

/* What the script logs. A name with a slash, such as "blocks.0.moe/load.3", is one of many and stands in the log alone. */
static void put_logged(step_text *l, int count, const char *const *names, const double *values)
{
    for (int i = 0; i < count; i++) {
        const char *name = names[i];
        if (strcmp(name, "loss") == 0 || strcmp(name, "lr") == 0 || strcmp(name, "grad_norm") == 0) continue;
        if (strchr(name, '/')) continue;
        put_value(l, name, "%.4g", &values[i]);
    }
}

static void put_numbers(step_text *l, const command_progress *p, const sgl_step_record *r)
{
    char a[32];
    double mib = (double)(sgl_session_bytes(p->session) + sgl_program_bytes(p->program)) / 1048576;
    put_value(l, "loss", "%.4f", find_value(r, "loss"));
    put_value(l, "lr", "%.1e", find_value(r, "lr"));
    put_value(l, "norm", "%.2f", find_value(r, "grad_norm"));
    if (r->tokens) put(l, "  %s tok/s", shortened(p->steady_tokens / (p->steady_ms / 1000), a));
    if (p->peak_flops > 0) put(l, "  mfu %.0f%%", 100 * p->steady_flops / (p->steady_ms / 1000) / p->peak_flops);
    put(l, "  %.*f MiB", mib < 10 ? 1 : 0, mib);
    put(l, "  left %s", duration((double)(r->steps - r->step) * p->steady_ms / 1000, a));
    if (*r->bucket) put(l, "  %s", r->bucket);
    put_logged(l, r->count, r->names, r->values);
}

/* For narrow terminals: one blank between the numbers. */
static void drop_blanks(step_text *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->used; i++)
        if (i == 0 || l->text[i] != ' ' || l->text[i - 1] != ' ') l->text[kept++] = l->text[i];
    l->text[kept] = 0;
    l->used = kept;
}

/* One line that is written anew; the bar takes the columns that the numbers leave. */
static void print_bar(const command_progress *p, const sgl_step_record *r, const step_text *numbers)
{
    enum { WIDEST = 20, OTHERWISE = 80 };
    struct winsize size = { 0 };
    step_text l = { 0 };
    int columns = p->columns > 0                                                    ? p->columns
                  : ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                                    : OTHERWISE;
    put(&l, "%lld/%lld", (long long)r->step, (long long)r->steps);
    int width = columns - 1 - (int)l.used - (int)numbers->used - 3;
    if (width > WIDEST) width = WIDEST;
    if (width >= 3) {
        int full = r->steps > 0 ? (int)(r->step * width / r->steps) : width;
        put(&l, " [");
        for (int i = 0; i < width; i++) put(&l, "%c", i < full ? '#' : '.');
        put(&l, "]");
    }
    put(&l, "%s", numbers->text);
    if ((int)l.used >= columns) drop_blanks(&l);
    printf("\r\033[K%.*s", columns - 1, l.text);
}

static void measure_peak(command_progress *p)
{
    if (sgl_session_peak_flops(p->session, &p->peak_flops) != SGL_OK) p->peak_flops = -1; /* a device that cannot say */
}

/* Who reads stdout may leave: the run goes on without telling. Other failures are the caller's to see. */
static void flush(command_progress *p)
{
    if (fflush(stdout) == 0 || errno != EPIPE) return;
    fprintf(stderr, "sgl: warning: nobody reads standard output any more; the run goes on\n");
    p->quiet = true;
    if (!freopen("/dev/null", "w", stdout)) clearerr(stdout);
}

void command_progress_end(command_progress *p)
{
    if (p->line_open) printf("\n");
    p->line_open = false;
}

/* Told once: what comes behind is lost, and the checkpoints before it are what is left. Under a loss scale such a step is
 * skipped, which leaves everything as it was; too many in a row end the run. */
static void look_for_loss(command_progress *p, const sgl_step_record *r)
{
    static const char *const names[] = { "loss", "grad_norm" }, *const words[] = { "loss", "gradient norm" };
    if (find_value(r, "scale") && find_value(r, "skipped")) return;
    for (int i = 0; i < 2 && p->lost_step == 0; i++) {
        const double *value = find_value(r, names[i]);
        if (!value || isfinite(*value)) continue;
        p->lost_step = r->step;
        if (p->rank > 0) return;
        command_progress_end(p);
        fprintf(
            stderr,
            "sgl: warning: step %lld: the %s is %s. What may help: a lower lr, a longer warmup, clip = 1.0, a look at "
            "the data; --trace-nan names the op that made it, and its line. Checkpoints are no more cleared away, so that "
            "the last good one stays\n",
            (long long)r->step, words[i], isnan(*value) ? "nan" : "infinite");
    }
}

/* The first step warms caches up and says little of the others. */
static void follow(const command_progress *p, const sgl_step_record *r, double *mean, double now)
{
    *mean = r->step <= p->first_step + 1 ? now : 0.9 * *mean + 0.1 * now;
}

sgl_status command_progress_step(command_progress *p, const sgl_step_record *r)
{
    if (p->first_step < 0) {
        p->first_step = r->step;
        p->every = r->steps / 50 > 0 ? r->steps / 50 : 1;
    }
    follow(p, r, &p->steady_ms, r->step_ms);
    follow(p, r, &p->steady_tokens, (double)r->tokens);
    follow(p, r, &p->steady_flops, sgl_program_flops(p->program));
    p->last_step = r->step;
    const double *loss = find_value(r, "loss");
    look_for_loss(p, r);
    p->has_loss = loss != NULL;
    p->last_loss = loss ? *loss : 0;
    if (p->log) {
        sgl_status status = log_step(p, r);
        if (status != SGL_OK) return status;
    }
    if (p->quiet) return SGL_OK;
    if (p->peak_flops == 0) measure_peak(p);
    /* The measure is taken in a moment, perhaps beside other work: a machine can do at least what it has done. */
    double reached = p->steady_flops / (p->steady_ms / 1000);
    if (p->peak_flops > 0 && reached > p->peak_flops) p->peak_flops = reached;
    step_text numbers = { 0 };
    put_numbers(&numbers, p, r);
    if (p->terminal) {
        print_bar(p, r, &numbers);
        p->line_open = true;
    } else if (r->step % p->every == 0 || r->step == p->first_step || r->step == r->steps) {
        printf("step %lld/%lld%s\n", (long long)r->step, (long long)r->steps, numbers.text);
    }
    flush(p);
    return SGL_OK;
}

static bool is_set(sgl_job *job, const char *key)
{
    double number = 0;
    return sgl_job_number(job, key, &number) == SGL_OK && number == 1;
}

command_mean command_mean_of(sgl_job *job)
{
    if (!is_set(job, "counts_targets"))
        return (command_mean){ .over = "batches", .in_nats = "", .count = "eval_batches" };
    if (!is_set(job, "of_tokens")) return (command_mean){ .over = "targets", .in_nats = "", .count = "eval_targets" };
    return (command_mean){ .over = "tokens",
                           .in_nats = " nats per token",
                           .count = "eval_tokens",
                           .is_of_tokens = true,
                           .is_of_bytes = is_set(job, "bytes") };
}

sgl_status command_progress_eval(command_progress *p, const sgl_eval_record *r)
{
    p->eval_loss = r->loss;
    p->has_eval = true;
    if (!p->quiet) {
        step_text logged = { 0 };
        put_logged(&logged, r->count, r->names, r->values);
        command_progress_end(p);
        printf("step %lld  held-out loss %.4f%s over %lld %s%s\n", (long long)r->step, r->loss, p->mean.in_nats,
               (long long)r->targets, p->mean.over, logged.text);
        flush(p);
    }
    if (!p->log) return SGL_OK;
    json_t *line = json_object();
    json_object_set_new(line, "step", json_integer(r->step));
    add_number(line, "eval_loss", r->loss);
    json_object_set_new(line, p->mean.count, json_integer(r->targets));
    command_add_logged(line, r->count, r->names, r->values);
    return write_line(p, line);
}

sgl_status command_progress_save(command_progress *p, int64_t step, const char *path)
{
    p->saved_step = step;
    p->saved = true;
    if (p->quiet) return SGL_OK;
    command_progress_end(p);
    printf("saved %s\n", path);
    flush(p);
    return SGL_OK;
}

void command_progress_summary(command_progress *p, sgl_tokens *tokens, const char *out)
{
    char a[32];
    double two, three;
    if (p->first_step > 0)
        printf("%lld steps in %s", (long long)(p->last_step - p->first_step + 1), duration(now_s() - p->started_s, a));
    if (p->has_loss) printf(", last training loss %.4f", p->last_loss);
    if (p->first_step > 0) printf("\n");
    if (p->has_eval) {
        printf("held-out loss %.4f%s", p->eval_loss, p->mean.in_nats);
        if (tokens && sgl_tokens_ngram_loss(tokens, 2, &two) == SGL_OK &&
            sgl_tokens_ngram_loss(tokens, 3, &three) == SGL_OK)
            printf(" (on the same text a byte model of order 2: %.4f, of order 3: %.4f)", two, three);
        printf("\n");
    }
    if (p->saved) printf("checkpoints in %s\n", out);
    if (p->lost_step > 0)
        printf("lost since step %lld: the loss or its gradient is no number\n", (long long)p->lost_step);
}

void command_progress_close(command_progress *p)
{
    if (p->log) fclose(p->log);
    p->log = NULL;
}

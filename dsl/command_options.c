/* command_options.c -- options of subcommands: reading them, explaining them, and what every subcommand does at its start.
 *
 * Comes in: a table of options and argv. Goes out: values, or a message that names the option and the nearest right one.
 * Both "--steps 10" and "--steps=10" are understood; "--" ends the options. Of several ranks, which all have the same argv,
 * rank 0 alone tells what is wrong with it. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/command_ranks.h"

static void print_help(const command *c)
{
    printf("usage: sgl %s%s%s%s\n\n%s\n", c->name, *c->arguments ? " " : "", c->arguments,
           c->options[0].name ? " [options]" : "", c->help);
    if (c->options[0].name) printf("\n");
    for (const command_option *o = c->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, o->kind == 'o' ? "%s [%s]" : "%s %s", o->name, o->value ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
    }
    if (c->more) printf("\n%s\n", c->more);
    printf("\nexit codes: 0 done; 1 failed, with the reason on stderr; 2 wrong usage\n");
}

int command_usage(const command *c, const char *format, ...)
{
    if (!command_first()) return command_silent(COMMAND_USAGE);
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "sgl %s: ", c->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    return COMMAND_USAGE;
}

static int usage_error(const command *c, const char *what, const char *name, const char *why)
{
    bool asks = *why && why[strlen(why) - 1] == '?';
    return command_usage(c, "%s%s'%s' %s%s `sgl %s --help` tells more", what, *what ? " " : "", name, why,
                         asks ? "" : ";", c->name);
}

static int unknown_option(const command *c, const char *name)
{
    const char *names[64];
    int count = 0;
    for (const command_option *o = c->options; o->name && count < 64; o++) names[count++] = o->name;
    const char *nearest = sgl_nearest(name, names, count);
    char why[128] = "is no option";
    if (nearest) snprintf(why, sizeof why, "is no option; did you mean '%s'?", nearest);
    return usage_error(c, "", name, why);
}

bool command_set(command_settings *settings, const char *key, const char *value)
{
    if (settings->count == COMMAND_SETTINGS) {
        if (command_first()) fprintf(stderr, "sgl: more than %d settings\n", COMMAND_SETTINGS);
        return false;
    }
    settings->list[settings->count++] = (sgl_setting){ key, value };
    return true;
}

bool command_mark_kept(command_settings *settings, int kept)
{
    char *names = settings->text + settings->used;
    const size_t room = sizeof settings->text - settings->used;
    size_t used = 0;
    for (int i = 0; i < kept; i++) {
        bool given = strncmp(settings->list[i].key, "plan.", 5) != 0;
        for (int k = kept; k < settings->count && !given; k++)
            given = strcmp(settings->list[i].key, settings->list[k].key) == 0;
        if (given) continue;
        const int written = snprintf(names + used, room - used, "%s,", settings->list[i].key + 5);
        if (written < 0 || (size_t)written >= room - used) return false;
        used += (size_t)written;
    }
    if (used == 0) return true;
    settings->used += used + 1;
    return command_set(settings, "plan.kept", names);
}

/* "key=value": the key is copied, since argv's own text goes on behind it. */
static int take_setting(const command *c, command_settings *settings, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) return usage_error(c, "--set", text, "is not of the form key=value");
    size_t length = (size_t)(equals - text);
    if (settings->used + length + 1 > sizeof settings->text)
        return usage_error(c, "--set", text, "is one setting too many");
    char *key = settings->text + settings->used;
    memcpy(key, text, length);
    key[length] = 0;
    settings->used += length + 1;
    return command_set(settings, key, equals + 1) ? COMMAND_OK : COMMAND_USAGE;
}

static int take_value(const command *c, const command_option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case 'p':
    case 'i':
        *(int64_t *)o->into = strtoll(text, &end, 10);
        if (end == text || *end || errno) return usage_error(c, o->name, text, "is no integer");
        if (*(int64_t *)o->into < 0) return usage_error(c, o->name, text, "must not be negative");
        if (o->kind == 'p' && *(int64_t *)o->into == 0) return usage_error(c, o->name, text, "must be at least 1");
        return COMMAND_OK;
    case 'n':
    case 'q':
        *(double *)o->into = strtod(text, &end);
        if (end == text || *end || errno) return usage_error(c, o->name, text, "is no number");
        return o->kind == 'q' && !(*(double *)o->into > 0) ? usage_error(c, o->name, text, "must be more than 0")
                                                           : COMMAND_OK;
    case 't':
        if (*(const char **)o->into) return usage_error(c, o->name, text, "is given twice");
        *(const char **)o->into = text;
        return COMMAND_OK;
    case 'k': return take_setting(c, o->into, text);
    default: *(const char **)o->into = text; return COMMAND_OK;
    }
}

static const command_option *find_option(const command *c, const char *text, size_t length)
{
    for (const command_option *o = c->options; o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, text, length) == 0) return o;
    return NULL;
}

/* One option at argv[*at]; moves *at to its last word. */
static int take_option(const command *c, int argc, char **argv, int *at)
{
    const char *text = argv[*at], *equals = strchr(text, '=');
    const command_option *o = find_option(c, text, equals ? (size_t)(equals - text) : strlen(text));
    if (!o) return unknown_option(c, text);
    if (o->kind == 'b') {
        if (equals) return usage_error(c, "", text, "is a flag, it takes no value");
        *(bool *)o->into = true;
        return COMMAND_OK;
    }
    if (equals) return take_value(c, o, equals + 1);
    bool has_next = *at + 1 < argc;
    if (o->kind == 'o' && (!has_next || argv[*at + 1][0] == '-')) return take_value(c, o, "");
    if (!has_next) return usage_error(c, "", text, "needs a value");
    return take_value(c, o, argv[++*at]);
}

int command_parse(const command *c, int argc, char **argv, const char **positional, int *count, bool *helped)
{
    bool ended = false;
    *count = 0;
    *helped = false;
    for (int at = 2; at < argc; at++) {
        const char *text = argv[at];
        if (!ended && strcmp(text, "--") == 0) {
            ended = true;
        } else if (!ended && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)) {
            print_help(c);
            *helped = true;
            return COMMAND_OK;
        } else if (!ended && text[0] == '-' && text[1]) {
            int code = take_option(c, argc, argv, &at);
            if (code != COMMAND_OK) return code;
        } else if (*count == c->most) {
            return usage_error(c, "argument", text, "is one too many");
        } else {
            positional[(*count)++] = text;
        }
    }
    if (*count >= c->least) return COMMAND_OK;
    return command_usage(c, "%s is missing; usage: sgl %s %s [options]", c->arguments, c->name, c->arguments);
}

/* ---- VM ------------------------------------------------------------------------------------------------------------- */

static const char *const levels[] = { "error", "warning", "info", "debug" };
enum { LEVELS = sizeof levels / sizeof levels[0] };

static int least_level(void)
{
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(sgl_knob("SGL_LOG"), levels[i]) == 0) return i;
    return SGL_LOG_INFO;
}

static void print_log(void *user, sgl_log_level level, const char *message)
{
    if ((int)level > least_level() || !command_first()) return;
    if (level == SGL_LOG_INFO)
        fprintf(user, "%s\n", message); /* `print` of a script */
    else
        fprintf(stderr, "sgl: %s: %s\n", levels[level], message);
}

sgl_vm *command_open(int64_t threads, FILE *prints)
{
    sgl_config config = { .log = print_log, .log_user = prints, .threads = (int)(threads > 4096 ? 4096 : threads) };
    sgl_vm *vm = NULL;
    const char *level = sgl_knob("SGL_LOG");
    if (strcmp(levels[least_level()], level) != 0 && command_first())
        fprintf(stderr, "sgl: warning: SGL_LOG is '%s'; the levels are error, warning, info and debug\n", level);
    sgl_status status = sgl_open(&config, &vm);
    if (status != SGL_OK) fprintf(stderr, "sgl: cannot start: %s\n", sgl_status_text(status));
    return vm;
}

bool command_has_batch(const char *which) { return strcmp(which, "train") == 0 || strcmp(which, "eval") == 0; }

static sgl_status unmesh(sgl_plan *plan)
{
    char key[32];
    const char *name;
    sgl_status status = SGL_OK;
    for (int i = 0; status == SGL_OK && (name = sgl_axis_name(i)) != NULL; i++) {
        snprintf(key, sizeof key, "mesh.%s", name);
        const sgl_attr one = { .name = key, .kind = SGL_ATTR_INT, .i = 1 };
        status = sgl_plan_set(plan, &one);
    }
    return status;
}

sgl_status command_plan(sgl_job *job, const char *which, bool meshed, sgl_plan **plan)
{
    const sgl_attr whole = { .name = "micro", .kind = SGL_ATTR_INT, .i = 1 };
    const sgl_attr wide = { .name = "wide", .kind = SGL_ATTR_STRING, .s = "*" };
    const bool has_batch = command_has_batch(which);
    sgl_status status = sgl_job_plan(job, plan);
    if (status == SGL_OK && !meshed) status = unmesh(*plan);
    if (status == SGL_OK && !has_batch) status = sgl_plan_set(*plan, &whole);
    return status == SGL_OK && !has_batch ? sgl_plan_set(*plan, &wide) : status;
}

int command_error(const sgl_vm *vm)
{
    if (ferror(stdout)) return COMMAND_FAILED; /* main.c says so */
    fprintf(stderr, "sgl: %s\n", sgl_error_message(vm));
    return COMMAND_FAILED;
}

int command_status(const sgl_vm *vm, sgl_status status)
{
    if (status == SGL_INTERRUPTED) return command_signal_status();
    return status == SGL_OK ? COMMAND_OK : command_error(vm);
}

sgl_status command_write(void *user, const char *data, size_t bytes)
{
    return fwrite(data, 1, bytes, user) == bytes ? SGL_OK : SGL_IO;
}

/* command_generate.c -- `sgl generate`: lets the model of a checkpoint go on with a prompt.
 *
 * Comes in: a folder of checkpoints; its meta holds the script's text and settings, so the folder alone is enough. Goes
 * out: the prompt and each token as it is made: bytes as they are where the job's data are bytes, numbers otherwise.
 * Ctrl-C ends after the token at hand. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/command_model.h"
#include "dsl/command_ranks.h"

typedef struct generate_options {
    const char *prompt, *prompt_ids;
    int64_t tokens, top_k, seed, threads;
    double temperature, top_p;
    bool ema;
    command_ranks ranks;
    command_settings settings; /* of --set and the mesh; they win */
} generate_options;

typedef struct generate {
    const generate_options *o;
    sgl_vm *vm;
    command_model model;
    sgl_plan *plan;
    sgl_session *session;
    sgl_program *decode;
    int32_t *prompt;
    int64_t prompt_count;
    bool as_ids; /* tokens are shown as numbers */
    bool begun;  /* the prompt is shown: nothing comes before what may yet fail */
} generate;

/* ---- the model -------------------------------------------------------------------------------------------------- */

static sgl_status freeze(generate *g, const char *which, sgl_program **program)
{
    sgl_graph *graph = NULL;
    sgl_status status = sgl_job_graph(g->model.job, which, &graph);
    return status == SGL_OK ? sgl_freeze(g->session, graph, g->plan, program) : status;
}

/* Where the model cannot go on token by token it reads the whole text for each, and the user is told. */
static sgl_status choose_program(generate *g, sgl_program *few)
{
    int agrees = 1;
    if (!few) return SGL_OK;
    sgl_status status = sgl_generate_agrees(g->session, g->decode, few, &agrees);
    if (status != SGL_OK || agrees) return status;
    if (sgl_session_rank(g->session) == 0)
        fprintf(
            stderr,
            "sgl: a part of this model looks at other tokens and keeps nothing of them (nn.cache): each token reads "
            "the whole text again\n");
    return freeze(g, "text", &g->decode);
}

static sgl_status load_model(generate *g, const char *dir)
{
    sgl_program *few = NULL;
    sgl_status status = sgl_session_new(g->vm, "cpu", &g->session);
    if (status == SGL_OK) status = command_join(&g->o->ranks, g->session);
    g->model.meshed = g->o->ranks.mesh || (g->session && sgl_session_ranks(g->session) > 1);
    if (status == SGL_OK) status = command_model_load(&g->model, dir, &g->o->settings);
    if (status == SGL_OK) status = command_plan(g->model.job, "decode", g->model.meshed, &g->plan);
    if (status == SGL_OK) status = freeze(g, "decode", &g->decode);
    if (status == SGL_NOT_FOUND && g->plan)
        return sgl_fail(g->vm, status,
                        "%s: its job declares no context, so there is no decode graph to generate with; "
                        "give sgl.job { context = ... } or data with a seq",
                        g->model.path);
    if (status == SGL_OK) status = freeze(g, "few", &few);
    if (status == SGL_NOT_FOUND && g->decode) status = SGL_OK; /* a context of one token */
    if (status == SGL_OK) status = command_model_read(&g->model, g->session);
    return status == SGL_OK ? choose_program(g, few) : status;
}

/* ---- the prompt --------------------------------------------------------------------------------------------------- */

static sgl_status new_prompt(generate *g, size_t count)
{
    g->prompt = calloc(count > 0 ? count : 1, sizeof *g->prompt);
    return g->prompt ? SGL_OK : sgl_fail(g->vm, SGL_OUT_OF_MEMORY, "no memory for the prompt");
}

/* "1,2,3" */
static sgl_status read_ids(generate *g, const char *text)
{
    sgl_status status = new_prompt(g, strlen(text));
    while (status == SGL_OK && *text) {
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        bool separated = *end == 0 || (*end == ',' && end[1]);
        if (end == text || !separated || errno || id < 0 || id > INT32_MAX)
            return sgl_fail(g->vm, SGL_INVALID_ARGUMENT, "--prompt-ids: '%s' does not begin with a token; write 1,2,3",
                            text);
        g->prompt[g->prompt_count++] = (int32_t)id;
        text = *end ? end + 1 : end;
    }
    return status;
}

static sgl_status read_prompt(generate *g)
{
    double bytes = 0;
    const char *text = g->o->prompt;
    g->as_ids = g->o->prompt_ids != NULL;
    if (g->as_ids) return read_ids(g, g->o->prompt_ids);
    sgl_status status = sgl_job_number(g->model.job, "bytes", &bytes);
    if (status != SGL_OK && status != SGL_NOT_FOUND) return status;
    if (bytes != 1)
        return sgl_fail(g->vm, SGL_UNSUPPORTED,
                        "--prompt: the tokens of this model are no bytes; give their numbers with --prompt-ids 1,2,3");
    if (!*text) return sgl_fail(g->vm, SGL_INVALID_ARGUMENT, "--prompt: the prompt is empty; give at least one byte");
    status = new_prompt(g, strlen(text));
    for (; status == SGL_OK && *text; text++) g->prompt[g->prompt_count++] = (unsigned char)*text;
    return status;
}

/* ---- telling -------------------------------------------------------------------------------------------------------- */

static bool show_prompt(generate *g)
{
    g->begun = true;
    if (!g->as_ids) return fputs(g->o->prompt, stdout) >= 0;
    for (int64_t i = 0; i < g->prompt_count; i++)
        if (printf("%s%d", i > 0 ? " " : "", g->prompt[i]) < 0) return false;
    return true;
}

static sgl_status on_token(void *user, int32_t token)
{
    generate *g = user;
    bool good = g->begun || show_prompt(g);
    if (good) good = g->as_ids ? printf(" %d", token) >= 0 : putchar(token) != EOF;
    if (good && fflush(stdout) == 0) return SGL_OK;
    return sgl_fail(g->vm, SGL_IO, "standard output cannot be written");
}

static int run(generate *g, const char *dir)
{
    double context = 0;
    sgl_status status = load_model(g, dir);
    if (status == SGL_OK) status = read_prompt(g);
    if (status == SGL_OK) status = sgl_job_number(g->model.job, "context", &context);
    const sgl_generate_config config = {
        .decode = g->decode,
        .prompt = g->prompt,
        .prompt_count = g->prompt_count,
        .count = g->o->tokens,
        .context = (int64_t)context,
        .temperature = g->o->temperature,
        .top_k = g->o->top_k,
        .top_p = g->o->top_p,
        .seed = (uint64_t)g->o->seed,
        .on_token = on_token,
        .user = g,
    };
    if (status == SGL_OK) status = sgl_generate(g->session, &config);
    if (status == SGL_OK && !g->begun) show_prompt(g); /* no token was asked for */
    if (g->begun) putchar('\n');
    fflush(stdout);
    return command_ranks_status(g->vm, g->session, &status);
}

int command_generate(int argc, char **argv)
{
    generate_options o = { .tokens = 200, .temperature = 0.8, .top_p = 1, .ranks.columns = -1 };
    const command_option options[] = {
        { "--prompt", 's', &o.prompt, "TEXT", "the beginning of the text, for models of bytes" },
        { "--prompt-ids", 's', &o.prompt_ids, "1,2,3", "the beginning as tokens; tokens are printed too" },
        { "--tokens", 'i', &o.tokens, "N", "tokens to make (default 200)" },
        { "--temperature", 'n', &o.temperature, "T", "0 takes the likeliest, 1 the model's own chances (default 0.8)" },
        { "--top-k", 'i', &o.top_k, "K", "choose among the K likeliest, 0: among all (default 0)" },
        { "--top-p", 'n', &o.top_p, "P", "choose among the fewest that hold the share P (default 1: all)" },
        { "--seed", 'i', &o.seed, "N", "the same seed gives the same text (default 0)" },
        { "--set", 'k', &o.settings, "key=value",
          "a field of the script's sgl.config, or plan.KEY; any number of times" },
        { "--ema", 'b', &o.ema, "", "by the averages that its optimizer keeps, in place of the parameters" },
        COMMAND_RANKS_OPTIONS(o.ranks),
        { "--threads", 'i', &o.threads, "N", "compute threads (default: one per core)" },
        { 0 },
    };
    const command c = {
        "generate",
        "DIR",
        "Lets the model of DIR's last checkpoint go on with a text.",
        "DIR is what `sgl train --out` wrote, or one step-NNNNNNNN folder in it. Where the text is longer than what the\n"
        "model was trained on, its last half is read in anew. One rank computes it, whatever the run had, unless --mesh and\n"
        "--nproc, or a launcher, say otherwise.",
        1,
        1,
        options
    };
    const char *positional[1];
    int count;
    bool helped, done;
    int code = command_parse(&c, argc, argv, positional, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    if (o.top_p == 0) {
        fprintf(stderr, "sgl generate: --top-p must be above 0; --temperature 0 takes the likeliest\n");
        return COMMAND_USAGE;
    }
    if (!o.prompt == !o.prompt_ids) {
        fprintf(stderr,
                "sgl generate: give either --prompt TEXT or --prompt-ids 1,2,3; `sgl generate --help` tells more\n");
        return COMMAND_USAGE;
    }
    code = command_ranks_begin(&c, &o.ranks, argc, argv, &done);
    if (code == COMMAND_OK && !done) code = command_mesh(&c, &o.ranks, &o.settings, &o.settings);
    if (code != COMMAND_OK || done) return code;
    if (o.ema && !command_set(&o.settings, "job.ema", "true")) return COMMAND_USAGE;
    generate g = { .o = &o, .vm = command_open(o.threads, stderr) };
    if (!g.vm) return COMMAND_FAILED;
    g.model.vm = g.vm;
    command_signals(g.vm);
    code = run(&g, positional[0]);
    free(g.prompt);
    json_decref(g.model.meta);
    sgl_close(g.vm);
    return code;
}

/* command_graph.c -- `sgl graph`, `sgl memory`, `sgl plan`, `sgl doctor`: seeing before running.
 *
 * Comes in: a script. Goes out: its graph after any pass, the memory of its frozen program, or what a rank of many has
 * of it. Nothing is computed and no memory is taken: the programs are planned as for a device, which need not be on this
 * machine, however large they are. */
#include <errno.h>
#include <string.h>

#include "dsl/command_ranks.h"

/* Which rank's, of which mesh, as planned for which device. */
typedef struct look_ranks {
    command_ranks ranks;
    int64_t rank;
    const char *device;
} look_ranks;

#define LOOK_OPTIONS(o)                                                                                                \
    COMMAND_MESH_OPTION((o).ranks), { "--rank", 'i', &(o).rank, "R", "that of rank R of the mesh (default 0)" },       \
    {                                                                                                                  \
        "--device", 's', &(o).device, "NAME", "as planned for cpu (default) or cuda, which need not be here"           \
    }

typedef struct look {
    sgl_vm *vm;
    sgl_job *job;
    sgl_plan *plan;
    sgl_session *session;
    sgl_graph *graph;
    const char *script;
} look;

/* Without a vm the code is that of the command: what was asked for was wrong, or help. */
static int begin_look(look *l, const command *c, int argc, char **argv, look_ranks *ranks, command_settings *settings)
{
    int count;
    bool helped;
    int code = command_parse(c, argc, argv, &l->script, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    code = command_mesh(c, &ranks->ranks, settings, settings);
    if (code != COMMAND_OK) return code;
    l->vm = command_open(0, stderr);
    return l->vm ? COMMAND_OK : COMMAND_FAILED;
}

static int end_look(look *l, sgl_status status)
{
    const int code = status == SGL_OK ? COMMAND_OK : command_error(l->vm);
    sgl_close(l->vm);
    return code;
}

/* Graphs that have no batch are one rank's, unless a mesh is asked for. */
static sgl_status open_look(look *l, const command_settings *settings, const look_ranks *ranks, const char *which)
{
    const bool meshed = ranks->ranks.mesh || command_has_batch(which);
    const int rank = (int)(ranks->rank < INT32_MAX ? ranks->rank : INT32_MAX);
    sgl_status status = sgl_load_file(l->vm, l->script, settings->list, settings->count, &l->job);
    if (status == SGL_OK) status = command_plan(l->job, which, meshed, &l->plan);
    if (status == SGL_OK) status = sgl_session_look(l->vm, ranks->device, &l->session);
    if (status == SGL_OK) status = sgl_session_plan_rank(l->session, rank);
    if (status == SGL_OK) status = sgl_job_graph(l->job, which, &l->graph);
    if (status == SGL_NOT_FOUND && l->session) status = sgl_fail(l->vm, status, COMMAND_NO_GRAPH, l->script, which);
    return status;
}

int command_graph(int argc, char **argv)
{
    command_settings settings = { 0 };
    const char *after = "", *format = "text", *which = "train";
    bool program_wanted = false, kernels = false;
    look_ranks ranks = { 0 };
    const command_option options[] = {
        { "--after", 's', &after, "PASS", "the graph after this pass, or 'all' (default: as traced)" },
        { "--format", 's', &format, "FORMAT", "text (default) or dot" },
        { "--graph", 's', &which, "NAME", "train (default), eval, decode, init, few, text or export" },
        { "--program", 'b', &program_wanted, "", "the frozen program instead: instructions, places, script lines" },
        { "--kernels", 'b', &kernels, "",
          "the same with each fused kernel described, and its source where the device compiles one" },
        LOOK_OPTIONS(ranks),
        { "--set", 'k', &settings, "key=value", "a field of the script's sgl.config; any number of times" },
        { 0 },
    };
    char more[512] = "passes:";
    const char *name;
    for (int i = 0; (name = sgl_pass_name(i)) != NULL; i++) {
        strncat(more, " ", sizeof more - strlen(more) - 1);
        strncat(more, name, sizeof more - strlen(more) - 1);
    }
    const command c = { "graph", "SCRIPT", "Prints the graph that SCRIPT declares.", more, 1, 1, options };
    look l = { 0 };
    int code = begin_look(&l, &c, argc, argv, &ranks, &settings);
    if (!l.vm) return code;
    const bool fused = kernels && strcmp(after, "fuse") == 0; /* what --kernels means anyway */
    if ((program_wanted || kernels) && ((*after && !fused) || strcmp(format, "text") != 0)) {
        fprintf(stderr,
                "sgl graph: %s is what comes after all passes, as text: it goes with neither --after nor "
                "--format; `sgl graph --help` tells more\n",
                kernels ? "--kernels" : "--program");
        sgl_close(l.vm);
        return COMMAND_USAGE;
    }
    sgl_status status = open_look(&l, &settings, &ranks, which);
    sgl_program *program = NULL;
    if (status == SGL_OK && (program_wanted || kernels)) {
        status = sgl_freeze(l.session, l.graph, l.plan, &program);
        if (status == SGL_OK)
            status = sgl_program_report(program, kernels ? "kernels" : "program", "text", command_write, stdout);
    } else if (status == SGL_OK) {
        status = sgl_graph_print(l.session, l.graph, l.plan, after, format, command_write, stdout);
    }
    return end_look(&l, status);
}

static sgl_status write_svg(sgl_vm *vm, const sgl_program *program, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return sgl_fail(vm, SGL_IO, "--svg %s: %s", path, strerror(errno));
    sgl_status status = sgl_program_report(program, "memory", "svg", command_write, file);
    bool bad = ferror(file);
    if (fclose(file) != 0 || bad) return sgl_fail(vm, SGL_IO, "--svg %s: %s", path, strerror(errno));
    return status;
}

/* Of a job with dims: a line for each choice of buckets, before the table of the largest. */
static sgl_status print_buckets(const look *l, const char *which)
{
    double dims = 0;
    sgl_family *family = NULL;
    sgl_bucket bucket = { .tokens = -1 };
    bool has = strcmp(which, "train") == 0 || strcmp(which, "eval") == 0;
    sgl_status status = has ? sgl_job_number(l->job, "dims", &dims) : SGL_OK;
    if (status != SGL_OK || dims == 0) return status;
    status = sgl_family_new(l->job, l->session, l->plan, which, &family);
    for (int i = 0; status == SGL_OK; i++) {
        status = sgl_family_at(family, i, &bucket);
        if (status != SGL_OK || bucket.text == NULL) break;
        printf("%-24s %12.1f MiB beside the states\n", bucket.text,
               (double)sgl_program_bytes(bucket.program) / 1048576);
    }
    if (status == SGL_OK) printf("\n");
    sgl_family_free(family);
    return status;
}

int command_memory(int argc, char **argv)
{
    command_settings settings = { 0 };
    const char *svg = NULL, *format = "text", *which = "train", *bound = NULL;
    look_ranks ranks = { 0 };
    const command_option options[] = {
        { "--svg", 's', &svg, "FILE", "draw the lifetimes" },
        { "--format", 's', &format, "FORMAT", "text (default) or json" },
        { "--graph", 's', &which, "NAME", "train (default), eval, decode, init, few, text or export" },
        { "--memory", 's', &bound, "BYTES", "a bound, such as 2GiB: what to make again instead of keeping it" },
        LOOK_OPTIONS(ranks),
        { "--set", 'k', &settings, "key=value", "a field of the script's sgl.config; any number of times" },
        { 0 },
    };
    const command c = { "memory", "SCRIPT", "Tells the bytes that the program of SCRIPT needs, before it runs.",
                        NULL,     1,        1,
                        options };
    look l = { 0 };
    int code = begin_look(&l, &c, argc, argv, &ranks, &settings);
    if (!l.vm) return code;
    sgl_program *program = NULL;
    bool fits = !bound || command_set(&settings, "plan.memory", bound);
    sgl_status status = fits ? open_look(&l, &settings, &ranks, which) : sgl_fail(l.vm, SGL_LIMIT, "too many settings");
    if (status == SGL_OK) status = sgl_freeze(l.session, l.graph, l.plan, &program);
    if (status == SGL_OK && svg) status = write_svg(l.vm, program, svg);
    if (status == SGL_OK && strcmp(format, "text") == 0) status = print_buckets(&l, which);
    if (status == SGL_OK) status = sgl_program_report(program, "memory", format, command_write, stdout);
    if (status == SGL_OK && strcmp(format, "text") == 0)
        status = sgl_memory_trade(l.session, l.graph, l.plan, command_write, stdout);
    return end_look(&l, status);
}

/* What all ranks together would do. */
static sgl_status print_foresight(const look *l, const char *machine_text, const sgl_machine *machine)
{
    sgl_foresight f;
    sgl_status status = sgl_foresee(l->session, l->graph, l->plan, machine, &f);
    if (status != SGL_OK) return status;
    printf("order of exchanges: all %lld ranks come to the end of a step, on paper (programs planned: %lld)\n",
           (long long)f.ranks, (long long)f.programs);
    if (*machine_text)
        printf("a step on %s: %.6g s, of which a rank waits at most %.6g s for exchanges\n", machine_text, f.step_s,
               f.exposed_s);
    return SGL_OK;
}

int command_show_plan(int argc, char **argv)
{
    command_settings settings = { 0 };
    const char *format = "text", *which = "train", *machine_text = "";
    sgl_machine machine = { 0 };
    look_ranks ranks = { 0 };
    const command_option options[] = {
        LOOK_OPTIONS(ranks),
        { "--machine", 's', &machine_text, "RATES",
          "tflops=N,gbytes_s=N,latency_us=N,gbps=N of a rank: foretell times" },
        { "--format", 's', &format, "FORMAT", "text (default) or json" },
        { "--graph", 's', &which, "NAME", "train (default), eval, decode, init, few, text or export" },
        { "--set", 'k', &settings, "key=value", "a field of the script's sgl.config; any number of times" },
        { 0 },
    };
    const command c = {
        "plan",
        "SCRIPT",
        "Tells what one rank of a mesh will hold and exchange; no rank is started.",
        "Bytes sent are those of one step, by the formula of each exchange: of B bytes over n ranks all_reduce\n"
        "sends 2 (n - 1) / n B, reduce_scatter, all_gather and all_to_all (of its part) (n - 1) / n B, ring_shift all\n"
        "of its part. A time is that of a machine which reaches --machine in every kernel and on every link: a bound from below.\n"
        "`sgl help sgl.plan` tells of the plan in a script, `sgl help plan.pipeline` of a recipe.",
        1,
        1,
        options
    };
    look l = { 0 };
    int code = begin_look(&l, &c, argc, argv, &ranks, &settings);
    if (!l.vm) return code;
    if ((code = command_machine(&c, machine_text, &machine)) != COMMAND_OK) {
        sgl_close(l.vm);
        return code;
    }
    sgl_program *program = NULL;
    sgl_status status = open_look(&l, &settings, &ranks, which);
    if (status == SGL_OK) status = sgl_freeze(l.session, l.graph, l.plan, &program);
    if (status == SGL_OK) status = sgl_program_report(program, "plan", format, command_write, stdout);
    if (status == SGL_OK && strcmp(format, "text") == 0) status = print_foresight(&l, machine_text, &machine);
    return end_look(&l, status);
}

int command_doctor(int argc, char **argv)
{
    const command_option options[] = { { 0 } };
    const command c = {
        "doctor", "", "Tells what this machine has, and every knob with its value.", NULL, 0, 0, options
    };
    int count;
    bool helped;
    int code = command_parse(&c, argc, argv, NULL, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    sgl_vm *vm = command_open(0, stderr);
    if (!vm) return COMMAND_FAILED;
    code = sgl_doctor(vm, command_write, stdout) == SGL_OK ? COMMAND_OK : command_error(vm);
    sgl_close(vm);
    return code;
}

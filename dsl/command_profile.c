/* command_profile.c -- `sgl profile`: some steps of a script's training, and where their time goes.
 *
 * Comes in: a script and options. Goes out: a table of kernels and one of instructions, by time, each with its share of the
 * machine's roof; with --timeline a file for Perfetto. Nothing is evaluated, nothing is saved. Odd invariant: it is the run of
 * `sgl train`, with the same numbers, that ends when enough was measured. */
#include <string.h>

#include "dsl/command_measure.h"

/* Kernels are loaded in the first step; a card that is limited in power slows down within the next. */
enum { UNMEASURED = 3 };

int command_profile(int argc, char **argv)
{
    command_train_options o = { .save_every = -1,
                                .keep = -1,
                                .eval_every = 0,
                                .seed = -1,
                                .device = "cpu",
                                .format = "text",
                                .measured = 10,
                                .unmeasured = UNMEASURED,
                                .measured_only = true,
                                .quiet = true,
                                .ranks.columns = 0 };
    const char *machine = "";
    const command_option options[] = {
        { "--steps", 'p', &o.measured, "N", "measure N steps (default 10), behind three that are not" },
        { "--device", 's', &o.device, "NAME", "cpu (default) or cuda" },
        COMMAND_MEASURE_OPTIONS(o, machine),
        { "--format", 's', &o.format, "FORMAT", "text (default) or json" },
        { "--set", 'k', &o.settings, "key=value",
          "a field of the script's sgl.config, or plan.micro=4 ...; any number of times" },
        { "--data", 's', &o.data, "FILE", "train on this file" },
        { "--init-from", 's', &o.init_from, "FILE", "take the parameters of a checkpoint or of a safetensors file" },
        { "--memory", 's', &o.memory, "BYTES",
          "a bound, such as 2GiB: what does not fit is made again in the backward instead of being kept" },
        { "--threads", 'i', &o.threads, "N", "compute threads (default: one per core)" },
        { "--seed", 'i', &o.seed, "N", "of initial weights, dropout and the order of data (default 0)" },
        COMMAND_RANKS_OPTIONS(o.ranks),
        { 0 },
    };
    const command c = {
        "profile",
        "SCRIPT",
        "Tells where the time of a training step goes.",
        "roof is the least time of a kernel at what this machine reaches in a large copy and in a large product (f32, or bf16\n"
        "where narrow floats are multiplied), its bytes or its arithmetic, whichever takes longer, over the time that it took.\n"
        "Measured steps take longer: kernels are launched one by one, and on the CPU each is waited for. With exchanges among\n"
        "ranks, exposed communication is what a step waits for them beyond what it computes meanwhile.",
        1,
        1,
        options
    };
    const char *positional[1];
    int count;
    bool helped, done;
    int code = command_parse(&c, argc, argv, positional, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    if (strcmp(o.format, "text") != 0 && strcmp(o.format, "json") != 0)
        return command_usage(&c, "--format '%s': there are text and json", o.format);
    code = command_machine(&c, machine, &o.machine);
    if (code == COMMAND_OK) code = command_ranks_begin(&c, &o.ranks, argc, argv, &done);
    if (code != COMMAND_OK || done) return code;
    code = command_mesh(&c, &o.ranks, &o.settings, &o.mesh);
    if (code != COMMAND_OK) return code;
    o.steps = o.unmeasured + o.measured;
    return command_train_run(positional[0], &o);
}

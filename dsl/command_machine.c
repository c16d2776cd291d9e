/* command_machine.c -- the rates of a machine as an option gives them: "tflops=400,gbytes_s=3000,latency_us=10,gbps=400".
 *
 * Comes in: a text. Goes out: a sgl_machine; what the text does not name stays 0. Odd invariant: tflops stands for products in
 * every dtype, unless narrow_tflops tells those in bf16 apart. */
#include <stdlib.h>
#include <string.h>

#include "dsl/command.h"

int command_machine(const command *c, const char *text, sgl_machine *machine)
{
    const struct {
        const char *name;
        double *to, unit;
    } rows[] = {
        { "tflops=", &machine->flops_per_s, 1e12 },       { "narrow_tflops=", &machine->narrow_flops_per_s, 1e12 },
        { "gbytes_s=", &machine->bytes_per_s, 1e9 },      { "latency_us=", &machine->link_latency_s, 1e-6 },
        { "gbps=", &machine->link_bytes_per_s, 1e9 / 8 },
    };
    for (const char *part = text; *part;) {
        const size_t length = strcspn(part, ",");
        size_t r = 0;
        while (r < sizeof rows / sizeof rows[0] && strncmp(part, rows[r].name, strlen(rows[r].name)) != 0) r++;
        if (r == sizeof rows / sizeof rows[0])
            return command_usage(c,
                                 "--machine '%s': '%.*s' is none of tflops=N, narrow_tflops=N, gbytes_s=N, "
                                 "latency_us=N, gbps=N",
                                 text, (int)length, part);
        char *end;
        const char *number = part + strlen(rows[r].name);
        const double value = strtod(number, &end);
        if (end == number || end != part + length || !(value > 0) || value > 1e9)
            return command_usage(c, "--machine '%s': '%.*s' holds no number above 0", text, (int)length, part);
        *rows[r].to = value * rows[r].unit;
        part += length;
        if (*part == ',') part++;
    }
    return COMMAND_OK;
}

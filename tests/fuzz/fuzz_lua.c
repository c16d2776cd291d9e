/* fuzz_lua.c -- any bytes as a list of calls of the Lua library (calls.lua beside this file makes them). A call may raise
 * what it likes; the host neither ends nor hangs, no status is INTERNAL, and closing gives back every byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/dsl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_BYTES = 512, DRIVER_BYTES = 1 << 14 };

/* calls.lua, read once. */
static const char *driver(void)
{
    static char text[DRIVER_BYTES];
    if (text[0] != '\0') return text;
    FILE *file = fopen(SGL_FUZZ_FOLDER "/calls.lua", "rb");
    size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (length == 0 || length == sizeof text - 1) abort();
    fclose(file);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char text[DRIVER_BYTES + 4 * MOST_BYTES + 32];
    if (bytes > MOST_BYTES) return 0;
    int length = snprintf(text, sizeof text, "local bytes = \"");
    for (size_t i = 0; i < bytes; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "\\%03d", data[i]);
    length += snprintf(text + length, sizeof text - (size_t)length, "\"\n%s", driver());

    sgl_vm *vm = NULL;
    sgl_job *job = NULL;
    const sgldsl_limits limits = {
        .instructions = 5000000, .cpu_ms = 2000, .memory_bytes = 64 << 20, .graph_units = 200000
    };
    const sgldsl_source source = { .name = "calls.lua", .text = text, .bytes = (size_t)length };
    if (sgl_open(NULL, &vm) != SGL_OK) abort();
    sgl_status status = sgldsl_load(vm, &source, NULL, 0, &limits, &job);
    if (status != SGL_OK && status != SGL_LIMIT && status != SGL_OUT_OF_MEMORY) abort(); /* calls.lua catches errors */
    if (status != SGL_OK && sgl_error_message(vm)[0] == '\0') abort();
    sgl_close(vm);
    return 0;
}

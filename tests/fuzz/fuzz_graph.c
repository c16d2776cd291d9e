/* fuzz_graph.c -- any bytes as the text of a graph. What parses and verifies prints and parses again with the same hashes;
 * what is small goes through all passes and is frozen for the device that computes nothing. Nothing is left behind. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "exec/device.h"
#include "passes/pass.h"
#include "tests/support/ir_case.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_NODES = 200, MOST_VALUE_BYTES = 1 << 20 };

static void demand(bool held)
{
    if (!held) abort();
}

static bool is_small(const sglir_graph *g)
{
    int64_t all = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        int64_t size = sglir_bytes(&g->values.data[v].type);
        if (size < 0 || size > MOST_VALUE_BYTES) return false;
        all += size;
    }
    return g->nodes.count <= MOST_NODES && all <= MOST_VALUE_BYTES;
}

static void compile(sglcore_env *env, const sglir_graph *g)
{
    sglplan plan;
    sglir_graph *placed = NULL;
    sglexec_program *program = NULL;
    sglplan_init(&plan);
    const sglpass_context context = { .env = env, .plan = &plan, .workspace = sglexec_device_null.workspace };
    sgl_status status = sglpass_run(&context, g, NULL, &placed);
    if (status == SGL_OK) status = sglexec_freeze(env, placed, &program);
    demand(status != SGL_INTERNAL);
    sglexec_program_free(program);
    sglir_graph_free(placed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    sglcore_env env;
    sglir_graph *g = NULL;
    ir_message message;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sgl_status status = sglir_parse(&env, "fuzz", (const char *)data, bytes, &g);
    demand((status == SGL_OK) == (g != NULL));
    demand(status == SGL_OK || env.message[0] != '\0');
    if (g != NULL && sglir_verify(g, SGLIR_LOGICAL) == SGL_OK) {
        demand(ir_case_round_trip(&env, g, &message));
        if (is_small(g)) compile(&env, g);
    }
    sglir_graph_free(g);
    demand(env.bytes_in_use == 0);
    return 0;
}

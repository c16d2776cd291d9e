/* test_cuda_links.c -- programs whose exchanges run on the device, over a driver and an NCCL without a GPU (tests/cuda): what is
 * sent to whom, in which order and size; sums in slices; ranks that do not come; errors of the library; every allocation
 * failing once.
 *
 * In: graphs of one rank in text form, a comm that answers by itself for the other ranks. Out: what the library was asked for. NCCL and
 * driver hold each call to their rules, and end the process where something is left. */
#include "cuda_case.h"

#include <stdlib.h>

#include "backend/cuda/link.h"
#include "exec/net.h"
#include "passes/pass.h"

#ifdef SGLCUDA_HAS_NCCL

enum { MOST_RANKS = 8 };

/* ---- a comm of which this is one rank, and the others do as it does ---------------------------------------------------- */

struct sglexec_group {
    int count;
};

struct sglexec_comm {
    sglcore_env *env;
    int rank, ranks, told, checks, fails_at; /* fails_at: the check that does, 0: none */
    bool alike;                              /* all ranks have one device */
    char label[128];
    struct sglexec_group groups[16];
    int group_count;
};

static int comm_rank(const sglexec_comm *comm) { return comm->rank; }
static int comm_size(const sglexec_comm *comm) { return comm->ranks; }
static const char *comm_host(const sglexec_comm *comm, int rank)
{
    (void)comm, (void)rank;
    return "a";
}

static struct sglexec_comm the_comm;

static sgl_status comm_group(sglexec_comm *comm, const char *name, const int *ranks, int count, sglexec_group **group)
{
    (void)name, (void)ranks;
    *group = &comm->groups[comm->group_count++];
    (*group)->count = count;
    return SGL_OK;
}

/* Of bytes alone: what ranks tell each other. A GPU's id begins what they say of it; the name of a group is tests/cuda's. */
static sgl_status comm_start(sglexec_group *group, const sglexec_exchange *x, void *stream, uint32_t *ticket)
{
    (void)stream;
    *ticket = 0;
    if (x->kind == SGLEXEC_BROADCAST) memset(x->to, 0x5a, (size_t)x->count);
    if (x->kind != SGLEXEC_ALL_GATHER) return SGL_OK;
    for (int r = 0; r < group->count; r++) {
        char *to = (char *)x->to + r * x->count;
        memcpy(to, x->from, (size_t)x->count);
        if (!the_comm.alike && strstr(x->label, "how devices")) to[0] = (char)(to[0] + r - the_comm.rank);
    }
    return SGL_OK;
}

static sgl_status comm_wait(sglexec_group *group, uint32_t ticket, void *stream)
{
    (void)group, (void)ticket, (void)stream;
    return SGL_OK;
}

static void comm_elsewhere(sglexec_comm *comm, sglexec_group *group, const sglexec_exchange *x, uint64_t number)
{
    (void)number;
    comm->told += group != NULL;
    if (group) snprintf(comm->label, sizeof comm->label, "%s", x->label);
}

static sgl_status comm_check(sglexec_comm *comm, int wait_ms)
{
    (void)wait_ms;
    comm->checks++;
    if (comm->fails_at == 0 || comm->checks < comm->fails_at) return SGL_OK;
    return sglcore_fail(comm->env, SGL_DEVICE, "rank 1 on a has ended");
}

static const sglexec_comm_ops comm_ops = { .name = "test",
                                           .rank = comm_rank,
                                           .size = comm_size,
                                           .host = comm_host,
                                           .group = comm_group,
                                           .start = comm_start,
                                           .wait = comm_wait,
                                           .elsewhere = comm_elsewhere,
                                           .check = comm_check };

/* ---- a program ----------------------------------------------------------------------------------------------------------- */

typedef struct rig {
    sglcore_env env;
    sglexec_device *device;
    sglir_graph *placed;
    sglexec_program *program;
    void *prepared, *spaces[SGLIR_SPACES];
    sglexec_net *net;
    sglexec_exchanges *exchanges;
} rig;

static const char *said(void)
{
    const char *(*function)(void);
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    *(void **)&function = dlsym(library, "nccl_said");
    return function();
}

static sgl_status build(rig *g, const sglplan *plan, const char *text)
{
    static const sglpass passes[] = { { "fuse", sglpass_fuse, SGLIR_FUSED, false, "" },
                                      { "memory", sglpass_memory, SGLIR_PLACED, false, "" },
                                      { NULL, NULL, SGLIR_LOGICAL, false, NULL } };
    sglcore_env *env = &g->env;
    sglplan alone;
    sglir_graph *parsed;
    sglplan_init(&alone);
    for (int op = 0; op < SGLIR_OP_COUNT; op++) alone.native[op] = sglcuda_ops.native((sglir_op)op);
    const sglpass_context context = { .env = env, .plan = &alone, .workspace = sglcuda_ops.workspace };
    SGLCORE_TRY(sglir_parse(env, "rank", text, strlen(text), &parsed));
    const sgl_status passed = sglpass_run_list(&context, passes, parsed, NULL, &g->placed);
    sglir_graph_free(parsed);
    SGLCORE_TRY(passed);
    SGLCORE_TRY(sglexec_freeze(env, g->placed, &g->program));
    SGLCORE_TRY(sglcuda_ops.prepare(g->device, g->program, &g->prepared));
    SGLCORE_TRY(sglcuda_ops.settle(g->device, g->prepared));
    for (int space = 1; space < SGLIR_SPACES; space++)
        SGLCORE_TRY(sglcuda_ops.alloc(g->device, g->program->space_bytes[space], &g->spaces[space]));
    SGLCORE_TRY(sglexec_net_open(env, &comm_ops, &the_comm, &g->net));
    SGLCORE_TRY(sglexec_exchanges_new(g->net, g->program, plan, the_comm.rank, &sglcuda_ops, &g->exchanges));
    SGLCORE_TRY(sglexec_exchanges_make_groups(g->exchanges));
    return sglexec_exchanges_link(g->exchanges, &sglcuda_ops, g->device, g->prepared);
}

static sgl_status step(rig *g)
{
    return sglexec_replay(&g->env, &sglcuda_ops, g->device, g->prepared, g->program, g->spaces, g->exchanges, NULL);
}

/* As a session does: programs, then the net, then the device. */
static void close_rig(rig *g)
{
    if (g->prepared) sglcuda_ops.release(g->device, g->prepared);
    sglexec_exchanges_free(g->exchanges);
    for (int space = 1; space < SGLIR_SPACES; space++)
        if (g->spaces[space]) sglcuda_ops.free(g->device, g->spaces[space], g->program->space_bytes[space]);
    sglexec_program_free(g->program);
    sglir_graph_free(g->placed);
    sglexec_net_close(g->net);
    if (g->device) sglcuda_ops.close(g->device);
    assert_int_equal(g->env.bytes_in_use, 0);
}

static sglplan plan_of(sglir_axis axis, int64_t ranks)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[axis] = ranks;
    return plan;
}

/* nccl: words for the library. */
static void begin(rig *g, int ranks, int rank, const char *nccl)
{
    *g = (rig){ .env = cuda_case_env() };
    the_comm = (struct sglexec_comm){ .env = &g->env, .rank = rank, .ranks = ranks };
    setenv("SGL_TESTS_NCCL", nccl, 1);
    cuda_case_blas();
    cuda_case_driver("");
    cuda_case_library("libnccl.so.2");
    (void)said();
    g->device = cuda_case_open(&g->env, "");
}

static void build_or_fail(rig *g, const sglplan *plan, const char *text)
{
    if (build(g, plan, text) != SGL_OK) fail_msg("%s", g->env.message);
}

static void steps(rig *g, const char *calls)
{
    for (int i = 0; i < 3; i++)
        if (step(g) != SGL_OK) fail_msg("%s", g->env.message);
    const char *found = said();
    if (strcmp(found, calls) != 0) fail_msg("said:\n%swanted:\n%s", found, calls);
}

/* ---- each exchange --------------------------------------------------------------------------------------------------------- */

/* A row is captured at its first run, and launched whole from then on: the library is asked once. */
static void test_two(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    begin(&g, 2, 1, "");
    build_or_fail(&g, &plan,
                  "graph \"net\" {\n"
                  "  %0 = input() {role=2, name=\"p\", dtype=f32, dims=[7,3], partial=1}\n"
                  "  %1 = neg(%0)\n"
                  "  %2 = all_reduce(%1) {axes=1}\n"
                  "  %3 = reduce_scatter(%0) {axes=1, own=3, unit=1}\n"
                  "  %4 = coordinate() {axis=0}\n"
                  "  %5 = wait(%2, %1)\n"
                  "  %6 = wait(%3, %0)\n"
                  "  %7 = all_gather(%6) {axes=1, extent=7, unit=1}\n"
                  "  %8 = wait(%7, %6)\n"
                  "  fetch \"sum\" %5\n  fetch \"part\" %6\n  fetch \"all\" %8\n  fetch \"at\" %4\n}\n");
    assert_true(sglexec_exchanges_are_linked(g.exchanges));
    assert_string_equal(said(), "join 1 of 2\nsend 0 1\nreceive 0 1\n");
    /* 21 elements whole to each other; the other's 4 rows, own 3 rows back; own 3 rows, the other's 4. */
    steps(&g, "step send 0 84\nstep receive 0 84\n"
              "step send 0 48\nstep receive 0 36\n"
              "step send 0 36\nstep receive 0 48\n");
    close_rig(&g);
}

/* A sum of more than goes whole is cut in parts, reduced by their owners, and gathered. */
static void test_four(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 4);
    cuda_case_needs_nvrtc();
    begin(&g, 4, 2, "");
    build_or_fail(&g, &plan,
                  "graph \"net\" {\n"
                  "  %0 = input() {role=2, name=\"p\", dtype=bf16, dims=[100000], partial=1}\n"
                  "  %1 = all_reduce(%0) {axes=1}\n  fetch \"sum\" %1\n}\n");
    (void)said();
    /* Parts of 25008 elements, the last of 24976. */
    steps(&g, "step send 3 49952\nstep receive 1 50016\nstep send 0 50016\nstep receive 0 50016\n"
              "step send 1 50016\nstep receive 3 50016\n"
              "step send 3 50016\nstep receive 1 50016\nstep send 0 50016\nstep receive 0 50016\n"
              "step send 1 50016\nstep receive 3 49952\n");
    close_rig(&g);
}

/* 50 M elements of 4 bytes: in slices of 64 MiB. */
static void test_slices(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    begin(&g, 2, 0, "");
    build_or_fail(&g, &plan,
                  "graph \"net\" {\n"
                  "  %0 = input() {role=2, name=\"p\", dtype=f32, dims=[50000001], partial=1}\n"
                  "  %1 = all_reduce(%0) {axes=1}\n  fetch \"sum\" %1\n}\n");
    (void)said();
    steps(&g, "step send 1 67108864\nstep receive 1 67108864\nstep send 1 67108864\nstep receive 1 67108864\n"
              "step send 1 65782276\nstep receive 1 65782276\n");
    close_rig(&g);
}

/* Members of one exchange share its messages. */
static void test_members(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_FSDP, 2);
    cuda_case_needs_nvrtc();
    begin(&g, 2, 0, "");
    build_or_fail(&g, &plan,
                  "graph \"net\" {\n"
                  "  %0 = input() {role=2, name=\"a\", dtype=f32, dims=[10], partial=2}\n"
                  "  %1 = input() {role=2, name=\"b\", dtype=f32, dims=[3,2], partial=2}\n"
                  "  %2, %3 = reduce_scatter_each(%0, %1) {axes=2, owns=[6,2], units=[2,1]}\n"
                  "  %4, %5 = all_gather_each(%2, %3) {axes=2, extents=[10,3], units=[2,1]}\n"
                  "  fetch \"c\" %4\n  fetch \"d\" %5\n}\n");
    (void)said();
    steps(&g, "step send 1 16\nstep receive 1 24\nstep send 1 8\nstep receive 1 16\n"
              "step send 1 24\nstep receive 1 16\nstep send 1 16\nstep receive 1 8\n");
    close_rig(&g);
}

/* What was begun before a loop and is waited for after it is over by then: a CUDA graph ends at the loop. */
static void test_apart(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    for (int graphs = 0; graphs < 2; graphs++) {
        begin(&g, 2, 0, "");
        setenv("SGL_CUDA_GRAPH", graphs ? "1" : "0", 1);
        build_or_fail(&g, &plan,
                      "graph \"net\" {\n"
                      "  %0 = input() {role=2, name=\"p\", dtype=f32, dims=[64], partial=1}\n"
                      "  %1 = input() {role=2, name=\"q\", dtype=f32, dims=[3]}\n"
                      "  %2 = all_reduce(%0) {axes=1}\n"
                      "  %3 = scan(%1) {steps=2} {\n"
                      "    region(%4: i64[], %5: f32[3]) {\n      %6 = neg(%5)\n      yield %6\n    }\n  }\n"
                      "  %7 = all_reduce(%0) {axes=1}\n"
                      "  %8 = wait(%2, %0)\n"
                      "  %9 = neg(%8)\n"
                      "  %10 = wait(%7, %0)\n"
                      "  fetch \"a\" %9\n  fetch \"b\" %10\n  fetch \"c\" %3\n}\n");
        (void)said();
        const char once[] = "step send 1 256\nstep receive 1 256\nstep send 1 256\nstep receive 1 256\n";
        char thrice[3 * sizeof once];
        snprintf(thrice, sizeof thrice, "%s%s%s", once, once, once);
        steps(&g, graphs ? once : thrice);
        unsetenv("SGL_CUDA_GRAPH");
        close_rig(&g);
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------------------------------------- */

static const char sums[] = "graph \"net\" {\n"
                           "  %0 = input() {role=2, name=\"p\", dtype=f32, dims=[64], partial=1}\n"
                           "  %1 = all_reduce(%0) {axes=1}\n  fetch \"sum\" %1\n}\n";

/* Another rank has ended while the device waits: what is under way is cut, and nothing waits for it. */
static void test_stuck(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    begin(&g, 2, 0, "stuck");
    build_or_fail(&g, &plan, sums);
    the_comm.fails_at = the_comm.checks + 5;
    assert_int_equal(step(&g), SGL_DEVICE);
    assert_string_equal(g.env.message, "rank 1 on a has ended");
    assert_int_equal(step(&g), SGL_DEVICE);
    close_rig(&g);
}

/* A rank that does not come to a group. */
static void test_never(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    begin(&g, 2, 0, "never");
    the_comm.fails_at = 4;
    assert_int_equal(build(&g, &plan, sums), SGL_DEVICE);
    assert_string_equal(g.env.message, "rank 1 on a has ended");
    assert_true(the_comm.told > 0);
    assert_string_equal(the_comm.label, "making a group of devices");
    close_rig(&g);
}

static void test_broken(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    begin(&g, 2, 0, "broken");
    assert_int_equal(build(&g, &plan, sums), SGL_DEVICE);
    assert_string_equal(g.env.message, "device cuda: meeting: NCCL: remote process exited or there was a network error "
                                       "(a word of the library)");
    close_rig(&g);
}

/* Where one GPU serves two ranks they exchange through the host, unless NCCL is demanded, of which the user knows better. */
static void test_one_gpu(void **state)
{
    (void)state;
    rig g;
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    cuda_case_needs_nvrtc();
    for (int demanded = 0; demanded < 2; demanded++) {
        begin(&g, 2, 0, "");
        the_comm.alike = true;
        if (demanded) setenv("SGL_CUDA_NCCL", "1", 1);
        build_or_fail(&g, &plan, sums);
        assert_int_equal(sglexec_exchanges_are_linked(g.exchanges), demanded);
        unsetenv("SGL_CUDA_NCCL");
        close_rig(&g);
    }
    begin(&g, 2, 0, "");
    setenv("SGL_CUDA_NCCL", "0", 1);
    build_or_fail(&g, &plan, sums);
    assert_false(sglexec_exchanges_are_linked(g.exchanges));
    unsetenv("SGL_CUDA_NCCL");
    close_rig(&g);
}

/* ---- allocations ------------------------------------------------------------------------------------------------------------ */

/* Everything that a rank does, from opening to the second step. */
static sgl_status whole(sglcore_env *env, void *context)
{
    const sglplan plan = plan_of(SGLIR_AXIS_DP, 2);
    rig g = { .env = *env };
    (void)context;
    the_comm = (struct sglexec_comm){ .env = &g.env, .ranks = 2 };
    sgl_status status = sglcuda_ops.open(&g.env, 1, &g.device);
    if (status == SGL_OK) status = build(&g, &plan, sums);
    for (int i = 0; i < 2 && status == SGL_OK; i++) status = step(&g);
    if (status == SGL_OK && !sglexec_exchanges_are_linked(g.exchanges)) status = SGL_INTERNAL;
    close_rig(&g);
    return status;
}

static void test_allocations(void **state)
{
    (void)state;
    cuda_case_needs_nvrtc();
    setenv("SGL_TESTS_NCCL", "", 1);
    fault_each_allocation(whole, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),         cmocka_unit_test(test_four),   cmocka_unit_test(test_slices),
        cmocka_unit_test(test_members),     cmocka_unit_test(test_apart),  cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_never),       cmocka_unit_test(test_broken), cmocka_unit_test(test_one_gpu),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    fputs("nccl.h was not there: nothing of links is built\n", stderr);
    return 77;
}

#endif

/* test_interp_world.c -- the interpreter as a world of ranks, on cases whose numbers are known: each op among ranks, with parts
 * that are not even; ranks that meet in different exchanges all fail. */
#include "fault.h"

#include <stdio.h>
#include <string.h>

#include "tests/reference/interp_world.h"
#include "tests/support/ir_case.h"

enum { RANKS = 3 };

/* x, whole [4, 1], is 1, 2, 4, 8; rank 0 has two rows of it. */
static const char *const all_ops =
    "graph \"rank\" {\n"
    "  %%0 = input() {role=2, name=\"x\", dtype=f64, dims=[%d,1], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
    "  %%1 = coordinate() {axis=0}\n"
    "  %%2 = cast(%%1) {to=f64}\n"
    "  %%3 = broadcast(%%2) {dims=[1], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
    "  %%4 = all_max(%%3) {axes=1, dim=0}\n"
    "  %%5 = share() {axis=0, dtype=f64}\n"
    "  %%6 = all_reduce(%%5) {axes=1}\n"
    "  %%7 = all_gather(%%0) {axes=1, extent=4}\n"
    "  %%8 = reduce_sum(%%0) {axes=[0,1]}\n"
    "  %%9 = all_reduce(%%8) {axes=1}\n"
    "  %%10 = broadcast(%%8) {dims=[4]}\n"
    "  %%11 = reduce_scatter(%%10) {axes=1, own=%d}\n"
    "  %%12 = all_gather(%%11) {axes=1, extent=4}\n"
    "  %%13 = add(%%2, %%2)\n"
    "  %%14 = add(%%13, %%13)\n"
    "  %%15 = broadcast(%%14) {dims=[1,4], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
    "  %%16 = iota() {axis=1, dims=[1,4], dtype=f64}\n"
    "  %%17 = broadcast(%%16) {dims=[1,4], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
    "  %%18 = add(%%15, %%17)\n" /* of rank r at i: 4 r + i */
    "  %%19 = all_to_all(%%18) {axes=1, to=1, ranks=3, extent=%d}\n"
    "  %%20 = reduce_sum(%%19) {axes=[0]}\n"
    "  %%21 = all_gather(%%20) {axes=1, extent=4}\n"
    "  %%22 = all_to_all(%%19) {axes=1, to=0, ranks=3, extent=4}\n"
    "  %%23 = sub(%%22, %%18)\n"
    "  %%24 = mul(%%23, %%23)\n"
    "  %%25 = reduce_sum(%%24) {axes=[0,1]}\n"
    "  %%26 = all_reduce(%%25) {axes=1}\n"
    "  %%27 = ring_shift(%%0) {axes=1, dim=0, by=1, extent=%d, whole=4}\n"
    "  %%28 = reduce_sum(%%27) {axes=[0,1]}\n"
    "  %%29 = mul(%%28, %%2)\n" /* 8 on rank 0, 1 + 2 on rank 1, 4 on rank 2, times the rank */
    "  %%30 = all_reduce(%%29) {axes=1}\n"
    "  %%31 = ring_shift(%%27) {axes=1, dim=0, by=-1, of=1, extent=%d, whole=4}\n"
    "  %%32 = all_gather(%%31) {axes=1, extent=4}\n"
    "  %%33, %%34 = all_to_all_each(%%18, %%19) {axes=1, ranks=3, tos=[1,0], extents=[%d,4], units=[1,1]}\n"
    "  %%35 = sub(%%33, %%19)\n" /* each as by itself */
    "  %%36 = mul(%%35, %%35)\n"
    "  %%37 = reduce_sum(%%36) {axes=[0,1]}\n"
    "  %%38 = sub(%%34, %%22)\n"
    "  %%39 = mul(%%38, %%38)\n"
    "  %%40 = reduce_sum(%%39) {axes=[0,1]}\n"
    "  %%41 = add(%%37, %%40)\n"
    "  %%42 = all_reduce(%%41) {axes=1}\n"
    "  fetch \"each\" %%42\n"
    "  fetch \"shifted\" %%30\n  fetch \"home\" %%32\n"
    "  fetch \"last\" %%4\n  fetch \"one\" %%6\n  fetch \"rows\" %%7\n  fetch \"sum\" %%9\n  fetch \"sums\" %%12\n"
    "  fetch \"apart\" %%21\n  fetch \"again\" %%26\n"
    "}\n";

static const struct {
    const char *name;
    int count;
    double values[4];
} wanted[] = { { "last", 1, { 2 } },
               { "one", 1, { 1 } },
               { "rows", 4, { 1, 2, 4, 8 } },
               { "sum", 1, { 15 } },
               { "sums", 4, { 15, 15, 15, 15 } },
               { "apart", 4, { 12, 15, 18, 21 } },
               { "again", 1, { 0 } },
               { "shifted", 1, { 11 } },
               { "home", 4, { 1, 2, 4, 8 } },
               { "each", 1, { 0 } } };

static sglir_graph *parse(sglcore_env *env, const char *format, int rank)
{
    const int own = rank == 0 ? 2 : 1, before = rank == 1 ? 2 : 1; /* rows of this rank, and of the one before it */
    char text[4096];
    ir_message message;
    snprintf(text, sizeof text, format, own, own, own, before, own, own);
    sglir_graph *g = ir_case_parse(env, "rank", text, &message);
    if (g == NULL) fail_msg("%s", message.text);
    return g;
}

static bool run(const char *const formats[RANKS], interp ranks[RANKS])
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan;
    sglir_graph *graphs[RANKS];
    interp whole = { 0 };
    interp_tensor x = interp_tensor_new(SGL_F64, 2, (int64_t[]){ 4, 1 });
    for (int e = 0; e < 4; e++) interp_set(&x, e, 1 << e);
    interp_input(&whole, "x", &x);
    interp_tensor_free(&x);
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_DP] = RANKS;
    for (int r = 0; r < RANKS; r++) graphs[r] = parse(&env, formats[r], r);
    bool good = interp_world_run(&whole, &plan, (const sglir_graph *const *)graphs, ranks);
    for (int r = 0; r < RANKS; r++) sglir_graph_free(graphs[r]);
    interp_free(&whole);
    assert_int_equal(env.bytes_in_use, 0);
    return good;
}

static void test_all_ops(void **state)
{
    (void)state;
    const char *const formats[RANKS] = { all_ops, all_ops, all_ops };
    interp ranks[RANKS] = { { 0 } };
    if (!run(formats, ranks)) fail_msg("%s", ranks[0].error);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            const interp_tensor *found = interp_fetch(&ranks[r], wanted[i].name);
            assert_non_null(found);
            assert_int_equal(found->count, wanted[i].count);
            for (int e = 0; e < wanted[i].count; e++) assert_true(interp_get(found, e) == wanted[i].values[e]);
        }
        interp_free(&ranks[r]);
    }
}

static void test_other_exchange(void **state)
{
    (void)state;
    static const char *const other =
        "graph \"rank\" {\n"
        "  %%0 = input() {role=2, name=\"x\", dtype=f64, dims=[%d,1], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
        "  %%1 = reduce_sum(%%0) {axes=[0,1]}\n"
        "  %%2 = all_reduce(%%1) {axes=1}\n  fetch \"sum\" %%2\n}\n";
    const char *const formats[RANKS] = { all_ops, other, all_ops };
    interp ranks[RANKS] = { { 0 } };
    assert_false(run(formats, ranks));
    assert_non_null(strstr(ranks[0].error, "in another exchange"));
    for (int r = 0; r < RANKS; r++) interp_free(&ranks[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ops),
        cmocka_unit_test(test_other_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

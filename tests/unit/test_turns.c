/* test_turns.c -- how rows become micro-batches, on all ranks: parts are balanced, larger first, every rank has the same loops of as many
 * turns, and of each slice of rows is told what all ranks' slices of that turn make together and where it begins there. Meshes of
 * one and two axes over which rows are split, up to 40 rows. */
#include "fault.h"

#include "passes/pass.h"
#include "plan/mesh.h"
#include "tests/support/ir_case.h"

enum { RANKS = 6, STRETCHES = 3 };

/* What one rank's loops say. */
typedef struct rank_turns {
    int loops;
    int64_t steps[STRETCHES], size[STRETCHES], whole[STRETCHES], start[STRETCHES];
} rank_turns;

static sglir_graph *summed(sglcore_env *env, int64_t rows)
{
    sglir_graph *g;
    const int64_t dims[2] = { rows, 2 }, axes[2] = { 0, 1 };
    const sglir_type type = sglir_type_make(SGL_F64, 2, dims);
    assert_int_equal(sglir_graph_new(env, "summed", &g), SGL_OK);
    sglir_id x = sglir_unary(g, SGLIR_OP_EXP, sglir_input(g, SGL_FEED, "x", &type));
    sglir_output_add(g, SGLIR_FETCH, "y", sglir_reduce(g, SGLIR_OP_REDUCE_SUM, x, axes, 2, false));
    assert_int_equal(sglir_status(g), SGL_OK);
    return g;
}

static rank_turns read_turns(const sglir_graph *g)
{
    rank_turns turns = { 0 };
    int slices = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op == SGLIR_OP_SCAN) {
            assert_true(turns.loops < STRETCHES);
            turns.steps[turns.loops++] = sglir_attr_int(g, node, "steps");
        } else if (node->op == SGLIR_OP_DYNAMIC_SLICE) {
            const sglir_whole *whole = sglir_whole_of(g, node->out_first);
            assert_true(slices < STRETCHES);
            turns.size[slices] = sglir_type_of(g, node->out_first)->dims[0];
            turns.whole[slices] = whole ? whole->dims[0] : turns.size[slices];
            turns.start[slices++] = whole ? whole->starts[0] : 0;
        }
    }
    assert_int_equal(slices, turns.loops);
    return turns;
}

/* Of the rank's own rows each turn has what mesh.h says. */
static void check_own(const rank_turns *turns, int64_t rows, int64_t micro)
{
    int64_t turn = 0;
    for (int k = 0; k < turns->loops; k++) {
        for (int64_t i = 0; i < turns->steps[k]; i++)
            assert_int_equal(turns->size[k], sglplan_part_of(rows, 1, micro, turn++).size);
    }
    assert_int_equal(turn, micro);
}

static void check_together(const rank_turns *turns, int64_t ranks)
{
    for (int k = 0; k < turns[0].loops; k++) {
        int64_t before = 0;
        for (int64_t r = 0; r < ranks; r++) {
            assert_int_equal(turns[r].loops, turns[0].loops);
            assert_int_equal(turns[r].steps[k], turns[0].steps[k]);
            assert_int_equal(turns[r].start[k], before);
            before += turns[r].size[k];
        }
        for (int64_t r = 0; r < ranks; r++) assert_int_equal(turns[r].whole[k], before);
    }
}

/* False: it is refused. */
static bool check_rows(sglcore_env *env, const sglplan *plan, int64_t rows)
{
    const int64_t micro = plan->mesh[SGLIR_AXIS_MICRO], ranks = sglplan_group_size(plan, SGLPLAN_STORE_AXES);
    const bool fits = (rows + ranks - 1) / ranks >= micro;
    sglir_graph *g = summed(env, rows);
    rank_turns turns[RANKS];
    for (int64_t r = 0; r < ranks; r++) {
        sglir_graph *made = NULL;
        const sglpass_context context = { .env = env, .plan = plan, .rank = r };
        const sgl_status status = sglpass_run(&context, g, "micro", &made);
        if (status != (fits ? SGL_OK : SGL_INVALID_ARGUMENT)) fail_msg("%s", env->message);
        if (!fits) {
            assert_non_null(strstr(env->message, "micro-batches; set micro to"));
            continue;
        }
        turns[r] = read_turns(made);
        check_own(&turns[r], sglplan_part_along(plan, SGLPLAN_STORE_AXES, r, rows, 1).size, micro);
        if (rows % (ranks * micro) == 0) assert_int_equal(turns[r].loops, 1);
        sglir_graph_free(made);
    }
    if (fits) check_together(turns, ranks);
    sglir_graph_free(g);
    return fits;
}

static void test_rows(void **state)
{
    (void)state;
    static const int64_t meshes[][2] = { { 1, 1 }, { 2, 1 }, { 4, 1 }, { 5, 1 }, { 3, 2 }, { 2, 3 } }; /* dp, fsdp */
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int fits = 0, refused = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        for (int64_t micro = 2; micro <= 5; micro++) {
            sglplan plan;
            sglplan_init(&plan);
            plan.mesh[SGLIR_AXIS_DP] = meshes[m][0];
            plan.mesh[SGLIR_AXIS_FSDP] = meshes[m][1];
            plan.mesh[SGLIR_AXIS_MICRO] = micro;
            for (int64_t rows = 1; rows <= 40; rows++) *(check_rows(&env, &plan, rows) ? &fits : &refused) += 1;
        }
    }
    assert_true(fits > 500 && refused > 100);
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

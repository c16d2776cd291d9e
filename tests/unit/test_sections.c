/* test_sections.c -- programs of one session meet in the same places: training, evaluation, first values and decoding,
 * frozen in any order, see every parameter, moment and cache at one offset, and still mean what they meant. What does not
 * fit an earlier program's layout is an error that names it. Failing allocations. */
#include "fault.h"

#include <stdio.h>

#include "passes/pass.h"
#include "tests/support/ir_case.h"

static const char train[] = "graph \"train\" {\n"
                            "%0 = input() {role=0, name=\"embed\", dtype=f32, dims=[4,3]}\n"
                            "%1 = input() {role=0, name=\"w\", dtype=f32, dims=[5,3]}\n"
                            "%2 = input() {role=0, name=\"b\", dtype=f32, dims=[5]}\n"
                            "%3 = input() {role=1, name=\"m/embed\", dtype=f32, dims=[4,3]}\n"
                            "%4 = input() {role=1, name=\"m/w\", dtype=f32, dims=[5,3]}\n"
                            "%5 = input() {role=1, name=\"m/b\", dtype=f32, dims=[5]}\n"
                            "%6 = input() {role=2, name=\"i\", dtype=i32, dims=[2]}\n"
                            "%7 = input() {role=1, name=\"steps\", dtype=i64, dims=[]}\n"
                            "%8 = gather(%0, %6)\n"
                            "%9 = dot(%8, %1) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[1]}\n"
                            "%10 = broadcast(%2) {dims=[2,5]}\n"
                            "%11 = add(%9, %10)\n"
                            "%12 = reduce_sum(%11) {axes=[0,1]}\n"
                            "%13 = pack(%2, %0, %1)\n" /* in an order of its own */
                            "%14 = pack(%5, %3, %4)\n"
                            "%15 = exp(%13)\n"
                            "%16 = add(%14, %15)\n"
                            "%17 = sub(%13, %16)\n"
                            "%18, %19, %20 = unpack(%17) {ranks=[1,2,2], dims=[5,4,3,5,3]}\n"
                            "%21, %22, %23 = unpack(%16) {ranks=[1,2,2], dims=[5,4,3,5,3]}\n"
                            "%24 = constant() {value=1, dtype=i64}\n"
                            "%25 = add(%7, %24)\n"
                            "fetch \"loss\" %12\n"
                            "update \"b\" %18\nupdate \"embed\" %19\nupdate \"w\" %20\n"
                            "update \"m/b\" %21\nupdate \"m/embed\" %22\nupdate \"m/w\" %23\n"
                            "update \"steps\" %25\n"
                            "}\n";

/* Uses some parameters, in another order, and a parameter and a cache that training does not know. */
static const char decode[] = "graph \"decode\" {\n"
                             "%0 = input() {role=0, name=\"w\", dtype=f32, dims=[5,3]}\n"
                             "%1 = input() {role=0, name=\"embed\", dtype=f32, dims=[4,3]}\n"
                             "%2 = input() {role=3, name=\"cache\", dtype=f32, dims=[2,3]}\n"
                             "%3 = input() {role=0, name=\"extra\", dtype=f32, dims=[3]}\n"
                             "%4 = input() {role=2, name=\"i\", dtype=i32, dims=[1]}\n"
                             "%5 = input() {role=2, name=\"at\", dtype=i64, dims=[]}\n"
                             "%6 = gather(%1, %4)\n"
                             "%7 = broadcast(%3) {dims=[1,3]}\n"
                             "%8 = add(%6, %7)\n"
                             "%9 = dynamic_update(%2, %8, %5) {axis=0}\n"
                             "%10 = dot(%9, %0) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[1]}\n"
                             "fetch \"logits\" %10\n"
                             "update \"cache\" %9\n"
                             "}\n";

static const char init[] = "graph \"init\" {\n"
                           "%0 = input() {role=0, name=\"embed\", dtype=f32, dims=[4,3]}\n"
                           "%1 = input() {role=0, name=\"w\", dtype=f32, dims=[5,3]}\n"
                           "%2 = input() {role=0, name=\"b\", dtype=f32, dims=[5]}\n"
                           "%3 = input() {role=1, name=\"m/embed\", dtype=f32, dims=[4,3]}\n"
                           "%4 = input() {role=1, name=\"m/w\", dtype=f32, dims=[5,3]}\n"
                           "%5 = input() {role=1, name=\"m/b\", dtype=f32, dims=[5]}\n"
                           "%6 = input() {role=2, name=\"seed\", dtype=i64, dims=[]}\n"
                           "%7 = constant() {value=0, dtype=i64}\n"
                           "%8 = random_normal(%6, %7, %7) {id=1, dims=[4,3], dtype=f32}\n"
                           "%9 = random_normal(%6, %7, %7) {id=2, dims=[5,3], dtype=f32}\n"
                           "%10 = constant() {value=0, dtype=f32}\n"
                           "%11 = broadcast(%10) {dims=[5]}\n"
                           "%12 = broadcast(%10) {dims=[4,3]}\n"
                           "%13 = broadcast(%10) {dims=[5,3]}\n"
                           "update \"embed\" %8\nupdate \"w\" %9\nupdate \"b\" %11\n"
                           "update \"m/embed\" %12\nupdate \"m/w\" %13\nupdate \"m/b\" %11\n"
                           "}\n";

static const char *const programs[] = { train, decode, init };
enum { PROGRAMS = 3 };

/* ---- a session on paper --------------------------------------------------------------------------------------- */

static bool has_input(const sglir_graph *layout, const char *name)
{
    for (int64_t n = 0; n < layout->nodes.count; n++) {
        if (strcmp(sglir_attr_string(layout, &layout->nodes.data[n], "name"), name) == 0) return true;
    }
    return false;
}

/* The inputs and members of `from` that the layout lacks. */
static sgl_status add_to_layout(sglir_graph *layout, const sglir_graph *from)
{
    for (int64_t n = 0; n < from->nodes.count; n++) {
        const sglir_node *node = &from->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(from, node, "role") == SGL_FEED) continue;
        const char *name = sglir_attr_string(from, node, "name");
        if (has_input(layout, name)) continue;
        const sglir_value *value = sglir_value_at(from, node->out_first);
        sglir_id made = sglir_input(layout, (sgl_role)sglir_attr_int(from, node, "role"), name, &value->type);
        SGLCORE_TRY(sglir_status(layout));
        layout->values.data[made].space = value->space;
        layout->values.data[made].offset = value->offset;
    }
    for (int64_t i = 0; i < from->members.count; i++) {
        sglir_member member = from->members.data[i];
        const char *section = sglcore_string(from->strings, member.section);
        const char *name = sglcore_string(from->strings, member.name);
        SGLCORE_TRY(sglcore_intern(layout->strings, section, strlen(section), &member.section));
        SGLCORE_TRY(sglcore_intern(layout->strings, name, strlen(name), &member.name));
        bool known = false;
        for (int64_t k = 0; k < layout->members.count; k++)
            known = known || layout->members.data[k].name == member.name;
        if (!known) SGLCORE_TRY(sglcore_vec_push(layout->env, &layout->members, member));
    }
    return SGL_OK;
}

/* Parses the text and places it into the session of that layout, which grows. */
static sgl_status place(sglcore_env *env, const char *text, sglir_graph *layout, sglir_graph **g, sglir_graph **placed)
{
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = env, .plan = &plan, .layout = layout };
    *placed = NULL;
    SGLCORE_TRY(sglir_parse(env, "program", text, strlen(text), g));
    SGLCORE_TRY(sglpass_run(&context, *g, NULL, placed));
    return add_to_layout(layout, *placed);
}

/* Where the state of that name lies: bytes from the start of the state space; -1: the program does not have it. */
static int64_t place_of(const sglir_graph *placed, const char *name)
{
    sglir_id input = sglir_input_find(placed, name);
    if (input != SGLIR_NONE) return sglir_value_at(placed, input)->offset;
    for (int64_t i = 0; i < placed->members.count; i++) {
        const sglir_member *member = &placed->members.data[i];
        if (strcmp(sglcore_string(placed->strings, member->name), name) != 0) continue;
        sglir_id section = sglir_input_find(placed, sglcore_string(placed->strings, member->section));
        return sglir_value_at(placed, section)->offset + 4 * member->offset; /* all are f32 */
    }
    return -1;
}

static const char *const names[] = { "embed", "w", "b", "m/embed", "m/w", "m/b", "steps", "cache", "extra" };
static const int64_t bytes[] = { 48, 60, 20, 48, 60, 20, 8, 24, 12 };
enum { NAMES = 9 };

static void check_session(const int *order)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *layout, *g, *placed;
    int64_t places[NAMES];
    for (int i = 0; i < NAMES; i++) places[i] = -1;
    assert_int_equal(sglir_graph_new(&env, "layout", &layout), SGL_OK);
    for (int k = 0; k < PROGRAMS; k++) {
        if (place(&env, programs[order[k]], layout, &g, &placed) != SGL_OK) fail_msg("%s", env.message);
        if (sglir_verify(placed, SGLIR_PLACED) != SGL_OK) fail_msg("%s", env.message);
        ir_message message;
        if (!ir_case_same_meaning(g, placed, 5, (ir_tolerance){ 1e-12, 0 }, &message)) fail_msg("%s", message.text);
        for (int i = 0; i < NAMES; i++) {
            int64_t at = place_of(placed, names[i]);
            if (at >= 0 && places[i] >= 0) assert_int_equal(at, places[i]);
            if (at >= 0) {
                places[i] = at;
                assert_true(at + bytes[i] <= placed->space_bytes[SGLIR_SPACE_STATE]);
            }
        }
        sglir_graph_free(g);
        sglir_graph_free(placed);
    }
    for (int i = 0; i < NAMES; i++) {
        assert_true(places[i] >= 0);
        for (int k = 0; k < i; k++) assert_true(places[i] + bytes[i] <= places[k] || places[k] + bytes[k] <= places[i]);
    }
    sglir_graph_free(layout);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_programs_meet(void **state)
{
    (void)state;
    static const int orders[][PROGRAMS] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 }
    };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) check_session(orders[i]);
}

/* Training first: the sections are in its packs' order, and the optimizer runs over them whole. */
static void test_training_first(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *layout, *g, *placed;
    assert_int_equal(sglir_graph_new(&env, "layout", &layout), SGL_OK);
    assert_int_equal(place(&env, train, layout, &g, &placed), SGL_OK);
    assert_int_equal(place_of(placed, "b"), 0);
    assert_int_equal(place_of(placed, "embed"), 20);
    assert_int_equal(place_of(placed, "w"), 68);
    assert_int_equal(place_of(placed, "m/b"), 4096);
    assert_int_equal(place_of(placed, "steps"), 8192);
    for (int64_t n = 0; n < placed->nodes.count; n++) {
        assert_int_not_equal(placed->nodes.data[n].op, SGLIR_OP_PACK);
        assert_int_not_equal(placed->nodes.data[n].op, SGLIR_OP_COPY);
    }
    sglir_graph_free(g);
    sglir_graph_free(placed);
    sglir_graph_free(layout);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static void check_error(const char *second, const char *expected)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *layout, *g, *placed;
    assert_int_equal(sglir_graph_new(&env, "layout", &layout), SGL_OK);
    assert_int_equal(place(&env, train, layout, &g, &placed), SGL_OK);
    sglir_graph_free(g);
    sglir_graph_free(placed);
    assert_int_equal(place(&env, second, layout, &g, &placed), SGL_TYPE);
    if (strstr(env.message, expected) == NULL) fail_msg("%s", env.message);
    assert_null(placed);
    sglir_graph_free(g);
    sglir_graph_free(layout);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_errors(void **state)
{
    (void)state;
    check_error("graph \"g\" {\n%0 = input() {role=0, name=\"w\", dtype=f32, dims=[5,4]}\nfetch \"y\" %0\n}\n",
                "w: the graph wants f32[5,4], the session has it as f32[5,3] from an earlier program");
    check_error("graph \"g\" {\n%0 = input() {role=0, name=\"w\", dtype=f64, dims=[5,3]}\nfetch \"y\" %0\n}\n",
                "w: the graph wants f64[5,3], the session has it as f32[5,3] from an earlier program");
    check_error("graph \"g\" {\n%0 = input() {role=1, name=\"steps\", dtype=i32, dims=[]}\nfetch \"y\" %0\n}\n",
                "steps: the graph wants i32[], the session has it as i64[] from an earlier program");
}

/* ---- failing allocations ------------------------------------------------------------------------------------------ */

static sgl_status whole_session(sglcore_env *env, void *context)
{
    (void)context;
    sglir_graph *layout, *g = NULL, *placed = NULL;
    SGLCORE_TRY(sglir_graph_new(env, "layout", &layout));
    sgl_status status = SGL_OK;
    for (int k = 0; k < PROGRAMS && status == SGL_OK; k++) {
        sglir_graph_free(g);
        sglir_graph_free(placed);
        g = placed = NULL;
        status = place(env, programs[k], layout, &g, &placed);
    }
    sglir_graph_free(g);
    sglir_graph_free(placed);
    sglir_graph_free(layout);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(whole_session, NULL) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_meet),
        cmocka_unit_test(test_training_first),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

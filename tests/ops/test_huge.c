/* test_huge.c -- graphs of tensors with more than 2^31 elements, planned and frozen for the CPU, not run: that sizes, offsets,
 * strides and costs are counted in 64 bits. What runs is tests/ops/huge.c, at night. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "backend/backend.h"
#include "exec/kernel.h"
#include "passes/pass.h"
#include "tests/support/ir_case.h"

#define WIDE INT64_C(2147483653) /* 2^31 + 5 */

static const char text[] = "graph \"huge\" {\n"
                           "  %0 = input() {role=2, name=\"x\", dtype=u8, dims=[3,2147483653]}\n"
                           "  %1 = input() {role=2, name=\"at\", dtype=i64, dims=[5]}\n"
                           "  %2 = reshape(%0) {dims=[6442450959]}\n"
                           "  %10, %3 = unpack(%2) {ranks=[1,1], dims=[4294967306,2147483653]}\n"
                           "  %4 = gather(%3, %1)\n"
                           "  %5 = transpose(%0) {order=[1,0]}\n"
                           "  %9 = bit_not(%5)\n"
                           "  %6 = cast(%0) {to=f64}\n"
                           "  %7 = sin(%6)\n"
                           "  %8 = concat(%0, %0) {axis=0}\n"
                           "  fetch \"few\" %4\n"
                           "  fetch \"turned\" %9\n"
                           "  fetch \"sines\" %7\n"
                           "  fetch \"twice\" %8\n"
                           "}\n";

typedef struct planned {
    sglcore_env env;
    sglir_graph *placed;
    sglexec_program *program;
} planned;

static void plan_huge(planned *p)
{
    sglplan plan;
    sglir_graph *g = NULL;
    sglcore_env_init(&p->env, NULL, NULL, NULL, NULL);
    sglplan_init(&plan);
    const sglpass_context context = { .env = &p->env, .plan = &plan, .workspace = sglexec_device_cpu.workspace };
    assert_int_equal(sglir_parse(&p->env, "huge", text, strlen(text), &g), SGL_OK);
    assert_int_equal(sglir_verify(g, SGLIR_LOGICAL), SGL_OK);
    sglplan_cost cost = sglplan_cost_graph(g);
    assert_true(cost.transcendentals == 3.0 * (double)WIDE);
    assert_true(cost.bytes > 8.0 * 3 * (double)WIDE);
    if (sglpass_run(&context, g, NULL, &p->placed) != SGL_OK) fail_msg("%s", p->env.message);
    assert_int_equal(sglir_verify(p->placed, SGLIR_PLACED), SGL_OK);
    assert_int_equal(sglexec_freeze(&p->env, p->placed, &p->program), SGL_OK);
    sglir_graph_free(g);
}

static void free_planned(planned *p)
{
    sglexec_program_free(p->program);
    sglir_graph_free(p->placed);
    assert_int_equal(p->env.bytes_in_use, 0);
}

static const sglexec_operand *port_of(const planned *p, const char *name, bool feed)
{
    const sglexec_program *program = p->program;
    int64_t count = feed ? program->feeds.count : program->fetches.count;
    for (int64_t i = 0; i < count; i++) {
        const sglexec_port *port = feed ? &program->feeds.data[i] : &program->fetches.data[i];
        if (strcmp(sglcore_string(program->strings, port->name), name) == 0) return &port->operand;
    }
    fail_msg("there is no %s", name);
    return NULL;
}

static int64_t bytes_of(const sglexec_operand *o)
{
    int64_t elements = 1;
    for (int d = 0; d < o->rank; d++) elements *= o->dims[d];
    return sglcore_dtype_bytes((sgl_dtype)o->dtype, elements);
}

/* Each has a place of its own in IO, all of it. */
static void test_places(void **state)
{
    (void)state;
    planned p = { 0 };
    plan_huge(&p);
    const sglexec_operand *ports[] = { port_of(&p, "x", true), port_of(&p, "turned", false),
                                       port_of(&p, "sines", false), port_of(&p, "twice", false) };
    const int64_t bytes[] = { 3 * WIDE, 3 * WIDE, 24 * WIDE, 6 * WIDE };
    for (int i = 0; i < 4; i++) {
        assert_true(bytes_of(ports[i]) == bytes[i]);
        assert_int_equal(ports[i]->space, SGLIR_SPACE_IO);
        assert_true(ports[i]->offset >= 0 && ports[i]->offset + bytes[i] <= p.program->space_bytes[SGLIR_SPACE_IO]);
        for (int k = 0; k < i; k++)
            assert_true(ports[i]->offset >= ports[k]->offset + bytes[k] ||
                        ports[k]->offset >= ports[i]->offset + bytes[i]);
    }
    assert_true(ports[1]->dims[0] == WIDE && ports[2]->dims[1] == WIDE && ports[3]->dims[0] == 6);
    free_planned(&p);
}

/* The last part of x is a view of it, further than 2^32 from its start: what gathers from it reads there. */
static void test_view(void **state)
{
    (void)state;
    planned p = { 0 };
    bool found = false;
    plan_huge(&p);
    const sglexec_operand *x = port_of(&p, "x", true);
    for (int64_t n = 0; n < p.program->instructions.count; n++) {
        const sglexec_instruction *i = &p.program->instructions.data[n];
        if (i->op != SGLIR_OP_GATHER) continue;
        const sglexec_operand *table = &p.program->operands.data[i->operand_first];
        assert_true(table->offset == x->offset + 2 * WIDE);
        assert_true(table->dims[0] == WIDE);
        found = true;
    }
    assert_true(found);
    free_planned(&p);
}

/* The strides of a kernel that turns x over. */
static void test_strides(void **state)
{
    (void)state;
    planned p = { 0 };
    bool found = false;
    plan_huge(&p);
    for (int64_t k = 0; k < p.program->kernels.count; k++) {
        const sglexec_kernel *kernel = &p.program->kernels.data[k];
        for (int64_t s = 0; s < kernel->steps.count; s++) {
            const sglexec_step *step = &kernel->steps.data[s];
            for (int d = 0; step->kind == SGLEXEC_LOAD && d < kernel->rank; d++)
                found = found || step->map.strides[d] == WIDE;
        }
    }
    assert_true(found);
    free_planned(&p);
}

/* A product of extents beyond 2^63 bytes is refused, whatever it passes through. */
static void test_beyond(void **state)
{
    (void)state;
    sglcore_env env;
    sglir_graph *g = NULL;
    static const char beyond[] = "graph \"beyond\" {\n"
                                 "  %0 = input() {role=2, name=\"x\", dtype=f64, dims=[2147483653,2147483653]}\n"
                                 "  fetch \"x\" %0\n}\n";
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_not_equal(sglir_parse(&env, "beyond", beyond, strlen(beyond), &g), SGL_OK);
    assert_non_null(strstr(env.message, "more bytes than 64 bits count"));
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

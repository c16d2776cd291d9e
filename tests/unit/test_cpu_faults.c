/* test_cpu_faults.c -- memory that runs out inside the CPU device: each n-th request of opening it, of taking memory and of
 * making a program ready fails once; none leaks, each is reported, and where none fails the program runs. */
#include "cpu_case.h"

/* One of each family of commands: single ops, a dot with copies, a concat, an index, a reduction, a loss, attention, ropes. */
static sglir_graph *many_families(sglcore_env *env)
{
    sglir_graph *g = cpu_graph(env, "many families");
    const int64_t dims[] = { 6, 8 }, order[] = { 1, 0 }, heads[] = { 2, 3, 2, 4 };
    sglir_id x = cpu_input(g, "x", SGL_F32, 2, dims), y = cpu_input(g, "y", SGL_F32, 2, dims);
    sglir_id q = cpu_input(g, "q", SGL_F32, 4, heads), s = cpu_input(g, "s", SGL_I64, 0, NULL);
    sglir_id t = cpu_input(g, "t", SGL_I32, 1, dims);
    sglir_id turned = sglir_transpose(g, y, order);
    sglir_id product = sglir_dot(g, x, turned, 0, NULL, NULL, 1, (int64_t[]){ 1 }, (int64_t[]){ 0 });
    sglir_id sum = sglir_reduce(g, SGLIR_OP_REDUCE_SUM, product, (int64_t[]){ 0 }, 1, false);
    sglir_id both = sglir_emit(g, SGLIR_OP_CONCAT, (sglir_id[]){ x, y }, 2, &SGLIR_I("axis", 1), 1, NULL);
    sglir_id rows = sglir_emit(g, SGLIR_OP_GATHER, (sglir_id[]){ both, t }, 2, NULL, 0, NULL);
    sglir_id loss =
        sglir_emit(g, SGLIR_OP_LINEAR_CROSS_ENTROPY, (sglir_id[]){ x, y, t }, 3, &SGLIR_I("ignore", -1), 1, NULL);
    sglir_id rope = sglir_emit(g, SGLIR_OP_ROPE, (sglir_id[]){ q, s }, 2, &SGLIR_I("inverse", 0), 1, NULL);
    sglir_output_add(g, SGLIR_FETCH, "sum", sum);
    sglir_output_add(g, SGLIR_FETCH, "rows", rows);
    sglir_output_add(g, SGLIR_FETCH, "loss", loss);
    sglir_output_add(g, SGLIR_FETCH, "rope", rope);
    return g;
}

static void small_targets(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    for (int64_t e = 0; t->ints != NULL && e < t->count; e++) t->ints[e] = name[0] == 't' ? e % 6 : 0;
}

/* The device's whole life, in the env that fails. */
static sgl_status use_device(sglcore_env *env, const cpu_case *c, sglexec_device *device, void *memory)
{
    const sglexec_device_ops *ops = &sglexec_device_cpu;
    void *prepared = NULL, *spaces[SGLIR_SPACES] = { memory, memory, memory, memory, memory };
    sglcore_text text = { 0 };
    sgl_status status = ops->write(device, memory, 0, c->first, c->bytes);
    if (status == SGL_OK) status = ops->prepare(device, &c->program, &prepared);
    for (uint32_t i = 0; status == SGL_OK && i < c->program.instructions.count; i++) {
        status = ops->launch(device, prepared, i, spaces);
    }
    if (status == SGL_OK) status = ops->describe(device, &text);
    if (status == SGL_OK) status = ops->read(device, memory, 0, c->memory, c->bytes);
    sglcore_text_free(env, &text);
    ops->release(device, prepared);
    return status;
}

static sgl_status whole_life(sglcore_env *env, void *context)
{
    const cpu_case *c = context;
    const sglexec_device_ops *ops = &sglexec_device_cpu;
    sglexec_device *device = NULL;
    void *memory = NULL;
    sgl_status status = ops->open(env, 2, &device);
    if (status != SGL_OK) {
        assert_null(device);
        return status;
    }
    status = ops->alloc(device, c->bytes, &memory);
    if (status == SGL_OK) status = use_device(env, c, device, memory);
    ops->free(device, memory, c->bytes);
    ops->close(device);
    return status;
}

static void each_allocation_fails_once(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = many_families(&env);
    cpu_case c = { .g = g, .options = { .relative = 2e-6, .fill = small_targets } };
    assert_int_equal(g->status, SGL_OK);
    sglcore_env_init(&c.env, NULL, NULL, NULL, NULL);
    cpu_prepare_case(&c);
    cpu_write_inputs(&c);
    memcpy(c.first, c.memory, (size_t)c.bytes);
    int64_t allocations = fault_each_allocation(whole_life, &c);
    assert_true(allocations > 5);
    cpu_compare(&c, "after the last fault");
    cpu_free_case(&c);
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_allocation_fails_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

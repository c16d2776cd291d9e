/* test_null.c -- the null device: its port does what its words say, a model far larger than this machine is planned, frozen
 * and stepped on it in no memory, and what is read from it is zeros. */
#include "session_case.h"

#include "backend/backend.h"

static const sglexec_device_ops *const null_device = &sglexec_device_null;

static void test_port(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglexec_device *device;
    void *block = NULL, *prepared = NULL;
    double flops;
    assert_string_equal(null_device->name, "null");
    assert_int_equal(null_device->open(&env, 4, &device), SGL_OK);
    int64_t blocks = heap.live_blocks;
    assert_int_equal(null_device->alloc(device, INT64_MAX, &block), SGL_OK);
    assert_non_null(block);
    const unsigned char ones[4] = { 1, 1, 1, 1 };
    unsigned char host[6] = { 9, 9, 9, 9, 9, 9 };
    assert_int_equal(null_device->write(device, block, INT64_MAX - 4, ones, 4), SGL_OK);
    assert_int_equal(null_device->copy(device, block, block, INT64_MAX), SGL_OK);
    assert_int_equal(null_device->read(device, block, INT64_MAX - 4, host + 1, 4), SGL_OK);
    static const unsigned char zeros_within[6] = { 9, 0, 0, 0, 0, 9 };
    assert_memory_equal(host, zeros_within, 6);
    assert_int_equal(null_device->read(device, block, 0, NULL, 0), SGL_OK);
    assert_int_equal(null_device->prepare(device, NULL, &prepared), SGL_OK);
    void *const spaces[SGLIR_SPACES] = { NULL, block, block, block, block };
    assert_int_equal(null_device->launch(device, prepared, 12345, spaces), SGL_OK);
    assert_int_equal(null_device->finish(device), SGL_OK);
    null_device->release(device, prepared);
    null_device->free(device, block, INT64_MAX);
    assert_int_equal(heap.live_blocks, blocks); /* nothing was taken for any of it */
    assert_int_equal(null_device->peak_flops(device, &flops), SGL_UNSUPPORTED);
    assert_string_equal(env.message, "the null device computes nothing");
    null_device->close(device);
    assert_int_equal(heap.live_blocks, 0);
}

static void test_what_it_runs_whole(void **state)
{
    (void)state;
    assert_true(null_device->native(SGLIR_OP_ATTENTION));
    assert_true(null_device->native(SGLIR_OP_LINEAR_CROSS_ENTROPY));
    assert_false(null_device->native(SGLIR_OP_DOT)); /* no composite: there is nothing to leave whole */
    assert_int_equal(null_device->workspace(NULL, 0), 0);
}

static void test_describes_itself(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglexec_device *device;
    sglcore_text text = { 0 };
    assert_int_equal(null_device->open(&env, 0, &device), SGL_OK);
    assert_int_equal(null_device->describe(device, &text), SGL_OK);
    assert_string_equal(text.data, "  plans everything, computes nothing\n");
    sglcore_text_free(&env, &text);
    null_device->close(device);
    heap.counter = (fault_counter){ .fail_at = 1 };
    device = (sglexec_device *)&env;
    assert_int_equal(null_device->open(&env, 0, &device), SGL_OUT_OF_MEMORY);
    assert_null(device);
    assert_int_equal(heap.live_blocks, 0);
}

/* A product of 2^40 parameters: 4 TiB of states, which no session of this test has. */
static void test_larger_than_the_machine(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_session *session;
    sgl_graph *g;
    sgl_program *program;
    const sgl_type weight = { .dtype = SGL_F32, .rank = 2, .dims = { 1 << 20, 1 << 20 } };
    const sgl_type input = { .dtype = SGL_F32, .rank = 2, .dims = { 8, 1 << 20 } };
    static const int64_t one[] = { 1 }, zero[] = { 0 };
    sgl_value values[2], product;
    int count;
    assert_int_equal(sgl_session_new(vm, "null", &session), SGL_OK);
    assert_int_equal(sgl_graph_new(vm, "large", &g), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_FEED, "x", &input, &values[0]), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_PARAMETER, "w", &weight, &values[1]), SGL_OK);
    const sgl_attr attrs[] = { { .name = "batch_a", .kind = SGL_ATTR_INTS },
                               { .name = "batch_b", .kind = SGL_ATTR_INTS },
                               { .name = "contract_a", .kind = SGL_ATTR_INTS, .i = 1, .ints = one },
                               { .name = "contract_b", .kind = SGL_ATTR_INTS, .i = 1, .ints = zero } };
    assert_int_equal(sgl_emit(g, "dot", values, 2, attrs, 4, &product, 1, &count), SGL_OK);
    product = emit(g, "reduce_sum", &product, 1, NULL);
    assert_int_equal(sgl_output_fetch(g, "sum", product), SGL_OK);
    assert_int_equal(sgl_freeze(session, g, NULL, &program), SGL_OK);
    assert_true(sgl_session_bytes(session) >= (int64_t)1 << 42);
    assert_true(sgl_program_flops(program) >= 2.0 * 8 * 0x1p40);
    int64_t live = heap.live_bytes;
    float sum = 7;
    assert_int_equal(sgl_step(program), SGL_OK);
    assert_int_equal(sgl_fetch(program, "sum", &sum, sizeof sum), SGL_OK);
    assert_true(sum == 0);
    assert_int_equal(heap.live_bytes, live);
    close_vm(vm, &heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port),
        cmocka_unit_test(test_what_it_runs_whole),
        cmocka_unit_test(test_describes_itself),
        cmocka_unit_test(test_larger_than_the_machine),
    };
    return cmocka_run_group_tests_name("null", tests, NULL, NULL);
}

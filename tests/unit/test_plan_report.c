/* test_plan_report.c -- the report "plan": what one rank of a mesh holds and exchanges, of a graph whose bytes are counted by hand.
 *
 * In: a graph of one parameter, laid over dp and tp. Out: its figures as JSON and as text, for ranks with uneven parts; nothing
 * leaks and nothing is hidden when an allocation fails. */
#include <jansson.h>

#include "fault.h"

typedef struct planned {
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
} planned;

typedef struct kept_text {
    char data[8192];
    size_t used;
} kept_text;

static sgl_status keep(void *user, const char *data, size_t bytes)
{
    kept_text *text = user;
    assert_true(text->used + bytes < sizeof text->data);
    memcpy(text->data + text->used, data, bytes);
    text->used += bytes;
    text->data[text->used] = 0;
    return SGL_OK;
}

static sgl_value emit(sgl_graph *graph, const char *op, sgl_value a, sgl_value b)
{
    sgl_value result = SGL_NO_VALUE;
    const sgl_value arguments[] = { a, b };
    int count;
    (void)sgl_emit(graph, op, arguments, b.id == SGL_NO_VALUE.id ? 1 : 2, NULL, 0, &result, 1, &count);
    return result;
}

/* loss = sum(x * w) over rows of x; w becomes w - gradient. */
static sgl_status build(sgl_vm *vm, sgl_graph **graph)
{
    const sgl_type rows = { SGL_F32, 2, { 6, 4 } }, row = { SGL_F32, 1, { 4 } };
    const int64_t axes[] = { 0, 1 };
    const sgl_attr both = { .name = "axes", .kind = SGL_ATTR_INTS, .i = 2, .ints = axes };
    sgl_value x, w, loss = SGL_NO_VALUE, gradient, product;
    int count;
    sgl_status status = sgl_graph_new(vm, "step", graph);
    if (status == SGL_OK) status = sgl_input(*graph, SGL_FEED, "x", &rows, &x);
    if (status == SGL_OK) status = sgl_input(*graph, SGL_PARAMETER, "w", &row, &w);
    if (status != SGL_OK) return status;
    product = emit(*graph, "mul", x, w);
    status = sgl_emit(*graph, "reduce_sum", &product, 1, &both, 1, &loss, 1, &count);
    if (status == SGL_OK) status = sgl_grad(*graph, loss, &w, 1, &gradient);
    if (status == SGL_OK) status = sgl_output_fetch(*graph, "loss", loss);
    if (status == SGL_OK) status = sgl_output_update(*graph, "w", emit(*graph, "sub", w, gradient));
    return status;
}

static sgl_status open_planned(planned *p, const sgl_config *config, int rank)
{
    const sgl_attr dp = { .name = "mesh.dp", .kind = SGL_ATTR_INT, .i = 4 };
    const sgl_attr tp = { .name = "mesh.tp", .kind = SGL_ATTR_INT, .i = 2 };
    sgl_graph *graph = NULL;
    sgl_plan *plan = NULL;
    *p = (planned){ 0 };
    sgl_status status = sgl_open(config, &p->vm);
    if (status == SGL_OK) status = build(p->vm, &graph);
    if (status == SGL_OK) status = sgl_plan_new(p->vm, &plan);
    if (status == SGL_OK) status = sgl_plan_set(plan, &dp);
    if (status == SGL_OK) status = sgl_plan_set(plan, &tp);
    if (status == SGL_OK) status = sgl_session_new(p->vm, "null", &p->session);
    if (status == SGL_OK) status = sgl_session_plan_rank(p->session, rank);
    return status == SGL_OK ? sgl_freeze(p->session, graph, plan, &p->program) : status;
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("'%s' is no whole number", key);
    return json_integer_value(value);
}

/* Ranks 2 r and 2 r + 1 are at r along dp: rows 2, 2, 1, 1. */
static void test_json(void **state)
{
    (void)state;
    static const char *const parts[] = { "f32[2,4]", "f32[2,4]", "f32[1,4]", "f32[1,4]" };
    static const int64_t at[] = { 0, 2, 4, 5 };
    for (int rank = 0; rank < 8; rank++) {
        planned p;
        kept_text text = { 0 };
        assert_int_equal(open_planned(&p, NULL, rank), SGL_OK);
        assert_int_equal(sgl_program_report(p.program, "plan", "json", keep, &text), SGL_OK);
        json_t *root = json_loads(text.data, 0, NULL), *feed, *exchange;
        assert_non_null(root);
        assert_int_equal(number(root, "rank"), rank);
        assert_int_equal(number(root, "ranks"), 8);
        assert_int_equal(number(json_object_get(root, "mesh"), "dp"), 4);
        assert_int_equal(number(json_object_get(root, "mesh"), "tp"), 2);
        assert_int_equal(number(json_object_get(root, "mesh"), "pp"), 1);
        assert_int_equal(number(root, "parameter_bytes"), 16);
        assert_int_equal(number(root, "optimizer_bytes"), 0);
        feed = json_array_get(json_object_get(root, "feeds"), 0);
        assert_string_equal(json_string_value(json_object_get(feed, "part")), parts[rank / 2]);
        assert_string_equal(json_string_value(json_object_get(feed, "whole")), "f32[6,4]");
        assert_int_equal(json_integer_value(json_array_get(json_object_get(feed, "at"), 0)), at[rank / 2]);
        /* The gradient, 16 bytes, and the loss, 4, in one exchange: 2 * 3 / 4 of each is sent. */
        assert_int_equal(json_array_size(json_object_get(root, "exchanges")), 1);
        exchange = json_array_get(json_object_get(root, "exchanges"), 0);
        assert_string_equal(json_string_value(json_object_get(exchange, "op")), "all_reduce");
        assert_string_equal(json_string_value(json_object_get(exchange, "axes")), "dp");
        assert_int_equal(number(exchange, "ranks"), 4);
        assert_int_equal(number(exchange, "count"), 1);
        assert_int_equal(number(exchange, "bytes_sent"), 24 + 6);
        json_decref(root);
        sgl_close(p.vm);
    }
}

static void test_text(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "plan of program \"step\", rank 7 of 8\n",
        "mesh dp=4 (here 3), tp=2 (here 1)\n",
        "f32[1,4] of f32[6,4], from [5,0] on\n",
        "all_reduce           over dp                4 ranks        1 times                   30\n",
    };
    planned p;
    kept_text text = { 0 };
    assert_int_equal(open_planned(&p, NULL, 7), SGL_OK);
    assert_int_equal(sgl_program_report(p.program, "plan", "text", keep, &text), SGL_OK);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(text.data, lines[i])) fail_msg("'%s' is not in\n%s", lines[i], text.data);
    assert_int_equal(sgl_program_report(p.program, "plan", "svg", keep, &text), SGL_INVALID_ARGUMENT);
    assert_non_null(strstr(sgl_error_message(p.vm), "text and json, not 'svg'"));
    sgl_close(p.vm);
    assert_int_equal(open_planned(&p, NULL, 8), SGL_INVALID_ARGUMENT);
    assert_non_null(strstr(sgl_error_message(p.vm), "there is no rank 8"));
    sgl_close(p.vm);
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    const sgl_config config = { .alloc = fault_alloc, .alloc_user = &heap };
    planned p;
    kept_text text = { 0 };
    assert_int_equal(open_planned(&p, &config, 3), SGL_OK);
    int64_t blocks = heap.live_blocks, tries = 0;
    for (int json = 0; json < 2; json++) {
        bool tripped = true;
        for (int64_t n = 1; tripped; n++, tries++) {
            heap.counter = (fault_counter){ .fail_at = n };
            text.used = 0;
            sgl_status status = sgl_program_report(p.program, "plan", json ? "json" : "text", keep, &text);
            tripped = heap.counter.tripped;
            assert_int_equal(status, tripped ? SGL_OUT_OF_MEMORY : SGL_OK);
            assert_int_equal(heap.live_blocks, blocks);
        }
    }
    assert_true(tries > 4);
    heap.counter = (fault_counter){ 0 };
    sgl_close(p.vm);
    assert_int_equal(heap.live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

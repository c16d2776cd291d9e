/* test_dim.c -- dims with buckets from C: what a host declares and asks of a graph's padding, and the programs of a job by
 * buckets. The mathematics of it, bucket against bucket, is held by e2e/dim.sh. */
#include "session_case.h"

#include <math.h>

/* ---- padding of graphs made by hand ----------------------------------------------------------------------------------- */

typedef struct by_hand {
    fault_heap heap;
    sgl_vm *vm;
    sgl_graph *graph;
    sgl_value x, lengths, mask; /* f32[2, 4], i64[2], bool[2, 4] */
} by_hand;

static sgl_value reduced(sgl_graph *g, const char *op, sgl_value x, int64_t axis)
{
    const sgl_attr axes = { .name = "axes", .kind = SGL_ATTR_INTS, .i = 1, .ints = &axis };
    return emit(g, op, &x, 1, &axes);
}

static sgl_value number(sgl_graph *g, double value)
{
    const sgl_attr attrs[] = { { .name = "value", .kind = SGL_ATTR_FLOAT, .f = value },
                               { .name = "dtype", .kind = SGL_ATTR_DTYPE, .i = SGL_F32 } };
    sgl_value made;
    assert_int_equal(sgl_emit(g, "constant", NULL, 0, attrs, 2, &made, 1, NULL), SGL_OK);
    return made;
}

static sgl_value feed(sgl_graph *g, const char *name, sgl_dtype dtype, int rank, int64_t rows, int64_t extent)
{
    const sgl_type type = { .dtype = dtype, .rank = rank, .dims = { rows, rank > 1 ? extent : 0 } };
    sgl_value made;
    assert_int_equal(sgl_input(g, SGL_FEED, name, &type, &made), SGL_OK);
    return made;
}

static void begin(by_hand *t, int64_t extent)
{
    const int64_t dims[] = { 2, extent }, column[] = { 2, 1 };
    const sgl_attr iota[] = { { .name = "axis", .kind = SGL_ATTR_INT, .i = 1 },
                              { .name = "dims", .kind = SGL_ATTR_INTS, .i = 2, .ints = dims },
                              { .name = "dtype", .kind = SGL_ATTR_DTYPE, .i = SGL_I64 } };
    const sgl_attr shape = { .name = "dims", .kind = SGL_ATTR_INTS, .i = 2, .ints = column };
    sgl_value places;
    assert_int_equal(sgl_graph_new(t->vm, "hand", &t->graph), SGL_OK);
    t->x = feed(t->graph, "x", SGL_F32, 2, 2, extent);
    t->lengths = feed(t->graph, "lengths", SGL_I64, 1, 2, 0);
    assert_int_equal(sgl_padding_declare(t->graph, t->x, "seq", 1, 0, NAN, 0), SGL_OK);
    assert_int_equal(sgl_emit(t->graph, "iota", NULL, 0, iota, 3, &places, 1, NULL), SGL_OK);
    const sgl_value compared[] = { places, emit(t->graph, "reshape", &t->lengths, 1, &shape) };
    t->mask = emit(t->graph, "less", compared, 2, NULL);
    assert_int_equal(sgl_padding_declare(t->graph, t->mask, "seq", 1, 0, 0, 1), SGL_OK);
}

static sgl_value held(by_hand *t, double value)
{
    const sgl_value arguments[] = { t->mask, t->x, number(t->graph, value) };
    return emit(t->graph, "select", arguments, 3, NULL);
}

static void open_hand(by_hand *t)
{
    memset(t, 0, sizeof *t);
    t->vm = open_vm(&t->heap);
    begin(t, 4);
}

static void refused(by_hand *t, sgl_value value, const char *text)
{
    assert_int_equal(sgl_output_fetch(t->graph, "out", value), SGL_OK);
    assert_int_equal(sgl_padding_check(t->graph), SGL_TYPE);
    if (!strstr(sgl_error_message(t->vm), text)) fail_msg("'%s' is not in '%s'", text, sgl_error_message(t->vm));
    sgl_graph_free(t->graph);
    begin(t, 4);
}

static void good(by_hand *t, sgl_value value)
{
    assert_int_equal(sgl_output_fetch(t->graph, "out", value), SGL_OK);
    if (sgl_padding_check(t->graph) != SGL_OK) fail_msg("%s", sgl_error_message(t->vm));
    sgl_graph_free(t->graph);
    begin(t, 4);
}

static void test_outputs(void **state)
{
    (void)state;
    by_hand t;
    open_hand(&t);
    refused(&t, reduced(t.graph, "reduce_sum", t.x, 1), "reduce_sum: padding of the dim 'seq' in f32[2,4] would count");
    refused(&t, reduced(t.graph, "mean", held(&t, 0), 1), "a mean divides by all entries");
    refused(&t, reduced(t.graph, "reduce_sum", held(&t, 1), 1), "would count");
    refused(&t, reduced(t.graph, "reduce_sum", t.x, 0), "would count"); /* rows of other lengths */
    refused(&t, t.x, "output 'out': it is as long as the dim 'seq'");
    good(&t, reduced(t.graph, "reduce_sum", held(&t, 0), 1));
    good(&t, reduced(t.graph, "reduce_prod", held(&t, 1), 1));
    good(&t, reduced(t.graph, "reduce_max", held(&t, -INFINITY), 1));
    good(&t, reduced(t.graph, "reduce_min", held(&t, INFINITY), 1));
    good(&t, reduced(t.graph, "reduce_sum", reduced(t.graph, "reduce_sum", held(&t, 0), 0), 0));
    /* What is spoilt and used by nobody harms nobody; a feed that is declared anew is looked at anew. */
    (void)reduced(t.graph, "reduce_sum", t.x, 1);
    sgl_value sum = reduced(t.graph, "reduce_sum", t.x, 1);
    assert_int_equal(sgl_output_fetch(t.graph, "sum", sum), SGL_OK);
    assert_int_equal(sgl_padding_check(t.graph), SGL_TYPE);
    assert_int_equal(sgl_padding_declare(t.graph, t.x, "seq", 1, 0, 0, 0), SGL_OK);
    assert_int_equal(sgl_padding_check(t.graph), SGL_OK);
    close_vm(t.vm, &t.heap);
}

static sgl_value reshaped(sgl_graph *g, sgl_value x, int64_t first, int64_t second, int64_t third)
{
    const int64_t dims[] = { first, second, third };
    const sgl_attr shape = { .name = "dims", .kind = SGL_ATTR_INTS, .i = third ? 3 : second ? 2 : 1, .ints = dims };
    return emit(g, "reshape", &x, 1, &shape);
}

static int found(by_hand *t, sgl_value value, int axis)
{
    int made = -1;
    assert_int_equal(sgl_padding_find(t->graph, value, "seq", axis, &made), SGL_OK);
    return made;
}

static void test_places(void **state)
{
    (void)state;
    by_hand t;
    open_hand(&t);
    assert_int_equal(found(&t, t.x, 0), 0);
    assert_int_equal(found(&t, t.x, 1), 1);
    assert_int_equal(found(&t, t.lengths, 0), 0);
    sgl_value turned = emit(t.graph, "transpose", &t.x, 1,
                            &(sgl_attr){ .name = "order", .kind = SGL_ATTR_INTS, .i = 2, .ints = (int64_t[]){ 1, 0 } });
    assert_int_equal(found(&t, turned, 0), 1);
    sgl_value flat = reshaped(t.graph, t.x, 8, 0, 0), parts = reshaped(t.graph, t.x, 2, 2, 2);
    assert_int_equal(found(&t, flat, 0), 2);
    assert_int_equal(found(&t, reshaped(t.graph, flat, 2, 4, 0), 1), 1);
    assert_int_equal(found(&t, reshaped(t.graph, t.x, 2, 1, 4), 2), 1);
    assert_int_equal(found(&t, parts, 1), 0); /* spoilt */
    refused(&t, reduced(t.graph, "reduce_max", reduced(t.graph, "reduce_max", parts, 2), 1), "cuts the dimension");
    /* In the other order of rows and places the padding of one extent is elsewhere. */
    turned = emit(t.graph, "transpose", &t.x, 1,
                  &(sgl_attr){ .name = "order", .kind = SGL_ATTR_INTS, .i = 2, .ints = (int64_t[]){ 1, 0 } });
    const sgl_value both[] = { reshaped(t.graph, turned, 8, 0, 0), reshaped(t.graph, t.x, 8, 0, 0) };
    refused(&t, emit(t.graph, "mul", both, 2, NULL), "in different places");
    close_vm(t.vm, &t.heap);
}

/* A loop made by a host that tells nothing of its parameters: what the body yields is looked at until nothing is new. */
static void test_loops(void **state)
{
    (void)state;
    by_hand t;
    for (int masked = 0; masked < 2; masked++) {
        open_hand(&t);
        uint32_t region;
        const sgl_type index = { .dtype = SGL_I64 }, carry = { .dtype = SGL_F32, .rank = 2, .dims = { 2, 4 } };
        const sgl_attr steps = { .name = "steps", .kind = SGL_ATTR_INT, .i = 3 };
        const int64_t dims[] = { 2, 4 };
        sgl_value zero = number(t.graph, 0), kept, parameter, last;
        sgl_value first = emit(t.graph, "broadcast", &zero, 1,
                               &(sgl_attr){ .name = "dims", .kind = SGL_ATTR_INTS, .i = 2, .ints = dims });
        sgl_value x = masked ? held(&t, 0) : t.x;
        assert_int_equal(sgl_regions(t.graph, "scan", &region, NULL), SGL_OK);
        assert_int_equal(sgl_region_begin(t.graph, region), SGL_OK);
        assert_int_equal(sgl_region_parameter(t.graph, &index, &parameter), SGL_OK);
        assert_int_equal(sgl_region_parameter(t.graph, &carry, &kept), SGL_OK);
        const sgl_value sum[] = { kept, x };
        sgl_value yielded = emit(t.graph, "add", sum, 2, NULL);
        assert_int_equal(sgl_region_end(t.graph, &yielded, 1), SGL_OK);
        assert_int_equal(sgl_emit_regions(t.graph, "scan", &first, 1, &steps, 1, region, &last, 1, NULL), SGL_OK);
        assert_int_equal(found(&t, last, 1), 1);
        const sgl_value chosen[] = { t.mask, last, number(t.graph, 0) };
        if (masked) /* a carry is anything after a turn; masked again, it is not */
            good(&t, reduced(t.graph, "reduce_sum", emit(t.graph, "select", chosen, 3, NULL), 1));
        else
            refused(&t, reduced(t.graph, "reduce_sum", last, 1), "would count");
        close_vm(t.vm, &t.heap);
    }
}

static void test_compare(void **state)
{
    (void)state;
    by_hand t, other;
    open_hand(&t);
    other = t;
    begin(&other, 6);
    assert_int_equal(sgl_padding_compare(t.graph, other.graph, "seq"), SGL_OK);
    (void)number(t.graph, 4);
    assert_int_equal(sgl_padding_compare(t.graph, other.graph, "seq"), SGL_TYPE);
    (void)number(other.graph, 6);
    assert_int_equal(sgl_padding_compare(t.graph, other.graph, "seq"), SGL_TYPE);
    assert_non_null(strstr(sgl_error_message(t.vm), "this number is another one"));
    sgl_graph_free(other.graph);
    begin(&other, 6);
    (void)number(other.graph, 4);
    assert_int_equal(sgl_padding_compare(t.graph, other.graph, "seq"), SGL_OK);
    (void)number(other.graph, 4);
    assert_int_equal(sgl_padding_compare(t.graph, other.graph, "seq"), SGL_TYPE);
    close_vm(t.vm, &t.heap);
}

static void test_arguments(void **state)
{
    (void)state;
    by_hand t;
    sgl_graph *plain;
    int made;
    open_hand(&t);
    assert_int_equal(sgl_padding_declare(NULL, t.x, "seq", 0, -1, 0, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_declare(t.graph, t.x, "seq", 2, -1, 0, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_declare(t.graph, t.x, "seq", 0, 0, 0, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_declare(t.graph, t.x, "", 0, -1, 0, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_declare(t.graph, SGL_NO_VALUE, "seq", 0, -1, 0, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_like(t.graph, SGL_NO_VALUE, t.x), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_turn(t.graph, SGL_NO_VALUE, "seq", 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_stack(t.graph, number(t.graph, 0), "seq"), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_find(t.graph, SGL_NO_VALUE, "seq", 0, &made), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_find(t.graph, t.x, "other", 0, &made), SGL_OK);
    assert_int_equal(made, 0);
    assert_int_equal(sgl_padding_find(t.graph, t.x, "seq", 7, &made), SGL_OK);
    assert_int_equal(made, 0);
    assert_int_equal(sgl_padding_check(NULL), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_padding_compare(t.graph, NULL, "seq"), SGL_INVALID_ARGUMENT);
    static const char *const names[] = { "two", "three", "four" };
    for (int i = 0; i < 3; i++) assert_int_equal(sgl_padding_declare(t.graph, t.x, names[i], 1, 0, 0, 0), SGL_OK);
    assert_int_equal(sgl_padding_declare(t.graph, t.x, "five", 1, 0, 0, 0), SGL_LIMIT);
    assert_int_equal(sgl_graph_new(t.vm, "plain", &plain), SGL_OK);
    assert_int_equal(sgl_padding_check(plain), SGL_OK);
    assert_int_equal(sgl_padding_compare(plain, t.graph, "seq"), SGL_INVALID_ARGUMENT);
    close_vm(t.vm, &t.heap);
}

/* ---- programs by buckets -------------------------------------------------------------------------------------------------- */

static const char rows_script[] =
    "local sgl = require 'sgl'\n"
    "local seq = sgl.dim('seq', { buckets = { 4, 8 } })\n"
    "local embed = sgl.nn.embedding(10, 6)\n"
    "local last = sgl.nn.lstm(6, 6)\n"
    "local model = sgl.nn.module('m', { embed = embed, last = last }, function(t)\n"
    "  return sgl.nn.tied_head(embed, (last(embed(t)))) end)\n"
    "local ids = { dtype = 'i32', dims = { 2, seq } }\n"
    "local calls = 0\n"
    "return sgl.job { model = model, steps = 4, eval_batches = 1,\n"
    "  loss = function(b) return sgl.nn.cross_entropy(model(b.tokens), b.targets) end,\n"
    "  data = sgl.data.batches { feeds = { tokens = ids, targets = ids }, next = function(cursor)\n"
    "    if cursor == 3 then return nil end\n"
    "    calls = calls + 1\n"
    "    if cursor == 5 then error('call ' .. calls) end\n"
    "    if cursor == 4 then return { tokens = { { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { 1 } }, targets = { { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { 1 } } } end\n"
    "    if cursor == 1 then return { tokens = { { 1, 2, 3, 4, 5 }, { 6, 7 } }, targets = { { 2, 3, 4, 5, 6 }, { 7, 8 } } } end\n"
    "    return { tokens = { { 1, 2, 3 }, { 4 } }, targets = { { 2, 3, 4 }, { 5 } } } end },\n"
    "  optim = sgl.optim.sgd { lr = 0.1 } }\n";

static float stepped(sgl_job *job, sgl_program *program, int64_t cursor, sgl_status expected)
{
    const int64_t step = 1, seed = 0;
    float loss = 0;
    assert_int_equal(sgl_job_feed(job, program, cursor, 0), expected);
    if (expected != SGL_OK) return 0;
    (void)sgl_feed(program, "step", &step, sizeof step); /* a constant learning rate reads none */
    (void)sgl_feed(program, "seed", &seed, sizeof seed);
    assert_int_equal(sgl_step(program), SGL_OK);
    assert_int_equal(sgl_fetch(program, "loss", &loss, sizeof loss), SGL_OK);
    return loss;
}

static void initialise(sgl_job *job, sgl_session *session)
{
    sgl_graph *graph;
    sgl_program *init;
    const int64_t seed = 0;
    assert_int_equal(sgl_job_graph(job, "init", &graph), SGL_OK);
    assert_int_equal(sgl_freeze(session, graph, NULL, &init), SGL_OK);
    assert_int_equal(sgl_feed(init, "seed", &seed, sizeof seed), SGL_OK);
    assert_int_equal(sgl_step(init), SGL_OK);
    sgl_program_free(init);
}

static void test_family(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_job *job;
    sgl_session *session;
    sgl_family *family, *none;
    sgl_bucket small, large, again;
    double dims;
    if (sgl_load_text(vm, "rows.lua", rows_script, NULL, 0, &job) != SGL_OK) fail_msg("%s", sgl_error_message(vm));
    assert_int_equal(sgl_job_number(job, "dims", &dims), SGL_OK);
    assert_true(dims == 1);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    assert_int_equal(sgl_family_new(job, session, NULL, "init", &none), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_family_new(job, NULL, NULL, "train", &none), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_family_new(NULL, session, NULL, "train", &none), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_family_new(job, session, NULL, "train", &family), SGL_OK);
    assert_int_equal(sgl_family_pick(NULL, 0, 0, &small), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_family_pick(family, 0, 0, NULL), SGL_INVALID_ARGUMENT);

    if (sgl_family_pick(family, 0, 0, &small) != SGL_OK) fail_msg("%s", sgl_error_message(vm));
    assert_string_equal(small.text, "seq=4");
    assert_int_equal(small.tokens, 4);
    assert_true(small.fresh);
    assert_int_equal(sgl_family_pick(family, 1, 0, &large), SGL_OK);
    assert_string_equal(large.text, "seq=8");
    assert_int_equal(large.tokens, 7);
    assert_true(large.fresh && large.program != small.program);
    assert_int_equal(sgl_family_pick(family, 2, 0, &again), SGL_OK);
    assert_true(!again.fresh && again.program == small.program);
    assert_int_equal(sgl_family_at(family, 1, &again), SGL_OK);
    assert_true(again.program == large.program && again.tokens == -1);
    assert_int_equal(sgl_family_at(family, 2, &again), SGL_OK);
    assert_null(again.text);
    assert_int_equal(sgl_family_pick(family, 3, 0, &again), SGL_NOT_FOUND);
    assert_int_equal(sgl_family_pick(family, 4, 0, &again), SGL_SCRIPT);
    assert_non_null(strstr(sgl_error_message(vm), "rows.lua:2: dim 'seq': row 1 of the batch is 9 long"));

    /* A batch fits every program that is long enough, with the same loss; it is made once for pick and feed. */
    initialise(job, session);
    float loss = stepped(job, small.program, 0, SGL_OK);
    initialise(job, session);
    assert_float_equal(stepped(job, large.program, 0, SGL_OK), loss, 1e-6);
    assert_true(loss > 1);
    (void)stepped(job, small.program, 1, SGL_SCRIPT);
    assert_non_null(strstr(sgl_error_message(vm), "is 5 long; the program takes 4 along its dim 'seq'"));
    assert_int_equal(sgl_family_pick(family, 2, 0, &again), SGL_OK);
    (void)stepped(job, again.program, 2, SGL_OK);
    assert_int_equal(sgl_family_pick(family, 5, 0, &again), SGL_SCRIPT);
    /* Cursors 0, 1, 2, 4 were picked, 0, 0, 1, 2 fed: the first of these is none that waits any more, the last one is. */
    assert_non_null(strstr(sgl_error_message(vm), "call 9"));
    sgl_family_free(family);
    sgl_family_free(NULL);
    assert_int_equal(sgl_family_new(job, session, NULL, "eval", &family), SGL_OK); /* goes with the job */
    close_vm(vm, &heap);
}

/* ---- memory that runs out ---------------------------------------------------------------------------------------------------- */

static sgl_status once(sglcore_env *env, void *context)
{
    (void)context;
    sgl_vm *vm;
    sgl_job *job = NULL;
    sgl_session *session = NULL;
    sgl_family *family = NULL;
    sgl_bucket bucket;
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user, .threads = 1 };
    sgl_status status = sgl_open(&config, &vm);
    if (status != SGL_OK) return status;
    status = sgl_load_text(vm, "rows.lua", rows_script, NULL, 0, &job);
    if (status == SGL_OK) status = sgl_session_new(vm, "null", &session);
    if (status == SGL_OK) status = sgl_family_new(job, session, NULL, "eval", &family);
    if (status == SGL_OK) status = sgl_family_pick(family, 0, 0, &bucket);
    if (status == SGL_OK) status = sgl_job_feed(job, bucket.program, 0, 0);
    sgl_close(vm);
    return status;
}

/* Of a script's allocations, far apart where they are many: most are Lua's. */
static void test_some_allocations(void **state)
{
    (void)state;
    int64_t failed = 0;
    bool tripped = true;
    for (int64_t n = 1; tripped; n += 1 + n / 40) {
        fault_heap heap = { .counter = { .fail_at = n } };
        sglcore_env env = fault_env(&heap);
        sgl_status status = once(&env, NULL);
        tripped = heap.counter.tripped;
        if (status != SGL_OK) assert_int_equal(status, SGL_OUT_OF_MEMORY);
        assert_true(tripped || status == SGL_OK);
        assert_int_equal(heap.live_blocks, 0);
        failed += status != SGL_OK;
    }
    assert_true(failed > 50);
}

/* Of the graph by itself each one. */
static sgl_status declared(sglcore_env *env, void *context)
{
    (void)context;
    sgl_vm *vm;
    sgl_graph *graph = NULL;
    sgl_value x, y;
    const sgl_type type = { .dtype = SGL_F32, .rank = 2, .dims = { 2, 4 } };
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user, .threads = 1 };
    sgl_status status = sgl_open(&config, &vm);
    if (status != SGL_OK) return status;
    status = sgl_graph_new(vm, "hand", &graph);
    if (status == SGL_OK) status = sgl_input(graph, SGL_FEED, "x", &type, &x);
    if (status == SGL_OK) status = sgl_padding_declare(graph, x, "seq", 1, 0, 0, 0);
    for (int i = 0; i < 40 && status == SGL_OK; i++) {
        status = sgl_emit(graph, "neg", &x, 1, NULL, 0, &y, 1, NULL);
        x = y;
    }
    if (status == SGL_OK) status = sgl_padding_declare(graph, x, "other", 1, 0, 0, 1);
    const int64_t axes[] = { 0, 1 };
    const sgl_attr all = { .name = "axes", .kind = SGL_ATTR_INTS, .i = 2, .ints = axes };
    if (status == SGL_OK) status = sgl_emit(graph, "reduce_sum", &x, 1, &all, 1, &y, 1, NULL);
    if (status == SGL_OK) status = sgl_output_fetch(graph, "y", y);
    if (status == SGL_OK) status = sgl_padding_check(graph);
    sgl_close(vm);
    return status;
}

static void test_each_allocation(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(declared, NULL) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs),         cmocka_unit_test(test_places),           cmocka_unit_test(test_loops),
        cmocka_unit_test(test_compare),         cmocka_unit_test(test_arguments),        cmocka_unit_test(test_family),
        cmocka_unit_test(test_each_allocation), cmocka_unit_test(test_some_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_fault_run.c -- a whole run with faults: script, trace, passes, freeze, steps, checkpoint, load, generation; each n-th
 * allocation fails once or for ever, and so does each n-th file operation.
 *
 * In: a small language model as text. Out: a failed assertion when a fault is hidden, leaks, or damages the checkpoint that
 * was there before. Of the allocations every n up to 100 is tried, then every n growing by a twelfth; every file
 * operation fails once, every fourth for ever. SGL_FAULT_FULL=1 (scripts/nightly) tries all of them.
 * ctest: timeout 900 */
#include "fault.h"

#include <stdio.h>

#include "session/session.h"

static const char script[] =
    "local sgl = require 'sgl'\n"
    "local model = sgl.models.llama { vocab = 256, dim = 8, layers = 1, heads = 2, kv_heads = 1, ffn = 12, dropout = 0.1 }\n"
    "return sgl.job { model = model, steps = 4,\n"
    "  loss = function(b) return sgl.nn.cross_entropy(model(b.tokens), b.targets) end,\n"
    "  data = sgl.data.text { path = 'text', seq = 4, batch = 2, held_out = 0.2 },\n"
    "  optim = sgl.optim.adamw { lr = 1e-2, clip = 1, weight_decay = 0.1 },\n"
    "  plan = sgl.plan { micro = 2 } }\n";

static void write_text_file(void)
{
    FILE *file = fopen("text", "w");
    assert_non_null(file);
    for (int i = 0; i < 200; i++) fputc("abcdefgh \n"[i * 7 % 10], file);
    fclose(file);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (status == SGL_OK) status = (call);                                                                         \
    } while (0)

static sgl_status freeze(sgl_job *job, sgl_session *session, const sgl_plan *plan, const char *which,
                         sgl_program **program)
{
    sgl_graph *graph = NULL;
    sgl_status status = sgl_job_graph(job, which, &graph);
    TRY(sgl_freeze(session, graph, plan, program));
    return status;
}

static sgl_status train(sgl_vm *vm, sgl_job *job, sgl_session *session)
{
    sgl_plan *plan = NULL;
    sgl_program *init = NULL;
    sgl_train_config config = { .steps = 2, .out = "out", .keep = 1 };
    sgl_status status = sgl_job_plan(job, &plan);
    TRY(sgl_job_tokens(job, &config.tokens));
    TRY(freeze(job, session, plan, "train", &config.train));
    TRY(freeze(job, session, plan, "eval", &config.eval));
    TRY(freeze(job, session, plan, "init", &init));
    TRY(sgl_feed(init, "seed", &(int64_t){ 1 }, sizeof(int64_t)));
    TRY(sgl_step(init));
    TRY(sgl_job_meta(job, &config.meta));
    TRY(sgl_train(session, &config));
    (void)vm;
    return status;
}

static sgl_status generate(sgl_vm *vm, sgl_job *job)
{
    const char *path, *meta;
    int64_t step;
    sgl_session *session = NULL;
    sgl_generate_config config = { .prompt = (int32_t[]){ 'a', 'b' },
                                   .prompt_count = 2,
                                   .count = 3,
                                   .context = 4,
                                   .temperature = 1,
                                   .top_k = 5,
                                   .top_p = 0.9 };
    sgl_program *few = NULL, *text = NULL, *whole = NULL;
    int agrees = 0;
    sgl_status status = sgl_session_new(vm, "cpu", &session);
    TRY(freeze(job, session, NULL, "decode", &config.decode));
    TRY(freeze(job, session, NULL, "few", &few));
    TRY(freeze(job, session, NULL, "text", &text));
    TRY(sgl_checkpoint_find(vm, "out", &path, &meta, &step));
    TRY(sgl_checkpoint_load(session, path, 1));
    TRY(sgl_generate_agrees(session, config.decode, few, &agrees));
    TRY(sgl_generate(session, &config));
    config.decode = text; /* the whole text for each token */
    TRY(sgl_generate(session, &config));
    TRY(freeze(job, session, NULL, "export", &whole));
    TRY(sgl_step(whole));
    TRY(sgl_fetch_file(whole, "out/whole.safetensors"));
    TRY(sgl_parameters_load(session, "out/whole.safetensors"));
    return status;
}

static sgl_status whole_run(sglcore_env *env, void *context)
{
    (void)context;
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user, .threads = 1 };
    sgl_vm *vm = NULL;
    sgl_job *job = NULL;
    sgl_session *session = NULL;
    sgl_status status = sgl_open(&config, &vm);
    if (status != SGL_OK) return status;
    vm->env.io = env->io;
    TRY(sgl_load_text(vm, "run.lua", script, NULL, 0, &job));
    TRY(sgl_session_new(vm, "cpu", &session));
    TRY(train(vm, job, session));
    TRY(generate(vm, job));
    if (status != SGL_OK) assert_true(strlen(sgl_error_message(vm)) > 0);
    sgl_close(vm);
    return status;
}

static int64_t next(int64_t n) { return n < 100 || getenv("SGL_FAULT_FULL") ? n + 1 : n + n / 12; }

static void each_allocation(void **state)
{
    (void)state;
    write_text_file();
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        bool tripped = true;
        int64_t runs = 0, n = 1, recovered = 0;
        for (; tripped; n = next(n), runs++) {
            fault_heap heap = { .counter = { .fail_at = n, .for_ever = for_ever != 0 } };
            sglcore_env env = fault_env(&heap);
            sgl_status status = whole_run(&env, NULL);
            tripped = heap.counter.tripped;
            /* Lua collects garbage and asks again, so that one refused request may end well. */
            if (status == SGL_OK)
                recovered += tripped;
            else
                assert_int_equal(status, SGL_OUT_OF_MEMORY);
            if (!tripped) assert_int_equal(status, SGL_OK);
            assert_int_equal(heap.live_bytes, 0);
            assert_int_equal(heap.live_blocks, 0);
        }
        print_message("%lld allocations, %lld runs with one of them failing%s, %lld of them recovered\n", (long long)n,
                      (long long)runs, for_ever ? " for ever" : "", (long long)recovered);
        assert_true(runs > 100);
        if (for_ever) assert_int_equal(recovered, 0);
    }
}

/* What must hold after any fault: the last complete checkpoint, if there is one, loads. */
static void checkpoint_is_whole(void)
{
    fault_heap heap = { .counter = { 0 } };
    const sgl_config config = { .alloc = fault_alloc, .alloc_user = &heap, .threads = 1 };
    sgl_vm *vm = NULL;
    sgl_job *job = NULL;
    assert_int_equal(sgl_open(&config, &vm), SGL_OK);
    assert_int_equal(sgl_load_text(vm, "run.lua", script, NULL, 0, &job), SGL_OK);
    sgl_status status = generate(vm, job);
    if (status != SGL_OK) print_error("%s\n", sgl_error_message(vm));
    assert_int_equal(status, SGL_OK);
    sgl_close(vm);
    assert_int_equal(heap.live_bytes, 0);
}

static void each_file_operation(void **state)
{
    (void)state;
    write_text_file();
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        bool tripped = true;
        int64_t n = 1, runs = 0, reported = 0, step = for_ever && !getenv("SGL_FAULT_FULL") ? 4 : 1;
        for (; tripped; n += step, runs++) {
            fault_heap heap = { .counter = { 0 } };
            fault_files files;
            sglcore_env env = fault_env(&heap);
            /* A checkpoint is there before: of this run, or as the last turn has seen it. */
            if (runs == 0) assert_int_equal(whole_run(&env, NULL), SGL_OK);
            fault_files_init(&files, n, for_ever != 0);
            env.io = &files.io;
            sgl_status status = whole_run(&env, NULL);
            tripped = files.counter.tripped;
            if (tripped && status != SGL_OK) assert_true(status == SGL_IO || status == SGL_SCRIPT);
            reported += status != SGL_OK; /* closing a file that was read may fail without harm */
            if (!tripped) assert_int_equal(status, SGL_OK);
            assert_int_equal(heap.live_bytes, 0);
            assert_int_equal(files.open_files, 0);
            checkpoint_is_whole();
        }
        print_message("%lld file operations, %lld of them failed%s, %lld failures told\n", (long long)(n - 1 - step),
                      (long long)runs - 1, for_ever ? " for ever" : "", (long long)reported);
        assert_true(runs > 30 && reported > (runs - 1) * 3 / 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_file_operation), cmocka_unit_test(each_allocation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

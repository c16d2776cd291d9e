/* test_session_arguments.c -- every public function with every argument that it cannot take: NULL, below 0, of no enum. Each
 * refuses with a message of its own, never one that an older failure left, and names itself; without any object there is no
 * place for a message, and still no crash. On the null device, in an empty folder. */
#include "session_case.h"

#include <stdio.h>

/* What each refusal is taken against: a program with a feed, a state and a fetch; a graph, tokens, a job. */
typedef struct things {
    sgl_vm *vm;
    sgl_graph *graph;
    sgl_value value;
    sgl_plan *plan;
    sgl_session *session;
    sgl_program *program;
    sgl_tokens *tokens;
    sgl_job *job;
} things;

static void make_things(things *t, fault_heap *heap)
{
    static const sgl_type four = { .dtype = SGL_F32, .rank = 1, .dims = { 4 } };
    const char *path = "text";
    sgl_value w;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 200; i++) fputc("abcdefgh \n"[i * 7 % 10], file);
    fclose(file);
    const sgl_tokens_config tokens = { .paths = &path, .path_count = 1, .vocab = 256, .seq = 4, .batch = 1 };
    memset(t, 0, sizeof *t);
    t->vm = open_vm(heap);
    assert_int_equal(sgl_graph_new(t->vm, "g", &t->graph), SGL_OK);
    assert_int_equal(sgl_input(t->graph, SGL_FEED, "x", &four, &t->value), SGL_OK);
    assert_int_equal(sgl_input(t->graph, SGL_PARAMETER, "w", &four, &w), SGL_OK);
    assert_int_equal(sgl_output_fetch(t->graph, "y", t->value), SGL_OK);
    assert_int_equal(sgl_output_fetch(t->graph, "z", w), SGL_OK);
    assert_int_equal(sgl_plan_new(t->vm, &t->plan), SGL_OK);
    assert_int_equal(sgl_session_new(t->vm, "null", &t->session), SGL_OK);
    assert_int_equal(sgl_freeze(t->session, t->graph, t->plan, &t->program), SGL_OK);
    assert_int_equal(sgl_step(t->program), SGL_OK);
    assert_int_equal(sgl_tokens_open(t->vm, &tokens, &t->tokens), SGL_OK);
    t->job = case_job(t->vm, "2");
}

static const char stale[] = "what an older call has left";

static void assert_told(const sgl_vm *vm, const char *call, const char *naming, sgl_status status)
{
    const char *message = sgl_error_message(vm);
    if (status == SGL_OK) fail_msg("%s was taken", call);
    if (strcmp(message, stale) == 0 || !strstr(message, naming))
        fail_msg("%s: %s, and the message is \"%s\"", call, sgl_status_name(status), message);
}

/* The call fails, and its message holds the text. */
#define TELLS(naming, function, ...)                                                                                   \
    ((void)sgl_fail(t.vm, SGL_OK, "%s", stale),                                                                        \
     assert_told(t.vm, #function "(" #__VA_ARGS__ ")", naming, function(__VA_ARGS__)))
#define REFUSED(function, ...) TELLS(#function, function, __VA_ARGS__)
/* The call fails, with no VM to tell it in. */
#define SILENT(function, ...) assert_int_equal(function(__VA_ARGS__), SGL_INVALID_ARGUMENT)

static void test_graphs_and_plans(void **state)
{
    (void)state;
    static const sgl_type four = { .dtype = SGL_F32, .rank = 1, .dims = { 4 } };
    sgl_type bad = four;
    fault_heap heap = { 0 };
    things t;
    sgl_graph *g;
    sgl_value out[4];
    int count;
    const sgl_attr no_name = { .kind = SGL_ATTR_INT };
    make_things(&t, &heap);
    REFUSED(sgl_graph_new, t.vm, "g", NULL);
    REFUSED(sgl_input, t.graph, SGL_FEED, NULL, &four, out);
    REFUSED(sgl_input, t.graph, SGL_FEED, "", &four, out);
    REFUSED(sgl_input, t.graph, SGL_FEED, "a", NULL, out);
    REFUSED(sgl_input, t.graph, SGL_FEED, "a", &four, NULL);
    REFUSED(sgl_input, t.graph, (sgl_role)99, "a", &four, out);
    REFUSED(sgl_input, t.graph, (sgl_role)-1, "a", &four, out);
    bad.rank = 9;
    REFUSED(sgl_input, t.graph, SGL_FEED, "a", &bad, out);
    bad = (sgl_type){ .dtype = (sgl_dtype)77 };
    REFUSED(sgl_input, t.graph, SGL_FEED, "a", &bad, out);
    bad = (sgl_type){ .dtype = SGL_F32, .rank = 1, .dims = { -1 } };
    REFUSED(sgl_input, t.graph, SGL_FEED, "a", &bad, out);
    REFUSED(sgl_emit, t.graph, "neg", NULL, 1, NULL, 0, out, 4, &count);
    REFUSED(sgl_emit, t.graph, "neg", &t.value, -1, NULL, 0, out, 4, &count);
    REFUSED(sgl_emit, t.graph, "input", &t.value, 1, NULL, 0, out, 4, &count);
    TELLS("'softmx'; did you mean 'softmax'?", sgl_emit, t.graph, "softmx", &t.value, 1, NULL, 0, out, 4, &count);
    TELLS("there is no op", sgl_emit, t.graph, NULL, &t.value, 1, NULL, 0, out, 4, &count);
    TELLS("neg: attribute 0", sgl_emit, t.graph, "neg", &t.value, 1, &no_name, 1, out, 4, &count);
    TELLS("neg: 1 attributes", sgl_emit, t.graph, "neg", &t.value, 1, NULL, 1, out, 4, &count);
    TELLS("neg: 1 results", sgl_emit, t.graph, "neg", &t.value, 1, NULL, 0, NULL, 4, &count);
    TELLS("neg: 1 results", sgl_emit, t.graph, "neg", &t.value, 1, NULL, 0, out, 0, &count);
    TELLS("neg: argument 0", sgl_emit, t.graph, "neg", &SGL_NO_VALUE, 1, NULL, 0, out, 4, &count);
    REFUSED(sgl_grad, t.graph, t.value, &t.value, 0, out);
    REFUSED(sgl_grad, t.graph, t.value, &t.value, -1, out);
    REFUSED(sgl_grad, t.graph, t.value, &t.value, INT32_MAX, out);
    REFUSED(sgl_grad, t.graph, t.value, NULL, 1, out);
    REFUSED(sgl_grad, t.graph, t.value, &t.value, 1, NULL);
    TELLS("grad: argument 0", sgl_grad, t.graph, SGL_NO_VALUE, &t.value, 1, out);
    REFUSED(sgl_reaches, t.graph, t.value, &t.value, 0, &count);
    REFUSED(sgl_reaches, t.graph, t.value, NULL, 1, &count);
    REFUSED(sgl_reaches, t.graph, t.value, &t.value, 1, NULL);
    REFUSED(sgl_reaches, t.graph, SGL_NO_VALUE, &t.value, 1, &count);
    REFUSED(sgl_reaches, t.graph, t.value, &SGL_NO_VALUE, 1, &count);
    REFUSED(sgl_graph_extract, t.graph, NULL, 1, NULL, 0, &g);
    REFUSED(sgl_graph_extract, t.graph, &t.value, 0, NULL, 0, &g);
    REFUSED(sgl_graph_extract, t.graph, &t.value, 1, NULL, 1, &g);
    REFUSED(sgl_graph_extract, t.graph, &t.value, 1, NULL, -1, &g);
    REFUSED(sgl_graph_extract, t.graph, &t.value, 1, NULL, 0, NULL);
    REFUSED(sgl_graph_extract, t.graph, &SGL_NO_VALUE, 1, NULL, 0, &g);
    REFUSED(sgl_value_type, t.graph, t.value, NULL);
    REFUSED(sgl_value_type, t.graph, SGL_NO_VALUE, &bad);
    REFUSED(sgl_output_fetch, t.graph, NULL, t.value);
    REFUSED(sgl_output_fetch, t.graph, "", t.value);
    REFUSED(sgl_output_fetch, t.graph, "a", SGL_NO_VALUE);
    REFUSED(sgl_output_update, t.graph, NULL, t.value);
    REFUSED(sgl_output_update, t.graph, "w", SGL_NO_VALUE);
    TELLS("there is no op", sgl_op_signature, t.vm, NULL, NULL, NULL, NULL);
    REFUSED(sgl_plan_new, t.vm, NULL);
    REFUSED(sgl_plan_set, t.plan, NULL);
    TELLS("plan: attribute 0", sgl_plan_set, t.plan, &no_name);
    REFUSED(sgl_on_close, t.vm, NULL, NULL);
    SILENT(sgl_graph_new, NULL, "g", &g);
    SILENT(sgl_graph_origin, NULL, "", 0, "");
    SILENT(sgl_input, NULL, SGL_FEED, "a", &four, out);
    SILENT(sgl_emit, NULL, "neg", &t.value, 1, NULL, 0, out, 4, &count);
    SILENT(sgl_grad, NULL, t.value, &t.value, 1, out);
    SILENT(sgl_reaches, NULL, t.value, &t.value, 1, &count);
    SILENT(sgl_graph_extract, NULL, &t.value, 1, NULL, 0, &g);
    SILENT(sgl_value_type, NULL, t.value, &bad);
    SILENT(sgl_output_fetch, NULL, "a", t.value);
    SILENT(sgl_output_update, NULL, "a", t.value);
    SILENT(sgl_op_signature, NULL, "neg", NULL, NULL, NULL);
    SILENT(sgl_plan_new, NULL, &t.plan);
    SILENT(sgl_plan_set, NULL, &no_name);
    SILENT(sgl_on_close, NULL, NULL, NULL);
    SILENT(sgl_open, NULL, NULL);
    SILENT(sgl_dtype_from_name, NULL, &bad.dtype);
    SILENT(sgl_dtype_from_name, "f32", NULL);
    close_vm(t.vm, &heap);
}

static sgl_status refuse_text(void *user, const char *data, size_t bytes)
{
    (void)user, (void)data, (void)bytes;
    return SGL_IO;
}

static sgl_status refuse_aloud(void *user, const char *data, size_t bytes)
{
    (void)data, (void)bytes;
    return sgl_fail(user, SGL_IO, "the pipe is gone");
}

static void test_programs(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    things t;
    sgl_session *s;
    sgl_program *p;
    float data[4] = { 0 };
    const char *name;
    double flops;
    case_text text = { 0 };
    make_things(&t, &heap);
    REFUSED(sgl_session_new, t.vm, "null", NULL);
    TELLS("there is no device 'gpu'", sgl_session_new, t.vm, "gpu", &s);
    REFUSED(sgl_freeze, NULL, t.graph, NULL, &p);
    REFUSED(sgl_freeze, t.session, NULL, NULL, &p);
    REFUSED(sgl_freeze, t.session, t.graph, NULL, NULL);
    REFUSED(sgl_feed, t.program, NULL, data, sizeof data);
    REFUSED(sgl_feed, t.program, "x", NULL, sizeof data);
    TELLS("feed 'x' has 16 bytes, not 4", sgl_feed, t.program, "x", data, 4);
    REFUSED(sgl_feed_alike, t.program, "x", NULL, sizeof data);
    TELLS("no feed 'y'", sgl_feed_alike, t.program, "y", data, sizeof data);
    TELLS("no feed 'y'", sgl_feed, t.program, "y", data, sizeof data);
    REFUSED(sgl_fetch, t.program, NULL, data, sizeof data);
    REFUSED(sgl_fetch, t.program, "y", NULL, sizeof data);
    TELLS("fetch 'y' has 16 bytes, not 4", sgl_fetch, t.program, "y", data, 4);
    REFUSED(sgl_program_feed, t.program, 0, NULL, NULL);
    REFUSED(sgl_program_fetch, t.program, 0, NULL, NULL);
    REFUSED(sgl_state_info, t.session, 0, NULL, NULL, NULL);
    REFUSED(sgl_state_read, t.session, NULL, data, sizeof data);
    REFUSED(sgl_state_read, t.session, "w", NULL, sizeof data);
    REFUSED(sgl_state_write, t.session, NULL, data, sizeof data);
    REFUSED(sgl_state_write, t.session, "w", NULL, sizeof data);
    REFUSED(sgl_graph_print, t.session, NULL, NULL, "", "text", case_text_write, &text);
    REFUSED(sgl_graph_print, NULL, t.graph, NULL, "", "text", case_text_write, &text);
    REFUSED(sgl_graph_print, t.session, t.graph, NULL, "", "text", NULL, NULL);
    TELLS("formats are text and dot", sgl_graph_print, t.session, t.graph, NULL, "", "png", case_text_write, &text);
    TELLS("no pass 'fsue'", sgl_graph_print, t.session, t.graph, NULL, "fsue", NULL, case_text_write, &text);
    REFUSED(sgl_program_report, t.program, NULL, "text", case_text_write, &text);
    REFUSED(sgl_program_report, t.program, "memory", NULL, case_text_write, &text);
    REFUSED(sgl_program_report, t.program, "memory", "text", NULL, NULL);
    REFUSED(sgl_program_report, t.program, "memory", "text", refuse_text, NULL);
    TELLS("the pipe is gone", sgl_program_report, t.program, "memory", "text", refuse_aloud, t.vm);
    TELLS("no report 'memroy'", sgl_program_report, t.program, "memroy", "text", case_text_write, &text);
    TELLS("was not measured", sgl_program_report, t.program, "profile", "text", case_text_write, &text);
    REFUSED(sgl_doctor, t.vm, NULL, NULL);
    REFUSED(sgl_doctor, t.vm, refuse_text, NULL);
    REFUSED(sgl_session_peak_flops, t.session, NULL);
    SILENT(sgl_session_new, NULL, "null", &s);
    SILENT(sgl_freeze, NULL, NULL, NULL, &p);
    SILENT(sgl_feed, NULL, "x", data, sizeof data);
    SILENT(sgl_feed_alike, NULL, "x", data, sizeof data);
    SILENT(sgl_step, NULL);
    SILENT(sgl_fetch, NULL, "y", data, sizeof data);
    REFUSED(sgl_fetch_file, t.program, NULL);
    SILENT(sgl_fetch_file, NULL, "file");
    SILENT(sgl_program_feed, NULL, 0, &name, NULL);
    SILENT(sgl_program_fetch, NULL, 0, &name, NULL);
    SILENT(sgl_program_profile, NULL, 1);
    SILENT(sgl_program_report, NULL, "memory", "text", case_text_write, &text);
    SILENT(sgl_state_info, NULL, 0, &name, NULL, NULL);
    SILENT(sgl_state_read, NULL, "w", data, sizeof data);
    SILENT(sgl_state_write, NULL, "w", data, sizeof data);
    SILENT(sgl_graph_print, NULL, NULL, NULL, "", NULL, case_text_write, &text);
    SILENT(sgl_doctor, NULL, case_text_write, &text);
    SILENT(sgl_session_peak_flops, NULL, &flops);
    assert_int_equal(text.bytes, 0);
    close_vm(t.vm, &heap);
}

static void test_data_and_runs(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    things t;
    const char *path, *meta, *no_path = NULL;
    int32_t batch[4];
    int64_t step;
    double nats;
    int agrees;
    sgl_tokens *tokens;
    sgl_tokens_config tokens_config = { .paths = &no_path, .path_count = 1, .vocab = 256, .seq = 4, .batch = 1 };
    make_things(&t, &heap);
    const sgl_train_config no_train = { .steps = 1 }, backwards = { .train = t.program, .steps = -1 };
    const sgl_generate_config no_decode = { .count = 1 };
    REFUSED(sgl_checkpoint_save, t.session, "out", -1, NULL, 0);
    REFUSED(sgl_checkpoint_save, t.session, NULL, 1, NULL, 0);
    REFUSED(sgl_checkpoint_save, t.session, "out", 1, NULL, 0); /* of the null device */
    REFUSED(sgl_checkpoint_find, t.vm, NULL, &path, &meta, &step);
    REFUSED(sgl_checkpoint_find, t.vm, "out", NULL, &meta, &step);
    REFUSED(sgl_checkpoint_find, t.vm, "out", &path, NULL, &step);
    REFUSED(sgl_checkpoint_find, t.vm, "out", &path, &meta, NULL);
    TELLS("has no name", sgl_checkpoint_find, t.vm, "", &path, &meta, &step);
    REFUSED(sgl_checkpoint_load, t.session, NULL, 0);
    REFUSED(sgl_parameters_load, t.session, NULL);
    TELLS("has no name", sgl_checkpoint_lock, t.session, "");
    REFUSED(sgl_tokens_open, t.vm, NULL, &tokens);
    REFUSED(sgl_tokens_open, t.vm, &tokens_config, NULL);
    TELLS("no data file is named", sgl_tokens_open, t.vm, &tokens_config, &tokens);
    REFUSED(sgl_tokens_train, t.tokens, -1, batch, batch);
    REFUSED(sgl_tokens_train, t.tokens, 0, NULL, batch);
    REFUSED(sgl_tokens_train, t.tokens, 0, batch, NULL);
    REFUSED(sgl_tokens_eval, t.tokens, -1, batch, batch);
    REFUSED(sgl_tokens_eval, t.tokens, 0, NULL, batch);
    REFUSED(sgl_tokens_eval, t.tokens, 0, batch, NULL);
    REFUSED(sgl_tokens_ngram_loss, t.tokens, 2, NULL);
    TELLS("order 0", sgl_tokens_ngram_loss, t.tokens, 0, &nats);
    REFUSED(sgl_train, t.session, NULL);
    REFUSED(sgl_train, t.session, &no_train);
    REFUSED(sgl_train, t.session, &backwards);
    REFUSED(sgl_generate, t.session, NULL);
    REFUSED(sgl_generate, t.session, &no_decode);
    REFUSED(sgl_generate_agrees, t.session, NULL, t.program, &agrees);
    REFUSED(sgl_generate_agrees, t.session, t.program, NULL, &agrees);
    REFUSED(sgl_generate_agrees, t.session, t.program, t.program, NULL);
    TELLS("i32[1,n]", sgl_generate_agrees, t.session, t.program, t.program, &agrees);
    SILENT(sgl_checkpoint_save, NULL, "out", 1, NULL, 0);
    SILENT(sgl_checkpoint_lock, NULL, "out");
    SILENT(sgl_checkpoint_find, NULL, "out", &path, &meta, &step);
    SILENT(sgl_checkpoint_load, NULL, "out", 0);
    SILENT(sgl_parameters_load, NULL, "file");
    SILENT(sgl_tokens_open, NULL, &tokens_config, &tokens);
    SILENT(sgl_tokens_train, NULL, 0, batch, batch);
    SILENT(sgl_tokens_eval, NULL, 0, batch, batch);
    SILENT(sgl_tokens_ngram_loss, NULL, 2, &nats);
    SILENT(sgl_train, NULL, &no_train);
    SILENT(sgl_generate, NULL, &no_decode);
    SILENT(sgl_generate_agrees, NULL, t.program, t.program, &agrees);
    close_vm(t.vm, &heap);
}

static void test_scripts(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    things t;
    sgl_job *job;
    sgl_graph *g;
    sgl_plan *plan;
    sgl_tokens *tokens;
    const char *text;
    double number;
    make_things(&t, &heap);
    REFUSED(sgl_load_file, t.vm, "a.lua", NULL, 0, NULL);
    REFUSED(sgl_load_text, t.vm, "a.lua", "return 1", NULL, 0, NULL);
    TELLS("needs a name", sgl_load_file, t.vm, NULL, NULL, 0, &job);
    TELLS("needs a name", sgl_load_text, t.vm, NULL, "", NULL, 0, &job);
    TELLS("there is no text", sgl_load_text, t.vm, "a.lua", NULL, NULL, 0, &job);
    TELLS("1 settings and no list", sgl_load_text, t.vm, "a.lua", "", NULL, 1, &job);
    REFUSED(sgl_job_graph, t.job, "train", NULL);
    TELLS("init", sgl_job_graph, t.job, NULL, &g);
    REFUSED(sgl_job_plan, t.job, NULL);
    REFUSED(sgl_job_tokens, t.job, NULL);
    REFUSED(sgl_job_feed, t.job, NULL, 0, 0);
    REFUSED(sgl_job_number, t.job, NULL, &number);
    REFUSED(sgl_job_number, t.job, "steps", NULL);
    REFUSED(sgl_job_meta, t.job, NULL);
    REFUSED(sgl_job_setting, t.job, -1, &text, &text, &text);
    REFUSED(sgl_job_setting, t.job, 0, NULL, &text, &text);
    SILENT(sgl_load_file, NULL, "a.lua", NULL, 0, &job);
    SILENT(sgl_load_text, NULL, "a.lua", "", NULL, 0, &job);
    SILENT(sgl_job_graph, NULL, "train", &g);
    SILENT(sgl_job_plan, NULL, &plan);
    SILENT(sgl_job_tokens, NULL, &tokens);
    SILENT(sgl_job_feed, NULL, t.program, 0, 0);
    SILENT(sgl_job_number, NULL, "steps", &number);
    SILENT(sgl_job_meta, NULL, &text);
    SILENT(sgl_job_setting, NULL, 0, &text, &text, &text);
    close_vm(t.vm, &heap);
}

/* What has no status to give takes NULL as nothing. */
static void test_nothing(void **state)
{
    (void)state;
    int64_t size = -1;
    sgl_close(NULL);
    sgl_graph_free(NULL);
    sgl_plan_free(NULL);
    sgl_session_free(NULL);
    sgl_program_free(NULL);
    sgl_tokens_free(NULL);
    sgl_job_free(NULL);
    sgl_interrupt(NULL);
    sgl_resume(NULL);
    sgl_log(NULL, SGL_LOG_INFO, "%s", "nobody hears it");
    sgl_off_close(NULL, NULL, NULL);
    sgl_tokens_sizes(NULL, &size, NULL, NULL, NULL);
    assert_int_equal(size, 0);
    assert_int_equal(sgl_fail(NULL, SGL_IO, "%s", "nobody hears it"), SGL_IO);
    assert_string_equal(sgl_error_message(NULL), "");
    assert_null(sgl_realloc(NULL, NULL, 0, 8));
    assert_null(sgl_nearest(NULL, NULL, 0));
    assert_null(sgl_knob(NULL));
    assert_null(sgl_op_name(-1));
    assert_null(sgl_op_name(100000));
    assert_null(sgl_op_help(-1));
    assert_null(sgl_op_arguments(-1));
    assert_null(sgl_op_shapes(100000));
    assert_null(sgl_op_derivative(-1));
    assert_null(sgl_pass_name(-1));
    assert_true(sgl_program_flops(NULL) == 0);
    assert_int_equal(sgl_program_bytes(NULL), 0);
    assert_int_equal(sgl_session_bytes(NULL), 0);
    assert_int_equal(sgl_interrupted(NULL), 0);
    assert_null(sgl_program_vm(NULL));
    assert_string_equal(sgl_status_name((sgl_status)99), "UNKNOWN");
    assert_string_equal(sgl_dtype_name((sgl_dtype)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_and_plans), cmocka_unit_test(test_programs), cmocka_unit_test(test_data_and_runs),
        cmocka_unit_test(test_scripts),          cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}

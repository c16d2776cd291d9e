/* test_exec_program.c -- a frozen program as others see it: its JSON held against its text and its figures, its kernels
 * described, arithmetic of loops counted once, every allocation of the reports failing. On the null device. */
#include "session_case.h"

#include <jansson.h>

#include "session/session.h"

typedef struct fixture {
    fault_heap heap;
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
} fixture;

static void open_fixture(fixture *f, const char *micro)
{
    *f = (fixture){ .heap = { .counter = { 0 } } };
    f->vm = open_vm(&f->heap);
    assert_int_equal(sgl_session_new(f->vm, "null", &f->session), SGL_OK);
    f->program = case_program(f->vm, case_job(f->vm, micro), f->session, "train");
}

static json_t *json_of(const sgl_program *program, const char *kind)
{
    case_text text = case_report(program, kind, "json");
    json_error_t error;
    json_t *json = json_loads(text.data, JSON_REJECT_DUPLICATES, &error);
    if (!json) print_error("line %d: %s\n%s\n", error.line, error.text, text.data);
    assert_non_null(json);
    case_text_free(&text);
    return json;
}

static int64_t whole(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const char *word(const json_t *json, const char *key)
{
    const char *value = json_string_value(json_object_get(json, key));
    assert_non_null(value);
    return value;
}

/* " f32[4,8]@arena+64" of each operand, which must stand in the line of the text form. */
static const char *expect_operands(const char *line, const json_t *operands)
{
    const json_t *operand;
    size_t i;
    json_array_foreach(operands, i, operand)
    {
        char written[256];
        snprintf(written, sizeof written, " %s@%s+%lld", word(operand, "type"), word(operand, "space"),
                 (long long)whole(operand, "offset"));
        assert_int_equal(strncmp(line, written, strlen(written)), 0);
        assert_true(whole(operand, "bytes") >= 0);
        line += strlen(written);
    }
    return line;
}

/* The instruction's line of the listing, made from the JSON, is the line that is there. Returns what follows. */
static const char *expect_line(const char *at, const json_t *i)
{
    char head[128], origin[512];
    const json_t *kernel = json_object_get(i, "kernel"), *work = json_object_get(i, "work");
    int used = snprintf(head, sizeof head, "%*s%5lld  %s", (int)whole(i, "depth") * 2, "",
                        (long long)whole(i, "number"), word(i, "op"));
    if (json_is_integer(kernel))
        snprintf(head + used, sizeof head - (size_t)used, " kernel %lld", (long long)json_integer_value(kernel));
    assert_int_equal(strncmp(at, head, strlen(head)), 0);
    at += strlen(head);
    if (strcmp(word(i, "op"), "scan") == 0) {
        snprintf(head, sizeof head, " %lld times", (long long)whole(i, "launches"));
        assert_int_equal(strncmp(at, head, strlen(head)), 0);
        at += strlen(head);
    }
    at = expect_operands(at, json_object_get(i, "arguments"));
    if (json_array_size(json_object_get(i, "results"))) {
        assert_int_equal(strncmp(at, " ->", 3), 0);
        at = expect_operands(at + 3, json_object_get(i, "results"));
    }
    if (json_is_object(work)) {
        snprintf(head, sizeof head, " work %lld@arena+%lld", (long long)whole(work, "bytes"),
                 (long long)whole(work, "offset"));
        assert_int_equal(strncmp(at, head, strlen(head)), 0);
        at += strlen(head);
    }
    used = 0;
    if (*word(i, "file")) {
        used = snprintf(origin, sizeof origin, "  ; %s:%lld", word(i, "file"), (long long)whole(i, "line"));
        if (*word(i, "scope")) used += snprintf(origin + used, sizeof origin - (size_t)used, " %s", word(i, "scope"));
        if (*word(i, "pass")) used += snprintf(origin + used, sizeof origin - (size_t)used, " (%s)", word(i, "pass"));
        assert_int_equal(strncmp(at, origin, (size_t)used), 0);
    }
    at += used;
    assert_int_equal(*at, '\n');
    return at + 1;
}

static void test_json_is_the_text(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "2");
    json_t *json = json_of(f.program, "program");
    case_text text = case_report(f.program, "program", "text");
    assert_string_equal(word(json, "program"), "train");
    assert_int_equal(whole(json, "arena_bytes") + whole(json, "io_bytes") + whole(json, "const_bytes"),
                     sgl_program_bytes(f.program));
    const json_t *instructions = json_object_get(json, "instructions");
    char first[32];
    snprintf(first, sizeof first, "\n%5lld  ", (long long)whole(json_array_get(instructions, 0), "number"));
    const char *at = strstr(text.data, first);
    const json_t *i;
    size_t n, fused = 0, inner = 0, lines = 0;
    double flops = 0, bytes = 0;
    assert_non_null(at);
    at++;
    json_array_foreach(instructions, n, i)
    {
        at = expect_line(at, i);
        fused += strcmp(word(i, "op"), "fused") == 0;
        inner += whole(i, "depth") > 0;
        lines += whole(i, "line") > 0;
        if (whole(i, "depth") > 0) assert_int_equal(whole(i, "launches"), 2);
        if (whole(i, "depth") == 0) {
            flops += json_number_value(json_object_get(i, "flops"));
            bytes += json_number_value(json_object_get(i, "bytes"));
        }
    }
    assert_int_equal(*at, 0);
    assert_true(fused > 5 && inner > 10 && lines > 10);
    assert_true(flops == sgl_program_flops(f.program) && bytes > 0);
    json_decref(json);
    case_text_free(&text);
    close_vm(f.vm, &f.heap);
}

static void test_json_names_ports(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "1");
    json_t *json = json_of(f.program, "program");
    const char *name;
    const json_t *feeds = json_object_get(json, "feeds"), *fetches = json_object_get(json, "fetches"),
                 *states = json_object_get(json, "states");
    for (int i = 0; sgl_program_feed(f.program, i, &name, NULL) == SGL_OK && name; i++)
        assert_string_equal(word(json_array_get(feeds, (size_t)i), "name"), name);
    for (int i = 0; sgl_program_fetch(f.program, i, &name, NULL) == SGL_OK && name; i++)
        assert_string_equal(word(json_array_get(fetches, (size_t)i), "name"), name);
    size_t count = 0;
    while (sgl_state_info(f.session, (int)count, &name, NULL, NULL) == SGL_OK && name) count++;
    assert_int_equal(json_array_size(states), count);
    assert_true(count > 10 && json_array_size(feeds) == 3);
    json_decref(json);
    close_vm(f.vm, &f.heap);
}

static size_t occurrences(const char *text, const char *what)
{
    size_t count = 0;
    while ((text = strstr(text, what)) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* Every kernel once in the text, the same words as in the JSON, under an instruction that launches it. */
static void test_kernels_are_described(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "2");
    json_t *json = json_of(f.program, "program");
    case_text text = case_report(f.program, "kernels", "text"), plain = case_report(f.program, "program", "text");
    const json_t *kernels = json_object_get(json, "kernels"), *kernel;
    size_t k;
    assert_true(json_array_size(kernels) > 5);
    assert_int_equal(occurrences(plain.data, " kernel ["), 0);
    assert_int_equal(occurrences(text.data, " kernel ["), json_array_size(kernels));
    json_array_foreach(kernels, k, kernel)
    {
        char line[64];
        const char *described = json_string_value(kernel);
        assert_int_equal(strncmp(described, "kernel [", 8), 0);
        snprintf(line, sizeof line, " fused kernel %zu ", k);
        const char *at = strstr(text.data, line);
        assert_non_null(at);
        at = strchr(at, '\n') + 1;
        while (*described) {
            size_t bytes = strcspn(described, "\n") + 1;
            at += strspn(at, " ");
            assert_int_equal(strncmp(at, described, bytes), 0);
            at += bytes;
            described += bytes;
        }
    }
    json_decref(json);
    case_text_free(&text);
    case_text_free(&plain);
    close_vm(f.vm, &f.heap);
}

/* Two micro-batches do the arithmetic of one batch twice as large, and a little more: what is in a loop is not counted beside
 * the loop. */
static void test_loops_count_once(void **state)
{
    (void)state;
    fixture one, two;
    open_fixture(&one, "1");
    open_fixture(&two, "2");
    double flops = sgl_program_flops(one.program);
    assert_true(flops > 0);
    assert_true(sgl_program_flops(two.program) > flops && sgl_program_flops(two.program) < 1.1 * flops);
    close_vm(one.vm, &one.heap);
    close_vm(two.vm, &two.heap);
}

static sgl_status write_nothing(void *user, const char *data, size_t bytes)
{
    (void)user, (void)data, (void)bytes;
    return SGL_OK;
}

static sgl_status report_all(sglcore_env *env, void *context)
{
    (void)env;
    sgl_status status = sgl_program_report(context, "program", "json", write_nothing, NULL);
    return status == SGL_OK ? sgl_program_report(context, "kernels", "text", write_nothing, NULL) : status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "2");
    int64_t blocks = f.heap.live_blocks, tries = 0;
    for (bool tripped = true; tripped; tries++) {
        f.heap.counter = (fault_counter){ .fail_at = tries + 1 };
        sgl_status status = report_all(NULL, f.program);
        tripped = f.heap.counter.tripped;
        assert_int_equal(status, tripped ? SGL_OUT_OF_MEMORY : SGL_OK);
        assert_int_equal(f.heap.live_blocks, blocks);
    }
    assert_true(tries > 20);
    f.heap.counter = (fault_counter){ 0 };
    close_vm(f.vm, &f.heap);
}

static void test_unknown_reports(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "1");
    static const char *const wrong[][2] = { { "program", "svg" }, { "kernels", "json" }, { "kernel", "text" } };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(sgl_program_report(f.program, wrong[i][0], wrong[i][1], write_nothing, NULL),
                         SGL_INVALID_ARGUMENT);
        assert_non_null(strstr(sgl_error_message(f.vm), "program (text, json), kernels (text)"));
    }
    close_vm(f.vm, &f.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_is_the_text),      cmocka_unit_test(test_json_names_ports),
        cmocka_unit_test(test_kernels_are_described), cmocka_unit_test(test_loops_count_once),
        cmocka_unit_test(test_each_allocation_fails), cmocka_unit_test(test_unknown_reports),
    };
    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}

/* test_session_parts.c -- states that a plan splits over ranks, each a thread of this process over the loop: read and written
 * whole, saved and loaded across plans, refused where two programs would have them in other parts.
 *
 * In: one small graph under many plans. Out: the same numbers whatever the plan; when one rank fails all do, and what was
 * there stays. The process runs in a folder of its own.
 * ctest: serial */
#include <stdio.h>

#include "checkpoint_cases.h"

#include "tests/support/session_ranks.h"

enum { ROWS = 5, COLUMNS = 6, COUNT = ROWS * COLUMNS };

/* Each step: w is doubled, its state counts, b grows by one, without an exchange. */
static const char text[] = "graph \"train\" {\n"
                           "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[5,6]}\n"
                           "  %1 = input() {role=1, name=\"adam.m/w\", dtype=f32, dims=[5,6]}\n"
                           "  %2 = input() {role=0, name=\"b\", dtype=f32, dims=[3]}\n"
                           "  %3 = add(%0, %0)\n  %4 = add(%1, %0)\n  %5 = add(%2, %2)\n"
                           "  update \"w\" %3\n  update \"adam.m/w\" %4\n  update \"b\" %5\n}\n";

static const session_layout layouts[] = {
    { 1, 1, 1, "" },
    { 1, 1, 2, "w tp:0" },
    { 1, 2, 1, "w fsdp:1" },
    { 1, 2, 1, "states w fsdp:0" },
    { 2, 1, 2, "w tp:1" },
    { 1, 2, 2, "w tp:1 fsdp:0, states w fsdp:1" },
    { 1, 2, 2, "w tp:0 fsdp:0" },
    { 1, 4, 1, "w fsdp:0" },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

typedef struct job {
    const session_layout *layout;
    sgl_status (*body)(session_rank *r);
    const char *from, *to;
    int64_t fail_at; /* of rank 1 */
} job;

static const job *job_of(const session_rank *r) { return r->all->job; }

static sgl_status body_of_job(session_rank *r)
{
    r->vm->env.io = unsynced_io();
    SGLCORE_TRY(session_rank_freeze(r, text, job_of(r)->layout, NULL, &r->program));
    return job_of(r)->body(r);
}

static session_ranks run_job(job *j)
{
    session_ranks all = { .size = session_layout_size(j->layout), .body = body_of_job, .job = j };
    session_ranks_run(&all);
    return all;
}

static void must_run(job *j)
{
    char what[SESSION_LAYOUT_ROOM];
    const session_ranks all = run_job(j);
    session_ranks_all_good(&all, session_layout_text(j->layout, what));
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

static sgl_status differs(session_rank *r, const char *name, int i, float is, float wanted)
{
    return sglcore_fail(&r->vm->env, SGL_INTERNAL, "%s[%d] is %g, not %g", name, i, (double)is, (double)wanted);
}

/* As they are after so many steps. */
static float w_of(int i, int steps) { return (float)(i + 1) * (float)(1 << steps); }
static float m_of(int i, int steps) { return (float)(100 + i) + w_of(i, steps) - w_of(i, 0); }

static sgl_status write_numbers(session_rank *r)
{
    float w[COUNT], m[COUNT];
    const float b[] = { 1, 2, 3 };
    for (int i = 0; i < COUNT; i++) {
        w[i] = w_of(i, 0);
        m[i] = m_of(i, 0);
    }
    SGLCORE_TRY(sgl_state_write(r->session, "w", w, sizeof w));
    SGLCORE_TRY(sgl_state_write(r->session, "adam.m/w", m, sizeof m));
    return sgl_state_write(r->session, "b", b, sizeof b);
}

static sgl_status expect_numbers(session_rank *r, int steps)
{
    float w[COUNT], m[COUNT], b[3];
    SGLCORE_TRY(sgl_state_read(r->session, "w", w, sizeof w));
    SGLCORE_TRY(sgl_state_read(r->session, "adam.m/w", m, sizeof m));
    SGLCORE_TRY(sgl_state_read(r->session, "b", b, sizeof b));
    for (int i = 0; i < COUNT; i++) {
        if (w[i] != w_of(i, steps)) return differs(r, "w", i, w[i], w_of(i, steps));
        if (m[i] != m_of(i, steps)) return differs(r, "m", i, m[i], m_of(i, steps));
    }
    for (int i = 0; i < 3; i++)
        if (b[i] != (float)((i + 1) << steps)) return differs(r, "b", i, b[i], (float)((i + 1) << steps));
    return SGL_OK;
}

static sgl_status step_and_save(session_rank *r)
{
    const char *name;
    sgl_role role;
    sgl_type type;
    for (int i = 0; sgl_state_info(r->session, i, &name, &role, &type) == SGL_OK && name; i++)
        if (type.dims[0] != (strcmp(name, "b") == 0 ? 3 : ROWS)) return differs(r, name, 0, (float)type.dims[0], ROWS);
    SGLCORE_TRY(write_numbers(r));
    SGLCORE_TRY(expect_numbers(r, 0));
    for (int i = 0; i < 3; i++) SGLCORE_TRY(sgl_step(r->program));
    SGLCORE_TRY(expect_numbers(r, 3));
    return sgl_checkpoint_save(r->session, job_of(r)->to, 3, "{}", 0);
}

static sgl_status load_and_step(session_rank *r)
{
    SGLCORE_TRY(sgl_checkpoint_load(r->session, job_of(r)->from, 0));
    SGLCORE_TRY(expect_numbers(r, 3));
    SGLCORE_TRY(sgl_step(r->program));
    return expect_numbers(r, 4);
}

/* Weights alone: the rest stays. */
static sgl_status load_weights(session_rank *r)
{
    float w[COUNT], m[COUNT];
    SGLCORE_TRY(write_numbers(r));
    SGLCORE_TRY(sgl_parameters_load(r->session, job_of(r)->from));
    SGLCORE_TRY(sgl_state_read(r->session, "w", w, sizeof w));
    SGLCORE_TRY(sgl_state_read(r->session, "adam.m/w", m, sizeof m));
    for (int i = 0; i < COUNT; i++) {
        if (w[i] != w_of(i, 3)) return differs(r, "w", i, w[i], w_of(i, 3));
        if (m[i] != m_of(i, 0)) return differs(r, "m", i, m[i], m_of(i, 0));
    }
    return SGL_OK;
}

static void test_any_plan_to_any(void **state)
{
    (void)state;
    char dir[16], path[64];
    for (int a = 0; a < LAYOUTS; a++) {
        snprintf(dir, sizeof dir, "run%d", a);
        snprintf(path, sizeof path, "%s/step-00000003", dir);
        must_run(&(job){ .layout = &layouts[a], .body = step_and_save, .to = dir });
        for (int b = 0; b < LAYOUTS; b++)
            must_run(&(job){ .layout = &layouts[b], .body = load_and_step, .from = path });
    }
    for (int b = 0; b < LAYOUTS; b++)
        must_run(
            &(job){ .layout = &layouts[b], .body = load_weights, .from = "run0/step-00000003/parameters.safetensors" });
    for (int a = 0; a < LAYOUTS; a++) {
        snprintf(dir, sizeof dir, "run%d", a);
        remove_tree(dir);
    }
}

/* ---- refusals --------------------------------------------------------------------------------------------------------- */

/* Another mesh of as many ranks: with the same part on each of them it fits, with another it does not. */
static sgl_status freeze_others(session_rank *r)
{
    static const session_layout same = { 2, 1, 2, "w tp:1" }, swapped = { 1, 1, 4, "w tp:1" }, none = { 4, 1, 1, "" },
                                moved = { 2, 1, 2, "w tp:0" };
    const session_layout *others[] = { &swapped, &none, &moved };
    sgl_program *program;
    SGLCORE_TRY(session_rank_freeze(r, text, &same, NULL, &program));
    for (int i = 0; i < 3; i++) {
        if (session_rank_freeze(r, text, others[i], NULL, &program) != SGL_TYPE)
            return differs(r, "plan", i, 0, SGL_TYPE);
        if (!strstr(sgl_error_message(r->vm), "w: the plan of program \"train\" has it ") ||
            !strstr(sgl_error_message(r->vm), "has it split along dimension 1 over tp=2"))
            return SGL_INTERNAL;
    }
    return SGL_OK;
}

/* The same local dims and axis on this rank and on others another part: only all ranks' parts tell. */
static sgl_status freeze_crossed(session_rank *r)
{
    static const session_layout crossed = { 1, 2, 2, "w fsdp:1" };
    sgl_program *program;
    if (session_rank_freeze(r, text, &crossed, NULL, &program) != SGL_TYPE) return differs(r, "plan", 0, 0, SGL_TYPE);
    return strstr(sgl_error_message(r->vm), "in the same parts") ? SGL_OK : SGL_INTERNAL;
}

static void test_other_parts(void **state)
{
    static const session_layout first = { 2, 1, 2, "w tp:1" }, second = { 2, 2, 1, "w fsdp:1" };
    (void)state;
    must_run(&(job){ .layout = &first, .body = freeze_others });
    must_run(&(job){ .layout = &second, .body = freeze_crossed });
}

/* A process alone plans for a rank of several, and has its part. */
static void test_alone(void **state)
{
    (void)state;
    const session_layout l = { 1, 1, 2, "w tp:0" };
    session_rank r = { .number = 0 };
    float w[COUNT];
    must(sgl_open(NULL, &r.vm));
    for (int device = 0; device < 2; device++) {
        must(sgl_session_new(r.vm, device ? "cpu" : "null", &r.session));
        must(sgl_session_plan_rank(r.session, 1));
        must(session_rank_freeze(&r, text, &l, NULL, &r.program));
        must(write_numbers(&r));
        assert_int_equal(sgl_state_read(r.session, "w", w, sizeof w), device ? SGL_WRONG_STATE : SGL_OK);
        assert_int_equal(sgl_state_read(r.session, "w", w, 12), SGL_INVALID_ARGUMENT);
        assert_int_equal(sgl_checkpoint_save(r.session, "alone", 1, NULL, 0),
                         device ? SGL_WRONG_STATE : SGL_UNSUPPORTED);
        sgl_session_free(r.session);
    }
    sgl_close(r.vm);
}

/* ---- what fails on one rank ---------------------------------------------------------------------------------------------- */

static sgl_status save_with_fault(session_rank *r)
{
    SGLCORE_TRY(write_numbers(r));
    for (int i = 0; i < 3; i++) SGLCORE_TRY(sgl_step(r->program));
    if (r->number == 1) { r->heap.counter = (fault_counter){ .fail_at = job_of(r)->fail_at }; }
    sgl_status status = sgl_checkpoint_save(r->session, "run", 4, "{}", 0);
    if (r->number == 1 && !r->heap.counter.tripped) return SGL_NOT_FOUND; /* not so many */
    r->heap.counter = (fault_counter){ 0 };
    return status == SGL_OK ? SGL_INTERNAL : SGL_OK;
}

/* Another rank's memory: every rank fails, and the checkpoint before stays. */
static void test_memory_of_one(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char *path, *meta;
    int64_t step, n = 1;
    must_run(&(job){ .layout = &layouts[1], .body = step_and_save, .to = "run" });
    for (;; n += 1 + n / 10) {
        job j = { .layout = &layouts[1], .body = save_with_fault, .fail_at = n };
        const session_ranks all = run_job(&j);
        char what[32];
        snprintf(what, sizeof what, "allocation %d", (int)n);
        if (all.ranks[1].status == SGL_NOT_FOUND) break;
        session_ranks_all_good(&all, what);
        assert_string_equal(names_in("run"), ".lock step-00000003");
        must(sglstore_checkpoint_find(&env, "run", &path, &meta, &step));
        assert_int_equal(step, 3);
        sglcore_free(&env, path, strlen(path) + 1);
        sglcore_free(&env, meta, strlen(meta) + 1);
    }
    assert_true(n > 20);
    assert_string_equal(names_in("run"), ".lock step-00000003 step-00000004");
    must_run(&(job){ .layout = &layouts[0], .body = load_and_step, .from = "run/step-00000004" });
    remove_tree("run");
}

static int cannot_write(void *user, const char *path, int *fd)
{
    if (strstr(path, ".rank-")) {
        errno = ENOSPC;
        return -1;
    }
    return sglcore_io_posix.open_write(user, path, fd);
}

static sgl_status save_on_full_disk(session_rank *r)
{
    sglcore_io io = *r->vm->env.io;
    io.open_write = cannot_write;
    if (r->number == 1) r->vm->env.io = &io;
    SGLCORE_TRY(write_numbers(r));
    sgl_status status = sgl_checkpoint_save(r->session, "run", 4, "{}", 0);
    const bool told = strstr(sgl_error_message(r->vm), "parameters.rank-00001.safetensors") != NULL;
    r->vm->env.io = unsynced_io();
    return status == SGL_IO && told ? SGL_OK : SGL_INTERNAL;
}

static void test_disk_of_one(void **state)
{
    (void)state;
    must_run(&(job){ .layout = &layouts[1], .body = step_and_save, .to = "run" });
    must_run(&(job){ .layout = &layouts[1], .body = save_on_full_disk });
    assert_string_equal(names_in("run"), ".lock step-00000003");
    remove_tree("run");
}

static sgl_status load_damaged(session_rank *r)
{
    SGLCORE_TRY(write_numbers(r));
    sgl_status status = sgl_checkpoint_load(r->session, "run/step-00000003", 0);
    if (status != SGL_CORRUPT || !strstr(sgl_error_message(r->vm), "states.rank-00001.safetensors"))
        return SGL_INTERNAL;
    return expect_numbers(r, 0);
}

/* One rank finds it, and none has taken anything yet. */
static void test_damage(void **state)
{
    (void)state;
    int64_t bytes;
    must_run(&(job){ .layout = &layouts[5], .body = step_and_save, .to = "run" });
    free(read_all("run/step-00000003/states.rank-00001.safetensors", &bytes));
    flip_bit("run/step-00000003/states.rank-00001.safetensors", bytes - 2, 1);
    for (int b = 0; b < LAYOUTS; b++) must_run(&(job){ .layout = &layouts[b], .body = load_damaged });
    remove_tree("run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_plan_to_any), cmocka_unit_test(test_other_parts), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_memory_of_one),   cmocka_unit_test(test_disk_of_one), cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests_name("session parts", tests, NULL, NULL);
}

/* test_launch.c -- what is known before a world is joined: the rank that a launcher's environment tells, and the words that
 * start several ranks of a command.
 *
 * In: environments and commands. Out: ranks, words, refusals; nothing leaks when an allocation fails. */
#include "fault.h"

static void forget_launchers(void)
{
    static const char *const variables[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMI_RANK", "PMI_SIZE"
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
}

static void expect_launched(int seen, int rank, int ranks)
{
    int told_rank = -1, told_ranks = -1;
    assert_int_equal(sgl_launched(&told_rank, &told_ranks), seen);
    assert_int_equal(told_rank, rank);
    assert_int_equal(told_ranks, ranks);
    assert_int_equal(sgl_launched(NULL, NULL), seen);
}

static void test_launched(void **state)
{
    (void)state;
    forget_launchers();
    expect_launched(0, 0, 1);
    setenv("SLURM_STEP_NUM_TASKS", "8", 1); /* a batch script that starts no step */
    expect_launched(0, 0, 1);
    setenv("PMIX_RANK", "5", 1); /* srun */
    expect_launched(1, 5, 8);
    unsetenv("SLURM_STEP_NUM_TASKS"); /* a launcher that does not say how many */
    expect_launched(1, 5, 0);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1); /* mpirun, which sets PMIX_RANK too */
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    expect_launched(1, 2, 3);
    forget_launchers();
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    expect_launched(1, 1, 2);
    setenv("PMI_RANK", "-1", 1);
    setenv("PMI_SIZE", "two", 1);
    expect_launched(1, 0, 0);
    forget_launchers();
}

static sgl_status words_body(sglcore_env *env, void *context)
{
    char *const command[] = { (char[]){ "sgl" }, (char[]){ "train" }, (char[]){ "a b.lua" } };
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user };
    const char *const *words = NULL, *const *others = NULL;
    sgl_vm *vm;
    (void)context;
    sgl_status status = sgl_open(&config, &vm);
    if (status != SGL_OK) return status;
    status = sgl_launch_command(vm, 12, 3, command, &words);
    if (status == SGL_OK) status = sgl_launch_command(vm, 2, 1, command, &others);
    if (status == SGL_OK) {
        int count = 0;
        while (words[count]) count++;
        assert_string_equal(words[0], "mpirun");
        assert_string_equal(words[count - 4], "12"); /* the second call took nothing from the first */
        assert_ptr_equal(words[count - 1], command[2]);
    } else {
        assert_true(words == NULL || others == NULL);
    }
    sgl_close(vm);
    return status;
}

static void test_words(void **state)
{
    (void)state;
    char *const command[] = { (char[]){ "sgl" } };
    const char *const *words = (const char *const *)command;
    sgl_vm *vm;
    assert_true(fault_allocations(words_body, NULL, true) > 0);
    assert_int_equal(sgl_open(NULL, &vm), SGL_OK);
    assert_int_equal(sgl_launch_command(vm, 0, 1, command, &words), SGL_INVALID_ARGUMENT);
    assert_null(words);
    assert_int_equal(sgl_launch_command(vm, 2, 1, NULL, &words), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_launch_command(NULL, 2, 1, command, &words), SGL_INVALID_ARGUMENT);
    sgl_close(vm);
}

static void test_axes(void **state)
{
    (void)state;
    static const char *const names[] = { "dp", "fsdp", "tp", "pp", "ep", "cp" };
    for (int i = 0; i < 6; i++) assert_string_equal(sgl_axis_name(i), names[i]);
    assert_null(sgl_axis_name(6));
    assert_null(sgl_axis_name(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launched),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

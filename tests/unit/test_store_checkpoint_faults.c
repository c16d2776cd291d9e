/* test_store_checkpoint_faults.c -- checkpoints under failure: each n-th allocation, each n-th file operation (once, and
 * from then on for ever), and SIGKILL at random instants of a process that saves. Whatever happens, what is found
 * afterwards is whole: the former checkpoint or the new one. Started in an empty folder.
 * ctest: timeout 300 */
#include "checkpoint_cases.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* The files behind the failing ones need not wait for the disk either. */
static void hurry(sglcore_env *env)
{
    fault_files *files = env->io->user;
    if (files != NULL)
        files->real = unsynced_io();
    else
        env->io = unsynced_io();
}

/* ---- saving ----------------------------------------------------------------------------------------------------- */

/* A folder with step 1 holding number 1, into which `step` is saved with number 2. */
typedef struct save_case {
    int64_t step;
    int keep;
    int64_t former_found, new_found;
} save_case;

static sgl_status save_into(sglcore_env *env, void *context)
{
    const save_case *c = context;
    sglcore_env plain = plain_env();
    hurry(env);
    remove_tree("run");
    must(model_save(&plain, "run", 1, 1, 0));
    return model_save(env, "run", c->step, 2, c->keep);
}

/* The former or the new one is found and whole; the new one when the save said OK. */
static void check_saved(void *context, sgl_status status, bool tripped, bool for_ever)
{
    save_case *c = context;
    int64_t step, number = find_number("run", &step);
    assert_true(number == 2 || (number == 1 && status != SGL_OK));
    assert_int_equal(step, number == 2 ? c->step : 1);
    if (number == 2)
        c->new_found++;
    else
        c->former_found++;
    /* As after a kill, a leftover lies there until the next save; and where only the cleaning failed. (One that was
     * replaced stays too when the folder could not be synced.) */
    if (!tripped || (!for_ever && status != SGL_OK)) assert_null(strstr(names_in("run"), "partial"));
    if (!tripped) assert_null(strstr(names_in("run"), "replaced"));
}

/* After any failure the next save works, and leaves nothing but whole checkpoints. */
static void check_next_save(void *context, sgl_status status, bool tripped, bool for_ever)
{
    save_case *c = context;
    sglcore_env plain = plain_env();
    int64_t step;
    check_saved(c, status, tripped, for_ever);
    must(model_save(&plain, "run", 9, 3, 1));
    assert_string_equal(names_in("run"), "step-00000009");
    assert_int_equal(find_number("run", &step), 3);
}

static sgl_status save_and_check(sglcore_env *env, void *context)
{
    sgl_status status = save_into(env, context);
    check_next_save(context, status, status != SGL_OK, true);
    return status;
}

static void test_saving_without_memory(void **state)
{
    (void)state;
    save_case cases[] = { { .step = 2, .keep = 1 }, { .step = 1, .keep = 0 } };
    for (int i = 0; i < 2; i++) {
        assert_true(fault_each_allocation(save_and_check, &cases[i]) >= 30);
        assert_true(cases[i].former_found >= 30);
        assert_true(cases[i].new_found > 0);
    }
    remove_tree("run");
}

static void test_saving_without_disk(void **state)
{
    (void)state;
    save_case cases[] = { { .step = 2, .keep = 1 }, { .step = 1, .keep = 0 } };
    for (int i = 0; i < 2; i++) {
        int64_t operations = fault_each_io_tolerant(save_into, &cases[i], check_next_save);
        print_message("a save is %lld file operations\n", (long long)operations);
        assert_true(operations >= 40);
        assert_true(cases[i].former_found >= 40); /* twice each n, nearly all of them before the rename */
        assert_true(cases[i].new_found >= 8);
    }
    remove_tree("run");
}

/* The only checkpoint of a folder that was not there: with the failure of its first save there is none. */
static sgl_status save_first(sglcore_env *env, void *context)
{
    (void)context;
    hurry(env);
    remove_tree("run");
    return model_save(env, "run", 1, 2, 1);
}

static void check_first(void *context, sgl_status status, bool tripped, bool for_ever)
{
    int64_t step;
    (void)context;
    (void)tripped;
    (void)for_ever;
    if (access("run", F_OK) != 0) {
        assert_true(status != SGL_OK);
        return;
    }
    int64_t number = find_number("run", &step);
    assert_true(number == 2 || (number == -1 && status != SGL_OK));
}

static void test_first_save_without_disk(void **state)
{
    (void)state;
    assert_true(fault_each_io_tolerant(save_first, NULL, check_first) >= 30);
    remove_tree("run");
}

/* ---- what the disk keeps ---------------------------------------------------------------------------------------- */

/* A disk that keeps one bit of its n-th write wrong, without a word. */
typedef struct bad_disk {
    sglcore_io io;
    int64_t bad_write, writes;
} bad_disk;

static int write_badly(void *user, int fd, const void *data, size_t bytes)
{
    bad_disk *disk = user;
    char *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    if (++disk->writes == disk->bad_write) copy[bytes / 2] ^= 4;
    int result = sglcore_io_posix.write(NULL, fd, copy, bytes);
    free(copy);
    return result;
}

/* Whatever was not written as it was meant is found out before the former checkpoint goes. */
static void test_bad_disk(void **state)
{
    (void)state;
    int64_t step;
    sgl_status status = SGL_CORRUPT;
    for (int64_t n = 1; status != SGL_OK; n++) {
        bad_disk disk = { .io = *unsynced_io(), .bad_write = n };
        sglcore_env plain = plain_env(), env = plain_env();
        disk.io.user = &disk;
        disk.io.write = write_badly;
        env.io = &disk.io;
        remove_tree("run");
        must(model_save(&plain, "run", 1, 1, 0));
        status = model_save(&env, "run", 2, 2, 1);
        if (disk.writes < n) {
            must(status);
            assert_int_equal(n - 1, 2 + 6 + 1); /* two headers, six tensors that are not empty, the manifest */
            break;
        }
        assert_int_equal(status, SGL_CORRUPT);
        assert_int_equal(find_number("run", &step), 1);
        assert_string_equal(names_in("run"), "step-00000001");
    }
    remove_tree("run");
}

/* The order that a power failure asks for: files, then their folder, then the rename, then the folder above. */
typedef struct sync_log {
    sglcore_io io;
    int dirty_files, renames;
    bool dirty_partial, dirty_dir;
} sync_log;

static int log_write(void *user, int fd, const void *data, size_t bytes)
{
    ((sync_log *)user)->dirty_files |= 1 << fd % 31;
    return sglcore_io_posix.write(NULL, fd, data, bytes);
}

static int log_sync(void *user, int fd)
{
    ((sync_log *)user)->dirty_files &= ~(1 << fd % 31);
    return 0;
}

static int log_close(void *user, int fd)
{
    assert_false(((sync_log *)user)->dirty_files >> fd % 31 & 1);
    return sglcore_io_posix.close(NULL, fd);
}

static int log_open(void *user, const char *path, int *fd)
{
    assert_non_null(strstr(path, ".partial/")); /* nothing is written anywhere else */
    ((sync_log *)user)->dirty_partial = true;
    return sglcore_io_posix.open_write(NULL, path, fd);
}

static int log_rename(void *user, const char *from, const char *to)
{
    sync_log *log = user;
    assert_int_equal(log->dirty_files, 0);
    if (strstr(to, ".partial/") != NULL) {
        log->dirty_partial = true;
    } else if (strstr(to, "/step-") != NULL && strstr(from, ".partial") != NULL) {
        assert_false(log->dirty_partial);
        log->renames++;
    }
    if (strstr(from, ".replaced") != NULL) assert_false(log->dirty_dir); /* the old one goes when the new one stays */
    if (strstr(to, ".partial/") == NULL) log->dirty_dir = true;
    return sglcore_io_posix.rename(NULL, from, to);
}

static int log_sync_dir(void *user, const char *path)
{
    sync_log *log = user;
    if (strstr(path, ".partial") != NULL) log->dirty_partial = false;
    if (strcmp(path, "run") == 0) log->dirty_dir = false;
    return 0;
}

static void test_order_of_syncs(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sync_log log = { .io = sglcore_io_posix };
    log.io.user = &log;
    log.io.open_write = log_open;
    log.io.write = log_write;
    log.io.sync = log_sync;
    log.io.close = log_close;
    log.io.sync_dir = log_sync_dir;
    log.io.rename = log_rename;
    env.io = &log.io;
    must(model_save(&env, "run", 1, 1, 0));
    assert_int_equal(log.renames, 1);
    assert_false(log.dirty_dir);
    must(model_save(&env, "run", 1, 2, 0)); /* with a refused rename before the two that replace */
    assert_int_equal(log.renames, 3);
    must(model_save(&env, "run", 2, 3, 1));
    assert_string_equal(names_in("run"), "step-00000002");
    remove_tree("run");
}

/* ---- finding and loading ---------------------------------------------------------------------------------------- */

static sgl_status find_one(sglcore_env *env, void *context)
{
    char *path, *meta;
    int64_t step = -1;
    (void)context;
    sgl_status status = sglstore_checkpoint_find(env, "run", &path, &meta, &step);
    if (status != SGL_OK) {
        assert_null(path);
        assert_null(meta);
        return status;
    }
    assert_int_equal(step, 2); /* never the older one because the newer one could not be read just now */
    assert_string_equal(path, "run/step-00000002");
    sglcore_free(env, path, strlen(path) + 1);
    sglcore_free(env, meta, strlen(meta) + 1);
    return status;
}

/* Counts in context the failures that left the targets as they were. */
static sgl_status load_one(sglcore_env *env, void *context)
{
    model m, expected;
    model_init(&m, 7);
    model_init(&expected, 2);
    sgl_status status = sglstore_checkpoint_load(env, "run/step-00000002", m.targets, MODEL_TENSORS, false);
    for (int i = 0; i < MODEL_TENSORS && status == SGL_OK; i++)
        assert_memory_equal(m.tensors[i].data, expected.tensors[i].data, model_bytes(&m.tensors[i]));
    if (status == SGL_OUT_OF_MEMORY) assert_int_equal(m.writes, 0);
    if (status != SGL_OK && m.writes == 0) ++*(int64_t *)context;
    return status;
}

static void test_finding_and_loading(void **state)
{
    (void)state;
    sglcore_env plain = plain_env();
    int64_t untouched = 0;
    remove_tree("run");
    must(model_save(&plain, "run", 1, 1, 0));
    must(model_save(&plain, "run", 2, 2, 0));
    assert_true(fault_each_allocation(find_one, NULL) >= 15);
    assert_true(fault_each_allocation(load_one, &untouched) >= 15);
    assert_true(fault_each_io_tolerant(find_one, NULL, NULL) >= 10);
    untouched = 0;
    assert_true(fault_each_io_tolerant(load_one, &untouched, NULL) >= 25);
    assert_true(untouched >= 20); /* all but the failures of the second reading, that of the handing over */
    remove_tree("run");
}

/* ---- killed ----------------------------------------------------------------------------------------------------- */

/* Saves for ever: each step twice, with numbers that rise. Each finished number goes into the pipe. */
static void save_for_ever(uint64_t number, int pipe_end)
{
    sglcore_env env = plain_env();
    env.io = &sglcore_io_posix;
    for (;; number++) {
        if (model_save(&env, "run", (int64_t)(number / 2), number, 2) != SGL_OK) _exit(1);
        if (write(pipe_end, &number, sizeof number) != sizeof number) _exit(2);
    }
}

/* Forks a saver, kills it after that time, and returns the last number that it finished, or `before`. */
static uint64_t kill_a_saver(uint64_t before, long microseconds)
{
    int ends[2], ended;
    uint64_t number, last = before;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) save_for_ever(before + 1, ends[1]);
    assert_int_equal(close(ends[1]), 0);
    nanosleep(&(struct timespec){ 0, microseconds * 1000 }, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    while (read(ends[0], &number, sizeof number) == sizeof number) last = number;
    assert_int_equal(close(ends[0]), 0);
    return last;
}

static void test_killed(void **state)
{
    (void)state;
    static const uint32_t key[2] = { 0xDEAD, 9 };
    int64_t start = sglcore_now_ns(), step;
    uint64_t last = 1;
    uint32_t kills = 0, unfinished = 0;
    sglcore_env env = plain_env();
    remove_tree("run");
    must(model_save(&env, "run", 0, last, 2));
    while (sglcore_now_ns() - start < 3000000000 || kills < 5) {
        uint32_t counter[4] = { kills++ }, random[4];
        sglcore_philox(counter, key, random);
        uint64_t finished = kill_a_saver(last, random[0] % 60000);
        int64_t found = find_number("run", &step); /* loads and compares every byte */
        assert_true(found == (int64_t)finished || found == (int64_t)finished + 1);
        assert_int_equal(step, found / 2);
        last = (uint64_t)found;
        unfinished += strstr(names_in("run"), "partial") != NULL || strstr(names_in("run"), "replaced") != NULL;
    }
    print_message("%u kills, %u of them in the middle of a save\n", kills, unfinished);
    must(model_save(&env, "run", 999999, 7, 1));
    assert_string_equal(names_in("run"), "step-00999999");
    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saving_without_memory),
        cmocka_unit_test(test_saving_without_disk),
        cmocka_unit_test(test_first_save_without_disk),
        cmocka_unit_test(test_bad_disk),
        cmocka_unit_test(test_order_of_syncs),
        cmocka_unit_test(test_finding_and_loading),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests_name("store checkpoints, faults", tests, NULL, NULL);
}

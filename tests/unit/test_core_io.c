/* test_core_io.c -- files: the POSIX table, whole files read and replaced, folders removed; every allocation and every
 * file operation failing in turn, once and for ever. Started in an empty folder. */
#include "fault.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static sglcore_env plain_env(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    return env;
}

/* The content of a file is the text. */
static void assert_content(const char *path, const char *expected)
{
    sglcore_env env = plain_env();
    char *data;
    int64_t bytes;
    assert_int_equal(sglcore_read_file(&env, path, &data, &bytes), SGL_OK);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(data, expected);
    sglcore_free(&env, data, (size_t)bytes + 1);
    assert_int_equal(env.bytes_in_use, 0);
}

static int count_name(void *context, const char *name)
{
    (void)name;
    ++*(int *)context;
    return 0;
}

static int names_in(const char *path)
{
    int count = 0;
    assert_int_equal(sglcore_io_posix.list(NULL, path, count_name, &count), 0);
    return count;
}

static void test_write_and_read(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char *data;
    int64_t bytes;
    assert_int_equal(sglcore_write_file(&env, "file", "old", 3), SGL_OK);
    assert_content("file", "old");
    assert_int_equal(sglcore_write_file(&env, "./file", "newer text", 10), SGL_OK);
    assert_content("file", "newer text");
    assert_int_equal(sglcore_write_file(&env, "file", NULL, 0), SGL_OK);
    assert_content("file", "");
    assert_int_equal(names_in("."), 1);

    unsigned char *large = sglcore_alloc(&env, 3000000);
    for (int i = 0; i < 3000000; i++) large[i] = (unsigned char)(i % 251);
    assert_int_equal(sglcore_write_file(&env, "file", large, 3000000), SGL_OK);
    assert_int_equal(sglcore_read_file(&env, "file", &data, &bytes), SGL_OK);
    assert_int_equal(bytes, 3000000);
    assert_memory_equal(data, large, 3000000);
    assert_int_equal(data[3000000], 0);
    sglcore_free(&env, data, 3000001);
    sglcore_free(&env, large, 3000000);

    char absolute[4096 + 8];
    assert_non_null(getcwd(absolute, 4096));
    strcat(absolute, "/file");
    assert_int_equal(sglcore_write_file(&env, absolute, "absolute", 8), SGL_OK);
    assert_content("file", "absolute");
    assert_int_equal(remove("file"), 0);
    assert_int_equal(env.bytes_in_use, 0);
}

/* A file that says it has no bytes, and has some. */
static void test_file_without_a_size(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char *data;
    int64_t bytes;
    assert_int_equal(sglcore_read_file(&env, "/proc/self/status", &data, &bytes), SGL_OK);
    assert_true(bytes > 100 && (int64_t)strlen(data) == bytes);
    assert_memory_equal(data, "Name:", 5);
    sglcore_free(&env, data, (size_t)bytes + 1);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_errors_name_the_path(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char *data;
    int64_t bytes;
    assert_int_equal(sglcore_read_file(&env, "none/at.all", &data, &bytes), SGL_NOT_FOUND);
    assert_string_equal(env.message, "cannot open none/at.all: No such file or directory");
    assert_null(data);
    assert_int_equal(sglcore_read_file(&env, ".", &data, &bytes), SGL_IO);
    assert_string_equal(env.message, "cannot read .: Is a directory");
    assert_int_equal(sglcore_write_file(&env, "none/file", "x", 1), SGL_NOT_FOUND);
    assert_non_null(strstr(env.message, "cannot create none/file.tmp-"));
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(sglcore_write_file(&env, "folder", "x", 1), SGL_IO); /* a folder is not replaced by a file */
    assert_non_null(strstr(env.message, "to folder: "));
    assert_int_equal(names_in("."), 1);
    assert_int_equal(sglcore_read_file(&env, "folder", &data, &bytes), SGL_IO);
    assert_int_equal(rmdir("folder"), 0);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_full_device(void **state)
{
    (void)state;
    int fd;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(sglcore_io_posix.open_write(NULL, "/dev/full", &fd), 0);
    assert_int_equal(sglcore_io_posix.write(NULL, fd, "text", 4), -1);
    assert_int_equal(errno, ENOSPC);
    sglcore_env env = plain_env();
    assert_int_equal(sglcore_fail_io(&env, "write", "/dev/full"), SGL_IO);
    assert_string_equal(env.message, "cannot write /dev/full: No space left on device");
    assert_int_equal(sglcore_io_posix.close(NULL, fd), 0);
}

static int stop_at_second(void *context, const char *name)
{
    (void)name;
    return ++*(int *)context == 2 ? 5 : 0;
}

static void test_table(void **state)
{
    (void)state;
    const sglcore_io *io = &sglcore_io_posix;
    sglcore_env env = plain_env();
    char text[8] = "";
    size_t got;
    int64_t size;
    int fd, count = 0;
    assert_int_equal(io->make_dir(NULL, "folder"), 0);
    assert_int_equal(io->make_dir(NULL, "folder"), 0);
    assert_int_equal(sglcore_write_file(&env, "folder/a", "0123456789", 10), SGL_OK);
    assert_int_equal(sglcore_write_file(&env, "folder/b", "", 0), SGL_OK);
    assert_int_equal(io->make_dir(NULL, "folder/a"), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(io->list(NULL, "folder", stop_at_second, &count), 5);
    assert_int_equal(names_in("folder"), 2);

    assert_int_equal(io->open_read(NULL, "folder/a", &fd), 0);
    assert_int_equal(io->size(NULL, fd, &size), 0);
    assert_int_equal(size, 10);
    assert_int_equal(io->read_at(NULL, fd, text, 4, 3, &got), 0);
    assert_int_equal(got, 4);
    assert_memory_equal(text, "3456", 4);
    assert_int_equal(io->read_at(NULL, fd, text, 8, 8, &got), 0);
    assert_int_equal(got, 2);
    assert_int_equal(io->read_at(NULL, fd, text, 8, 20, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(io->close(NULL, fd), 0);
    assert_int_equal(io->close(NULL, fd), -1);
    assert_int_equal(errno, EBADF);

    /* One holds a lock at a time; whoever closes it, or ends, gives it back. */
    int again;
    assert_int_equal(io->lock(NULL, "folder/b", &fd), 0);
    assert_int_equal(io->lock(NULL, "folder/b", &again), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    assert_int_equal(io->close(NULL, fd), 0);
    assert_int_equal(io->lock(NULL, "folder/b", &again), 0);
    assert_int_equal(io->close(NULL, again), 0);

    /* Nothing waits for the writer of a pipe, and a pipe has no size. */
    assert_int_equal(mkfifo("folder/pipe", 0600), 0);
    assert_int_equal(io->open_read(NULL, "folder/pipe", &fd), 0);
    assert_int_equal(io->size(NULL, fd, &size), -1);
    assert_int_equal(errno, ESPIPE);
    assert_int_equal(io->close(NULL, fd), 0);

    assert_int_equal(io->remove(NULL, "folder"), -1);
    assert_int_equal(io->sync_dir(NULL, "folder"), 0);
    assert_int_equal(io->sync_dir(NULL, "folder/a"), -1);
    assert_int_equal(sglcore_remove_dir(&env, "folder"), SGL_OK);
    assert_int_equal(names_in("."), 0);
    assert_int_equal(io->list(NULL, "folder", count_name, &count), -1);
    assert_int_equal(errno, ENOENT);
}

static void test_remove_dir(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    assert_int_equal(sglcore_remove_dir(&env, "missing"), SGL_OK);
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(mkdir("folder/inner", 0777), 0);
    assert_int_equal(sglcore_write_file(&env, "folder/inner/file", "x", 1), SGL_OK);
    assert_int_equal(sglcore_remove_dir(&env, "folder"), SGL_IO); /* one level, as promised */
    assert_non_null(strstr(env.message, "cannot remove folder/inner: "));
    assert_content("folder/inner/file", "x");
    assert_int_equal(sglcore_remove_dir(&env, "folder/inner/file"), SGL_IO);
    assert_int_equal(sglcore_remove_dir(&env, "folder/inner"), SGL_OK);
    for (int i = 0; i < 300; i++) {
        char path[32];
        snprintf(path, sizeof path, "folder/%d", i);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    }
    assert_int_equal(sglcore_remove_dir(&env, "folder"), SGL_OK);
    assert_int_equal(names_in("."), 0);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- faults ------------------------------------------------------------------------------------------------- */

static sgl_status replace_file(sglcore_env *env, void *context)
{
    (void)context;
    sglcore_env plain = plain_env();
    assert_int_equal(sglcore_write_file(&plain, "faulty/file", "the old text", 12), SGL_OK);
    return sglcore_write_file(env, "faulty/file", "the new one", 11);
}

static sgl_status read_file(sglcore_env *env, void *context)
{
    (void)context;
    sglcore_env plain = plain_env();
    char *data;
    int64_t bytes;
    assert_int_equal(sglcore_write_file(&plain, "faulty/file", "the old text", 12), SGL_OK);
    sgl_status status = sglcore_read_file(env, "faulty/file", &data, &bytes);
    assert_true(status == SGL_OK ? bytes == 12 : bytes == 0 && data == NULL);
    sglcore_free(env, data, (size_t)bytes + 1);
    return status;
}

static sgl_status remove_folder(sglcore_env *env, void *context)
{
    (void)context;
    sglcore_env plain = plain_env();
    assert_int_equal(sglcore_io_posix.make_dir(NULL, "faulty/inner"), 0);
    assert_int_equal(sglcore_write_file(&plain, "faulty/inner/a", "a", 1), SGL_OK);
    assert_int_equal(sglcore_write_file(&plain, "faulty/inner/b", "b", 1), SGL_OK);
    return sglcore_remove_dir(env, "faulty/inner");
}

/* The old file or the new one, whole; and once failed, nothing left beside it. */
static void check_replaced(void *context, sgl_status status, bool tripped, bool for_ever)
{
    int64_t *old_seen = context;
    sglcore_env env = plain_env();
    char *data;
    int64_t bytes;
    assert_int_equal(sglcore_read_file(&env, "faulty/file", &data, &bytes), SGL_OK);
    bool is_new = strcmp(data, "the new one") == 0;
    assert_true(is_new || (status != SGL_OK && strcmp(data, "the old text") == 0));
    if (!is_new) ++*old_seen;
    if (!for_ever || !tripped) assert_int_equal(names_in("faulty"), 1);
    sglcore_free(&env, data, (size_t)bytes + 1);
    assert_int_equal(sglcore_remove_dir(&env, "faulty"), SGL_OK);
    assert_int_equal(mkdir("faulty", 0777), 0);
}

static void test_faults(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    int64_t old_seen = 0;
    assert_int_equal(mkdir("faulty", 0777), 0);
    assert_true(fault_each_allocation(replace_file, NULL) >= 2);
    assert_int_equal(names_in("faulty"), 1);
    assert_true(fault_each_allocation(read_file, NULL) >= 1);
    assert_true(fault_each_allocation(remove_folder, NULL) >= 2);
    assert_int_equal(sglcore_remove_dir(&env, "faulty/inner"), SGL_OK);

    /* create, write, sync, close, rename, sync of the folder: the first five leave the old file */
    assert_int_equal(fault_each_io(replace_file, &old_seen, check_replaced), 6);
    assert_int_equal(old_seen, 2 * 5);
    assert_int_equal(fault_each_io(read_file, NULL, NULL), 4);
    assert_int_equal(fault_each_io(remove_folder, NULL, NULL), 4);
    assert_int_equal(sglcore_remove_dir(&env, "faulty"), SGL_OK);
    assert_int_equal(names_in("."), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_file_without_a_size),
        cmocka_unit_test(test_errors_name_the_path),
        cmocka_unit_test(test_full_device),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_remove_dir),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("core files", tests, NULL, NULL);
}

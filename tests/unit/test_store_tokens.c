/* test_store_tokens.c -- token files: every format, windows and their order, epochs, restarts, what is held out, several
 * files. Started in an empty folder. */
#include "tokens_cases.h"

#include <sys/stat.h>

/* ---- formats ---------------------------------------------------------------------------------------------------- */

/* The file is read as tokens 100, 101, ..., 179, whatever its format. */
static void assert_reads(const char *path, const char *format, uint32_t mask)
{
    int32_t inputs[32], targets[32];
    sglstore_tokens *tokens = open_one(path, format);
    sglstore_tokens_sizes sizes = sglstore_tokens_sizes_of(tokens);
    assert_int_equal(sizes.train, 80);
    assert_int_equal(sizes.held_out, 0);
    assert_int_equal(sizes.train_batches, 2); /* 9 windows, of which one is given up so that the grid can move */
    assert_int_equal(sizes.eval_batches, 0);
    for (int64_t cursor = 0; cursor < 20; cursor++) {
        must(sglstore_tokens_train(tokens, cursor, inputs, targets));
        for (int row = 0; row < 4; row++) {
            assert_in_range(inputs[8 * row], 100 & mask, (100 + 80 - 9) & mask);
            for (int i = 0; i < 8; i++) {
                assert_int_equal(inputs[8 * row + i], inputs[8 * row] + i);
                assert_int_equal(targets[8 * row + i], inputs[8 * row] + i + 1);
            }
        }
    }
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

static void test_formats(void **state)
{
    (void)state;
    write_tokens("text.txt", 1, 100, 80, NULL);
    write_tokens("plain", 1, 100, 80, NULL);
    write_tokens("tokens.u16", 2, 100, 80, NULL);
    write_tokens("tokens.bin", 2, 100, 80, NULL);
    write_tokens("tokens.u32", 4, 100, 80, NULL);
    write_tokens("gpt2.bin", 2, 100, 80, (uint32_t[]){ 20240520, 1, 80 });
    write_tokens("llama3.dat", 4, 100, 80, (uint32_t[]){ 20240801, 7, 80 });
    assert_reads("text.txt", "bytes", 0xFF);
    assert_reads("plain", "bytes", 0xFF);
    assert_reads("tokens.u16", NULL, 0xFFFF);
    assert_reads("tokens.u16", "u16", 0xFFFF);
    assert_reads("tokens.bin", NULL, 0xFFFF);
    assert_reads("tokens.u32", NULL, 0xFFFFFFFF);
    assert_reads("tokens.u32", "u32", 0xFFFFFFFF);
    assert_reads("gpt2.bin", NULL, 0xFFFF);
    assert_reads("gpt2.bin", "llmc", 0xFFFF);
    assert_reads("llama3.dat", NULL, 0xFFFFFFFF);
    assert_reads("llama3.dat", "llmc", 0xFFFFFFFF);
}

/* ---- windows and their order ------------------------------------------------------------------------------------ */

/* The first tokens of the rows of an epoch, in order. Every row is checked to be a run of neighbours. */
static int64_t read_epoch(sglstore_tokens *tokens, int64_t epoch, int32_t *starts)
{
    static int32_t inputs[ROWS_MOST], targets[ROWS_MOST];
    sglstore_tokens_sizes sizes = sglstore_tokens_sizes_of(tokens);
    int64_t count = 0;
    assert_true(sizes.batch * sizes.seq <= ROWS_MOST);
    for (int64_t cursor = 0; cursor < sizes.train_batches; cursor++) {
        must(sglstore_tokens_train(tokens, epoch * sizes.train_batches + cursor, inputs, targets));
        for (int64_t row = 0; row < sizes.batch; row++) {
            const int32_t *in = inputs + row * sizes.seq, *out = targets + row * sizes.seq;
            for (int64_t i = 0; i < sizes.seq; i++) assert_true(in[i] == in[0] + i && out[i] == in[0] + i + 1);
            starts[count++] = in[0];
        }
    }
    return count;
}

static int ascending(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* Each epoch is a permutation of the same windows on a grid of its own, and no epoch is like another. */
static void test_epochs(void **state)
{
    (void)state;
    enum { WINDOWS = 999 };
    static int32_t starts[WINDOWS + 9], before[WINDOWS + 9];
    const char *paths[] = { "count.u32" };
    sgl_tokens_config config = config_of(paths, 1);
    sglstore_tokens *tokens;
    config.batch = 27;
    write_tokens("count.u32", 4, 0, 8 * (WINDOWS + 1) + 1, NULL);
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    assert_int_equal(sglstore_tokens_sizes_of(tokens).train_batches, WINDOWS / 27);
    bool grids[9] = { false };
    for (int64_t epoch = 0; epoch < 60; epoch++) {
        assert_int_equal(read_epoch(tokens, epoch, starts), WINDOWS);
        if (epoch > 0) assert_memory_not_equal(starts, before, sizeof(int32_t) * WINDOWS);
        memcpy(before, starts, sizeof before);
        int in_order = 0;
        for (int i = 1; i < WINDOWS; i++) in_order += starts[i] > starts[i - 1];
        assert_in_range(in_order, WINDOWS * 2 / 5, WINDOWS * 3 / 5); /* shuffled, not merely turned */
        qsort(starts, WINDOWS, sizeof starts[0], ascending);
        assert_in_range(starts[0], 0, 8);
        if (epoch == 0) assert_int_equal(starts[0], 0);
        grids[starts[0]] = true;
        for (int i = 0; i < WINDOWS; i++) assert_int_equal(starts[i], starts[0] + 8 * i);
    }
    for (int i = 0; i <= 8; i++) assert_true(grids[i]); /* every position comes to be the first of a window */
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

/* Any number of windows, powers of two and their neighbours among them, is permuted without loss. */
static void test_every_window_count(void **state)
{
    (void)state;
    static int32_t starts[400];
    for (int windows = 1; windows <= 300; windows += windows < 70 ? 1 : 37) {
        const char *paths[] = { "some.u16" };
        sgl_tokens_config config = config_of(paths, 1);
        sglstore_tokens *tokens;
        config.batch = 1;
        config.seq = 3;
        write_tokens("some.u16", 2, 0, (uint32_t)(3 * windows + 1), NULL);
        must(sglstore_tokens_open(&tokens_env, &config, &tokens));
        int expected = windows >= 8 ? windows - 1 : windows;
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            assert_int_equal(read_epoch(tokens, epoch, starts), expected);
            qsort(starts, (size_t)expected, sizeof starts[0], ascending);
            for (int i = 1; i < expected; i++) assert_int_equal(starts[i], starts[i - 1] + 3);
        }
        sglstore_tokens_free(tokens);
    }
}

static void test_restart(void **state)
{
    (void)state;
    static int32_t inputs[2][32], targets[2][32], first[200], again[200], other[200];
    write_tokens("count.u32", 4, 0, 1000, NULL);
    const char *paths[] = { "count.u32" };
    sgl_tokens_config config = config_of(paths, 1);
    sglstore_tokens *one = open_one("count.u32", NULL), *two = open_one("count.u32", NULL), *seeded;
    static const int64_t cursors[] = { 1000000000000, 0, 77, 31, 30, 29, 5, 77, 123456789 };
    for (size_t i = 0; i < sizeof cursors / sizeof cursors[0]; i++) {
        must(sglstore_tokens_train(one, cursors[i], inputs[0], targets[0]));
        if (i % 2)
            must(sglstore_tokens_train(two, (int64_t)i, inputs[1], targets[1])); /* what was read before is no state */
        must(sglstore_tokens_train(two, cursors[i], inputs[1], targets[1]));
        assert_memory_equal(inputs[0], inputs[1], sizeof inputs[0]);
        assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    }
    /* The seed, both halves of it, changes the order and nothing else. */
    int64_t count = read_epoch(one, 0, first);
    static const uint64_t seeds[] = { 8, 7 | UINT64_C(1) << 63, 0 };
    for (int i = 0; i < 3; i++) {
        config.seed = seeds[i];
        must(sglstore_tokens_open(&tokens_env, &config, &seeded));
        assert_int_equal(read_epoch(seeded, 0, other), count);
        assert_memory_not_equal(first, other, (size_t)count * sizeof other[0]);
        memcpy(again, first, sizeof first);
        sglstore_tokens_free(seeded);
    }
    sglstore_tokens_free(one);
    sglstore_tokens_free(two);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

/* ---- what is held out ------------------------------------------------------------------------------------------- */

/* Training stays below `cut`, evaluation reads from there on, in order. */
static void check_cut(sglstore_tokens *tokens, int32_t cut, int32_t end)
{
    static int32_t starts[ROWS_MOST], inputs[ROWS_MOST], targets[ROWS_MOST];
    sglstore_tokens_sizes sizes = sglstore_tokens_sizes_of(tokens);
    int32_t highest = 0;
    for (int64_t epoch = 0; epoch < 100; epoch++) {
        int64_t count = read_epoch(tokens, epoch, starts);
        for (int64_t i = 0; i < count; i++)
            if (starts[i] > highest) highest = starts[i];
    }
    assert_true(highest + sizes.seq < cut);      /* the last target too */
    assert_true(highest + sizes.seq + 1 == cut); /* and nothing is given away */
    int32_t next = cut;
    for (int64_t cursor = 0; cursor < sizes.eval_batches; cursor++) {
        must(sglstore_tokens_eval(tokens, cursor, inputs, targets));
        for (int64_t i = 0; i < sizes.batch * sizes.seq; i++, next++) {
            assert_int_equal(inputs[i], next);
            assert_int_equal(targets[i], next + 1);
        }
    }
    assert_true(next < end && next + sizes.batch * sizes.seq >= end);
    assert_int_equal(sglstore_tokens_eval(tokens, sizes.eval_batches, inputs, targets), SGL_NOT_FOUND);
    assert_non_null(strstr(tokens_env.message, "the held-out part has "));
}

static void test_held_out(void **state)
{
    (void)state;
    const char *paths[] = { "count.u32" };
    write_tokens("count.u32", 4, 0, 2000, NULL);
    static const double shares[] = { 0.5, 0.1, 0.0333, 0.25 };
    for (int i = 0; i < 4; i++) {
        sglstore_tokens *tokens;
        sgl_tokens_config config = config_of(paths, 1);
        config.held_out = shares[i];
        must(sglstore_tokens_open(&tokens_env, &config, &tokens));
        sglstore_tokens_sizes sizes = sglstore_tokens_sizes_of(tokens);
        assert_int_equal(sizes.held_out, (int64_t)(2000 * shares[i]));
        assert_int_equal(sizes.train + sizes.held_out, 2000);
        check_cut(tokens, (int32_t)sizes.train, 2000);
        sglstore_tokens_free(tokens);
    }
    /* Too little for one batch of evaluation is said, not passed over. */
    sglstore_tokens *tokens;
    sgl_tokens_config config = config_of(paths, 1);
    config.held_out = 0.015;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    assert_string_equal(tokens_warning,
                        "count.u32: the 30 tokens held out make 3 windows of 9, fewer than a batch of 4: there "
                        "will be no evaluation");
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

/* Two files: numbers from 0 and from 10,000 on. No window holds both, and both come. */
static void test_two_files(void **state)
{
    (void)state;
    static int32_t starts[ROWS_MOST], inputs[32], targets[32];
    const char *paths[] = { "low.u32", "high.u32" };
    write_tokens("low.u32", 4, 0, 803, NULL);
    write_tokens("high.u32", 4, 10000, 405, NULL);
    sgl_tokens_config config = config_of(paths, 2);
    sglstore_tokens *tokens;
    config.held_out = 0.2; /* 241 of 1,208: all of them of the second file */
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    assert_int_equal(sglstore_tokens_sizes_of(tokens).train, 803 + 405 - 241);
    for (int64_t epoch = 0; epoch < 50; epoch++) {
        int64_t count = read_epoch(tokens, epoch, starts), low = 0;
        assert_int_equal(count, (99 + 19) / 4 * 4);
        qsort(starts, (size_t)count, sizeof starts[0], ascending);
        for (int64_t i = 0; i < count; i++) {
            if (i > 0) assert_true(starts[i] >= starts[i - 1] + 8);
            if (starts[i] < 10000) low++;
            assert_true(starts[i] + 8 < 803 || (starts[i] >= 10000 && starts[i] + 8 < 10000 + 405 - 241));
        }
        assert_in_range(low, 97, 99);
    }
    must(sglstore_tokens_eval(tokens, 0, inputs, targets));
    assert_int_equal(inputs[0], 10000 + 405 - 241);
    sglstore_tokens_free(tokens);

    /* Half of all: the end of the first file and the whole second one; evaluation goes from one to the other. */
    config.held_out = 0.5;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    assert_int_equal(sglstore_tokens_sizes_of(tokens).held_out, 604);
    read_epoch(tokens, 0, starts);
    for (int i = 0; i < 72; i++) assert_true(starts[i] + 8 < 604);
    bool low = false, high = false;
    for (int64_t cursor = 0; cursor < sglstore_tokens_sizes_of(tokens).eval_batches; cursor++) {
        must(sglstore_tokens_eval(tokens, cursor, inputs, targets));
        for (int row = 0; row < 4; row++) {
            assert_int_equal(targets[8 * row + 7], inputs[8 * row] + 8);
            low |= inputs[8 * row] >= 604 && inputs[8 * row] + 8 < 803;
            high |= inputs[8 * row] >= 10000;
            assert_true(inputs[8 * row] >= 604);
        }
    }
    assert_true(low && high);
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

/* ---- many files ------------------------------------------------------------------------------------------------- */

/* More files than are open at a time, named by a pattern: in the order of their names, whatever the order of the folder, and
 * each read again when it was closed in between. */
static void test_pattern(void **state)
{
    (void)state;
    enum { FILES = 2 * 64 + 7 };
    static int32_t starts[ROWS_MOST];
    char name[64];
    assert_int_equal(mkdir("shards", 0777), 0);
    for (int i = FILES; i-- > 0;) {
        snprintf(name, sizeof name, "shards/train_%03d.u32", i);
        write_tokens(name, 4, (uint32_t)i * 1000, 9, NULL);
    }
    write_tokens("shards/.train_hidden.u32", 4, 500000, 9, NULL);
    write_tokens("shards/valid_000.u32", 4, 500000, 9, NULL);
    write_tokens("shards/odd[1]*.u32", 4, 600000, 9, NULL);
    const char *paths[] = { "shards/train_*.u32", "shards/odd[1]*.u32" }; /* the second is a file's own name */
    sgl_tokens_config config = config_of(paths, 2);
    config.batch = 1;
    config.held_out = 0.01; /* the last tokens: of the last file */
    sglstore_tokens *tokens;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int64_t count = read_epoch(tokens, epoch, starts);
        assert_int_equal(count, FILES - 1); /* what is held out has taken the windows of the last two */
        qsort(starts, (size_t)count, sizeof starts[0], ascending);
        for (int i = 0; i < count; i++) assert_int_equal(starts[i], i * 1000);
    }
    sglstore_tokens_free(tokens);
    paths[0] = "train_*.u32";
    assert_int_equal(sglstore_tokens_open(&tokens_env, &config, &tokens), SGL_NOT_FOUND);
    assert_string_equal(tokens_env.message, "train_*.u32: no file in . has a name of this pattern");
    paths[0] = "nowhere/train_?.u32";
    assert_int_equal(sglstore_tokens_open(&tokens_env, &config, &tokens), SGL_NOT_FOUND);
    assert_string_equal(tokens_env.message, "cannot list nowhere/: No such file or directory");
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

/* A file that is cut off while it is read ends no process: the batch that meets the end says where. One that is made anew
 * when it has to be opened again is another file. */
static void test_files_that_change(void **state)
{
    (void)state;
    int32_t inputs[32], targets[32];
    write_tokens("cut.u32", 4, 0, 1000, NULL);
    sglstore_tokens *tokens = open_one("cut.u32", NULL);
    must(sglstore_tokens_train(tokens, 0, inputs, targets));
    assert_int_equal(truncate("cut.u32", 402), 0);
    int refused = 0;
    for (int64_t cursor = 0; cursor < 30; cursor++) {
        if (sglstore_tokens_train(tokens, cursor, inputs, targets) == SGL_OK) continue;
        refused++;
        long long offset = 0;
        assert_int_equal(
            sscanf(tokens_env.message, "cut.u32: offset %lld: the file ends before it; it had 4000 bytes", &offset), 1);
        assert_in_range(offset, 402, 4000);
    }
    assert_in_range(refused, 25, 30);
    assert_int_equal(truncate("cut.u32", 4000), 0);
    must(sglstore_tokens_train(tokens, 0, inputs, targets));
    sglstore_tokens_free(tokens);

    enum { FILES = 70 };
    const char *paths[FILES];
    static char names[FILES][32];
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "one_%02d.u32", i);
        write_tokens(names[i], 4, 0, 100, NULL);
        paths[i] = names[i];
    }
    sgl_tokens_config config = config_of(paths, FILES);
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    write_tokens("one_03.u32", 4, 0, 90, NULL); /* of the first ones, which are closed by now */
    refused = 0;
    for (int64_t cursor = 0; cursor < sglstore_tokens_sizes_of(tokens).train_batches; cursor++)
        refused += sglstore_tokens_train(tokens, cursor, inputs, targets) == SGL_CORRUPT;
    assert_true(refused > 0);
    assert_string_equal(tokens_env.message,
                        "one_03.u32: the file has changed: it had 400 bytes when it was opened, now 360");
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

int main(void)
{
    tokens_env_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_every_window_count),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_two_files),
        cmocka_unit_test(test_pattern),
        cmocka_unit_test(test_files_that_change),
    };
    return cmocka_run_group_tests_name("store tokens", tests, NULL, NULL);
}

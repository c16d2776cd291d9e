/* test_store_tokens.c -- token files: every format, every bad file with its name and offset, windows and their order,
 * what is held out, and byte models against a naive count. Most files hold the numbers 0, 1, 2, ..., so that a token says
 * where it stood. Started in an empty folder. */
#include "fault.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"

enum { ROWS_MOST = 64 * 64 };

static sglcore_env env;
static char warning[2048];

static void keep_warning(void *user, sgl_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, SGL_LOG_WARNING);
    snprintf(warning, sizeof warning, "%s", message);
}

static void must(sgl_status status)
{
    if (status != SGL_OK) fail_msg("%s: %s", sgl_status_name(status), env.message);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void write_bytes(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* `count` tokens first, first + 1, ... of that width behind `header` int32s (0: none; else magic, version, told). */
static void write_tokens(const char *path, int width, uint32_t first, uint32_t count, const uint32_t header[3])
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; header != NULL && i < 256; i++)
        for (int byte = 0; byte < 4; byte++) fputc(i < 3 ? (int)(header[i] >> (8 * byte) & 0xFF) : 0, file);
    for (uint32_t i = 0; i < count; i++)
        for (int byte = 0; byte < width; byte++) fputc((int)((first + i) >> (8 * byte) & 0xFF), file);
    assert_int_equal(fclose(file), 0);
}

static sgl_tokens_config config_of(const char *const *paths, int count)
{
    return (
        sgl_tokens_config){ .paths = paths, .path_count = count, .vocab = 1 << 20, .seq = 8, .batch = 4, .seed = 7 };
}

static sglstore_tokens *open_one(const char *path, const char *format)
{
    sglstore_tokens *tokens;
    const char *paths[] = { path };
    sgl_tokens_config config = config_of(paths, 1);
    config.format = format;
    must(sglstore_tokens_open(&env, &config, &tokens));
    return tokens;
}

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
    assert_int_equal(env.bytes_in_use, 0);
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
    assert_reads("text.txt", NULL, 0xFF);
    assert_reads("text.txt", "bytes", 0xFF);
    assert_reads("plain", NULL, 0xFF);
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

/* ---- bad files -------------------------------------------------------------------------------------------------- */

static void assert_refused(const sgl_tokens_config *config, sgl_status expected, const char *message)
{
    sglstore_tokens *tokens = (sglstore_tokens *)(void *)&env;
    sgl_status status = sglstore_tokens_open(&env, config, &tokens);
    assert_null(tokens);
    assert_string_equal(env.message, message);
    assert_int_equal(status, expected);
    assert_int_equal(env.bytes_in_use, 0);
}

static void assert_bad_file(const char *path, const char *format, sgl_status expected, const char *message)
{
    const char *paths[] = { "good", path };
    sgl_tokens_config config = config_of(paths, 2);
    config.format = format;
    if (format == NULL || strcmp(format, "bytes") != 0) config = config_of(paths + 1, 1);
    config.format = format;
    assert_refused(&config, expected, message);
}

static void test_bad_files(void **state)
{
    (void)state;
    write_tokens("good", 1, 0, 80, NULL);
    write_bytes("empty", "", 0);
    assert_bad_file("empty", "bytes", SGL_CORRUPT, "empty: the file is empty");
    assert_bad_file("empty", "llmc", SGL_CORRUPT, "empty: the file is empty");
    assert_bad_file("empty", NULL, SGL_CORRUPT, "empty: the file is empty");
    write_tokens("short", 1, 0, 8, NULL);
    assert_bad_file("short", "bytes", SGL_CORRUPT,
                    "short: offset 8: the file ends after 8 tokens; one window takes seq + 1 = 9");
    write_tokens("short.u32", 4, 0, 8, NULL);
    assert_bad_file("short.u32", NULL, SGL_CORRUPT,
                    "short.u32: offset 32: the file ends after 8 tokens; one window takes seq + 1 = 9");
    write_tokens("few", 1, 0, 32, NULL);
    assert_bad_file("few", NULL, SGL_CORRUPT, "few: 32 tokens for training make 3 windows of 9; a batch needs 4");
    write_tokens("odd.u16", 1, 0, 81, NULL);
    assert_bad_file("odd.u16", NULL, SGL_CORRUPT,
                    "odd.u16: offset 80: 1 bytes are left, a token takes 2; the file is cut off or not of format u16");
    write_tokens("odd.u32", 1, 0, 83, NULL);
    assert_bad_file("odd.u32", NULL, SGL_CORRUPT,
                    "odd.u32: offset 80: 3 bytes are left, a token takes 4; the file is cut off or not of format u32");
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_bad_file("folder", "bytes", SGL_IO, "cannot read the size of folder: Is a directory");
    assert_bad_file("missing", "bytes", SGL_NOT_FOUND, "cannot open missing: No such file or directory");
    assert_bad_file("", "bytes", SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
    assert_bad_file(NULL, "bytes", SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
}

static void test_headers_that_lie(void **state)
{
    (void)state;
    write_tokens("head.bin", 1, 0, 1023, NULL);
    assert_bad_file("head.bin", "llmc", SGL_CORRUPT, "head.bin: 1023 bytes, shorter than the header of 1024");
    write_tokens("magic.bin", 2, 0, 80, (uint32_t[]){ 20240521, 1, 80 });
    assert_bad_file("magic.bin", "llmc", SGL_CORRUPT,
                    "magic.bin: offset 0: the magic number is 20240521, not 20240520 or 20240801");
    write_tokens("version.bin", 2, 0, 80, (uint32_t[]){ 20240520, 7, 80 });
    assert_bad_file("version.bin", NULL, SGL_CORRUPT,
                    "version.bin: offset 4: version 7; with this magic number only version 1 is read");
    static const uint32_t told[] = { 79, 81, 0, UINT32_MAX };
    for (int i = 0; i < 4; i++) {
        char message[256];
        write_tokens("count.bin", 2, 0, 80, (uint32_t[]){ 20240520, 1, told[i] });
        snprintf(message, sizeof message,
                 "count.bin: offset 8: the header tells %u tokens of 2 bytes, the file holds 160 bytes of them",
                 told[i]);
        assert_bad_file("count.bin", NULL, SGL_CORRUPT, message);
    }
    write_tokens("cut.bin", 2, 0, 80, (uint32_t[]){ 20240520, 1, 80 });
    assert_int_equal(truncate("cut.bin", 1024 + 159), 0);
    assert_bad_file("cut.bin", NULL, SGL_CORRUPT,
                    "cut.bin: offset 8: the header tells 80 tokens of 2 bytes, the file holds 159 bytes of them");
    write_tokens("none.bin", 2, 0, 0, (uint32_t[]){ 20240520, 1, 0 });
    assert_bad_file("none.bin", NULL, SGL_CORRUPT,
                    "none.bin: offset 1024: the file ends after 0 tokens; one window takes seq + 1 = 9");
}

static void test_bad_configs(void **state)
{
    (void)state;
    const char *paths[] = { "good" };
    write_tokens("good", 1, 0, 80, NULL);
    sgl_tokens_config config = config_of(paths, 1);
    config.format = "byte";
    assert_refused(&config, SGL_INVALID_ARGUMENT,
                   "there is no token format 'byte'; did you mean 'bytes'?; there are bytes, u16, u32 and llmc");
    config.format = "parquet!";
    assert_refused(&config, SGL_INVALID_ARGUMENT,
                   "there is no token format 'parquet!'; there are bytes, u16, u32 and llmc");
    config = config_of(paths, 0);
    assert_refused(&config, SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
    config = config_of(NULL, 1);
    assert_refused(&config, SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
    int64_t *const fields[] = { &config.seq, &config.batch, &config.vocab };
    for (int i = 0; i < 3; i++) {
        static const int64_t wrong[] = { 0, -1, (int64_t)1 << 31 };
        for (int j = 0; j < 3; j++) {
            sglstore_tokens *tokens;
            config = config_of(paths, 1);
            *fields[i] = wrong[j];
            assert_int_equal(sglstore_tokens_open(&env, &config, &tokens), SGL_INVALID_ARGUMENT);
            assert_non_null(strstr(env.message, "must be at least 1 and below 2^31"));
        }
    }
    static const double shares[] = { -0.1, 0.51, NAN, INFINITY };
    for (int i = 0; i < 4; i++) {
        sglstore_tokens *tokens;
        config = config_of(paths, 1);
        config.held_out = shares[i];
        assert_int_equal(sglstore_tokens_open(&env, &config, &tokens), SGL_INVALID_ARGUMENT);
        assert_non_null(strstr(env.message, "data: held_out must be within 0 .. 0.5, not "));
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* Puts `token` in the place of token number `index`. */
static void put_token(const char *path, int64_t header, int width, int64_t index, uint32_t token)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(header + index * width), SEEK_SET), 0);
    for (int byte = 0; byte < width; byte++) fputc((int)(token >> (8 * byte) & 0xFF), file);
    assert_int_equal(fclose(file), 0);
}

/* Tokens 37 and, held out, 100 are outside the vocabulary: the one batch that holds each names its exact offset. */
static void assert_offset(const char *path, int64_t header, int width, int64_t vocab)
{
    int32_t inputs[32], targets[32];
    char message[256];
    sglstore_tokens *tokens;
    const char *paths[] = { path };
    sgl_tokens_config config = config_of(paths, 1);
    config.vocab = vocab;
    config.held_out = 0.5;
    put_token(path, header, width, 37, (uint32_t)vocab);
    put_token(path, header, width, 100, (uint32_t)vocab + 1);
    must(sglstore_tokens_open(&env, &config, &tokens));
    for (int eval = 0; eval < 2; eval++) {
        int refused = 0;
        for (int64_t cursor = 0; cursor < 2; cursor++) {
            sgl_status status = (eval ? sglstore_tokens_eval : sglstore_tokens_train)(tokens, cursor, inputs, targets);
            if (status == SGL_OK) continue;
            refused++;
            snprintf(message, sizeof message, "%s: offset %lld: token %lld is outside the vocabulary of %lld", path,
                     (long long)(header + (eval ? 100 : 37) * width), (long long)vocab + eval, (long long)vocab);
            assert_int_equal(status, SGL_CORRUPT);
            assert_string_equal(env.message, message);
        }
        assert_int_equal(refused, 1);
    }
    sglstore_tokens_free(tokens);
}

static void test_vocabulary(void **state)
{
    (void)state;
    int32_t inputs[32], targets[32];
    write_tokens("v.txt", 1, 0, 160, NULL);
    write_tokens("v.u16", 2, 0, 160, NULL);
    write_tokens("v.u32", 4, 0, 160, NULL);
    write_tokens("v.bin", 2, 0, 160, (uint32_t[]){ 20240520, 1, 160 });
    assert_offset("v.txt", 0, 1, 200);
    assert_offset("v.u16", 0, 2, 1234);
    assert_offset("v.u32", 0, 4, 1 << 20);
    assert_offset("v.bin", 1024, 2, 50257);

    /* No number is taken for a negative one. */
    write_tokens("huge.u32", 4, 0xFFFFFF00, 80, NULL);
    sglstore_tokens *tokens = open_one("huge.u32", NULL);
    assert_int_equal(sglstore_tokens_train(tokens, 0, inputs, targets), SGL_CORRUPT);
    assert_non_null(strstr(env.message, "huge.u32: offset "));
    assert_non_null(strstr(env.message, "is outside the vocabulary of 1048576"));
    sglstore_tokens_free(tokens);
    assert_int_equal(env.bytes_in_use, 0);
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
    must(sglstore_tokens_open(&env, &config, &tokens));
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
    assert_int_equal(env.bytes_in_use, 0);
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
        must(sglstore_tokens_open(&env, &config, &tokens));
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
        must(sglstore_tokens_open(&env, &config, &seeded));
        assert_int_equal(read_epoch(seeded, 0, other), count);
        assert_memory_not_equal(first, other, (size_t)count * sizeof other[0]);
        memcpy(again, first, sizeof first);
        sglstore_tokens_free(seeded);
    }
    sglstore_tokens_free(one);
    sglstore_tokens_free(two);
    assert_int_equal(env.bytes_in_use, 0);
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
    assert_non_null(strstr(env.message, "the held-out part has "));
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
        must(sglstore_tokens_open(&env, &config, &tokens));
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
    must(sglstore_tokens_open(&env, &config, &tokens));
    assert_string_equal(warning,
                        "count.u32: the 30 tokens held out make 3 windows of 9, fewer than a batch of 4: there "
                        "will be no evaluation");
    sglstore_tokens_free(tokens);
    assert_int_equal(env.bytes_in_use, 0);
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
    must(sglstore_tokens_open(&env, &config, &tokens));
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
    must(sglstore_tokens_open(&env, &config, &tokens));
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
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- byte models ------------------------------------------------------------------------------------------------ */

/* A made-up text with repetitions. */
static size_t make_text(char *text, size_t bytes)
{
    static const char *const words[] = { "the ", "cat ", "sat ", "on ", "a ", "mat", ".\n", "that ", "hat" };
    uint32_t counter[4] = { 0 }, out[4];
    size_t length = 0;
    while (length + 8 < bytes) {
        sglcore_philox(counter, (uint32_t[]){ 1, 2 }, out);
        counter[0]++;
        length += (size_t)snprintf(text + length, bytes - length, "%s", words[out[0] % 9]);
    }
    return length;
}

/* p(next | the k bytes before it) as the formula says, counted by looking through all of the training text. */
static double naive(const char *text, int64_t limit, const char *history, int k, char next)
{
    double lower = k == 0 ? 1.0 / 256 : naive(text, limit, history, k - 1, next);
    int64_t context = 0, pair = 0;
    bool seen[256] = { false };
    int kinds = 0;
    for (int64_t at = k; at < limit; at++) {
        if (memcmp(text + at - k, history - k, (size_t)k) != 0) continue;
        context++;
        pair += text[at] == next;
        kinds += !seen[(unsigned char)text[at]];
        seen[(unsigned char)text[at]] = true;
    }
    return context > 0 ? ((double)pair + kinds * lower) / ((double)context + kinds) : lower;
}

static void test_byte_models(void **state)
{
    (void)state;
    static char text[1500];
    int64_t bytes = (int64_t)make_text(text, sizeof text), limit = bytes - bytes / 5;
    double last = 6, nats;
    write_bytes("text", text, (size_t)bytes);
    const char *paths[] = { "text" };
    sgl_tokens_config config = config_of(paths, 1);
    sglstore_tokens *tokens;
    config.held_out = 0.2;
    must(sglstore_tokens_open(&env, &config, &tokens));
    for (int order = 1; order <= 5; order++) {
        double sum = 0;
        for (int64_t at = limit + 1; at < bytes; at++) {
            int64_t known = at - limit;
            sum -= log(naive(text, limit, text + at, known < order - 1 ? (int)known : order - 1, text[at]));
        }
        must(sglstore_tokens_ngram_loss(tokens, order, &nats));
        assert_true(fabs(nats - sum / (double)(bytes - limit - 1)) < 1e-12);
        if (order <= 3) assert_true(nats < last); /* each order tells more, on such a text */
        last = nats;
    }
    assert_int_equal(sglstore_tokens_ngram_loss(tokens, 0, &nats), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_tokens_ngram_loss(tokens, 6, &nats), SGL_INVALID_ARGUMENT);
    assert_string_equal(env.message, "a byte model of order 6: the order is 1 .. 5");
    sglstore_tokens_free(tokens);

    /* The same text twice as two files: every count doubles, and no context crosses from one to the other. */
    const char *twice[] = { "text", "text" };
    config.paths = twice;
    config.path_count = 2;
    config.held_out = 0.5;
    must(sglstore_tokens_open(&env, &config, &tokens));
    must(sglstore_tokens_ngram_loss(tokens, 2, &nats));
    double sum = 0;
    for (int64_t at = 1; at < bytes; at++) sum -= log(naive(text, bytes, text + at, 1, text[at]));
    assert_true(fabs(nats - sum / (double)(bytes - 1)) < 1e-12);
    sglstore_tokens_free(tokens);

    tokens = open_one("text", NULL);
    assert_int_equal(sglstore_tokens_ngram_loss(tokens, 2, &nats), SGL_NOT_FOUND);
    assert_string_equal(env.message, "text: nothing is held out");
    sglstore_tokens_free(tokens);
    write_tokens("t.u16", 2, 0, 80, NULL);
    tokens = open_one("t.u16", NULL);
    assert_int_equal(sglstore_tokens_ngram_loss(tokens, 2, &nats), SGL_UNSUPPORTED);
    assert_string_equal(env.message, "t.u16: a byte model needs a file of bytes");
    sglstore_tokens_free(tokens);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- faults ----------------------------------------------------------------------------------------------------- */

static sgl_status open_and_read(sglcore_env *faulty, void *context)
{
    int32_t inputs[32], targets[32];
    double nats;
    const char *paths[] = { "text", "text" };
    sgl_tokens_config config = config_of(paths, 2);
    sglstore_tokens *tokens;
    config.held_out = 0.2;
    sgl_status status = sglstore_tokens_open(faulty, &config, &tokens);
    if (status == SGL_OK) status = sglstore_tokens_train(tokens, 3, inputs, targets);
    if (status == SGL_OK) status = sglstore_tokens_ngram_loss(tokens, 3, &nats);
    sglstore_tokens_free(tokens);
    (void)context;
    return status;
}

static void test_faults(void **state)
{
    (void)state;
    static char text[1500];
    write_bytes("text", text, make_text(text, sizeof text));
    assert_true(fault_each_allocation(open_and_read, NULL) >= 10);
    /* open, size, map, close of each file; closing and, at the end, unmapping may fail */
    assert_int_equal(fault_each_io_tolerant(open_and_read, NULL, NULL), 10);
}

int main(void)
{
    sglcore_env_init(&env, NULL, NULL, keep_warning, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_headers_that_lie),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_every_window_count),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_two_files),
        cmocka_unit_test(test_byte_models),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("store tokens", tests, NULL, NULL);
}

/* test_store_tokens_bad.c -- bad token files and settings, each with its name, and its offset where there is one; tokens
 * outside the vocabulary. Started in an empty folder. */
#include "tokens_cases.h"

#include <math.h>
#include <sys/stat.h>

/* ---- bad files -------------------------------------------------------------------------------------------------- */

static void assert_refused(const sgl_tokens_config *config, sgl_status expected, const char *message)
{
    sglstore_tokens *tokens = (sglstore_tokens *)(void *)&tokens_env;
    sgl_status status = sglstore_tokens_open(&tokens_env, config, &tokens);
    assert_null(tokens);
    assert_string_equal(tokens_env.message, message);
    assert_int_equal(status, expected);
    assert_int_equal(tokens_env.bytes_in_use, 0);
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
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_bad_file(
        "pipe", "bytes", SGL_INVALID_ARGUMENT,
        "pipe: it is a pipe or a device, and data are read at any place: write them to a file, and name that");
    assert_bad_file(
        "/dev/zero", "u16", SGL_INVALID_ARGUMENT,
        "/dev/zero: it is a pipe or a device, and data are read at any place: write them to a file, and name "
        "that");
    write_tokens("short", 1, 0, 8, NULL);
    assert_bad_file("short", "bytes", SGL_CORRUPT,
                    "short: offset 8: the file ends after 8 tokens; one window takes seq + 1 = 9");
    write_tokens("short.u32", 4, 0, 8, NULL);
    assert_bad_file("short.u32", NULL, SGL_CORRUPT,
                    "short.u32: offset 32: the file ends after 8 tokens; one window takes seq + 1 = 9");
    write_tokens("few.u16", 2, 0, 32, NULL);
    assert_bad_file("few.u16", NULL, SGL_CORRUPT,
                    "few.u16: 32 tokens for training make 3 windows of 9; a batch needs 4");
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

/* What would train, quietly, on wrong tokens. */
static void test_formats_that_are_not(void **state)
{
    (void)state;
    static const char *const raw[] = { "u16", "u32", "bytes" };
    write_tokens("good", 1, 0, 80, NULL);
    write_tokens("headed", 2, 0, 80, (uint32_t[]){ 20240520, 1, 80 });
    for (int i = 0; i < 3; i++) {
        char message[256];
        snprintf(
            message, sizeof message,
            "headed: offset 0: it begins with the header of llm.c (magic number 20240520), which format %s would read "
            "as tokens; leave the format out, or give \"llmc\"",
            raw[i]);
        assert_bad_file("headed", raw[i], SGL_CORRUPT, message);
    }
    const char *paths[] = { "good" };
    sgl_tokens_config config = config_of(paths, 1);
    config.vocab = 257;
    assert_refused(
        &config, SGL_INVALID_ARGUMENT,
        "good: neither its name (.bin, .u16, .u32) nor a header tells how wide its tokens are, and a vocabulary "
        "of 257 is more than bytes have; give format = \"u16\", \"u32\", \"llmc\" or \"bytes\"");
    sglstore_tokens *tokens;
    config.vocab = 256;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
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
            assert_int_equal(sglstore_tokens_open(&tokens_env, &config, &tokens), SGL_INVALID_ARGUMENT);
            assert_non_null(strstr(tokens_env.message, "must be at least 1 and below 2^31"));
        }
    }
    static const double shares[] = { -0.1, 0.51, NAN, INFINITY };
    for (int i = 0; i < 4; i++) {
        sglstore_tokens *tokens;
        config = config_of(paths, 1);
        config.held_out = shares[i];
        assert_int_equal(sglstore_tokens_open(&tokens_env, &config, &tokens), SGL_INVALID_ARGUMENT);
        assert_non_null(strstr(tokens_env.message, "data: held_out must be within 0 .. 0.5, not "));
    }
    assert_int_equal(tokens_env.bytes_in_use, 0);
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
    config.format = width == 1 ? "bytes" : NULL;
    put_token(path, header, width, 37, (uint32_t)vocab);
    put_token(path, header, width, 100, (uint32_t)vocab + 1);
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    for (int eval = 0; eval < 2; eval++) {
        int refused = 0;
        for (int64_t cursor = 0; cursor < 2; cursor++) {
            sgl_status status = (eval ? sglstore_tokens_eval : sglstore_tokens_train)(tokens, cursor, inputs, targets);
            if (status == SGL_OK) continue;
            refused++;
            snprintf(message, sizeof message, "%s: offset %lld: token %lld is outside the vocabulary of %lld", path,
                     (long long)(header + (eval ? 100 : 37) * width), (long long)vocab + eval, (long long)vocab);
            assert_int_equal(status, SGL_CORRUPT);
            assert_string_equal(tokens_env.message, message);
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
    assert_non_null(strstr(tokens_env.message, "huge.u32: offset "));
    assert_non_null(strstr(tokens_env.message, "is outside the vocabulary of 1048576"));
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

/* The scan at the start finds the first bad token wherever it stands, and reads nothing where none can be. */
static void test_scan(void **state)
{
    (void)state;
    enum { COUNT = 3 * (1 << 20) / 2 + 5 }; /* of two bytes: three blocks and a little */
    static uint16_t words[COUNT];
    static const int64_t places[] = { COUNT - 1, COUNT - 6, (1 << 20) / 2, (1 << 20) / 2 - 1, 0 };
    const char *paths[] = { "good.u16", "scan.u16" };
    sgl_tokens_config config = config_of(paths, 2);
    sglstore_tokens *tokens;
    atomic_int interrupted = 0;
    char message[256];
    config.vocab = 1000;
    write_tokens("good.u16", 2, 0, 1000, NULL);
    for (int64_t i = 0; i < COUNT; i++) words[i] = (uint16_t)(i % 1000);
    for (int i = -1; i < 5; i++) {
        if (i >= 0) words[places[i]] = 1000;
        write_bytes("scan.u16", words, sizeof words);
        must(sglstore_tokens_open(&tokens_env, &config, &tokens));
        sgl_status status = sglstore_tokens_scan(tokens, i % 2 ? NULL : &interrupted);
        assert_int_equal(status, i < 0 ? SGL_OK : SGL_CORRUPT);
        if (i >= 0) {
            snprintf(message, sizeof message, "scan.u16: offset %lld: token 1000 is outside the vocabulary of 1000",
                     (long long)places[i] * 2);
            assert_string_equal(tokens_env.message, message);
        }
        sglstore_tokens_free(tokens);
    }
    interrupted = 1;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    assert_int_equal(sglstore_tokens_scan(tokens, &interrupted), SGL_INTERRUPTED);
    assert_string_equal(tokens_env.message, "good.u16: interrupted while its tokens were checked");
    sglstore_tokens_free(tokens);
    config.vocab = 1 << 16;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    must(sglstore_tokens_scan(tokens, &interrupted)); /* there is nothing to be interrupted */
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
}

int main(void)
{
    tokens_env_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_headers_that_lie),
        cmocka_unit_test(test_formats_that_are_not),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_scan),
    };
    return cmocka_run_group_tests_name("store tokens, bad files", tests, NULL, NULL);
}

/* test_store_ngram.c -- byte models, the yardstick of a small model's loss, against a naive count of the same formula on
 * a small text; every allocation and file operation failing while tokens are opened, read and counted. Started in an empty
 * folder. */
#include "tokens_cases.h"

#include <math.h>

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
    config.format = "bytes";
    sglstore_tokens *tokens;
    config.held_out = 0.2;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
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
    assert_string_equal(tokens_env.message, "a byte model of order 6: the order is 1 .. 5");
    sglstore_tokens_free(tokens);

    /* The same text twice as two files: every count doubles, and no context crosses from one to the other. */
    const char *twice[] = { "text", "text" };
    config.paths = twice;
    config.path_count = 2;
    config.held_out = 0.5;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    must(sglstore_tokens_ngram_loss(tokens, 2, &nats));
    double sum = 0;
    for (int64_t at = 1; at < bytes; at++) sum -= log(naive(text, bytes, text + at, 1, text[at]));
    assert_true(fabs(nats - sum / (double)(bytes - 1)) < 1e-12);
    sglstore_tokens_free(tokens);

    tokens = open_one("text", "bytes");
    assert_int_equal(sglstore_tokens_ngram_loss(tokens, 2, &nats), SGL_NOT_FOUND);
    assert_string_equal(tokens_env.message, "text: nothing is held out");
    sglstore_tokens_free(tokens);
    write_tokens("t.u16", 2, 0, 80, NULL);
    tokens = open_one("t.u16", NULL);
    assert_int_equal(sglstore_tokens_ngram_loss(tokens, 2, &nats), SGL_UNSUPPORTED);
    assert_string_equal(tokens_env.message, "t.u16: a byte model needs a file of bytes");
    sglstore_tokens_free(tokens);
    assert_int_equal(tokens_env.bytes_in_use, 0);
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
    config.format = "bytes";
    config.vocab = 128;
    sgl_status status = sglstore_tokens_open(faulty, &config, &tokens);
    if (status == SGL_OK) status = sglstore_tokens_scan(tokens, NULL);
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
    /* Of each file: open, size, head, scan, close, which may fail; four windows; three parts of files for the model. */
    assert_int_equal(fault_each_io_tolerant(open_and_read, NULL, NULL), 2 * 5 + 4 + 3);
}

int main(void)
{
    tokens_env_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_byte_models), cmocka_unit_test(test_faults) };
    return cmocka_run_group_tests_name("store byte models", tests, NULL, NULL);
}

/* fuzz_tokens.c -- any bytes as a token file. The first bytes choose format, vocabulary, sequence and batch; what is opened
 * gives batches of tokens below the vocabulary. The file is one in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { CHOICES = 5 };

static void demand(bool held)
{
    if (!held) abort();
}

static void read_batches(sglstore_tokens *tokens, const sgl_tokens_config *config)
{
    sglstore_tokens_sizes sizes = sglstore_tokens_sizes_of(tokens);
    int64_t count = config->batch * config->seq;
    int32_t *inputs = malloc((size_t)count * sizeof *inputs), *targets = malloc((size_t)count * sizeof *targets);
    demand(inputs != NULL && targets != NULL && sizes.train >= 0 && sizes.held_out >= 0);
    for (int64_t cursor = 0; cursor < 3; cursor++) {
        bool train = cursor < 2;
        sgl_status status = train ? sglstore_tokens_train(tokens, cursor * 1000003, inputs, targets)
                                  : sglstore_tokens_eval(tokens, 0, inputs, targets);
        for (int64_t i = 0; status == SGL_OK && i < count; i++)
            demand(inputs[i] >= 0 && inputs[i] < config->vocab && targets[i] >= 0 && targets[i] < config->vocab);
    }
    free(inputs);
    free(targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const formats[] = { NULL, "bytes", "u16", "u32", "llmc" };
    char path[64];
    const char *paths[1] = { path };
    if (bytes < CHOICES) return 0;
    int fd = memfd_create("tokens", 0);
    demand(fd >= 0 && write(fd, data + CHOICES, bytes - CHOICES) == (ssize_t)(bytes - CHOICES));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const sgl_tokens_config config = { .paths = paths,
                                       .path_count = 1,
                                       .format = formats[data[0] % 5],
                                       .vocab = 1 + (int64_t)data[1] * 257,
                                       .seq = 1 + data[2] % 16,
                                       .batch = 1 + data[3] % 4,
                                       .seed = data[4],
                                       .held_out = data[4] % 6 * 0.1 };
    sglcore_env env;
    sglstore_tokens *tokens = NULL;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sgl_status status = sglstore_tokens_open(&env, &config, &tokens);
    demand((status == SGL_OK) == (tokens != NULL));
    if (tokens != NULL) {
        double nats;
        read_batches(tokens, &config);
        if (bytes < 4096) (void)sglstore_tokens_ngram_loss(tokens, 1 + data[4] % 3, &nats);
    }
    sglstore_tokens_free(tokens);
    close(fd);
    demand(env.bytes_in_use == 0);
    return 0;
}

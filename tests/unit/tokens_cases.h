/* tokens_cases.h -- token files for tests: written with the numbers first, first + 1, ... so that a token says where it
 * stood, and opened. In: paths and counts. Out: files in the folder at hand, tokens of one environment that keeps the last
 * warning. */
#ifndef TOKENS_CASES_H
#define TOKENS_CASES_H

#include "fault.h"

#include <stdio.h>
#include <unistd.h>

#include "store/store.h"

enum { ROWS_MOST = 64 * 64 };

static sglcore_env tokens_env;
static char tokens_warning[2048];

static inline void keep_warning(void *user, sgl_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, SGL_LOG_WARNING);
    snprintf(tokens_warning, sizeof tokens_warning, "%s", message);
}

static inline void must(sgl_status status)
{
    if (status != SGL_OK) fail_msg("%s: %s", sgl_status_name(status), tokens_env.message);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static inline void write_bytes(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* `count` tokens first, first + 1, ... of that width behind `header` int32s (0: none; else magic, version, told). */
static inline void write_tokens(const char *path, int width, uint32_t first, uint32_t count, const uint32_t header[3])
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; header != NULL && i < 256; i++)
        for (int byte = 0; byte < 4; byte++) fputc(i < 3 ? (int)(header[i] >> (8 * byte) & 0xFF) : 0, file);
    for (uint32_t i = 0; i < count; i++)
        for (int byte = 0; byte < width; byte++) fputc((int)((first + i) >> (8 * byte) & 0xFF), file);
    assert_int_equal(fclose(file), 0);
}

static inline sgl_tokens_config config_of(const char *const *paths, int count)
{
    return (
        sgl_tokens_config){ .paths = paths, .path_count = count, .vocab = 1 << 20, .seq = 8, .batch = 4, .seed = 7 };
}

static inline sglstore_tokens *open_one(const char *path, const char *format)
{
    sglstore_tokens *tokens;
    const char *paths[] = { path };
    sgl_tokens_config config = config_of(paths, 1);
    config.format = format;
    must(sglstore_tokens_open(&tokens_env, &config, &tokens));
    return tokens;
}

static inline void tokens_env_init(void) { sglcore_env_init(&tokens_env, NULL, NULL, keep_warning, NULL); }

#endif

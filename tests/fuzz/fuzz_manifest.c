/* fuzz_manifest.c -- any bytes as the manifest of a checkpoint. A seal that fits is set behind them when the first byte is
 * odd, so that what follows the check of the hash is reached. What is read is written and read again, the same. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct file {
    char *data;
    int64_t bytes;
} file;

static void demand(bool held)
{
    if (!held) abort();
}

static int open_it(void *user, const char *path, int *fd)
{
    (void)user;
    (void)path;
    *fd = 9;
    return 0;
}

static int close_it(void *user, int fd)
{
    (void)user;
    demand(fd == 9);
    return 0;
}

static int size_of_it(void *user, int fd, int64_t *bytes)
{
    (void)fd;
    *bytes = ((file *)user)->bytes;
    return 0;
}

static int read_it(void *user, int fd, void *data, size_t bytes, int64_t offset, size_t *got)
{
    const file *f = user;
    (void)fd;
    int64_t left = offset < f->bytes ? f->bytes - offset : 0;
    *got = (int64_t)bytes < left ? bytes : (size_t)left;
    memcpy(data, f->data + offset, *got);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char head[] = "\"xxh3_128\": \"";
    char hash[33];
    if (bytes < 1) return 0;
    bool sealed = data[0] & 1;
    file f = { .data = malloc(bytes + 128) };
    demand(f.data != NULL);
    memcpy(f.data, data + 1, bytes - 1);
    f.bytes = (int64_t)bytes - 1;
    if (sealed) {
        sglcore_hash_text(sglcore_hash_bytes(f.data, (size_t)f.bytes), hash);
        f.bytes += sprintf(f.data + f.bytes, "%s%s\"\n}\n", head, hash);
    }
    sglcore_env env;
    sglcore_io io = sglcore_io_posix;
    io.user = &f;
    io.open_read = open_it;
    io.close = close_it;
    io.size = size_of_it;
    io.read_at = read_it;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    env.io = &io;
    sglstore_manifest manifest;
    sgl_status status = sglstore_manifest_read(&env, "checkpoint", &manifest);
    demand(status == SGL_OK || env.message[0] != '\0');
    if (status == SGL_OK) {
        for (int64_t s = 0; s < manifest.sheets.count; s++) {
            for (int64_t r = 0; r < manifest.sheets.data[s].rows.count; r++) {
                const sglstore_row *row = &manifest.sheets.data[s].rows.data[r];
                const sgl_type type = sglstore_row_type(row);
                demand(strlen(row->name) < bytes && strlen(row->hash) == 32 && sglstore_bytes_of(&row->type) >= 0);
                demand(sglstore_bytes_of(&type) <= sglstore_bytes_of(&row->type));
            }
        }
        demand(sglstore_check_meta(&env, manifest.meta.data) == SGL_OK);
        sglstore_manifest_free(&manifest);
    }
    free(f.data);
    demand(env.bytes_in_use == 0);
    return 0;
}

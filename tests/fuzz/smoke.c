/* smoke.c -- runs a fuzz target without libFuzzer: every file of a corpus, then seeded mutations of them for some seconds.
 *
 * In: the folder of the corpus, the seconds. Out: status 0; a target that breaks a promise ends the process. The same
 * seconds do not give the same number of tries, but try n is always the same, and its number is told when a signal ends it. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_FILES = 64, MOST_BYTES = 1 << 16 };

typedef struct sample {
    uint8_t *data;
    size_t bytes;
} sample;

static sample samples[MOST_FILES];
static int sample_count;
static volatile uint64_t try_number;
static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static void tell(int signal_number)
{
    char text[64];
    int length = snprintf(text, sizeof text, "try %llu of the mutations\n", (unsigned long long)try_number);
    if (write(2, text, (size_t)length) < 0) _exit(1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int read_sample(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || sample_count == MOST_FILES) return -1;
    sample *s = &samples[sample_count++];
    s->data = malloc(MOST_BYTES);
    s->bytes = s->data != NULL ? fread(s->data, 1, MOST_BYTES, file) : 0;
    fclose(file);
    return s->data != NULL ? 0 : -1;
}

/* In a block of exactly its bytes, so that the sanitizers see a step too far. */
static void try_bytes(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes > 0 ? bytes : 1);
    if (exact == NULL) exit(1);
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

/* Some bytes changed, cut out, doubled, or taken from another sample. */
static size_t mutate(uint8_t *data, size_t bytes)
{
    for (uint64_t changes = 1 + draw(6); changes > 0; changes--) {
        size_t at = bytes > 0 ? draw(bytes) : 0, length = 1 + draw(16);
        const sample *other = &samples[draw((uint64_t)sample_count)];
        if (length > bytes - at) length = bytes - at;
        switch (draw(5)) {
        case 0:
            if (bytes > 0) data[at] = (uint8_t)draw(256);
            break;
        case 1:
            if (bytes > 0) data[at] ^= (uint8_t)(1 << draw(8));
            break;
        case 2:
            memmove(data + at, data + at + length, bytes - at - length);
            bytes -= length;
            break;
        case 3:
            if (bytes + length > MOST_BYTES) break;
            memmove(data + at + length, data + at, bytes - at);
            bytes += length;
            break;
        default:
            if (other->bytes > 0) {
                size_t from = draw(other->bytes);
                if (length > other->bytes - from) length = other->bytes - from;
                memcpy(data + at, other->data + from, length);
            }
            break;
        }
    }
    return bytes;
}

int main(int argc, char **argv)
{
    static uint8_t data[MOST_BYTES];
    if (argc != 3) return 2;
    DIR *folder = opendir(argv[1]);
    if (folder == NULL) return 2;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.' && read_sample(argv[1], entry->d_name) != 0) return 2;
    }
    closedir(folder);
    if (sample_count == 0) return 2;
    signal(SIGABRT, tell);
    for (int i = 0; i < sample_count; i++) try_bytes(samples[i].data, samples[i].bytes);
    for (time_t end = time(NULL) + atoi(argv[2]); time(NULL) < end; try_number++) {
        state = try_number * 2 + 1;
        const sample *s = &samples[draw((uint64_t)sample_count)];
        memcpy(data, s->data, s->bytes);
        try_bytes(data, mutate(data, s->bytes));
    }
    printf("%llu mutations\n", (unsigned long long)try_number);
    for (int i = 0; i < sample_count; i++) free(samples[i].data);
    return 0;
}

/* random.c -- random programs of many seeds on many cores: `random FIRST LAST [JOBS]`, for scripts/nightly and other machines.
 *
 * Linked with archives, so that it runs where neither Lua nor the other libraries are installed (only glibc). In:
 * seeds. Out: what fails, as random_seeds.h says, what was drawn (random_cover.h), and one closing line; the status is
 * 1 when any seed failed. Each job is a process of its own and takes every JOBS-th seed: a crash costs the rest of its
 * seeds, and is told. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/random_cover.h"
#include "tests/support/random_seeds.h"

enum { MOST_JOBS = 256, MOST_TOLD = 100 };

/* How many fail of first, first + step, ... last; no more than an exit status holds. *at is the one that runs. */
static int failures_in(uint64_t first, uint64_t last, uint64_t step, uint64_t *at)
{
    int failures = 0;
    for (*at = first; *at <= last; *at += step) failures += !random_seed(*at);
    fflush(stdout);
    return failures < MOST_TOLD ? failures : MOST_TOLD;
}

static int run_jobs(uint64_t first, uint64_t last, int jobs)
{
    int failures = 0, status;
    pid_t pids[MOST_JOBS];
    uint64_t *at =
        mmap(NULL, MOST_JOBS * sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* per job */
    random_cover *covers =
        mmap(NULL, MOST_JOBS * sizeof *covers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || covers == MAP_FAILED) {
        perror("random: mmap");
        return 1;
    }
    for (int job = 0; job < jobs; job++) {
        pids[job] = fork();
        if (pids[job] == 0) random_cover_at(&covers[job]);
        if (pids[job] == 0) _exit(failures_in(first + (uint64_t)job, last, (uint64_t)jobs, &at[job]));
        if (pids[job] < 0) perror("random: fork");
    }
    for (int job = 0; job < jobs; job++) {
        if (pids[job] > 0 && waitpid(pids[job], &status, 0) == pids[job] && WIFEXITED(status)) {
            failures += WEXITSTATUS(status);
            continue;
        }
        printf("seed %" PRIu64 ": the process ended by signal %d; every %d-th seed behind it was not run\n", at[job],
               pids[job] > 0 ? WTERMSIG(status) : 0, jobs);
        failures++;
    }
    for (int job = 0; job < jobs; job++) random_cover_add(&covers[job]);
    return failures;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 2 ? strtoull(argv[1], NULL, 10) : 0, last = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    int jobs = argc > 3 ? atoi(argv[3]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (argc < 3 || argc > 4 || first == 0 || last < first || jobs < 1 || jobs > MOST_JOBS) {
        fprintf(stderr, "usage: random FIRST LAST [JOBS]: seeds from 1 on, 1 to %d jobs\n", MOST_JOBS);
        return 2;
    }
    setvbuf(stdout, NULL, _IOFBF, 1 << 16); /* what one process prints stays together */
    int failures = run_jobs(first, last, jobs);
    random_cover_print(stdout);
    printf("random: seeds %" PRIu64 "..%" PRIu64 ": %d failures\n", first, last, failures);
    return failures > 0;
}

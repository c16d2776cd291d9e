/* comm_bench.c -- what the transport reaches: time and CPU of exchanges, on the link as it is and on a shaped one.
 *
 * In: run under mpirun; SGL_NET as in a job. Out, from rank 0: of each size the best and the median time of an all_reduce over all
 * ranks, its bandwidth by bytes of the buffer, the CPU that a rank takes while it waits, and on a shaped link the formula of
 * collectives/shape.c and how far the median is from it. Built by the target comm_bench; scripts/bench-comm runs it beside
 * mpi_bench.c, a plain loop of MPI_Allreduce. Compare figures of one run only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "collectives/collectives.h"
#include "wire.h"

enum { MOST_RUNS = 4000 };
static double took[MOST_RUNS];

static double now_s(void) { return (double)sglcore_now_ns() / 1e9; }

static double cpu_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sgl_status reduce(const sglexec_comm_ops *ops, sglexec_group *group, float *from, float *to, int64_t count)
{
    uint32_t ticket;
    const sglexec_exchange x = {
        .kind = SGLEXEC_ALL_REDUCE, .dtype = SGL_F32, .count = count, .from = from, .to = to, .label = "bench"
    };
    SGLCORE_TRY(ops->start(group, &x, NULL, &ticket));
    return ops->wait(group, ticket, NULL);
}

/* 32 KB of all ranks and less go by doubling: all bytes of the others in log2(n) rounds. */
static double formula_s(const sglexec_comm_options *options, int ranks, double bytes)
{
    const bool shaped = options->bytes_per_s > 0 || options->latency_us > 0;
    const double rate = options->bytes_per_s > 0 ? options->bytes_per_s : 1e30, latency_s = options->latency_us / 1e6;
    int rounds = 0;
    while (1 << rounds < ranks) rounds++;
    if (!shaped) return 0;
    if (bytes * ranks <= 32 << 10) return (ranks - 1) * bytes / rate + rounds * latency_s;
    return 2.0 * (ranks - 1) / ranks * bytes / rate + 2 * latency_s;
}

int main(void)
{
    static const struct {
        int64_t bytes;
        int runs;
    } rows[] = { { 1 << 10, 2000 }, { 128 << 10, 200 }, { 1 << 20, 60 }, { 16 << 20, 12 } };
    sglexec_comm_options options = { .timeout_s = 120 };
    const sglexec_comm_ops *ops;
    sglexec_comm *comm;
    sglexec_group *group;
    sglcore_env env;
    int ranks[1024];
    float *from = calloc(1, 16 << 20), *to = calloc(1, 16 << 20);
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sgl_status status = from && to ? sglwire_net(&env, &options) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = sglwire_transport_find(&env, "", &ops);
    if (status == SGL_OK) status = ops->open(&env, &options, &comm);
    if (status != SGL_OK) return fprintf(stderr, "comm_bench: %s\n", env.message), 1;
    const int size = ops->size(comm), rank = ops->rank(comm);
    for (int r = 0; r < size && r < 1024; r++) ranks[r] = r;
    status = ops->group(comm, "all", ranks, size, &group);
    for (size_t i = 0; status == SGL_OK && i < sizeof rows / sizeof rows[0]; i++) {
        const double cpu_before = cpu_s(), before = now_s();
        int runs = 0;
        /* Every rank makes as many: rank 0's clock does not decide. A shaped run is long enough for few. */
        const int most = options.bytes_per_s > 0 && rows[i].runs > 12 ? rows[i].runs / 5 : rows[i].runs;
        for (; runs < most && status == SGL_OK; runs++) {
            const double since = now_s();
            status = reduce(ops, group, from, to, rows[i].bytes / 4);
            took[runs] = now_s() - since;
        }
        const double wall = now_s() - before, share = (cpu_s() - cpu_before) / wall;
        qsort(took, (size_t)runs, sizeof *took, rising);
        const double median = took[runs / 2], formula = formula_s(&options, size, (double)rows[i].bytes);
        if (rank == 0)
            printf("sgl   %d ranks %9lld B: best %8.1f us, median %8.1f us, %6.2f GB/s, CPU %3.0f%%", size,
                   (long long)rows[i].bytes, took[0] * 1e6, median * 1e6, (double)rows[i].bytes / median / 1e9,
                   share * 100);
        if (rank == 0 && formula > 0)
            printf("; formula %8.1f us, %+.1f%%", formula * 1e6, (median / formula - 1) * 100);
        if (rank == 0) printf("\n");
    }
    if (status != SGL_OK) fprintf(stderr, "comm_bench: %s\n", env.message);
    ops->close(comm);
    free(from);
    free(to);
    return status == SGL_OK ? 0 : 1;
}

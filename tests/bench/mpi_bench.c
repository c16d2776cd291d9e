/* mpi_bench.c -- a plain loop of MPI_Allreduce: what comm_bench.c is held against.
 *
 * In: run under mpirun. Out, from rank 0: of the same sizes the best and the median time, the bandwidth and the CPU of a rank, in
 * the same words. The target mpi_bench builds it where MPI is; scripts/bench-comm runs both in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <mpi.h>

static double took[4000];

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

int main(int argc, char **argv)
{
    static const struct {
        int bytes, runs;
    } rows[] = { { 1 << 10, 2000 }, { 128 << 10, 200 }, { 1 << 20, 60 }, { 16 << 20, 12 } };
    float *from = calloc(1, 16 << 20), *to = calloc(1, 16 << 20);
    int rank, size;
    if (!from || !to) return 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double cpu_before = cpu_s(), before = MPI_Wtime();
        for (int run = 0; run < rows[i].runs; run++) {
            const double since = MPI_Wtime();
            MPI_Allreduce(from, to, rows[i].bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            took[run] = MPI_Wtime() - since;
        }
        const double share = (cpu_s() - cpu_before) / (MPI_Wtime() - before);
        qsort(took, (size_t)rows[i].runs, sizeof *took, rising);
        const double median = took[rows[i].runs / 2];
        if (rank == 0)
            printf("MPI   %d ranks %9d B: best %8.1f us, median %8.1f us, %6.2f GB/s, CPU %3.0f%%\n", size,
                   rows[i].bytes, took[0] * 1e6, median * 1e6, rows[i].bytes / median / 1e9, share * 100);
    }
    MPI_Finalize();
    free(from);
    free(to);
    return 0;
}

/* ranks.c -- one rank of a job under mpirun: what the tests of the transport run, and how they make it fail.
 *
 * In: TIMEOUT_S WORK [ARGUMENT...]. Out: status 0; or 1 after "sgl: MESSAGE" on stderr of the rank that tells it, and a
 * line "rank R failed after S s, late by L s" on stdout of each; 2 for wrong numbers. Work: `kinds` (each kind, dtype, uneven
 * counts), `storm SEED STEPS`, `steps FAULT RANK` (50 ms of work, an exchange, and so on; at step 5 that rank is
 * killed, stops, sleeps, calls another exchange, says that it fails, or ends), `busy SECONDS`, `large`, `hold` (until
 * SIGTERM, as a command is stopped), `twice`; and `launch N` in place of TIMEOUT_S and WORK becomes N ranks of what
 * follows. L is what a thread that does nothing but sleep came too late: on a busy machine a rank waits for its turn, and
 * bounds are for what is left. A rank that has failed ends when all others that will fail have said so, since mpirun ends
 * the others at once where a second rank ends. Odd invariant: a failed rank goes through close to its end, as a command
 * does: it calls no _exit. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/collectives.h"
#include "tests/support/exchange_case.h"
#include "wire.h"

static const sglexec_comm_ops *ops;
static sglexec_comm *comm;
static sglexec_group *world;
static sglcore_env env;
static volatile sig_atomic_t terminated;

static void on_term(int number)
{
    (void)number;
    terminated = 1;
}

static double now_s(void) { return (double)sglcore_now_ns() / 1e9; }
static void sleep_s(double s)
{
    struct timespec t = { .tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) };
    while (nanosleep(&t, &t) != 0 && !terminated) continue;
}

/* ---- how late the machine lets a rank be -------------------------------------------------------------------------- */

static _Atomic int64_t late_ns;

static void *count_lateness(void *unused)
{
    const int64_t nap_ns = 10000000;
    for (int64_t before = sglcore_now_ns();;) {
        const struct timespec nap = { .tv_nsec = nap_ns };
        nanosleep(&nap, NULL);
        const int64_t now = sglcore_now_ns();
        atomic_fetch_add(&late_ns, now - before - nap_ns);
        before = now;
    }
    return unused;
}

/* ---- work ---------------------------------------------------------------------------------------------------------- */

static sgl_status exchange(const sglexec_exchange *x)
{
    uint32_t ticket;
    SGLCORE_TRY(ops->start(world, x, NULL, &ticket));
    return ops->wait(world, ticket, NULL);
}

static sgl_status reduce_grads(float *grads, int count, int step)
{
    const sglexec_exchange x = { .kind = SGLEXEC_ALL_REDUCE,
                                 .dtype = SGL_F32,
                                 .count = count,
                                 .from = grads,
                                 .to = grads,
                                 .number = (uint64_t)step,
                                 .label = "all_reduce of grads, llama.lua:42" };
    return exchange(&x);
}

static sgl_status other_exchange(float *grads, int count, int step)
{
    const sglexec_exchange x = { .kind = SGLEXEC_BROADCAST,
                                 .dtype = SGL_F32,
                                 .count = count,
                                 .from = grads,
                                 .to = grads,
                                 .number = (uint64_t)step,
                                 .label = "broadcast of weights, llama.lua:7" };
    return exchange(&x);
}

static sgl_status do_fault(const char *fault, double timeout_s)
{
    if (strcmp(fault, "kill") == 0) raise(SIGKILL);
    if (strcmp(fault, "stop") == 0) raise(SIGSTOP);
    if (strcmp(fault, "delay") == 0) sleep_s(timeout_s * 3);
    if (strcmp(fault, "end") == 0) exit(0);
    if (strcmp(fault, "fail") == 0) {
        ops->fail(comm, "llama.lua:42: the loss is not finite");
        return ops->check(comm, 0);
    }
    return SGL_OK;
}

static sgl_status run_steps(const char *fault, int at_fault, double timeout_s)
{
    enum { COUNT = 100000 };
    static float grads[COUNT];
    const int rank = ops->rank(comm);
    signal(SIGTERM, SIG_IGN); /* which mpirun sends before each has had its turn to say that it failed */
    for (int step = 0; step < 20; step++) {
        sleep_s(0.01);
        if (step == 5 && rank == at_fault) SGLCORE_TRY(do_fault(fault, timeout_s));
        const bool other = step == 5 && rank == at_fault && strcmp(fault, "mismatch") == 0;
        const int count = step == 5 && rank == at_fault && strcmp(fault, "count") == 0 ? COUNT / 2 : COUNT;
        SGLCORE_TRY(other ? other_exchange(grads, count, step) : reduce_grads(grads, count, step));
    }
    return SGL_OK;
}

static sgl_status run_kinds(const char **fault)
{
    static const int64_t sizes[] = { 0, 3, 900, 4000, 150000 };
    static exchange_case c;
    uint64_t number = 0;
    for (int kind = 0; kind <= SGLEXEC_BROADCAST; kind++)
        for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++)
            for (int i = 0; i < 5 && !*fault; i++) {
                sgl_status status;
                if (dtype == SGL_I4 || (i == 4 && dtype != SGL_BF16)) continue;
                const int reduction = dtype == SGL_BOOL ? SGLEXEC_MIN : (int)(number % 3);
                exchange_case_make(&c, ++number, ops->size(comm), ops->rank(comm), (sglexec_exchange_kind)kind,
                                   (sgl_dtype)dtype, (sglexec_reduction)reduction, sizes[i]);
                SGLCORE_TRY(exchange_case_start(&c, ops, world, number));
                *fault = exchange_case_end(&c, ops, world, &status);
                SGLCORE_TRY(status);
            }
    return SGL_OK;
}

/* Ranks that say they are busy, longer than the deadline, while the others wait. */
static sgl_status run_busy(double seconds)
{
    float data[4] = { 0 };
    if (ops->rank(comm) == 0) {
        ops->busy(comm, "compiling");
        sleep_s(seconds);
        ops->busy(comm, NULL);
    }
    return reduce_grads(data, 4, 1);
}

/* Bytes beyond 2^31 in one exchange, of a message that is sent in pieces. */
static sgl_status run_large(const char **fault)
{
    const int64_t count = (1LL << 31) + 4099;
    unsigned char *data = calloc(1, (size_t)count);
    if (!data) return SGL_OUT_OF_MEMORY;
    const bool sends = ops->rank(comm) == 0;
    for (int64_t i = 0; sends && i < count; i += 4096) data[i] = (unsigned char)(i / 4096 % 251 + 1);
    const sglexec_exchange x = { .kind = sends ? SGLEXEC_SEND : SGLEXEC_RECEIVE,
                                 .dtype = SGL_U8,
                                 .count = count,
                                 .from = data,
                                 .to = data,
                                 .peer = sends ? 1 : 0,
                                 .label = "large" };
    const sgl_status status = exchange(&x);
    for (int64_t i = 0; status == SGL_OK && i < count; i += 4096)
        if (data[i] != (unsigned char)(i / 4096 % 251 + 1)) *fault = "the large message is wrong";
    free(data);
    return status;
}

/* What a command does with SIGTERM: it asks whether a lost rank is the reason. */
static sgl_status run_hold(int killed)
{
    struct sigaction action = { .sa_handler = on_term };
    sigaction(SIGTERM, &action, NULL);
    if (ops->rank(comm) == killed) {
        sleep_s(0.2);
        raise(SIGKILL);
    }
    const double until = now_s() + 20;
    while (!terminated && now_s() < until) sleep_s(0.05);
    return ops->check(comm, 300);
}

static sgl_status run_twice(void)
{
    const sglexec_comm_options options = { .timeout_s = 5 };
    sglexec_comm *second;
    const sgl_status status = ops->open(&env, &options, &second);
    if (status == SGL_DEVICE && strstr(env.message, "a process joins it once")) return SGL_OK;
    return status == SGL_OK ? SGL_INTERNAL : status;
}

static sgl_status work(int argc, char **argv, double timeout_s, const char **fault)
{
    const char *name = argv[2];
    int ranks[EXCHANGE_PLACES];
    const int size = ops->size(comm);
    for (int r = 0; r < size && r < EXCHANGE_PLACES; r++) ranks[r] = r;
    SGLCORE_TRY(ops->group(comm, "dp", ranks, size, &world));
    if (strcmp(name, "kinds") == 0) return run_kinds(fault);
    if (strcmp(name, "large") == 0) return run_large(fault);
    if (strcmp(name, "twice") == 0) return run_twice();
    if (strcmp(name, "busy") == 0 && argc > 3) return run_busy(atof(argv[3]));
    if (strcmp(name, "hold") == 0 && argc > 3) return run_hold(atoi(argv[3]));
    if (strcmp(name, "steps") == 0 && argc > 4) return run_steps(argv[3], atoi(argv[4]), timeout_s);
    if (strcmp(name, "storm") == 0 && argc > 4) {
        sgl_status status;
        *fault = exchange_storm(ops, comm, (uint64_t)atoll(argv[3]), atoi(argv[4]), 40000, 500, &status);
        return status;
    }
    *fault = "no such work";
    return SGL_OK;
}

/* ---- the end of a rank that has failed ------------------------------------------------------------------------------ */

/* Ranks that come back with an error where something is done to one of them; 0: nothing is. */
static int failing(int argc, char **argv)
{
    static const char *const alone[] = { "kill", "stop", "delay", "end" };
    const bool holds = strcmp(argv[2], "hold") == 0;
    const int size = ops->size(comm), at = holds ? 3 : 4;
    if (argc <= at || (!holds && strcmp(argv[2], "steps") != 0) || atoi(argv[at]) >= size) return 0;
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        if (holds || strcmp(argv[3], alone[i]) == 0) return size - 1;
    return size;
}

/* Leaves a file for the others, and waits for theirs: 10 s, since one that is stuck is what a test is to find. */
static void wait_for_others(int argc, char **argv)
{
    const double until = now_s() + 10;
    const int all = failing(argc, argv);
    char name[32];
    snprintf(name, sizeof name, "failed.%d", ops->rank(comm));
    FILE *file = fopen(name, "w");
    if (file) fclose(file);
    for (int there = 0; there < all && now_s() < until; sleep_s(0.01)) {
        there = 0;
        for (int r = 0; r < ops->size(comm); r++) {
            snprintf(name, sizeof name, "failed.%d", r);
            there += access(name, F_OK) == 0;
        }
    }
}

static void tell(const char *message, int rank, double after_s)
{
    printf("rank %d failed after %.2f s, late by %.2f s\n", rank, after_s, (double)atomic_load(&late_ns) / 1e9);
    if (ops->tells(comm)) fprintf(stderr, "sgl: %s\n", message);
    fflush(stdout);
}

static int launch(int argc, char **argv)
{
    const char **line;
    char *command[16] = { argv[0] };
    for (int i = 3; i < argc && i < 18; i++) command[i - 2] = argv[i];
    if (sglcomm_launch(&env, atoi(argv[2]), argc - 2, command, &line) == SGL_OK)
        execvp(line[0], (char **)(uintptr_t)line);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    const double timeout_s = atof(argv[1]);
    sglexec_comm_options options = { .timeout_s = timeout_s };
    const char *fault = NULL;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    if (strcmp(argv[1], "launch") == 0) return launch(argc, argv);
    pthread_t counter;
    if (pthread_create(&counter, NULL, count_lateness, NULL) != 0 || pthread_detach(counter) != 0) return 2;
    if (sglwire_net(&env, &options) != SGL_OK || sglwire_transport_find(&env, "", &ops) != SGL_OK ||
        ops->open(&env, &options, &comm) != SGL_OK) {
        fprintf(stderr, "sgl: %s\n", env.message);
        return 1;
    }
    const double since = now_s();
    const int rank = ops->rank(comm);
    const sgl_status status = work(argc, argv, timeout_s, &fault);
    if (status != SGL_OK) {
        tell(env.message, rank, now_s() - since);
        wait_for_others(argc, argv);
    }
    ops->close(comm);
    if (env.bytes_in_use != 0) fault = "memory is left";
    if (fault) fprintf(stderr, "sgl: rank %d: %s\n", rank, fault);
    return fault ? 2 : status == SGL_OK ? 0 : 1;
}

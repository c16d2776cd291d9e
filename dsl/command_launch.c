/* command_launch.c -- `--nproc N`: N ranks of this same command line under mpirun.
 *
 * Comes in: argv. Goes out: the exit code of the job. Odd invariant: mpirun is a child of its own process group and not this
 * process itself, because at Ctrl-C and SIGTERM mpirun gives its ranks two seconds to live. Those signals come here, and go
 * on as SIGUSR1, which mpirun hands to every rank, so that these end in order, however long they save; the third ends mpirun.
 * What ranks tell goes through here as well: where one was killed and none has told of it, this process does. mpirun has been
 * seen to wait for itself, for ever, when its ranks had ended (in PMIx_server_finalize, on a busy machine): it is ended then. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "dsl/command_launch.h"
#include "dsl/command_relay.h"

static volatile sig_atomic_t launcher, last_number, count;

static void on_signal(int number)
{
    last_number = number;
    count = count + 1;
    if (launcher > 0) kill((pid_t)launcher, count > 2 ? SIGTERM : SIGUSR1);
}

/* ---- the child -------------------------------------------------------------------------------------------------------- */

/* Where this process is killed, mpirun ends, and its ranks with it. SIGUSR1 may come before mpirun knows what to do with it. */
static void become(const char *const *words, const sigset_t *mask, pid_t parent, const int told[2])
{
    setpgid(0, 0);
    dup2(told[1], STDERR_FILENO);
    close(told[0]);
    close(told[1]);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != parent) _exit(COMMAND_FAILED);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(words[0], (char **)(uintptr_t)words);
    if (errno == ENOENT)
        fprintf(stderr, "sgl: --nproc needs %s, which is not installed; `scripts/deps mpi` does that\n", words[0]);
    else
        fprintf(stderr, "sgl: --nproc: %s: %s\n", words[0], strerror(errno));
    _exit(COMMAND_FAILED);
}

/* ---- this process ------------------------------------------------------------------------------------------------------ */

/* ---- an mpirun that does not end ---------------------------------------------------------------------------------------- */

enum { ALONE_SECONDS = 10 }; /* that mpirun may take for its own end, once no rank is left */

typedef struct watched {
    pid_t mpirun;
    bool had_ranks, is_ended;
    int alone; /* seconds without a rank */
} watched;

/* Whether the process has children; false where the system does not tell. */
static bool has_children(pid_t process, bool *any)
{
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    bool known = false;
    *any = false;
    if (!tasks) return false;
    for (const struct dirent *at = readdir(tasks); at; at = readdir(tasks)) {
        snprintf(path, sizeof path, "/proc/%d/task/%.200s/children", (int)process, at->d_name);
        FILE *children = at->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!children) continue;
        known = true;
        *any = *any || fgetc(children) != EOF;
        fclose(children);
    }
    closedir(tasks);
    return known;
}

static void look_at(void *user)
{
    watched *w = user;
    bool any;
    if (w->is_ended || !has_children(w->mpirun, &any)) return;
    w->had_ranks = w->had_ranks || any;
    w->alone = any || !w->had_ranks ? 0 : w->alone + 1;
    if (w->alone < ALONE_SECONDS) return;
    w->is_ended = true;
    kill(w->mpirun, SIGKILL);
}

static void tell_of_mpirun(void)
{
    fprintf(stderr,
            "sgl: --nproc: mpirun did not end within %d s of its ranks, and was ended: how they ended is not known\n",
            ALONE_SECONDS);
}

/* What a killed rank cannot say, and the others have had no time to: mpirun ends them as soon as it sees it.
 * False: that is not how it ended. */
static bool tell_of_signal(int status)
{
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "sgl: --nproc: mpirun was ended by signal %d (%s), and its ranks with it\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return true;
    }
    const int number = WIFEXITED(status) ? WEXITSTATUS(status) - 128 : 0;
    if (number <= 0 || number == SIGINT || number == SIGTERM || number == SIGUSR1)
        return false; /* ranks end by these in order */
    fprintf(stderr, "sgl: --nproc: a rank was ended by signal %d (%s) before any rank could say which%s\n", number,
            strsignal(number), number == SIGKILL ? "; where memory runs out, the system does that" : "");
    return true;
}

static int exit_code(int status)
{
    if (WIFSIGNALED(status)) return 128 + (count > 0 ? (int)last_number : WTERMSIG(status));
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : COMMAND_FAILED;
    return code == 128 + SIGUSR1 && count > 0 ? 128 + (int)last_number : code;
}

static int stand_for(const char *const *words)
{
    sigset_t held, mask;
    struct sigaction action = { .sa_handler = on_signal };
    int status = 0, told[2];
    if (pipe(told) != 0) {
        fprintf(stderr, "sgl: --nproc: %s\n", strerror(errno));
        return COMMAND_FAILED;
    }
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGUSR1);
    sigprocmask(SIG_BLOCK, &held, &mask); /* until there is somebody to hand them to */
    const pid_t parent = getpid(), child = fork();
    if (child == 0) become(words, &mask, parent, told);
    close(told[1]);
    if (child < 0) {
        fprintf(stderr, "sgl: --nproc: %s\n", strerror(errno));
        close(told[0]);
        return COMMAND_FAILED;
    }
    launcher = (sig_atomic_t)child;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    command_relay relay = { .to = STDERR_FILENO };
    watched mpirun = { .mpirun = child };
    command_relay_run(&relay, told[0], look_at, &mpirun);
    close(told[0]);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return COMMAND_FAILED;
    launcher = 0;
    if (mpirun.is_ended && !relay.told) tell_of_mpirun();
    command_relay_end(&relay, relay.told || mpirun.is_ended || (count == 0 && tell_of_signal(status)));
    return mpirun.is_ended ? COMMAND_FAILED : exit_code(status);
}

static bool has_option(const command *c, const char *name)
{
    for (const command_option *o = c->options; o->name; o++)
        if (strcmp(o->name, name) == 0) return true;
    return false;
}

/* mpirun gives each rank a terminal of its own making as stdout: what this one is, they learn by an option. */
static int64_t columns_here(void)
{
    struct winsize size = { 0 };
    if (!isatty(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int command_launch(const command *c, const command_ranks *ranks, int argc, char **argv)
{
    char own[4096], option[] = "--columns", columns[32];
    int used = 0, code = COMMAND_FAILED;
    const char *const *words = NULL;
    const size_t bytes = ((size_t)argc + 3) * sizeof(char *);
    sgl_vm *vm = command_open(1, stderr);
    if (!vm) return COMMAND_FAILED;
    char **line = sgl_realloc(vm, NULL, 0, bytes);
    if (!line) {
        (void)sgl_fail(vm, SGL_OUT_OF_MEMORY, "--nproc: %s", sgl_status_text(SGL_OUT_OF_MEMORY));
        goto end;
    }
    /* By its path: neither the folder nor PATH need be the same where a rank starts. */
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = 0;
    line[used++] = length > 0 ? own : argv[0];
    line[used++] = argv[1];
    if (has_option(c, "--columns") && ranks->columns < 0) {
        snprintf(columns, sizeof columns, "%lld", (long long)columns_here());
        line[used++] = option;
        line[used++] = columns;
    }
    for (int i = 2; i < argc; i++) line[used++] = argv[i];
    if (sgl_launch_command(vm, (int)ranks->nproc, used, line, &words) == SGL_OK) code = stand_for(words);
end:
    if (!words) code = command_error(vm);
    sgl_realloc(vm, line, bytes, 0);
    sgl_close(vm);
    return code;
}

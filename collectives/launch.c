/* launch.c -- the command line of a launcher: several ranks of one program on this machine.
 *
 * Comes in: a number of ranks and a command. Goes out: mpirun's arguments, which the caller hands to exec, so that
 * signals and the terminal are mpirun's own. What the options are for: -q leaves the words about a failure to the rank
 * that knows them; ranks may be more than cores, and are bound to none, since each has threads of its own; waiting
 * inside MPI gives the core away. Odd invariant: nothing here starts a process; srun and the MPI Operator need none of
 * it, the world they make is found in the environment. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine.h"

static const char *const options[] = { "mpirun", "-q",    "--oversubscribe",     "--bind-to",
                                       "none",   "--mca", "mpi_yield_when_idle", "1" };
enum { OPTIONS = sizeof options / sizeof options[0], EXTRA = 4, NUMBER_ROOM = 16 };

static size_t room_of(int count) { return (size_t)(OPTIONS + EXTRA + count) * sizeof(char *) + NUMBER_ROOM; }

sgl_status sglcomm_launch(sglcore_env *env, int ranks, int count, char *const *command, const char ***line)
{
    *line = NULL;
    if (ranks < 1 || count < 1)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%d ranks of a command of %d words: at least one of each", ranks,
                            count);
    const char **words = sglcore_alloc(env, room_of(count));
    if (!words) return SGL_OUT_OF_MEMORY;
    char *number = (char *)(words + OPTIONS + EXTRA + count);
    int used = 0;
    snprintf(number, NUMBER_ROOM, "%d", ranks);
    for (int i = 0; i < OPTIONS; i++) words[used++] = options[i];
    if (geteuid() == 0) words[used++] = "--allow-run-as-root"; /* a container's only user; others never see it */
    words[used++] = "-n";
    words[used++] = number;
    for (int i = 0; i < count; i++) words[used++] = command[i];
    words[used] = NULL;
    *line = words;
    return SGL_OK;
}

void sglcomm_launch_free(sglcore_env *env, const char **line, int count)
{
    if (line) sglcore_free(env, (void *)line, room_of(count));
}

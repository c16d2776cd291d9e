/* launch.c -- before a world is joined: what the launcher says of this process, and the command that a launcher is started by.
 *
 * Comes in: the environment; a number of ranks and a command. Goes out: a rank and a number of ranks; words for exec. Odd
 * invariant: nothing is started here, a library leaves processes to its host. */
#include "core/knob.h"
#include "session/session.h"
#include "wire.h"

typedef struct launch_words {
    sgl_vm *vm;
    const char **words;
    int count;
} launch_words;

int sgl_launched(int *rank, int *ranks)
{
    int64_t own = 0, all = 1;
    sglcore_launched(&own, &all);
    if (rank) *rank = (int)own;
    if (ranks) *ranks = (int)all;
    return sglcore_launcher() != NULL;
}

static void forget(void *user)
{
    launch_words *kept = user;
    sgl_vm *vm = kept->vm;
    sglwire_launch_free(&vm->env, kept->words, kept->count);
    sglcore_free(&vm->env, kept, sizeof *kept);
}

sgl_status sgl_launch_command(sgl_vm *vm, int ranks, int count, char *const *command, const char *const **words)
{
    SGLSESSION_NEEDS(vm && command && words, vm, "vm, command or words is NULL");
    *words = NULL;
    launch_words *kept = sglcore_alloc_zero(&vm->env, sizeof *kept);
    if (!kept) return SGL_OUT_OF_MEMORY;
    kept->vm = vm;
    kept->count = count;
    sgl_status status = sglwire_launch(&vm->env, ranks, count, command, &kept->words);
    if (status == SGL_OK) status = sgl_on_close(vm, forget, kept);
    if (status == SGL_OK)
        *words = kept->words;
    else
        forget(kept);
    return status;
}

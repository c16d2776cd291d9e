/* command_signal.c -- Ctrl-C, SIGTERM and SIGUSR1 for the commands that compute.
 *
 * Comes in: a VM. Goes out: requests to stop what runs on it. The first signal lets the step at hand be finished, the second
 * cuts it, a third Ctrl-C ends the process. SIGUSR1 is there because launchers hand it to every rank, where they answer the
 * other two by ending the job. Odd invariant: a signal that comes when the VM is closed finds none; any thread may take the
 * first and another one the second, so what they leave is atomic. */
#include <signal.h>
#include <stdatomic.h>

#include "dsl/command.h"

static _Atomic(sgl_vm *) signalled_vm;
static atomic_int last_number, count;

static void on_signal(int number)
{
    atomic_store(&last_number, number);
    if (atomic_fetch_add(&count, 1) >= 1) signal(SIGINT, SIG_DFL);
    sgl_interrupt(atomic_load(&signalled_vm));
}

static void forget_vm(void *user)
{
    (void)user;
    signalled_vm = NULL;
}

void command_signals(sgl_vm *vm)
{
    if (sgl_on_close(vm, forget_vm, NULL) != SGL_OK) return; /* without memory nothing runs for long */
    signalled_vm = vm;
    struct sigaction action = { .sa_handler = on_signal };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader who leaves is a write that fails */
}

int command_signal_status(void)
{
    const int number = atomic_load(&last_number);
    return 128 + (number ? number : SIGINT);
}

/* command_signal.c -- Ctrl-C, SIGTERM and SIGUSR1 for the commands that compute.
 *
 * Comes in: a VM. Goes out: requests to stop what runs on it. The first signal lets the step at hand be finished, the second
 * cuts it, a third Ctrl-C ends the process. SIGUSR1 is there because launchers hand it to every rank, where they answer the
 * other two by ending the job. Odd invariant: a signal that comes when the VM is closed finds none. */
#include <signal.h>

#include "dsl/command.h"

static sgl_vm *volatile signalled_vm;
static volatile sig_atomic_t last_number, count;

static void on_signal(int number)
{
    last_number = number;
    count = count + 1;
    if (count >= 2) signal(SIGINT, SIG_DFL);
    sgl_interrupt(signalled_vm);
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

int command_signal_status(void) { return 128 + (last_number ? (int)last_number : SIGINT); }

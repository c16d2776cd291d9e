/* command_signal.c -- Ctrl-C and SIGTERM for the commands that compute.
 *
 * Comes in: a VM. Goes out: requests to stop what runs on it. The first signal lets the step at hand be finished, the second
 * cuts it, a third Ctrl-C ends the process. */
#include <signal.h>

#include "dsl/command.h"

static sgl_vm *signalled_vm;
static volatile sig_atomic_t last_number, count;

static void on_signal(int number)
{
    last_number = number;
    count = count + 1;
    if (count >= 2) signal(SIGINT, SIG_DFL);
    sgl_interrupt(signalled_vm);
}

void command_signals(sgl_vm *vm)
{
    signalled_vm = vm;
    struct sigaction action = { .sa_handler = on_signal };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader who leaves is a write that fails */
}

int command_signal_status(void) { return 128 + (last_number ? (int)last_number : SIGINT); }

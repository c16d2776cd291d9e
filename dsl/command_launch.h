/* command_launch.h -- starts a command as several ranks on this machine, and stands for them until they end. */
#ifndef SGLDSL_COMMAND_LAUNCH_H
#define SGLDSL_COMMAND_LAUNCH_H

#include "dsl/command_ranks.h"

/* Runs this same command line as ranks->nproc ranks. The exit code is theirs. */
int command_launch(const command *c, const command_ranks *ranks, int argc, char **argv);

#endif

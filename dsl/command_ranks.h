/* command_ranks.h -- runs of several ranks: their options, the launcher, the world, and which rank it is that speaks.
 *
 * Comes in: --mesh, --nproc, --timeout, and what a launcher says in the environment. Goes out: settings plan.mesh.*, mpirun
 * with this same command line, a session that has joined the world. Odd invariant: rank 0 alone prints, but for a failure,
 * which is told by the one rank that knows it first. */
#ifndef SGLDSL_COMMAND_RANKS_H
#define SGLDSL_COMMAND_RANKS_H

#include "dsl/command.h"

enum { COMMAND_AXES = 8 };

typedef struct command_ranks {
    const char *mesh; /* "dp=2,tp=2"; NULL: the script's */
    int64_t nproc;    /* 0: not given */
    double timeout_s; /* of an exchange; 0: the library's */
    int64_t columns;  /* of the terminal that stdout ends on, 0: on none, -1: it is this process's own */
    int rank, ranks;  /* as the launcher says before the world is joined; ranks 0: it does not */
    char keys[COMMAND_AXES][24], extents[COMMAND_AXES][24]; /* of the settings */
} command_ranks;

#define COMMAND_MESH_OPTION(o)                                                                                         \
    {                                                                                                                  \
        "--mesh", 't', &(o).mesh, "AXES",                                                                              \
            "lay the model over ranks, such as dp=2,tp=2, in place of the script's mesh; axes: dp, fsdp, tp, pp, ep, " \
            "cp"                                                                                                       \
    }
#define COMMAND_RANKS_OPTIONS(o)                                                                                       \
    COMMAND_MESH_OPTION(o),                                                                                            \
        { "--nproc", 'p', &(o).nproc, "N", "start N ranks on this machine, by mpirun; one per place in the mesh" },    \
    {                                                                                                                  \
        "--timeout", 'q', &(o).timeout_s, "SECONDS", "a rank that comes so late to an exchange is lost (default 300)"  \
    }

/* Adds what --mesh says to the settings: all axes, those that it does not name with 1. given: those of --set, which may say
 * nothing of the mesh then. COMMAND_OK, or an exit code after having said why. */
int command_mesh(const command *c, command_ranks *ranks, const command_settings *given, command_settings *settings);
/* After the options are read. --nproc: runs the ranks, and gives the exit code of all with *done; in each rank, and without it,
 * stdout of another rank than 0 leads nowhere from now on. */
int command_ranks_begin(const command *c, command_ranks *ranks, int argc, char **argv, bool *done);
/* Whether this process is rank 0 of those that a launcher has made, or by itself. */
bool command_first(void);
/* The exit code of a rank that fails and prints nothing, a second later: mpirun kills whoever is left as soon as two ranks have
 * ended so, and the one that prints must have done it by then. */
int command_silent(int code);
/* Joins the world, if there is one; before anything is loaded that may fail on one rank. */
sgl_status command_join(const command_ranks *ranks, sgl_session *session);
/* command_status for one of several ranks: tells the others of a failure that they do not know, and prints it if it is this
 * rank's to print. session may be NULL. A stop that was asked for because a rank died is told as that: *status is DEVICE then. */
int command_ranks_status(const sgl_vm *vm, sgl_session *session, sgl_status *status);

#endif

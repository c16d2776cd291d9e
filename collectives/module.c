/* module.c -- the transport `mpi`: the engine of this room over a link that is a module, libsgl_mpi.so.
 *
 * Comes in: nothing, until it is asked for; then the module is opened (core/module.h). Goes out: sglexec_comm_mpi. So a
 * build with MPI runs where there is none, and says then what is missing.
 * Odd invariant: the link's version alone is compared: the module shares no other struct with the library. */
#include "collectives/engine.h"
#include "core/module.h"

static const sglcore_module mpi = {
    .what = "transport mpi",
    .file = "libsgl_mpi.so",
    .built = "MPI's headers are (`scripts/deps mpi`, then build again)",
    .symbol = SGLCOMM_LINK_SYMBOL,
};

static sgl_status open_module(sglcore_env *env, char path[SGLCORE_MODULE_ROOM], const sglcomm_link_ops **ops)
{
    const void *found;
    SGLCORE_TRY(sglcore_module_open(env, &mpi, path, &found));
    *ops = found;
    return (*ops)->version == SGLCOMM_LINK_VERSION ? SGL_OK : sglcore_module_foreign(env, &mpi, path);
}

static sgl_status mpi_about(sglcore_env *env, sglcore_text *text)
{
    const sglcomm_link_ops *ops;
    char path[SGLCORE_MODULE_ROOM], about[256];
    if (open_module(env, path, &ops) != SGL_OK)
        return sglcore_text_add(env, text, "  cannot be opened: %s\n", env->message);
    ops->about(about, sizeof about);
    return sglcore_text_add(env, text, "  %s, %s\n", about, path);
}

static sgl_status mpi_open(sglcore_env *env, const sglexec_comm_options *options, sglexec_comm **comm)
{
    const sglcomm_link_ops *ops;
    char path[SGLCORE_MODULE_ROOM];
    *comm = NULL;
    SGLCORE_TRY(open_module(env, path, &ops));
    return sglcomm_open(env, options, ops, comm);
}

const sglexec_comm_ops sglexec_comm_mpi = {
    .name = "mpi",
    .about = mpi_about,
    .open = mpi_open,
    SGLCOMM_ENGINE_CALLS,
};

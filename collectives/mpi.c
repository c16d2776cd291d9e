/* mpi.c -- the link over MPI: the module libsgl_mpi.so, and the one file that knows mpi.h.
 *
 * Comes in: the world that mpirun, srun or the like has made. Goes out: sglcomm_module_link (link.h). Heartbeats and
 * groups have a communicator each, copies of the world's, so that a host which uses MPI itself meets none of our
 * messages; a channel of groups is a tag. No message, a piece or a beat, comes near 2^31 bytes, so MPI 3's int counts
 * are enough. MPI is joined once in a process, that is MPI's rule: a second open is refused. Odd invariant: the module
 * is linked with MPI and libc alone, and stays loaded, since MPI's own plugins do not survive an unloading. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <mpi.h>

#include "collectives/link.h"

extern const sglcomm_link_ops sglcomm_module_link;

static struct {
    MPI_Comm beats, groups;
    bool joined, ours; /* joined: once in this process. ours: MPI was started here */
    char why[MPI_MAX_ERROR_STRING + 128];
} world;

static bool good(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = { 0 };
    int length = 0;
    if (code == MPI_SUCCESS) return true;
    MPI_Error_string(code, text, &length);
    snprintf(world.why, sizeof world.why, "%s: %s", call, text);
    return false;
}

static void mpi_about(char *text, size_t room)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = { 0 };
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0'; /* of OpenMPI's, who built it follows */
    snprintf(text, room, "%s", version);
}

/* Until the world is joined nobody watches: MPI_Init waits for ever for a launcher that was killed meanwhile. A process
 * that has computed nothing yet ends with it. */
static void end_with_launcher(bool on)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, on ? SIGKILL : 0);
#else
    (void)on;
#endif
}

static bool start_mpi(void)
{
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
    if (world.joined) {
        snprintf(world.why, sizeof world.why, "MPI's world was joined before: a process joins it once");
        return false;
    }
    world.joined = true;
    if (!good(MPI_Initialized(&initialized), "MPI_Initialized") || !good(MPI_Finalized(&finalized), "MPI_Finalized"))
        return false;
    if (finalized) {
        snprintf(world.why, sizeof world.why, "the host has finalized MPI: it cannot be started again");
        return false;
    }
    world.ours = !initialized;
    if (world.ours) {
        end_with_launcher(true);
        return good(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    }
    if (!good(MPI_Query_thread(&level), "MPI_Query_thread")) return false;
    if (level >= MPI_THREAD_MULTIPLE) return true;
    snprintf(world.why, sizeof world.why,
             "the host started MPI without MPI_THREAD_MULTIPLE, which a thread beside its own needs");
    return false;
}

static bool copy_world(MPI_Comm *copy)
{
    return good(MPI_Comm_dup(MPI_COMM_WORLD, copy), "MPI_Comm_dup") &&
           good(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

static bool join(void **link, int *rank, int *size, int *channels)
{
    int *most, found = 0;
    if (!start_mpi()) return false;
    if (world.ours && !good(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"))
        return false;
    if (!copy_world(&world.beats) || !copy_world(&world.groups)) return false;
    if (!good(MPI_Comm_rank(world.groups, rank), "MPI_Comm_rank") ||
        !good(MPI_Comm_size(world.groups, size), "MPI_Comm_size") ||
        !good(MPI_Comm_get_attr(world.groups, MPI_TAG_UB, &most, &found), "MPI_Comm_get_attr"))
        return false;
    *channels = !found ? 32767 : *most < 1 << 24 ? *most : 1 << 24;
    *link = &world;
    return true;
}

static bool mpi_open(void **link, int *rank, int *size, int *channels)
{
    bool joined = join(link, rank, size, channels);
    if (world.ours) end_with_launcher(false);
    return joined;
}

/* MPI_Finalize waits for all ranks: after a failure it would wait for ever, so MPI is left as it is, and the launcher
 * sees the process end without it. */
static void mpi_close(void *link, bool orderly)
{
    (void)link;
    if (!orderly) return;
    MPI_Comm_free(&world.beats);
    MPI_Comm_free(&world.groups);
    if (world.ours) MPI_Finalize();
}

static MPI_Request request_of(const sglcomm_request *request)
{
    MPI_Request own;
    memcpy(&own, request->words, sizeof own);
    return own;
}

static void keep(sglcomm_request *request, MPI_Request own)
{
    _Static_assert(sizeof own <= sizeof request->words, "a request of the link holds one of MPI");
    memcpy(request->words, &own, sizeof own);
}

static bool mpi_send(void *link, int rank, int channel, const void *data, size_t bytes, sglcomm_request *request)
{
    const MPI_Comm comm = channel == SGLCOMM_BEATS ? world.beats : world.groups;
    MPI_Request own;
    (void)link;
    if (!good(MPI_Isend(data, (int)bytes, MPI_BYTE, rank, channel, comm, &own), "MPI_Isend")) return false;
    keep(request, own);
    return true;
}

static bool mpi_receive(void *link, int rank, int channel, void *data, size_t bytes, sglcomm_request *request)
{
    const MPI_Comm comm = channel == SGLCOMM_BEATS ? world.beats : world.groups;
    const int from = rank < 0 ? MPI_ANY_SOURCE : rank;
    MPI_Request own;
    (void)link;
    if (!good(MPI_Irecv(data, (int)bytes, MPI_BYTE, from, channel, comm, &own), "MPI_Irecv")) return false;
    keep(request, own);
    return true;
}

static bool mpi_test(void *link, sglcomm_request *request, bool *done, size_t *bytes)
{
    MPI_Request own = request_of(request);
    MPI_Status status;
    int flag = 0, count = 0;
    (void)link;
    if (!good(MPI_Test(&own, &flag, &status), "MPI_Test")) return false;
    keep(request, own);
    *done = flag != 0;
    if (flag && !good(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count")) return false;
    *bytes = count > 0 ? (size_t)count : 0;
    return true;
}

static void mpi_cancel(void *link, sglcomm_request *request)
{
    MPI_Request own = request_of(request);
    MPI_Status status;
    (void)link;
    if (MPI_Cancel(&own) == MPI_SUCCESS) MPI_Wait(&own, &status);
}

static const char *mpi_why(void *link)
{
    (void)link;
    return world.why;
}

const sglcomm_link_ops sglcomm_module_link = {
    .version = SGLCOMM_LINK_VERSION,
    .about = mpi_about,
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .why = mpi_why,
};

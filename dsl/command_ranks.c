/* command_ranks.c -- runs of several ranks. See command_ranks.h; command_launch.c starts them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dsl/command_launch.h"
#include "dsl/command_ranks.h"

bool command_first(void)
{
    int rank;
    (void)sgl_launched(&rank, NULL);
    return rank == 0;
}

int command_silent(int code)
{
    nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL); /* the signal by which a launcher ends the others cuts it */
    return code;
}

/* ---- the mesh ------------------------------------------------------------------------------------------------------- */

static int axes_of(const char *names[COMMAND_AXES])
{
    int count = 0;
    for (const char *name; count < COMMAND_AXES && (name = sgl_axis_name(count)) != NULL;) names[count++] = name;
    return count;
}

/* "dp=2" up to `length`. */
static int take_axis(const command *c, const char *mesh, const char *text, size_t length, int64_t extents[COMMAND_AXES])
{
    const char *names[COMMAND_AXES], *equals = memchr(text, '=', length);
    char axis[16], *end;
    int found = 0;
    const int axes = axes_of(names);
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof axis)
        return command_usage(c, "--mesh '%s': '%.*s' is not of the form axis=ranks, such as dp=2", mesh, (int)length,
                             text);
    snprintf(axis, sizeof axis, "%.*s", (int)(equals - text), text);
    while (found < axes && strcmp(names[found], axis) != 0) found++;
    if (found == axes) {
        const char *nearest = sgl_nearest(axis, names, axes);
        return command_usage(c, "--mesh '%s': there is no axis '%s'%s%s%s", mesh, axis,
                             nearest ? "; did you mean '" : "; the axes are dp, fsdp, tp, pp, ep and cp",
                             nearest ? nearest : "", nearest ? "'?" : "");
    }
    if (extents[found] != 0) return command_usage(c, "--mesh '%s': it names the axis %s twice", mesh, axis);
    errno = 0;
    extents[found] = strtoll(equals + 1, &end, 10);
    if (end == equals + 1 || end != text + length || errno || extents[found] < 1 || extents[found] > INT32_MAX)
        return command_usage(c, "--mesh '%s': %s is '%.*s'; a number of ranks is a whole number of at least 1", mesh,
                             axis, (int)(text + length - equals - 1), equals + 1);
    return COMMAND_OK;
}

static int parse_mesh(const command *c, const char *mesh, int64_t extents[COMMAND_AXES])
{
    for (const char *text = mesh;; text++) {
        const size_t length = strcspn(text, ",");
        int code = take_axis(c, mesh, text, length, extents);
        if (code != COMMAND_OK) return code;
        text += length;
        if (!*text) return COMMAND_OK;
    }
}

int command_mesh(const command *c, command_ranks *ranks, const command_settings *given, command_settings *settings)
{
    int64_t extents[COMMAND_AXES] = { 0 };
    const char *names[COMMAND_AXES];
    if (!ranks->mesh) return COMMAND_OK;
    for (int i = 0; i < given->count; i++)
        if (strncmp(given->list[i].key, "plan.mesh", 9) == 0)
            return command_usage(c, "--mesh '%s' and --set %s=%s both say what the mesh is: give one of them",
                                 ranks->mesh, given->list[i].key, given->list[i].value);
    int code = parse_mesh(c, ranks->mesh, extents);
    const int axes = axes_of(names);
    for (int i = 0; i < axes && code == COMMAND_OK; i++) {
        snprintf(ranks->keys[i], sizeof ranks->keys[i], "plan.mesh.%s", names[i]);
        snprintf(ranks->extents[i], sizeof ranks->extents[i], "%lld", (long long)(extents[i] ? extents[i] : 1));
        if (!command_set(settings, ranks->keys[i], ranks->extents[i])) code = COMMAND_USAGE;
    }
    return code;
}

/* Ranks that the mesh of the command line spans, 0: it gives none. */
static int mesh_ranks(const command *c, const command_ranks *ranks, int64_t *product)
{
    int64_t extents[COMMAND_AXES] = { 0 };
    *product = 0;
    if (!ranks->mesh) return COMMAND_OK;
    int code = parse_mesh(c, ranks->mesh, extents);
    *product = 1;
    for (int i = 0; i < COMMAND_AXES && code == COMMAND_OK; i++) {
        const int64_t extent = extents[i] ? extents[i] : 1;
        if (*product > INT32_MAX / extent)
            return command_usage(c, "--mesh '%s' spans more ranks than there may be", ranks->mesh);
        *product *= extent;
    }
    return code;
}

/* ---- the world ------------------------------------------------------------------------------------------------------ */

int command_ranks_begin(const command *c, command_ranks *r, int argc, char **argv, bool *done)
{
    int64_t product;
    const bool launched = sgl_launched(&r->rank, &r->ranks);
    *done = false;
    int code = mesh_ranks(c, r, &product);
    if (code != COMMAND_OK) return code;
    if (r->timeout_s > 1e6) return command_usage(c, "--timeout %g: give seconds, at most 1e6", r->timeout_s);
    if (r->nproc > 0 && product > 0 && product != r->nproc)
        return command_usage(c, "--mesh '%s' spans %lld ranks, --nproc starts %lld: give --nproc %lld", r->mesh,
                             (long long)product, (long long)r->nproc, (long long)product);
    if (r->nproc > 4096)
        return command_usage(c, "--nproc %lld: 4096 ranks of one machine are the most", (long long)r->nproc);
    if (launched && r->nproc > 0 && r->ranks > 0 && r->ranks != r->nproc)
        return command_usage(c, "--nproc %lld, but the launcher that started this has made %d ranks: leave --nproc out",
                             (long long)r->nproc, r->ranks);
    if (!launched && r->nproc > 1) {
        *done = true;
        return command_launch(c, r, argc, argv);
    }
    if (r->rank > 0 && !freopen("/dev/null", "w", stdout)) return COMMAND_FAILED;
    return COMMAND_OK;
}

sgl_status command_join(const command_ranks *r, sgl_session *session)
{
    const sgl_join_config config = { .timeout_s = r->timeout_s };
    if (r->ranks == 1 && !*sgl_knob("SGL_TRANSPORT")) return SGL_OK;
    return sgl_join(session, &config);
}

int command_ranks_status(const sgl_vm *vm, sgl_session *session, sgl_status *status)
{
    const int rank = session ? sgl_session_rank(session) : 0;
    /* A launcher that ends a job because a rank died asks the others to stop, too. */
    if (*status == SGL_INTERRUPTED && session && sgl_world_check(session, 300) != SGL_OK) *status = SGL_DEVICE;
    if (*status == SGL_OK || *status == SGL_INTERRUPTED) return command_status(vm, *status);
    if (!session && !command_first()) return command_silent(COMMAND_FAILED); /* argv is wrong, which all have alike */
    sgl_session_fail(session, sgl_error_message(vm));
    if (!sgl_tells(session)) return command_silent(COMMAND_FAILED);
    if (rank > 0 && *status != SGL_DEVICE) { /* what a transport tells names the rank itself */
        fprintf(stderr, "sgl: rank %d on %s: %s\n", rank, sgl_session_host(session, rank), sgl_error_message(vm));
        return COMMAND_FAILED;
    }
    return command_error(vm);
}

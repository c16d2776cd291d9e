/* wire.c -- names the built-in devices and transports: the one file of the core library that knows what is behind the ports.
 *
 * Comes in: backend/backend.h, collectives/collectives.h. Goes out: tables by name. A device or transport that is a module of
 * its own, opened when it is asked for, has its row here too. Odd invariant: the first row of devices is the device of whoever
 * names none. */
#include <string.h>

#include "backend/backend.h"
#include "collectives/collectives.h"
#include "core/knob.h"
#include "wire.h"

static sgl_status cpu(sglcore_env *env, const sglexec_device_ops **ops)
{
    (void)env;
    *ops = &sglexec_device_cpu;
    return SGL_OK;
}

static sgl_status null(sglcore_env *env, const sglexec_device_ops **ops)
{
    (void)env;
    *ops = &sglexec_device_null;
    return SGL_OK;
}

static const struct {
    const char *name;
    sgl_status (*find)(sglcore_env *env, const sglexec_device_ops **ops);
} devices[] = { { "cpu", cpu }, { "cuda", sglbackend_cuda }, { "null", null } };
static const sglexec_comm_ops *const transports[] = { &sglexec_comm_self, &sglexec_comm_mpi };
enum { DEVICES = sizeof devices / sizeof devices[0], TRANSPORTS = sizeof transports / sizeof transports[0] };

/* The place of a name, or -1 and a message that names those that there are, and the nearest one. */
static int find(sglcore_env *env, const char *what, const char *name, const char *const *names, int count)
{
    char hint[SGLCORE_HINT_ROOM], list[256];
    size_t used = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return i;
    list[0] = '\0';
    for (int i = 0; i < count && used + strlen(names[i]) + 6 < sizeof list; i++) {
        const char *before = i == 0 ? "" : i == count - 1 ? " and " : ", ";
        strcat(strcat(list, before), names[i]);
        used = strlen(list);
    }
    (void)sglcore_fail(env, SGL_NOT_FOUND, "there is no %s '%s'; this build has %s%s", what, name, list,
                       sglcore_hint(name, names, count, hint));
    return -1;
}

const char *sglwire_device(int index) { return index >= 0 && index < DEVICES ? devices[index].name : NULL; }

sgl_status sglwire_device_find(sglcore_env *env, const char *name, const sglexec_device_ops **ops)
{
    const char *names[DEVICES];
    for (int i = 0; i < DEVICES; i++) names[i] = devices[i].name;
    const int found = find(env, "device", name, names, DEVICES);
    return found < 0 ? SGL_NOT_FOUND : devices[found].find(env, ops);
}

const sglexec_comm_ops *sglwire_transport(int index)
{
    return index >= 0 && index < TRANSPORTS ? transports[index] : NULL;
}

sgl_status sglwire_transport_find(sglcore_env *env, const char *name, const sglexec_comm_ops **ops)
{
    const char *names[TRANSPORTS];
    for (int i = 0; i < TRANSPORTS; i++) names[i] = transports[i]->name;
    if (name[0] == '\0') name = sglcore_knob_text(SGLCORE_KNOB_TRANSPORT);
    if (name[0] == '\0') name = sglcore_launcher() ? sglexec_comm_mpi.name : sglexec_comm_self.name;
    const int found = find(env, "transport", name, names, TRANSPORTS);
    if (found < 0) return SGL_NOT_FOUND;
    *ops = transports[found];
    return SGL_OK;
}

sgl_status sglwire_net(sglcore_env *env, sglexec_comm_options *options)
{
    return sglcomm_shape_parse(env, sglcore_knob_text(SGLCORE_KNOB_NET), options);
}

sgl_status sglwire_launch(sglcore_env *env, int ranks, int count, char *const *command, const char ***words)
{
    return sglcomm_launch(env, ranks, count, command, words);
}

void sglwire_launch_free(sglcore_env *env, const char **words, int count) { sglcomm_launch_free(env, words, count); }

/* wire.c -- names the built-in devices: the one file of the core library that knows a backend.
 *
 * Comes in: backend/backend.h. Goes out: a table by name. A device or transport that is a module of its own, opened when it
 * is asked for, gets its row here too. Odd invariant: the first row is the device of whoever names none. */
#include <string.h>

#include "backend/backend.h"
#include "wire.h"

static const sglexec_device_ops *const devices[] = { &sglexec_device_cpu, &sglexec_device_null };
enum { DEVICES = sizeof devices / sizeof devices[0] };

const sglexec_device_ops *sglwire_device(int index) { return index >= 0 && index < DEVICES ? devices[index] : NULL; }

sgl_status sglwire_device_find(sglcore_env *env, const char *name, const sglexec_device_ops **ops)
{
    const char *names[DEVICES];
    char hint[SGLCORE_HINT_ROOM], list[256];
    size_t used = 0;
    for (int i = 0; i < DEVICES; i++) {
        names[i] = devices[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *ops = devices[i];
            return SGL_OK;
        }
    }
    list[0] = '\0';
    for (int i = 0; i < DEVICES && used + strlen(names[i]) + 6 < sizeof list; i++) {
        const char *before = i == 0 ? "" : i == DEVICES - 1 ? " and " : ", ";
        strcat(strcat(list, before), names[i]);
        used = strlen(list);
    }
    return sglcore_fail(env, SGL_NOT_FOUND, "there is no device '%s'; this build has %s%s", name, list,
                        sglcore_hint(name, names, DEVICES, hint));
}

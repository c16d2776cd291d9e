/* doctor.c -- what this machine has and how the library is set: devices, transports, and every knob with its value.
 *
 * Comes in: a VM. Goes out: text. Asks each device and transport what it is; one that cannot be opened is told with the
 * reason. No world is joined. */
#include "core/knob.h"
#include "session/session.h"
#include "wire.h"

static sgl_status describe_device(sglcore_env *env, int threads, const char *name, sglcore_text *text)
{
    const sglexec_device_ops *ops;
    sglexec_device *device = NULL;
    SGLCORE_TRY(sglcore_text_add(env, text, "device %s\n", name));
    if (sglwire_device_find(env, name, &ops) != SGL_OK || ops->open(env, threads, &device) != SGL_OK)
        return sglcore_text_add(env, text, "  cannot be opened: %s\n", env->message);
    sgl_status status = ops->describe(device, text);
    ops->close(device);
    return status;
}

static sgl_status describe_transport(sglcore_env *env, const sglexec_comm_ops *ops, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "transport %s\n", ops->name));
    return ops->about(env, text);
}

static sgl_status describe_knobs(sglcore_env *env, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "knobs (environment variables)\n"));
    for (int i = 0; i < SGLCORE_KNOB_COUNT; i++) {
        const sglcore_knob_row *row = &sglcore_knob_rows[i];
        SGLCORE_TRY(sglcore_text_add(env, text, "  %-18s = '%s' (default '%s'): %s\n", row->variable,
                                     sglcore_knob_text((sglcore_knob)i), row->otherwise, row->text));
    }
    return SGL_OK;
}

sgl_status sgl_doctor(sgl_vm *vm, sgl_write_fn write, void *user)
{
    SGLSESSION_NEEDS(vm && write, vm, "vm or write is NULL");
    sglcore_text text = { 0 };
    sgl_status status = sglcore_text_add(&vm->env, &text, "sgl %s\n", sgl_version());
    const char *device;
    for (int i = 0; status == SGL_OK && (device = sglwire_device(i)) != NULL; i++)
        status = describe_device(&vm->env, vm->threads, device, &text);
    const sglexec_comm_ops *transport;
    for (int i = 0; status == SGL_OK && (transport = sglwire_transport(i)) != NULL; i++)
        status = describe_transport(&vm->env, transport, &text);
    if (status == SGL_OK) status = describe_knobs(&vm->env, &text);
    if (status == SGL_OK) status = sglsession_hand(vm, __func__, &text, write, user);
    sglcore_text_free(&vm->env, &text);
    return status;
}

/* marks.c -- marks of time on the device's stream: events, made as they are asked for and kept until the device closes.
 *
 * In: numbers of marks. Out: nanoseconds between the first and each. Odd invariant: an event's time is the GPU's, so that
 * what the host did meanwhile shows only where the GPU waited for it. */
#include "backend/cuda/cuda.h"

struct sglcuda_marks {
    CUevent events[SGLEXEC_MOST_MARKS];
};

sgl_status sglcuda_mark(sglexec_device *device, int n)
{
    const sglcuda_driver *driver = device->driver;
    SGLCORE_TRY(sglcuda_enter(device));
    if (!device->marks) device->marks = sglcore_alloc_zero(device->env, sizeof *device->marks);
    if (!device->marks) return SGL_OUT_OF_MEMORY;
    CUevent *event = &device->marks->events[n];
    if (!*event)
        SGLCORE_TRY(
            sglcuda_check(device->env, driver, driver->cuEventCreate(event, CU_EVENT_DEFAULT), "making an event"));
    return sglcuda_check(device->env, driver, driver->cuEventRecord(*event, device->stream), "timing");
}

sgl_status sglcuda_marked(sglexec_device *device, int count, int64_t *ns)
{
    const sglcuda_driver *driver = device->driver;
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_wait(device));
    for (int n = 0; n < count; n++) {
        float ms = 0;
        const CUevent *events = device->marks->events;
        SGLCORE_TRY(
            sglcuda_check(device->env, driver, driver->cuEventElapsedTime(&ms, events[0], events[n]), "timing"));
        ns[n] = (int64_t)((double)ms * 1e6);
    }
    return SGL_OK;
}

void sglcuda_close_marks(sglexec_device *device)
{
    if (!device->marks) return;
    for (int n = 0; n < SGLEXEC_MOST_MARKS; n++)
        if (device->marks->events[n]) (void)device->driver->cuEventDestroy(device->marks->events[n]);
    sglcore_free(device->env, device->marks, sizeof *device->marks);
    device->marks = NULL;
}

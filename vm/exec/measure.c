/* measure.c -- the time of each launch of a replay, by marks of the device or by the host's clock. In and out: profile.h.
 *
 * A device with marks goes on meanwhile: its marks are read when there are as many as are kept, and at the end of a replay. On
 * another one each launch is waited for. Odd invariant: where nothing lies between two launches they share a mark, so that
 * what a device idles between them is the second's. */
#include "exec/device.h"

void sglexec_measure_begin(sglexec_profile *p)
{
    p->began_ns = sglcore_now_ns();
    p->launched_count = p->left_out = 0;
    p->marks = p->marked_count = 0;
    p->follows = false;
}

/* Of a launch that has ended. */
static void keep(sglexec_profile *p, uint32_t n, int64_t begun, int64_t ended)
{
    p->spent[n].ns += ended - begun;
    p->spent[n].launches++;
    if (p->launched_count == p->launched_room)
        p->left_out++;
    else
        p->launched[p->launched_count++] = (sglexec_launched){ .instruction = n, .begun = begun, .ended = ended };
}

static sgl_status read_marks(sglexec_profile *p, const sglexec_device_ops *ops, sglexec_device *device)
{
    if (p->marks == 0) return SGL_OK;
    SGLCORE_TRY(ops->marked(device, p->marks, p->mark_ns));
    for (int32_t i = 0; i < p->marked_count; i++) {
        const sglexec_marked *m = &p->marked[i];
        keep(p, m->instruction, p->begun_ns + p->mark_ns[m->begun], p->begun_ns + p->mark_ns[m->ended]);
    }
    p->marks = p->marked_count = 0;
    p->follows = false;
    return SGL_OK;
}

sgl_status sglexec_measure_before(sglexec_profile *p, const sglexec_device_ops *ops, sglexec_device *device)
{
    if (!ops->mark) {
        p->begun_ns = sglcore_now_ns() - p->began_ns;
        return SGL_OK;
    }
    if (p->marks + 2 > SGLEXEC_MOST_MARKS) SGLCORE_TRY(read_marks(p, ops, device));
    if (p->follows) return SGL_OK;
    if (p->marks == 0) { /* the device has nothing to do: the mark comes at once */
        SGLCORE_TRY(ops->finish(device));
        p->begun_ns = sglcore_now_ns() - p->began_ns;
    }
    return ops->mark(device, p->marks++);
}

sgl_status sglexec_measure_after(sglexec_profile *p, const sglexec_device_ops *ops, sglexec_device *device, uint32_t n)
{
    if (!ops->mark) {
        SGLCORE_TRY(ops->finish(device));
        keep(p, n, p->begun_ns, sglcore_now_ns() - p->began_ns);
        return SGL_OK;
    }
    SGLCORE_TRY(ops->mark(device, p->marks));
    p->marked[p->marked_count++] = (sglexec_marked){ .instruction = n, .begun = p->marks - 1, .ended = p->marks };
    p->marks++;
    p->follows = true;
    return SGL_OK;
}

sgl_status sglexec_measure_end(sglexec_profile *p, const sglexec_device_ops *ops, sglexec_device *device)
{
    SGLCORE_TRY(ops->finish(device));
    SGLCORE_TRY(read_marks(p, ops, device));
    p->replays++;
    return SGL_OK;
}

/* null.c -- the null device: plans everything, computes nothing.
 *
 * Comes in: programs of any size. Goes out: success. A block is a name without memory behind it, so that a model far larger
 * than this machine can be traced, planned and frozen; what is read from it is zeros. Every composite counts as run whole,
 * with no workspace. */
#include <string.h>

#include "backend/backend.h"

struct sglexec_device {
    sglcore_env *env;
};

static sgl_status null_open(sglcore_env *env, int threads, sglexec_device **device)
{
    (void)threads;
    *device = sglcore_alloc_zero(env, sizeof **device);
    if (!*device) return SGL_OUT_OF_MEMORY;
    (*device)->env = env;
    return SGL_OK;
}

static void null_close(sglexec_device *device) { sglcore_free(device->env, device, sizeof *device); }

static bool null_native(sglir_op op) { return (sglir_ops[op].flags & SGLIR_COMPOSITE) != 0; }

static int64_t null_workspace(const sglir_graph *g, sglir_id node)
{
    (void)g, (void)node;
    return 0;
}

/* The device's own address stands for every block: not NULL, and never looked into. */
static sgl_status null_alloc(sglexec_device *device, int64_t bytes, void **block)
{
    (void)bytes;
    *block = device;
    return SGL_OK;
}

static void null_free(sglexec_device *device, void *block, int64_t bytes) { (void)device, (void)block, (void)bytes; }

static sgl_status null_write(sglexec_device *device, void *block, int64_t offset, const void *host, int64_t bytes)
{
    (void)device, (void)block, (void)offset, (void)host, (void)bytes;
    return SGL_OK;
}

static sgl_status null_read(sglexec_device *device, const void *block, int64_t offset, void *host, int64_t bytes)
{
    (void)device, (void)block, (void)offset;
    if (bytes > 0) memset(host, 0, (size_t)bytes);
    return SGL_OK;
}

static sgl_status null_copy(sglexec_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device, (void)to, (void)from, (void)bytes;
    return SGL_OK;
}

static sgl_status null_prepare(sglexec_device *device, const sglexec_program *program, void **prepared)
{
    (void)program;
    *prepared = device;
    return SGL_OK;
}

static void null_release(sglexec_device *device, void *prepared) { (void)device, (void)prepared; }

static sgl_status null_launch(sglexec_device *device, void *prepared, uint32_t index, void *const spaces[SGLIR_SPACES])
{
    (void)device, (void)prepared, (void)index, (void)spaces;
    return SGL_OK;
}

static sgl_status null_finish(sglexec_device *device)
{
    (void)device;
    return SGL_OK;
}

static sgl_status null_describe(sglexec_device *device, sglcore_text *text)
{
    return sglcore_text_add(device->env, text, "  plans everything, computes nothing\n");
}

static sgl_status null_peak_flops(sglexec_device *device, double *flops_per_s)
{
    *flops_per_s = 0;
    return sglcore_fail(device->env, SGL_UNSUPPORTED, "the null device computes nothing");
}

const sglexec_device_ops sglexec_device_null = {
    .name = "null",
    .blank = true,
    .host_memory = true,
    .open = null_open,
    .close = null_close,
    .native = null_native,
    .workspace = null_workspace,
    .alloc = null_alloc,
    .free = null_free,
    .write = null_write,
    .read = null_read,
    .copy = null_copy,
    .prepare = null_prepare,
    .release = null_release,
    .launch = null_launch,
    .finish = null_finish,
    .describe = null_describe,
    .peak_flops = null_peak_flops,
};

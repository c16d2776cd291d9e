/* steps.c -- commands that are launches, fills and copies, one after another.
 *
 * In: functions, grids, places and values, while an instruction is prepared. Out: a command whose run hands them to the
 * stream. Odd invariant: a launch writes its pointers into its own arguments before each call, so that a prepared program
 * is launched by one thread at a time. */
#include <string.h>

#include "backend/cuda/cuda.h"

/* What a kernel gets without asking; more of it is asked for by function. */
enum { SHARED_BYTES_FREE = 48 << 10 };

typedef struct step {
    sglcuda_step launch; /* function NULL: a fill or a copy of `bytes` */
    sglcuda_place to, from;
    int64_t bytes;
    bool copies;
    struct step *next;
} step;

typedef struct steps {
    step *first, *last;
} steps;

/* Where maps begin among arguments. */
static size_t maps_at(int place_count)
{
    return (size_t)sglcuda_round_up(place_count * (int64_t)sizeof(CUdeviceptr), (int64_t) _Alignof(CUtensorMap));
}

static sgl_status write_map(const sglcuda_launch *launch, const sglcuda_map *m, char *to)
{
    const CUtensorMapDataType type =
        m->dtype == SGL_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const int64_t row = m->heads * m->width;
    const cuuint64_t dims[4] = { (cuuint64_t)m->width, (cuuint64_t)m->heads, (cuuint64_t)m->rows,
                                 (cuuint64_t)m->sequences };
    const cuuint64_t strides[3] = { (cuuint64_t)m->width * 2, (cuuint64_t)row * 2, (cuuint64_t)(m->rows * row) * 2 };
    const cuuint32_t box[4] = { 64, 1, (cuuint32_t)m->box_rows, 1 }, every[4] = { 1, 1, 1, 1 };
    CUtensorMap map;
    const sglcuda_driver *driver = launch->device->driver;
    SGLCORE_TRY(sglcuda_check(
        launch->device->env, driver,
        driver->cuTensorMapEncodeTiled(&map, type, 4, (void *)(uintptr_t)sglcuda_at(launch, m->place), dims, strides,
                                       box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describing a tensor to the GPU"));
    memcpy(to, &map, sizeof map);
    return SGL_OK;
}

/* With maps the driver is told each argument: where one that is aligned to 64 bytes lies among the others is its own
 * affair, since that counts from the beginning of the bank which they lie in. */
static void tell_arguments(const sglcuda_step *s, void **arguments)
{
    for (int i = 0; i < s->place_count; i++) *arguments++ = s->arguments + (size_t)i * sizeof(CUdeviceptr);
    for (int i = 0; i < s->map_count; i++)
        *arguments++ = s->arguments + maps_at(s->place_count) + (size_t)i * sizeof(CUtensorMap);
    *arguments = s->arguments + s->values_at;
}

static sgl_status launch_kernel(const sglcuda_launch *launch, const sglcuda_step *s)
{
    size_t bytes = s->argument_bytes;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, s->arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END };
    void *each[SGLCUDA_MAPPED_ARGUMENTS];
    const bool mapped = s->map_count > 0;
    const unsigned *blocks = s->grid.blocks, *threads = s->grid.threads;
    for (int i = 0; i < s->place_count; i++) {
        const CUdeviceptr at = sglcuda_at(launch, s->places[i]);
        memcpy(s->arguments + (size_t)i * sizeof at, &at, sizeof at);
    }
    for (int i = 0; i < s->map_count; i++)
        SGLCORE_TRY(
            write_map(launch, &s->maps[i], s->arguments + maps_at(s->place_count) + (size_t)i * sizeof(CUtensorMap)));
    if (mapped) tell_arguments(s, each);
    const sglcuda_driver *driver = launch->device->driver;
    return sglcuda_check(launch->device->env, driver,
                         driver->cuLaunchKernel(s->function->handle, blocks[0], blocks[1], blocks[2], threads[0],
                                                threads[1], threads[2], s->grid.shared, launch->stream,
                                                mapped ? each : NULL, mapped ? NULL : extra),
                         "launching a kernel");
}

static sgl_status run_steps(const sglcuda_launch *launch, const void *plan)
{
    const sglcuda_driver *driver = launch->device->driver;
    sglcore_env *env = launch->device->env;
    for (const step *s = ((const steps *)plan)->first; s; s = s->next) {
        if (s->launch.function) {
            SGLCORE_TRY(launch_kernel(launch, &s->launch));
            continue;
        }
        const CUdeviceptr to = sglcuda_at(launch, s->to);
        const size_t bytes = (size_t)s->bytes;
        if (s->copies) {
            const CUdeviceptr from = sglcuda_at(launch, s->from);
            SGLCORE_TRY(
                sglcuda_check(env, driver, driver->cuMemcpyDtoDAsync(to, from, bytes, launch->stream), "copying"));
        } else {
            SGLCORE_TRY(sglcuda_check(env, driver, driver->cuMemsetD8Async(to, 0, bytes, launch->stream), "filling"));
        }
    }
    return SGL_OK;
}

/* A command that does nothing yet, unless it has begun. */
static sgl_status start(sglcuda_prepare *p, sglcuda_command *command)
{
    if (command->run == run_steps) return SGL_OK;
    if (command->run)
        return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: a step is added to a command of another kind");
    command->plan = sglcuda_plan_alloc(p, 1, sizeof(steps));
    if (!command->plan) return SGL_OUT_OF_MEMORY;
    command->run = run_steps;
    return SGL_OK;
}

/* To a command that has begun. */
static step *add(sglcuda_prepare *p, sglcuda_command *command)
{
    steps *all = (steps *)command->plan; /* of this file, in the program's arena */
    step *s = sglcuda_plan_alloc(p, 1, sizeof *s);
    if (!s) return NULL;
    *(all->last ? &all->last->next : &all->first) = s;
    return all->last = s;
}

sgl_status sglcuda_add_step(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_function *function,
                            sglcuda_grid grid, const sglcuda_place *places, int place_count, const void *values,
                            size_t value_bytes)
{
    return sglcuda_add_mapped_step(p, command, function, grid, places, place_count, NULL, 0, values, value_bytes);
}

sgl_status sglcuda_add_mapped_step(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_function *function,
                                   sglcuda_grid grid, const sglcuda_place *places, int place_count,
                                   const sglcuda_map *maps, int map_count, const void *values, size_t value_bytes)
{
    SGLCORE_TRY(start(p, command));
    if (grid.blocks[0] == 0 || grid.blocks[1] == 0 || grid.blocks[2] == 0) return SGL_OK;
    if (map_count > 0 && place_count + map_count + 1 > SGLCUDA_MAPPED_ARGUMENTS)
        return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: a kernel takes more than %d arguments",
                            (int)SGLCUDA_MAPPED_ARGUMENTS);
    const size_t behind = map_count > 0 ? maps_at(place_count) + (size_t)map_count * sizeof(CUtensorMap)
                                        : (size_t)place_count * sizeof(CUdeviceptr);
    step *s = add(p, command);
    sglcuda_place *copied = sglcuda_plan_alloc(p, place_count, sizeof *copied);
    sglcuda_map *mapped = sglcuda_plan_alloc(p, map_count, sizeof *mapped);
    char *arguments = sglcuda_plan_alloc(p, (int64_t)(behind + value_bytes), 1);
    if (!s || !copied || !mapped || !arguments) return SGL_OUT_OF_MEMORY;
    if (place_count > 0) memcpy(copied, places, (size_t)place_count * sizeof *places);
    if (map_count > 0) memcpy(mapped, maps, (size_t)map_count * sizeof *maps);
    if (value_bytes > 0) memcpy(arguments + behind, values, value_bytes);
    s->launch = (sglcuda_step){ .function = function,
                                .grid = grid,
                                .places = copied,
                                .maps = mapped,
                                .place_count = place_count,
                                .map_count = map_count,
                                .values_at = behind,
                                .argument_bytes = behind + value_bytes,
                                .arguments = arguments };
    return SGL_OK;
}

sgl_status sglcuda_add_zeros(sglcuda_prepare *p, sglcuda_command *command, sglcuda_place place, int64_t bytes)
{
    SGLCORE_TRY(start(p, command));
    if (bytes == 0) return SGL_OK;
    step *s = add(p, command);
    if (!s) return SGL_OUT_OF_MEMORY;
    s->to = place;
    s->bytes = bytes;
    return SGL_OK;
}

sgl_status sglcuda_add_copy(sglcuda_prepare *p, sglcuda_command *command, sglcuda_place to, sglcuda_place from,
                            int64_t bytes)
{
    SGLCORE_TRY(start(p, command));
    if (bytes == 0 || (to.space == from.space && to.offset == from.offset)) return SGL_OK;
    step *s = add(p, command);
    if (!s) return SGL_OUT_OF_MEMORY;
    s->to = to;
    s->from = from;
    s->bytes = bytes;
    s->copies = true;
    return SGL_OK;
}

sgl_status sglcuda_ready_steps(sglexec_device *device, const sglcuda_command *command)
{
    const sglcuda_driver *driver = device->driver;
    if (command->run != run_steps) return SGL_OK;
    for (const step *s = ((const steps *)command->plan)->first; s; s = s->next) {
        const sglcuda_step *l = &s->launch;
        if (!l->function || l->grid.shared <= SHARED_BYTES_FREE) continue;
        SGLCORE_TRY(sglcuda_check(device->env, driver,
                                  driver->cuFuncSetAttribute(l->function->handle,
                                                             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                             (int)l->grid.shared),
                                  "asking for shared memory"));
    }
    return SGL_OK;
}

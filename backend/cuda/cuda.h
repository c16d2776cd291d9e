/* cuda.h -- what the files of the CUDA backend share: the device, a prepared command, how a kernel is launched.
 *
 * The backend is a module of its own, libsgl_cuda.so, which carries what it needs of core/, ir/ and exec/. The driver and the
 * libraries of the toolkit are opened by name when a device opens (library.c), so that a machine that has none of them gets a
 * message and not a failure of the loader. prepare turns each instruction of a program into a command: kernels one after
 * another over places in memory, or a call of a library. Two kinds of kernels: those of kernels/<name>.cu, compiled when the module is
 * built and loaded when a device opens, and those that emit.c prints for fused regions, compiled by NVRTC when a program is
 * prepared.
 *
 * Odd invariant: nothing that a command computes depends on the device: grids may, the order of a sum never does. */
#ifndef SGLCUDA_CUDA_H
#define SGLCUDA_CUDA_H

#include <cuda.h>

#include "backend/cuda/library.h"
#include "exec/device.h"

struct sglexec_device {
    sglcore_env *env;
    const sglcuda_driver *driver; /* opened once in a process, and kept */
    CUdevice device;
    CUcontext context;                 /* the primary one, retained */
    CUstream stream;                   /* on which everything is launched, in order; but for moves (moves.c): */
    CUstream out, in;                  /* to the host's memory, and from there */
    struct sglcuda_builtins *builtins; /* builtin.c: kernels/<name>.cu */
    struct sglcuda_staging *staging;   /* memory.c: pinned, for what is written */
    int number, count;                 /* which of the GPUs that there are */
    int major, minor;                  /* compute capability */
    int processors;                    /* streaming multiprocessors */
    int shared;                        /* bytes of shared memory that a block may ask for */
    int64_t memory;                    /* bytes of the device */
    int threads;                       /* for compiling */
    bool waits;                        /* SGL_CUDA_WAIT: each launch is waited for */
    double peak_flops;                 /* 0: not measured yet */
    struct sglcuda_marks *marks;       /* marks.c; NULL until something is measured */
    void *ranges;                      /* nvtx.c: a profiler's domain; NULL: none is attached */
    struct sglcuda_blas *blas;         /* blas.c; NULL until a product is prepared */
    struct sglcuda_compiler *compiler; /* nvrtc.c; NULL until a source is compiled */
    struct sglcuda_cudnn *cudnn;       /* cudnn.c; NULL until it is asked for */
    struct sglcuda_links *links;       /* link.c; NULL: the ranks exchange through the host */
};

/* A function of the device. Of an emitted kernel `handle` is set when the whole program is settled, before any launch. */
typedef struct sglcuda_function {
    CUfunction handle;
} sglcuda_function;

/* Where a kernel's pointer points: bytes from the beginning of a space. */
typedef struct sglcuda_place {
    int space; /* sglir_space */
    int64_t offset;
} sglcuda_place;

typedef struct sglcuda_grid {
    unsigned blocks[3], threads[3];
    unsigned shared; /* bytes of dynamic shared memory */
} sglcuda_grid;

/* Narrow floats [sequences, rows, heads, width] at a place, as a kernel's copies take them: boxes of 64 columns of one
 * head and so many rows, in rows of 128 bytes whose units of 16 are exchanged; what is beyond the ends is zeros. */
typedef struct sglcuda_map {
    sglcuda_place place; /* a multiple of 16 bytes */
    sgl_dtype dtype;     /* bf16 or f16 */
    int64_t sequences, rows, heads, width;
    int box_rows; /* at most 256 */
} sglcuda_map;

enum { SGLCUDA_MAPPED_ARGUMENTS = 24 }; /* at most, of a kernel that takes maps */

/* One launch of a kernel, which takes `place_count` pointers, then maps, and then one struct of values (or nothing). */
typedef struct sglcuda_step {
    const sglcuda_function *function;
    sglcuda_grid grid;
    const sglcuda_place *places;
    const sglcuda_map *maps;
    int place_count, map_count;
    size_t argument_bytes, values_at;
    char *arguments; /* the pointers and the maps, written at each launch, then the values */
} sglcuda_step;

typedef struct sglcuda_launch {
    sglexec_device *device;
    void *const *spaces;
    CUstream stream;
} sglcuda_launch;

/* run NULL: there is nothing to do. */
typedef struct sglcuda_command {
    sgl_status (*run)(const sglcuda_launch *launch, const void *plan);
    const void *plan;
} sglcuda_command;

typedef struct sglcuda_prepare {
    sglcore_env *env;
    sglcore_arena *arena; /* of the prepared program: plans live there */
    sglexec_device *device;
    const sglexec_program *program;
    struct sglcuda_sources *sources;        /* compile.c: what is to be compiled for this program */
    struct sglcuda_move_events **moving;    /* moves.c: what its moves hold */
    const sglexec_instruction *instruction; /* the one that is being prepared */
} sglcuda_prepare;

typedef sgl_status (*sglcuda_prepare_fn)(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);

static inline const sglexec_operand *sglcuda_operand(const sglexec_program *program, const sglexec_instruction *i,
                                                     uint32_t number)
{
    return &program->operands.data[i->operand_first + number];
}
static inline sglcuda_place sglcuda_place_of(const sglexec_operand *operand)
{
    return (sglcuda_place){ .space = operand->space, .offset = operand->offset };
}
/* Byte `at` of the instruction's workspace. */
static inline sglcuda_place sglcuda_work_place(const sglexec_instruction *i, int64_t at)
{
    return (sglcuda_place){ .space = SGLIR_SPACE_ARENA, .offset = i->work_offset + at };
}
static inline CUdeviceptr sglcuda_at(const sglcuda_launch *launch, sglcuda_place place)
{
    return (CUdeviceptr)(uintptr_t)launch->spaces[place.space] + (CUdeviceptr)place.offset;
}
static inline int64_t sglcuda_bytes(const sglexec_operand *operand)
{
    return sglcore_dtype_bytes((sgl_dtype)operand->dtype, sglexec_elements(operand));
}
static inline int64_t sglcuda_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t sglcuda_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t sglcuda_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t sglcuda_round_up(int64_t a, int64_t unit) { return sglcuda_ceil_div(a, unit) * unit; }

/* A zeroed plan in the prepared program's arena, NULL when memory is out. */
static inline void *sglcuda_plan_alloc(sglcuda_prepare *p, int64_t count, int64_t size)
{
    return sglcore_arena_alloc(p->arena, (size_t)(sglcuda_max(count, 1) * size));
}

/* ---- commands that are kernels one after another (steps.c) ---- */
/* Appends a launch to a command that is empty or made of such. Places and values are copied. values: as the kernel's last parameter,
 * aligned to 8 bytes; NULL and 0: none. A grid without blocks is a launch of nothing. */
sgl_status sglcuda_add_step(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_function *function,
                            sglcuda_grid grid, const sglcuda_place *places, int place_count, const void *values,
                            size_t value_bytes);
/* The same of a kernel that takes maps behind the pointers, and a struct of values behind these. */
sgl_status sglcuda_add_mapped_step(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_function *function,
                                   sglcuda_grid grid, const sglcuda_place *places, int place_count,
                                   const sglcuda_map *maps, int map_count, const void *values, size_t value_bytes);
/* Appends a fill of `bytes` with zeros. */
sgl_status sglcuda_add_zeros(sglcuda_prepare *p, sglcuda_command *command, sglcuda_place place, int64_t bytes);
/* Appends a copy of bytes; what does not move is no launch. The two do not overlap otherwise. */
sgl_status sglcuda_add_copy(sglcuda_prepare *p, sglcuda_command *command, sglcuda_place to, sglcuda_place from,
                            int64_t bytes);

/* Settles what a launch needs of its functions, once they all have handles. */
sgl_status sglcuda_ready_steps(sglexec_device *device, const sglcuda_command *command);

/* ---- functions of kernels ---- */
/* A kernel of kernels/<name>.cu, by its name there (extern "C"). INTERNAL when there is none. (builtin.c) */
sgl_status sglcuda_builtin(sglcuda_prepare *p, const char *name, const sglcuda_function **function);
/* The same while no program is prepared. */
sgl_status sglcuda_builtin_of(sglexec_device *device, const char *name, const sglcuda_function **function);
/* Function `entry` of a source text that is compiled with all the others when the program's instructions have been seen. Equal
 * texts are compiled once, for all their functions. (compile.c) */
sgl_status sglcuda_source(sglcuda_prepare *p, const char *text, const char *entry, const sglcuda_function **function);

/* Loads no kernel yet; the device's context is current. (builtin.c) */
sgl_status sglcuda_open_builtins(sglexec_device *device);
void sglcuda_close_builtins(sglexec_device *device);
/* Also where no product was prepared. (blas.c) */
void sglcuda_close_blas(sglexec_device *device);
/* Empty sources; their end, with all that was made of them; and in between: every text is compiled, by NVRTC on threads of the device, or
 * comes from the cache, and becomes a function once that is waited for. (compile.c) */
sgl_status sglcuda_new_sources(sglexec_device *device, struct sglcuda_sources **sources);
void sglcuda_free_sources(struct sglcuda_sources *sources);
sgl_status sglcuda_begin_sources(sglcuda_prepare *p);
sgl_status sglcuda_end_sources(struct sglcuda_sources *sources, const sglexec_program *program);

/* ---- the device ---- */
extern const sglexec_device_ops sglcuda_ops; /* device.c: the table itself */
/* Makes the device's context the thread's. */
sgl_status sglcuda_enter(sglexec_device *device);
/* Waits for all that was launched, and tells what went wrong meanwhile. */
sgl_status sglcuda_wait(sglexec_device *device);
/* The same before something is given back, without words; false: it never comes to rest, and what it may use is not given back. */
bool sglcuda_rest(sglexec_device *device);
/* The port's functions over memory (memory.c). */
int64_t sglcuda_room(sglexec_device *device);
sgl_status sglcuda_alloc(sglexec_device *device, int64_t bytes, void **block);
void sglcuda_free(sglexec_device *device, void *block, int64_t bytes);
sgl_status sglcuda_write(sglexec_device *device, void *block, int64_t offset, const void *host, int64_t bytes);
sgl_status sglcuda_read(sglexec_device *device, const void *block, int64_t offset, void *host, int64_t bytes);
sgl_status sglcuda_copy(sglexec_device *device, void *to, const void *from, int64_t bytes);
sgl_status sglcuda_open_staging(sglexec_device *device);
void sglcuda_close_staging(sglexec_device *device);
/* Memory of the host that the GPU reaches, pinned. */
sgl_status sglcuda_alloc_host(sglexec_device *device, int64_t bytes, void **block);
void sglcuda_free_host(sglexec_device *device, void *block, int64_t bytes);
/* Lines about the GPU for `sgl doctor`. */
sgl_status sglcuda_describe(sglexec_device *device, sglcore_text *text);    /* describe.c */
sgl_status sglcuda_peak_flops(sglexec_device *device, double *flops_per_s); /* peak.c */
sgl_status sglcuda_ceilings(sglexec_device *device, sglexec_ceilings *ceilings);
sgl_status sglcuda_mark(sglexec_device *device, int n); /* marks.c */
sgl_status sglcuda_marked(sglexec_device *device, int count, int64_t *ns);
void sglcuda_close_marks(sglexec_device *device);

/* ---- ranges of a profiler (nvtx.c) ---- */
void *sglcuda_open_ranges(void);
void sglcuda_close_ranges(void *domain);
/* Nested; of a domain that is NULL: nothing. The name is copied by whoever listens. */
void sglcuda_begin_range(void *domain, const char *name);
void sglcuda_end_range(void *domain);
/* A name for each instruction, in the program's arena; NULL where nobody listens. */
sgl_status sglcuda_name_ranges(sglcuda_prepare *p, const char *const **names);

/* ---- moves between the GPU's memory and the host's (moves.c) ---- */
struct sglcuda_move_events; /* of the moves of a program that is prepared */
sgl_status sglcuda_prepare_move(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_arrived(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
void sglcuda_free_moves(sglexec_device *device, struct sglcuda_move_events *moving);
/* How many commands from `first` on, of those before `end`, may be captured as one row: of each move that begins there the end is
 * there too, and the other way round. */
uint32_t sglcuda_row_of(const sglcuda_command *commands, uint32_t first, uint32_t end);
sgl_status sglcuda_open_moves(sglexec_device *device);
void sglcuda_close_moves(sglexec_device *device);
/* Waits for all that is under way. */
sgl_status sglcuda_wait_moves(sglexec_device *device);

/* ---- instructions as a graph (graph.c) ---- */
struct
    sglcuda_graphs; /* rows of instructions that are captured once, by where they begin: of a program that is prepared */
sgl_status sglcuda_new_graphs(sglcuda_prepare *p, struct sglcuda_graphs **graphs);
void sglcuda_free_graphs(sglexec_device *device, struct sglcuda_graphs *graphs);
/* Runs what `launch_all` launches on the device's stream: as a CUDA graph, captured where none is there yet for these spaces. */
sgl_status sglcuda_replay(sglexec_device *device, struct sglcuda_graphs *graphs, uint32_t first,
                          void *const spaces[SGLIR_SPACES], sgl_status (*launch_all)(void *context), void *context);

/* ---- messages ---- */
/* Puts "file:line: " of an instruction that has a line before the message. (device.c) */
sgl_status sglcuda_fail_in(sglcore_env *env, sgl_status status, const sglexec_program *program,
                           const sglexec_instruction *i);
/* SGL_OK for CUDA_SUCCESS; else OUT_OF_MEMORY or DEVICE's status with what was done and the driver's words. (library.c) */
sgl_status sglcuda_check(sglcore_env *env, const sglcuda_driver *driver, CUresult result, const char *what);

/* ---- the families of commands ---- */
sgl_status sglcuda_prepare_fused(sglcuda_prepare *p, const sglexec_instruction *i,
                                 sglcuda_command *command); /* fused.c */
sgl_status sglcuda_print_source(sglcore_env *env, const sglexec_program *program, uint32_t index, sglcore_text *text);
sgl_status sglcuda_prepare_single(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_loss(sglcuda_prepare *p, const sglexec_instruction *i,
                                sglcuda_command *command);                                                  /* loss.c */
sgl_status sglcuda_prepare_dot(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command); /* dot.c */
sgl_status sglcuda_prepare_concat(sglcuda_prepare *p, const sglexec_instruction *i,
                                  sglcuda_command *command); /* move.c */
sgl_status sglcuda_prepare_pad(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_pack(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_unpack(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_copy(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_dynamic(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_gather(sglcuda_prepare *p, const sglexec_instruction *i,
                                  sglcuda_command *command); /* gather.c */
sgl_status sglcuda_prepare_scatter(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
/* recurrence, cumulative_sum, argmax, argmin, take_along, add_along; reduce_prod */
sgl_status sglcuda_prepare_along(sglcuda_prepare *p, const sglexec_instruction *i,
                                 sglcuda_command *command); /* along.c */
sgl_status sglcuda_prepare_prod(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);
sgl_status sglcuda_prepare_sort(sglcuda_prepare *p, const sglexec_instruction *i,
                                sglcuda_command *command); /* sort.c */
sgl_status sglcuda_prepare_windows(sglcuda_prepare *p, const sglexec_instruction *i,
                                   sglcuda_command *command); /* windows.c */
sgl_status sglcuda_prepare_attention(sglcuda_prepare *p, const sglexec_instruction *i,
                                     sglcuda_command *command); /* attention.c */
sgl_status sglcuda_prepare_attention_grad(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command);

/* Workspace in bytes, from the graph's node alone; each family's plan asks for no more. */
int64_t sglcuda_fused_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_single_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_dot_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_loss_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_sort_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_scatter_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_along_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_attention_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcuda_attention_grad_workspace(const sglir_graph *g, const sglir_node *node);

#endif

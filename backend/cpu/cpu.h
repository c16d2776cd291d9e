/* cpu.h -- what the files of the CPU backend share: the device, a prepared command, what a command sees when it runs.
 *
 * prepare turns each instruction of a program into a command: a function and a plan in the prepared program's arena, with
 * every decision taken. launch calls it. Scratch is memory of each worker, sized by the largest command; workspace is the
 * instruction's own part of the arena. Odd invariant: nothing that a command does depends on the number of threads. */
#ifndef SGLCPU_CPU_H
#define SGLCPU_CPU_H

#include "backend/cpu/isa.h"
#include "backend/cpu/pool.h"
#include "exec/device.h"

struct sglexec_device {
    sglcore_env *env;
    sglcpu_pool *pool;
    const sglcpu_isa *isa;
    double peak_flops; /* 0: not measured yet */
};

typedef struct sglcpu_launch {
    sglcpu_pool *pool;
    const sglcpu_isa *isa;
    void *const *spaces;
    char *scratch; /* worker w has scratch_bytes of it, from scratch + w * scratch_bytes */
    int64_t scratch_bytes;
    char *work; /* the instruction's workspace */
} sglcpu_launch;

typedef struct sglcpu_command {
    void (*run)(const sglcpu_launch *launch, const void *plan);
    const void *plan;
    int64_t work_offset; /* of the instruction's workspace in the arena */
} sglcpu_command;

typedef struct sglcpu_prepare {
    sglcore_env *env;
    sglcore_arena *arena; /* of the prepared program: plans live there */
    const sglcpu_isa *isa;
    const sglexec_program *program;
    int64_t scratch_bytes;                 /* the most that a command asked for */
    struct sglcpu_rope_table *rope_tables; /* shared by the ropes of the program */
} sglcpu_prepare;

typedef sgl_status (*sglcpu_prepare_fn)(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);

static inline const sglexec_operand *sglcpu_operand(const sglexec_program *program, const sglexec_instruction *i,
                                                    uint32_t number)
{
    return &program->operands.data[i->operand_first + number];
}
static inline char *sglcpu_at(const sglcpu_launch *launch, const sglexec_operand *operand)
{
    return (char *)launch->spaces[operand->space] + operand->offset;
}
static inline char *sglcpu_scratch(const sglcpu_launch *launch, int worker)
{
    return launch->scratch + worker * launch->scratch_bytes;
}
/* Of an element where it is stored (i4: none, two share a byte), and while it is held. */
static inline int64_t sglcpu_size(sgl_dtype dtype) { return sglcore_dtype_bits(dtype) / 8; }
static inline int64_t sglcpu_held_size(sgl_dtype dtype) { return sglcpu_size(sglcpu_held(dtype)); }
static inline int64_t sglcpu_bytes(const sglexec_operand *operand)
{
    return sglcore_dtype_bytes((sgl_dtype)operand->dtype, sglexec_elements(operand));
}
static inline int64_t sglcpu_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t sglcpu_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t sglcpu_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t sglcpu_round_up(int64_t a, int64_t unit) { return sglcpu_ceil_div(a, unit) * unit; }
/* 0 for f32, 1 for f64: the index into sglcpu_isa.floats; -1 for the rest. */
static inline int sglcpu_float_index(sgl_dtype dtype) { return dtype == SGL_F32 ? 0 : dtype == SGL_F64 ? 1 : -1; }
/* The same of the dtype in which elements are held: narrow floats are computed as f32. */
static inline int sglcpu_held_index(sgl_dtype dtype) { return sglcpu_float_index(sglcpu_held(dtype)); }

/* Copies of one element; size 1, 2, 4 or 8 (number.c). */
void sglcpu_spread(void *out, const void *element, int64_t size, int64_t count);
/* `value` as a number of the dtype, held; and stored (i4: in the low half of a byte). */
void sglcpu_put_number(void *out, sgl_dtype dtype, double value);
void sglcpu_put_stored(void *out, sgl_dtype dtype, double value);
/* Elements first .. first + count - 1 of a stored array to held ones, and back. `whole`: elements of the stored array. Of i4
 * no two threads may store to one byte. */
void sglcpu_load_run(const sglcpu_isa *isa, sgl_dtype dtype, void *held, const void *stored, int64_t first,
                     int64_t count);
void sglcpu_store_run(const sglcpu_isa *isa, sgl_dtype dtype, void *stored, int64_t first, const void *held,
                      int64_t count, int64_t whole);
/* Elements of 4 bits from array to array. */
void sglcpu_move_nibbles(void *to, int64_t to_first, const void *from, int64_t from_first, int64_t count,
                         int64_t to_whole);
/* Element i of an array of any integer dtype. */
int64_t sglcpu_read_index(const char *indices, sgl_dtype dtype, int64_t i);
/* first, first + stride, ..., held; of narrow floats not yet settled */
void sglcpu_put_counter(void *out, sgl_dtype dtype, int64_t first, int64_t stride, int64_t count);

/* A worker's scratch must hold `bytes`. */
static inline void sglcpu_need_scratch(sglcpu_prepare *p, int64_t bytes)
{
    p->scratch_bytes = sglcpu_max(p->scratch_bytes, bytes);
}
/* A zeroed plan in the prepared program's arena, NULL when memory is out. */
static inline void *sglcpu_plan_alloc(sglcpu_prepare *p, int64_t count, int64_t size)
{
    return sglcore_arena_alloc(p->arena, (size_t)(sglcpu_max(count, 1) * size));
}

/* The families of commands. */
sgl_status sglcpu_prepare_fused(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* fused.c */
sgl_status sglcpu_prepare_single(sglcpu_prepare *p, const sglexec_instruction *i,
                                 sglcpu_command *command); /* single.c */
/* A command that copies `from` through strides (of its elements, one per dim of `to`) into the dense `to`. */
sgl_status sglcpu_prepare_permute(sglcpu_prepare *p, const sglexec_operand *from, const int64_t *strides,
                                  const sglexec_operand *to, sglcpu_command *command);
sgl_status sglcpu_prepare_concat(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* move.c */
sgl_status sglcpu_prepare_pad(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_pack(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_unpack(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_arrived(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_copy(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_dynamic(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_gather(sglcpu_prepare *p, const sglexec_instruction *i,
                                 sglcpu_command *command); /* gather.c */
sgl_status sglcpu_prepare_scatter(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_dot(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);  /* dot.c */
sgl_status sglcpu_prepare_rope(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* rope.c */
sgl_status sglcpu_prepare_attention(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_attention_grad(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_loss(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* loss.c */
/* recurrence, cumulative_sum, argmax, argmin, take_along, add_along; reduce_prod */
sgl_status sglcpu_prepare_along(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* along.c */
sgl_status sglcpu_prepare_prod(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command);
sgl_status sglcpu_prepare_sort(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* sort.c */
sgl_status sglcpu_prepare_windows(sglcpu_prepare *p, const sglexec_instruction *i,
                                  sglcpu_command *command); /* windows.c */
sgl_status sglcpu_prepare_conv(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command); /* conv.c */

/* Flops per second of a large f32 product, measured when first asked. */
sgl_status sglcpu_peak_flops(sglexec_device *device, double *flops_per_s); /* peak.c */
sgl_status sglcpu_ceilings(sglexec_device *device, sglexec_ceilings *ceilings);

/* Lines about the CPU for `sgl doctor`. */
sgl_status sglcpu_describe(sglexec_device *device, sglcore_text *text); /* describe.c */

/* Workspace in bytes, from the graph's node alone; each family's plan asks for no more. */
int64_t sglcpu_fused_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcpu_single_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcpu_dot_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcpu_loss_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcpu_sort_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcpu_conv_workspace(const sglir_graph *g, const sglir_node *node);
int64_t sglcpu_scatter_workspace(const sglir_graph *g, const sglir_node *node);

#endif

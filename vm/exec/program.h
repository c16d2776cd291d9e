/* program.h -- a frozen program: blocks of instructions over planned memory, plain data without addresses.
 *
 * Comes in: a graph after `memory`. Goes out: what a backend prepares once and replay runs every step. Every decision is
 * taken: an instruction names its operands' places, its workspace, its kernel. Copies that the graph leaves implicit
 * (a loop's carries, a fetch, an update that is not in place) stand as COPY instructions. */
#ifndef SGLEXEC_PROGRAM_H
#define SGLEXEC_PROGRAM_H

#include "exec/kernel.h"

/* A dense row-major tensor at a place. */
typedef struct sglexec_operand {
    uint8_t space; /* sglir_space */
    uint8_t dtype;
    uint8_t rank;
    int64_t offset; /* bytes */
    int64_t dims[SGL_MAX_RANK];
} sglexec_operand;

static inline int64_t sglexec_elements(const sglexec_operand *operand)
{
    int64_t count = 1;
    for (int d = 0; d < operand->rank; d++) count *= operand->dims[d];
    return count;
}

typedef struct sglexec_instruction {
    uint16_t op;            /* sglir_op; FUSED: see kernel; SCAN, WHILE, COND: see block */
    uint32_t operand_first; /* program->operands: arguments, then results */
    uint32_t arg_count, result_count;
    uint32_t attr_first, attr_count; /* program->attrs; lists in program->ints and floats */
    uint32_t kernel;                 /* FUSED: program->kernels */
    /* Control, which names blocks of the program. Loops: their first operand is the index, i64 [], written before each
     * turn. WHILE: the second is the predicate, bool [], which block `other` leaves there; COND: its one operand. */
    uint32_t block; /* a turn; COND: where the predicate holds */
    uint32_t other; /* WHILE: what decides, before each turn; COND: where the predicate does not hold */
    uint32_t begun; /* WAIT, ARRIVED: the instruction, of its block, that began the exchange or the move */
    int64_t steps;  /* SCAN: turns; WHILE: at most so many, -1: no limit */
    int64_t work_offset, work_bytes; /* workspace in the arena */
    uint32_t origin;                 /* program->origins */
    double flops, bytes;             /* of one launch, from plan/cost; loops: of all turns */
} sglexec_instruction;

typedef struct sglexec_block {
    uint32_t first, count; /* program->instructions */
} sglexec_block;

/* A feed, fetch, parameter or state as the host names it. */
typedef struct sglexec_port {
    uint32_t name; /* program->strings */
    uint8_t role;  /* sgl_role; fetches: 255 */
    sglexec_operand operand;
    int64_t whole[SGL_MAX_RANK]; /* dims of which the operand is a part: a feed of one rank; else its own */
    int64_t at[SGL_MAX_RANK];    /* where the part begins */
} sglexec_port;

typedef struct sglexec_program {
    sglcore_env *env;
    sglcore_strings *strings;
    uint32_t name;
    SGLCORE_VEC(sglexec_instruction) instructions;
    SGLCORE_VEC(sglexec_operand) operands;
    SGLCORE_VEC(sglir_attr) attrs;
    SGLCORE_VEC(int64_t) ints;
    SGLCORE_VEC(double) floats;
    SGLCORE_VEC(sglexec_kernel) kernels;
    SGLCORE_VEC(sglexec_block) blocks; /* [0] is the program's top */
    SGLCORE_VEC(sglexec_port) feeds;
    SGLCORE_VEC(sglexec_port) fetches;
    SGLCORE_VEC(sglexec_port) states;  /* members of sections, and states that stand alone */
    SGLCORE_VEC(sglir_origin) origins; /* strings of this program */
    SGLCORE_VEC(char) constants;       /* the CONST space, as bytes */
    int64_t space_bytes[SGLIR_SPACES];
    int64_t arena_lower_bound;
    double flops, bytes; /* of one replay */
} sglexec_program;

static inline bool sglexec_is_control(const sglexec_instruction *i)
{
    return i->op == SGLIR_OP_SCAN || i->op == SGLIR_OP_WHILE || i->op == SGLIR_OP_COND;
}

/* How often the blocks of a control instruction are run, as far as that is known (see plan/cost.c). */
static inline int64_t sglexec_turns(const sglexec_instruction *i)
{
    return i->op == SGLIR_OP_COND || i->steps < 0 ? 1 : i->steps;
}

/* What ranks exchange, or which of them this one is: replay runs it itself, and no device is asked (exec/net.h). */
static inline bool sglexec_is_exchange(const sglexec_instruction *i) { return sglir_is_among_ranks((sglir_op)i->op); }

/* From a graph of stage PLACED. */
sgl_status sglexec_freeze(sglcore_env *env, const sglir_graph *g, sglexec_program **program);
void sglexec_program_free(sglexec_program *program);
/* The bytes of a number in a dtype, rounded to it; at most 8, and half of one for i4. */
sgl_status sglexec_put_number(sglcore_env *env, sgl_dtype dtype, double value, char *at);
/* One line per instruction: op or kernel, operands with places, script line. With kernels: each described under the first
 * instruction that launches it, with its source where a device has one (exec/device.h; NULL: it has none). */
typedef sgl_status (*sglexec_source_fn)(sglcore_env *env, const sglexec_program *program, uint32_t index,
                                        sglcore_text *text);
sgl_status sglexec_program_print(const sglexec_program *program, bool kernels, sglexec_source_fn source,
                                 sglcore_text *text);
/* The same as JSON, of the shape that sgl.h tells at sgl_program_report. */
sgl_status sglexec_program_json(const sglexec_program *program, sglcore_text *text);
/* The member "kernels", described one after another. */
sgl_status sglexec_kernels_json(const sglexec_program *program, sglcore_text *text);
/* "  ; file:line scope (pass)", or nothing. */
sgl_status sglexec_origin_print(const sglexec_program *program, uint32_t origin, sglcore_text *text);
/* What messages call an exchange: "all_reduce of blocks.0.attn, llama.lua:42"; what came together from many places
 * "all_reduce of f32[78144]". text: of the program's env. */
sgl_status sglexec_exchange_label(const sglexec_program *program, const sglexec_instruction *i, sglcore_text *text);
/* The members "file", "line", "scope" and "pass" of a JSON object. */
sgl_status sglexec_origin_json(const sglexec_program *program, uint32_t origin, sglcore_text *text);
/* Attributes of an instruction by name, as sglir_attr_*. */
/* Over which mesh axes an exchange goes: a bit each. */
uint32_t sglexec_axes_of(const sglexec_program *p, const sglexec_instruction *i);
int64_t sglexec_attr_int(const sglexec_program *p, const sglexec_instruction *i, const char *name);
double sglexec_attr_float(const sglexec_program *p, const sglexec_instruction *i, const char *name);
const int64_t *sglexec_attr_ints(const sglexec_program *p, const sglexec_instruction *i, const char *name, int *count);
const double *sglexec_attr_floats(const sglexec_program *p, const sglexec_instruction *i, const char *name, int *count);

#endif

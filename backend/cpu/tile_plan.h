/* tile_plan.h -- what the two halves of making a plan share: the planner and what it knows of each register. */
#ifndef SGLCPU_TILE_PLAN_H
#define SGLCPU_TILE_PLAN_H

#include "backend/cpu/tile.h"

/* Where a FULL register outlives its tile. */
enum { SGLCPU_HOME_NONE, SGLCPU_HOME_SCRATCH, SGLCPU_HOME_OUTPUT };

typedef struct sglcpu_register {
    uint8_t form, dtype; /* sglexec_form, sgl_dtype */
    uint8_t phase;       /* from which on it is there */
    uint8_t home;
    bool streamed;           /* a load that needs no copy */
    bool crosses;            /* a later phase uses it */
    bool computed_with;      /* some step other than a store uses it */
    int32_t made_by;         /* step, or -1: made by the planner */
    uint32_t operand;        /* of a load, or of the output that is its home */
    const sglcpu_path *path; /* of a load, a counter, random numbers */
    const sglcpu_path *home_path;
} sglcpu_register;

typedef struct sglcpu_planner {
    sglcpu_prepare *p;
    const sglexec_kernel *kernel;
    const sglexec_operand *operands;
    int operand_count;
    sglcore_arena *temporary;
    int rank, inner; /* the split in use */
    sglcpu_tile *tile;
    sglcpu_register *registers; /* register r is slot r of the plan */
    int register_count, register_capacity;
    uint8_t *when; /* phase in which each step runs */
    bool *stored;  /* STORE steps that need no call, their register being made in place */
} sglcpu_planner;

/* tile_calls.c: the lists of calls. Registers may be added. */
sgl_status sglcpu_tile_calls(sglcpu_planner *planner);
/* tile_place.c: memory of every register, and stores made in place. */
sgl_status sglcpu_tile_place(sglcpu_planner *planner);

/* A path in the plan's memory, by the split in use; NULL when memory is out. */
const sglcpu_path *sglcpu_planner_path(sglcpu_planner *planner, const sglexec_map *map);
/* Stored as it is held, columns side by side: a tile of it may be used where it lies. */
bool sglcpu_can_stream(const sglcpu_planner *planner, const sglcpu_path *path, uint8_t dtype);

static inline bool sglcpu_operands_overlap(const sglexec_operand *a, const sglexec_operand *b)
{
    int64_t a_bytes = sglcpu_bytes(a), b_bytes = sglcpu_bytes(b);
    return a->space == b->space && a->offset < b->offset + b_bytes && b->offset < a->offset + a_bytes;
}

#endif

/* tile.h -- the plan by which the CPU runs a fused kernel: rows and columns cut into tasks and tiles, registers placed.
 *
 * tile_plan.c makes it from an sglexec_kernel, tile_place.c gives each register its memory, tile_run.c walks it, and
 * tile_path.c and tile_block.c move elements in and out through index maps. A register of a narrow float dtype holds
 * float32 that each op rounds to the dtype (of i4: i8 that wraps), so that what is fused and what is stored between
 * have the same bits. A register of form FULL exists one tile at a time (some 1,000 elements, near enough for the first
 * cache), unless it must outlive a reduction of its row: then it is resident (whole rows in scratch) or, where rows are
 * too long for that, made again in each phase that needs it. Odd invariant: what is read before it is overwritten in
 * place is read by the same tile; see sglcpu_tile_direct. */
#ifndef SGLCPU_TILE_H
#define SGLCPU_TILE_H

#include "backend/cpu/cpu.h"

enum {
    SGLCPU_TILE_BYTES = 4096,           /* of one register of a tile, for elements of 4 bytes */
    SGLCPU_RESIDENT_BYTES = 192 * 1024, /* of all resident registers together */
    SGLCPU_TASK_ELEMENTS = 8192,        /* least work of a task */
    SGLCPU_MAX_TASKS = 128,             /* of a kernel */
    SGLCPU_STRIP = 4096                 /* least width of a strip of columns, where rows are cut */
};

/* How a domain is cut into tasks: row_tasks blocks of rows times strips of columns. Depends on shapes alone; blocks are of a
 * multiple of row_unit rows, strips of whole chunks. */
typedef struct sglcpu_split {
    int64_t rows, cols;
    int64_t row_block, row_tasks;
    int64_t strip, strips;
} sglcpu_split;
sglcpu_split sglcpu_split_of(int64_t rows, int64_t cols, bool whole_rows, int64_t row_unit);

/* An index map over rows and columns, its dims merged as far as this map allows: element (r, c) lies at offset plus the
 * digits of r in outer_dims times outer_strides, plus those of c. */
typedef struct sglcpu_path {
    int64_t offset;
    int outer, inner;
    int64_t outer_dims[SGL_MAX_RANK], outer_strides[SGL_MAX_RANK];
    int64_t inner_dims[SGL_MAX_RANK], inner_strides[SGL_MAX_RANK];
} sglcpu_path;
sglcpu_path sglcpu_path_of(const sglexec_map *map, int rank, int inner, const int64_t *dims);
int64_t sglcpu_path_row(const sglcpu_path *path, int64_t row);
int64_t sglcpu_path_col(const sglcpu_path *path, int64_t col);
static inline bool sglcpu_path_rows_even(const sglcpu_path *path) { return path->outer <= 1; }
static inline int64_t sglcpu_path_row_stride(const sglcpu_path *path)
{
    return path->outer ? path->outer_strides[0] : 0;
}
/* Columns lie side by side. */
static inline bool sglcpu_path_is_plain(const sglcpu_path *path)
{
    return path->inner == 0 || (path->inner == 1 && path->inner_strides[0] == 1);
}

/* A block of the domain. */
typedef struct sglcpu_block {
    int64_t row, rows, col, cols;
} sglcpu_block;
/* Elements of `size` bytes from a buffer into dense rows out_bytes apart, and back. */
void sglcpu_path_load(const sglcpu_path *path, int64_t size, const char *from, const sglcpu_block *b, char *out,
                      int64_t out_bytes);
void sglcpu_path_store(const sglcpu_path *path, int64_t size, char *to, const sglcpu_block *b, const char *in,
                       int64_t in_bytes);

/* The same between stored elements and held ones. stage: room for the block as it is stored. whole: elements of the buffer. */
void sglcpu_block_load(const sglcpu_isa *isa, sgl_dtype dtype, const sglcpu_path *path, const char *from,
                       const sglcpu_block *b, char *out, int64_t out_bytes, char *stage);
void sglcpu_block_store(const sglcpu_isa *isa, sgl_dtype dtype, const sglcpu_path *path, char *to, int64_t whole,
                        const sglcpu_block *b, const char *in, int64_t in_bytes, char *stage);

/* Where a register's elements are. */
typedef enum sglcpu_slot_kind {
    SGLCPU_SLOT_ONE,        /* scratch: one number */
    SGLCPU_SLOT_ROW,        /* scratch: one per row of the tile */
    SGLCPU_SLOT_COL,        /* scratch: one per column of the strip; repeated for each row of a tile when `repeated` */
    SGLCPU_SLOT_COL_STREAM, /* a buffer: one per column */
    SGLCPU_SLOT_TILE,       /* scratch: the tile */
    SGLCPU_SLOT_RESIDENT,   /* scratch: the tile's rows, whole */
    SGLCPU_SLOT_STREAM      /* a buffer: the tile as it lies there */
} sglcpu_slot_kind;

typedef struct sglcpu_slot {
    uint8_t kind, size; /* bytes of an element */
    bool repeated;
    int64_t place;    /* in scratch */
    uint32_t operand; /* of streams */
    const sglcpu_path *path;
} sglcpu_slot;

typedef enum sglcpu_call_kind {
    SGLCPU_CALL_MAP,    /* out <- map(args) */
    SGLCPU_CALL_SPREAD, /* out <- copies of a number, or of a row of columns */
    SGLCPU_CALL_LOAD,   /* out <- operand through path */
    SGLCPU_CALL_PIECES, /* out <- pieces of operands */
    SGLCPU_CALL_NUMBER,
    SGLCPU_CALL_COUNTER,
    SGLCPU_CALL_SEGMENTS,
    SGLCPU_CALL_RANDOM,
    SGLCPU_CALL_FOLD,    /* accumulator of each row <- args[0] (and args[1]: products) */
    SGLCPU_CALL_COLUMNS, /* accumulators of the strip <- args[0] */
    SGLCPU_CALL_TOTAL,   /* accumulators of chunks <- args[0] (and args[1]: products) */
    SGLCPU_CALL_STORE    /* operand through path <- args[0] */
} sglcpu_call_kind;

typedef struct sglcpu_call {
    uint8_t kind, numbers, arg_count; /* numbers: mask of args that are one number per row */
    uint8_t dtype;                    /* of out, or of what is stored or folded */
    uint16_t out, args[3];            /* slots */
    uint16_t sum;                     /* FOLD, COLUMNS, TOTAL: which */
    union {
        sglcpu_map_fn map;
        sglcpu_fold_fn fold;
        sglcpu_columns_fn columns;
        sglcpu_random_fn random;
    } fn;
    const sglexec_step *step;
    const sglcpu_path *path;
} sglcpu_call;

typedef struct sglcpu_calls {
    sglcpu_call *data;
    int count;
} sglcpu_calls;

typedef struct sglcpu_phase {
    sglcpu_calls rows;          /* once per tile's rows */
    sglcpu_calls tiles;         /* once per tile */
    int fold_first, fold_count; /* sums of rows that end with this phase */
    uint16_t *moving;           /* slots whose address changes from tile to tile */
    int moving_count;
} sglcpu_phase;

/* A sum of a row, of columns or of everything. */
typedef struct sglcpu_sum {
    uint8_t fold, dtype;
    uint16_t slot;    /* of a row's sum */
    int64_t place;    /* of accumulators: in scratch (rows), in the workspace (columns: per block; totals: per chunk) */
    int64_t near;     /* in scratch: near sums of columns, in the dtype; of totals: elements of a chunk */
    uint32_t operand; /* of columns and totals: where the result goes */
} sglcpu_sum;

/* Rows that one sum per column takes up of `rows`, and where the near sums that are at `row` end (tile_sum.c). */
int64_t sglcpu_sum_block(int64_t rows);
int64_t sglcpu_near_end(int64_t row, int64_t rows);

/* Accumulators to their neutral element; folded one by one into others, or all into one; made elements of the sum's dtype. */
void sglcpu_start_sums(const sglcpu_sum *sum, char *accumulators, int64_t count);
void sglcpu_join_sums(const sglcpu_isa *isa, const sglcpu_sum *sum, char *into, const char *from, int64_t count);
void sglcpu_total_sums(const sglcpu_isa *isa, const sglcpu_sum *sum, char *into, const char *from, int64_t count);
/* Near sums, neutral. */
void sglcpu_start_near(const sglcpu_sum *sum, char *near, int64_t count);
/* Held elements of the sum's dtype. */
void sglcpu_finish_sums(const sglcpu_isa *isa, const sglcpu_sum *sum, void *out, void *accumulators, int64_t count);

typedef struct sglcpu_tile {
    const sglexec_kernel *kernel;
    const sglexec_operand *operands;
    sglcpu_split split;
    int64_t tile_rows, tile_cols;
    sglcpu_slot *slots;
    int slot_count;
    sglcpu_calls ones, cols; /* once per task */
    sglcpu_phase *phases;
    int phase_count;
    sglcpu_calls last; /* stores of rows, once per tile's rows */
    sglcpu_calls once; /* stores of columns and of numbers: by the tasks of the first rows */
    sglcpu_sum *folds, *columns, *totals;
    int fold_count, column_count, total_count;
    int64_t stage; /* in scratch: see sglcpu_block_load */
    int64_t scratch_bytes, work_bytes;
} sglcpu_tile;

/* operands: of the instruction, arguments first; they and the kernel outlive the plan. */
sgl_status sglcpu_tile_plan(sglcpu_prepare *p, const sglexec_kernel *kernel, const sglexec_operand *operands,
                            int operand_count, const sglcpu_tile **tile);
void sglcpu_tile_run(const sglcpu_launch *launch, const void *tile);

/* What a kernel over rows x cols needs at most, with this many column sums and totals. */
int64_t sglcpu_tile_workspace(int64_t rows, int64_t cols, int columns, int totals);

#endif

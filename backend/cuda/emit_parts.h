/* emit_parts.h -- what the files that print kernels share: the emitter, how a kernel is cut, one step as source.
 *
 * emit.c cuts a kernel into entries, emit_way.c prints the loops of each way, emit_step.c the steps inside of them and
 * emit_place.c where elements lie. Odd invariant: a failed print is remembered and the rest of the text is nobody's; so printing functions
 * return nothing. */
#ifndef SGLCUDA_EMIT_PARTS_H
#define SGLCUDA_EMIT_PARTS_H

#include "backend/cuda/emit.h"

typedef enum sglcuda_way { SGLCUDA_MAP, SGLCUDA_COLUMNS, SGLCUDA_ROWS } sglcuda_way;

/* How a kernel is cut: from its description alone. */
typedef struct sglcuda_cut {
    int64_t rows, cols, elements;
    bool resident;        /* its rows are short enough for registers */
    bool columns, totals; /* it has sums over its rows, over all */
    bool finals;          /* its rows' sums are at hand in the workspace when the last entry runs */
    int64_t row_chunks;   /* of a row */
    int64_t chunks;       /* of all elements, as totals see them */
    int64_t part_rows, parts;
    /* In the workspace, 8 bytes each: */
    int64_t partial_at; /* of row sums, chunk by chunk: [sum][row][chunk] */
    int64_t finals_at;  /* row sums: [sum][row] */
    int64_t totals_at;  /* of totals, chunk by chunk: [sum][chunk] */
    int64_t columns_at; /* of column sums, part by part: [sum][part][column] */
    int64_t bytes;
} sglcuda_cut;

typedef enum sglcuda_share { SGLCUDA_ALL, SGLCUDA_STEADY, SGLCUDA_VARYING } sglcuda_share;

/* Where a piece of source stands: what its steps may use. */
typedef struct sglcuda_scope {
    sglcuda_way way;
    int last_phase;      /* steps of later phases are not computed */
    bool stores;         /* results are stored, sums over the rows taken */
    bool totals;         /* totals are taken */
    bool reduces;        /* row sums are taken here; else those that are asked for are at hand */
    bool whole;          /* a run that is there has all its eight */
    bool shared;         /* rows: sums over the rows are added up in shared memory, else in registers */
    int lanes, vectors;  /* rows: threads that share a row, runs that each has of it. map with totals: of a chunk */
    sglcuda_share share; /* of the steps: what does not change from row to row may stand before a loop over rows */
    const bool *wanted;  /* by step */
} sglcuda_scope;

typedef struct sglcuda_emitter {
    sglcore_env *env;
    sglcuda_emitted *out;
    const sglexec_kernel *kernel;
    const sglexec_operand *operands;
    int operand_count;
    sglcuda_cut cut;
    bool *wanted; /* by step: of the entry that is printed */
    uint8_t *due; /* by step: the phase in which it is computed */
    uint8_t *
        fetched; /* by step of the entry that is printed: a load that is under way before phase n - 1 of its row; 0: no such one */
    int depth;  /* braces that are open where printing has come to */
    bool fresh; /* a line begins there */
    sgl_status status;
} sglcuda_emitter;

void sglcuda_put(sglcuda_emitter *e, const char *format, ...) SGL_PRINTF(2, 3);

/* ---- emit_place.c ---- */
/* Name of a dtype in the source. */
const char *sglcuda_dtype(int dtype);
/* C++ type of indices below the kernel's element count. */
const char *sglcuda_index(const sglcuda_emitter *e);
/* Prints offset + sum of the dims' strides: the row's dims by `row`, the others by `col`; where one name stands for both (map), all dims by col. */
void sglcuda_put_address(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_map *map, const char *row,
                         const char *col);
/* Eight neighbours from a multiple of 8 on lie `*stride` apart, whatever else; `*aligned`: 16-byte accesses are right too. */
bool sglcuda_runs(const sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_map *map, int operand,
                  int64_t *stride, bool *aligned);

/* ---- emit_step.c ---- */
/* A value is eight elements where it stands, else one. */
bool sglcuda_is_vector(const sglcuda_scope *s, int form);
/* A row sum that is read from the workspace, where an earlier entry has left it. */
bool sglcuda_is_at_hand(const sglcuda_scope *s, const sglexec_step *step);
const sglexec_step *sglcuda_maker(const sglcuda_emitter *e, uint16_t reg);
/* Kept over phases, once per run of the row. */
bool sglcuda_is_kept(const sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *maker);
/* "r3", "r3[e]", "r3[k][e]". */
void sglcuda_put_value(sglcuda_emitter *e, const sglcuda_scope *s, uint16_t reg);
/* Declarations of what is kept; the steps of one phase that are one number each; those that are eight. */
void sglcuda_put_kept(sglcuda_emitter *e, const sglcuda_scope *s);
void sglcuda_put_numbers(sglcuda_emitter *e, const sglcuda_scope *s, int phase);
void sglcuda_put_vectors(sglcuda_emitter *e, const sglcuda_scope *s, int phase);
/* Results that there are once per row. */
bool sglcuda_has_row_results(const sglexec_kernel *kernel);
void sglcuda_put_row_stores(sglcuda_emitter *e, const sglcuda_scope *s);
const char *sglcuda_fold(const sglexec_step *step);
/* Number of a sum among those of its kind, and how many there are of a kind. */
int sglcuda_sum_number(const sglexec_kernel *kernel, const sglexec_step *step);
int sglcuda_sums(const sglexec_kernel *kernel, sglexec_step_kind kind);

/* ---- emit_pieces.c ---- */
/* Tables of pieces, before all entries. */
void sglcuda_put_tables(sglcuda_emitter *e);
/* Which pieces there are from element `first` of the domain to `last` (NULL: all), for the wanted steps of an entry. */
void sglcuda_put_bounds(sglcuda_emitter *e, const sglcuda_scope *s, const char *first, const char *last);
/* The eight, or the one, from `col` on. */
void sglcuda_put_pieces(sglcuda_emitter *e, const sglexec_step *step, const char *name, bool vector);

/* ---- emit_fetch.c ---- */
/* A load whose runs are accesses of 16 bytes, whatever the thread. */
bool sglcuda_is_fetchable(const sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step);
/* Which loads are fetched: before their row is begun as many as so many registers have room for, those of the first phases first; of what
 * is left, those of later phases before these. copies: runs of a thread. */
void sglcuda_choose_fetched(sglcuda_emitter *e, const sglcuda_scope *s, int copies, int most_registers);
/* Per fetched load <name><number of the step>[runs]: declared; fetched before a phase, of `row` and `col`, as number k. */
void sglcuda_put_fetched(sglcuda_emitter *e, const char *name, int runs);
void sglcuda_put_fetch(sglcuda_emitter *e, const sglcuda_scope *s, const char *name, int phase);
bool sglcuda_fetches(const sglcuda_emitter *e, int phase);

/* ---- emit_way.c, emit_rows.c ---- */
/* The first lines of an entry, of which so many threads of a multiprocessor should be at work. */
void sglcuda_put_head(sglcuda_emitter *e, const char *name, int threads, int resident);
sglcuda_grid sglcuda_line_of(int64_t blocks, int threads, int beside);
/* near<n> and sum<n> of the sums of a kind (of one phase, -1: of all). runs: eight for each of so many runs; 0: one. */
void sglcuda_put_sums(sglcuda_emitter *e, const sglcuda_scope *s, sglexec_step_kind kind, int phase, int runs);
/* Every element of an i4 array that ends in half a byte: the other half. */
void sglcuda_put_ends(sglcuda_emitter *e, const sglcuda_scope *s);
/* Each prints one entry and appends its launch. */
void sglcuda_put_map(sglcuda_emitter *e, const char *name, const sglcuda_scope *s);
void sglcuda_put_columns(sglcuda_emitter *e, const char *name, const sglcuda_scope *s);
void sglcuda_put_rows(sglcuda_emitter *e, const char *name, const sglcuda_scope *s);
void sglcuda_put_chunks(sglcuda_emitter *e, const char *name, const sglcuda_scope *s);
/* What there is once per row, of a kernel that goes another way than rows. */
void sglcuda_put_row_results(sglcuda_emitter *e, const char *name, const sglcuda_scope *s);
/* From partial results to whole ones: the row sums of a phase, totals, sums over the rows. (emit_finish.c) */
void sglcuda_put_finish_rows(sglcuda_emitter *e, const char *name, int phase);
void sglcuda_put_finish_totals(sglcuda_emitter *e, const char *name);
void sglcuda_put_finish_columns(sglcuda_emitter *e, const char *name);

/* n elements are runs of which none is a part. */
bool sglcuda_is_whole(int64_t n);
/* Threads that share a chunk of n elements, and runs that each of them has. */
int sglcuda_lanes(int64_t n);
int sglcuda_vectors(int64_t n);
/* Rows of a part. */
int64_t sglcuda_part_rows(int64_t rows);
void sglcuda_add_entry(sglcuda_emitter *e, const char *name, sglcuda_grid grid);

#endif

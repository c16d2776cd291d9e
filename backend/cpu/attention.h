/* attention.h -- what attention and its gradient share: shapes, and which keys a query sees (attention_sight.c). */
#ifndef SGLCPU_ATTENTION_H
#define SGLCPU_ATTENTION_H

#include "backend/cpu/cpu.h"

enum {
    SGLCPU_QUERIES = 64, /* of a block */
    SGLCPU_KEYS = 128
};

/* q [b, t, h, d], k [b, s, g, d], v [b, s, g, e]; a head of g serves h / g heads of q. Distances in elements. Floats
 * narrower than 32 bits are held as f32 while they are computed with, block by block. */
typedef struct sglcpu_heads {
    sgl_dtype dtype, held;
    int real;
    bool narrow;
    int64_t size; /* of a held element */
    int64_t b, t, h, d, s, g, e;
    int64_t q_row, k_row, v_row, o_row; /* from one place in time to the next */
    double scale;
    bool causal;
    int64_t window;
    const sglexec_operand *q, *k, *v, *offset;
    const sglexec_operand *query_segments, *key_segments; /* NULL: all is one segment */
} sglcpu_heads;

/* What a block of queries of one sequence sees. */
typedef struct sglcpu_sight {
    const sglcpu_heads *heads;
    int64_t offset, query, queries;
    const int32_t *query_segments, *key_segments; /* of the block's first query, and of key 0; or NULL */
    uint32_t least, most;                         /* of the queries' segments; those below 0 are the greatest */
    int32_t last;                                 /* the greatest that is not below 0, or below 0 */
} sglcpu_sight;

/* How a block of queries and one of keys meet by their segments: no pair of one segment, some, or all. */
typedef enum sglcpu_meeting { SGLCPU_APART, SGLCPU_MIXED, SGLCPU_TOGETHER } sglcpu_meeting;

/* Rows of held elements: the first, and elements from one to the next. */
typedef struct sglcpu_rows {
    char *at;
    int64_t row;
} sglcpu_rows;

/* offset: number of that argument, behind which segments may follow. */
void sglcpu_heads_of(sglcpu_prepare *p, const sglexec_instruction *i, uint32_t offset, sglcpu_heads *heads);
/* Rows of `count` elements of an argument, from its element `first` on, `row` apart: as they lie, or, of narrow floats,
 * held in `room`. */
sglcpu_rows sglcpu_held_rows(const sglcpu_launch *launch, const sglcpu_heads *a, const sglexec_operand *operand,
                             int64_t first, int64_t row, int64_t rows, int64_t count, char *room);
/* Where such rows of a result are to be made: in their place, or in `room`, from where sglcpu_store_rows takes them. */
sglcpu_rows sglcpu_rows_to_make(const sglcpu_launch *launch, const sglcpu_heads *a, const sglexec_operand *operand,
                                int64_t first, int64_t row, int64_t count, char *room);
void sglcpu_store_rows(const sglcpu_launch *launch, const sglcpu_heads *a, const sglexec_operand *operand,
                       int64_t first, int64_t row, int64_t rows, int64_t count, sglcpu_rows made);
/* Takes `bytes` of a scratch whose parts are being laid out. */
int64_t sglcpu_take(int64_t *at, int64_t bytes);

sglcpu_sight sglcpu_sight_of(const sglcpu_launch *launch, const sglcpu_heads *a, int64_t offset, int64_t batch,
                             int64_t query, int64_t queries);
/* Keys first .. last - 1 hold all that these queries see by their places in time; which of them, the segments tell. */
void sglcpu_visible_keys(const sglcpu_sight *sight, int64_t *first, int64_t *last);
/* MIXED may stand for either of the others. */
sglcpu_meeting sglcpu_meet(const sglcpu_sight *sight, int64_t key, int64_t keys);
/* Puts `value` into a block of scores [keys x queries] wherever a query does not see a key. */
void sglcpu_mask_scores(const sglcpu_sight *sight, sglcpu_meeting meeting, int64_t key, int64_t keys, char *scores,
                        int64_t ld, double value);

#endif

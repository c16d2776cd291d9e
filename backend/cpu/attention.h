/* attention.h -- what attention and its gradient share: shapes, and which keys a query sees. */
#ifndef SGLCPU_ATTENTION_H
#define SGLCPU_ATTENTION_H

#include "backend/cpu/cpu.h"

enum {
    SGLCPU_QUERIES = 64, /* of a block */
    SGLCPU_KEYS = 128
};

/* q [b, t, h, d], k [b, s, g, d], v [b, s, g, e]; a head of g serves h / g heads of q. Distances in elements. */
typedef struct sglcpu_heads {
    int real;
    int64_t b, t, h, d, s, g, e;
    int64_t q_row, k_row, v_row, o_row; /* from one place in time to the next */
    double scale;
    bool causal;
    int64_t window;
    const sglexec_operand *q, *k, *v, *offset;
} sglcpu_heads;

/* UNSUPPORTED where the dtype is none of ours. offset: number of that argument. */
sgl_status sglcpu_heads_of(sglcpu_prepare *p, const sglexec_instruction *i, uint32_t offset, sglcpu_heads *heads);

/* Keys first .. last - 1 are those that some of the queries first_query .. last_query - 1 see. */
void sglcpu_visible_keys(const sglcpu_heads *a, int64_t offset, int64_t first_query, int64_t last_query, int64_t *first,
                         int64_t *last);
/* Puts `value` into a block of scores [keys x queries] wherever a query does not see a key. */
void sglcpu_mask_scores(const sglcpu_heads *a, int64_t offset, int64_t query, int64_t queries, int64_t key,
                        int64_t keys, char *scores, int64_t ld, double value);

#endif

/* int_product.c -- products of integer matrices: plain loops, exact modulo 2^bits.
 *
 * In: a product whose arguments lie as dot.c placed them, of any integer dtype. Out: rows of c. Whether the numbers have signs is
 * no matter: the low bits of sums and products are the same. Odd invariant: two rows of i4 may meet in one byte, so a product of
 * these is one task. */
#include <string.h>

#include "backend/cpu/blas.h"

enum { TASK_FLOPS = 1000000 };

/* WIDE: unsigned, what C would not promote to an int that overflows. */
#define ROWS(NAME, TYPE, WIDE)                                                                                         \
    static void NAME(const sglcpu_product *p, const void *a_, const void *b_, void *c_, int64_t first, int64_t last)   \
    {                                                                                                                  \
        const TYPE *a = a_, *b = b_;                                                                                   \
        for (int64_t i = first; i < last; i++) {                                                                       \
            TYPE *out = (TYPE *)c_ + i * p->ldc;                                                                       \
            memset(out, 0, (size_t)p->n * sizeof *out);                                                                \
            for (int64_t k = 0; k < p->k; k++) {                                                                       \
                WIDE x = a[i * p->a_row + k * p->a_col];                                                               \
                const TYPE *row = b + k * p->b_row;                                                                    \
                for (int64_t j = 0; j < p->n; j++) out[j] = (TYPE)(out[j] + x * row[j * p->b_col]);                    \
            }                                                                                                          \
        }                                                                                                              \
    }
ROWS(rows_of_bytes, uint8_t, uint32_t)
ROWS(rows_of_halves, uint16_t, uint32_t)
ROWS(rows_of_words, uint32_t, uint32_t)
ROWS(rows_of_longs, uint64_t, uint64_t)
#undef ROWS

/* Elements of 4 bits, c_first of them before c. */
static void rows_of_nibbles(const sglcpu_product *p, const char *a, int64_t a_first, const char *b, int64_t b_first,
                            char *c, int64_t c_first)
{
    for (int64_t e = 0; e < p->m * p->n; e++) {
        int64_t i = e / p->n, j = e % p->n, at = c_first + e, sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += sglcpu_read_index(a, SGL_I4, a_first + i * p->a_row + k * p->a_col) *
                   sglcpu_read_index(b, SGL_I4, b_first + k * p->b_row + j * p->b_col);
        unsigned char *byte = (unsigned char *)c + at / 2, low = (unsigned char)(sum & 15);
        *byte = (unsigned char)(at % 2 == 0 ? (*byte & 0xF0) | low : (*byte & 0x0F) | low << 4);
    }
}

void sglcpu_int_cut(sgl_dtype dtype, sglcpu_product *p)
{
    double flops = 2.0 * (double)p->n * (double)p->k + 1;
    p->panel_m = dtype == SGL_I4 ? sglcpu_max(p->m, 1) : (int64_t)(TASK_FLOPS / flops) + 1;
    p->panel_n = p->n;
    p->panels_n = 1;
    p->tasks = sglcpu_max(sglcpu_ceil_div(p->m, p->panel_m), 1);
}

void sglcpu_int_task(sgl_dtype dtype, const sglcpu_product *p, const char *a, int64_t a_first, const char *b,
                     int64_t b_first, char *c, int64_t c_first, int64_t task)
{
    int64_t size = sglcpu_size(dtype), first = task * p->panel_m, last = sglcpu_min(first + p->panel_m, p->m);
    if (dtype == SGL_I4) {
        rows_of_nibbles(p, a, a_first, b, b_first, c, c_first);
        return;
    }
    a += a_first * size;
    b += b_first * size;
    c += c_first * size;
    switch (size) {
    case 1: rows_of_bytes(p, a, b, c, first, last); break;
    case 2: rows_of_halves(p, a, b, c, first, last); break;
    case 4: rows_of_words(p, a, b, c, first, last); break;
    default: rows_of_longs(p, a, b, c, first, last); break;
    }
}

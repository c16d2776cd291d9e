/* float_few.h -- products with few rows (a token at a time, a single output): a part of float_ops.h.
 *
 * Such products read each element of b once and are as fast as memory; BLAS is not there for one row. In: x with 1 to
 * SGLCPU_FEW_ROWS rows. Out: y. Odd invariant: an element's additions depend on k alone, so n may be cut anywhere. */

/* ROWS rows of x against WIDTH rows of b at once. */
#define DOTS(ROWS, WIDTH)                                                                                              \
    static inline void dots_##ROWS##_##WIDTH(REAL *y, int64_t ldy, const REAL *x, int64_t ldx, const REAL *b,          \
                                             int64_t ldb, int64_t k)                                                   \
    {                                                                                                                  \
        vec sums[ROWS][WIDTH];                                                                                         \
        memset(sums, 0, sizeof sums);                                                                                  \
        int64_t at = 0;                                                                                                \
        for (; at + LANES <= k; at += LANES) {                                                                         \
            _Pragma("GCC unroll 8") for (int j = 0; j < WIDTH; j++)                                                    \
            {                                                                                                          \
                const vec right = AT(b + j * ldb + at);                                                                \
                _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) sums[r][j] =                                    \
                    FMA_VEC(AT(x + r * ldx + at), right, sums[r][j]);                                                  \
            }                                                                                                          \
        }                                                                                                              \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            for (int j = 0; j < WIDTH; j++) {                                                                          \
                double total = 0;                                                                                      \
                for (int64_t i = at; i < k; i++) total += (double)(x[r * ldx + i] * b[j * ldb + i]);                   \
                vec sum = sums[r][j];                                                                                  \
                for (int lane = 0; lane < LANES / 2; lane++) total += (double)(sum[lane] + sum[lane + LANES / 2]);     \
                y[r * ldy + j] = (REAL)total;                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
DOTS(1, 1)
DOTS(2, 1)
DOTS(3, 1)
DOTS(4, 1)
DOTS(1, 4)
DOTS(2, 4)
DOTS(3, 2)
DOTS(4, 2)

#define DOTS_OVER(ROWS, WIDTH)                                                                                         \
    for (; j + WIDTH <= n; j += WIDTH) dots_##ROWS##_##WIDTH(y + j, ldy, x, ldx, b + j * ldb, ldb, k);                 \
    for (; j < n; j++) dots_##ROWS##_1(y + j, ldy, x, ldx, b + j * ldb, ldb, k)

static void few_dots(void *y_, int64_t ldy, const void *x_, int64_t ldx, const void *b_, int64_t ldb, int rows,
                     int64_t n, int64_t k)
{
    REAL *y = y_;
    const REAL *x = x_, *b = b_;
    int64_t j = 0;
    switch (rows) {
    case 1: DOTS_OVER(1, 4); break;
    case 2: DOTS_OVER(2, 4); break;
    case 3: DOTS_OVER(3, 2); break;
    case 4: DOTS_OVER(4, 2); break;
    default: break;
    }
}

/* One row of y at a time, four rows of b at a time: y stays near while b streams by. */
static void sums_of_row(REAL *y, const REAL *x, const REAL *b, int64_t ldb, int64_t count, int64_t k)
{
    SGLCPU_LOOP y[i] = 0;
    int64_t at = 0;
    for (; at + 4 <= k; at += 4) {
        const REAL *b0 = b + at * ldb, *b1 = b0 + ldb, *b2 = b1 + ldb, *b3 = b2 + ldb;
        const REAL x0 = x[at], x1 = x[at + 1], x2 = x[at + 2], x3 = x[at + 3];
        SGLCPU_LOOP y[i] += FMA_ONE(x0, b0[i], x1 * b1[i]) + FMA_ONE(x2, b2[i], x3 * b3[i]);
    }
    for (; at < k; at++) {
        const REAL *b0 = b + at * ldb;
        const REAL x0 = x[at];
        SGLCPU_LOOP y[i] = FMA_ONE(x0, b0[i], y[i]);
    }
}

static void few_sums(void *y_, int64_t ldy, const void *x_, int64_t ldx, const void *b_, int64_t ldb, int rows,
                     int64_t n, int64_t k)
{
    REAL *y = y_;
    const REAL *x = x_, *b = b_;
    for (int r = 0; r < rows; r++) sums_of_row(y + r * ldy, x + r * ldx, b, ldb, n, k);
}

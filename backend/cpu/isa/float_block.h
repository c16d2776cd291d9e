/* float_block.h -- products of blocks that fit the caches: a part of float_ops.h.
 *
 * c[m x n] = a b (+ c): a anywhere by two strides, b's rows ldb apart and dense, nothing packed. A tile of c lives in
 * registers: BLOCK_ROWS x 2 vectors, the most that 16 or 32 registers allow. Odd invariant: an element is summed over k in
 * order, one fma after another, whatever the tile it falls in; so its bits do not depend on m, n or the cut. */

#if defined(__AVX512F__)
#define BLOCK_ROWS 12
#else
#define BLOCK_ROWS 6
#endif
enum { BLOCK_COLS = 2 * LANES };

/* `rows` is a constant where this is inlined, so that all sums are registers. */
static inline __attribute__((always_inline)) void block_tile(REAL *c, int64_t ldc, const REAL *a, int64_t a_row,
                                                             int64_t a_col, const REAL *b, int64_t ldb, int64_t k,
                                                             bool adds, const int rows, const int vectors)
{
    vec sums[BLOCK_ROWS][2];
    _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++)
    {
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
        {
            sums[r][v] = (vec){ 0 };
            if (adds) sums[r][v] += AT(c + r * ldc + v * LANES);
        }
    }
    for (int64_t at = 0; at < k; at++) {
        vec right[2];
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) right[v] = AT(b + at * ldb + v * LANES);
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++)
        {
            const vec left = SPREAD_VEC(a[r * a_row + at * a_col]);
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) sums[r][v] = FMA_VEC(left, right[v], sums[r][v]);
        }
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++)
    {
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) PUT(c + r * ldc + v * LANES) = sums[r][v];
    }
}

/* Columns that fill no vector. */
static void block_tail(REAL *c, int64_t ldc, const REAL *a, int64_t a_row, int64_t a_col, const REAL *b, int64_t ldb,
                       int64_t m, int64_t n, int64_t k, bool adds)
{
    for (int64_t r = 0; r < m; r++) {
        for (int64_t j = 0; j < n; j++) {
            REAL sum = adds ? c[r * ldc + j] : 0;
            for (int64_t at = 0; at < k; at++) sum = FMA_ONE(a[r * a_row + at * a_col], b[at * ldb + j], sum);
            c[r * ldc + j] = sum;
        }
    }
}

#define BLOCK_STRIP(vectors)                                                                                           \
    static void block_strip_##vectors(REAL *c, int64_t ldc, const REAL *a, int64_t a_row, int64_t a_col,               \
                                      const REAL *b, int64_t ldb, int64_t m, int64_t k, bool adds)                     \
    {                                                                                                                  \
        int64_t r = 0;                                                                                                 \
        for (; r + BLOCK_ROWS <= m; r += BLOCK_ROWS) {                                                                 \
            block_tile(c + r * ldc, ldc, a + r * a_row, a_row, a_col, b, ldb, k, adds, BLOCK_ROWS, vectors);           \
        }                                                                                                              \
        for (; r + 4 <= m; r += 4)                                                                                     \
            block_tile(c + r * ldc, ldc, a + r * a_row, a_row, a_col, b, ldb, k, adds, 4, vectors);                    \
        for (; r < m; r++) block_tile(c + r * ldc, ldc, a + r * a_row, a_row, a_col, b, ldb, k, adds, 1, vectors);     \
    }
BLOCK_STRIP(2)
BLOCK_STRIP(1)

static void block_product(void *c_, int64_t ldc, const void *a_, int64_t a_row, int64_t a_col, const void *b_,
                          int64_t ldb, int64_t m, int64_t n, int64_t k, bool adds)
{
    REAL *c = c_;
    const REAL *a = a_, *b = b_;
    int64_t j = 0;
    for (; j + BLOCK_COLS <= n; j += BLOCK_COLS) block_strip_2(c + j, ldc, a, a_row, a_col, b + j, ldb, m, k, adds);
    for (; j + LANES <= n; j += LANES) block_strip_1(c + j, ldc, a, a_row, a_col, b + j, ldb, m, k, adds);
    if (j < n) block_tail(c + j, ldc, a, a_row, a_col, b + j, ldb, m, n - j, k, adds);
}

/* float_attend.h -- softmax over blocks of attention scores: a part of float_ops.h.
 *
 * A block is keys x queries: a row per key, a column per query, `ld` elements apart, so that what a softmax does over
 * keys it does to many queries at once. cols is a multiple of the vector, at most SGLCPU_MAX_QUERIES; columns beyond
 * the queries hold anything finite. Masked scores are -inf. Odd invariant: a query that has seen no key yet has top
 * -inf and is shifted by nothing. */

/* out[i * ld + r] = factor * in[r * row + i] for rows r < rows; zeros up to cols. */
static void turn_rows(void *out_, int64_t ld, int64_t cols, const void *in_, int64_t row, int64_t rows, int64_t count,
                      double factor_)
{
    REAL *out = out_;
    const REAL *in = in_;
    const REAL factor = (REAL)factor_;
    int64_t r = 0;
    for (; r + 8 <= rows; r += 8) { /* eight rows at a time: they make a piece of a line */
        const REAL *from = in + r * row;
        for (int64_t i = 0; i < count; i++) {
            REAL *to = out + i * ld + r;
            for (int lane = 0; lane < 8; lane++) to[lane] = factor * from[lane * row + i];
        }
    }
    for (; r < cols; r++) {
        for (int64_t i = 0; i < count; i++) out[i * ld + r] = r < rows ? factor * in[r * row + i] : 0;
    }
}

/* Brings the block's keys into a softmax over keys: scores become e^(score - top), top and sum are those of all keys so
 * far, rescale[q] is by how much what was summed before must shrink. */
static void softmax_block(void *scores_, int64_t ld, int64_t keys, int64_t cols, void *top_, void *sum_, void *rescale_)
{
    REAL *scores = scores_, *top = top_, *sum = sum_, *rescale = rescale_;
    REAL shifts[SGLCPU_MAX_QUERIES];
    for (int64_t q = 0; q < cols; q += LANES) {
        vec even = AT(top + q), odd = even;
        int64_t key = 0;
        for (; key + 2 <= keys; key += 2) {
            const vec x = AT(scores + key * ld + q), y = AT(scores + (key + 1) * ld + q);
            even = choose(x > even, x, even);
            odd = choose(y > odd, y, odd);
        }
        if (key < keys) {
            const vec x = AT(scores + key * ld + q);
            even = choose(x > even, x, even);
        }
        const vec now = choose(even > odd, even, odd), none = now - now; /* NaN where now is -inf */
        const vec shift = choose(none == none, now, (vec){ 0 });
        PUT(rescale + q) = AT(top + q) - shift;
        PUT(top + q) = now;
        PUT(shifts + q) = shift;
    }
    for (int64_t key = 0; key < keys; key++) {
        REAL *row = scores + key * ld;
        const int64_t count = cols;
        SGLCPU_LOOP row[i] = CORE(exp)(row[i] - shifts[i]);
    }
    const int64_t count = cols;
    SGLCPU_LOOP rescale[i] = CORE(exp)(rescale[i]);
    for (int64_t q = 0; q < cols; q += LANES) {
        vec even = { 0 }, odd = { 0 };
        int64_t key = 0;
        for (; key + 2 <= keys; key += 2) {
            even += AT(scores + key * ld + q);
            odd += AT(scores + (key + 1) * ld + q);
        }
        if (key < keys) even += AT(scores + key * ld + q);
        PUT(sum + q) = FMA_VEC(AT(sum + q), AT(rescale + q), even + odd);
    }
}

/* scores <- e^(score - lse): the probabilities again, for a backward pass. */
static void softmax_again(void *scores_, int64_t ld, int64_t keys, int64_t cols, const void *lse_)
{
    REAL *scores = scores_;
    const REAL *lse = lse_;
    const int64_t count = cols;
    for (int64_t key = 0; key < keys; key++) {
        REAL *row = scores + key * ld;
        SGLCPU_LOOP row[i] = CORE(exp)(row[i] - lse[i]);
    }
}

/* slopes <- p (slope - delta) scale: from gradients of probabilities to those of scores. */
static void softmax_slopes(void *slopes_, const void *p_, int64_t ld, int64_t keys, int64_t cols, const void *delta_,
                           double scale_)
{
    REAL *slopes = slopes_;
    const REAL *p = p_, *delta = delta_;
    const REAL scale = (REAL)scale_;
    const int64_t count = cols;
    for (int64_t key = 0; key < keys; key++) {
        REAL *row = slopes + key * ld;
        const REAL *of = p + key * ld;
        SGLCPU_LOOP row[i] = of[i] * (row[i] - delta[i]) * scale;
    }
}

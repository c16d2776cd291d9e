/* gather.cu -- rows by index: gather, and the sums of scatter_add over updates that sort.cu has put in the order of
 * their rows.
 *
 * A row's updates stand together in the order, in their own order. scatter_starts finds where each row's begin;
 * scatter_pieces adds the pieces of rows that have many; scatter_rows adds the updates, or the pieces, of every row,
 * and writes zeros where there are none. Odd invariant: a thread adds elements of its own of one row, so nothing is
 * added by two. */
#include "index.cuh"
#include "gather.h"

/* ---- gather ------------------------------------------------------------------------------------------------------ */

struct gather_source {
    const void *indices;
    const sglcuda_gather &v;
    SGL_DEVICE_MEMBER int64 at(int64 i) const
    {
        int64 within = 0;
        const int64 place = v.row > 1 ? sgl_divide(i, v.row, &within) : i;
        const int64 row = sgl_index(indices, v.index_kind, place);
        return row >= 0 && row < v.extent ? row * v.row + within : -1;
    }
};

SGL_FILL_KERNELS(gather, (const char *table, const void *indices, char *out, const __grid_constant__ sglcuda_gather v),
                 table, out, v.total, v.value, (gather_source{ indices, v }))

/* ---- scatter_add ------------------------------------------------------------------------------------------------- */

/* In what sums are held: floats as they are held, integers without a sign, which wraps. */
template <class T> struct scatter_sum {
    typedef uint32 type;
};
template <> struct scatter_sum<float> {
    typedef float type;
};
template <> struct scatter_sum<double> {
    typedef double type;
};
template <> struct scatter_sum<int64> {
    typedef uint64 type;
};

/* `width` neighbours from element i on. */
template <class D, int width> SGL_DEVICE void scatter_load(const void *from, int64 i, typename D::held (&x)[width])
{
    if constexpr (width == SGLCUDA_SCATTER_VECTOR)
        D::load8(from, i, x);
    else
        x[0] = D::load(from, i);
}

template <class D, int width>
SGL_DEVICE void scatter_store(void *to, int64 i, int64 elements,
                              const typename scatter_sum<typename D::held>::type (&sum)[width])
{
    typename D::held x[width];
#pragma unroll
    for (int e = 0; e < width; e++) x[e] = (typename D::held)sum[e];
    if constexpr (width == SGLCUDA_SCATTER_VECTOR) {
        D::store8(to, i, x);
    } else {
        sgl_store<D>(to, i, elements, x[0]);
    }
}

/* sum += the updates at places first .. last - 1 of the order. col: the thread's first element of the row. */
template <class D, int width>
SGL_DEVICE void scatter_add_updates(const void *updates, const uint32 *order, uint32 first, uint32 last,
                                    int64 row_width, int64 col,
                                    typename scatter_sum<typename D::held>::type (&sum)[width])
{
    typedef typename scatter_sum<typename D::held>::type sum_type;
    typename D::held x[SGLCUDA_SCATTER_AHEAD][width];
    for (uint32 at = first; at < last; at += SGLCUDA_SCATTER_AHEAD) {
#pragma unroll
        for (uint32 a = 0; a < SGLCUDA_SCATTER_AHEAD; a++)
            if (at + a < last) scatter_load<D, width>(updates, (int64)order[at + a] * row_width + col, x[a]);
#pragma unroll
        for (uint32 a = 0; a < SGLCUDA_SCATTER_AHEAD; a++) {
            if (at + a >= last) continue;
#pragma unroll
            for (int e = 0; e < width; e++) sum[e] += (sum_type)x[a][e];
        }
    }
}

/* The first place whose row is `row` or a later one, for each row and for `extent`. */
extern "C" __global__ void __launch_bounds__(SGLCUDA_SCATTER_THREADS)
    scatter_starts(const uint32 *rows, uint32 *starts, const __grid_constant__ sglcuda_scatter v)
{
    const int64 row = sgl_thread();
    if (row > v.extent) return;
    uint32 low = 0, high = (uint32)v.count;
    while (low < high) {
        const uint32 middle = low + (high - low) / 2;
        if (rows[middle] < (uint32)row)
            low = middle + 1;
        else
            high = middle;
    }
    starts[row] = low;
}

/* The piece that begins in half `half` of the window's two: false where there is none. */
SGL_DEVICE bool scatter_piece_of(const uint32 *rows, const uint32 *starts, const sglcuda_scatter &v, int64 window,
                                 int half, uint32 *first, uint32 *last)
{
    const uint32 begin = (uint32)(window * SGLCUDA_SCATTER_PIECE);
    const uint32 end = (uint32)(v.count - begin < SGLCUDA_SCATTER_PIECE ? v.count : begin + SGLCUDA_SCATTER_PIECE);
    const uint32 row = rows[half == 0 ? begin : end - 1];
    if ((int64)row >= v.extent || (half == 1 && row == rows[begin])) return false;
    const uint32 start = starts[row], stop = starts[row + 1];
    if (stop - start <= SGLCUDA_SCATTER_PIECE) return false;
    *first = start;
    if (half == 0)
        *first += (begin - start + SGLCUDA_SCATTER_PIECE - 1) / SGLCUDA_SCATTER_PIECE * SGLCUDA_SCATTER_PIECE;
    *last = stop - *first < SGLCUDA_SCATTER_PIECE ? stop : *first + SGLCUDA_SCATTER_PIECE;
    return *first < end && *first < stop;
}

/* sums [windows, 2, width]. */
template <class D, int width>
SGL_DEVICE void scatter_pieces(const void *updates, const uint32 *rows, const uint32 *order, const uint32 *starts,
                               typename scatter_sum<typename D::held>::type *sums, const sglcuda_scatter &v)
{
    typename scatter_sum<typename D::held>::type sum[width] = {};
    int64 vector;
    const int64 piece = sgl_divide(sgl_thread(), v.vectors, &vector);
    uint32 first, last;
    if (piece >= 2 * v.windows) return;
    if (!scatter_piece_of(rows, starts, v, piece >> 1, (int)(piece & 1), &first, &last)) return;
    scatter_add_updates<D, width>(updates, order, first, last, v.width, vector * width, sum);
#pragma unroll
    for (int e = 0; e < width; e++) sums[piece * v.width + vector * width + e] = sum[e];
}

template <class D, int width>
SGL_DEVICE void scatter_rows(const void *updates, const uint32 *order, const uint32 *starts,
                             const typename scatter_sum<typename D::held>::type *sums, void *out,
                             const sglcuda_scatter &v)
{
    typename scatter_sum<typename D::held>::type sum[width] = {};
    int64 vector;
    const int64 row = sgl_divide(sgl_thread(), v.vectors, &vector);
    if (row >= v.extent) return;
    const uint32 start = starts[row], stop = starts[row + 1];
    if (stop - start <= SGLCUDA_SCATTER_PIECE) {
        scatter_add_updates<D, width>(updates, order, start, stop, v.width, vector * width, sum);
    } else {
#pragma unroll 4
        for (uint32 first = start; first < stop; first += SGLCUDA_SCATTER_PIECE) {
            const int64 window = first / SGLCUDA_SCATTER_PIECE;
            const int64 piece = 2 * window + (start > window * SGLCUDA_SCATTER_PIECE);
#pragma unroll
            for (int e = 0; e < width; e++) sum[e] += sums[piece * v.width + vector * width + e];
        }
    }
    scatter_store<D, width>(out, row * v.width + vector * width, v.extent * v.width, sum);
}

#define SCATTER_KERNELS(D, PIECES, ROWS, WIDTH)                                                                        \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_SCATTER_THREADS)                                              \
        PIECES##_##D(const void *updates, const uint32 *rows, const uint32 *order, const uint32 *starts,               \
                     scatter_sum<D::held>::type *sums, const __grid_constant__ sglcuda_scatter v)                      \
    {                                                                                                                  \
        scatter_pieces<D, WIDTH>(updates, rows, order, starts, sums, v);                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_SCATTER_THREADS)                                              \
        ROWS##_##D(const void *updates, const uint32 *order, const uint32 *starts,                                     \
                   const scatter_sum<D::held>::type *sums, void *out, const __grid_constant__ sglcuda_scatter v)       \
    {                                                                                                                  \
        scatter_rows<D, WIDTH>(updates, order, starts, sums, out, v);                                                  \
    }
#define SCATTER_DTYPE(D)                                                                                               \
    SCATTER_KERNELS(D, scatter_pieces, scatter_rows, 1)                                                                \
    SCATTER_KERNELS(D, scatter_pieces_wide, scatter_rows_wide, SGLCUDA_SCATTER_VECTOR)
SCATTER_DTYPE(f64)
SCATTER_DTYPE(f32)
SCATTER_DTYPE(bf16)
SCATTER_DTYPE(f16)
SCATTER_DTYPE(f8e4m3)
SCATTER_DTYPE(f8e5m2)
SCATTER_DTYPE(i64)
SCATTER_DTYPE(i32)
SCATTER_DTYPE(i16)
SCATTER_DTYPE(i8)
SCATTER_DTYPE(u8)
SCATTER_DTYPE(u16)
SCATTER_DTYPE(u32)
SCATTER_DTYPE(i4)

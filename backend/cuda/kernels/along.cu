/* along.cu -- ops along one axis: recurrence, cumulative_sum, argmax, argmin, take_along, add_along; and reduce_prod.
 *
 * Floats are carried in f64 and rounded once where they are stored, integers wrap there. Lines side by side have a
 * thread each, so that memory is read in runs; lines whose elements are neighbours go through shared memory, or have a
 * block each. A recurrence is computed element after element, as its formula has it: a scan of products would overflow
 * where no element does. Odd invariant: a thread writes elements that no other reads. */
#include "index.cuh"
#include "along.h"

/* ---- carriers ---------------------------------------------------------------------------------------------------- */

template <class T> struct along_carrier {
    typedef uint64 type;
};
template <> struct along_carrier<float> {
    typedef double type;
};
template <> struct along_carrier<double> {
    typedef double type;
};
template <class D> struct along_of {
    typedef typename along_carrier<typename D::held>::type type;
};

template <class D> SGL_DEVICE typename along_of<D>::type along_read(const void *from, int64 i)
{
    return (typename along_of<D>::type)D::load(from, i);
}

/* elements: of the whole array. */
template <class D> SGL_DEVICE void along_write(void *to, int64 i, int64 elements, typename along_of<D>::type x)
{
    typedef typename D::held held;
    if constexpr (sizeof(typename D::stored) < 4 && (held)0.5f != (held)0)
        sgl_store<D>(to, i, elements, sgl_odd_f32((double)x));
    else
        sgl_store<D>(to, i, elements, (held)x);
}

enum { ALONG_AHEAD = 8 }; /* steps that are read before the first of them is taken */

/* ---- recurrence -------------------------------------------------------------------------------------------------- */

/* y_i = a_i y_(i-1) + b_i: a product and a sum, each rounded. */
template <class T> SGL_DEVICE T along_step(T a, T y, T b, bool first) { return first ? b : a * y + b; }

template <class D> SGL_DEVICE void recurrence_down(const void *a, const void *b, void *y, const sglcuda_along &v)
{
    typedef typename along_of<D>::type carrier;
    int64 col;
    const int64 line = sgl_thread(), elements = v.outer * v.extent * v.inner;
    if (line >= v.outer * v.inner) return;
    const int64 outer = sgl_divide(line, v.inner, &col), step = v.reverse ? -v.inner : v.inner;
    int64 at = (outer * v.extent + (v.reverse ? v.extent - 1 : 0)) * v.inner + col;
    carrier state = 0, x[ALONG_AHEAD], z[ALONG_AHEAD];
    for (int64 i = 0; i < v.extent; i += ALONG_AHEAD) {
#pragma unroll
        for (int k = 0; k < ALONG_AHEAD; k++) {
            if (i + k >= v.extent) continue;
            x[k] = along_read<D>(a, at + k * step);
            z[k] = along_read<D>(b, at + k * step);
        }
#pragma unroll
        for (int k = 0; k < ALONG_AHEAD; k++) {
            if (i + k >= v.extent) continue;
            state = along_step(x[k], state, z[k], i + k == 0);
            along_write<D>(y, at + k * step, elements, state);
        }
        at += ALONG_AHEAD * step;
    }
}

/* A warp takes 32 lines, 32 steps of them at a time: what is read and written lies along the lines, what is computed
 * goes across. */
template <class D> SGL_DEVICE void recurrence_line(const void *a, const void *b, void *y, const sglcuda_along &v)
{
    typedef typename along_of<D>::type carrier;
    const int side = SGLCUDA_ALONG_SIDE;
    __shared__ carrier as[side][side + 1], bs[side][side + 1];
    const int lane = threadIdx.x;
    const int64 first_line = (int64)blockIdx.x * side, elements = v.outer * v.extent;
    carrier state = 0;
    for (int64 first = 0; first < v.extent; first += side) {
        const int64 i = first + lane, at = v.reverse ? v.extent - 1 - i : i;
        __syncwarp();
#pragma unroll 8
        for (int line = 0; line < side; line++) {
            if (i >= v.extent || first_line + line >= v.outer) continue;
            as[line][lane] = along_read<D>(a, (first_line + line) * v.extent + at);
            bs[line][lane] = along_read<D>(b, (first_line + line) * v.extent + at);
        }
        __syncwarp();
#pragma unroll 4
        for (int k = 0; k < side && first + k < v.extent; k++) {
            state = along_step(as[lane][k], state, bs[lane][k], first + k == 0);
            as[lane][k] = state;
        }
        __syncwarp();
#pragma unroll 8
        for (int line = 0; line < side; line++) {
            if (i >= v.extent || first_line + line >= v.outer) continue;
            along_write<D>(y, (first_line + line) * v.extent + at, elements, as[line][lane]);
        }
    }
}

/* ---- running sums ------------------------------------------------------------------------------------------------ */

/* Where step i of a line is. */
SGL_DEVICE int64 along_at(const sglcuda_along &v, int64 outer, int64 i, int64 col)
{
    return (outer * v.extent + (v.reverse ? v.extent - 1 - i : i)) * v.inner + col;
}

/* A thread for each run of chunks_each chunks of a line; starts [outer, chunks, inner]: sums before each chunk, or with
 * v.totals where the sum of each is put. */
template <class D>
SGL_DEVICE void cumulative_down(const void *x, typename along_of<D>::type *starts, void *y, const sglcuda_along &v)
{
    typedef typename along_of<D>::type carrier;
    int64 col, part;
    const int64 parts = v.chunks / v.chunks_each, elements = v.outer * v.extent * v.inner;
    const int64 rest = sgl_divide(sgl_thread(), v.inner, &col), outer = sgl_divide(rest, parts, &part);
    if (outer >= v.outer) return;
    carrier start = 0;
    for (int64 chunk = part * v.chunks_each; chunk < (part + 1) * v.chunks_each; chunk++) {
        const int64 first = chunk * SGLCUDA_ALONG_CHUNK, slot = (outer * v.chunks + chunk) * v.inner + col;
        const int64 last = first + SGLCUDA_ALONG_CHUNK < v.extent ? first + SGLCUDA_ALONG_CHUNK : v.extent;
        carrier sum = 0, x_ahead[ALONG_AHEAD];
        if (!v.totals && v.chunks_each == 1 && v.chunks > 1) start = starts[slot];
        for (int64 i = first; i < last; i += ALONG_AHEAD) {
#pragma unroll
            for (int k = 0; k < ALONG_AHEAD; k++)
                if (i + k < last) x_ahead[k] = along_read<D>(x, along_at(v, outer, i + k, col));
#pragma unroll
            for (int k = 0; k < ALONG_AHEAD; k++) {
                if (i + k >= last) continue;
                const carrier before = sum;
                sum += x_ahead[k];
                if (v.totals) continue;
                along_write<D>(y, along_at(v, outer, i + k, col), elements, start + (v.exclusive ? before : sum));
            }
        }
        if (v.totals) starts[slot] = sum;
        start += sum;
    }
}

/* Of each line (a thread) the sums of its chunks become those of all before. */
template <class carrier> SGL_DEVICE void cumulative_starts(carrier *sums, const sglcuda_along &v)
{
    int64 col;
    const int64 line = sgl_thread();
    if (line >= v.outer * v.inner) return;
    const int64 outer = sgl_divide(line, v.inner, &col);
    carrier start = 0, ahead[ALONG_AHEAD];
    for (int64 chunk = 0; chunk < v.chunks; chunk += ALONG_AHEAD) {
        carrier *at = &sums[(outer * v.chunks + chunk) * v.inner + col];
#pragma unroll
        for (int k = 0; k < ALONG_AHEAD; k++)
            if (chunk + k < v.chunks) ahead[k] = at[k * v.inner];
#pragma unroll
        for (int k = 0; k < ALONG_AHEAD; k++) {
            if (chunk + k >= v.chunks) continue;
            at[k * v.inner] = start;
            start += ahead[k];
        }
    }
}

/* A block for each tile of a line of the last dimension; starts [outer, chunks]. Threads take neighbours, then lanes
 * and warps are summed in their order. */
template <class D>
SGL_DEVICE void cumulative_line(const void *x, typename along_of<D>::type *starts, void *y, const sglcuda_along &v)
{
    typedef typename along_of<D>::type carrier;
    const int each = SGLCUDA_ALONG_EACH, warps = SGLCUDA_ALONG_THREADS / 32;
    __shared__ carrier sums[warps];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int64 tile;
    const int64 outer = sgl_divide(blockIdx.x, v.chunks, &tile), elements = v.outer * v.extent;
    const int64 first = tile * SGLCUDA_ALONG_TILE + threadIdx.x * each;
    carrier number[each], mine = 0;
#pragma unroll
    for (int k = 0; k < each; k++) {
        number[k] = first + k < v.extent ? along_read<D>(x, along_at(v, outer, first + k, 0)) : 0;
        mine += number[k];
    }
    carrier through = mine;
    for (int step = 1; step < 32; step *= 2) {
        const carrier before = __shfl_up_sync(0xffffffffu, through, step);
        if (lane >= step) through = before + through;
    }
    if (lane == 31) sums[warp] = through;
    const carrier ahead = __shfl_up_sync(0xffffffffu, through, 1);
    __syncthreads();
    carrier start = 0;
    for (int w = 0; w < warp; w++) start += sums[w];
    if (v.totals) {
        if (threadIdx.x == SGLCUDA_ALONG_THREADS - 1) starts[blockIdx.x] = start + through;
        return;
    }
    if (lane > 0) start += ahead;
    if (v.chunks > 1) start = starts[blockIdx.x] + start;
#pragma unroll
    for (int k = 0; k < each; k++) {
        const carrier before = start;
        start += number[k];
        if (first + k < v.extent)
            along_write<D>(y, along_at(v, outer, first + k, 0), elements, v.exclusive ? before : start);
    }
}

/* ---- where the extreme stands ------------------------------------------------------------------------------------ */

/* Whether x at i goes before y at j: NaN before all else, then by value, then the first. -1: nothing stands there. */
template <class T> SGL_DEVICE bool arg_before(T x, int64 i, T y, int64 j, bool largest)
{
    if (i < 0 || j < 0) return j < 0 && i >= 0;
    const bool nan = x != x, other = y != y;
    if (nan || other) return nan && (!other || i < j);
    if (x != y) return largest ? x > y : x < y;
    return i < j;
}

template <class D> SGL_DEVICE void arg_down(const void *x, int64 *out, const sglcuda_along &v)
{
    typedef typename D::held held;
    int64 col, best = -1;
    const int64 line = sgl_thread();
    if (line >= v.outer * v.inner) return;
    const int64 outer = sgl_divide(line, v.inner, &col);
    held most = 0;
#pragma unroll 4
    for (int64 i = 0; i < v.extent; i++) {
        const held number = D::load(x, (outer * v.extent + i) * v.inner + col);
        if (!arg_before(number, i, most, best, v.largest)) continue;
        most = number;
        best = i;
    }
    out[line] = best;
}

/* A block for each line. */
template <class D> SGL_DEVICE void arg_line(const void *x, int64 *out, const sglcuda_along &v)
{
    typedef typename D::held held;
    const int warps = SGLCUDA_ALONG_THREADS / 32;
    __shared__ held mosts[warps];
    __shared__ int64 bests[warps];
    int64 col, best = -1;
    const int64 outer = sgl_divide(blockIdx.x, v.inner, &col);
    held most = 0;
#pragma unroll 4
    for (int64 i = threadIdx.x; i < v.extent; i += SGLCUDA_ALONG_THREADS) {
        const held number = D::load(x, (outer * v.extent + i) * v.inner + col);
        if (!arg_before(number, i, most, best, v.largest)) continue;
        most = number;
        best = i;
    }
    for (int step = 16; step > 0; step /= 2) {
        const held other = (held)__shfl_down_sync(0xffffffffu, most, step);
        const int64 place = __shfl_down_sync(0xffffffffu, best, step);
        if (!arg_before(other, place, most, best, v.largest)) continue;
        most = other;
        best = place;
    }
    if ((threadIdx.x & 31) == 0) {
        mosts[threadIdx.x >> 5] = most;
        bests[threadIdx.x >> 5] = best;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < warps; w++) {
        if (!arg_before(mosts[w], bests[w], most, best, v.largest)) continue;
        most = mosts[w];
        best = bests[w];
    }
    out[blockIdx.x] = best;
}

/* ---- by index ---------------------------------------------------------------------------------------------------- */

struct take_source {
    const void *indices;
    const sglcuda_by_index &v;
    SGL_DEVICE_MEMBER int64 at(int64 i) const
    {
        int64 col = 0, place, rest = i;
        if (v.inner > 1) rest = sgl_divide(i, v.inner, &col);
        const int64 outer = sgl_divide(rest, v.count, &place), index = sgl_index(indices, v.index_kind, i);
        return index >= 0 && index < v.extent ? (outer * v.extent + index) * v.inner + col : -1;
    }
};

SGL_FILL_ELEMENTS(take_along,
                  (const char *x, const void *indices, char *out, const __grid_constant__ sglcuda_by_index v), x, out,
                  v.total, v.value, (take_source{ indices, v }))

/* A thread for each element of the result, which looks at all updates of its line. */
template <class D>
SGL_DEVICE void add_few(const void *indices, const void *updates, void *out, const sglcuda_by_index &v)
{
    int64 col, place;
    const int64 i = sgl_thread();
    if (i >= v.total) return;
    const int64 outer = sgl_divide(sgl_divide(i, v.inner, &col), v.extent, &place);
    typename along_of<D>::type sum = 0;
    for (int64 k = 0; k < v.count; k++) {
        const int64 at = (outer * v.count + k) * v.inner + col;
        if (sgl_index(indices, v.index_kind, at) == place) sum += along_read<D>(updates, at);
    }
    along_write<D>(out, i, v.total, sum);
}

/* The same where the updates of each line are in the order of their indices: rows, order [outer * inner, count]. */
template <class D>
SGL_DEVICE void add_many(const uint32 *rows, const uint32 *order, const void *updates, void *out,
                         const sglcuda_by_index &v)
{
    int64 col, place;
    const int64 i = sgl_thread();
    if (i >= v.total) return;
    const int64 outer = sgl_divide(sgl_divide(i, v.inner, &col), v.extent, &place);
    const int64 first = (outer * v.inner + col) * v.count;
    int64 low = 0, high = v.count;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if ((int64)rows[first + middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    typename along_of<D>::type sum = 0;
    for (; low < v.count && (int64)rows[first + low] == place; low++)
        sum += along_read<D>(updates, (outer * v.count + order[first + low]) * v.inner + col);
    along_write<D>(out, i, v.total, sum);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

SGL_DEVICE int64 prod_offset(int64 i, int rank, const long long *dims, const long long *strides)
{
    int64 offset = 0;
#pragma unroll 1
    for (int d = rank - 1; d >= 0; d--) {
        int64 at;
        i = sgl_divide(i, dims[d], &at);
        offset += at * strides[d];
    }
    return offset;
}

/* A thread for each product, from the first element to the last. */
template <class D> SGL_DEVICE void prod_few(const void *x, void *out, const sglcuda_prod &v)
{
    const int64 row = sgl_thread();
    if (row >= v.rows) return;
    const int64 start = prod_offset(row, v.row_rank, v.row_dims, v.row_strides);
    typename along_of<D>::type product = 1;
#pragma unroll 1
    for (int64 c = 0; c < v.cols; c++)
        product *= along_read<D>(x, start + prod_offset(c, v.col_rank, v.col_dims, v.col_strides));
    along_write<D>(out, row, v.rows, product);
}

/* A block for each: each thread its share, then lanes, then warps, in an order that is always the same. */
template <class D> SGL_DEVICE void prod_many(const void *x, void *out, const sglcuda_prod &v)
{
    typedef typename along_of<D>::type carrier;
    __shared__ carrier products[SGLCUDA_ALONG_THREADS / 32];
    const int64 row = blockIdx.x, start = prod_offset(row, v.row_rank, v.row_dims, v.row_strides);
    carrier product = 1;
#pragma unroll 1
    for (int64 c = threadIdx.x; c < v.cols; c += SGLCUDA_ALONG_THREADS)
        product *= along_read<D>(x, start + prod_offset(c, v.col_rank, v.col_dims, v.col_strides));
    for (int step = 16; step > 0; step /= 2) product *= __shfl_xor_sync(0xffffffffu, product, step);
    if ((threadIdx.x & 31) == 0) products[threadIdx.x >> 5] = product;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < SGLCUDA_ALONG_THREADS / 32; w++) product *= products[w];
    along_write<D>(out, row, v.rows, product);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

#define ALONG_KERNEL(THREADS, NAME, PARAMETERS, CALL)                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME PARAMETERS { CALL; }
#define ALONG_ORDERED(NAME, D) /* of bool too */                                                                       \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, arg_down_##NAME,                                                               \
                 (const void *x, int64 *out, const __grid_constant__ sglcuda_along v), arg_down<D>(x, out, v))         \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, arg_line_##NAME,                                                               \
                 (const void *x, int64 *out, const __grid_constant__ sglcuda_along v), arg_line<D>(x, out, v))
#define ALONG_NUMBERS(D)                                                                                               \
    ALONG_ORDERED(D, D)                                                                                                \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, recurrence_down_##D,                                                           \
                 (const void *a, const void *b, void *y, const __grid_constant__ sglcuda_along v),                     \
                 recurrence_down<D>(a, b, y, v))                                                                       \
    ALONG_KERNEL(SGLCUDA_ALONG_SIDE, recurrence_line_##D,                                                              \
                 (const void *a, const void *b, void *y, const __grid_constant__ sglcuda_along v),                     \
                 recurrence_line<D>(a, b, y, v))                                                                       \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, cumulative_down_##D,                                                           \
                 (const void *x, along_of<D>::type *starts, void *y, const __grid_constant__ sglcuda_along v),         \
                 cumulative_down<D>(x, starts, y, v))                                                                  \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, cumulative_line_##D,                                                           \
                 (const void *x, along_of<D>::type *starts, void *y, const __grid_constant__ sglcuda_along v),         \
                 cumulative_line<D>(x, starts, y, v))                                                                  \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, add_few_##D,                                                                   \
                 (const void *indices, const void *updates, void *out, const __grid_constant__ sglcuda_by_index v),    \
                 add_few<D>(indices, updates, out, v))                                                                 \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, add_many_##D,                                                                  \
                 (const uint32 *rows, const uint32 *order, const void *updates, void *out,                             \
                  const __grid_constant__ sglcuda_by_index v),                                                         \
                 add_many<D>(rows, order, updates, out, v))                                                            \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, prod_few_##D,                                                                  \
                 (const void *x, void *out, const __grid_constant__ sglcuda_prod v), prod_few<D>(x, out, v))           \
    ALONG_KERNEL(SGLCUDA_ALONG_THREADS, prod_many_##D,                                                                 \
                 (const void *x, void *out, const __grid_constant__ sglcuda_prod v), prod_many<D>(x, out, v))
ALONG_NUMBERS(f64)
ALONG_NUMBERS(f32)
ALONG_NUMBERS(bf16)
ALONG_NUMBERS(f16)
ALONG_NUMBERS(f8e4m3)
ALONG_NUMBERS(f8e5m2)
ALONG_NUMBERS(i64)
ALONG_NUMBERS(i32)
ALONG_NUMBERS(i16)
ALONG_NUMBERS(i8)
ALONG_NUMBERS(u8)
ALONG_NUMBERS(u16)
ALONG_NUMBERS(u32)
ALONG_NUMBERS(i4)
ALONG_ORDERED(bool, boolean)

extern "C" __global__ void __launch_bounds__(SGLCUDA_ALONG_THREADS)
    cumulative_starts_real(double *sums, const __grid_constant__ sglcuda_along v)
{
    cumulative_starts(sums, v);
}
extern "C" __global__ void __launch_bounds__(SGLCUDA_ALONG_THREADS)
    cumulative_starts_whole(uint64 *sums, const __grid_constant__ sglcuda_along v)
{
    cumulative_starts(sums, v);
}

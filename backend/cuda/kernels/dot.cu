/* dot.cu -- products that the library does not take, and copies that lay an argument out for a product.
 *
 * In: batches of matrices of any dtype through strides. Out: c, dense. dot_tiles: a block makes tiles of 64 x 64
 * sums, 4 x 4 a thread, from shared memory; dot_lines: a block makes one sum after another along contiguous
 * arguments, for few rows or columns. Sums are held in f32 (f64, integers of as many bits); each is added in an
 * order that follows from its depth alone. dot_copy: through strides to dense, along the last dim, or by tiles where
 * another dim is contiguous in the source. Odd invariant: integers are multiplied without signs, since the low bits
 * are the same. */
#include "dtypes.cuh"
#include "dot.h"

SGL_DEVICE float sgl_madd(float a, float b, float sum) { return fmaf(a, b, sum); }
SGL_DEVICE double sgl_madd(double a, double b, double sum) { return fma(a, b, sum); }
SGL_DEVICE uint32 sgl_madd(uint32 a, uint32 b, uint32 sum) { return a * b + sum; }
SGL_DEVICE uint64 sgl_madd(uint64 a, uint64 b, uint64 sum) { return a * b + sum; }

/* Where batch element `index` of a and of b begins. */
SGL_DEVICE void sgl_batch_at(const sglcuda_dot_values &v, int64 index, int64 &a, int64 &b)
{
    a = b = 0;
#pragma unroll 1
    for (int d = 0; d < v.batch_rank; d++) {
        const int64 at = index % v.batch_extent[d];
        a += at * v.batch_a[d];
        b += at * v.batch_b[d];
        index /= v.batch_extent[d];
    }
}

/* A tile, free x depth, into shared memory as [depth][free]; zeros beyond the edges. Neighbouring threads read along
 * the contiguous dim. */
template <class T, class S>
SGL_DEVICE void sgl_load_tile(S (*to)[SGLCUDA_DOT_TILE + 1], const void *from, int64 first, int64 free_stride,
                              int64 depth_stride, int64 free_left, int64 depth_left)
{
    const bool along_depth = depth_stride == 1;
    for (int e = (int)threadIdx.x; e < SGLCUDA_DOT_TILE * SGLCUDA_DOT_DEPTH; e += SGLCUDA_DOT_THREADS) {
        const int depth = along_depth ? e % SGLCUDA_DOT_DEPTH : e / SGLCUDA_DOT_TILE;
        const int free = along_depth ? e / SGLCUDA_DOT_DEPTH : e % SGLCUDA_DOT_TILE;
        const bool inside = free < free_left && depth < depth_left;
        to[depth][free] = inside ? (S)T::load(from, first + free * free_stride + depth * depth_stride) : (S)0;
    }
}

/* bias: NULL, or a number of T for each column, added to its sums. */
template <class T, class R, class S>
SGL_DEVICE void sgl_dot_tiles(const void *a, const void *b, void *c, const sglcuda_dot_values &v,
                              const void *bias = NULL)
{
    constexpr int side = 16, each = SGLCUDA_DOT_TILE / side;
    __shared__ S a_tile[SGLCUDA_DOT_DEPTH][SGLCUDA_DOT_TILE + 1], b_tile[SGLCUDA_DOT_DEPTH][SGLCUDA_DOT_TILE + 1];
    const int x = (int)threadIdx.x % side, y = (int)threadIdx.x / side;
#pragma unroll 1
    for (int64 item = blockIdx.x; item < v.items; item += gridDim.x) {
        const int64 column = item % v.column_tiles * SGLCUDA_DOT_TILE, rest = item / v.column_tiles;
        const int64 row = rest % v.row_tiles * SGLCUDA_DOT_TILE, batch = rest / v.row_tiles;
        int64 a_first, b_first;
        sgl_batch_at(v, batch, a_first, b_first);
        a_first += row * v.a_row;
        b_first += column * v.b_column;
        S sums[each][each] = {};
#pragma unroll 1
        for (int64 depth = 0; depth < v.depth; depth += SGLCUDA_DOT_DEPTH) {
            sgl_load_tile<T, S>(a_tile, a, a_first + depth * v.a_depth, v.a_row, v.a_depth, v.rows - row,
                                v.depth - depth);
            sgl_load_tile<T, S>(b_tile, b, b_first + depth * v.b_depth, v.b_column, v.b_depth, v.columns - column,
                                v.depth - depth);
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < SGLCUDA_DOT_DEPTH; k++) {
                S of_a[each], of_b[each];
#pragma unroll
                for (int i = 0; i < each; i++) of_a[i] = a_tile[k][y + i * side];
#pragma unroll
                for (int j = 0; j < each; j++) of_b[j] = b_tile[k][x + j * side];
#pragma unroll
                for (int i = 0; i < each; i++)
#pragma unroll
                    for (int j = 0; j < each; j++) sums[i][j] = sgl_madd(of_a[i], of_b[j], sums[i][j]);
            }
            __syncthreads();
        }
        for (int i = 0; i < each; i++) {
            for (int j = 0; j < each; j++) {
                const int64 r = row + y + i * side, l = column + x + j * side;
                if (r >= v.rows || l >= v.columns) continue;
                const S sum = bias ? sums[i][j] + (S)T::load(bias, l) : sums[i][j];
                R::store(c, (batch * v.rows + r) * v.columns + l, (typename R::held)sum);
            }
        }
    }
}

/* Each thread adds every 256th product, then halves of the block are added to each other. */
template <class T, class R, class S>
SGL_DEVICE void sgl_dot_lines(const void *a, const void *b, void *c, const sglcuda_dot_values &v)
{
    __shared__ S parts[SGLCUDA_DOT_THREADS];
    const int t = (int)threadIdx.x;
#pragma unroll 1
    for (int64 item = blockIdx.x; item < v.items; item += gridDim.x) {
        const int64 column = item % v.columns, rest = item / v.columns;
        const int64 row = rest % v.rows, batch = rest / v.rows;
        int64 a_first, b_first;
        sgl_batch_at(v, batch, a_first, b_first);
        a_first += row * v.a_row;
        b_first += column * v.b_column;
        S sum = 0;
        for (int64 k = t; k < v.depth; k += SGLCUDA_DOT_THREADS)
            sum = sgl_madd((S)T::load(a, a_first + k * v.a_depth), (S)T::load(b, b_first + k * v.b_depth), sum);
        parts[t] = sum;
        __syncthreads();
        for (int half = SGLCUDA_DOT_THREADS / 2; half > 0; half /= 2) {
            if (t < half) parts[t] += parts[t + half];
            __syncthreads();
        }
        if (t == 0) R::store(c, item, (typename R::held)parts[0]);
        __syncthreads();
    }
}

#define DOT(FORM, NAME, T, R, S)                                                                                       \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)                                                  \
        dot_##FORM##_##NAME(const void *a, const void *b, void *c, sglcuda_dot_values v)                               \
    {                                                                                                                  \
        sgl_dot_##FORM<T, R, S>(a, b, c, v);                                                                           \
    }
DOT(tiles, f64, f64, f64, double)
DOT(tiles, f32, f32, f32, float)
DOT(tiles, bf16, bf16, bf16, float)
DOT(tiles, bf16_f32, bf16, f32, float)
DOT(tiles, f16, f16, f16, float)
DOT(tiles, f16_f32, f16, f32, float)
DOT(tiles, f8e4m3, f8e4m3, f8e4m3, float)
DOT(tiles, f8e4m3_f32, f8e4m3, f32, float)
DOT(tiles, f8e5m2, f8e5m2, f8e5m2, float)
DOT(tiles, f8e5m2_f32, f8e5m2, f32, float)
DOT(tiles, i64, i64, i64, uint64)
DOT(tiles, u32, u32, u32, uint32)
DOT(tiles, u16, u16, u16, uint32)
DOT(tiles, u8, u8, u8, uint32)
DOT(tiles, i4, i4, i4, uint32)
/* of the dtypes that the library never takes, or seldom */
DOT(lines, f8e4m3, f8e4m3, f8e4m3, float)
DOT(lines, f8e4m3_f32, f8e4m3, f32, float)
DOT(lines, f8e5m2, f8e5m2, f8e5m2, float)
DOT(lines, f8e5m2_f32, f8e5m2, f32, float)
DOT(lines, i64, i64, i64, uint64)
DOT(lines, u32, u32, u32, uint32)
DOT(lines, u16, u16, u16, uint32)
DOT(lines, u8, u8, u8, uint32)
DOT(lines, i4, i4, i4, uint32)

#define BIASED(T)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)                                                  \
        dot_biased_##T(const void *a, const void *b, void *c, const void *bias, sglcuda_dot_values v)                  \
    {                                                                                                                  \
        sgl_dot_tiles<T, T, float>(a, b, c, v, bias);                                                                  \
    }
BIASED(bf16)
BIASED(f16)

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Where the row-major element `index` of the dense side lies in the source. I: an index type as narrow as the count
 * allows, since a division of 64 bits takes longer than the copy. */
template <class I> SGL_DEVICE int64 sgl_source_at(const sglcuda_dot_copy_values &v, I index)
{
    int64 at = 0;
#pragma unroll 1
    for (int d = v.rank - 1; d > 0; d--) {
        const I outer = index / (I)v.extent[d];
        at += (int64)(index - outer * (I)v.extent[d]) * v.from[d];
        index = outer;
    }
    return at + (int64)index * v.from[0];
}

template <class U, class I> SGL_DEVICE void sgl_copy_rows(U *to, const U *from, const sglcuda_dot_copy_values &v)
{
    const I step = (I)gridDim.x * SGLCUDA_DOT_THREADS;
#pragma unroll 1
    for (I i = (I)blockIdx.x * SGLCUDA_DOT_THREADS + threadIdx.x; i < (I)v.count; i += step)
        to[i] = from[sgl_source_at<I>(v, i)];
}

/* Where a tile begins: the dims beside `fast` and the last, then the tile's own corner. */
SGL_DEVICE void sgl_tile_at(const sglcuda_dot_copy_values &v, int64 tile, int64 &fast, int64 &last, int64 &from,
                            int64 &to)
{
    last = tile % v.last_tiles * SGLCUDA_DOT_COPY_TILE;
    tile /= v.last_tiles;
    fast = tile % v.fast_tiles * SGLCUDA_DOT_COPY_TILE;
    tile /= v.fast_tiles;
    from = fast + last * v.from[v.rank - 1];
    to = last + fast * v.to[v.fast];
#pragma unroll 1
    for (int d = v.rank - 2; d >= 0; d--) {
        if (d == v.fast) continue;
        const int64 at = tile % v.extent[d];
        from += at * v.from[d];
        to += at * v.to[d];
        tile /= v.extent[d];
    }
}

template <class U> SGL_DEVICE void sgl_copy_tiles(U *to, const U *from, const sglcuda_dot_copy_values &v)
{
    constexpr int side = SGLCUDA_DOT_COPY_TILE, lines = SGLCUDA_DOT_THREADS / side;
    __shared__ U tile[side][side + 1];
    const int x = (int)threadIdx.x % side, y = (int)threadIdx.x / side;
#pragma unroll 1
    for (int64 t = blockIdx.x; t < v.tiles; t += gridDim.x) {
        int64 fast, last, from_at, to_at;
        sgl_tile_at(v, t, fast, last, from_at, to_at);
        const int64 fast_left = v.extent[v.fast] - fast, last_left = v.extent[v.rank - 1] - last;
        for (int l = y; l < side; l += lines) {
            if (x < fast_left && l < last_left) tile[l][x] = from[from_at + l * v.from[v.rank - 1] + x];
        }
        __syncthreads();
        for (int f = y; f < side; f += lines) {
            if (f < fast_left && x < last_left) to[to_at + f * v.to[v.fast] + x] = tile[x][f];
        }
        __syncthreads();
    }
}

#define COPY_ROWS(BITS, U)                                                                                             \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)                                                  \
        dot_copy_rows_##BITS(const U *from, U *to, sglcuda_dot_copy_values v)                                          \
    {                                                                                                                  \
        if (v.count <= 0x7fffffff)                                                                                     \
            sgl_copy_rows<U, uint32>(to, from, v);                                                                     \
        else                                                                                                           \
            sgl_copy_rows<U, uint64>(to, from, v);                                                                     \
    }
#define COPY_TILES(BITS, U)                                                                                            \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)                                                  \
        dot_copy_tiles_##BITS(const U *from, U *to, sglcuda_dot_copy_values v)                                         \
    {                                                                                                                  \
        sgl_copy_tiles<U>(to, from, v);                                                                                \
    }
COPY_ROWS(8, uint8)
COPY_ROWS(16, uint16)
COPY_ROWS(32, uint32)
COPY_ROWS(64, uint64)
COPY_ROWS(128, sgl_16_bytes)
COPY_TILES(8, uint8)
COPY_TILES(16, uint16)
COPY_TILES(32, uint32)
COPY_TILES(64, uint64)

/* A thread makes a byte of the dense side: both its elements. */
extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)
    dot_copy_i4(const void *from, uint8 *to, sglcuda_dot_copy_values v)
{
    const uint64 count = (uint64)v.count, step = (uint64)gridDim.x * SGLCUDA_DOT_THREADS;
#pragma unroll 1
    for (uint64 byte = (uint64)blockIdx.x * SGLCUDA_DOT_THREADS + threadIdx.x; 2 * byte < count; byte += step) {
        uint32 two = (uint32)i4::load(from, sgl_source_at<uint64>(v, 2 * byte)) & 15u;
        if (2 * byte + 1 < count) two |= ((uint32)i4::load(from, sgl_source_at<uint64>(v, 2 * byte + 1)) & 15u) << 4;
        to[byte] = (uint8)two;
    }
}

/* ---- to measure with -------------------------------------------------------------------------------------------------- */

SGL_DEVICE uint64 sgl_mixed(uint64 x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Numbers in (-1, 1), without an order. `unused`: as dot_digest's. */
#define NUMBERS(T)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)                                                  \
        dot_numbers_##T(void *to, long long count, void *unused)                                                       \
    {                                                                                                                  \
        const int64 step = (int64)gridDim.x * SGLCUDA_DOT_THREADS;                                                     \
        (void)unused;                                                                                                  \
        for (int64 i = (int64)blockIdx.x * SGLCUDA_DOT_THREADS + threadIdx.x; i < count; i += step)                    \
            T::store(to, i, (float)(int)(sgl_mixed((uint64)i + 1) >> 32) * 0x1p-31f);                                  \
    }
NUMBERS(bf16)
NUMBERS(f16)

/* A sum over `count` pairs of bytes, each with its place, in any order. */
extern "C" __global__ void __launch_bounds__(SGLCUDA_DOT_THREADS)
    dot_digest(const uint16 *from, long long count, unsigned long long *into)
{
    const int64 step = (int64)gridDim.x * SGLCUDA_DOT_THREADS;
    uint64 sum = 0;
    for (int64 i = (int64)blockIdx.x * SGLCUDA_DOT_THREADS + threadIdx.x; i < count; i += step)
        sum += sgl_mixed((uint64)i << 16 | from[i]);
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) atomicAdd(into, sum);
}

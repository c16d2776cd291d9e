/* attention_tensor.cuh -- products of narrow floats by a warp's tensor cores, and tiles in shared memory for them.
 *
 * A tile is rows of `columns` narrow floats (64 or 128), in units of 16 bytes; unit u of row r lies at u ^ (r & 7), so
 * that the eight rows that a load of matrices reads at once lie in different banks. Names of parts follow the PTX
 * manual's mma.m16n8k16: of the left factor four registers, of the right two, of the sum four: rows lane / 4 and lane
 * / 4 + 8, columns 2 (lane % 4) and the next. Odd invariant: rows and columns that are not there are zeros in a tile,
 * so that they add nothing. */
#ifndef SGLCUDA_ATTENTION_TENSOR_CUH
#define SGLCUDA_ATTENTION_TENSOR_CUH

#include "attention_sight.cuh"

/* ---- instructions ------------------------------------------------------------------------------------------------ */

SGL_DEVICE uint32 sgl_shared_at(const void *p) { return (uint32)__cvta_generic_to_shared(p); }

/* 16 bytes to shared memory, or zeros where there is nothing; they are there after a commit and its wait. */
SGL_DEVICE void sgl_copy16(uint32 to, const void *from, bool there)
{
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
SGL_DEVICE void sgl_copy4(uint32 to, const void *from, bool there)
{
    const int bytes = there ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
SGL_DEVICE void sgl_wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

SGL_DEVICE void sgl_load_matrices(uint32 (&m)[4], uint32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}
SGL_DEVICE void sgl_load_turned(uint32 (&m)[4], uint32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

/* 2^x within two digits of the last place, 0 for what is below normal. */
SGL_DEVICE float sgl_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class T> struct sgl_tensor;
#define SGL_TENSOR(T)                                                                                                  \
    template <> struct sgl_tensor<T> {                                                                                 \
        /* c += a b, of 16 x 16 and 16 x 8 */                                                                          \
        SGL_DEVICE void product(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)                             \
        {                                                                                                              \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T                                            \
                         ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                        \
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                              \
        }                                                                                                              \
        /* two numbers, the first in the low half */                                                                   \
        SGL_DEVICE uint32 pack(float low, float high)                                                                  \
        {                                                                                                              \
            uint32 both;                                                                                               \
            asm("cvt.rn." #T "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));                                 \
            return both;                                                                                               \
        }                                                                                                              \
    };
SGL_TENSOR(bf16)
SGL_TENSOR(f16)

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Shared memory begins where a tile may. */
struct alignas(1024) sgl_shared {
    uint32 words[256];
};

template <int columns> struct sgl_tile {
    static const int units = columns / 8, row_bytes = columns * 2;
    uint32 at; /* in shared memory, a multiple of 1024 */
    __device__ __forceinline__ uint32 unit(int row, int u) const
    {
        return at + (uint32)(row * row_bytes + (u ^ (row & 7)) * 16);
    }
    /* Of unit 2 k + odd of a lane's row, of the 16 from `row` on: one base for all k and all rows, so that few
     * registers hold addresses. */
    __device__ __forceinline__ uint32 unit_of(int lane_row, int odd, int row, int k) const
    {
        const uint32 base = at + (uint32)(lane_row * row_bytes + (odd ^ (lane_row & 7)) * 16);
        return (base ^ (uint32)(32 * k)) + (uint32)(row * row_bytes);
    }

    /* In all of these `row` is a multiple of 16. The left factor: rows row .. row + 15, columns 16 k .. 16 k + 15. */
    __device__ __forceinline__ void left(uint32 (&a)[4], int row, int k) const
    {
        const int lane = (int)threadIdx.x % 32;
        sgl_load_matrices(a, unit_of(lane % 16, lane / 16, row, k));
    }
    /* The right factor, of a product with this tile turned: rows are columns of the product. Registers 0, 1: of rows
     * row .. row + 7; 2, 3: of the eight after them. */
    __device__ __forceinline__ void right_turned(uint32 (&b)[4], int row, int k) const
    {
        const int lane = (int)threadIdx.x % 32;
        sgl_load_matrices(b, unit_of(lane % 8 + lane / 16 * 8, lane / 8 % 2, row, k));
    }
    /* The right factor as it lies: rows row .. row + 15 are summed over. Registers 0, 1: of columns 16 n .. 16 n + 7;
     * 2, 3: of the eight after them. */
    __device__ __forceinline__ void right(uint32 (&b)[4], int row, int n) const
    {
        const int lane = (int)threadIdx.x % 32;
        sgl_load_turned(b, unit_of(lane % 16, lane / 16, row, n));
    }
    /* Begins to load `rows` rows of `width` columns, `stride` elements apart, of which `count` are there. */
    __device__ __forceinline__ void load(const uint16 *from, int64 stride, int rows, int64 count, int width) const
    {
        for (int n = (int)threadIdx.x; n < rows * units; n += (int)blockDim.x) {
            const int row = n / units, u = n % units;
            const bool there = row < count && u * 8 < width;
            sgl_copy16(unit(row, u), there ? from + row * stride + u * 8 : from, there);
        }
    }
};

/* ---- products of a warp ------------------------------------------------------------------------------------------ */

template <int ROWS, int N> SGL_DEVICE void sgl_clear(float (&sums)[ROWS][N][4])
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) sums[m][n][c] = 0;
}

/* Rows row .. of one tile, 16 ROWS of them, times rows other .. of another, WIDE of them. */
template <class T, int columns, int ROWS, int WIDE>
SGL_DEVICE void sgl_row_products(float (&products)[ROWS][WIDE / 8][4], const sgl_tile<columns> &mine, int row,
                                 const sgl_tile<columns> &theirs, int other)
{
    sgl_clear(products);
#pragma unroll
    for (int x = 0; x < columns / 16; x++) {
        uint32 a[ROWS][4], b[4];
#pragma unroll
        for (int m = 0; m < ROWS; m++) mine.left(a[m], row + 16 * m, x);
#pragma unroll
        for (int n = 0; n < WIDE / 16; n++) {
            theirs.right_turned(b, other + 16 * n, x);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                sgl_tensor<T>::product(products[m][2 * n], a[m], b[0], b[1]);
                sgl_tensor<T>::product(products[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sums += weights, rounded to the dtype, times rows other .. of a tile, WIDE of them. */
template <class T, int columns, int ROWS, int WIDE>
SGL_DEVICE void sgl_weigh_rows(float (&sums)[ROWS][columns / 8][4], const float (&weights)[ROWS][WIDE / 8][4],
                               const sgl_tile<columns> &theirs, int other)
{
#pragma unroll
    for (int x = 0; x < WIDE / 16; x++) {
        uint32 a[ROWS][4], b[4];
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
            for (int part = 0; part < 4; part++) {
                const float *pair = &weights[m][2 * x + part / 2][part % 2 * 2];
                a[m][part] = sgl_tensor<T>::pack(pair[0], pair[1]);
            }
#pragma unroll
        for (int n = 0; n < columns / 16; n++) {
            theirs.right(b, other + 16 * x, n);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                sgl_tensor<T>::product(sums[m][2 * n], a[m], b[0], b[1]);
                sgl_tensor<T>::product(sums[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Rows row .. row + 15 of a result, from a warp's sums through its own rows of a tile that it no longer needs. */
template <class T, int columns>
SGL_DEVICE void sgl_store_rows(const sgl_tile<columns> &tile, char *tile_memory, int row,
                               const float (&sums)[columns / 8][4], uint16 *to, int64 stride, int64 count, int width)
{
    const int lane = (int)threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < columns / 8; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32 at = tile.unit(row + lane / 4 + 8 * half, n) - tile.at + (uint32)(lane % 4 * 4);
            *(uint32 *)(tile_memory + at) = sgl_tensor<T>::pack(sums[n][2 * half], sums[n][2 * half + 1]);
        }
    }
    __syncwarp();
    for (int n = lane; n < 16 * tile.units; n += 32) {
        const int r = row + n / tile.units, u = n % tile.units;
        if (r < count && u * 8 < width)
            *(sgl_16_bytes *)(to + r * stride + u * 8) =
                *(const sgl_16_bytes *)(tile_memory + (tile.unit(r, u) - tile.at));
    }
}

/* ---- sight ------------------------------------------------------------------------------------------------------- */

/* Segments of some rows: the least and the greatest without sign, the greatest with it. Those below 0 are none. */
struct sgl_segments {
    uint32 least, most;
    int last;
};

/* Asked by whole warps, each of which learns the same. */
SGL_DEVICE sgl_segments sgl_segments_of(const int *segments, int64 count)
{
    sgl_segments found = { 0xffffffffu, 0, (int)0x80000000 };
    for (int64 i = threadIdx.x % 32; i < count; i += 32) {
        const int segment = segments[i];
        found.least = (uint32)segment < found.least ? (uint32)segment : found.least;
        found.most = (uint32)segment > found.most ? (uint32)segment : found.most;
        found.last = segment > found.last ? segment : found.last;
    }
    found.least = __reduce_min_sync(0xffffffffu, found.least);
    found.most = __reduce_max_sync(0xffffffffu, found.most);
    found.last = __reduce_max_sync(0xffffffffu, found.last);
    return found;
}
/* No pair of one segment. */
SGL_DEVICE bool sgl_apart(const sgl_segments &a, const sgl_segments &b)
{
    return a.last < 0 || b.last < 0 || a.least > (uint32)b.last || b.least > (uint32)a.last;
}
/* All are of one segment. */
SGL_DEVICE bool sgl_together(const sgl_segments &a, const sgl_segments &b)
{
    return a.least == a.most && b.least == b.most && a.least == b.least && a.last >= 0;
}

/* Time as 32-bit numbers: query i sees keys offset + i + 1 - window .. offset + i of those that there are. What is not
 * causal has an offset that shows all of them. */
struct sgl_times {
    int offset, window, keys;
    __device__ __forceinline__ bool sees(int i, int j) const
    {
        return j <= offset + i && j > offset + i - window && j < keys;
    }
    /* Of whole ranges, ends not included. */
    __device__ __forceinline__ bool all_see(int query, int queries_end, int key, int keys_end) const
    {
        return keys_end - 1 <= offset + query && key > offset + queries_end - 1 - window && keys_end <= keys;
    }
};

SGL_DEVICE sgl_times sgl_times_of(const sgl_attention &a, int64 offset)
{
    const int64 far = SGL_TENSOR_FAR, low = -far / 2;
    const int64 near = !a.causal || offset > far ? far : offset < low ? low : offset;
    return { (int)near, a.window > 0 ? (int)a.window : (int)(far + far / 2), (int)a.s };
}

/* Tiles of SIZE rows that pass by a block: those that some row of the block may see, or be seen by. */
template <int SIZE> struct sgl_walk {
    const int *segments; /* of what passes by; NULL: all is one segment */
    sgl_segments own;
    int last;
    bool mixed; /* of the tile that was found: some pairs are of two segments */
    /* The first such tile from `at` on, or `last`. */
    __device__ __forceinline__ int find(int at)
    {
        mixed = false;
        for (; segments && at < last; at += SIZE) {
            const sgl_segments theirs = sgl_segments_of(segments + at, last - at < SIZE ? last - at : SIZE);
            if (sgl_apart(own, theirs)) continue;
            mixed = !sgl_together(own, theirs);
            break;
        }
        return at < last ? at : last;
    }
};

/* The sum of out * dout over a row, which `share` threads beside one another read, 8 numbers each from `at`, where these are there. */
template <class T, int share>
SGL_DEVICE float sgl_row_delta(const uint16 *out, const uint16 *dout, int64 at, bool there)
{
    float x[8], y[8], sum = 0;
    if (there) {
        T::load8(out, at, x);
        T::load8(dout, at, y);
#pragma unroll
        for (int i = 0; i < 8; i++) sum = fmaf(x[i], y[i], sum);
    }
#pragma unroll
    for (int apart = share / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

#endif

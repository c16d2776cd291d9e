/* attention_group.cuh -- attention by groups of four warps (sm_90a): their products, barriers in shared memory, tiles,
 * and how tasks are dealt.
 *
 * A block is one group of which one warp loads, by copies of whole tiles (maps), and others that compute; a tile goes
 * round in stages, each with a barrier that says "full" and one that says "empty". Products take factors out of shared
 * memory (wgmma; PTX manual, asynchronous warpgroup level matrix instructions) and run on their own from their start to
 * the wait for them. A group has 64 rows: of warp w of it, 16 w + lane / 4 and that + 8; columns 8 n + 2 (lane % 4) and
 * the next. Odd invariant: rows and columns that are not there are zeros in a tile, so that they add nothing. */
#ifndef SGLCUDA_ATTENTION_GROUP_CUH
#define SGLCUDA_ATTENTION_GROUP_CUH

#include "attention_tensor.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SGL_HAS_GROUPS 1
#else
#define SGL_HAS_GROUPS 0
#endif

enum { SGL_GROUP = 128 }; /* threads */

/* A tensor [sequences, rows, heads, width] as the driver tells it to the GPU, in boxes of 64 columns of one head: what
 * is beyond its ends is loaded as zeros. */
struct alignas(64) sgl_map {
    uint64 words[16];
};

#if SGL_HAS_GROUPS

/* ---- barriers ---------------------------------------------------------------------------------------------------- */

SGL_DEVICE void sgl_barrier_init(uint32 at, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
SGL_DEVICE void sgl_barrier_arrive(uint32 at)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
}
/* Arrives, and says how many bytes of copies are to come besides. */
SGL_DEVICE void sgl_barrier_expect(uint32 at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
SGL_DEVICE void sgl_barrier_wait(uint32 at, int phase)
{
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "again:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
                 "@done bra over;\n\tbra again;\n\tover:\n\t}" ::"r"(at),
                 "r"(phase)
                 : "memory");
}
/* What a warp has done is done by all of it. */
SGL_DEVICE void sgl_barrier_arrive_warp(uint32 at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) sgl_barrier_arrive(at);
}
/* Barriers of the processor: number 0 is __syncthreads's. */
template <int threads> SGL_DEVICE void sgl_meet(int number)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(threads) : "memory");
}
template <int threads> SGL_DEVICE void sgl_pass_on(int number)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(threads) : "memory");
}
/* Numbers that lie one after another, a multiple of 16 bytes. */
SGL_DEVICE void sgl_load_numbers(uint32 to, const float *from, int bytes, uint32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
/* What was written to shared memory, and is waited for, becomes visible to products and bulk copies. */
SGL_DEVICE void sgl_show() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int registers> SGL_DEVICE void sgl_give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> SGL_DEVICE void sgl_take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* Barriers of STAGES stages that say full, then as many that say empty. n: how many were filled before. */
template <int STAGES> struct sgl_ring {
    uint32 barriers;
    __device__ __forceinline__ static int stage(int n) { return n % STAGES; }
    __device__ __forceinline__ uint32 full(int n) const { return barriers + (uint32)(n % STAGES * 8); }
    __device__ __forceinline__ uint32 empty(int n) const { return barriers + (uint32)((STAGES + n % STAGES) * 8); }
    __device__ __forceinline__ void wait_full(int n) const { sgl_barrier_wait(full(n), n / STAGES & 1); }
    __device__ __forceinline__ void wait_empty(int n) const { sgl_barrier_wait(empty(n), (n / STAGES & 1) ^ 1); }
    __device__ __forceinline__ void init(int full_arrivals, int empty_arrivals) const
    {
        for (int i = 0; i < STAGES; i++) {
            sgl_barrier_init(full(i), full_arrivals);
            sgl_barrier_init(empty(i), empty_arrivals);
        }
    }
};

/* ---- products ---------------------------------------------------------------------------------------------------- */

SGL_DEVICE void sgl_start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SGL_DEVICE void sgl_commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Keeps what reads or writes sums on its side of this place. */
template <int N> SGL_DEVICE void sgl_hold(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
/* Until no more than the `later` last ones are under way. */
template <int later, int N> SGL_DEVICE void sgl_wait_products(float (&c)[N][4])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(later) : "memory");
    sgl_hold(c);
}

/* A factor from a byte on, in rows of 128 bytes whose units are exchanged, eight rows after eight. apart: bytes from
 * 64 columns to the next 64, where columns are those of the product. */
SGL_DEVICE uint64 sgl_factor(uint32 at, int apart)
{
    const uint64 eight_rows = 8 * 128 / 16, exchanged = 1;
    return (uint64)(at >> 4 & 0x3fffu) | (uint64)(apart / 16) << 16 | eight_rows << 32 | exchanged << 62;
}

#define SGL_SUM(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SGL_SUMS_64 SGL_SUM(0), SGL_SUM(1), SGL_SUM(2), SGL_SUM(3), SGL_SUM(4), SGL_SUM(5), SGL_SUM(6), SGL_SUM(7)
#define SGL_SUMS_128                                                                                                   \
    SGL_SUMS_64, SGL_SUM(8), SGL_SUM(9), SGL_SUM(10), SGL_SUM(11), SGL_SUM(12), SGL_SUM(13), SGL_SUM(14), SGL_SUM(15)
#define SGL_NEW(n) "=f"(c[n][0]), "=f"(c[n][1]), "=f"(c[n][2]), "=f"(c[n][3])
#define SGL_NEWS_64 SGL_NEW(0), SGL_NEW(1), SGL_NEW(2), SGL_NEW(3), SGL_NEW(4), SGL_NEW(5), SGL_NEW(6), SGL_NEW(7)
#define SGL_NEWS_128                                                                                                   \
    SGL_NEWS_64, SGL_NEW(8), SGL_NEW(9), SGL_NEW(10), SGL_NEW(11), SGL_NEW(12), SGL_NEW(13), SGL_NEW(14), SGL_NEW(15)
#define SGL_NAMES_64                                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define SGL_NAMES_128                                                                                                  \
    SGL_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "   \
                 "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

template <class T> struct sgl_group;
/* Of so many columns; a0 .. a4: numbers of the operands behind the sums. */
#define SGL_GROUP_PRODUCT(name, T, columns, sums, adds, turned, a0, a1)                                                \
    SGL_DEVICE void name(float(&c)[columns / 8][4], uint64 a, uint64 b)                                                \
    {                                                                                                                  \
        asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, " #adds ", 0;\n\t"                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #T "." #T " {" SGL_NAMES_##columns        \
                     "}, %" #a0 ", %" #a1 ", adds, 1, 1, " #turned ", " #turned ";\n\t}"                               \
                     : sums                                                                                            \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory");                                                                                      \
    }
#define SGL_GROUP_PRODUCTS(T, columns, a0, a1, a2, a3, a4)                                                             \
    /* c = a b^T and c += a b^T: both factors as rows of 16 columns */                                                 \
    SGL_GROUP_PRODUCT(multiply, T, columns, SGL_NEWS_##columns, 0, 0, a0, a1)                                          \
    SGL_GROUP_PRODUCT(multiply_more, T, columns, SGL_SUMS_##columns, 1, 0, a0, a1)                                     \
    /* The same of both factors turned: 16 rows each, columns are rows and columns of the product. */                  \
    SGL_GROUP_PRODUCT(multiply_turned, T, columns, SGL_NEWS_##columns, 0, 1, a0, a1)                                   \
    SGL_GROUP_PRODUCT(multiply_turned_more, T, columns, SGL_SUMS_##columns, 1, 1, a0, a1)                              \
    /* c += a b: a in registers, as of a warp's own product; b as 16 rows */                                           \
    SGL_DEVICE void weigh(float(&c)[columns / 8][4], const uint32(&a)[4], uint64 b)                                    \
    {                                                                                                                  \
        asm volatile("{\n\t.reg .pred add;\n\tsetp.eq.u32 add, 0, 0;\n\t"                                              \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #T "." #T " {" SGL_NAMES_##columns        \
                     "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4 ", add, 1, 1, 1;\n\t}"                       \
                     : SGL_SUMS_##columns                                                                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                              \
                     : "memory");                                                                                      \
    }
#define SGL_GROUP_OF(T)                                                                                                \
    template <> struct sgl_group<T> {                                                                                  \
        SGL_GROUP_PRODUCTS(T, 64, 32, 33, 34, 35, 36)                                                                  \
        SGL_GROUP_PRODUCTS(T, 128, 64, 65, 66, 67, 68)                                                                 \
    };
SGL_GROUP_OF(bf16)
SGL_GROUP_OF(f16)

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Rows of 64 or 128 narrow floats, 64 of each in a half of its own: 128 bytes a row, of which unit u of 16 bytes lies
 * at u ^ (row & 7). */
template <int columns, int rows> struct sgl_halves {
    static const int units = columns / 8, half_bytes = rows * 128, bytes = columns / 64 * half_bytes;
    uint32 at; /* in shared memory, a multiple of 1024 */

    __device__ __forceinline__ sgl_halves stage(int number) const { return { at + (uint32)(number * bytes) }; }
    /* Factor of 16 columns 16 x .., as rows from `row` on. */
    __device__ __forceinline__ uint64 side(int row, int x) const
    {
        return sgl_factor(at + (uint32)(x / 4 * half_bytes + row * 128 + x % 4 * 32), 16);
    }
    /* Factor of 16 rows from `row` on, and all columns, or those of one half. */
    __device__ __forceinline__ uint64 across(int row, int half = 0) const
    {
        return sgl_factor(at + (uint32)(half * half_bytes + row * 128), half_bytes);
    }
    /* By one thread: begins to load rows from `row` of a sequence on, of one head; the barrier hears of `bytes`. */
    __device__ __forceinline__ void load(const sgl_map &map, int head, int row, int sequence, uint32 barrier) const
    {
#pragma unroll
        for (int half = 0; half < columns / 64; half++)
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                         "%3, %4, %5}], [%6];" ::"r"(at + (uint32)(half * half_bytes)),
                         "l"(&map), "r"(64 * half), "r"(head), "r"(row), "r"(sequence), "r"(barrier)
                         : "memory");
    }
};

/* products = left right^T: 64 rows of one tile from `row` on, all ROWS of another. */
template <class T, int columns, int LEFT, int RIGHT>
SGL_DEVICE void sgl_start_sides(float (&products)[RIGHT / 8][4], const sgl_halves<columns, LEFT> &left, int row,
                                const sgl_halves<columns, RIGHT> &right)
{
    sgl_start_products();
    sgl_group<T>::multiply(products, left.side(row, 0), right.side(0, 0));
#pragma unroll
    for (int x = 1; x < columns / 16; x++) sgl_group<T>::multiply_more(products, left.side(row, x), right.side(0, x));
    sgl_commit_products();
}
/* sums += weights times the rows of a tile. */
template <class T, int columns, int ROWS>
SGL_DEVICE void sgl_start_weighing(float (&sums)[columns / 8][4], const uint32 (&weights)[ROWS / 16][4],
                                   const sgl_halves<columns, ROWS> &tile)
{
    sgl_hold(sums);
    sgl_start_products();
#pragma unroll
    for (int x = 0; x < ROWS / 16; x++) sgl_group<T>::weigh(sums, weights[x], tile.across(16 * x));
    sgl_commit_products();
}
/* Numbers of a product as the left factor of the next. */
template <class T, int N> SGL_DEVICE void sgl_pack(uint32 (&weights)[N / 2][4], const float (&from)[N][4])
{
#pragma unroll
    for (int x = 0; x < N / 2; x++)
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const float *pair = &from[2 * x + part / 2][part % 2 * 2];
            weights[x][part] = sgl_tensor<T>::pack(pair[0], pair[1]);
        }
}

/* A warp's 16 rows of a result, through 16 rows of shared memory of its own (128 bytes a row for each 64 columns). */
template <class T, int columns>
SGL_DEVICE void sgl_store_group_rows(char *room, const float (&sums)[columns / 8][4], float scale, float scale_below,
                                     uint16 *to, int64 stride, int count, int width)
{
    const int lane = (int)threadIdx.x % 32, units = columns / 8;
#pragma unroll
    for (int n = 0; n < units; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = lane / 4 + 8 * half;
            const float by = half ? scale_below : scale;
            *(uint32 *)(room + n / 8 * 2048 + row * 128 + ((n ^ row) & 7) * 16 + lane % 4 * 4) =
                sgl_tensor<T>::pack(sums[n][2 * half] * by, sums[n][2 * half + 1] * by);
        }
    __syncwarp();
#pragma unroll 4
    for (int n = lane; n < 16 * units; n += 32) {
        const int row = n / units, u = n % units;
        if (row < count && u * 8 < width)
            *(sgl_16_bytes *)(to + row * stride + u * 8) =
                *(const sgl_16_bytes *)(room + u / 8 * 2048 + row * 128 + ((u ^ row) & 7) * 16);
    }
    __syncwarp();
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

/* A block of rows of one head (or of one group of heads); block < 0: there are no more. */
struct alignas(16) sgl_task {
    int block, head, sequence, unused;
};

/* Of a tile that passes by, said by who loads it to who computes. */
struct alignas(8) sgl_passing {
    int first; /* row of the sequence */
    int says;
};
enum { SGL_PASSING_LAST = 1, SGL_PASSING_MIXED = 2, SGL_PASSING_NONE = 4 };

/* Tasks are dealt in order to whoever is ready, and no sooner: a counter in memory, 0 at first. Of so many heads
 * together the last blocks go first, then those before them. Two slots, which several warps read. */
struct sgl_dealer {
    sgl_ring<2> slots;
    const sgl_task *tasks; /* of the two slots, in shared memory */
    __device__ __forceinline__ sgl_task take(int n) const
    {
        slots.wait_full(n);
        const sgl_task task = tasks[slots.stage(n)];
        sgl_barrier_arrive_warp(slots.empty(n));
        return task;
    }
    /* By one thread, before it takes. Rows: heads of all sequences. */
    __device__ __forceinline__ void deal(int n, uint32 *counter, uint32 blocks, uint32 heads, uint32 rows,
                                         uint32 together) const
    {
        slots.wait_empty(n);
        const uint32 number = atomicAdd(counter, 1u), first = number / (blocks * together) * together;
        sgl_task task = { -1, 0, 0, 0 };
        if (first < rows) {
            const uint32 beside = rows - first < together ? rows - first : together, x = number - first * blocks;
            const uint32 row = first + x % beside;
            task = { (int)(blocks - 1 - x / beside), (int)(row % heads), (int)(row / heads), 0 };
        }
        *(sgl_task *)&tasks[slots.stage(n)] = task;
        sgl_barrier_arrive(slots.full(n));
    }
};

#endif
#endif

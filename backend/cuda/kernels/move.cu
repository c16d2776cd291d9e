/* move.cu -- units from place to place: many moves in one launch, one at a position that the device reads, and pad.
 *
 * A block takes SGLCUDA_FILL_UNITS units of one move, as it counts them run after run. Odd invariant: no two moves of a
 * launch write one byte, except for halves of it, whose stores are atomic. */
#include "index.cuh"
#include "move.h"

/* ---- moves ------------------------------------------------------------------------------------------------------- */

template <class U> SGL_DEVICE void move_block(const U *from, U *to, const sglcuda_move &m, uint32 block)
{
    const int per_thread = SGLCUDA_FILL_UNITS / SGLCUDA_FILL_THREADS;
    const int64 first = (int64)block * SGLCUDA_FILL_UNITS + threadIdx.x, total = m.run * m.runs;
    int64 within, step_within;
    int64 run = sgl_divide(first, m.run, &within);
    const int64 step = sgl_divide(SGLCUDA_FILL_THREADS, m.run, &step_within);
    U held[per_thread];
    int64 target[per_thread];
#pragma unroll
    for (int e = 0; e < per_thread; e++) {
        target[e] = run * m.to_pitch + within;
        if (first + e * SGLCUDA_FILL_THREADS < total) held[e] = from[run * m.from_pitch + within];
        run += step;
        within += step_within;
        if (within >= m.run) {
            within -= m.run;
            run++;
        }
    }
#pragma unroll
    for (int e = 0; e < per_thread; e++) {
        if (first + e * SGLCUDA_FILL_THREADS < total) to[target[e]] = held[e];
    }
}

/* from_first and to_first: the move's own, which may be odd. */
SGL_DEVICE void move_halves(const void *from, int64 from_first, void *to, int64 to_first, const sglcuda_move &m,
                            uint32 block)
{
    const int64 total = m.run * m.runs;
    for (int64 i = threadIdx.x; i < SGLCUDA_FILL_UNITS; i += SGLCUDA_FILL_THREADS) {
        int64 within;
        const int64 at = (int64)block * SGLCUDA_FILL_UNITS + i;
        if (at >= total) return;
        const int64 run = sgl_divide(at, m.run, &within), target = to_first + run * m.to_pitch + within;
        i4::store(to, target, i4::load(from, from_first + run * m.from_pitch + within));
        if (target == m.last) i4::store(to, target + 1, 0);
    }
}

/* The last move that begins at or before the block. */
SGL_DEVICE int move_of_block(const sglcuda_moves &v, uint32 block)
{
    int low = 0, high = (int)v.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (v.moves[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* By number: arena, state, io, const, host, away. */
SGL_DEVICE char *move_space(int space, char *a, char *b, char *c, char *d, char *e, char *f)
{
    return space == 0 ? a : space == 1 ? b : space == 2 ? c : space == 3 ? d : space == 4 ? e : f;
}

SGL_DEVICE int64 move_shift(const int64 *start, const sglcuda_move_at &v)
{
    int64 at = *start < v.last_start ? *start : v.last_start;
    return (at < 0 ? 0 : at) * v.step;
}

#define MOVE_KERNELS(BITS, U)                                                                                          \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_FILL_THREADS)                                                 \
        move_##BITS(char *a, char *b, char *c, char *d, char *e, char *f, const __grid_constant__ sglcuda_moves v)     \
    {                                                                                                                  \
        const sglcuda_move &m = v.moves[move_of_block(v, blockIdx.x)];                                                 \
        move_block((const U *)move_space(m.from_space, a, b, c, d, e, f) + m.from,                                     \
                   (U *)move_space(m.to_space, a, b, c, d, e, f) + m.to, m, blockIdx.x - m.first_block);               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_FILL_THREADS)                                                 \
        move_at_##BITS(const U *from, U *to, const int64 *start, const __grid_constant__ sglcuda_move_at v)            \
    {                                                                                                                  \
        const int64 shift = move_shift(start, v);                                                                      \
        move_block(from + v.move.from + (v.shifts_target ? 0 : shift), to + v.move.to + (v.shifts_target ? shift : 0), \
                   v.move, blockIdx.x);                                                                                \
    }
MOVE_KERNELS(128, sgl_16_bytes)
MOVE_KERNELS(64, uint64)
MOVE_KERNELS(32, uint32)
MOVE_KERNELS(16, uint16)
MOVE_KERNELS(8, uint8)

extern "C" __global__ void __launch_bounds__(SGLCUDA_FILL_THREADS)
    move_4(char *a, char *b, char *c, char *d, char *e, char *f, const __grid_constant__ sglcuda_moves v)
{
    const sglcuda_move &m = v.moves[move_of_block(v, blockIdx.x)];
    move_halves(move_space(m.from_space, a, b, c, d, e, f), m.from, move_space(m.to_space, a, b, c, d, e, f), m.to, m,
                blockIdx.x - m.first_block);
}

extern "C" __global__ void __launch_bounds__(SGLCUDA_FILL_THREADS)
    move_at_4(const char *from, char *to, const int64 *start, const __grid_constant__ sglcuda_move_at v)
{
    const int64 shift = move_shift(start, v);
    move_halves(from, v.move.from + (v.shifts_target ? 0 : shift), to, v.move.to + (v.shifts_target ? shift : 0),
                v.move, blockIdx.x);
}

/* ---- pad --------------------------------------------------------------------------------------------------------- */

struct pad_source {
    const sglcuda_pad &v;
    SGL_DEVICE_MEMBER int64 at(int64 i) const
    {
        int64 within = 0, position = i, p, rest = 0;
        if (v.inner > 1) position = sgl_divide(i, v.inner, &within);
        const int64 outer = sgl_divide(position, v.padded, &p);
        int64 from = p - v.before;
        if (from < 0) return -1;
        if (v.step > 1) from = sgl_divide(from, v.step, &rest);
        if (rest != 0 || from >= v.extent) return -1;
        return (outer * v.extent + from) * v.inner + within;
    }
};

SGL_FILL_KERNELS(pad, (const char *x, char *out, const __grid_constant__ sglcuda_pad v), x, out, v.total, v.value,
                 pad_source{ v })

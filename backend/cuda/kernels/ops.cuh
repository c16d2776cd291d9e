/* ops.cuh -- the elementwise ops of ops.def on the device, and what emitted kernels are made of: runs of eight elements.
 *
 * In: held elements (dtypes.cuh). Out: op_<name><T>(...), T the dtype of the result, of a comparison that of its arguments. Narrow
 * floats are computed in f32 and rounded after each op; integers wrap. Built without contraction: inside of one op fmaf says where
 * an fma stands. Meanings are those of ops.def, formulas those of the CPU's vmath.h. */
#ifndef SGLCUDA_OPS_CUH
#define SGLCUDA_OPS_CUH

#include "dtypes.cuh"

template <class A, class B> struct sgl_same {
    static constexpr bool value = false;
};
template <class A> struct sgl_same<A, A> {
    static constexpr bool value = true;
};
template <class T> struct sgl_kind {
    static constexpr bool is_float = T::held(0.5) != T::held(0);
    static constexpr bool is_bool = sgl_same<T, boolean>::value;
    static constexpr bool is_signed = T::held(-1) < T::held(0);
    /* Held in fewer digits than it is computed with. */
    static constexpr bool is_narrow = is_float && sizeof(typename T::stored) < 4;
};
#define HELD typename T::held
#define SGL_EACH _Pragma("unroll") for (int e = 0; e < 8; e++)

/* ---- arithmetic ---- */

/* One overload for floats and one for integers would need more of C++ than NVRTC has without headers; so: if constexpr. */
#define SGL_TWO(name, FLOAT, BOOL, INT)                                                                                \
    template <class T> SGL_DEVICE HELD op_##name(HELD x, HELD y)                                                       \
    {                                                                                                                  \
        if constexpr (sgl_kind<T>::is_float)                                                                           \
            return T::settle(FLOAT);                                                                                   \
        else if constexpr (sgl_kind<T>::is_bool)                                                                       \
            return (HELD)(BOOL);                                                                                       \
        else                                                                                                           \
            return T::settle((HELD)(INT));                                                                             \
    }

SGL_DEVICE int64 sgl_floor_quotient(int64 x, int64 y)
{
    if (y == 0) return 0;
    if (y == -1) return (int64)(0 - (uint64)x);
    const int64 quotient = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}
SGL_DEVICE int64 sgl_floor_remainder(int64 x, int64 y)
{
    if (y == 0 || y == -1) return 0;
    const int64 remainder = x % y;
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}
SGL_DEVICE int64 sgl_least(int64 x, int64 y) { return x < y ? x : y; }
/* How many of the eight from `at` on there are below `end`. */
SGL_DEVICE int sgl_there(int64 at, int64 end) { return at >= end ? 0 : end - at >= 8 ? 8 : (int)(end - at); }
SGL_DEVICE float sgl_remainder(float x, float y) { return fmaf(-y, floorf(x / y), x); }
SGL_DEVICE double sgl_remainder(double x, double y) { return fma(-y, floor(x / y), x); }

SGL_TWO(add, x + y, x || y, (uint64)x + (uint64)y)
SGL_TWO(sub, x - y, x != y, (uint64)x - (uint64)y)
SGL_TWO(mul, x *y, x &&y, (uint64)x *(uint64)y)
SGL_TWO(div, x / y, x &&y, sgl_floor_quotient((int64)x, (int64)y))
SGL_TWO(remainder, sgl_remainder(x, y), 0, sgl_floor_remainder((int64)x, (int64)y))
SGL_TWO(maximum, (x > y || x != x ? x : y), x || y, x > y ? x : y)
SGL_TWO(minimum, (x < y || x != x ? x : y), x &&y, x < y ? x : y)

template <class T> SGL_DEVICE HELD op_accumulate(HELD x, HELD y) { return op_add<T>(x, y); }
template <class T> SGL_DEVICE HELD op_stop_gradient(HELD x) { return x; }

#define SGL_COMPARE(name, EXPRESSION)                                                                                  \
    template <class T> SGL_DEVICE uint8 op_##name(HELD x, HELD y) { return EXPRESSION; }
SGL_COMPARE(equal, x == y)
SGL_COMPARE(not_equal, x != y)
SGL_COMPARE(less, x < y)
SGL_COMPARE(less_equal, x <= y)

template <class T> SGL_DEVICE HELD op_neg(HELD x)
{
    if constexpr (sgl_kind<T>::is_float)
        return -x;
    else
        return T::settle((HELD)(0 - (uint64)x));
}
template <class T> SGL_DEVICE HELD op_abs(HELD x)
{
    if constexpr (sgl_kind<T>::is_float)
        return fabs(x);
    else
        return T::settle((HELD)((int64)x < 0 ? 0 - (uint64)x : (uint64)x));
}
template <class T> SGL_DEVICE HELD op_sign(HELD x)
{
    if constexpr (sgl_kind<T>::is_float)
        return x > 0 ? (HELD)1 : x < 0 ? (HELD)-1 : x;
    else
        return (HELD)((x > 0) - (x < 0));
}

/* ---- bits and logic ---- */

#define SGL_BITS(name, EXPRESSION)                                                                                     \
    template <class T> SGL_DEVICE HELD op_##name(HELD x, HELD y) { return T::settle((HELD)(EXPRESSION)); }
SGL_BITS(bit_and, x &y)
SGL_BITS(bit_or, x | y)
SGL_BITS(bit_xor, x ^ y)
SGL_BITS(and, x &&y)
SGL_BITS(or, x || y)
template <class T> SGL_DEVICE HELD op_not(HELD x) { return !x; }
template <class T> SGL_DEVICE HELD op_bit_not(HELD x)
{
    if constexpr (sgl_kind<T>::is_bool)
        return !x;
    else
        return T::settle((HELD)~x);
}
template <class T> SGL_DEVICE HELD op_shift_left(HELD x, HELD by)
{
    const int64 places = (int64)by;
    return T::settle((HELD)(places < 0 || places >= 8 * (int)sizeof(HELD) ? 0 : (uint64)(int64)x << places));
}
template <class T> SGL_DEVICE HELD op_shift_right(HELD x, HELD by)
{
    const int64 places = (int64)by;
    return T::settle((HELD)(places < 0 || places >= 8 * (int)sizeof(HELD) ? -(int64)(x < 0) : (int64)x >> places));
}
template <class T> SGL_DEVICE HELD op_select(uint8 condition, HELD yes, HELD no) { return condition ? yes : no; }

/* ---- functions of floats ---- */

#define SGL_FUNCTION(name, F32, F64)                                                                                   \
    SGL_DEVICE float sgl_##name(float x) { return F32; }                                                               \
    SGL_DEVICE double sgl_##name(double x) { return F64; }                                                             \
    template <class T> SGL_DEVICE HELD op_##name(HELD x) { return T::settle(sgl_##name(x)); }

SGL_FUNCTION(exp, expf(x), exp(x))
SGL_FUNCTION(expm1, expm1f(x), expm1(x))
SGL_FUNCTION(log, logf(x), log(x))
SGL_FUNCTION(log1p, log1pf(x), log1p(x))
SGL_FUNCTION(sqrt, __fsqrt_rn(x), sqrt(x))
SGL_FUNCTION(rsqrt, 1.0f / __fsqrt_rn(x), 1.0 / sqrt(x))
SGL_FUNCTION(reciprocal, 1.0f / x, 1.0 / x)
SGL_FUNCTION(sin, sinf(x), sin(x))
SGL_FUNCTION(cos, cosf(x), cos(x))
SGL_FUNCTION(tanh, tanhf(x), tanh(x))
SGL_FUNCTION(erf, erff(x), erf(x))
SGL_FUNCTION(floor, floorf(x), floor(x))
SGL_FUNCTION(round, rintf(x), rint(x))

/* 1 / y of a y within 1 .. 2: the fast one is within 1 ulp, and nothing is below normal. */
SGL_DEVICE float sgl_quotient(float x, float y)
{
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(y));
    return x * y;
}
SGL_DEVICE double sgl_quotient(double x, double y) { return x / y; }
/* 2^x of twice an x that is not above 0: no overflow, no cancellation, within 2^-20 of a number that is not above 1, which is as good
 * as any for what is rounded to 11 digits or fewer. The half's power is normal wherever the result is not 0. */
SGL_DEVICE float sgl_square_exp2(float half)
{
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(half));
    return half * half;
}
template <class T> SGL_DEVICE HELD sgl_decay(HELD x)
{
    if constexpr (sgl_kind<T>::is_narrow)
        return sgl_square_exp2(fabsf(x) * -0.72134752044448170368f);
    else
        return sgl_exp(-fabs(x));
}
/* sigmoid(u) and x * sigmoid(u), where u has the sign of x and z is the decay of u; NaN stays. */
template <class R> SGL_DEVICE R sgl_logistic(R x, R z) { return sgl_quotient(x < 0 ? z : (R)1, (R)1 + z); }
template <class R> SGL_DEVICE R sgl_gate(R x, R z) { return sgl_quotient(x < 0 ? z * x : x, (R)1 + z); }
SGL_DEVICE float sgl_fma(float x, float y, float z) { return fmaf(x, y, z); }
SGL_DEVICE double sgl_fma(double x, double y, double z) { return fma(x, y, z); }

template <class T> SGL_DEVICE HELD op_sigmoid(HELD x) { return T::settle(sgl_logistic(x, sgl_decay<T>(x))); }
template <class T> SGL_DEVICE HELD op_silu(HELD x) { return T::settle(sgl_gate(x, sgl_decay<T>(x))); }
template <class T> SGL_DEVICE HELD op_silu_grad(HELD x, HELD dy)
{
    const HELD s = sgl_logistic(x, sgl_decay<T>(x));
    return T::settle(s * sgl_fma(x, (HELD)1 - s, (HELD)1) * dy);
}
/* gelu(x) = x sigmoid(u), u = sqrt(8/pi) (x + 0.044715 x^3); exact: x Phi(x). This is the decay of u. */
template <class T> SGL_DEVICE HELD sgl_gelu_decay(HELD x)
{
    if constexpr (sgl_kind<T>::is_narrow)
        return sgl_square_exp2(fabsf(x) * fmaf(x * x, -0.05147161979001221f, -1.1511040990721626f));
    else
        return sgl_exp(-fabs(x * sgl_fma(x * x, (HELD)0.071354816272600898, (HELD)1.5957691216057308)));
}
template <class T, bool exact> SGL_DEVICE HELD op_gelu(HELD x)
{
    if constexpr (exact)
        return T::settle((HELD)0.5 * x * ((HELD)1 + sgl_erf(x * (HELD)0.70710678118654752440)));
    else
        return T::settle(sgl_gate(x, sgl_gelu_decay<T>(x)));
}
template <class T, bool exact> SGL_DEVICE HELD op_gelu_grad(HELD x, HELD dy)
{
    if constexpr (exact) {
        const HELD density = (HELD)0.39894228040143267794 * sgl_exp((HELD)-0.5 * x * x);
        return T::settle(sgl_fma(x, density, (HELD)0.5 * ((HELD)1 + sgl_erf(x * (HELD)0.70710678118654752440))) * dy);
    } else {
        const HELD s = sgl_logistic(x, sgl_gelu_decay<T>(x));
        const HELD slope = sgl_fma(x * x, (HELD)0.21406444881780269, (HELD)1.5957691216057308);
        return T::settle(sgl_fma(x * s * ((HELD)1 - s), slope, s) * dy);
    }
}
SGL_DEVICE float sgl_pow(float x, float y) { return powf(x, y); }
SGL_DEVICE double sgl_pow(double x, double y) { return pow(x, y); }
template <class T> SGL_DEVICE HELD op_pow(HELD x, HELD y) { return T::settle(sgl_pow(x, y)); }
template <class T> SGL_DEVICE uint8 op_is_finite(HELD x) { return x - x == 0; }

/* ---- casts ---- */

template <class T> struct sgl_range {
    static constexpr double span = sgl_same<T, i4>::value ? 16.0 : (double)(1ull << (8 * sizeof(HELD) - 1)) * 2.0;
    static constexpr double least = sgl_kind<T>::is_signed ? -span / 2 : 0.0;
    static constexpr double above = sgl_kind<T>::is_signed ? span / 2 : span; /* the first that is too large */
};

/* A float that no integer can hold becomes the nearest one, NaN becomes 0. */
template <class T> SGL_DEVICE HELD sgl_to_int(double x)
{
    typedef sgl_range<T> range;
    if (x != x) return 0;
    if (x <= range::least) return (HELD)(int64)range::least;
    if (x < range::above) return (HELD)(int64)x;
    return sizeof(HELD) == 8 ? (HELD)0x7fffffffffffffffll : (HELD)(int64)(range::above - 1);
}
/* To 53 digits so that a later rounding to fewer goes as from x itself: the last one says whether any was lost. */
SGL_DEVICE int64 sgl_sticky(int64 x)
{
    if (x > -(1ll << 53) && x < 1ll << 53) return x;
    const int64 lost = x & 0x7ff;
    return (x - lost) | (lost != 0 ? 0x800 : 0);
}

template <class F, class T> SGL_DEVICE HELD op_cast(typename F::held x)
{
    typedef typename F::held H;
    if constexpr (sgl_kind<T>::is_bool)
        return x != 0;
    else if constexpr (!sgl_kind<T>::is_float && sgl_kind<F>::is_float)
        return sgl_to_int<T>((double)x);
    else if constexpr (!sgl_kind<T>::is_float)
        return T::settle((HELD)x);
    else if constexpr (sgl_kind<T>::is_narrow && sgl_same<H, double>::value)
        return T::settle(sgl_odd_f32(x));
    else if constexpr (sgl_kind<T>::is_narrow && !sgl_kind<F>::is_float)
        return T::settle(sgl_odd_f32((double)sgl_sticky((int64)x)));
    else
        return T::settle((HELD)x);
}

/* ---- random numbers (Salmon et al., SC 2011) ---- */

struct sgl_words {
    uint32 w[4];
};
SGL_DEVICE sgl_words sgl_philox(uint64 key, uint64 step, uint64 counter)
{
    uint32 c0 = (uint32)counter, c1 = (uint32)(counter >> 32), c2 = (uint32)step, c3 = (uint32)(step >> 32);
    uint32 k0 = (uint32)key, k1 = (uint32)(key >> 32);
    _Pragma("unroll") for (int round = 0; round < 10; round++)
    {
        const uint32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const uint32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return { { c0, c1, c2, c3 } };
}
/* Element number(e) of a stream; neighbours share a counter. */
template <class T, class N> SGL_DEVICE void sgl_uniform(uint64 key, uint64 step, HELD (&x)[8], N number)
{
    uint64 counter = (uint64)number(0) / 4;
    sgl_words words = sgl_philox(key, step, counter);
    SGL_EACH
    {
        const uint64 element = (uint64)number(e);
        if (element / 4 != counter) words = sgl_philox(key, step, counter = element / 4);
        const uint32 low = element & 1 ? words.w[1] : words.w[0], high = element & 1 ? words.w[3] : words.w[2];
        x[e] = T::settle((HELD)(int)((element & 2 ? high : low) >> 8) * (HELD)0x1p-24);
    }
}
/* A function of its own: eight times within a kernel its logarithm and cosine take a second to compile. */
template <class T> static __device__ __noinline__ HELD sgl_normal_of(uint64 key, uint64 step, uint64 element)
{
    const sgl_words words = sgl_philox(key, step, element / 2);
    const uint32 a = element & 1 ? words.w[2] : words.w[0], b = element & 1 ? words.w[3] : words.w[1];
    const double length = sqrt(-2.0 * log(((double)(a >> 8) + 1.0) * 0x1p-24));
    return T::settle((HELD)(length * cos(6.283185307179586476925 * ((double)(b >> 8) * 0x1p-24))));
}
template <class T, class N> SGL_DEVICE void sgl_normal(uint64 key, uint64 step, HELD (&x)[8], N number)
{
    SGL_EACH x[e] = sgl_normal_of<T>(key, step, (uint64)number(e));
}

/* ---- eight neighbours of memory; m: how many of them there are, from the first ---- */

template <class T, bool aligned> SGL_DEVICE void sgl_take(const void *from, int64 at, int m, HELD (&x)[8])
{
    if (aligned && m >= 8)
        T::load8(from, at, x);
    else
        SGL_EACH x[e] = e < m ? T::load(from, at + e) : (HELD)0;
}
template <class T, bool aligned> SGL_DEVICE void sgl_put(void *to, int64 at, int m, const HELD (&x)[8])
{
    if (aligned && m >= 8)
        T::store8(to, at, x);
    else
        SGL_EACH if (e < m) T::store(to, at + e, x[e]);
}
/* The same as they lie in memory: under way while something else is computed. */
template <class T> struct sgl_run {
    alignas(16) typename T::stored at[8];
};
template <class T> SGL_DEVICE void sgl_fetch(const void *from, int64 at, sgl_run<T> &run)
{
    sgl_read8((const typename T::stored *)from + at, run.at);
}
/* address(e) of element e. */
template <class T, class A> SGL_DEVICE void sgl_take_each(const void *from, int m, HELD (&x)[8], A address)
{
    SGL_EACH x[e] = e < m ? T::load(from, address(e)) : (HELD)0;
}
template <class T, class A> SGL_DEVICE void sgl_put_each(void *to, int m, const HELD (&x)[8], A address)
{
    SGL_EACH if (e < m) T::store(to, address(e), x[e]);
}
/* i4 arrays end in a half byte of zero. */
template <class T> SGL_DEVICE void sgl_end(void *to, int64 count)
{
    if constexpr (sgl_same<T, i4>::value)
        if (count % 2 != 0) i4::store(to, count, 0);
}

/* Which piece of a list, in rising order of their first places, place `at` stands in: one of low .. high. */
SGL_DEVICE int sgl_piece(const int64 *firsts, int low, int high, int64 at)
{
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (firsts[middle] <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Of pieces one after another, at places[which[piece]]; `piece` is that of the first of the eight. */
template <class T>
SGL_DEVICE void sgl_take_pieces(void *const *places, const uint16 *which, const int64 *firsts, int count, int piece,
                                int64 at, int m, HELD (&x)[8])
{
    const int64 within = at - firsts[piece];
    const bool whole = m >= 8 && (piece + 1 == count || at + 8 <= firsts[piece + 1]);
    if (whole && within % 8 == 0 && ((uint64)places[which[piece]] & 15u) == 0) {
        T::load8(places[which[piece]], within, x);
        return;
    }
    SGL_EACH
    {
        while (e < m && piece + 1 < count && at + e >= firsts[piece + 1]) piece++;
        x[e] = e < m ? T::load(places[which[piece]], at + e - firsts[piece]) : (HELD)0;
    }
}
/* The pieces' numbers, whose bits are those of doubles. */
template <class T>
SGL_DEVICE void sgl_take_segments(const int64 *numbers, const int64 *firsts, int count, int piece, int64 at, int m,
                                  HELD (&x)[8])
{
    const HELD first = op_cast<f64, T>(__longlong_as_double(numbers[piece]));
    SGL_EACH x[e] = first;
    if (piece + 1 == count || at + m <= firsts[piece + 1]) return;
    SGL_EACH
    {
        while (piece + 1 < count && at + e >= firsts[piece + 1]) piece++;
        x[e] = op_cast<f64, T>(__longlong_as_double(numbers[piece]));
    }
}

/* ---- sums, maxima, minima ---- */

/* What a reduction of T is added up in, chunks and partial results apart, which are `wide`. */
template <class T, bool is_float = sgl_kind<T>::is_float> struct sgl_sum_type {
    typedef typename T::held near; /* f32 of narrow floats */
    typedef double wide;
};
template <class T> struct sgl_sum_type<T, false> {
    typedef int64 near;
    typedef int64 wide;
};
enum { SGL_SUM, SGL_MAX, SGL_MIN };
template <int fold, class A> SGL_DEVICE A sgl_fold(A x, A y)
{
    if constexpr (fold == SGL_SUM && sgl_same<A, int64>::value)
        return (int64)((uint64)x + (uint64)y);
    else if constexpr (fold == SGL_SUM)
        return x + y;
    else if constexpr (fold == SGL_MAX)
        return y > x || y != y ? y : x;
    else
        return y < x || y != y ? y : x;
}
/* What an empty range gives. */
template <int fold, class T, class A> SGL_DEVICE A sgl_neutral()
{
    if constexpr (fold == SGL_SUM)
        return 0;
    else if constexpr (sgl_kind<T>::is_float)
        return (A)(fold == SGL_MAX ? -__int_as_float(0x7f800000) : __int_as_float(0x7f800000));
    else if constexpr (sgl_kind<T>::is_bool)
        return fold == SGL_MIN;
    else if constexpr (sizeof(HELD) == 8)
        return fold == SGL_MAX ? (A)0x8000000000000000ull : (A)0x7fffffffffffffffull;
    else
        return (A)(fold == SGL_MAX ? sgl_range<T>::least : sgl_range<T>::above - 1);
}
/* A result of T; a zero that wins has no sign. */
template <class T, class A> SGL_DEVICE HELD sgl_result(A x)
{
    if constexpr (sgl_kind<T>::is_float)
        return T::settle((HELD)x + (HELD)0);
    else
        return T::settle((HELD)x);
}

/* A run into that of partial results, of which the second half lies `apart` elements behind the first, so that threads beside one
 * another meet different banks of shared memory. */
template <class A> struct alignas(16) sgl_four {
    A at[4];
};
template <int fold, class A> SGL_DEVICE void sgl_fold_run(A *own, int apart, const A (&x)[8])
{
    _Pragma("unroll") for (int half = 0; half < 2; half++)
    {
        sgl_four<A> four = *(const sgl_four<A> *)(own + half * apart);
        _Pragma("unroll") for (int e = 0; e < 4; e++) four.at[e] = sgl_fold<fold>(four.at[e], x[half * 4 + e]);
        *(sgl_four<A> *)(own + half * apart) = four;
    }
}

SGL_DEVICE float sgl_turned(float x, int by) { return __shfl_xor_sync(0xffffffffu, x, by); }
SGL_DEVICE double sgl_turned(double x, int by) { return __shfl_xor_sync(0xffffffffu, x, by); }
SGL_DEVICE int64 sgl_turned(int64 x, int by) { return __shfl_xor_sync(0xffffffffu, x, by); }
/* Of `lanes` neighbours, at most a warp: by halves. Every one of them has the result. */
template <int fold, int lanes, class A> SGL_DEVICE A sgl_fold_warp(A x)
{
    _Pragma("unroll") for (int by = lanes / 2; by > 0; by /= 2) x = sgl_fold<fold>(x, sgl_turned(x, by));
    return x;
}
/* Of `lanes` threads: warps by halves, then these one after another. slots: one per warp of the block, in shared memory. */
template <int fold, int lanes, class A> SGL_DEVICE A sgl_fold_lanes(A x, void *slots)
{
    if constexpr (lanes <= 32) return sgl_fold_warp<fold, lanes>(x);
    x = sgl_fold_warp<fold, 32>(x);
    A *own = (A *)slots + threadIdx.x / lanes * (lanes / 32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) own[threadIdx.x % lanes / 32] = x;
    __syncthreads();
    x = own[0];
    for (int warp = 1; warp < lanes / 32; warp++) x = sgl_fold<fold>(x, own[warp]);
    return x;
}
/* One result of the partial ones of `count` chunks, by a block of 256 threads. */
template <int fold, class T>
SGL_DEVICE typename sgl_sum_type<T>::wide sgl_fold_chunks(const void *partial, int64 count, void *slots)
{
    typedef typename sgl_sum_type<T>::wide wide;
    wide x = sgl_neutral<fold, T, wide>();
    for (int64 chunk = threadIdx.x; chunk < count; chunk += 256) x = sgl_fold<fold>(x, ((const wide *)partial)[chunk]);
    return sgl_fold_lanes<fold, 256>(x, slots);
}

#endif

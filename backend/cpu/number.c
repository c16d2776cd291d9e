/* number.c -- single numbers of any dtype, and runs of them: copies, counters, stored elements to held ones and back.
 *
 * In: a value and a dtype. Out: elements. Iota counts in whole numbers and converts each, so large counts stay exact. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/narrow.h"

void sglcpu_spread(void *out, const void *element, int64_t size, int64_t count)
{
    switch (size) {
#define CASE(T)                                                                                                        \
    case sizeof(T): {                                                                                                  \
        T *to = out;                                                                                                   \
        const T value = *(const T *)element;                                                                           \
        for (int64_t i = 0; i < count; i++) to[i] = value;                                                             \
        return;                                                                                                        \
    }
        CASE(uint8_t)
        CASE(uint16_t)
        CASE(uint32_t)
        CASE(uint64_t)
#undef CASE
    default: return;
    }
}

void sglcpu_put_number(void *out, sgl_dtype dtype, double value)
{
    const sglcpu_isa *isa = sglcpu_isa_at(0); /* all of them give the same */
    sglcpu_map_fn settle = sglcpu_settle(isa, dtype);
    sglcpu_cast(SGL_F64, dtype)(out, &value, NULL, NULL, 1);
    if (settle != NULL) settle(out, out, NULL, NULL, 1);
}

void sglcpu_put_stored(void *out, sgl_dtype dtype, double value)
{
    _Alignas(8) char held[8];
    sglcpu_put_number(held, dtype, value);
    sglcpu_store_run(sglcpu_isa_at(0), dtype, out, 0, held, 1, 1);
}

/* ---- stored and held ----------------------------------------------------------------------------------------- */

static int nibble_at(const void *stored, int64_t i)
{
    int byte = ((const uint8_t *)stored)[i / 2], nibble = i % 2 ? byte >> 4 : byte & 15;
    return (nibble ^ 8) - 8;
}

/* The half byte beyond the last element is 0. */
static void put_nibble(void *stored, int64_t i, int value, int64_t whole)
{
    uint8_t *byte = (uint8_t *)stored + i / 2;
    if (i % 2)
        *byte = (uint8_t)((*byte & 15) | (value & 15) << 4);
    else
        *byte = (uint8_t)((i + 1 == whole ? 0 : *byte & 0xf0) | (value & 15));
}

void sglcpu_move_nibbles(void *to, int64_t to_first, const void *from, int64_t from_first, int64_t count,
                         int64_t to_whole)
{
    for (int64_t i = 0; i < count; i++) put_nibble(to, to_first + i, nibble_at(from, from_first + i), to_whole);
}

void sglcpu_load_run(const sglcpu_isa *isa, sgl_dtype dtype, void *held, const void *stored, int64_t first,
                     int64_t count)
{
    const char *from = (const char *)stored + first * sglcpu_size(dtype);
    if (sglcpu_is_narrow(dtype)) {
        isa->narrow[dtype].widen(held, from, NULL, NULL, count);
    } else if (dtype == SGL_I4) {
        int8_t *out = held;
        for (int64_t i = 0; i < count; i++) out[i] = (int8_t)nibble_at(stored, first + i);
    } else {
        memcpy(held, from, (size_t)(count * sglcpu_size(dtype)));
    }
}

void sglcpu_store_run(const sglcpu_isa *isa, sgl_dtype dtype, void *stored, int64_t first, const void *held,
                      int64_t count, int64_t whole)
{
    char *to = (char *)stored + first * sglcpu_size(dtype);
    if (sglcpu_is_narrow(dtype)) {
        isa->narrow[dtype].narrow(to, held, NULL, NULL, count);
    } else if (dtype == SGL_I4) {
        const int8_t *in = held;
        for (int64_t i = 0; i < count; i++) put_nibble(stored, first + i, in[i], whole);
    } else {
        memcpy(to, held, (size_t)(count * sglcpu_size(dtype)));
    }
}

void sglcpu_put_counter(void *out, sgl_dtype dtype, int64_t first, int64_t stride, int64_t count)
{
    if (sglcpu_is_narrow(dtype)) {
        float *to = out;
        for (int64_t i = 0; i < count; i++) to[i] = sglcpu_odd_f32((double)(first + i * stride));
        return;
    }
    switch (sglcpu_held(dtype)) {
#define CASE(DTYPE, T)                                                                                                 \
    case DTYPE: {                                                                                                      \
        T *to = out;                                                                                                   \
        for (int64_t i = 0; i < count; i++) to[i] = (T)(first + i * stride);                                           \
        return;                                                                                                        \
    }
        CASE(SGL_F64, double)
        CASE(SGL_F32, float)
        CASE(SGL_I64, int64_t)
        CASE(SGL_I32, int32_t)
        CASE(SGL_I16, int16_t)
        CASE(SGL_I8, int8_t)
        CASE(SGL_U8, uint8_t)
        CASE(SGL_U16, uint16_t)
        CASE(SGL_U32, uint32_t)
#undef CASE
    default: return;
    }
}

int64_t sglcpu_read_index(const char *indices, sgl_dtype dtype, int64_t i)
{
    switch (dtype) {
    case SGL_I4: return nibble_at(indices, i);
    case SGL_I64: return ((const int64_t *)(const void *)indices)[i];
    case SGL_I32: return ((const int32_t *)(const void *)indices)[i];
    case SGL_I16: return ((const int16_t *)(const void *)indices)[i];
    case SGL_I8: return ((const int8_t *)indices)[i];
    case SGL_U32: return ((const uint32_t *)(const void *)indices)[i];
    case SGL_U16: return ((const uint16_t *)(const void *)indices)[i];
    default: return ((const uint8_t *)indices)[i];
    }
}

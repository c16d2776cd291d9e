/* number.c -- single numbers of any dtype, and runs of them: copies, counters.
 *
 * In: a value and a dtype. Out: elements. Iota counts in whole numbers and converts each, so large counts stay exact. */
#include "backend/cpu/cpu.h"

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
    sglcpu_cast(SGL_F64, dtype)(out, &value, NULL, NULL, 1);
}

void sglcpu_put_counter(void *out, sgl_dtype dtype, int64_t first, int64_t stride, int64_t count)
{
    switch (dtype) {
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
    case SGL_I64: return ((const int64_t *)(const void *)indices)[i];
    case SGL_I32: return ((const int32_t *)(const void *)indices)[i];
    case SGL_I16: return ((const int16_t *)(const void *)indices)[i];
    case SGL_I8: return ((const int8_t *)indices)[i];
    case SGL_U32: return ((const uint32_t *)(const void *)indices)[i];
    case SGL_U16: return ((const uint16_t *)(const void *)indices)[i];
    default: return ((const uint8_t *)indices)[i];
    }
}

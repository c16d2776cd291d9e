/* dtype.c -- facts about dtypes that every room needs: bits, kind, bytes of a count.
 *
 * In: the dtype table of sgl.h. Out: numbers. Elements narrower than a byte are packed, a last byte may be half used.
 * Whoever reads a dtype from a file checks its range first; here it is asserted. */
#include <assert.h>

#include "core/core.h"

int sglcore_dtype_bits(sgl_dtype dtype)
{
    static const int bits_of[SGL_DTYPE_COUNT] = {
#define DTYPE_BITS(name, text, bits) [SGL_##name] = bits,
        SGL_DTYPE_MAP(DTYPE_BITS)
#undef DTYPE_BITS
    };
    assert((unsigned)dtype < SGL_DTYPE_COUNT);
    return bits_of[dtype];
}

bool sglcore_dtype_is_float(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_F64:
    case SGL_F32:
    case SGL_BF16:
    case SGL_F16:
    case SGL_F8E4M3:
    case SGL_F8E5M2: return true;
    default: return false;
    }
}

bool sglcore_dtype_is_signed(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_I64:
    case SGL_I32:
    case SGL_I16:
    case SGL_I8:
    case SGL_I4: return true;
    default: return sglcore_dtype_is_float(dtype);
    }
}

int64_t sglcore_dtype_bytes(sgl_dtype dtype, int64_t count)
{
    int bits = sglcore_dtype_bits(dtype);
    if (count < 0) return -1;
    if (bits < 8) {
        int64_t per_byte = 8 / bits;
        return count / per_byte + (count % per_byte != 0);
    }
    return count > INT64_MAX / (bits / 8) ? -1 : count * (bits / 8);
}

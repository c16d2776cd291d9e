/* hash.c -- content hashes: XXH3-128 of libxxhash.
 *
 * In: bytes, numbers, texts. Out: 128-bit hashes that are the same on every machine: numbers enter as little-endian
 * bytes, texts with their length before them. Not for what an adversary may choose: a name from outside is compared. */
#define XXH_STATIC_LINKING_ONLY /* for the size of XXH3_state_t: the hasher lives on the caller's stack */
#include <string.h>
#include <xxhash.h>

#include "core/core.h"

_Static_assert(sizeof(XXH3_state_t) <= sizeof(sglcore_hasher), "the hasher holds the state of libxxhash");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(sglcore_hasher), "and aligns it");

static sglcore_hash from_xxh(XXH128_hash_t hash) { return (sglcore_hash){ .low = hash.low64, .high = hash.high64 }; }

sglcore_hash sglcore_hash_bytes(const void *data, size_t bytes) { return from_xxh(XXH3_128bits(data, bytes)); }

void sglcore_hash_text(sglcore_hash hash, char text[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        text[i] = digits[hash.high >> (60 - 4 * i) & 15];
        text[16 + i] = digits[hash.low >> (60 - 4 * i) & 15];
    }
    text[32] = '\0';
}

static XXH3_state_t *state_of(sglcore_hasher *hasher) { return (XXH3_state_t *)(void *)hasher->state; }

/* Reset and update report only a NULL state, which a hasher's never is. */
void sglcore_hasher_init(sglcore_hasher *hasher)
{
    memset(hasher, 0, sizeof *hasher); /* the library reads fields of the old state that reset does not set */
    (void)XXH3_128bits_reset(state_of(hasher));
}

void sglcore_hasher_add(sglcore_hasher *hasher, const void *data, size_t bytes)
{
    if (bytes > 0) (void)XXH3_128bits_update(state_of(hasher), data, bytes);
}

void sglcore_hasher_u64(sglcore_hasher *hasher, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> (8 * i));
    sglcore_hasher_add(hasher, bytes, sizeof bytes);
}

void sglcore_hasher_string(sglcore_hasher *hasher, const char *text)
{
    size_t length = strlen(text);
    sglcore_hasher_u64(hasher, length);
    sglcore_hasher_add(hasher, text, length);
}

sglcore_hash sglcore_hasher_end(const sglcore_hasher *hasher)
{
    return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)(const void *)hasher->state));
}

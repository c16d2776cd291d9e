/* map.c -- a hash map from 128-bit keys to 64-bit values.
 *
 * Open addressing with linear probing, a power of two of entries, at most three quarters full. Keys are either good
 * hashes or small numbers in .low, so their bits are mixed before use. Nothing is ever removed, and there is no walk:
 * no order of the map can leak into what the library prints or compiles. */
#include "core/core.h"

struct sglcore_map_entry {
    sglcore_hash key;
    uint64_t value;
    bool used;
};

/* The entry of the key, or the free entry where it belongs. */
static struct sglcore_map_entry *find(const sglcore_map *map, sglcore_hash key)
{
    uint64_t mask = (uint64_t)map->capacity - 1;
    uint64_t mixed = (key.low ^ (key.high << 32 | key.high >> 32)) * 0x9E3779B97F4A7C15u;
    for (uint64_t at = (mixed ^ mixed >> 32) & mask;; at = (at + 1) & mask) {
        struct sglcore_map_entry *entry = &map->entries[at];
        if (!entry->used || sglcore_hash_equal(entry->key, key)) return entry;
    }
}

static sgl_status grow(sglcore_env *env, sglcore_map *map)
{
    sglcore_map larger = { .capacity = map->capacity == 0 ? 16 : 2 * map->capacity, .count = map->count };
    larger.entries = sglcore_alloc_zero(env, (size_t)larger.capacity * sizeof *larger.entries);
    if (larger.entries == NULL) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].used) *find(&larger, map->entries[i].key) = map->entries[i];
    }
    sglcore_map_free(env, map);
    *map = larger;
    return SGL_OK;
}

sgl_status sglcore_map_put(sglcore_env *env, sglcore_map *map, sglcore_hash key, uint64_t value)
{
    if (4 * (map->count + 1) > 3 * map->capacity) SGLCORE_TRY(grow(env, map));
    struct sglcore_map_entry *entry = find(map, key);
    if (!entry->used) map->count++;
    *entry = (struct sglcore_map_entry){ key, value, true };
    return SGL_OK;
}

bool sglcore_map_get(const sglcore_map *map, sglcore_hash key, uint64_t *value)
{
    if (map->capacity == 0) return false;
    const struct sglcore_map_entry *entry = find(map, key);
    if (!entry->used) return false;
    *value = entry->value;
    return true;
}

void sglcore_map_free(sglcore_env *env, sglcore_map *map)
{
    sglcore_free(env, map->entries, (size_t)map->capacity * sizeof *map->entries);
    *map = (sglcore_map){ 0 };
}

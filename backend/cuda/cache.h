/* cache.h -- cubins that were compiled before, and what was chosen by measurement, in the user's cache folder, by the hash of all
 * that they were made of.
 *
 * Odd invariant: nothing here fails: what cannot be read is compiled anew, and what cannot be kept is not kept. */
#ifndef SGLCUDA_CACHE_H
#define SGLCUDA_CACHE_H

#include "core/core.h"

/* *data (NULL: it is not there, or is damaged) is freed with sglcore_free(.., *bytes). */
void sglcuda_cache_read(sglcore_env *env, sglcore_hash key, char **data, int64_t *bytes);
void sglcuda_cache_write(sglcore_env *env, sglcore_hash key, const char *data, int64_t bytes);

#endif

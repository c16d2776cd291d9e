/* random_seeds.h -- the check of one seed, or of a program that failed once, for the suite (tests/ops/test_random.c)
 * and for long runs (tests/ops/random.c). */
#ifndef RANDOM_SEEDS_H
#define RANDOM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

/* False when the seed's program fails or leaks: then stdout has the seed, what differed and a shrunk program. */
bool random_seed(uint64_t seed);
/* The same of a program in a file: what random_seed prints when one fails, kept in tests/ops/found. */
bool random_text(const char *path);

#endif

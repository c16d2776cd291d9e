/* random_graph.h -- seeded graphs of every kind of op, small enough to interpret, for tests that compare a graph with what
 * was made of it. In: an env, a seed. Out: a graph in float64 of feeds, parameters and states, with fetches, updates and,
 * for every other seed, gradients. The same seed gives the same graph everywhere. */
#ifndef RANDOM_GRAPH_H
#define RANDOM_GRAPH_H

#include "ir/ir.h"

/* NULL when an allocation fails (the message stands in the env). */
sglir_graph *random_graph(sglcore_env *env, uint64_t seed);

#endif

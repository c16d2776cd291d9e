/* interp_world.h -- the interpreter as a world of ranks: each runs a graph of its own in a thread, and they meet in exchanges.
 *
 * Comes in: the graphs of all ranks, a plan's mesh, whole inputs. Goes out: the results of each rank. A rank is handed its part of
 * an input that its graph has in parts (attribute layout). Ranks that meet in different exchanges, or of which one has failed,
 * all fail: nothing waits for ever. */
#ifndef INTERP_WORLD_H
#define INTERP_WORLD_H

#include "interp.h"
#include "plan/mesh.h"

enum { INTERP_MOST_RANKS = 16 };

/* `whole` holds inputs, whole, and how to round; `ranks` (zeroed, one per rank of the mesh, to be freed) get the results. False:
 * the message stands in ranks[0].error. */
bool interp_world_run(const interp *whole, const sglplan *plan, const sglir_graph *const *graphs, interp *ranks);
/* The results of the whole as a rank has them: of a state that its graph has in parts, its part; none
 * of a state that its graph has not. Freed as a run. */
bool interp_expected(const interp *whole, const sglplan *plan, int64_t rank, const sglir_graph *graph,
                     interp *expected);
/* The part of a whole tensor that a rank has of it where layout[axis] tells which dimension is split over the axis, -1: none; NULL:
 * all of it. */
interp_tensor interp_part_of(const interp_tensor *whole, const sglplan *plan, int64_t rank, const int64_t *layout);

#endif

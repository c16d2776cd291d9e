/* mesh.h -- ranks as a named grid, and how an extent is cut among some of them: arithmetic alone.
 *
 * In: a plan's extents by axis. Out: coordinates, groups, offsets and sizes. MICRO is an axis of time, not of ranks,
 * and takes no part. Ranks count with PP slowest, then DP, FSDP, EP, CP, and TP fastest: the axes that exchange most
 * often have neighbours in them, which are of one machine more likely than not. A set of axes is a mask, a bit each. */
#ifndef SGLPLAN_MESH_H
#define SGLPLAN_MESH_H

#include "plan/plan.h"

typedef uint32_t sglplan_axes;
#define SGLPLAN_AXIS(axis) ((sglplan_axes)1 << (axis))
/* A parameter that is split over one of these is only kept in parts: it is gathered to be worked with. */
#define SGLPLAN_STORE_AXES (SGLPLAN_AXIS(SGLIR_AXIS_DP) | SGLPLAN_AXIS(SGLIR_AXIS_FSDP))
/* Axes whose ranks hold different samples: rows of feeds are split over them. */
#define SGLPLAN_DATA_AXES (SGLPLAN_STORE_AXES | SGLPLAN_AXIS(SGLIR_AXIS_EP))

/* The axes of ranks, from the slowest to the fastest. */
enum { SGLPLAN_MESH_AXES = SGLIR_AXIS_COUNT - 1 };
extern const uint8_t sglplan_mesh_order[SGLPLAN_MESH_AXES];

typedef struct sglplan_coordinate {
    int64_t at[SGLIR_AXIS_COUNT]; /* MICRO: 0 */
} sglplan_coordinate;

/* Ranks of the whole mesh, at most SGLPLAN_MOST_RANKS; more: INVALID_ARGUMENT, with the axis in the message. */
sgl_status sglplan_mesh_size(sglcore_env *env, const sglplan *plan, int64_t *ranks);
sglplan_coordinate sglplan_mesh_coordinate(const sglplan *plan, int64_t rank);
int64_t sglplan_mesh_rank(const sglplan *plan, const sglplan_coordinate *coordinate);

/* The group of a rank: all ranks that differ from it along `axes` alone, in rising order of ranks. */
int64_t sglplan_group_size(const sglplan *plan, sglplan_axes axes);
int64_t sglplan_group_place(const sglplan *plan, sglplan_axes axes, int64_t rank); /* of the rank in it */
int64_t sglplan_group_member(const sglplan *plan, sglplan_axes axes, int64_t rank, int64_t place); /* a rank */
/* "dp", "dp+tp"; "" of no axis. SGLPLAN_AXES_ROOM bytes hold any. Returns text. */
#define SGLPLAN_AXES_ROOM 48
const char *sglplan_axes_text(sglplan_axes axes, char *text, size_t size);

/* A range of an extent. */
typedef struct sglplan_part {
    int64_t offset, size;
} sglplan_part;

/* Part `place` of `parts` of an extent that may be cut at multiples of `unit` only (the width of a head, a row of 1):
 * as even as can be, the larger ones first, empty where there are more parts than units. The extent is a multiple of
 * the unit. */
sglplan_part sglplan_part_of(int64_t extent, int64_t unit, int64_t parts, int64_t place);
/* The part of `rank` where the extent is cut over several axes: over the slowest first, each part then over the next
 * one. */
sglplan_part sglplan_part_along(const sglplan *plan, sglplan_axes axes, int64_t rank, int64_t extent, int64_t unit);
/* Which part holds the element. */
int64_t sglplan_part_holding(int64_t extent, int64_t unit, int64_t parts, int64_t element);

#endif

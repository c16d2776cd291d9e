/* mesh.c -- ranks as a named grid, and how an extent is cut. In and out: mesh.h. */
#include "plan/mesh.h"

#include <inttypes.h>
#include <string.h>

enum { AXES = SGLPLAN_MESH_AXES };
const uint8_t sglplan_mesh_order[AXES] = { SGLIR_AXIS_PP, SGLIR_AXIS_DP, SGLIR_AXIS_FSDP,
                                           SGLIR_AXIS_EP, SGLIR_AXIS_CP, SGLIR_AXIS_TP };

sgl_status sglplan_mesh_size(sglcore_env *env, const sglplan *plan, int64_t *ranks)
{
    int64_t size = 1;
    for (int i = 0; i < AXES; i++) {
        int64_t extent = plan->mesh[sglplan_mesh_order[i]];
        if (extent < 1 || extent > SGLPLAN_MOST_RANKS / size) {
            return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                                "plan: a mesh has at most %" PRId64 " ranks; %s=%" PRId64 " makes it larger",
                                SGLPLAN_MOST_RANKS, sglir_axis_name(sglplan_mesh_order[i]), extent);
        }
        size *= extent;
    }
    *ranks = size;
    return SGL_OK;
}

sglplan_coordinate sglplan_mesh_coordinate(const sglplan *plan, int64_t rank)
{
    sglplan_coordinate c = { 0 };
    for (int i = AXES - 1; i >= 0; i--) {
        c.at[sglplan_mesh_order[i]] = rank % plan->mesh[sglplan_mesh_order[i]];
        rank /= plan->mesh[sglplan_mesh_order[i]];
    }
    return c;
}

int64_t sglplan_mesh_rank(const sglplan *plan, const sglplan_coordinate *coordinate)
{
    int64_t rank = 0;
    for (int i = 0; i < AXES; i++)
        rank = rank * plan->mesh[sglplan_mesh_order[i]] + coordinate->at[sglplan_mesh_order[i]];
    return rank;
}

static bool has(sglplan_axes axes, int axis) { return (axes & SGLPLAN_AXIS(axis)) != 0; }

int64_t sglplan_group_size(const sglplan *plan, sglplan_axes axes)
{
    int64_t size = 1;
    for (int i = 0; i < AXES; i++) size *= has(axes, sglplan_mesh_order[i]) ? plan->mesh[sglplan_mesh_order[i]] : 1;
    return size;
}

int64_t sglplan_group_place(const sglplan *plan, sglplan_axes axes, int64_t rank)
{
    sglplan_coordinate c = sglplan_mesh_coordinate(plan, rank);
    int64_t place = 0;
    for (int i = 0; i < AXES; i++) {
        if (has(axes, sglplan_mesh_order[i]))
            place = place * plan->mesh[sglplan_mesh_order[i]] + c.at[sglplan_mesh_order[i]];
    }
    return place;
}

int64_t sglplan_group_member(const sglplan *plan, sglplan_axes axes, int64_t rank, int64_t place)
{
    sglplan_coordinate c = sglplan_mesh_coordinate(plan, rank);
    for (int i = AXES - 1; i >= 0; i--) {
        if (!has(axes, sglplan_mesh_order[i])) continue;
        c.at[sglplan_mesh_order[i]] = place % plan->mesh[sglplan_mesh_order[i]];
        place /= plan->mesh[sglplan_mesh_order[i]];
    }
    return sglplan_mesh_rank(plan, &c);
}

const char *sglplan_axes_text(sglplan_axes axes, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < AXES; i++) {
        if (!has(axes, sglplan_mesh_order[i])) continue;
        const char *name = sglir_axis_name(sglplan_mesh_order[i]);
        size_t length = strlen(name) + (at > 0);
        if (at + length >= size) break;
        if (at > 0) text[at++] = '+';
        memcpy(text + at, name, strlen(name) + 1);
        at += strlen(name);
    }
    return text;
}

sglplan_part sglplan_part_of(int64_t extent, int64_t unit, int64_t parts, int64_t place)
{
    int64_t units = extent / unit, each = units / parts, larger = units % parts;
    int64_t before = place * each + (place < larger ? place : larger);
    return (sglplan_part){ .offset = before * unit, .size = (each + (place < larger)) * unit };
}

sglplan_part sglplan_part_along(const sglplan *plan, sglplan_axes axes, int64_t rank, int64_t extent, int64_t unit)
{
    sglplan_coordinate c = sglplan_mesh_coordinate(plan, rank);
    sglplan_part all = { .size = extent };
    for (int i = 0; i < AXES; i++) {
        if (!has(axes, sglplan_mesh_order[i])) continue;
        sglplan_part part =
            sglplan_part_of(all.size, unit, plan->mesh[sglplan_mesh_order[i]], c.at[sglplan_mesh_order[i]]);
        all = (sglplan_part){ .offset = all.offset + part.offset, .size = part.size };
    }
    return all;
}

int64_t sglplan_part_holding(int64_t extent, int64_t unit, int64_t parts, int64_t element)
{
    int64_t units = extent / unit, each = units / parts, larger = units % parts, at = element / unit;
    int64_t in_larger = larger * (each + 1);
    return at < in_larger ? at / (each + 1) : larger + (at - in_larger) / each;
}

/* region.c -- regions while they are built: taken, begun, given parameters, ended, or left.
 *
 * In: a graph. Out: closed regions, for sglir_emit_regions to hang on a node. Those of one node have consecutive ids, so
 * their ids are taken together before the first is begun. Odd invariant: what stands in an abandoned region belongs to no
 * node, and so is seen by nobody. */
#include "ir/infer.h"

static sgl_status take_regions(sglir_graph *g, int count)
{
    if (g->regions.count + count >= UINT32_MAX)
        return sglir_fail_here(g, "region", "the graph is full: ids have 32 bits");
    SGLCORE_TRY(sglcore_vec_reserve(g->env, &g->regions, count));
    for (int i = 0; i < count; i++) g->regions.data[g->regions.count++] = (sglir_region){ .node = SGLIR_NONE };
    return SGL_OK;
}

sglir_id sglir_region_take(sglir_graph *g, int count)
{
    sglir_id first = (sglir_id)g->regions.count;
    return g->status == SGL_OK && sglir_stick(g, take_regions(g, count)) == SGL_OK ? first : SGLIR_NONE;
}

/* The types may be those of values of the graph, which move. */
static sgl_status reserve_values(sglir_graph *g, int count, const sglir_type **types)
{
    uintptr_t first = (uintptr_t)g->values.data, at = (uintptr_t)*types;
    bool inside = *types != NULL && at >= first && at - first < (size_t)g->values.count * sizeof *g->values.data;
    SGLCORE_TRY(sglcore_vec_reserve(g->env, &g->values, count));
    if (inside) *types = (const sglir_type *)(const void *)((const char *)g->values.data + (at - first));
    return SGL_OK;
}

static sgl_status add_parameters(sglir_graph *g, sglir_id region, const sglir_type *types, int count, sglir_id *ids)
{
    if (g->values.count + count >= UINT32_MAX)
        return sglir_fail_here(g, "region", "the graph is full: ids have 32 bits");
    for (int i = 0; i < count; i++) {
        if (types[i].rank > SGL_MAX_RANK || sglir_bytes(&types[i]) < 0)
            return sglir_fail_here(g, "region", "parameter %d has no valid shape", i);
    }
    SGLCORE_TRY(reserve_values(g, count, &types));
    SGLCORE_TRY(sglcore_vec_reserve(g->env, &g->regions.data[region].parameters, count));
    for (int i = 0; i < count; i++) {
        sglir_region *at = &g->regions.data[region];
        ids[i] = (sglir_id)g->values.count;
        g->values.data[g->values.count++] = (sglir_value){
            .type = types[i], .node = SGLIR_NONE, .region = region, .index = (uint32_t)at->parameters.count
        };
        at->parameters.data[at->parameters.count++] = ids[i];
    }
    return SGL_OK;
}

static sgl_status open_region(sglir_graph *g, sglir_id region, const sglir_type *parameters, int count, sglir_id *ids)
{
    bool fresh = region > 0 && region < g->regions.count && g->regions.data[region].node == SGLIR_NONE &&
                 g->regions.data[region].parameters.count == 0 && g->regions.data[region].nodes.count == 0;
    for (int64_t i = 0; i < g->open.count; i++) fresh = fresh && g->open.data[i] != region;
    if (!fresh) return sglir_fail_here(g, "region", "region %u cannot be begun: it was before, or is none", region);
    SGLCORE_TRY(sglcore_vec_reserve(g->env, &g->open, 1));
    SGLCORE_TRY(add_parameters(g, region, parameters, count, ids));
    g->open.data[g->open.count++] = region;
    return SGL_OK;
}

void sglir_region_begin_at(sglir_graph *g, sglir_id region, const sglir_type *parameters, int count,
                           sglir_id *parameter_ids)
{
    for (int i = 0; i < count; i++) parameter_ids[i] = SGLIR_NONE;
    if (g->status == SGL_OK) sglir_stick(g, open_region(g, region, parameters, count, parameter_ids));
}

sglir_id sglir_region_begin(sglir_graph *g, const sglir_type *parameters, int count, sglir_id *parameter_ids)
{
    sglir_id region = sglir_region_take(g, 1);
    sglir_region_begin_at(g, region, parameters, count, parameter_ids);
    return g->status == SGL_OK ? region : SGLIR_NONE;
}

sglir_id sglir_region_parameter(sglir_graph *g, const sglir_type *type)
{
    sglir_id id = SGLIR_NONE;
    if (g->status != SGL_OK) return SGLIR_NONE;
    if (g->open.count < 2) {
        sglir_fail_here(g, "region", "there is no open region to have a parameter");
        return SGLIR_NONE;
    }
    sglir_stick(g, add_parameters(g, g->open.data[g->open.count - 1], type, 1, &id));
    return id;
}

void sglir_region_abandon(sglir_graph *g, int64_t open)
{
    if (open >= 1 && g->open.count > open) g->open.count = open;
}

void sglir_region_end(sglir_graph *g, const sglir_id *results, int count)
{
    if (g->status != SGL_OK) return;
    if (g->open.count < 2) {
        sglir_fail_here(g, "region", "there is no open region to end");
        return;
    }
    for (int i = 0; i < count; i++) {
        if (!sglir_visible(g, results[i])) {
            sglir_fail_here(g, "region", "result %d is no value that can be seen here", i);
            return;
        }
    }
    sglir_region *region = &g->regions.data[g->open.data[g->open.count - 1]];
    if (sglir_stick(g, sglcore_vec_reserve(g->env, &region->results, count)) != SGL_OK) return;
    for (int i = 0; i < count; i++) region->results.data[region->results.count++] = results[i];
    g->open.count--;
}

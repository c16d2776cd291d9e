/* lifetimes.c -- finds when each transient value of a placed graph lives. See lifetimes.h.
 *
 * Views (reshape, unpack) hold no bytes of their own, but a use of a view is a use of what it looks into. */
#include <stdlib.h>
#include <string.h>

#include "session/lifetimes.h"

typedef struct collector {
    sglcore_env *env;
    const sglir_graph *g;
    sglsession_lifetimes *all;
    int64_t *last; /* per value of the top region: position of its last use */
} collector;

static sgl_status add(collector *c, sglsession_lifetime life)
{
    sglsession_lifetimes *all = c->all;
    if (life.bytes == 0) return SGL_OK;
    SGLCORE_TRY(sglcore_vec_grow(c->env, (void **)(void *)&all->by_size, &all->capacity, all->count, 1, sizeof life));
    all->by_size[all->count++] = life;
    return SGL_OK;
}

static bool in_arena(const sglir_graph *g, sglir_id value)
{
    return sglir_value_at(g, value)->space == SGLIR_SPACE_ARENA;
}

static sgl_status add_regions(collector *c, const sglir_node *node, int64_t position);

/* The body of a loop, all of it at the loop's position. */
static sgl_status add_region(collector *c, sglir_id region, int64_t position)
{
    const sglir_region *r = &c->g->regions.data[region];
    for (int64_t n = 0; n < r->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(c->g, r->nodes.data[n]);
        if (!sglir_is_view(node)) {
            for (uint32_t k = 0; k < node->out_count; k++) {
                sglir_id value = node->out_first + k;
                if (!in_arena(c->g, value)) continue;
                SGLCORE_TRY(
                    add(c, (sglsession_lifetime){ r->nodes.data[n], value, sglir_value_at(c->g, value)->offset,
                                                  sglir_bytes(sglir_type_of(c->g, value)), position, position }));
            }
        }
        SGLCORE_TRY(add(c, (sglsession_lifetime){ r->nodes.data[n], SGLIR_NONE, node->work_offset, node->work_bytes,
                                                  position, position }));
        SGLCORE_TRY(add_regions(c, node, position));
    }
    return SGL_OK;
}

static sgl_status add_regions(collector *c, const sglir_node *node, int64_t position)
{
    for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++)
        SGLCORE_TRY(add_region(c, node->region_first + r, position));
    return SGL_OK;
}

static sgl_status add_top(collector *c)
{
    const sglir_region *top = &c->g->regions.data[0];
    int64_t end = top->nodes.count - 1;
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(c->g, top->nodes.data[n]);
        for (uint32_t k = 0; k < node->out_count && !sglir_is_view(node); k++) {
            sglir_id value = node->out_first + k;
            if (!in_arena(c->g, value)) continue;
            int64_t to = c->last[value] > end ? end : c->last[value] < n ? n : c->last[value];
            SGLCORE_TRY(add(c, (sglsession_lifetime){ top->nodes.data[n], value, sglir_value_at(c->g, value)->offset,
                                                      sglir_bytes(sglir_type_of(c->g, value)), n, to }));
        }
        SGLCORE_TRY(
            add(c, (sglsession_lifetime){ top->nodes.data[n], SGLIR_NONE, node->work_offset, node->work_bytes, n, n }));
        SGLCORE_TRY(add_regions(c, node, n));
    }
    return SGL_OK;
}

static void extend_by_views(collector *c)
{
    const sglir_region *top = &c->g->regions.data[0];
    for (int64_t n = top->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(c->g, top->nodes.data[n]);
        if (!sglir_is_view(node)) continue;
        int64_t *base = &c->last[sglir_arg(c->g, node, 0)];
        for (uint32_t k = 0; k < node->out_count; k++)
            if (c->last[node->out_first + k] > *base) *base = c->last[node->out_first + k];
    }
}

/* Live bytes at each position from the differences at starts and ends; values that share a place in turn at one
 * position are both counted there, as a reader of the drawing would. */
static sgl_status find_peak(collector *c)
{
    sglsession_lifetimes *all = c->all;
    size_t bytes = (size_t)(all->positions + 1) * sizeof(int64_t);
    int64_t *change = sglcore_alloc_zero(c->env, bytes);
    if (!change) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < all->count; i++) {
        change[all->by_size[i].from] += all->by_size[i].bytes;
        change[all->by_size[i].to + 1] -= all->by_size[i].bytes;
    }
    int64_t live = 0, most = -1;
    for (int64_t n = 0; n < all->positions; n++) {
        live += change[n];
        if (live > most) {
            most = live;
            all->peak_at = n;
        }
    }
    sglcore_free(c->env, change, bytes);
    return SGL_OK;
}

static int larger_first(const void *a, const void *b)
{
    const sglsession_lifetime *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

sgl_status sglsession_lifetimes_of(sglcore_env *env, const sglir_graph *g, sglsession_lifetimes *all)
{
    size_t bytes = (size_t)g->values.count * sizeof(int64_t);
    collector c = { env, g, all, sglcore_alloc_zero(env, bytes) };
    if (!c.last && bytes) return SGL_OUT_OF_MEMORY;
    memset(all, 0, sizeof *all);
    all->positions = g->regions.data[0].nodes.count;
    sglir_last_uses(g, 0, c.last);
    extend_by_views(&c);
    sgl_status status = add_top(&c);
    if (status == SGL_OK) status = find_peak(&c);
    if (status == SGL_OK && all->count) qsort(all->by_size, (size_t)all->count, sizeof *all->by_size, larger_first);
    sglcore_free(env, c.last, bytes);
    if (status != SGL_OK) sglsession_lifetimes_free(env, all);
    return status;
}

void sglsession_lifetimes_free(sglcore_env *env, sglsession_lifetimes *all)
{
    sglcore_free(env, all->by_size, (size_t)all->capacity * sizeof *all->by_size);
    memset(all, 0, sizeof *all);
}

/* emit_place.c -- where elements lie, as expressions of the source: maps over one or two running indices.
 *
 * In: a map of strides over the kernel's dims. Out: text such as "64 + row / 12 % 8 * 768LL + col". Neighbouring dims that
 * a map walks through with one stride are one. Odd invariant: extents and strides stand in the text as numbers, so that a
 * division is a multiplication by the time it runs; what is common to several maps the compiler finds. */
#include "backend/cuda/emit_parts.h"

const char *sglcuda_dtype(int dtype) { return dtype == SGL_BOOL ? "boolean" : sgl_dtype_name((sgl_dtype)dtype); }

const char *sglcuda_index(const sglcuda_emitter *e) { return e->cut.elements < INT64_C(1) << 31 ? "uint32" : "uint64"; }

/* Some neighbouring dims, merged where the map allows. */
typedef struct merged {
    int count;
    int64_t extents[SGL_MAX_RANK], strides[SGL_MAX_RANK];
} merged;

static merged merge(const sglexec_kernel *kernel, const sglexec_map *map, int first, int end)
{
    merged m = { 0 };
    for (int d = first; d < end; d++) {
        if (kernel->dims[d] == 1) continue;
        int last = m.count - 1;
        if (m.count > 0 && m.strides[last] == map->strides[d] * kernel->dims[d]) {
            m.extents[last] *= kernel->dims[d];
            m.strides[last] = map->strides[d];
        } else {
            m.extents[m.count] = kernel->dims[d];
            m.strides[m.count++] = map->strides[d];
        }
    }
    return m;
}

static void put_dims(sglcuda_emitter *e, const merged *m, const char *index)
{
    int64_t below = 1;
    for (int d = m->count - 1; d >= 0; d--) {
        if (m->strides[d] != 0) {
            sglcuda_put(e, " + (int64)(%s", index);
            if (below != 1) sglcuda_put(e, " / %lldu", (long long)below);
            if (d > 0) sglcuda_put(e, " %% %lldu", (long long)m->extents[d]);
            sglcuda_put(e, ")");
            if (m->strides[d] != 1) sglcuda_put(e, " * %lldll", (long long)m->strides[d]);
        }
        below *= m->extents[d];
    }
}

static int first_inner(const sglcuda_emitter *e, const sglcuda_scope *s)
{
    return s->way == SGLCUDA_MAP ? 0 : e->kernel->rank - e->kernel->inner;
}

void sglcuda_put_address(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_map *map, const char *row,
                         const char *col)
{
    const int inner = first_inner(e, s);
    const merged outer_dims = merge(e->kernel, map, 0, inner),
                 inner_dims = merge(e->kernel, map, inner, e->kernel->rank);
    sglcuda_put(e, "%lldll", (long long)map->offset);
    if (row) put_dims(e, &outer_dims, row);
    if (col) put_dims(e, &inner_dims, col);
}

bool sglcuda_runs(const sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_map *map, int operand,
                  int64_t *stride, bool *aligned)
{
    const int inner = first_inner(e, s);
    const merged outer_dims = merge(e->kernel, map, 0, inner), m = merge(e->kernel, map, inner, e->kernel->rank);
    *stride = m.count > 0 ? m.strides[m.count - 1] : 0;
    *aligned = false;
    if (m.count > 1 && m.extents[m.count - 1] % SGLCUDA_RUN != 0) return false;
    if (*stride != 1 || operand < 0) return true;
    *aligned = map->offset % SGLCUDA_RUN == 0 && e->operands[operand].offset % 16 == 0;
    for (int d = 0; d < outer_dims.count; d++) *aligned = *aligned && outer_dims.strides[d] % SGLCUDA_RUN == 0;
    for (int d = 0; d < m.count - 1; d++) *aligned = *aligned && m.strides[d] % SGLCUDA_RUN == 0;
    return true;
}

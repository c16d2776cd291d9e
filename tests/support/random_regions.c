/* random_regions.c -- ops with regions in random programs. In and out: random_parts.h. A new kind is a row of `kinds`.
 *
 * Odd invariants: what a region yields is squashed where it is a float, so that a loop does not grow its carries; no loss is
 * made of it, because ops without a derivative may stand in the region and before it. */
#include "tests/support/random_parts.h"

/* A region with these parameters, a few ops in it, and results of these types; values around it may be used. The first
 * parameter of a loop is its index, behind it come the carries, one per result. */
static sglir_id random_region(random_drawer *d, const sglir_type *parameters, int count, const sglir_type *results,
                              int result_count)
{
    sglir_id ids[8], out[8];
    int around = d->count, carries = count - result_count;
    sglir_id region = sglir_region_begin(d->g, parameters, count, ids);
    for (int i = 0; i < count; i++) random_join(d, (random_value){ ids[i], false, true, true });
    d->depth++;
    random_steps(d, 2 + (int)random_draw(d, 4));
    d->depth--;
    for (int i = 0; i < result_count; i++) {
        bool is_float = sglcore_dtype_is_float((sgl_dtype)results[i].dtype);
        if (is_float && count > 0 && d->large && random_one_in(d, 2)) {
            out[i] =
                random_turned(d, ids[carries + i]); /* the carry's next value, from its elements in another order */
            continue;
        }
        random_value v = random_fitting(d, &results[i], 'x', false);
        out[i] = is_float ? random_squash(d, v.id) : v.id;
    }
    sglir_region_end(d->g, out, result_count);
    d->count = around;
    return region;
}

static void random_scan(random_drawer *d)
{
    int count = 1 + (int)random_draw(d, 3);
    sglir_id carries[3], out[3], region;
    sglir_type types[4] = { sglir_type_make(SGL_I64, 0, NULL) };
    for (int i = 0; i < count; i++) {
        random_value v = random_to_range(d, d->pool[random_draw(d, (uint64_t)d->count)], 'x', false);
        carries[i] = v.id;
        types[i + 1] = *random_type(d, v.id);
    }
    region = random_region(d, types, count + 1, types + 1, count);
    const sglir_named steps = SGLIR_I("steps", (int64_t)random_draw(d, 4));
    sglir_emit_regions(d->g, SGLIR_OP_SCAN, carries, count, &steps, 1, &region, 1, out);
    for (int i = 0; i < count && sglir_status(d->g) == SGL_OK; i++)
        random_join(d, (random_value){ out[i], false, true, false });
}

static void (*const kinds[])(random_drawer *d) = { random_scan };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

void random_op_with_regions(random_drawer *d) { kinds[random_draw(d, KINDS)](d); }

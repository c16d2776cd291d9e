/* tile_block.c -- blocks of a buffer's elements to registers and back, where a dtype is stored otherwise than it is held.
 *
 * In: a path, a block, elements. Out: the same as held, or stored. Narrow floats are widened straight from rows whose columns
 * lie side by side, others by way of the stage; of i4, which has no address of its own, each element goes by itself. Odd
 * invariant: storing rounds, so a register that is only stored was never settled. */
#include "backend/cpu/tile.h"

static int64_t first_of(const sglcpu_path *path, int64_t row) { return path->offset + sglcpu_path_row(path, row); }

/* Columns lie side by side from the one where the block begins. */
static bool is_plain(const sglcpu_path *path, const sglcpu_block *b)
{
    return b->cols == 1 || sglcpu_path_is_plain(path);
}

void sglcpu_block_load(const sglcpu_isa *isa, sgl_dtype dtype, const sglcpu_path *path, const char *from,
                       const sglcpu_block *b, char *out, int64_t out_bytes, char *stage)
{
    int64_t size = sglcpu_size(dtype);
    if (sglcpu_held(dtype) == dtype) {
        sglcpu_path_load(path, size, from, b, out, out_bytes);
    } else if (dtype == SGL_I4 || is_plain(path, b)) {
        int64_t run = is_plain(path, b) ? b->cols : 1;
        for (int64_t r = 0; r < b->rows; r++) {
            int64_t first = first_of(path, b->row + r);
            for (int64_t c = 0; c < b->cols; c += run) {
                sglcpu_load_run(isa, dtype, out + r * out_bytes + c * sglcpu_held_size(dtype), from,
                                first + sglcpu_path_col(path, b->col + c), run);
            }
        }
    } else {
        sglcpu_path_load(path, size, from, b, stage, b->cols * size);
        for (int64_t r = 0; r < b->rows; r++)
            sglcpu_load_run(isa, dtype, out + r * out_bytes, stage, r * b->cols, b->cols);
    }
}

void sglcpu_block_store(const sglcpu_isa *isa, sgl_dtype dtype, const sglcpu_path *path, char *to, int64_t whole,
                        const sglcpu_block *b, const char *in, int64_t in_bytes, char *stage)
{
    int64_t size = sglcpu_size(dtype);
    if (sglcpu_held(dtype) == dtype) {
        sglcpu_path_store(path, size, to, b, in, in_bytes);
    } else if (dtype == SGL_I4 || is_plain(path, b)) {
        int64_t run = is_plain(path, b) ? b->cols : 1;
        for (int64_t r = 0; r < b->rows; r++) {
            int64_t first = first_of(path, b->row + r);
            for (int64_t c = 0; c < b->cols; c += run) {
                sglcpu_store_run(isa, dtype, to, first + sglcpu_path_col(path, b->col + c),
                                 in + r * in_bytes + c * sglcpu_held_size(dtype), run, whole);
            }
        }
    } else {
        for (int64_t r = 0; r < b->rows; r++)
            sglcpu_store_run(isa, dtype, stage, r * b->cols, in + r * in_bytes, b->cols, b->rows * b->cols);
        sglcpu_path_store(path, size, to, b, stage, b->cols * size);
    }
}

/* tile_path.c -- elements through index maps: blocks of a buffer into dense rows and back, and how a domain is cut into
 * tasks.
 *
 * In: a map of the kernel's description. Out: copies. Where columns lie far apart and rows near (a transposed argument),
 * the copy goes down the columns, so that each cache line is read once. */
#include <string.h>

#include "backend/cpu/tile.h"

/* ---- cutting ------------------------------------------------------------------------------------------------ */

sglcpu_split sglcpu_split_of(int64_t rows, int64_t cols, bool whole_rows, int64_t row_unit)
{
    int64_t elements = rows * sglcpu_max(cols, 1);
    int64_t tasks = sglcpu_min(sglcpu_max(elements / SGLCPU_TASK_ELEMENTS, 1), SGLCPU_MAX_TASKS);
    sglcpu_split split = { .rows = rows, .cols = cols, .strip = cols, .strips = 1 };
    if (!whole_rows && cols > SGLCPU_STRIP) {
        int64_t strips = sglcpu_min(tasks, cols / SGLCPU_STRIP);
        split.strip = sglcpu_round_up(sglcpu_ceil_div(cols, strips), SGLCPU_CHUNK);
        split.strips = sglcpu_ceil_div(cols, split.strip);
        tasks = sglcpu_ceil_div(tasks, split.strips);
    }
    split.row_block = sglcpu_round_up(sglcpu_max(sglcpu_ceil_div(rows, tasks), 1), row_unit);
    split.row_tasks = sglcpu_max(sglcpu_ceil_div(rows, split.row_block), 1); /* one for what is there once */
    return split;
}

int64_t sglcpu_tile_workspace(int64_t rows, int64_t cols, int columns, int totals)
{
    int64_t blocks = sglcpu_ceil_div(rows, sglcpu_sum_block(rows)), chunks = sglcpu_ceil_div(rows * cols, SGLCPU_CHUNK);
    return columns * sglcpu_round_up(blocks * cols * 8, 64) + totals * sglcpu_round_up(chunks * 8, 64);
}

/* ---- paths -------------------------------------------------------------------------------------------------- */

/* Dims first .. last - 1, those of one element left out and neighbours that lie as one merged. */
static int merge_dims(const sglexec_map *map, const int64_t *dims, int first, int last, int64_t *out_dims,
                      int64_t *out_strides)
{
    int count = 0;
    for (int d = first; d < last; d++) {
        if (dims[d] == 1) continue;
        if (count > 0 && out_strides[count - 1] == map->strides[d] * dims[d]) {
            out_dims[count - 1] *= dims[d];
            out_strides[count - 1] = map->strides[d];
        } else {
            out_dims[count] = dims[d];
            out_strides[count] = map->strides[d];
            count++;
        }
    }
    return count;
}

sglcpu_path sglcpu_path_of(const sglexec_map *map, int rank, int inner, const int64_t *dims)
{
    sglcpu_path path = { .offset = map->offset };
    path.outer = merge_dims(map, dims, 0, rank - inner, path.outer_dims, path.outer_strides);
    path.inner = merge_dims(map, dims, rank - inner, rank, path.inner_dims, path.inner_strides);
    return path;
}

static int64_t digits_of(int64_t index, int count, const int64_t *dims, const int64_t *strides)
{
    if (count == 0) return 0;
    int64_t sum = 0;
    for (int d = count - 1; d > 0; d--) {
        sum += index % dims[d] * strides[d];
        index /= dims[d];
    }
    return sum + index * strides[0];
}

int64_t sglcpu_path_row(const sglcpu_path *path, int64_t row)
{
    return digits_of(row, path->outer, path->outer_dims, path->outer_strides);
}

int64_t sglcpu_path_col(const sglcpu_path *path, int64_t col)
{
    return digits_of(col, path->inner, path->inner_dims, path->inner_strides);
}

/* ---- elements ----------------------------------------------------------------------------------------------- */

/* out[i * out_stride] = from[i * from_stride]; strides in elements. */
static void copy_strided(char *out, int64_t out_stride, const char *from, int64_t from_stride, int64_t size,
                         int64_t count)
{
    if (out_stride == 1 && from_stride == 1) {
        memcpy(out, from, (size_t)(size * count));
        return;
    }
    switch (size) {
#define CASE(T)                                                                                                        \
    case sizeof(T): {                                                                                                  \
        T *to = (T *)(void *)out;                                                                                      \
        const T *at = (const T *)(const void *)from;                                                                   \
        for (int64_t i = 0; i < count; i++) to[i * out_stride] = at[i * from_stride];                                  \
        return;                                                                                                        \
    }
        CASE(uint8_t)
        CASE(uint16_t)
        CASE(uint32_t)
        CASE(uint64_t)
#undef CASE
    default: return;
    }
}

/* Columns col .. col + count - 1 of one row, in runs of the innermost dim. `stored`: from dense to the buffer. */
static void copy_row(const sglcpu_path *path, int64_t size, char *buffer, int64_t col, int64_t count, char *dense,
                     bool stored)
{
    if (path->inner <= 1) {
        int64_t stride = path->inner ? path->inner_strides[0] : 0;
        char *at = buffer + col * stride * size;
        if (stored) {
            copy_strided(at, stride, dense, 1, size, count);
        } else if (stride == 0) {
            sglcpu_spread(dense, at, size, count);
        } else {
            copy_strided(dense, 1, at, stride, size, count);
        }
        return;
    }
    int64_t run = path->inner_dims[path->inner - 1], stride = path->inner_strides[path->inner - 1];
    while (count > 0) {
        int64_t length = sglcpu_min(run - col % run, count);
        char *at = buffer + sglcpu_path_col(path, col) * size;
        if (stored) {
            copy_strided(at, stride, dense, 1, size, length);
        } else {
            copy_strided(dense, 1, at, stride, size, length);
        }
        dense += length * size;
        col += length;
        count -= length;
    }
}

/* One stride for all rows, one for all columns, and rows lie nearer: then down the columns. */
static bool is_tall(const sglcpu_path *path, int64_t rows)
{
    return rows > 1 && path->outer == 1 && path->inner == 1 && path->inner_strides[0] > path->outer_strides[0] &&
           path->outer_strides[0] > 0;
}

static void load_tall(const sglcpu_path *path, int64_t size, const char *from, const sglcpu_block *b, char *out,
                      int64_t out_bytes)
{
    int64_t row_stride = path->outer_strides[0], col_stride = path->inner_strides[0];
    const char *corner = from + (path->offset + b->row * row_stride + b->col * col_stride) * size;
    for (int64_t c = 0; c < b->cols; c++) {
        copy_strided(out + c * size, out_bytes / size, corner + c * col_stride * size, row_stride, size, b->rows);
    }
}

void sglcpu_path_load(const sglcpu_path *path, int64_t size, const char *from, const sglcpu_block *b, char *out,
                      int64_t out_bytes)
{
    if (is_tall(path, b->rows)) {
        load_tall(path, size, from, b, out, out_bytes);
        return;
    }
    for (int64_t r = 0; r < b->rows; r++) {
        const char *row = from + (path->offset + sglcpu_path_row(path, b->row + r)) * size;
        /* the buffer is only read: copy_row writes to it when `stored` alone */
        copy_row(path, size, (char *)(uintptr_t)row, b->col, b->cols, out + r * out_bytes, false);
    }
}

void sglcpu_path_store(const sglcpu_path *path, int64_t size, char *to, const sglcpu_block *b, const char *in,
                       int64_t in_bytes)
{
    for (int64_t r = 0; r < b->rows; r++) {
        char *row = to + (path->offset + sglcpu_path_row(path, b->row + r)) * size;
        copy_row(path, size, row, b->col, b->cols, (char *)(uintptr_t)(in + r * in_bytes), true);
    }
}

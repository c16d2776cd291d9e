/* test_cpu_same.c -- every loop of every instruction set gives an element the bits that it gives it alone: in any lane of a
 * vector, in a tail, at any address, in place; and the sums of a row or of columns have the order that tile_sum.c says.
 *
 * In: the tables of isa.h. Odd invariant: what is asked here of a loop is asked of each that the tables hold, so that a new one
 * is tested by itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"

enum { LONGEST = 70, OFFSETS = 17, ROOM = LONGEST + OFFSETS };

static uint64_t state = 1;

static double draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ldexp((double)(state >> 11), -52) - 1; /* [-1, 1) */
}

static void fill(sgl_dtype dtype, void *out, int64_t count)
{
    static const double rare[] = { 0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0, 88.0, -104.0, 1e-30, 7e4, -3e5 };
    for (int64_t i = 0; i < count; i++) {
        double value = i % 11 == 5 ? rare[(uint64_t)(draw() * 6 + 6)] : draw() * (i % 3 == 0 ? 40 : 2);
        if (dtype == SGL_F32)
            ((float *)out)[i] = (float)value;
        else
            ((double *)out)[i] = value;
    }
}

static bool same(sgl_dtype dtype, const void *a, const void *b, int64_t i, bool is_bool)
{
    if (is_bool) return ((const uint8_t *)a)[i] == ((const uint8_t *)b)[i];
    if (dtype == SGL_F32) {
        const float *x = a, *y = b;
        return (isnan(x[i]) && isnan(y[i])) || memcmp(x + i, y + i, sizeof *x) == 0;
    }
    const double *x = a, *y = b;
    return (isnan(x[i]) && isnan(y[i])) || memcmp(x + i, y + i, sizeof *x) == 0;
}

typedef struct looped {
    sglcpu_map_fn fn;
    sgl_dtype dtype;
    int args, numbers;
    bool condition, is_bool; /* args[0] is bool; the result is */
    char what[64];
} looped;

static const char *arg_at(const looped *l, int a, char (*arrays)[8 * ROOM], int64_t i)
{
    int64_t size = l->condition && a == 0 ? 1 : sglcpu_size(l->dtype);
    return l->numbers >> a & 1 ? arrays[a] : arrays[a] + i * size;
}

/* Runs of each length from each offset against elements one by one; in place over each argument that may be. */
static void check_loop(const looped *l)
{
    static char arrays[3][8 * ROOM], alone[8 * ROOM], out[8 * ROOM];
    int64_t size = l->is_bool ? 1 : sglcpu_size(l->dtype);
    for (int a = 0; a < 3; a++) fill(l->dtype, arrays[a], ROOM);
    for (int i = 0; i < ROOM && l->condition; i++) arrays[0][i] = draw() < 0;
    for (int i = 0; i < ROOM; i++)
        l->fn(alone + i * size, arg_at(l, 0, arrays, i), arg_at(l, 1, arrays, i), arg_at(l, 2, arrays, i), 1);
    for (int offset = 0; offset < OFFSETS; offset++) {
        for (int length = 1; length <= LONGEST; length++) {
            for (int over = -1; over < l->args; over++) {
                if (over >= 0 && ((l->numbers >> over & 1) || l->is_bool || (l->condition && over == 0))) continue;
                const char *args[3];
                char *to = out + offset * size;
                for (int a = 0; a < 3; a++) args[a] = arg_at(l, a, arrays, offset);
                if (over >= 0) {
                    memcpy(to, args[over], (size_t)(length * size));
                    args[over] = to;
                }
                l->fn(to, args[0], args[1], args[2], length);
                for (int i = offset; i < offset + length; i++) {
                    if (!same(l->dtype, out, alone, i, l->is_bool))
                        fail_msg("%s of %s: element %d of %d at offset %d%s has other bits than alone", l->what,
                                 sgl_dtype_name(l->dtype), i - offset, length, offset, over >= 0 ? ", in place," : "");
                }
            }
        }
    }
}

static void check_table(const sglcpu_isa *isa, sgl_dtype dtype)
{
    const sglcpu_float_ops *ops = isa->floats[dtype == SGL_F64];
    looped l = { .dtype = dtype };
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        l.is_bool = op == SGLIR_OP_IS_FINITE || op == SGLIR_OP_EQUAL || op == SGLIR_OP_NOT_EQUAL ||
                    op == SGLIR_OP_LESS || op == SGLIR_OP_LESS_EQUAL;
        snprintf(l.what, sizeof l.what, "%s %.40s", isa->name, sglir_ops[op].name);
        for (l.numbers = 0; l.numbers < 4; l.numbers++) {
            l.args = 2;
            l.fn = ops->two[op][l.numbers];
            if (l.fn != NULL) check_loop(&l);
        }
        l.args = 1;
        l.numbers = 0;
        l.fn = ops->one[op];
        if (l.fn != NULL) check_loop(&l);
    }
    l = (looped){ .dtype = dtype, .args = 1, .fn = ops->gelu_exact, .what = "gelu, exact" };
    check_loop(&l);
    l = (looped){ .dtype = dtype, .args = 2, .fn = ops->gelu_grad_exact, .what = "gelu_grad, exact" };
    check_loop(&l);
    l = (looped){ .dtype = dtype, .args = 3, .condition = true, .what = "select" };
    for (l.numbers = 0; l.numbers < 8; l.numbers++) {
        l.fn = ops->select[l.numbers];
        if (l.fn != NULL) check_loop(&l);
    }
}

static void test_loops(void **user)
{
    (void)user;
    for (int i = 0; sglcpu_isa_at(i) != NULL; i++) {
        check_table(sglcpu_isa_at(i), SGL_F32);
        check_table(sglcpu_isa_at(i), SGL_F64);
    }
}

/* A pair has the bits of its two ops, one after the other. */
static void check_pair(const sglcpu_isa *isa, sgl_dtype dtype, int first, int second, int numbers)
{
    static const sglir_op firsts[] = { SGLIR_OP_ADD, SGLIR_OP_SUB, SGLIR_OP_MUL };
    static const sglir_op seconds[] = { SGLIR_OP_ADD, SGLIR_OP_SUB, SGLIR_OP_SUB, SGLIR_OP_MUL };
    static char arrays[3][8 * ROOM], both[8 * ROOM], once[8 * ROOM], twice[8 * ROOM];
    const sglcpu_float_ops *ops = isa->floats[dtype == SGL_F64];
    looped l = { .dtype = dtype, .args = 3, .numbers = numbers, .fn = ops->pair[first][second][numbers] };
    if (l.fn == NULL) return;
    snprintf(l.what, sizeof l.what, "%s pair %d %d %d", isa->name, first, second, numbers);
    check_loop(&l);
    for (int a = 0; a < 3; a++) fill(dtype, arrays[a], ROOM);
    l.fn(both, arrays[0], arrays[1], arrays[2], ROOM);
    ops->two[firsts[first]][numbers & 3](once, arrays[0], arrays[1], NULL, ROOM);
    const bool reversed = second == SGLCPU_SECOND_RSUB, number = numbers >> 2 & 1;
    const char *x = reversed ? arrays[2] : once, *y = reversed ? once : arrays[2];
    ops->two[seconds[second]][number ? (reversed ? SGLCPU_A_NUMBER : SGLCPU_B_NUMBER) : 0](twice, x, y, NULL, ROOM);
    for (int i = 0; i < ROOM; i++) {
        if (!same(dtype, both, twice, i, false)) fail_msg("%s: element %d is not what two ops make of it", l.what, i);
    }
}

static void test_pairs(void **user)
{
    (void)user;
    for (int i = 0; sglcpu_isa_at(i) != NULL; i++) {
        for (int n = 0; n < SGLCPU_FIRSTS * SGLCPU_SECONDS * 8; n++) {
            check_pair(sglcpu_isa_at(i), SGL_F32, n / 8 % SGLCPU_FIRSTS, n / 8 / SGLCPU_FIRSTS, n % 8);
            check_pair(sglcpu_isa_at(i), SGL_F64, n / 8 % SGLCPU_FIRSTS, n / 8 / SGLCPU_FIRSTS, n % 8);
        }
    }
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

enum { MOST = 3 * SGLCPU_CHUNK + 77 };

/* The order of tile_sum.c by its words: lanes, halves, the last three in double, chunks one after another. */
static double sum_by_words(sgl_dtype dtype, const double *x, int64_t count)
{
    double total = 0;
    for (int64_t chunk = 0; chunk < count; chunk += SGLCPU_CHUNK) {
        int lanes = dtype == SGL_F32 ? 32 : 16;
        double lane[32] = { 0 };
        for (int64_t i = chunk; i < count && i < chunk + SGLCPU_CHUNK; i++) {
            double *at = &lane[(i - chunk) % lanes];
            *at = dtype == SGL_F32 ? (double)((float)*at + (float)x[i]) : *at + x[i];
        }
        for (; lanes > 1; lanes /= 2) {
            for (int k = 0; k < lanes / 2; k++) {
                double sum = lane[k] + lane[k + lanes / 2];
                lane[k] = dtype == SGL_F32 && lanes > 8 ? (double)((float)lane[k] + (float)lane[k + lanes / 2]) : sum;
            }
        }
        total += lane[0];
    }
    return total;
}

static void check_sums(const sglcpu_isa *isa, sgl_dtype dtype, int64_t count)
{
    static double x[MOST], y[MOST], products[MOST];
    static char xs[8 * MOST + 64], ys[8 * MOST + 64];
    const sglcpu_float_ops *ops = isa->floats[dtype == SGL_F64];
    int64_t size = sglcpu_size(dtype);
    char *a = xs + count % 7 * size, *b = ys + count % 5 * size; /* off alignment */
    for (int64_t i = 0; i < count; i++) {
        x[i] = (double)(float)draw();
        y[i] = (double)(float)draw();
        if (dtype == SGL_F32) {
            float of_x = (float)x[i], of_y = (float)y[i], product = of_x * of_y;
            memcpy(a + 4 * i, &of_x, 4);
            memcpy(b + 4 * i, &of_y, 4);
            products[i] = (double)product;
        } else {
            memcpy(a + 8 * i, &x[i], 8);
            memcpy(b + 8 * i, &y[i], 8);
            products[i] = x[i] * y[i];
        }
    }
    double plain = 0, product = 0, cut = 0;
    ops->fold[SGLCPU_FOLD_SUM](&plain, a, NULL, count);
    ops->fold_product(&product, a, b, count);
    for (int64_t i = 0; i < count; i += SGLCPU_CHUNK)
        ops->fold[SGLCPU_FOLD_SUM](&cut, a + i * size, NULL, sglcpu_min(SGLCPU_CHUNK, count - i));
    if (plain != sum_by_words(dtype, x, count) || cut != plain)
        fail_msg("%s: the sum of %d numbers has another order", isa->name, (int)count);
    if (product != sum_by_words(dtype, products, count))
        fail_msg("%s: the sum of %d products has another order, or fewer roundings", isa->name, (int)count);
}

static void test_row_sums(void **user)
{
    (void)user;
    for (int i = 0; sglcpu_isa_at(i) != NULL; i++) {
        for (int64_t count = 0; count <= MOST; count += count < 150 ? 1 : 61) {
            check_sums(sglcpu_isa_at(i), SGL_F32, count);
            check_sums(sglcpu_isa_at(i), SGL_F64, count);
        }
    }
}

/* Rows at once or one by one, all columns or some: the same sums. */
static void test_column_sums(void **user)
{
    (void)user;
    enum { ROWS = 13, COLS = 37 };
    static float x[ROWS][COLS], at_once[COLS], apart[COLS];
    for (int i = 0; sglcpu_isa_at(i) != NULL; i++) {
        const sglcpu_float_ops *ops = sglcpu_isa_at(i)->floats[0];
        fill(SGL_F32, x, ROWS * COLS);
        memset(at_once, 0, sizeof at_once);
        memset(apart, 0, sizeof apart);
        ops->columns[SGLCPU_FOLD_SUM](at_once, x, sizeof x[0], ROWS, COLS);
        for (int row = 0; row < ROWS; row++) {
            for (int col = 0; col < COLS; col += 5)
                ops->columns[SGLCPU_FOLD_SUM](apart + col, &x[row][col], sizeof x[0], 1, sglcpu_min(5, COLS - col));
        }
        for (int col = 0; col < COLS; col++) assert_true(same(SGL_F32, at_once, apart, col, false));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_loops), cmocka_unit_test(test_pairs),
                                        cmocka_unit_test(test_row_sums), cmocka_unit_test(test_column_sums) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* huge.c -- tensors of more than 2^31 elements, on the CPU, through sgl.h: `huge [CASE...]`, for scripts/nightly.
 *
 * No test of the suite: it takes minutes and about 9 GiB (a feed, a result, and the host's copy of one, 2 GiB each, and room).
 * In: names of cases; none: all. Out: a line per case; what is wrong with the first element that is; the status is 1 when any is.
 * Every element is one byte (i4: half of one) of a formula of its place, so that each result is known at every place; results
 * are looked at near both ends, near 2^31, where rows begin, and at places spread over the whole. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sgl.h"

#define OVER (INT64_C(1) << 31)
#define COUNT (OVER + 65552) /* elements of the feed: 16 * 134221825 */
enum { SAMPLES = 200000, NEAR = 300, FEW = 64, MOST_ATTRS = 4 };

static sgl_vm *vm;
static sgl_session *session;
static sgl_graph *graph;
static uint8_t *host; /* COUNT + 64 bytes: the feed's content before a step, a result after it */

static void check(sgl_status status, const char *what)
{
    if (status == SGL_OK) return;
    printf("huge: %s: %s\n", what, sgl_error_message(vm));
    exit(1);
}

/* Element i of the feed. */
static uint8_t content(int64_t i) { return (uint8_t)((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 56); }

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

static sgl_attr whole(const char *name, int64_t value)
{
    return (sgl_attr){ .name = name, .kind = SGL_ATTR_INT, .i = value };
}
static sgl_attr list(const char *name, int count, const int64_t *values)
{
    return (sgl_attr){ .name = name, .kind = SGL_ATTR_INTS, .i = count, .ints = values };
}
static sgl_attr dtype(const char *name, sgl_dtype value)
{
    return (sgl_attr){ .name = name, .kind = SGL_ATTR_DTYPE, .i = value };
}

static sgl_value node(const char *op, int count, const sgl_value *arguments, int attr_count, const sgl_attr *attrs)
{
    sgl_value made;
    int results;
    check(sgl_emit(graph, op, arguments, count, attrs, attr_count, &made, 1, &results), op);
    return made;
}
static sgl_value two(const char *op, sgl_value a, sgl_value b) { return node(op, 2, (sgl_value[]){ a, b }, 0, NULL); }

static sgl_value number(sgl_dtype type, double value)
{
    const sgl_attr attrs[] = { { .name = "value", .kind = SGL_ATTR_FLOAT, .f = value }, dtype("dtype", type) };
    return node("constant", 0, NULL, 2, attrs);
}
static sgl_value cast(sgl_value x, sgl_dtype to)
{
    const sgl_attr attr = dtype("to", to);
    return node("cast", 1, &x, 1, &attr);
}
static sgl_value shaped(sgl_value x, int rank, const int64_t *dims)
{
    const sgl_attr attr = list("dims", rank, dims);
    return node("reshape", 1, &x, 1, &attr);
}
static sgl_value slice(sgl_value x, int64_t axis, int64_t start, int64_t stop, int64_t step)
{
    const sgl_attr attrs[] = { whole("axis", axis), whole("start", start), whole("stop", stop), whole("step", step) };
    return node("slice", 1, &x, 4, attrs);
}
/* i64 [count]: from, from + step, ... */
static sgl_value places(int64_t count, int64_t from, int64_t step)
{
    const sgl_attr attrs[] = { whole("axis", 0), list("dims", 1, &count), dtype("dtype", SGL_I64) };
    sgl_value at = two("mul", node("iota", 0, NULL, 3, attrs), number(SGL_I64, (double)step));
    return two("add", at, number(SGL_I64, (double)from));
}

/* ---- cases ----------------------------------------------------------------------------------------------------------- */

/* What a case fetches, and what it must be: element i of u8 (or the bytes of an i64, when there is one). */
typedef struct outcome {
    int64_t count;
    uint8_t (*expected)(int64_t i);
    int64_t number; /* of a single i64, where expected is NULL */
} outcome;

static const int64_t tall[] = { COUNT / 16, 16 }, wide[] = { 16, COUNT / 16 }, pairs[] = { COUNT / 2, 2 };
enum { ROWS_OF_WIDE = 16 };

static uint8_t chained(int64_t i)
{
    uint8_t x = content(i);
    return (uint8_t)((uint8_t)(x * 3 + 7) ^ (uint8_t)(x >> 1));
}
static outcome chain(sgl_value x)
{
    sgl_value y = two("add", two("mul", x, number(SGL_U8, 3)), number(SGL_U8, 7));
    sgl_output_fetch(graph, "y", two("bit_xor", y, two("shift_right", x, number(SGL_U8, 1))));
    return (outcome){ COUNT, chained, 0 };
}

static uint8_t counted(int64_t i) { return (uint8_t)(i % 251); }
static outcome counter(sgl_value x)
{
    (void)x;
    sgl_value at = two("remainder", places(COUNT, 0, 1), number(SGL_I64, 251));
    sgl_output_fetch(graph, "y", cast(at, SGL_U8));
    return (outcome){ COUNT, counted, 0 };
}

static uint8_t is_large(int64_t i) { return content(i) > 100; }
static outcome truths(sgl_value x)
{
    sgl_output_fetch(graph, "y", two("less", number(SGL_U8, 100), x));
    return (outcome){ COUNT, is_large, 0 };
}

/* f8e5m2 has 2 bits of mantissa: 0..3 and their doubles are exact. Its bits: 1 is 0x3c, 2 0x40, 4 0x44, 6 0x46. */
static uint8_t eighth(int64_t i)
{
    static const uint8_t bits[] = { 0x00, 0x40, 0x44, 0x46 };
    return bits[content(i) % 4];
}
static outcome floats(sgl_value x)
{
    sgl_value y = cast(two("remainder", x, number(SGL_U8, 4)), SGL_F8E5M2);
    sgl_output_fetch(graph, "y", two("add", y, y));
    return (outcome){ COUNT, eighth, 0 };
}

static uint8_t sliced(int64_t i) { return content(OVER - 9 + 3 * i); }
static outcome sliced_flat(sgl_value x)
{
    sgl_output_fetch(graph, "y", slice(x, 0, OVER - 9, OVER - 9 + 3 * FEW, 3));
    return (outcome){ FEW, sliced, 0 };
}

/* Of [16, COUNT / 16]: columns 5..COUNT/16 - 2 of all rows, most of the whole. */
static uint8_t cut(int64_t i)
{
    int64_t columns = wide[1] - 7;
    return content(i / columns * wide[1] + i % columns + 5);
}
static outcome sliced_wide(sgl_value x)
{
    sgl_output_fetch(graph, "y", slice(shaped(x, 2, wide), 1, 5, wide[1] - 2, 1));
    return (outcome){ ROWS_OF_WIDE * (wide[1] - 7), cut, 0 };
}

static uint8_t picked(int64_t i) { return content(COUNT - 1 - 1009 * i); }
static outcome gathered(sgl_value x)
{
    sgl_output_fetch(graph, "y", two("gather", x, places(FEW, COUNT - 1, -1009)));
    return (outcome){ FEW, picked, 0 };
}
static uint8_t picked_row(int64_t i) { return content((tall[0] - 1 - 5 * (i / 16)) * 16 + i % 16); }
static outcome gathered_rows(sgl_value x)
{
    sgl_output_fetch(graph, "y", two("gather", shaped(x, 2, tall), places(FEW, tall[0] - 1, -5)));
    return (outcome){ FEW * 16, picked_row, 0 };
}
static outcome taken(sgl_value x)
{
    const sgl_attr axis = whole("axis", 0);
    sgl_output_fetch(graph, "y", node("take_along", 2, (sgl_value[]){ x, places(FEW, COUNT - 1, -1009) }, 1, &axis));
    return (outcome){ FEW, picked, 0 };
}

/* Updates 1.. at COUNT - 1, COUNT - 1010, ... */
static uint8_t put(int64_t i)
{
    int64_t back = COUNT - 1 - i;
    return back % 1009 == 0 && back / 1009 < FEW ? (uint8_t)(back / 1009 + 1) : 0;
}
static outcome scattered(sgl_value x)
{
    (void)x;
    const sgl_attr extent = whole("extent", COUNT);
    sgl_value arguments[] = { places(FEW, COUNT - 1, -1009), cast(places(FEW, 1, 1), SGL_U8) };
    sgl_output_fetch(graph, "y", node("scatter_add", 2, arguments, 1, &extent));
    return (outcome){ COUNT, put, 0 };
}
static sgl_value reduced(const char *op, sgl_value x, int64_t axis)
{
    const sgl_attr attr = list("axes", 1, &axis);
    return node(op, 1, &x, 1, &attr);
}
static int64_t total(void)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < COUNT; i++) sum += content(i);
    return sum;
}
static outcome summed(sgl_value x)
{
    sgl_output_fetch(graph, "y", reduced("reduce_sum", cast(x, SGL_I64), 0));
    return (outcome){ 1, NULL, total() };
}
static uint8_t column_sum(int64_t i)
{
    uint8_t sum = 0;
    for (int64_t row = 0; row < ROWS_OF_WIDE; row++) sum = (uint8_t)(sum + content(row * wide[1] + i));
    return sum;
}
static outcome summed_columns(sgl_value x)
{
    sgl_output_fetch(graph, "y", reduced("reduce_sum", shaped(x, 2, wide), 0));
    return (outcome){ wide[1], column_sum, 0 };
}
static uint8_t row_sum(int64_t i)
{
    uint8_t sum = 0;
    for (int64_t k = 0; k < 16; k++) sum = (uint8_t)(sum + content(16 * i + k));
    return sum;
}
static outcome summed_rows(sgl_value x)
{
    sgl_output_fetch(graph, "y", reduced("reduce_sum", shaped(x, 2, tall), 1));
    return (outcome){ tall[0], row_sum, 0 };
}
/* The first place past 2^31 whose content is not 0, where all before is 0. */
static outcome largest_at(sgl_value x)
{
    int64_t at = OVER + 3;
    while (content(at) == 0) at++;
    const sgl_attr axis = whole("axis", 0);
    sgl_value far = two("less", number(SGL_I64, (double)(OVER + 2)), places(COUNT, 0, 1));
    sgl_value seen = two("less", number(SGL_U8, 0), x), both = two("and", far, seen);
    sgl_output_fetch(graph, "y", node("argmax", 1, &both, 1, &axis));
    return (outcome){ 1, NULL, at };
}
static uint8_t running[COUNT / (1 << 20) + 2]; /* sums up to each 2^20th place */
static uint8_t sum_to(int64_t i)
{
    uint8_t sum = running[i >> 20];
    for (int64_t k = i >> 20 << 20; k <= i; k++) sum = (uint8_t)(sum + content(k));
    return sum;
}
static outcome run_sums(sgl_value x)
{
    const sgl_attr axis = whole("axis", 0);
    uint8_t sum = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        if (i % (1 << 20) == 0) running[i >> 20] = sum;
        sum = (uint8_t)(sum + content(i));
    }
    sgl_output_fetch(graph, "y", node("cumulative_sum", 1, &x, 1, &axis));
    return (outcome){ COUNT, sum_to, 0 };
}

static uint8_t turned(int64_t i) { return content(i % tall[0] * 16 + i / tall[0]); }
static outcome transposed(sgl_value x)
{
    const int64_t order[] = { 1, 0 };
    const sgl_attr attr = list("order", 2, order);
    x = shaped(x, 2, tall);
    sgl_output_fetch(graph, "y", node("transpose", 1, &x, 1, &attr));
    return (outcome){ COUNT, turned, 0 };
}
static uint8_t backward(int64_t i) { return content(COUNT - 1 - i); }
static outcome flipped(sgl_value x)
{
    const int64_t axis = 0;
    const sgl_attr attr = list("axes", 1, &axis);
    sgl_output_fetch(graph, "y", node("flip", 1, &x, 1, &attr));
    return (outcome){ COUNT, backward, 0 };
}
static uint8_t joined(int64_t i) { return content(i < FEW ? i : i - FEW); }
static outcome concatenated(sgl_value x)
{
    const sgl_attr axis = whole("axis", 0);
    sgl_output_fetch(graph, "y", node("concat", 2, (sgl_value[]){ slice(x, 0, 0, FEW, 1), x }, 1, &axis));
    return (outcome){ COUNT + FEW, joined, 0 };
}
static uint8_t swapped(int64_t i) { return content(i ^ 1); }
static outcome concatenated_columns(sgl_value x)
{
    const sgl_attr axis = whole("axis", 1);
    x = shaped(x, 2, pairs);
    sgl_value arguments[] = { slice(x, 1, 1, 2, 1), slice(x, 1, 0, 1, 1) };
    sgl_output_fetch(graph, "y", node("concat", 2, arguments, 1, &axis));
    return (outcome){ COUNT, swapped, 0 };
}
static uint8_t padded_with(int64_t i) { return i < 5 || i >= COUNT + 5 ? 9 : content(i - 5); }
static outcome padded(sgl_value x)
{
    const sgl_attr attrs[] = {
        whole("axis", 0), whole("before", 5), whole("after", 3), { .name = "value", .kind = SGL_ATTR_FLOAT, .f = 9 }
    };
    sgl_output_fetch(graph, "y", node("pad", 1, &x, 4, attrs));
    return (outcome){ COUNT + 8, padded_with, 0 };
}
static uint8_t far_part(int64_t i) { return content(OVER + 11 + i); }
static outcome sliced_at(sgl_value x)
{
    const sgl_attr attrs[] = { whole("axis", 0), whole("size", FEW) };
    sgl_value at = reduced("reduce_sum", places(1, OVER + 11, 1), 0);
    sgl_output_fetch(graph, "y", node("dynamic_slice", 2, (sgl_value[]){ x, at }, 2, attrs));
    return (outcome){ FEW, far_part, 0 };
}
static uint8_t written(int64_t i)
{
    return i >= OVER + 11 && i < OVER + 11 + FEW ? content(i - OVER - 11) : content(i);
}
static outcome updated_at(sgl_value x)
{
    const sgl_attr axis = whole("axis", 0);
    sgl_value at = reduced("reduce_sum", places(1, OVER + 11, 1), 0);
    sgl_output_fetch(graph, "y", node("dynamic_update", 3, (sgl_value[]){ x, slice(x, 0, 0, FEW, 1), at }, 1, &axis));
    return (outcome){ COUNT, written, 0 };
}
static uint8_t product(int64_t i)
{
    uint8_t sum = 0;
    for (int64_t k = 0; k < 16; k++) sum = (uint8_t)(sum + content(16 * i + k) * (k + 1));
    return sum;
}
static outcome multiplied(sgl_value x)
{
    sgl_value weights = cast(places(16, 1, 1), SGL_U8);
    sgl_output_fetch(graph, "y", two("matmul", shaped(x, 2, tall), weights));
    return (outcome){ tall[0], product, 0 };
}
/* Two in a byte, the first in the low half; moved by one place, so that no byte is as it was. */
static uint8_t nibble(int64_t i)
{
    int64_t first = 2 * i + 1;
    return (uint8_t)((content(first) & 15) | (content(first + 1) & 15) << 4);
}
static outcome nibbles(sgl_value x)
{
    sgl_output_fetch(graph, "y", slice(cast(x, SGL_I4), 0, 1, COUNT - 1, 1));
    return (outcome){ COUNT / 2 - 1, nibble, 0 };
}

static const struct {
    const char *name;
    outcome (*make)(sgl_value x);
} cases[] = {
    { "chain", chain },
    { "counter", counter },
    { "truths", truths },
    { "floats", floats },
    { "nibbles", nibbles },
    { "slice", sliced_flat },
    { "slice-wide", sliced_wide },
    { "gather", gathered },
    { "gather-rows", gathered_rows },
    { "take", taken },
    { "scatter", scattered },
    { "sum", summed },
    { "sum-columns", summed_columns },
    { "sum-rows", summed_rows },
    { "argmax", largest_at },
    { "running-sum", run_sums },
    { "transpose", transposed },
    { "flip", flipped },
    { "concat", concatenated },
    { "concat-columns", concatenated_columns },
    { "pad", padded },
    { "slice-at", sliced_at },
    { "update-at", updated_at },
    { "matmul", multiplied },
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- the run ---------------------------------------------------------------------------------------------------------- */

static bool look_at(const char *name, const outcome *o, int64_t i)
{
    if (i < 0 || i >= o->count || host[i] == o->expected(i)) return true;
    printf("huge: %s: element %" PRId64 " is %d, %d is expected\n", name, i, host[i], o->expected(i));
    return false;
}

static bool look_at_all(const char *name, const outcome *o)
{
    bool good = true;
    for (int64_t k = 0; k < NEAR && good; k++)
        good = look_at(name, o, k) && look_at(name, o, o->count - 1 - k) && look_at(name, o, OVER + k - NEAR / 2) &&
               look_at(name, o, OVER / 2 + k - NEAR / 2);
    for (int64_t k = 0; k < SAMPLES && good; k++)
        good = look_at(name, o, (int64_t)(((uint64_t)k * UINT64_C(0x9e3779b97f4a7c15) >> 20) % (uint64_t)o->count));
    return good;
}

static bool run_case(int number)
{
    const sgl_type type = { .dtype = SGL_U8, .rank = 1, .dims = { COUNT } };
    const char *name = cases[number].name, *feed;
    sgl_program *program;
    sgl_value x;
    int64_t single = 0;
    check(sgl_session_new(vm, "cpu", &session), name);
    check(sgl_graph_new(vm, name, &graph), name);
    check(sgl_input(graph, SGL_FEED, "x", &type, &x), name);
    const outcome o = cases[number].make(x);
    check(sgl_freeze(session, graph, NULL, &program), name);
    int64_t bytes = sgl_program_bytes(program);
    check(sgl_program_feed(program, 0, &feed, NULL), name);
    for (int64_t i = 0; feed != NULL && i < COUNT; i++) host[i] = content(i);
    if (feed != NULL) check(sgl_feed(program, "x", host, (size_t)COUNT), name);
    check(sgl_step(program), name);
    if (o.expected == NULL)
        check(sgl_fetch(program, "y", &single, sizeof single), name);
    else
        check(sgl_fetch(program, "y", host, (size_t)o.count), name);
    bool good = o.expected != NULL ? look_at_all(name, &o) : single == o.number;
    if (o.expected == NULL && !good)
        printf("huge: %s: it is %" PRId64 ", %" PRId64 " is expected\n", name, single, o.number);
    printf("huge: %-16s %s, %.2f GiB\n", name, good ? "ok" : "WRONG", (double)bytes / (1 << 30));
    fflush(stdout);
    sgl_graph_free(graph);
    sgl_session_free(session);
    return good;
}

int main(int argc, char **argv)
{
    int wrong = 0, run = 0;
    host = malloc((size_t)COUNT + FEW);
    if (host == NULL || sgl_open(NULL, &vm) != SGL_OK) {
        printf("huge: there is no memory for %" PRId64 " bytes\n", COUNT + FEW);
        return 1;
    }
    for (int n = 0; n < CASES; n++) {
        bool asked = argc < 2;
        for (int i = 1; i < argc; i++) asked = asked || strcmp(argv[i], cases[n].name) == 0;
        if (!asked) continue;
        wrong += !run_case(n);
        run++;
    }
    sgl_close(vm);
    free(host);
    printf("huge: %d cases of more than 2^31 elements, %d wrong\n", run, wrong);
    return wrong > 0 || run == 0;
}

/* test_cuda_emit.c -- how fused regions stand as CUDA source: what is under way before it is used, where sums stand, which tables
 * there are; and that NVRTC takes all of it.
 *
 * In: FUSED nodes in the text form. Out: their source and launches. What the kernels compute needs a GPU (scripts/gpu-check). */
#include "cuda_case.h"

#include "backend/cuda/emit.h"
#include "exec/program.h"

enum { MOST_OPERANDS = 8, MOST_TEXT = 4096 };

typedef struct emit_case {
    sglcore_env env;
    sglir_graph *g;
    sglexec_kernel kernel;
    sglexec_operand operands[MOST_OPERANDS];
    sglcuda_emitted emitted;
} emit_case;

/* The fused node of the text, its operands at places of 256 bytes, but for one that lies `askew` bytes behind such a place. */
static void emit(emit_case *c, const char *text, int skewed, int64_t askew)
{
    *c = (emit_case){ .env = cuda_case_env() };
    sglir_id fused = SGLIR_NONE;
    if (sglir_parse(&c->env, "case", text, strlen(text), &c->g) != SGL_OK)
        fail_msg("%s\nin:\n%s", c->env.message, text);
    for (int64_t n = 0; n < c->g->nodes.count; n++)
        if (c->g->nodes.data[n].op == SGLIR_OP_FUSED) fused = (sglir_id)n;
    assert_int_not_equal(fused, SGLIR_NONE);
    if (sglexec_kernel_build(&c->env, c->g, fused, &c->kernel) != SGL_OK) fail_msg("%s", c->env.message);
    const sglir_node *node = sglir_node_at(c->g, fused);
    const int count = (int)(node->arg_count + node->out_count);
    assert_true(count <= MOST_OPERANDS);
    if (skewed >= 0) c->operands[skewed].offset = askew;
    if (sglcuda_emit(&c->env, &c->kernel, c->operands, count, &c->emitted) != SGL_OK) fail_msg("%s", c->env.message);
    assert_int_equal(sglcore_text_bytes(&c->env, &c->emitted.text, "", 1), SGL_OK);
}

/* Where NVRTC is there, every entry is found in what it makes of the text. */
static void compile(emit_case *c)
{
    sglcuda_text text = { .text = c->emitted.text.data, .label = c->emitted.entries[0].name };
    sglcuda_compiler *compiler = NULL;
    sglcuda_batch *batch = NULL;
    sglcuda_compiled how;
    int64_t failed;
    int major, minor;
    if (sglcuda_nvrtc_version(&c->env, &major, &minor) != SGL_OK) return;
    setenv("SGL_CACHE", "off", 1);
    if (sglcuda_open_compiler(&c->env, 9, 0, 1, &compiler) != SGL_OK) fail_msg("%s", c->env.message);
    if (sglcuda_begin_texts(compiler, &text, 1, &batch) != SGL_OK) fail_msg("%s", c->env.message);
    if (sglcuda_end_texts(batch, &how, &failed) != SGL_OK) fail_msg("%s\nin:\n%s", c->env.message, text.text);
    for (int n = 0; n < c->emitted.count; n++) {
        char name[64];
        bool found = false;
        const size_t length = (size_t)snprintf(name, sizeof name, ".text.%s", c->emitted.entries[n].name) + 1;
        for (int64_t at = 0; at + (int64_t)length <= text.bytes && !found; at++)
            found = memcmp(text.cubin + at, name, length) == 0;
        assert_true(found);
    }
    sglcuda_free_cubins(&c->env, &text, 1);
    sglcuda_close_compiler(compiler);
}

static void finish(emit_case *c)
{
    compile(c);
    sglcore_text_free(&c->env, &c->emitted.text);
    sglexec_kernel_free(&c->env, &c->kernel);
    sglir_graph_free(c->g);
    assert_int_equal(c->env.bytes_in_use, 0);
}

static int count_of(const emit_case *c, const char *part)
{
    int count = 0;
    for (const char *at = c->emitted.text.data; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

/* A row's sum, and sums over the rows, as many as asked for, of products with it: much of a norm's gradient. */
static const char *rows_text(int rows, int cols, int sums)
{
    static char text[MOST_TEXT];
    int at = snprintf(text, sizeof text,
                      "graph \"g\" {\n"
                      "  %%0 = input() {role=2, name=\"x\", dtype=bf16, dims=[%d,%d]}\n"
                      "  %%1 = input() {role=2, name=\"dy\", dtype=f32, dims=[%d,%d]}\n"
                      "  %%2, %%3%s%s = fused(%%0, %%1) {domain=[%d,%d], inner=1} {\n"
                      "    region(%%6: bf16[%d,%d], %%7: f32[%d,%d]) {\n"
                      "      %%8 = cast(%%6) {to=f32}\n"
                      "      %%9 = mul(%%8, %%7)\n"
                      "      %%10 = reduce_sum(%%9) {axes=[1], keep=1}\n"
                      "      %%11 = broadcast(%%10) {dims=[%d,%d]}\n"
                      "      %%12 = mul(%%8, %%11)\n"
                      "      %%13 = reduce_sum(%%12) {axes=[0], keep=0}\n",
                      rows, cols, rows, cols, sums > 1 ? ", %4" : "", sums > 2 ? ", %5" : "", rows, cols, rows, cols,
                      rows, cols, rows, cols);
    for (int n = 1; n < sums; n++)
        at += snprintf(text + at, sizeof text - (size_t)at, "      %%%d = reduce_sum(%%%d) {axes=[0], keep=0}\n",
                       13 + n, n == 1 ? 9 : 7);
    snprintf(text + at, sizeof text - (size_t)at,
             "      yield %%12, %%13%s%s\n    }\n  }\n  fetch \"y\" %%2\n  fetch \"s\" %%3\n%s%s}\n",
             sums > 1 ? ", %14" : "", sums > 2 ? ", %15" : "", sums > 1 ? "  fetch \"t\" %4\n" : "",
             sums > 2 ? "  fetch \"u\" %5\n" : "");
    return text;
}

/* Both loads are under way before the row is begun, whatever of it is there; three sums stand in shared memory. */
static void test_rows(void **state)
{
    (void)state;
    emit_case c;
    emit(&c, rows_text(64, 768, 3), -1, 0);
    assert_int_equal(count_of(&c, "sgl_fetch<bf16>"), 1);
    assert_int_equal(count_of(&c, "sgl_fetch<f32>"), 1);
    assert_int_equal(count_of(&c, "sgl_there"), 0);
    assert_int_equal(count_of(&c, "const bool active = true"), 1);
    assert_int_equal(count_of(&c, "sgl_fold_run<SGL_SUM>"), 3);
    assert_string_equal(c.emitted.entries[0].name, "rows");
    assert_int_equal(c.emitted.entries[0].grid.shared, 3 * 8 * 768 * 4);
    finish(&c);
}

/* One sum of short rows stands in registers, and passes through shared memory at the end. */
static void test_few_sums(void **state)
{
    (void)state;
    emit_case c;
    emit(&c, rows_text(64, 256, 1), -1, 0);
    assert_int_equal(count_of(&c, "sgl_fold_run"), 0);
    assert_int_equal(c.emitted.entries[0].grid.shared, 8 * 256 * 4);
    finish(&c);
}

/* Rows of 760 = 95 runs: the last thread's is read as the one before, and counts for nothing. */
static void test_short_rows(void **state)
{
    (void)state;
    emit_case c;
    emit(&c, rows_text(61, 760, 2), -1, 0);
    assert_int_equal(count_of(&c, "sgl_fetch<"), 2);
    assert_true(count_of(&c, "place < 760u ? place : 752u") > 0);
    assert_true(count_of(&c, "active && place < 760u") > 0);
    assert_int_equal(count_of(&c, "there < 61ll"), 1);
    finish(&c);
}

/* Of runs that are not whole each element is asked for. */
static void test_ragged_rows(void **state)
{
    (void)state;
    emit_case c;
    emit(&c, rows_text(64, 770, 1), -1, 0);
    assert_int_equal(count_of(&c, "sgl_fetch<"), 0);
    assert_true(count_of(&c, "sgl_there(col, 770ll)") > 0);
    finish(&c);
}

/* What does not lie at a multiple of 16 bytes is not fetched by so many; the other is. */
static void test_askew(void **state)
{
    (void)state;
    emit_case c;
    emit(&c, rows_text(64, 768, 1), 1, 4);
    assert_int_equal(count_of(&c, "sgl_fetch<bf16>"), 1);
    assert_int_equal(count_of(&c, "sgl_fetch<f32>"), 0);
    assert_true(count_of(&c, "sgl_take<f32, false>") > 0);
    finish(&c);
}

/* Long rows: all runs of a thread have sums of their own, which leave room for one round of the part's lanes in four. */
static void test_rounds(void **state)
{
    (void)state;
    emit_case c;
    emit(&c, rows_text(64, 8192, 1), -1, 0);
    assert_int_equal(count_of(&c, "if (round > 0) x = sgl_fold<SGL_SUM>((near"), 1);
    assert_int_equal(c.emitted.entries[0].grid.shared, 2 * 8192 * 4);
    finish(&c);
}

/* ---- columns and map --------------------------------------------------------------------------------------------------- */

static void test_columns(void **state)
{
    (void)state;
    emit_case c;
    emit(&c,
         "graph \"g\" {\n"
         "  %0 = input() {role=2, name=\"x\", dtype=bf16, dims=[100,512]}\n"
         "  %1 = fused(%0) {domain=[100,512], inner=1} {\n"
         "    region(%2: bf16[100,512]) {\n"
         "      %3 = cast(%2) {to=f32}\n"
         "      %4 = reduce_sum(%3) {axes=[0], keep=0}\n"
         "      yield %4\n"
         "    }\n"
         "  }\n"
         "  fetch \"y\" %1\n"
         "}\n",
         -1, 0);
    assert_string_equal(c.emitted.entries[0].name, "columns");
    assert_int_equal(count_of(&c, "sgl_fetch<bf16>"), 2); /* the first row, and the next one of each */
    assert_int_equal(count_of(&c, "if (row >= 100ull) break"), 1);
    finish(&c);
}

static unsigned blocks_of_map(const char *elements)
{
    emit_case c;
    char text[MOST_TEXT];
    snprintf(text, sizeof text,
             "graph \"g\" {\n"
             "  %%0 = input() {role=2, name=\"x\", dtype=f32, dims=[%s]}\n"
             "  %%1 = fused(%%0) {domain=[%s], inner=1} {\n"
             "    region(%%2: f32[%s]) {\n"
             "      %%3 = neg(%%2)\n"
             "      yield %%3\n"
             "    }\n"
             "  }\n"
             "  fetch \"y\" %%1\n"
             "}\n",
             elements, elements, elements);
    emit(&c, text, -1, 0);
    assert_int_equal(count_of(&c, "sgl_there"), 0);
    const unsigned blocks = c.emitted.entries[0].grid.blocks[0];
    finish(&c);
    return blocks;
}

/* Of gigabytes a block takes four times as much. */
static void test_large_map(void **state)
{
    (void)state;
    assert_int_equal(blocks_of_map("268435456"), (1 << 28) / 2048);
    assert_int_equal(blocks_of_map("536870920"), (1 << 29) / 8192 + 1);
}

/* Two pieces and two numbers that begin alike: one table of beginnings, one search in it per block, and in a run none. */
static void test_pieces(void **state)
{
    (void)state;
    emit_case c;
    emit(&c,
         "graph \"g\" {\n"
         "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[3000]}\n"
         "  %1 = input() {role=2, name=\"y\", dtype=f32, dims=[5000]}\n"
         "  %2 = fused(%0, %1) {domain=[8000], inner=1} {\n"
         "    region(%3: f32[3000], %4: f32[5000]) {\n"
         "      %5 = pack(%3, %4)\n"
         "      %6 = segments() {counts=[3000,5000], values=[0.5,0], dtype=f32}\n"
         "      %7 = mul(%5, %6)\n"
         "      yield %7\n"
         "    }\n"
         "  }\n"
         "  fetch \"z\" %2\n"
         "}\n",
         -1, 0);
    assert_int_equal(count_of(&c, "__constant__ int64 firsts"), 1);
    assert_int_equal(count_of(&c, "__constant__ int64 numbers"), 1);
    assert_int_equal(count_of(&c, "const int low"), 1);
    assert_int_equal(count_of(&c, "sgl_take_pieces<f32>"), 1);
    assert_int_equal(count_of(&c, "sgl_take_segments<f32>"), 1);
    finish(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_few_sums), cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_ragged_rows), cmocka_unit_test(test_askew),    cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_columns),     cmocka_unit_test(test_pieces),   cmocka_unit_test(test_large_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

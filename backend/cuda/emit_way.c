/* emit_way.c -- the loops of the ways in which a kernel goes: map, columns, chunks (rows: emit_rows.c).
 *
 * In: an emitter and a scope. Out: one entry each, printed, and its launch. Odd invariant: how much work a block takes is
 * decided by the kernel alone where sums are taken, so that their order is. */
#include "backend/cuda/emit_parts.h"

#include <stdio.h>

enum {
    MAP_THREADS = 256,
    /* Of a thread where an array has gigabytes: each page of memory is then seen by fewer processors. Of less it costs
     * more than it brings. */
    MAP_RUNS = 4,
    MANY_ELEMENTS = 1 << 29,
    COLUMN_LANES = 32,  /* threads beside one another in a block of the way columns, a run each */
    COLUMN_FETCHES = 48 /* registers for what is under way of a row and of the next one */
};

/* So many threads of a multiprocessor should be at work for its memory to be: what a kernel takes of registers is bounded by that. Columns
 * that are little more than added up have room for more, and need them, having one row under way each. */
enum { LEAST_RESIDENT = 1024, LEAST_RESIDENT_LIGHT = 1536, MOST_LIGHT_STEPS = 4 };

void sglcuda_put_head(sglcuda_emitter *e, const char *name, int threads, int resident)
{
    sglcuda_put(
        e, "\nextern \"C\" __global__ void __launch_bounds__(%d, %d) %s(const __grid_constant__ sgl_places a)\n{\n",
        threads, (int)sglcuda_max(resident / threads, 1), name);
}

sglcuda_grid sglcuda_line_of(int64_t blocks, int threads, int beside)
{
    return (sglcuda_grid){ .blocks = { (unsigned)blocks, 1, 1 },
                           .threads = { (unsigned)threads, (unsigned)beside, 1 } };
}

void sglcuda_put_sums(sglcuda_emitter *e, const sglcuda_scope *s, sglexec_step_kind kind, int phase, int runs)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != kind || !s->wanted[i] || (phase >= 0 && step->phase != phase)) continue;
        const char *T = sglcuda_dtype(step->dtype), *fold = sglcuda_fold(step);
        const long long n = (long long)i;
        sglcuda_put(e, "typedef sgl_sum_type<%s>::near near%lld;\nnear%lld sum%lld", T, n, n, n);
        if (runs == 0)
            sglcuda_put(e, " = sgl_neutral<%s, %s, near%lld>();\n", fold, T, n);
        else
            sglcuda_put(e,
                        "[%d][8];\n_Pragma(\"unroll\") for (int k = 0; k < %d; k++) SGL_EACH sum%lld[k][e] = "
                        "sgl_neutral<%s, %s, near%lld>();\n",
                        runs, runs, n, fold, T, n);
    }
}

void sglcuda_put_ends(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int64_t i = 0; i < e->kernel->steps.count && s->stores; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_STORE || step->form != SGLEXEC_FULL || step->dtype != SGL_I4) continue;
        sglcuda_put(e, "if (blockIdx.x == 0 && threadIdx.x == 0) sgl_end<i4>(a.p[%u], %lldll);\n", step->operand,
                    (long long)e->cut.elements);
    }
}

static void put_all_numbers(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int phase = 0; phase <= s->last_phase; phase++) sglcuda_put_numbers(e, s, phase);
}

static void put_all_vectors(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int phase = 0; phase <= s->last_phase; phase++) sglcuda_put_vectors(e, s, phase);
}

/* What of the run from `start` on is there, and the brace in which it is computed. */
static void put_run(sglcuda_emitter *e, const sglcuda_scope *s, int64_t end)
{
    if (s->whole)
        sglcuda_put(e, "if (start < %lldll) {\nconst int m = 8;\n", (long long)end);
    else
        sglcuda_put(e, "const int m = sgl_there(start, %lldll);\nif (m > 0) {\n", (long long)end);
    sglcuda_put(e, "const %s col = (%s)start;\nconst bool here = true;\n", sglcuda_index(e), sglcuda_index(e));
}

/* ---- map ------------------------------------------------------------------------------------------------------------ */

/* The chunk's part of each total, by all threads of the block. */
static void put_partial_totals(sglcuda_emitter *e, const sglcuda_scope *s)
{
    sglcuda_put(e, "__shared__ int64 slots[32];\n");
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_TOTAL || !s->wanted[i]) continue;
        const int64_t at = e->cut.totals_at + sglcuda_sum_number(e->kernel, step) * e->cut.chunks * 8;
        const long long n = (long long)i;
        sglcuda_put(e, "sum%lld = sgl_fold_lanes<%s, %d>(sum%lld, slots);\n", n, sglcuda_fold(step), s->lanes, n);
        sglcuda_put(
            e, "if (threadIdx.x == 0) ((sgl_sum_type<%s>::wide *)((char *)a.p[%d] + %lldll))[blockIdx.x] = sum%lld;\n",
            sglcuda_dtype(step->dtype), e->operand_count, (long long)at, n);
    }
}

static int map_runs(const sglcuda_emitter *e, const sglcuda_scope *s)
{
    if (s->totals) return s->vectors;
    return e->cut.elements >= MANY_ELEMENTS ? MAP_RUNS : 1;
}

void sglcuda_put_map(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    const long long all = (long long)e->cut.elements;
    const int threads = s->totals ? s->lanes : MAP_THREADS, runs = map_runs(e, s);
    const int64_t block = (int64_t)threads * SGLCUDA_RUN * runs;
    if (all == 0) return;
    sglcuda_put_head(e, name, threads, LEAST_RESIDENT);
    char first[64], last[96];
    snprintf(first, sizeof first, "(int64)blockIdx.x * %lldll", (long long)block);
    snprintf(last, sizeof last, "(int64)blockIdx.x * %lldll + %lldll", (long long)block, (long long)block - 1);
    sglcuda_put_bounds(e, s, first, last);
    if (s->totals) sglcuda_put_sums(e, s, SGLEXEC_TOTAL, -1, 0);
    put_all_numbers(e, s);
    sglcuda_put(e, "for (int k = 0; k < %d; k++) {\n", runs);
    sglcuda_put(e, "const int64 start = (int64)blockIdx.x * %lldll + (k * %d + (int)threadIdx.x) * 8;\n",
                (long long)block, threads);
    put_run(e, s, all);
    put_all_vectors(e, s);
    sglcuda_put(e, "}\n}\n");
    if (s->totals) put_partial_totals(e, s);
    sglcuda_put_ends(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, sglcuda_line_of(sglcuda_ceil_div(all, block), threads, 1));
}

/* ---- once per row ----------------------------------------------------------------------------------------------------- */

void sglcuda_put_row_results(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    if (e->cut.rows == 0) return;
    sglcuda_put_head(e, name, MAP_THREADS, LEAST_RESIDENT);
    sglcuda_put(
        e,
        "const int64 row = (int64)blockIdx.x * %d + threadIdx.x;\nif (row >= %lldll) return;\nconst bool first = true;\n",
        MAP_THREADS, (long long)e->cut.rows);
    sglcuda_put_bounds(e, s, NULL, NULL);
    put_all_numbers(e, s);
    sglcuda_put_row_stores(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, sglcuda_line_of(sglcuda_ceil_div(e->cut.rows, MAP_THREADS), MAP_THREADS, 1));
}

/* ---- columns ---------------------------------------------------------------------------------------------------------- */

/* The lanes' sums in shared memory become one in the workspace, a column of the tile by each thread. */
static void put_partial_columns(sglcuda_emitter *e, const sglcuda_scope *s)
{
    const int width = COLUMN_LANES * SGLCUDA_RUN;
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_COLUMN_SUM || !s->wanted[i]) continue;
        const int64_t at = e->cut.columns_at + sglcuda_sum_number(e->kernel, step) * e->cut.parts * e->cut.cols * 8;
        const long long n = (long long)i;
        sglcuda_put(e, "{\n__syncthreads();\nnear%lld *own = (near%lld *)room;\n", n, n);
        sglcuda_put(e, "SGL_EACH own[threadIdx.y * %d + threadIdx.x * 8 + e] = sum%lld[0][e];\n__syncthreads();\n",
                    width, n);
        sglcuda_put(e, "const int at = threadIdx.y * %d + threadIdx.x;\nconst int64 column = (int64)tile * %d + at;\n",
                    COLUMN_LANES, width);
        sglcuda_put(e, "if (column < %lldll) {\nnear%lld x = own[at];\n", (long long)e->cut.cols, n);
        sglcuda_put(e, "for (int lane = 1; lane < %d; lane++) x = sgl_fold<%s>(x, own[lane * %d + at]);\n",
                    SGLCUDA_PART_LANES, sglcuda_fold(step), width);
        sglcuda_put(e, "((sgl_sum_type<%s>::wide *)((char *)a.p[%d] + %lldll))[part * %lldll + column] = x;\n}\n}\n",
                    sglcuda_dtype(step->dtype), e->operand_count, (long long)at, (long long)e->cut.cols);
    }
}

static void put_next_row(sglcuda_emitter *e, const sglcuda_scope *s, bool ragged)
{
    const char *I = sglcuda_index(e);
    sglcuda_put(e, "if (step + %d < %lld) {\n", SGLCUDA_PART_LANES, (long long)e->cut.part_rows);
    sglcuda_put(e, "%s next = row + %d;\n", I, SGLCUDA_PART_LANES);
    if (ragged) sglcuda_put(e, "if (next >= %lldull) next = row;\n", (long long)e->cut.rows);
    sglcuda_put(e, "{\nconst %s row = next;\n", I);
    sglcuda_put_fetch(e, s, "next", 0);
    sglcuda_put(e, "}\n}\n");
}

/* The loop over the rows of a part: while one is computed with, the next one is under way. */
static void put_column_rows(sglcuda_emitter *e, const sglcuda_scope *s)
{
    const sglcuda_cut *cut = &e->cut;
    const bool ragged = cut->rows % cut->part_rows != 0;
    const char *I = sglcuda_index(e);
    sglcuda_choose_fetched(e, s, 2, COLUMN_FETCHES);
    sglcuda_put(e, "if (m > 0) {\n");
    if (s->whole) sglcuda_put(e, "const int m = 8;\n");
    sglcuda_put(e, "const bool here = true;\n");
    sglcuda_put_fetched(e, "next", 1);
    sglcuda_put(e, "{\n%s row = (%s)(part * %lldll + threadIdx.y);\n", I, I, (long long)cut->part_rows);
    if (ragged) sglcuda_put(e, "if (row >= %lldull) row = 0;\n", (long long)cut->rows);
    sglcuda_put_fetch(e, s, "next", 0);
    sglcuda_put(e, "}\nfor (int step = threadIdx.y; step < %lld; step += %d) {\n", (long long)cut->part_rows,
                SGLCUDA_PART_LANES);
    sglcuda_put(e, "const %s row = (%s)(part * %lldll + step);\n", I, I, (long long)cut->part_rows);
    if (ragged) sglcuda_put(e, "if (row >= %lldull) break;\n", (long long)cut->rows);
    for (int64_t i = 0; i < e->kernel->steps.count; i++)
        if (e->fetched[i])
            sglcuda_put(e, "const sgl_run<%s> f%lld[1] = { next%lld[0] };\n",
                        sglcuda_dtype(e->kernel->steps.data[i].dtype), (long long)i, (long long)i);
    put_next_row(e, s, ragged);
    put_all_numbers(e, s);
    put_all_vectors(e, s);
    sglcuda_put(e, "}\n}\n");
}

void sglcuda_put_columns(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    const sglcuda_cut *cut = &e->cut;
    const int64_t tiles = sglcuda_ceil_div(cut->cols, COLUMN_LANES * SGLCUDA_RUN);
    if (cut->elements == 0) return;
    const bool light = e->kernel->steps.count <= MOST_LIGHT_STEPS;
    sglcuda_put_head(e, name, COLUMN_LANES * SGLCUDA_PART_LANES, light ? LEAST_RESIDENT_LIGHT : LEAST_RESIDENT);
    sglcuda_put(e, "__shared__ int64 room[%d];\n", COLUMN_LANES * SGLCUDA_RUN * SGLCUDA_PART_LANES);
    sglcuda_put(e, "const int64 part = blockIdx.x / %lldu;\nconst %s tile = blockIdx.x %% %lldu;\n", (long long)tiles,
                sglcuda_index(e), (long long)tiles);
    sglcuda_put(e, "const %s col = (tile * %d + threadIdx.x) * 8;\n", sglcuda_index(e), COLUMN_LANES);
    sglcuda_put(e, "const int m = sgl_there(col, %lldll), k = 0;\nconst bool active = true;\n", (long long)cut->cols);
    sglcuda_put_bounds(e, s, NULL, NULL);
    sglcuda_put_sums(e, s, SGLEXEC_COLUMN_SUM, -1, 1);
    sglcuda_scope steady = *s, varying = *s;
    steady.share = SGLCUDA_STEADY;
    varying.share = SGLCUDA_VARYING;
    put_all_numbers(e, &steady);
    put_all_vectors(e, &steady);
    put_column_rows(e, &varying);
    put_partial_columns(e, s);
    sglcuda_put_ends(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, sglcuda_line_of(tiles * cut->parts, COLUMN_LANES, SGLCUDA_PART_LANES));
}

/* ---- chunks ----------------------------------------------------------------------------------------------------------- */

void sglcuda_put_chunks(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    const sglcuda_cut *cut = &e->cut;
    if (cut->rows == 0) return;
    const int64_t chunks = sglcuda_max(cut->row_chunks, 1);
    sglcuda_put_head(e, name, s->lanes, LEAST_RESIDENT);
    sglcuda_put(e, "__shared__ int64 slots[32];\nconst int64 row_ = blockIdx.x / %lldu, chunk = blockIdx.x %% %lldu;\n",
                (long long)chunks, (long long)chunks);
    sglcuda_put(e, "const %s row = (%s)row_;\n", sglcuda_index(e), sglcuda_index(e));
    sglcuda_put_bounds(e, s, NULL, NULL);
    put_all_numbers(e, s);
    sglcuda_put_sums(e, s, SGLEXEC_REDUCE, s->last_phase, 0);
    sglcuda_put(e,
                "for (int k = 0; k < %d; k++) {\nconst int64 start = chunk * %dll + (k * %d + (int)threadIdx.x) * 8;\n",
                s->vectors, SGLCUDA_CHUNK, s->lanes);
    put_run(e, s, cut->cols);
    put_all_vectors(e, s);
    sglcuda_put(e, "}\n}\n");
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_REDUCE || step->phase != s->last_phase || !s->wanted[i]) continue;
        const int64_t at = cut->partial_at + sglcuda_sum_number(e->kernel, step) * cut->rows * chunks * 8;
        const long long n = (long long)i;
        sglcuda_put(e, "sum%lld = sgl_fold_lanes<%s, %d>(sum%lld, slots);\n", n, sglcuda_fold(step), s->lanes, n);
        sglcuda_put(
            e, "if (threadIdx.x == 0) ((sgl_sum_type<%s>::wide *)((char *)a.p[%d] + %lldll))[blockIdx.x] = sum%lld;\n",
            sglcuda_dtype(step->dtype), e->operand_count, (long long)at, n);
    }
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, sglcuda_line_of(cut->rows * chunks, s->lanes, 1));
}

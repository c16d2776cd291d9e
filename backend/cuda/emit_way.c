/* emit_way.c -- the loops of the ways in which a kernel goes: map, columns, rows, chunks.
 *
 * In: an emitter and a scope. Out: one entry each, printed, and its launch. Odd invariant: how much work a block takes is
 * decided by the kernel alone where sums are taken, so that their order is. */
#include "backend/cuda/emit_parts.h"

enum {
    MAP_THREADS = 256,
    COLUMN_LANES = 32,  /* threads beside one another in a block of the way columns, a run each */
    ROWS_THREADS = 128, /* of a block in which rows are shared by fewer threads, without sums over the rows */
    PART_THREADS = 512, /* with such sums: at most this many, the lanes of a part over and over where they are more */
    LEAST_PART_THREADS = 256
};

/* So many threads of a multiprocessor should be at work for its memory to be: what a kernel takes of registers is bounded by
 * that. Those that keep a row have several loads under way each. */
enum { LEAST_RESIDENT = 1024, LEAST_RESIDENT_ROWS = 512 };

void sglcuda_put_head(sglcuda_emitter *e, const char *name, int threads, int resident)
{
    sglcuda_put(
        e, "\nextern \"C\" __global__ void __launch_bounds__(%d, %d) %s(const __grid_constant__ sgl_places a)\n{\n",
        threads, (int)sglcuda_max(resident / threads, 1), name);
}

static sglcuda_grid line_of(int64_t blocks, int threads, int beside)
{
    return (sglcuda_grid){ .blocks = { (unsigned)blocks, 1, 1 },
                           .threads = { (unsigned)threads, (unsigned)beside, 1 } };
}

/* near<n> and sum<n> of the sums of a kind (of one phase, -1: of all). runs: eight for each of so many runs; 0: one. */
static void put_sums(sglcuda_emitter *e, const sglcuda_scope *s, sglexec_step_kind kind, int phase, int runs)
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

/* Every element of an i4 array that ends in half a byte: the other half. */
static void put_ends(sglcuda_emitter *e, const sglcuda_scope *s)
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

void sglcuda_put_map(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    const long long all = (long long)e->cut.elements;
    const int threads = s->totals ? s->lanes : MAP_THREADS;
    const int64_t block = (int64_t)threads * SGLCUDA_RUN * (s->totals ? s->vectors : 1);
    if (all == 0) return;
    sglcuda_put_head(e, name, threads, LEAST_RESIDENT);
    if (s->totals) put_sums(e, s, SGLEXEC_TOTAL, -1, 0);
    put_all_numbers(e, s);
    if (s->totals)
        sglcuda_put(e, "for (int k = 0; k < %d; k++) {\n", s->vectors);
    else
        sglcuda_put(e, "{ const int k = 0;\n");
    sglcuda_put(e, "const int64 start = (int64)blockIdx.x * %lldll + (k * %d + (int)threadIdx.x) * 8;\n",
                (long long)block, threads);
    sglcuda_put(e, "const int m = sgl_there(start, %lldll);\nif (m > 0) {\nconst %s col = (%s)start;\n", all,
                sglcuda_index(e), sglcuda_index(e));
    put_all_vectors(e, s);
    sglcuda_put(e, "}\n}\n");
    if (s->totals) put_partial_totals(e, s);
    put_ends(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, line_of(sglcuda_ceil_div(all, block), threads, 1));
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
    put_all_numbers(e, s);
    sglcuda_put_row_stores(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, line_of(sglcuda_ceil_div(e->cut.rows, MAP_THREADS), MAP_THREADS, 1));
}

/* ---- columns ---------------------------------------------------------------------------------------------------------- */

/* `lanes` rows of `width` partial sums in shared memory become one in the workspace; the thread (lane, at) has a run of them. */
static void put_partial_columns(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_COLUMN_SUM || !s->wanted[i]) continue;
        const int64_t at = e->cut.columns_at + sglcuda_sum_number(e->kernel, step) * e->cut.parts * e->cut.cols * 8;
        const long long n = (long long)i;
        const char *fold = sglcuda_fold(step), *T = sglcuda_dtype(step->dtype);
        sglcuda_put(e, "{\n__syncthreads();\nnear%lld *own = (near%lld *)room + threadIdx.y * %d + threadIdx.x * 8;\n",
                    n, n, COLUMN_LANES * SGLCUDA_RUN);
        sglcuda_put(e,
                    "SGL_EACH own[e] = sum%lld[0][e];\n__syncthreads();\nif (threadIdx.y == 0) SGL_EACH if (e < m) {\n",
                    n);
        sglcuda_put(
            e, "near%lld x = own[e];\nfor (int lane = 1; lane < %d; lane++) x = sgl_fold<%s>(x, own[lane * %d + e]);\n",
            n, SGLCUDA_PART_LANES, fold, COLUMN_LANES * SGLCUDA_RUN);
        sglcuda_put(e, "((sgl_sum_type<%s>::wide *)((char *)a.p[%d] + %lldll))[part * %lldll + col + e] = x;\n}\n}\n",
                    T, e->operand_count, (long long)at, (long long)e->cut.cols);
    }
}

void sglcuda_put_columns(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    const sglcuda_cut *cut = &e->cut;
    const int64_t tiles = sglcuda_ceil_div(cut->cols, COLUMN_LANES * SGLCUDA_RUN);
    if (cut->elements == 0) return;
    sglcuda_put_head(e, name, COLUMN_LANES * SGLCUDA_PART_LANES, LEAST_RESIDENT);
    sglcuda_put(e, "__shared__ int64 room[%d];\n", COLUMN_LANES * SGLCUDA_RUN * SGLCUDA_PART_LANES);
    sglcuda_put(e, "const int64 part = blockIdx.x / %lldu;\n", (long long)tiles);
    sglcuda_put(e, "const %s col = (%s)(blockIdx.x %% %lldu * %d + threadIdx.x) * 8;\n", sglcuda_index(e),
                sglcuda_index(e), (long long)tiles, COLUMN_LANES);
    sglcuda_put(e, "const int m = sgl_there(col, %lldll), k = 0;\nconst bool active = true;\n", (long long)cut->cols);
    put_sums(e, s, SGLEXEC_COLUMN_SUM, -1, 1);
    sglcuda_scope steady = *s, varying = *s;
    steady.share = SGLCUDA_STEADY;
    varying.share = SGLCUDA_VARYING;
    put_all_numbers(e, &steady);
    put_all_vectors(e, &steady);
    sglcuda_put(e, "if (m > 0) for (int step = threadIdx.y; step < %lld; step += %d) {\n", (long long)cut->part_rows,
                SGLCUDA_PART_LANES);
    sglcuda_put(e, "const %s row = (%s)(part * %lldll + step);\n", sglcuda_index(e), sglcuda_index(e),
                (long long)cut->part_rows);
    if (cut->rows % cut->part_rows != 0) sglcuda_put(e, "if (row >= %lldull) break;\n", (long long)cut->rows);
    put_all_numbers(e, &varying);
    put_all_vectors(e, &varying);
    sglcuda_put(e, "}\n");
    put_partial_columns(e, s);
    put_ends(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, line_of(tiles * cut->parts, COLUMN_LANES, SGLCUDA_PART_LANES));
}

/* ---- rows ------------------------------------------------------------------------------------------------------------- */

/* Groups of threads in a block, each with a row at a time. */
static int groups_of(const sglcuda_cut *cut, int lanes)
{
    if (!cut->columns) return lanes >= ROWS_THREADS ? 1 : ROWS_THREADS / lanes;
    int groups = PART_THREADS / lanes;
    if (lanes == 32) groups = LEAST_PART_THREADS / lanes;
    return groups > SGLCUDA_PART_LANES ? SGLCUDA_PART_LANES : groups;
}

static void put_row_sums(sglcuda_emitter *e, const sglcuda_scope *s, int phase)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_REDUCE || step->phase != phase || !s->wanted[i]) continue;
        const char *T = sglcuda_dtype(step->dtype);
        sglcuda_put(e, "const %s::held r%u = sgl_result<%s>(sgl_fold_lanes<%s, %d>(sum%lld, slots));\n", T, step->out,
                    T, sglcuda_fold(step), s->lanes, (long long)i);
    }
}

/* All that is done with one row; `row`, `active`, `lane`. */
static void put_row(sglcuda_emitter *e, const sglcuda_scope *s)
{
    const long long cols = (long long)e->cut.cols;
    sglcuda_put_kept(e, s);
    for (int phase = 0; phase <= s->last_phase; phase++) {
        sglcuda_put_numbers(e, s, phase);
        put_sums(e, s, SGLEXEC_REDUCE, phase, 0);
        sglcuda_put(e, "_Pragma(\"unroll\") for (int k = 0; k < %d; k++) {\n", s->vectors);
        sglcuda_put(
            e, "const uint32 col = (uint32)(lane + k * %d) * 8;\nconst int m = active ? sgl_there(col, %lldll) : 0;\n",
            s->lanes, cols);
        sglcuda_put_vectors(e, s, phase);
        sglcuda_put(e, "}\n");
        put_row_sums(e, s, phase);
    }
    if (!sglcuda_has_row_results(e->kernel)) return;
    /* A result may take the place of an argument that another thread has still to read. */
    sglcuda_put(e, s->lanes > 32 ? "__syncthreads();\n" : "__syncwarp();\n");
    sglcuda_put_row_stores(e, s);
}

/* The groups' sums over their rows, one lane of the part after another, into `whole<n>` of the first group or the workspace. */
static void put_part_sums(sglcuda_emitter *e, const sglcuda_scope *s, int groups)
{
    const long long cols = (long long)e->cut.cols;
    const bool rounds = groups < SGLCUDA_PART_LANES;
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_COLUMN_SUM || !s->wanted[i]) continue;
        const int64_t at = e->cut.columns_at + sglcuda_sum_number(e->kernel, step) * e->cut.parts * e->cut.cols * 8;
        const char *fold = sglcuda_fold(step), *T = sglcuda_dtype(step->dtype);
        const long long n = (long long)i;
        sglcuda_put(e, "{\n__syncthreads();\nnear%lld *own = (near%lld *)room + lane * 8;\n", n, n);
        sglcuda_put(
            e,
            "_Pragma(\"unroll\") for (int k = 0; k < %d; k++) SGL_EACH own[(group * %d + k) * %d + e] = sum%lld[k][e];\n",
            s->vectors, s->vectors, s->lanes * SGLCUDA_RUN, n);
        sglcuda_put(e,
                    "__syncthreads();\nif (group == 0) _Pragma(\"unroll\") for (int k = 0; k < %d; k++) SGL_EACH {\n",
                    s->vectors);
        sglcuda_put(e, "near%lld x = own[k * %d + e];\n", n, s->lanes * SGLCUDA_RUN);
        if (rounds) sglcuda_put(e, "if (round > 0) x = sgl_fold<%s>(whole%lld[k][e], x);\n", fold, n);
        sglcuda_put(e,
                    "for (int other = 1; other < %d; other++) x = sgl_fold<%s>(x, own[(other * %d + k) * %d + e]);\n",
                    groups, fold, s->vectors, s->lanes * SGLCUDA_RUN);
        if (rounds) sglcuda_put(e, "whole%lld[k][e] = x;\n", n);
        sglcuda_put(e, "const int64 at = (int64)(lane + k * %d) * 8 + e;\n", s->lanes);
        sglcuda_put(
            e,
            "if (%sat < %lldll) ((sgl_sum_type<%s>::wide *)((char *)a.p[%d] + %lldll))[(int64)blockIdx.x * %lldll + at] = x;\n}\n}\n",
            rounds ? "last_round && " : "", cols, T, e->operand_count, (long long)at, cols);
    }
}

static void put_parts(sglcuda_emitter *e, const sglcuda_scope *s, int groups)
{
    const sglcuda_cut *cut = &e->cut;
    const bool rounds = groups < SGLCUDA_PART_LANES;
    sglcuda_put(e, "extern __shared__ int64 room[];\n");
    if (rounds) {
        for (int64_t i = 0; i < e->kernel->steps.count; i++) {
            const sglexec_step *step = &e->kernel->steps.data[i];
            if (step->kind != SGLEXEC_COLUMN_SUM || !s->wanted[i]) continue;
            sglcuda_put(e, "sgl_sum_type<%s>::near whole%lld[%d][8];\n", sglcuda_dtype(step->dtype), (long long)i,
                        s->vectors);
        }
    }
    sglcuda_put(e, "for (int round = 0; round < %d; round++) {\n", SGLCUDA_PART_LANES / groups);
    if (rounds) sglcuda_put(e, "const bool last_round = round == %d;\n", SGLCUDA_PART_LANES / groups - 1);
    put_sums(e, s, SGLEXEC_COLUMN_SUM, -1, s->vectors);
    sglcuda_put(e, "for (int step = 0; step < %lld; step += %d) {\n", (long long)cut->part_rows, SGLCUDA_PART_LANES);
    sglcuda_put(e, "const int64 there = (int64)blockIdx.x * %lldll + step + round * %d + group;\n",
                (long long)cut->part_rows, groups);
    sglcuda_put(
        e, "const bool active = there < %lldll, first = active && lane == 0;\nconst %s row = active ? (%s)there : 0;\n",
        (long long)cut->rows, sglcuda_index(e), sglcuda_index(e));
    put_row(e, s);
    sglcuda_put(e, "}\n");
    put_part_sums(e, s, groups);
    sglcuda_put(e, "}\n");
}

/* Of what sums over the rows are added up in, as sgl_sum_type has it: the largest. */
static int near_bytes(const sglexec_kernel *kernel)
{
    for (int64_t i = 0; i < kernel->steps.count; i++) {
        const sglexec_step *step = &kernel->steps.data[i];
        const bool near = sglcore_dtype_is_float((sgl_dtype)step->dtype) && step->dtype != SGL_F64;
        if (step->kind == SGLEXEC_COLUMN_SUM && !near) return (int)sizeof(double);
    }
    return (int)sizeof(float);
}

void sglcuda_put_rows(sglcuda_emitter *e, const char *name, const sglcuda_scope *s)
{
    const sglcuda_cut *cut = &e->cut;
    const int groups = groups_of(cut, s->lanes), threads = groups * s->lanes;
    if (cut->rows == 0) return;
    sglcuda_put_head(e, name, threads, LEAST_RESIDENT_ROWS);
    sglcuda_put(e, "__shared__ int64 slots[32];\nconst int lane = threadIdx.x %% %d, group = threadIdx.x / %d;\n",
                s->lanes, s->lanes);
    sglcuda_grid grid = line_of(cut->columns ? cut->parts : sglcuda_ceil_div(cut->rows, groups), threads, 1);
    if (cut->columns) {
        grid.shared = (unsigned)(groups * s->vectors * s->lanes * SGLCUDA_RUN * near_bytes(e->kernel));
        put_parts(e, s, groups);
    } else {
        sglcuda_put(e, "const int64 there = (int64)blockIdx.x * %d + group;\n", groups);
        sglcuda_put(
            e,
            "const bool active = there < %lldll, first = active && lane == 0;\nconst %s row = active ? (%s)there : 0;\n",
            (long long)cut->rows, sglcuda_index(e), sglcuda_index(e));
        put_row(e, s);
    }
    put_ends(e, s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, grid);
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
    put_all_numbers(e, s);
    put_sums(e, s, SGLEXEC_REDUCE, s->last_phase, 0);
    sglcuda_put(e,
                "for (int k = 0; k < %d; k++) {\nconst int64 start = chunk * %dll + (k * %d + (int)threadIdx.x) * 8;\n",
                s->vectors, SGLCUDA_CHUNK, s->lanes);
    sglcuda_put(e, "const int m = sgl_there(start, %lldll);\nif (m > 0) {\nconst %s col = (%s)start;\n",
                (long long)cut->cols, sglcuda_index(e), sglcuda_index(e));
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
    sglcuda_add_entry(e, name, line_of(cut->rows * chunks, s->lanes, 1));
}

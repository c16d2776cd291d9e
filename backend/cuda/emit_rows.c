/* emit_rows.c -- the way rows: a row stays in the registers of the threads that share it while its sums are taken.
 *
 * In: an emitter and a scope. Out: one entry, printed, and its launch. A block has several rows at a time, a group of threads each; with sums over
 * the rows it walks down the rows of a part. Odd invariant: those sums stand in registers or in shared memory, whichever leaves
 * more registers for loads under way; their order is that of the part's lanes either way. */
#include "backend/cuda/emit_parts.h"

enum {
    ROWS_THREADS = 128, /* of a block in which rows are shared by fewer threads, without sums over the rows */
    PART_THREADS = 512, /* with such sums: at most this many, the lanes of a part over and over where they are more */
    LEAST_PART_THREADS = 256,
    /* So many threads of a multiprocessor should be at work. Those that keep a row have several loads under way each. */
    LEAST_RESIDENT = 512,
    ROW_FETCHES = 84,      /* registers for what is under way of a row, */
    LONG_ROW_FETCHES = 48, /* and where a thread has so many runs of it that what is kept leaves less room */
    LONG_ROW_RUNS = 4,
    LEAST_SHARED_RUNS = 3,    /* runs of sums over the rows, per thread, that are worth shared memory */
    MOST_SHARED_BYTES = 98304 /* that every GPU of the capability gives a block, with room for what else it takes */
};

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

/* The loop over a thread's runs of the row. Of runs that are whole or not there, those beyond the row's end are read as its last one,
 * so that no load waits for a condition. */
static void put_runs(sglcuda_emitter *e, const sglcuda_scope *s)
{
    const long long cols = (long long)e->cut.cols;
    const bool full = s->whole && (int64_t)s->lanes * s->vectors * SGLCUDA_RUN == e->cut.cols;
    sglcuda_put(
        e, "_Pragma(\"unroll\") for (int k = 0; k < %d; k++) {\nconst uint32 place = (uint32)(lane + k * %d) * 8;\n",
        s->vectors, s->lanes);
    if (full)
        sglcuda_put(e, "const uint32 col = place;\nconst bool here = active;\nconst int m = 8;\n");
    else if (s->whole)
        sglcuda_put(
            e,
            "const uint32 col = place < %lldu ? place : %lldu;\nconst bool here = active && place < %lldu;\nconst int m = 8;\n",
            cols, cols - SGLCUDA_RUN, cols);
    else
        sglcuda_put(
            e,
            "const uint32 col = place;\nconst int m = active ? sgl_there(col, %lldll) : 0;\nconst bool here = true;\n",
            cols);
}

static void put_fetches(sglcuda_emitter *e, const sglcuda_scope *s, int phase)
{
    if (!sglcuda_fetches(e, phase)) return;
    put_runs(e, s);
    sglcuda_put_fetch(e, s, "f", phase);
    sglcuda_put(e, "}\n");
}

/* All that is done with one row; `row`, `active`, `lane`. */
static void put_row(sglcuda_emitter *e, const sglcuda_scope *s)
{
    sglcuda_put_fetched(e, "f", s->vectors);
    put_fetches(e, s, 0);
    sglcuda_put_kept(e, s);
    for (int phase = 0; phase <= s->last_phase; phase++) {
        sglcuda_put_numbers(e, s, phase);
        sglcuda_put_sums(e, s, SGLEXEC_REDUCE, phase, 0);
        put_runs(e, s);
        sglcuda_put_vectors(e, s, phase);
        sglcuda_put(e, "}\n");
        put_fetches(e, s, phase + 1);
        put_row_sums(e, s, phase);
    }
    if (!sglcuda_has_row_results(e->kernel)) return;
    /* A result may take the place of an argument that another thread has still to read. */
    sglcuda_put(e, s->lanes > 32 ? "__syncthreads();\n" : "__syncwarp();\n");
    sglcuda_put_row_stores(e, s);
}

/* `row` of `there`: the last one's place is taken by a thread whose row is not there. */
static void put_active(sglcuda_emitter *e, int64_t rows_at_once)
{
    const char *I = sglcuda_index(e);
    const bool all = e->cut.rows % rows_at_once == 0;
    sglcuda_put(e, "const bool active = ");
    if (all)
        sglcuda_put(e, "true, first = lane == 0;\nconst %s row = (%s)there;\n", I, I);
    else
        sglcuda_put(e, "there < %lldll, first = active && lane == 0;\nconst %s row = active ? (%s)there : 0;\n",
                    (long long)e->cut.rows, I, I);
}

/* ---- sums over the rows ------------------------------------------------------------------------------------------------ */

/* Of what they are added up in, as sgl_sum_type has it: the largest. */
static int near_bytes(const sglexec_kernel *kernel)
{
    for (int64_t i = 0; i < kernel->steps.count; i++) {
        const sglexec_step *step = &kernel->steps.data[i];
        const bool near = sglcore_dtype_is_float((sgl_dtype)step->dtype) && step->dtype != SGL_F64;
        if (step->kind == SGLEXEC_COLUMN_SUM && !near) return (int)sizeof(double);
    }
    return (int)sizeof(float);
}

/* Elements of one sum in shared memory: a row of partial results per group. */
static int64_t part_elements(const sglcuda_scope *s, int groups)
{
    return (int64_t)groups * s->vectors * s->lanes * SGLCUDA_RUN;
}

/* sum<n>: in shared memory, as sgl_fold_run has it, this thread's first run of its group's row; or in registers. */
static void put_part_begin(sglcuda_emitter *e, const sglcuda_scope *s, int groups)
{
    if (!s->shared) {
        sglcuda_put_sums(e, s, SGLEXEC_COLUMN_SUM, -1, s->vectors);
        return;
    }
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_COLUMN_SUM || !s->wanted[i]) continue;
        const char *T = sglcuda_dtype(step->dtype), *fold = sglcuda_fold(step);
        const long long n = (long long)i, half = s->lanes * SGLCUDA_RUN / 2;
        const long long at = (long long)(sglcuda_sum_number(e->kernel, step) * part_elements(s, groups));
        sglcuda_put(e, "typedef sgl_sum_type<%s>::near near%lld;\n", T, n);
        sglcuda_put(e, "near%lld *sum%lld = (near%lld *)((char *)room + %lldll) + group * %lld + lane * 4;\n", n, n, n,
                    at * near_bytes(e->kernel), half * 2 * s->vectors);
        sglcuda_put(e, "for (int k = 0; k < %d; k++) SGL_EACH sum%lld[k * %lld + e / 4 * %lld + e %% 4] = ", s->vectors,
                    n, half * 2, half);
        sglcuda_put(e, "sgl_neutral<%s, %s, near%lld>();\n", fold, T, n);
    }
}

/* One sum of the groups, one lane of the part after another, into the workspace, where those of earlier rounds are. */
static void put_part_sum(sglcuda_emitter *e, const sglcuda_scope *s, int groups, int64_t number)
{
    const sglexec_step *step = &e->kernel->steps.data[number];
    const int64_t sum = sglcuda_sum_number(e->kernel, step);
    const int64_t at = e->cut.columns_at + sum * e->cut.parts * e->cut.cols * 8;
    const char *fold = sglcuda_fold(step), *T = sglcuda_dtype(step->dtype);
    const long long n = (long long)number, half = s->lanes * SGLCUDA_RUN / 2;
    sglcuda_put(e, "__syncthreads();\n{\nnear%lld *own = (near%lld *)((char *)room + %lldll);\n", n, n,
                s->shared ? (long long)(sum * part_elements(s, groups) * near_bytes(e->kernel)) : 0ll);
    if (!s->shared) {
        sglcuda_put(e, "for (int k = 0; k < %d; k++) SGL_EACH\n", s->vectors);
        sglcuda_put(e, "own[(group * %d + k) * %lld + e / 4 * %lld + lane * 4 + e %% 4] = sum%lld[k][e];\n", s->vectors,
                    half * 2, half, n);
        sglcuda_put(e, "__syncthreads();\n");
    }
    sglcuda_put(e, "for (int at = threadIdx.x; at < %lld; at += %d) {\n", (long long)e->cut.cols, groups * s->lanes);
    sglcuda_put(e, "const int place = at / %lld * %lld + at / 4 %% 2 * %lld + at %% %lld / 8 * 4 + at %% 4;\n",
                half * 2, half * 2, half, half * 2);
    sglcuda_put(e, "sgl_sum_type<%s>::wide *to = (sgl_sum_type<%s>::wide *)((char *)a.p[%d] + %lldll);\n", T, T,
                e->operand_count, (long long)at);
    sglcuda_put(e, "to += (int64)blockIdx.x * %lldll + at;\nnear%lld x = own[place];\n", (long long)e->cut.cols, n);
    if (groups < SGLCUDA_PART_LANES) sglcuda_put(e, "if (round > 0) x = sgl_fold<%s>((near%lld)*to, x);\n", fold, n);
    sglcuda_put(e, "for (int other = 1; other < %d; other++) x = sgl_fold<%s>(x, own[other * %lld + place]);\n", groups,
                fold, half * 2 * s->vectors);
    sglcuda_put(e, "*to = x;\n}\n}\n");
}

static void put_part_end(sglcuda_emitter *e, const sglcuda_scope *s, int groups)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++)
        if (e->kernel->steps.data[i].kind == SGLEXEC_COLUMN_SUM && s->wanted[i]) put_part_sum(e, s, groups, i);
    if (groups < SGLCUDA_PART_LANES) sglcuda_put(e, "__syncthreads();\n");
}

static void put_parts(sglcuda_emitter *e, const sglcuda_scope *s, int groups)
{
    const sglcuda_cut *cut = &e->cut;
    sglcuda_put(e, "extern __shared__ __align__(16) int64 room[];\n");
    sglcuda_put(e, "for (int round = 0; round < %d; round++) {\n", SGLCUDA_PART_LANES / groups);
    put_part_begin(e, s, groups);
    sglcuda_put(e, "for (int step = 0; step < %lld; step += %d) {\n", (long long)cut->part_rows, SGLCUDA_PART_LANES);
    sglcuda_put(e, "const int64 there = (int64)blockIdx.x * %lldll + step + round * %d + group;\n",
                (long long)cut->part_rows, groups);
    put_active(e, cut->part_rows);
    put_row(e, s);
    sglcuda_put(e, "}\n");
    put_part_end(e, s, groups);
    sglcuda_put(e, "}\n");
}

/* Bytes of shared memory that the sums take; decides where they stand. */
static int64_t choose_shared(const sglcuda_emitter *e, sglcuda_scope *s, int groups)
{
    const int sums = sglcuda_sums(e->kernel, SGLEXEC_COLUMN_SUM);
    const int64_t one = part_elements(s, groups) * near_bytes(e->kernel);
    s->shared = sums * s->vectors >= LEAST_SHARED_RUNS && one * sums <= MOST_SHARED_BYTES;
    return s->shared ? one * sums : one;
}

void sglcuda_put_rows(sglcuda_emitter *e, const char *name, const sglcuda_scope *scope)
{
    const sglcuda_cut *cut = &e->cut;
    sglcuda_scope s = *scope;
    const int groups = groups_of(cut, s.lanes), threads = groups * s.lanes;
    if (cut->rows == 0) return;
    sglcuda_choose_fetched(e, &s, s.vectors, s.vectors < LONG_ROW_RUNS ? ROW_FETCHES : LONG_ROW_FETCHES);
    sglcuda_put_head(e, name, threads, LEAST_RESIDENT);
    sglcuda_put(e, "__shared__ int64 slots[32];\nconst int lane = threadIdx.x %% %d, group = threadIdx.x / %d;\n",
                s.lanes, s.lanes);
    sglcuda_put_bounds(e, &s, NULL, NULL);
    sglcuda_grid grid = sglcuda_line_of(cut->columns ? cut->parts : sglcuda_ceil_div(cut->rows, groups), threads, 1);
    if (cut->columns) {
        grid.shared = (unsigned)choose_shared(e, &s, groups);
        put_parts(e, &s, groups);
    } else {
        sglcuda_put(e, "const int64 there = (int64)blockIdx.x * %d + group;\n", groups);
        put_active(e, groups);
        put_row(e, &s);
    }
    sglcuda_put_ends(e, &s);
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, grid);
}

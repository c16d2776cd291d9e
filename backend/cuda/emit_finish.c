/* emit_finish.c -- from partial results to whole ones: the entries that run after chunks and parts have been summed.
 *
 * In: partial results in the workspace. Out: row sums in the workspace, totals and sums over the rows in their operands.
 * Odd invariant: these run also where there was nothing to sum, and then give what an empty range gives. */
#include "backend/cuda/emit_parts.h"

enum { FOLD_THREADS = 256, /* as sgl_fold_chunks has it */ COLUMN_LANES = 32 };

void sglcuda_put_finish_rows(sglcuda_emitter *e, const char *name, int phase)
{
    const sglcuda_cut *cut = &e->cut;
    const int64_t chunks = sglcuda_max(cut->row_chunks, 1);
    if (cut->rows == 0) return;
    sglcuda_put_head(e, name, FOLD_THREADS, FOLD_THREADS);
    sglcuda_put(e, "__shared__ int64 slots[32];\nchar *work = (char *)a.p[%d];\n", e->operand_count);
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_REDUCE || step->phase != phase) continue;
        const int number = sglcuda_sum_number(e->kernel, step);
        const char *T = sglcuda_dtype(step->dtype);
        sglcuda_put(
            e,
            "{\nconst sgl_sum_type<%s>::wide x = sgl_fold_chunks<%s, %s>(work + %lldll + (int64)blockIdx.x * %lldll, %lldll, slots);\n",
            T, sglcuda_fold(step), T, (long long)(cut->partial_at + number * cut->rows * chunks * 8),
            (long long)(chunks * 8), (long long)chunks);
        sglcuda_put(e, "if (threadIdx.x == 0) ((sgl_sum_type<%s>::wide *)(work + %lldll))[blockIdx.x] = x;\n}\n", T,
                    (long long)(cut->finals_at + number * cut->rows * 8));
    }
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name,
                      (sglcuda_grid){ .blocks = { (unsigned)cut->rows, 1, 1 }, .threads = { FOLD_THREADS, 1, 1 } });
}

void sglcuda_put_finish_totals(sglcuda_emitter *e, const char *name)
{
    const sglcuda_cut *cut = &e->cut;
    sglcuda_put_head(e, name, FOLD_THREADS, FOLD_THREADS);
    sglcuda_put(e, "__shared__ int64 slots[32];\nconst char *work = (const char *)a.p[%d];\n", e->operand_count);
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_TOTAL) continue;
        const char *T = sglcuda_dtype(step->dtype);
        sglcuda_put(e, "{\nconst sgl_sum_type<%s>::wide x = sgl_fold_chunks<%s, %s>(work + %lldll, %lldll, slots);\n",
                    T, sglcuda_fold(step), T,
                    (long long)(cut->totals_at + sglcuda_sum_number(e->kernel, step) * cut->chunks * 8),
                    (long long)cut->chunks);
        sglcuda_put(e,
                    "if (threadIdx.x == 0) { %s::store(a.p[%u], 0, sgl_result<%s>(x)); sgl_end<%s>(a.p[%u], 1); }\n}\n",
                    T, step->operand, T, T, step->operand);
    }
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name, (sglcuda_grid){ .blocks = { 1, 1, 1 }, .threads = { FOLD_THREADS, 1, 1 } });
}

/* The parts' sums of one column, a lane of 32 each or several. Of few parts a thread adds up all, which is the same order. */
static void put_finish_column(sglcuda_emitter *e, const sglexec_step *step)
{
    const sglcuda_cut *cut = &e->cut;
    const long long cols = (long long)cut->cols, parts = (long long)cut->parts;
    const char *T = sglcuda_dtype(step->dtype), *fold = sglcuda_fold(step);
    const int64_t at = cut->columns_at + sglcuda_sum_number(e->kernel, step) * cut->parts * cut->cols * 8;
    const bool few = cut->parts <= COLUMN_LANES;
    sglcuda_put(e, "typedef sgl_sum_type<%s>::wide wide;\nconst wide *parts = (const wide *)(work + %lldll) + col;\n",
                T, (long long)at);
    sglcuda_put(e, "wide x = sgl_neutral<%s, %s, wide>();\n", fold, T);
    sglcuda_put(e, "if (col < %lldll) _Pragma(\"unroll 8\") for (int64 part = %s; part < %lldll; part += %d)\n", cols,
                few ? "0" : "threadIdx.y", parts, few ? 1 : COLUMN_LANES);
    sglcuda_put(e, "x = sgl_fold<%s>(x, parts[part * %lldll]);\n", fold, cols);
    if (!few) {
        sglcuda_put(e, "((wide *)room)[threadIdx.y * %d + threadIdx.x] = x;\n__syncthreads();\n", COLUMN_LANES);
        sglcuda_put(e, "if (threadIdx.y == 0) for (int lane = 1; lane < %d; lane++)\n", COLUMN_LANES);
        sglcuda_put(e, "x = sgl_fold<%s>(x, ((const wide *)room)[lane * %d + threadIdx.x]);\n", fold, COLUMN_LANES);
    }
    sglcuda_put(e, "if (threadIdx.y == 0 && col < %lldll) {\n%s::store(a.p[%u], col, sgl_result<%s>(x));\n", cols, T,
                step->operand, T);
    sglcuda_put(e, "if (col == 0) sgl_end<%s>(a.p[%u], %lldll);\n}\n", T, step->operand, cols);
}

void sglcuda_put_finish_columns(sglcuda_emitter *e, const char *name)
{
    const sglcuda_cut *cut = &e->cut;
    const bool few = cut->parts <= COLUMN_LANES;
    const int beside = few ? FOLD_THREADS : COLUMN_LANES, lanes = few ? 1 : COLUMN_LANES;
    int sums = 0;
    if (cut->cols == 0) return;
    sglcuda_put_head(e, name, beside * lanes, beside * lanes);
    if (!few) sglcuda_put(e, "__shared__ int64 room[%d];\n", COLUMN_LANES * COLUMN_LANES);
    sglcuda_put(e,
                "const int64 col = (int64)blockIdx.x * %d + threadIdx.x;\nconst char *work = (const char *)a.p[%d];\n",
                beside, e->operand_count);
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        if (e->kernel->steps.data[i].kind != SGLEXEC_COLUMN_SUM) continue;
        sglcuda_put(e, "if (blockIdx.y == %d) {\n", sums++);
        put_finish_column(e, &e->kernel->steps.data[i]);
        sglcuda_put(e, "}\n");
    }
    sglcuda_put(e, "}\n");
    sglcuda_add_entry(e, name,
                      (sglcuda_grid){ .blocks = { (unsigned)sglcuda_ceil_div(cut->cols, beside), (unsigned)sums, 1 },
                                      .threads = { (unsigned)beside, (unsigned)lanes, 1 } });
}

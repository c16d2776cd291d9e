/* emit_fetch.c -- loads that are under way before their row is begun.
 *
 * In: an entry's scope and its wanted steps. Out: runs of eight as they lie in memory, which the steps then read in place of
 * memory. Why: what an instruction waits for holds up all that come after it, so a row whose loads stand where they are used has but one or
 * two of them under way. Odd invariant: a row is fetched before what lies in the rows before it is stored, which is right
 * since a result takes the place only of an argument that is read where it is stored. */
#include "backend/cuda/emit_parts.h"

bool sglcuda_is_fetchable(const sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step)
{
    int64_t stride;
    bool aligned;
    if (step->kind != SGLEXEC_LOAD || step->form != SGLEXEC_FULL || step->dtype == SGL_I4 || !s->whole) return false;
    return sglcuda_runs(e, s, &step->map, (int)step->operand, &stride, &aligned) && stride == 1 && aligned;
}

static int registers_of(const sglexec_step *step)
{
    return (int)sglcore_dtype_bytes((sgl_dtype)step->dtype, SGLCUDA_RUN) / 4;
}

void sglcuda_choose_fetched(sglcuda_emitter *e, const sglcuda_scope *s, int copies, int most_registers)
{
    int first = 0;
    for (int phase = 0; phase <= s->last_phase; phase++) {
        int later = 0; /* what the first phase has fetched is no more then, but what is kept is there */
        for (int64_t i = 0; i < e->kernel->steps.count; i++) {
            const sglexec_step *step = &e->kernel->steps.data[i];
            if (!s->wanted[i] || e->due[i] != phase || !sglcuda_is_fetchable(e, s, step)) continue;
            const int own = copies * registers_of(step);
            if (first + own <= most_registers) {
                first += own;
                e->fetched[i] = 1;
            } else if (phase > 0 && later + own <= most_registers / 2) {
                later += own;
                e->fetched[i] = (uint8_t)(phase + 1);
            }
        }
    }
}

void sglcuda_put_fetched(sglcuda_emitter *e, const char *name, int runs)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++)
        if (e->fetched[i])
            sglcuda_put(e, "sgl_run<%s> %s%lld[%d];\n", sglcuda_dtype(e->kernel->steps.data[i].dtype), name,
                        (long long)i, runs);
}

bool sglcuda_fetches(const sglcuda_emitter *e, int phase)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++)
        if (e->fetched[i] == phase + 1) return true;
    return false;
}

void sglcuda_put_fetch(sglcuda_emitter *e, const sglcuda_scope *s, const char *name, int phase)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (e->fetched[i] != phase + 1) continue;
        sglcuda_put(e, "sgl_fetch<%s>(a.p[%u], ", sglcuda_dtype(step->dtype), step->operand);
        sglcuda_put_address(e, s, &step->map, "row", "col");
        sglcuda_put(e, ", %s%lld[k]);\n", name, (long long)i);
    }
}

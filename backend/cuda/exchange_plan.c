/* exchange_plan.c -- exchanges made ready: from an instruction and its route to a command.
 *
 * In: an instruction of a program, what net_link.c says of it. Out: its command, with members, cuts and staging settled; a small
 * sum goes whole to everyone, a large one in parts. Odd invariant: staging is taken when all of a program's exchanges are known, once for
 * each link. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/exchange.h"

#ifdef SGLCUDA_HAS_NCCL

static int64_t most_of(const int64_t *counts, int ranks)
{
    int64_t most = 0;
    for (int p = 0; p < ranks; p++) most = sglcuda_max(most, counts[p]);
    return most;
}

/* For the largest of a link's exchanges that are reduced. */
static void want_staging(const sglcuda_exchange *x)
{
    int64_t bytes = 0;
    const int64_t longest = sglcuda_slice_elements(x->link->count, x->width);
    for (int m = 0; m < x->member_count; m++)
        bytes += sglcuda_ceil_div(x->members[m].most, longest) *
                 sglcuda_staged_bytes(x->link, x, sglcuda_min(x->members[m].most, longest));
    bytes = sglcuda_min(bytes, sglcuda_max(SGLCUDA_EXCHANGE_STAGING, sglcuda_staged_bytes(x->link, x, longest)));
    x->link->wanted_bytes = sglcuda_max(x->link->wanted_bytes, bytes);
}

static sgl_status find_reduction(sglcuda_prepare *p, sglcuda_exchange *x)
{
    static const char *const names[SGLEXEC_REDUCTION_COUNT] = { "sum", "max", "min" };
    const sglexec_exchange *given = x->linked->exchange;
    char name[64];
    snprintf(name, sizeof name, "exchange_%s_%s", names[given->reduction], sgl_dtype_name((sgl_dtype)given->dtype));
    return sglcuda_builtin(p, name, &x->reduce);
}

/* Balanced, each part but the last ones a multiple of what is aligned. */
static sgl_status add_parts(sglcuda_prepare *p, sglcuda_exchange *x, int64_t count)
{
    const int ranks = x->link->count;
    int64_t *parts = sglcuda_plan_alloc(p, ranks, sizeof *parts);
    sglcuda_member *gathered = sglcuda_plan_alloc(p, 1, sizeof *gathered);
    if (!parts || !gathered) return SGL_OUT_OF_MEMORY;
    const int64_t part = sglcuda_round_up(sglcuda_ceil_div(count, ranks), SGLCUDA_EXCHANGE_ALIGNED);
    for (int r = 0; r < ranks; r++) parts[r] = sglcuda_clamped(count, r * part, part);
    sglcuda_member *m = &x->members[0];
    *gathered = (sglcuda_member){ .from = m->to, .to = m->to, .counts = parts, .most = part };
    gathered->from.offset += sglcuda_elements_before(parts, x->link->place) * x->width;
    m->to = gathered->from;
    m->counts = parts;
    m->most = most_of(parts, ranks);
    x->gathered = gathered;
    return SGL_OK;
}

static sgl_status plan_reduction(sglcuda_prepare *p, sglcuda_exchange *x, int64_t count)
{
    const int ranks = x->link->count;
    const bool parts = x->linked->exchange->kind == SGLEXEC_ALL_REDUCE;
    SGLCORE_TRY(find_reduction(p, x));
    x->run = parts ? sglcuda_exchange_reduce_all : sglcuda_exchange_scatter;
    if (parts && ranks > 2 && count * x->width * ranks > SGLCUDA_EXCHANGE_WHOLE) SGLCORE_TRY(add_parts(p, x, count));
    want_staging(x);
    return SGL_OK;
}

static sgl_status plan_exchange(sglcuda_prepare *p, sglcuda_exchange *x)
{
    const sglexec_exchange *given = x->linked->exchange;
    if (x->link->count == 1) {
        x->run = sglcuda_exchange_alone;
        return SGL_OK;
    }
    switch (given->kind) {
    case SGLEXEC_ALL_REDUCE:
    case SGLEXEC_REDUCE_SCATTER: return plan_reduction(p, x, x->members[0].most);
    case SGLEXEC_ALL_GATHER: x->run = sglcuda_exchange_gather; return SGL_OK;
    case SGLEXEC_ALL_TO_ALL: x->run = sglcuda_exchange_turn; return SGL_OK;
    case SGLEXEC_SEND:
    case SGLEXEC_RECEIVE: x->run = sglcuda_exchange_one_way; return SGL_OK;
    default: return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: %s is no exchange of a program", given->label);
    }
}

static sgl_status fill_members(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_exchange *x)
{
    const sglexec_exchange *given = x->linked->exchange;
    const uint32_t ends = i->arg_count > i->result_count ? i->arg_count : i->result_count;
    x->member_count = given->members ? given->member_count : 1;
    x->members = sglcuda_plan_alloc(p, x->member_count, sizeof *x->members);
    if (!x->members) return SGL_OUT_OF_MEMORY;
    if ((uint32_t)x->member_count > ends)
        return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: %s has fewer operands than members", given->label);
    for (int m = 0; m < x->member_count; m++) {
        sglcuda_member *one = &x->members[m];
        const int64_t *counts = given->members ? given->members[m].counts : given->counts;
        const sglexec_operand *from = sglcuda_operand(p->program, i, (uint32_t)m);
        one->from = sglcuda_place_of(from);
        one->to = i->op == SGLIR_OP_SEND ? one->from
                                         : sglcuda_place_of(sglcuda_operand(p->program, i, i->arg_count + (uint32_t)m));
        one->counts = counts;
        one->counts_in = given->members ? given->members[m].counts_in : given->counts_in;
        one->most = counts ? most_of(counts, x->link->count) : given->count;
    }
    return SGL_OK;
}

static sgl_status add_number(sglcuda_prepare *p, const sglexec_instruction *i, const char *number,
                             sglcuda_command *command)
{
    const sglexec_operand *o = sglcuda_operand(p->program, i, 0);
    const sglcuda_place place = sglcuda_place_of(o);
    const sglcuda_function *function;
    sglcuda_exchange_number v = { .bytes = (int)sglcuda_bytes(o) };
    memcpy(v.number, number, (size_t)v.bytes);
    SGLCORE_TRY(sglcuda_builtin(p, "exchange_number", &function));
    const sglcuda_grid grid = { .blocks = { 1, 1, 1 }, .threads = { 1, 1, 1 } };
    return sglcuda_add_step(p, command, function, grid, &place, 1, &v, sizeof v);
}

sgl_status sglcuda_prepare_linked(sglcuda_prepare *p, const sglexec_instruction *i, const sglexec_linked *linked,
                                  const sglcuda_command *begun, sglcuda_command *command)
{
    const sglcuda_driver *driver = p->device->driver;
    if (i->op == SGLIR_OP_WAIT) {
        *command = (sglcuda_command){ sglcuda_exchange_wait, begun->plan };
        return SGL_OK;
    }
    if (!linked->link) return add_number(p, i, linked->number, command);
    sglcuda_exchange *x = sglcuda_plan_alloc(p, 1, sizeof *x);
    if (!x) return SGL_OUT_OF_MEMORY;
    x->linked = linked;
    x->link = linked->link;
    x->width = sglcore_dtype_bits((sgl_dtype)linked->exchange->dtype) / 8;
    SGLCORE_TRY(fill_members(p, i, x));
    SGLCORE_TRY(plan_exchange(p, x));
    SGLCORE_TRY(sglcuda_links_enter(p->device, linked, &x->id));
    *command = (sglcuda_command){ sglcuda_exchange_run, x };
    if (!linked->waits_later) return SGL_OK;
    return sglcuda_check(p->env, driver, driver->cuEventCreate(&x->ended, CU_EVENT_DISABLE_TIMING), "making an event");
}

sgl_status sglcuda_ready_linked(sglexec_device *device, const sglcuda_command *command)
{
    (void)device;
    if (command->run != sglcuda_exchange_run) return SGL_OK;
    sglcuda_exchange *x = (sglcuda_exchange *)command->plan;
    return x->reduce ? sglcuda_link_staging(x->link, &x->staging) : SGL_OK;
}

void sglcuda_release_linked(sglexec_device *device, const sglcuda_command *command)
{
    if (command->run != sglcuda_exchange_run) return;
    sglcuda_exchange *x = (sglcuda_exchange *)command->plan;
    if (x->ended) (void)device->driver->cuEventDestroy(x->ended);
    x->ended = NULL;
}

#endif

/* list.c -- instructions, in the order in which replay runs them, as events. In and out: list.h. */
#include "tune/list.h"

enum { MOST_EVENTS = 1 << 24 };

typedef struct lister {
    sglcore_env *env;
    const sglexec_program *program;
    const sglplan *plan;
    int64_t rank;
    const sgltune_rates *rates;
    sgltune_list *list;
    bool *later;     /* per instruction: a WAIT stands for it */
    uint32_t *begun; /* per instruction: the event of its last turn */
    uint32_t *told;  /* per instruction: one more than its label, 0: none yet */
} lister;

static int64_t elements_from(const sglexec_operand *o, int first)
{
    int64_t count = 1;
    for (int d = first; d < o->rank; d++) count *= o->dims[d];
    return count;
}

static int64_t elements_but(const sglexec_operand *o, int dim)
{
    int64_t count = 1;
    for (int d = 0; d < o->rank; d++) count *= d == dim ? 1 : o->dims[d];
    return count;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

static int64_t elements_of_all(const sglexec_operand *o, uint32_t count)
{
    int64_t elements = 0;
    for (uint32_t i = 0; i < count; i++) elements += elements_from(o + i, 0);
    return elements;
}

static int64_t turned_elements(const sglexec_operand *from, const sglexec_operand *to, int64_t dim)
{
    return elements_from(dim == 1 ? from : to, 1);
}

static int64_t turned_elements_of_all(const lister *l, const sglexec_instruction *i, const sglexec_operand *from)
{
    int64_t elements = 0;
    int count;
    const int64_t *tos = sglexec_attr_ints(l->program, i, "tos", &count);
    for (uint32_t m = 0; m < i->arg_count; m++) elements += turned_elements(from + m, from + i->arg_count + m, tos[m]);
    return elements;
}

/* What all ranks of the group say alike of it, however uneven their parts: elements of what is whole. */
static int64_t whole_elements(const lister *l, const sglexec_instruction *i)
{
    const sglexec_operand *from = &l->program->operands.data[i->operand_first], *to = from + i->arg_count;
    switch (i->op) {
    case SGLIR_OP_ALL_GATHER:
    case SGLIR_OP_ALL_GATHER_EACH: return elements_of_all(to, i->result_count);
    case SGLIR_OP_REDUCE_SCATTER_EACH: return elements_of_all(from, i->arg_count);
    case SGLIR_OP_ALL_TO_ALL: return turned_elements(from, to, sglexec_attr_int(l->program, i, "to"));
    case SGLIR_OP_ALL_TO_ALL_EACH: return turned_elements_of_all(l, i, from);
    case SGLIR_OP_RING_SHIFT:
        return elements_but(from, (int)sglexec_attr_int(l->program, i, "dim")) *
               sglexec_attr_int(l->program, i, "whole");
    default: return elements_from(from, 0);
    }
}

/* Of an exchange of many all_to_alls: of each member, in their order. */
static uint64_t cut_of_turns(const lister *l, const sglexec_instruction *i)
{
    const sglexec_operand *from = &l->program->operands.data[i->operand_first], *to = from + i->arg_count;
    int count;
    const int64_t *units = sglexec_attr_ints(l->program, i, "units", &count);
    const int64_t *tos = sglexec_attr_ints(l->program, i, "tos", &count);
    uint64_t cut = 0;
    for (uint32_t m = 0; m < i->arg_count; m++) {
        const int64_t facts[] = { (int64_t)cut, tos[m] == 1 ? from[m].dims[1] : to[m].dims[1],
                                  turned_elements(&from[m], &to[m], tos[m]), units[m], tos[m] };
        cut = sglcore_hash_bytes(facts, sizeof facts).low;
    }
    return cut;
}

/* Of an exchange of many: of each member, in their order. */
static uint64_t cut_of_each(const lister *l, const sglexec_instruction *i)
{
    const sglexec_operand *first = &l->program->operands.data[i->operand_first];
    const sglexec_operand *whole = first + (i->op == SGLIR_OP_ALL_GATHER_EACH ? i->arg_count : 0);
    int count;
    const int64_t *units = sglexec_attr_ints(l->program, i, "units", &count);
    uint64_t cut = 0;
    for (uint32_t m = 0; m < i->arg_count; m++) {
        const int64_t facts[] = { (int64_t)cut, whole[m].dims[0], elements_from(&whole[m], 1), units[m] };
        cut = sglcore_hash_bytes(facts, sizeof facts).low;
    }
    return cut;
}

/* What makes each rank's part of it, or which of the channel's it is; alike where whole extents are. */
static uint64_t cut_of(const lister *l, const sglexec_instruction *i)
{
    const sglexec_operand *from = &l->program->operands.data[i->operand_first], *to = from + i->arg_count;
    int64_t facts[4] = { 0 };
    switch (i->op) {
    case SGLIR_OP_SEND:
    case SGLIR_OP_RECEIVE: return (uint64_t)sglexec_attr_int(l->program, i, "number");
    case SGLIR_OP_REDUCE_SCATTER_EACH:
    case SGLIR_OP_ALL_GATHER_EACH: return cut_of_each(l, i);
    case SGLIR_OP_ALL_TO_ALL_EACH: return cut_of_turns(l, i);
    case SGLIR_OP_REDUCE_SCATTER: facts[0] = from->dims[0]; break;
    case SGLIR_OP_ALL_GATHER: facts[0] = to->dims[0]; break;
    case SGLIR_OP_ALL_TO_ALL:
        facts[2] = sglexec_attr_int(l->program, i, "to");
        facts[0] = facts[2] == 1 ? from->dims[1] : to->dims[1];
        break;
    case SGLIR_OP_RING_SHIFT:
        facts[0] = sglexec_attr_int(l->program, i, "whole");
        facts[2] = sglexec_attr_int(l->program, i, "by");
        facts[3] = sglexec_attr_int(l->program, i, "of");
        break;
    default: return 0;
    }
    facts[1] = sglexec_attr_int(l->program, i, "unit");
    return sglcore_hash_bytes(facts, sizeof facts).low;
}

static bool is_twice(const sglexec_instruction *i) { return i->op == SGLIR_OP_ALL_REDUCE || i->op == SGLIR_OP_ALL_MAX; }

/* Bytes that a rank sends; transport.md has the formulas. */
static double bytes_sent(const lister *l, const sglexec_instruction *i, int64_t ranks)
{
    const sglexec_operand *from = &l->program->operands.data[i->operand_first];
    const bool parts =
        i->op == SGLIR_OP_ALL_TO_ALL || i->op == SGLIR_OP_ALL_TO_ALL_EACH || i->op == SGLIR_OP_RING_SHIFT;
    const int64_t elements = parts ? elements_of_all(from, i->arg_count) : whole_elements(l, i);
    const double bytes = (double)sglcore_dtype_bytes((sgl_dtype)from->dtype, elements), n = (double)ranks;
    if (ranks == 1) return 0;
    if (i->op == SGLIR_OP_SEND || i->op == SGLIR_OP_RECEIVE || i->op == SGLIR_OP_RING_SHIFT) return bytes;
    return bytes * (n - 1) / n * (is_twice(i) ? 2 : 1);
}

static sgl_status find_label(lister *l, uint32_t n, uint32_t *label)
{
    sglcore_text text = { 0 };
    sgl_status status = SGL_OK;
    if (l->told[n] == 0) {
        status = sglexec_exchange_label(l->program, &l->program->instructions.data[n], &text);
        if (status == SGL_OK) status = sgltune_list_label(l->env, l->list, text.data, label);
        if (status == SGL_OK) l->told[n] = *label + 1;
        sglcore_text_free(l->program->env, &text);
    }
    *label = l->told[n] - 1;
    return status;
}

static sgl_status add_exchange(lister *l, uint32_t n)
{
    const sglexec_instruction *i = &l->program->instructions.data[n];
    const bool sends = i->op == SGLIR_OP_SEND, receives = i->op == SGLIR_OP_RECEIVE;
    sgltune_way way = { .axes = sglexec_axes_of(l->program, i), .from = -1, .to = -1 };
    const int32_t own = (int32_t)sglplan_group_place(l->plan, way.axes, l->rank);
    if (sends || receives) {
        way.from = sends ? own : (int32_t)sglexec_attr_int(l->program, i, "from");
        way.to = sends ? (int32_t)sglexec_attr_int(l->program, i, "to") : own;
    }
    const int dtype = l->program->operands.data[i->operand_first].dtype;
    const int64_t ranks = sglplan_group_size(l->plan, way.axes);
    sgltune_event event = { .kind = (uint16_t)((receives ? SGLIR_OP_SEND : i->op) * 16 + dtype),
                            .amount = (uint64_t)whole_elements(l, i),
                            .cut = cut_of(l, i),
                            .seconds = l->rates->link > 0 ? bytes_sent(l, i, ranks) / l->rates->link : 0,
                            .latency = ranks == 1 ? 0 : l->rates->latency * (is_twice(i) ? 2 : 1) };
    SGLCORE_TRY(find_label(l, n, &event.label));
    SGLCORE_TRY(sgltune_list_begin(l->env, l->list, &way, &event, &l->begun[n]));
    return l->later[n] ? SGL_OK : sgltune_list_wait(l->env, l->list, l->begun[n]);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static bool exchanges(const lister *l, const sglexec_instruction *i);

static bool block_exchanges(const lister *l, uint32_t block)
{
    const sglexec_block *b = &l->program->blocks.data[block];
    for (uint32_t n = b->first; n < b->first + b->count; n++)
        if (exchanges(l, &l->program->instructions.data[n])) return true;
    return false;
}

static bool exchanges(const lister *l, const sglexec_instruction *i)
{
    if (!sglexec_is_control(i)) return sglir_is_exchange(i->op);
    const bool two = i->op != SGLIR_OP_SCAN;
    return block_exchanges(l, i->block) || (two && block_exchanges(l, i->other));
}

static sgl_status add_work(lister *l, const sglexec_instruction *i)
{
    const double flops = l->rates->flops > 0 ? i->flops / l->rates->flops : 0;
    const double bytes = l->rates->bytes > 0 ? i->bytes / l->rates->bytes : 0;
    return sgltune_list_work(l->env, l->list, flops > bytes ? flops : bytes);
}

static sgl_status add_block(lister *l, uint32_t block);

static sgl_status add_control(lister *l, const sglexec_instruction *i)
{
    const int64_t turns = i->op == SGLIR_OP_SCAN ? i->steps : 1;
    if (!exchanges(l, i)) return add_work(l, i);
    for (int64_t turn = 0; turn < turns; turn++) {
        if (i->op == SGLIR_OP_WHILE) SGLCORE_TRY(add_block(l, i->other));
        SGLCORE_TRY(add_block(l, i->block));
        if (i->op == SGLIR_OP_COND) SGLCORE_TRY(add_block(l, i->other));
    }
    return SGL_OK;
}

static sgl_status add_block(lister *l, uint32_t block)
{
    const sglexec_block *b = &l->program->blocks.data[block];
    for (uint32_t n = b->first; n < b->first + b->count; n++) {
        const sglexec_instruction *i = &l->program->instructions.data[n];
        sgl_status status = SGL_OK;
        if (l->list->events.count > MOST_EVENTS)
            return sglcore_fail(
                l->env, SGL_LIMIT,
                "program \"%s\" has more than %d exchanges and stretches of work in a step: too many to be "
                "told on paper; fewer micro-batches, or shorter loops that exchange, have fewer",
                sglcore_string(l->program->strings, l->program->name), (int)MOST_EVENTS);
        if (sglexec_is_control(i))
            status = add_control(l, i);
        else if (sglir_is_exchange(i->op))
            status = add_exchange(l, n);
        else if (i->op == SGLIR_OP_WAIT)
            status = sgltune_list_wait(l->env, l->list, l->begun[i->begun]);
        else if (!sglir_is_move(i->op)) /* beside what is computed */
            status = add_work(l, i);
        SGLCORE_TRY(status);
    }
    return SGL_OK;
}

sgl_status sgltune_list_of(sglcore_env *env, const sglexec_program *program, const sglplan *plan, int64_t rank,
                           const sgltune_rates *rates, sgltune_list *list)
{
    sglcore_arena arena = { .env = env };
    const size_t count = (size_t)program->instructions.count + 1;
    lister l = { .env = env, .program = program, .plan = plan, .rank = rank, .rates = rates, .list = list };
    l.later = sglcore_arena_alloc(&arena, count * sizeof *l.later);
    l.begun = sglcore_arena_alloc(&arena, count * sizeof *l.begun);
    l.told = sglcore_arena_alloc(&arena, count * sizeof *l.told);
    sgl_status status = l.later && l.begun && l.told ? SGL_OK : SGL_OUT_OF_MEMORY;
    for (int64_t n = 0; status == SGL_OK && n < program->instructions.count; n++) {
        const sglexec_instruction *i = &program->instructions.data[n];
        if (i->op == SGLIR_OP_WAIT) l.later[i->begun] = true;
    }
    if (status == SGL_OK) status = add_block(&l, 0);
    sglcore_arena_free(&arena);
    return status;
}

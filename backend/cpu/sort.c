/* sort.c -- sort and top_k: each line by a stable radix sort of keys whose order is that of the numbers.
 *
 * In: a line of any dtype. Out: its values in order and where each stood. A number becomes an unsigned key: of an integer
 * the number itself, shifted; of a float its bits, those of negative ones turned round, with -0 as 0 and NaN as the greatest;
 * descending, all but NaN's are turned round once more. Keys are sorted a byte at a time from the least (Knuth, TAOCP 3,
 * 5.2.5), leaving out bytes that all have alike; short lines by insertion. Odd invariant: equal keys keep their order. */
#include <string.h>

#include "backend/cpu/lines.h"

enum { FEW = 48, MOST_TASKS = 32 };

typedef struct entry {
    uint64_t key;
    int64_t index;
} entry;

typedef struct sort {
    const sglexec_operand *x, *values, *indices;
    sgl_dtype dtype;
    bool descending;
    sglcpu_lines from, to;
    int64_t lines_per_task, tasks, task_bytes; /* task_bytes: of workspace */
} sort;

typedef struct sort_job {
    const sglcpu_launch *launch;
    const sort *plan;
} sort_job;

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static uint64_t key_of(sglcpu_carrier x, bool real, bool descending)
{
    const uint64_t sign = UINT64_C(1) << 63;
    if (!real) return descending ? ~((uint64_t)x.integer ^ sign) : (uint64_t)x.integer ^ sign;
    if (x.real != x.real) return UINT64_MAX;
    if (x.real == 0) x.real = 0; /* of either sign */
    uint64_t bits = (uint64_t)x.integer, key = bits & sign ? ~bits : bits | sign;
    return descending ? ~key : key;
}

/* A line's entries in its order. `element`: of its first, in x. */
static void make_keys(const sort_job *j, entry *entries, int64_t element)
{
    const sort *s = j->plan;
    const char *x = sglcpu_at(j->launch, s->x);
    bool real = sglcpu_held_index(s->dtype) >= 0;
    int64_t run = s->from.inner == 1 ? SGLCPU_CARRIED : 1;
    sglcpu_carrier numbers[SGLCPU_CARRIED];
    for (int64_t i = 0; i < s->from.extent; i += run) {
        int64_t count = sglcpu_min(run, s->from.extent - i);
        sglcpu_read_carriers(j->launch->isa, s->dtype, numbers, x, element + i * s->from.inner, count);
        for (int64_t k = 0; k < count; k++)
            entries[i + k] = (entry){ .key = key_of(numbers[k], real, s->descending), .index = i + k };
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static void insert_all(entry *entries, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        entry in_hand = entries[i];
        int64_t at = i;
        for (; at > 0 && entries[at - 1].key > in_hand.key; at--) entries[at] = entries[at - 1];
        entries[at] = in_hand;
    }
}

/* Sorted entries: in `entries` or in `other`. */
static entry *radix(entry *entries, entry *other, int64_t count)
{
    int64_t counts[8][256];
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < count; i++) {
        for (int byte = 0; byte < 8; byte++) counts[byte][entries[i].key >> 8 * byte & 255]++;
    }
    for (int byte = 0; byte < 8; byte++) {
        int64_t *starts = counts[byte], start = 0;
        if (starts[entries[0].key >> 8 * byte & 255] == count) continue;
        for (int value = 0; value < 256; value++) {
            int64_t here = starts[value];
            starts[value] = start;
            start += here;
        }
        for (int64_t i = 0; i < count; i++) other[starts[entries[i].key >> 8 * byte & 255]++] = entries[i];
        entry *swap = entries;
        entries = other;
        other = swap;
    }
    return entries;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

static void sort_line(const sort_job *j, entry *entries, int64_t line)
{
    const sort *s = j->plan;
    int64_t outer = line / s->from.inner, col = line % s->from.inner, extent = s->from.extent;
    int64_t from = outer * extent * s->from.inner + col, to = outer * s->to.extent * s->to.inner + col;
    int64_t whole = s->to.outer * s->to.extent * s->to.inner;
    char *values = sglcpu_at(j->launch, s->values);
    int64_t *indices = (int64_t *)(void *)sglcpu_at(j->launch, s->indices);
    int bits = sglcore_dtype_bits(s->dtype);
    make_keys(j, entries, from);
    if (extent <= FEW)
        insert_all(entries, extent);
    else
        entries = radix(entries, entries + extent, extent);
    for (int64_t i = 0; i < s->to.extent; i++) {
        int64_t at = to + i * s->to.inner;
        indices[at] = entries[i].index;
        sglcpu_move_element(values, at, sglcpu_at(j->launch, s->x), from + entries[i].index * s->from.inner, bits,
                            whole);
    }
}

static void sort_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const sort_job *j = context;
    const sort *s = j->plan;
    int64_t lines = s->from.outer * s->from.inner, last = sglcpu_min((task + 1) * s->lines_per_task, lines);
    entry *entries = (entry *)(void *)(j->launch->work + task * s->task_bytes);
    for (int64_t line = task * s->lines_per_task; line < last; line++) sort_line(j, entries, line);
}

static void run_sort(const sglcpu_launch *launch, const void *plan)
{
    const sort *s = plan;
    sort_job j = { .launch = launch, .plan = s };
    sglcpu_parallel(launch->pool, s->tasks, sort_task, &j);
}

/* Each task has entries of its own, twice a line's. */
static void cut_sort(int64_t lines, int64_t extent, bool shared, int64_t *lines_per_task, int64_t *tasks,
                     int64_t *bytes)
{
    *lines_per_task = sglcpu_max(sglcpu_ceil_div(lines, shared ? 1 : MOST_TASKS), 1);
    *tasks = extent > 0 ? sglcpu_ceil_div(lines, *lines_per_task) : 0;
    *bytes = sglcpu_round_up(2 * extent * (int64_t)sizeof(entry), 64);
}

int64_t sglcpu_sort_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *x = sglir_type_of(g, sglir_arg(g, node, 0));
    int64_t axis = node->op == SGLIR_OP_TOP_K ? x->rank - 1 : sglir_attr_int(g, node, "axis");
    int64_t extent = x->dims[axis], lines_per_task, tasks, bytes;
    if (extent == 0) return 0;
    cut_sort(sglir_elements(x) / extent, extent, x->dtype == SGL_I4, &lines_per_task, &tasks, &bytes);
    return tasks * bytes;
}

sgl_status sglcpu_prepare_sort(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    sort *s = sglcpu_plan_alloc(p, 1, sizeof *s);
    if (s == NULL) return SGL_OUT_OF_MEMORY;
    s->x = sglcpu_operand(p->program, i, 0);
    s->values = s->x + 1;
    s->indices = s->x + 2;
    s->dtype = (sgl_dtype)s->x->dtype;
    bool top = i->op == SGLIR_OP_TOP_K;
    int64_t axis = top ? s->x->rank - 1 : sglexec_attr_int(p->program, i, "axis");
    s->descending = top || sglexec_attr_int(p->program, i, "descending") != 0;
    s->from = sglcpu_lines_of(s->x, axis);
    s->to = sglcpu_lines_of(s->values, axis);
    cut_sort(s->from.outer * s->from.inner, s->from.extent, s->dtype == SGL_I4, &s->lines_per_task, &s->tasks,
             &s->task_bytes);
    if (s->tasks * s->task_bytes > i->work_bytes)
        return sglcore_fail(p->env, SGL_INTERNAL, "cpu: %s needs %lld bytes of workspace and was given %lld",
                            sglir_ops[i->op].name, (long long)(s->tasks * s->task_bytes), (long long)i->work_bytes);
    *command = (sglcpu_command){ .run = run_sort, .plan = s };
    return SGL_OK;
}

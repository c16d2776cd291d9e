/* test_exec_members.c -- programs whose exchanges have many members: two values of other shapes handed out in one exchange, and
 * gathered again in one; two turned by one all_to_all, and one of them turned back beside another in the next; on 1 to 4 ranks that
 * no extent comes out even for; waited for at once or later, in place or by way of staging; nothing is allocated in a replay.
 *
 * In: a graph of one rank as text. Out: sums of what all ranks fed, and their parts, element by element. ctest: serial */
#include "net_rig.h"

enum { ROWS = 10, COLS = 3, LONG = 7, STEPS = 3 };

typedef struct members_case {
    sglplan plan;
    bool later, staged, turns;
} members_case;

static double fed(int64_t rank, int64_t i, int step) { return (double)((rank + 1) * (i % 17) + step); }

static void write_graph(const members_case *c, int rank, char *text, size_t room)
{
    const long long rows = (long long)sglplan_part_along(&c->plan, 1, rank, ROWS, 2).size,
                    length = (long long)sglplan_part_along(&c->plan, 1, rank, LONG, 1).size;
    const char *waits = c->later ? "  %20 = wait(%2, %0, %1)\n  %21 = wait(%3, %0, %1)\n" : "",
               *more = c->later ? "  %22 = wait(%4, %20, %21)\n  %23 = wait(%5, %20, %21)\n" : "",
               *parts = c->later ? "%20, %21" : "%2, %3";
    const int all = c->later ? 22 : 4;
    snprintf(text, room,
             "graph \"net\" {\n"
             "  %%0 = input() {role=2, name=\"p\", dtype=f32, dims=[%d,%d], partial=1}\n"
             "  %%1 = input() {role=2, name=\"q\", dtype=f32, dims=[%d], partial=1}\n"
             "  %%2, %%3 = reduce_scatter_each(%%0, %%1) {axes=1, owns=[%lld,%lld], units=[2,1]}\n%s"
             "  %%4, %%5 = all_gather_each(%s) {axes=1, extents=[%d,%d], units=[2,1]}\n%s"
             "  fetch \"p\" %%%d\n  fetch \"q\" %%%d\n}\n",
             ROWS, COLS, LONG, rows, length, waits, parts, ROWS, LONG, more, all, all + 1);
}

/* Both are turned; then the first one back, and the second one once more. */
static void write_turns(const members_case *c, int rank, char *text, size_t room)
{
    const long long rows = (long long)sglplan_part_along(&c->plan, 1, rank, ROWS, 2).size,
                    length = (long long)sglplan_part_along(&c->plan, 1, rank, LONG, 1).size,
                    ranks = (long long)c->plan.mesh[SGLIR_AXIS_DP];
    const char *waits = c->later ? "  %20 = wait(%2, %0, %1)\n  %21 = wait(%3, %0, %1)\n" : "",
               *more = c->later ? "  %22 = wait(%4, %20, %1)\n  %23 = wait(%5, %20, %1)\n" : "";
    const int once = c->later ? 20 : 2, twice = c->later ? 22 : 4;
    snprintf(text, room,
             "graph \"net\" {\n"
             "  %%0 = input() {role=2, name=\"p\", dtype=f32, dims=[1,%d,%d], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
             "  %%1 = input() {role=2, name=\"q\", dtype=f32, dims=[1,%d], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
             "  %%2, %%3 = all_to_all_each(%%0, %%1) {axes=1, ranks=%lld, tos=[1,1], extents=[%lld,%lld], "
             "units=[2,1]}\n%s"
             "  %%4, %%5 = all_to_all_each(%%%d, %%1) {axes=1, ranks=%lld, tos=[0,1], extents=[%d,%lld], "
             "units=[2,1]}\n%s"
             "  fetch \"apart\" %%%d\n  fetch \"long\" %%%d\n  fetch \"back\" %%%d\n  fetch \"again\" %%%d\n}\n",
             ROWS, COLS, LONG, ranks, rows, length, waits, once, ranks, ROWS, length, more, once, once + 1, twice,
             twice + 1);
}

/* of: the feeds, or the fetches. */
static float *numbers_of(const rig *g, bool of_feeds, int i)
{
    const sglexec_port *port = of_feeds ? &g->program->feeds.data[i] : &g->program->fetches.data[i];
    return (float *)(void *)((char *)g->spaces[port->operand.space] + port->operand.offset);
}

static const char *check_sums(const rig *g, const members_case *c, int step)
{
    for (int which = 0; which < 2; which++) {
        for (int64_t i = 0; i < (which ? LONG : ROWS * COLS); i++) {
            double wanted = 0;
            for (int64_t r = 0; r < c->plan.mesh[SGLIR_AXIS_DP]; r++) wanted += fed(r, i + 5 * which, step);
            if (numbers_of(g, false, which)[i] != (float)wanted) return "a member is wrong";
        }
    }
    return NULL;
}

/* This rank's rows of each rank's, and all of its own come back. */
static const char *check_turns(const rig *g, const members_case *c, int step)
{
    for (int which = 0; which < 4; which++) {
        const bool first = which % 2 == 0, back = which == 2;
        const sglplan_part part = back
                                      ? (sglplan_part){ .size = ROWS }
                                      : sglplan_part_along(&c->plan, 1, g->r->rank, first ? ROWS : LONG, first ? 2 : 1);
        const int64_t cols = first ? COLS : 1, count = part.size * cols, before = part.offset * cols;
        for (int64_t p = 0; p < (back ? 1 : c->plan.mesh[SGLIR_AXIS_DP]); p++) {
            for (int64_t i = 0; i < count; i++) {
                const double wanted = fed(back ? g->r->rank : p, before + i + (first ? 0 : 5), step);
                if (numbers_of(g, false, which)[p * count + i] != (float)wanted) return "a turned member is wrong";
            }
        }
    }
    return NULL;
}

static sgl_status run_steps(rig *g, const members_case *c)
{
    SGLCORE_TRY(sglexec_exchanges_make_groups(g->exchanges));
    const int64_t allocations = g->env->allocations;
    for (int step = 0; step < STEPS && !g->r->fault; step++) {
        for (int which = 0; which < 2; which++)
            for (int64_t i = 0; i < (which ? LONG : ROWS * COLS); i++)
                numbers_of(g, true, which)[i] = (float)fed(g->r->rank, i + 5 * which, step);
        SGLCORE_TRY(sglexec_replay(g->env, &g->ops, g->device, g->prepared, g->program, g->spaces, g->exchanges, NULL));
        g->r->fault = c->turns ? check_turns(g, c, step) : check_sums(g, c, step);
    }
    if (g->env->allocations != allocations) g->r->fault = "a replay allocated";
    return SGL_OK;
}

static void members_body(comm_rank *r)
{
    const members_case *c = r->all->context;
    char text[2048];
    rig g = { 0 };
    if (c->turns)
        write_turns(c, r->rank, text, sizeof text);
    else
        write_graph(c, r->rank, text, sizeof text);
    r->status = net_rig_open(&g, r, &c->plan, c->staged, text);
    if (r->status == SGL_OK) r->status = run_steps(&g, c);
    net_rig_close(&g);
}

static void test_programs(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int way = 0; way < 8; way++) {
            members_case c = { .later = way & 1, .staged = way & 2, .turns = way & 4 };
            sglplan_init(&c.plan);
            c.plan.mesh[SGLIR_AXIS_DP] = ranks;
            comm_case all = { .size = ranks, .options = { .timeout_s = 20 }, .body = members_body, .context = &c };
            loop_world(ranks, 0);
            comm_case_run(&all);
            comm_case_all_good(&all);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_programs) };
    return cmocka_run_group_tests_name("exec members", tests, NULL, NULL);
}

/* test_exec_net.c -- programs that exchange, one rank a thread over the loop: every op, dtypes, even and uneven parts, several
 * axes, in place and through staging; the hash of an order, which ranks compare; what a failed allocation leaves.
 *
 * Exchanges that are waited for later have begun where they stand, and a run that fails leaves none of them under way.
 * In: graphs of one rank in text form, written for each rank by itself. Out: fetches, held against sums counted by hand. */
#include "net_rig.h"
#include "wire.h"

enum { COLS = 3, MOST_ROWS = 16, STEPS = 3, BY = -5 };

typedef struct net_case {
    sglplan plan;
    sglplan_axes axes;
    const char *dtype;
    int64_t rows, unit;
    bool staged;
    int other; /* this rank has more rows, or (swapped) another order; -1: none */
    bool swapped;
    bool later; /* begun first, waited for afterwards */
} net_case;

static char *port_at(const rig *g, const char *name, const sglexec_operand **o)
{
    const sglexec_program *p = g->program;
    for (int64_t i = 0; i < p->feeds.count + p->fetches.count; i++) {
        const sglexec_port *port = i < p->feeds.count ? &p->feeds.data[i] : &p->fetches.data[i - p->feeds.count];
        if (strcmp(sglcore_string(p->strings, port->name), name) != 0) continue;
        if (o) *o = &port->operand;
        return (char *)g->spaces[port->operand.space] + port->operand.offset;
    }
    return NULL;
}

static double get(const char *data, const char *dtype, int64_t i)
{
    if (strcmp(dtype, "f64") == 0) return ((const double *)(const void *)data)[i];
    if (strcmp(dtype, "f32") == 0) return (double)((const float *)(const void *)data)[i];
    if (strcmp(dtype, "i32") == 0) return ((const int32_t *)(const void *)data)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)(const void *)data)[i] << 16; /* bf16 */
    float number;
    memcpy(&number, &bits, 4);
    return (double)number;
}

static void put(char *data, const char *dtype, int64_t i, double number)
{
    const float narrow = (float)number;
    uint32_t bits;
    if (strcmp(dtype, "f64") == 0) ((double *)(void *)data)[i] = number;
    if (strcmp(dtype, "f32") == 0) ((float *)(void *)data)[i] = narrow;
    if (strcmp(dtype, "i32") == 0) ((int32_t *)(void *)data)[i] = (int32_t)number;
    memcpy(&bits, &narrow, 4);
    if (strcmp(dtype, "bf16") == 0) ((uint16_t *)(void *)data)[i] = (uint16_t)(bits >> 16);
}

/* Small whole numbers: every dtype holds their sums. */
static double number_of(int64_t rank, int64_t i, int step) { return (double)((rank * 7 + i * 3 + step) % 5 - 2); }

/* ---- all ops --------------------------------------------------------------------------------------------------------- */

/* The one that stands BY places before it, round the group. */
static int rank_before(const net_case *c, int rank)
{
    const int64_t size = sglplan_group_size(&c->plan, c->axes), own = sglplan_group_place(&c->plan, c->axes, rank);
    return (int)sglplan_group_member(&c->plan, c->axes, rank, ((own - BY) % size + size) % size);
}

static void write_graph(const net_case *c, int rank, char *text, size_t room)
{
    const int64_t rows = c->rows + (rank == c->other && !c->swapped ? c->unit : 0);
    const int64_t own = sglplan_part_along(&c->plan, c->axes, rank, rows, c->unit).size;
    const int64_t comes = sglplan_part_along(&c->plan, c->axes, rank_before(c, rank), rows, c->unit).size;
    const bool swapped = rank == c->other && c->swapped;
    const long long ranks = (long long)sglplan_group_size(&c->plan, c->axes);
    char layout[64] = "", places[64] = "";
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const bool in_group = (c->axes >> axis & 1) != 0;
        snprintf(layout + strlen(layout), sizeof layout - strlen(layout), "%s%d", axis ? "," : "", in_group ? 1 : -1);
        snprintf(places + strlen(places), sizeof places - strlen(places), "%s%d", axis ? "," : "", in_group ? 0 : -1);
    }
    if (c->later) {
        snprintf(text, room,
                 "graph \"net\" {\n"
                 "  %%0 = input() {role=2, name=\"p\", dtype=%s, dims=[%lld,%d], partial=%u}\n"
                 "  %%1 = input() {role=2, name=\"m\", dtype=%s, dims=[%d,1], layout=[%s]}\n"
                 "  %%2 = input() {role=2, name=\"q\", dtype=%s, dims=[1,%lld,%d], layout=[%s]}\n"
                 "  %%3 = neg(%%0)\n"
                 "  %%4 = all_reduce(%%3) {axes=%u}\n"
                 "  %%5 = all_max(%%1) {axes=%u, dim=1}\n"
                 "  %%6 = all_to_all(%%2) {axes=%u, to=1, ranks=%lld, extent=%lld, unit=%lld}\n"
                 "  %%7 = reduce_scatter(%%0) {axes=%u, own=%lld, unit=%lld}\n"
                 "  %%8 = coordinate() {axis=0}\n"
                 "  %%9 = wait(%%7, %%0)\n"
                 "  %%10 = all_gather(%%9) {axes=%u, extent=%lld, unit=%lld}\n"
                 "  %%11 = neg(%%9)\n"
                 "  %%12 = wait(%%6, %%2)\n"
                 "  %%13 = all_to_all(%%12) {axes=%u, to=0, ranks=%lld, extent=%lld, unit=%lld}\n"
                 "  %%14 = wait(%%4, %%3)\n"
                 "  %%15 = wait(%%5, %%1)\n"
                 "  %%16 = wait(%%13, %%12)\n"
                 "  %%17 = wait(%%10, %%9)\n"
                 "  %%18 = ring_shift(%%11) {axes=%u, dim=0, by=%d, extent=%lld, whole=%lld, unit=%lld}\n"
                 "  %%19 = coordinate() {axis=1}\n"
                 "  %%20 = wait(%%18, %%11)\n"
                 "  fetch \"apart\" %%12\n  fetch \"again\" %%16\n  fetch \"sum\" %%14\n  fetch \"max\" %%15\n"
                 "  fetch \"gathered\" %%17\n  fetch \"coordinate\" %%8\n  fetch \"part\" %%11\n"
                 "  fetch \"shifted\" %%20\n}\n",
                 c->dtype, (long long)rows, COLS, c->axes, c->dtype, COLS, layout, c->dtype, (long long)rows, COLS,
                 places, c->axes, c->axes, c->axes, ranks, (long long)own, (long long)c->unit, c->axes, (long long)own,
                 (long long)c->unit, c->axes, (long long)rows, (long long)c->unit, c->axes, ranks, (long long)rows,
                 (long long)c->unit, c->axes, BY, (long long)comes, (long long)rows, (long long)c->unit);
        return;
    }
    snprintf(
        text, room,
        "graph \"net\" {\n"
        "  %%0 = input() {role=2, name=\"p\", dtype=%s, dims=[%lld,%d], partial=%u}\n"
        "  %%1 = input() {role=2, name=\"m\", dtype=%s, dims=[%d,1], layout=[%s]}\n"
        "  %%2 = neg(%%0)\n"
        "  %%3 = %s(%s) {axes=%u%s}\n"
        "  %%4 = %s(%s) {axes=%u%s}\n"
        "  %%5 = reduce_scatter(%%0) {axes=%u, own=%lld, unit=%lld}\n"
        "  %%6 = all_gather(%%5) {axes=%u, extent=%lld, unit=%lld}\n"
        "  %%7 = coordinate() {axis=0}\n"
        "  %%8 = input() {role=2, name=\"q\", dtype=%s, dims=[1,%lld,%d], layout=[%s]}\n"
        "  %%9 = all_to_all(%%8) {axes=%u, to=1, ranks=%lld, extent=%lld, unit=%lld}\n"
        "  %%10 = all_to_all(%%9) {axes=%u, to=0, ranks=%lld, extent=%lld, unit=%lld}\n"
        "  %%11 = ring_shift(%%5) {axes=%u, dim=0, by=%d, extent=%lld, whole=%lld, unit=%lld}\n"
        "  fetch \"shifted\" %%11\n"
        "  fetch \"apart\" %%9\n  fetch \"again\" %%10\n  fetch \"sum\" %%%d\n  fetch \"max\" %%%d\n  fetch \"gathered\" %%6\n  fetch \"coordinate\" %%7\n}\n",
        c->dtype, (long long)rows, COLS, c->axes, c->dtype, COLS, layout, swapped ? "all_max" : "all_reduce",
        swapped ? "%1" : "%2", c->axes, swapped ? ", dim=1" : "", swapped ? "all_reduce" : "all_max",
        swapped ? "%2" : "%1", c->axes, swapped ? "" : ", dim=1", c->axes, (long long)own, (long long)c->unit, c->axes,
        (long long)rows, (long long)c->unit, c->dtype, (long long)rows, COLS, places, c->axes, ranks, (long long)own,
        (long long)c->unit, c->axes, ranks, (long long)rows, (long long)c->unit, c->axes, BY, (long long)comes,
        (long long)rows, (long long)c->unit, swapped ? 4 : 3, swapped ? 3 : 4);
}

/* This rank's rows of each rank's; and its own rows, handed back by those that got them. */
static const char *check_all_to_all(const rig *g, const net_case *c, int step)
{
    const char *apart = port_at(g, "apart", NULL), *again = port_at(g, "again", NULL);
    const sglplan_part own = sglplan_part_along(&c->plan, c->axes, g->r->rank, c->rows, c->unit);
    for (int64_t p = 0; p < sglplan_group_size(&c->plan, c->axes); p++) {
        const int64_t rank = sglplan_group_member(&c->plan, c->axes, g->r->rank, p);
        for (int64_t i = 0; i < own.size * COLS; i++) {
            const double wanted = number_of(rank, own.offset * COLS + i + 2, step);
            if (get(apart, c->dtype, p * own.size * COLS + i) != wanted) return "all_to_all is wrong";
        }
    }
    for (int64_t i = 0; i < c->rows * COLS; i++) {
        if (get(again, c->dtype, i) != number_of(g->r->rank, i + 2, step)) return "all_to_all back is wrong";
    }
    return NULL;
}

/* The part of the sum that the rank before this one has; negative where a kernel stands between. */
static const char *check_shift(const rig *g, const net_case *c, int step)
{
    const char *shifted = port_at(g, "shifted", NULL);
    const sglplan_part part = sglplan_part_along(&c->plan, c->axes, rank_before(c, g->r->rank), c->rows, c->unit);
    for (int64_t i = 0; i < part.size * COLS; i++) {
        double wanted = 0;
        for (int64_t p = 0; p < sglplan_group_size(&c->plan, c->axes); p++)
            wanted += number_of(sglplan_group_member(&c->plan, c->axes, g->r->rank, p), part.offset * COLS + i, step);
        if (get(shifted, c->dtype, i) != (c->later ? -wanted : wanted)) return "ring_shift is wrong";
    }
    return NULL;
}

static const char *check_fetches(const rig *g, const net_case *c, int step)
{
    const int64_t size = sglplan_group_size(&c->plan, c->axes);
    const char *sum = port_at(g, "sum", NULL), *max = port_at(g, "max", NULL), *all = port_at(g, "gathered", NULL);
    int64_t coordinate;
    memcpy(&coordinate, port_at(g, "coordinate", NULL), sizeof coordinate);
    if (coordinate != sglplan_mesh_coordinate(&c->plan, g->r->rank).at[0]) return "the coordinate is wrong";
    for (int64_t i = 0; i < c->rows * COLS; i++) {
        double wanted = 0;
        for (int64_t p = 0; p < size; p++)
            wanted += number_of(sglplan_group_member(&c->plan, c->axes, g->r->rank, p), i, step);
        if (get(sum, c->dtype, i) != -wanted) return "all_reduce is wrong";
        if (get(all, c->dtype, i) != wanted) return "reduce_scatter and all_gather are wrong";
    }
    for (int64_t i = 0; i < COLS; i++) {
        double wanted = -100;
        for (int64_t p = 0; p < size; p++) {
            const double here = number_of(sglplan_group_member(&c->plan, c->axes, g->r->rank, p), i + 1, step);
            wanted = here > wanted ? here : wanted;
        }
        if (get(max, c->dtype, i) != wanted) return "all_max is wrong";
    }
    const char *fault = check_shift(g, c, step);
    return fault ? fault : check_all_to_all(g, c, step);
}

static sgl_status run_steps(rig *g, const net_case *c)
{
    SGLCORE_TRY(sglexec_exchanges_make_groups(g->exchanges));
    const int64_t allocations = g->env->allocations;
    for (int step = 0; step < STEPS && !g->r->fault; step++) {
        for (int64_t i = 0; i < c->rows * COLS; i++)
            put(port_at(g, "p", NULL), c->dtype, i, number_of(g->r->rank, i, step));
        for (int64_t i = 0; i < c->rows * COLS; i++)
            put(port_at(g, "q", NULL), c->dtype, i, number_of(g->r->rank, i + 2, step));
        for (int64_t i = 0; i < COLS; i++) put(port_at(g, "m", NULL), c->dtype, i, number_of(g->r->rank, i + 1, step));
        SGLCORE_TRY(sglexec_replay(g->env, &g->ops, g->device, g->prepared, g->program, g->spaces, g->exchanges, NULL));
        g->r->fault = check_fetches(g, c, step);
    }
    if (g->env->allocations != allocations) g->r->fault = "a replay allocated";
    return SGL_OK;
}

static void all_ops_body(comm_rank *r)
{
    const net_case *c = r->all->context;
    char text[4096];
    rig g = { 0 };
    write_graph(c, r->rank, text, sizeof text);
    r->status = net_rig_open(&g, r, &c->plan, c->staged, text);
    if (r->status == SGL_OK) r->status = run_steps(&g, c);
    int64_t own = r->rank, all[LOOP_RANKS];
    if (r->status == SGL_OK) r->status = sglexec_net_gather(g.net, &own, sizeof own, all, "the end");
    for (int i = 0; r->status == SGL_OK && i < r->all->size; i++) {
        if (all[i] != i) r->fault = "gathered in another order";
    }
    net_rig_close(&g);
}

static sglplan mesh_of(int64_t dp, int64_t tp)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_DP] = dp;
    plan.mesh[SGLIR_AXIS_TP] = tp;
    return plan;
}

static void run_case(net_case *c, comm_case *all)
{
    int64_t ranks = c->plan.mesh[SGLIR_AXIS_DP] * c->plan.mesh[SGLIR_AXIS_TP];
    *all = (comm_case){ .size = (int)ranks, .options = { .timeout_s = 10 }, .body = all_ops_body, .context = c };
    loop_world((int)ranks, 0);
    comm_case_run(all);
}

static void test_all_ops(void **state)
{
    (void)state;
    static const struct {
        int64_t dp, tp;
        sglplan_axes axes;
    } meshes[] = { { 1, 1, 1 }, { 2, 1, 1 }, { 3, 1, 1 }, { 4, 1, 1 }, { 1, 2, 4 },
                   { 2, 2, 1 }, { 2, 2, 4 }, { 2, 2, 5 }, { 3, 2, 5 }, { 2, 2, 2 | 1 } };
    static const char *const dtypes[] = { "f32", "f64", "bf16", "i32" };
    static const struct {
        int64_t rows, unit;
    } parts[] = { { 12, 1 }, { 10, 1 }, { 10, 2 }, { 3, 1 } };
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++)
        for (size_t d = 0; d < 4; d++)
            for (size_t p = 0; p < 8; p++) {
                comm_case all;
                net_case c = { .plan = mesh_of(meshes[m].dp, meshes[m].tp),
                               .axes = meshes[m].axes,
                               .dtype = dtypes[d],
                               .rows = parts[p % 4].rows,
                               .unit = parts[p % 4].unit,
                               .later = p >= 4,
                               .staged = (m + d + p) % 3 == 0,
                               .other = -1 };
                run_case(&c, &all);
                comm_case_all_good(&all);
            }
}

/* ---- before the first step ------------------------------------------------------------------------------------------- */

static sglcore_hash hash_of(const net_case *c, int rank)
{
    comm_rank r = { .rank = rank };
    sglexec_comm_options options = { .timeout_s = 10 };
    char text[4096];
    rig g = { .env = &r.env, .ops = sglexec_device_cpu };
    sglcore_env_init(&r.env, NULL, NULL, NULL, NULL);
    write_graph(c, rank, text, sizeof text);
    assert_int_equal(g.ops.open(g.env, 1, &g.device), SGL_OK);
    assert_int_equal(net_rig_build(&g, text), SGL_OK);
    sglexec_comm *comm;
    assert_int_equal(sglwire_transport(0)->open(&r.env, &options, &comm), SGL_OK);
    assert_int_equal(sglexec_net_open(&r.env, sglwire_transport(0), comm, &g.net), SGL_OK);
    assert_int_equal(sglexec_exchanges_new(g.net, g.program, &c->plan, rank, &g.ops, &g.exchanges), SGL_OK);
    const sglcore_hash hash = sglexec_exchanges_hash(g.exchanges);
    net_rig_close(&g);
    sglwire_transport(0)->close(comm);
    assert_int_equal(r.env.bytes_in_use, 0);
    return hash;
}

/* Alike where parts alone differ, not where the order or the dtype does. */
static void test_order_hash(void **state)
{
    (void)state;
    net_case c = { .plan = mesh_of(2, 2), .axes = 4, .dtype = "f32", .rows = 7, .unit = 1, .other = 1 };
    const sglcore_hash rank_0 = hash_of(&c, 0), rank_1 = hash_of(&c, 1);
    assert_true(sglcore_hash_equal(rank_0, rank_1));
    c.swapped = true;
    assert_false(sglcore_hash_equal(rank_0, hash_of(&c, 1)));
    c.dtype = "f64";
    assert_false(sglcore_hash_equal(rank_0, hash_of(&c, 0)));
    c.dtype = "f32";
    c.axes = 1;
    assert_false(sglcore_hash_equal(rank_0, hash_of(&c, 0)));
}

/* A graph whose part is not what its mesh cuts is no program. */
static void wrong_part_body(comm_rank *r)
{
    const net_case *c = r->all->context;
    net_case whole = *c;
    char text[4096];
    rig g = { 0 };
    whole.plan = mesh_of(1, 1); /* own = rows */
    write_graph(&whole, 0, text, sizeof text);
    r->status = net_rig_open(&g, r, &c->plan, false, text);
    net_rig_close(&g);
}

static void test_wrong_part(void **state)
{
    (void)state;
    net_case c = { .plan = mesh_of(2, 1), .axes = 1, .dtype = "f32", .rows = 6, .unit = 1, .other = -1 };
    comm_case all = { .size = 2, .options = { .timeout_s = 10 }, .body = wrong_part_body, .context = &c };
    loop_world(2, 0);
    comm_case_run(&all);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(all.ranks[r].status, SGL_INTERNAL);
        assert_non_null(strstr(all.ranks[r].message, "reduce_scatter"));
        assert_non_null(strstr(all.ranks[r].message, "this rank's part has 6 rows, not 3"));
    }
}

/* ---- a run that fails ------------------------------------------------------------------------------------------------- */

static _Thread_local int launches_left; /* of this rank's device, before one fails */
static _Thread_local sglcore_env *failing_env;

static sgl_status launch_or_fail(sglexec_device *device, void *prepared, uint32_t n, void *const spaces[SGLIR_SPACES])
{
    if (launches_left-- > 0) return sglexec_device_cpu.launch(device, prepared, n, spaces);
    return sglcore_fail(failing_env, SGL_DEVICE, "the kernel fails");
}

static bool any_under_way(const sglexec_comm *comm)
{
    for (sglexec_group *g = atomic_load(&comm->groups); g; g = g->next)
        if (atomic_load(&g->started) != atomic_load(&g->finished)) return true;
    return false;
}

/* The second kernel fails while all_reduce and all_max are under way: after the run they are not, and the next one is right. */
static void failing_body(comm_rank *r)
{
    const net_case *c = r->all->context;
    char text[4096];
    rig g = { 0 };
    write_graph(c, r->rank, text, sizeof text);
    failing_env = &r->env;
    r->status = net_rig_open(&g, r, &c->plan, c->staged, text);
    if (r->status == SGL_OK) r->status = sglexec_exchanges_make_groups(g.exchanges);
    if (r->status == SGL_OK) {
        launches_left = 1;
        g.ops.launch = launch_or_fail;
        const sgl_status status =
            sglexec_replay(g.env, &g.ops, g.device, g.prepared, g.program, g.spaces, g.exchanges, NULL);
        if (status != SGL_DEVICE || strcmp(r->env.message, "the kernel fails") != 0) r->fault = "it does not fail";
        if (any_under_way(r->comm)) r->fault = "exchanges are left under way";
        g.ops.launch = sglexec_device_cpu.launch;
        r->status = run_steps(&g, c);
    }
    net_rig_close(&g);
}

static void test_failing_run(void **state)
{
    (void)state;
    for (int staged = 0; staged < 2; staged++) {
        net_case c = {
            .plan = mesh_of(2, 1), .axes = 1, .dtype = "f32", .rows = 6, .unit = 1, .other = -1, .later = true
        };
        c.staged = staged;
        comm_case all = { .size = 2, .options = { .timeout_s = 10 }, .body = failing_body, .context = &c };
        loop_world(2, 0);
        comm_case_run(&all);
        comm_case_all_good(&all);
    }
}

/* ---- one rank alone --------------------------------------------------------------------------------------------------- */

static sgl_status alone(sglcore_env *env, void *context)
{
    net_case *c = context;
    comm_rank r = { .env = *env };
    const sglexec_comm_ops *ops = sglwire_transport(0);
    const sglexec_comm_options options = { .timeout_s = 10 };
    char text[4096];
    rig g = { .env = env, .ops = sglexec_device_cpu, .r = &r, .plan = c->plan };
    g.ops.host_memory = !c->staged;
    sglexec_comm *comm = NULL;
    write_graph(c, 0, text, sizeof text);
    sgl_status status = g.ops.open(env, 1, &g.device);
    if (status == SGL_OK) status = net_rig_build(&g, text);
    for (int space = 1; space < SGLIR_SPACES && status == SGL_OK; space++)
        status = g.ops.alloc(g.device, g.program->space_bytes[space], &g.spaces[space]);
    if (status == SGL_OK) status = ops->open(env, &options, &comm);
    if (status == SGL_OK) status = sglexec_net_open(env, ops, comm, &g.net);
    if (status == SGL_OK) status = sglexec_exchanges_new(g.net, g.program, &c->plan, 0, &g.ops, &g.exchanges);
    if (status == SGL_OK) status = run_steps(&g, c);
    net_rig_close(&g);
    ops->close(comm);
    if (r.fault) fail_msg("%s", r.fault);
    return status;
}

static void test_memory_faults(void **state)
{
    (void)state;
    net_case c = { .plan = mesh_of(1, 1), .axes = 1, .dtype = "f32", .rows = 4, .unit = 1, .other = -1 };
    for (int staged = 0; staged < 2; staged++) {
        c.staged = staged;
        assert_true(fault_allocations(alone, &c, true) > 20);
    }
}

/* A program that exchanges is not run without its exchanges. */
static void test_replay_needs_them(void **state)
{
    (void)state;
    net_case c = { .plan = mesh_of(1, 1), .axes = 1, .dtype = "f32", .rows = 4, .unit = 1, .other = -1 };
    char text[4096];
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    rig g = { .env = &env, .ops = sglexec_device_cpu };
    write_graph(&c, 0, text, sizeof text);
    assert_int_equal(g.ops.open(&env, 1, &g.device), SGL_OK);
    assert_int_equal(net_rig_build(&g, text), SGL_OK);
    for (int space = 1; space < SGLIR_SPACES; space++)
        assert_int_equal(g.ops.alloc(g.device, g.program->space_bytes[space], &g.spaces[space]), SGL_OK);
    assert_int_equal(sglexec_replay(&env, &g.ops, g.device, g.prepared, g.program, g.spaces, NULL, NULL), SGL_INTERNAL);
    assert_string_equal(env.message, "net: its ranks exchange, and there are none");
    g.ops.blank = true;
    assert_int_equal(sglexec_replay(&env, &g.ops, g.device, g.prepared, g.program, g.spaces, NULL, NULL), SGL_OK);
    sglcore_text listing = { 0 };
    assert_int_equal(sglexec_program_print(g.program, false, NULL, &listing), SGL_OK);
    assert_non_null(strstr(listing.data, "all_reduce over dp f32[4,3]@"));
    sglcore_text_free(&env, &listing);
    net_rig_close(&g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* A result lies where its argument dies. */
static void test_in_place(void **state)
{
    (void)state;
    static const char text[] = "graph \"net\" {\n"
                               "  %0 = input() {role=2, name=\"p\", dtype=f32, dims=[4,3], partial=1}\n"
                               "  %1 = neg(%0)\n  %2 = all_reduce(%1) {axes=1}\n"
                               "  %3 = reshape(%2) {dims=[12,1]}\n  %4 = neg(%3)\n  fetch \"sum\" %4\n}\n";
    int found = 0;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    rig g = { .env = &env, .ops = sglexec_device_cpu };
    assert_int_equal(g.ops.open(&env, 1, &g.device), SGL_OK);
    assert_int_equal(net_rig_build(&g, text), SGL_OK);
    for (int64_t n = 0; n < g.program->instructions.count; n++) {
        const sglexec_instruction *i = &g.program->instructions.data[n];
        const sglexec_operand *o = &g.program->operands.data[i->operand_first];
        if (i->op != SGLIR_OP_ALL_REDUCE) continue;
        assert_int_equal(o[0].space, SGLIR_SPACE_ARENA);
        assert_int_equal(o[1].space, SGLIR_SPACE_ARENA);
        assert_int_equal(o[0].offset, o[1].offset);
        found++;
    }
    assert_int_equal(found, 1);
    net_rig_close(&g);
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ops),           cmocka_unit_test(test_order_hash),
        cmocka_unit_test(test_wrong_part),        cmocka_unit_test(test_memory_faults),
        cmocka_unit_test(test_replay_needs_them), cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_failing_run),
    };
    return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}

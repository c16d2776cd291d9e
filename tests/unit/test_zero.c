/* test_zero.c -- data parallel whose states, gradients and parameters are in parts (ZeRO): bytes that cross the link, against the
 * formula of each level; when parameters are whole, by the peak; how many exchanges a step has; and the numbers, which are those
 * of one rank.
 *
 * In: a small transformer with extents that no number of ranks divides, random graphs. Out: bytes that the ranks of a session
 * send, as threads of this process; graphs after the passes, run by the interpreter. ctest: serial */
#include "fault.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "collectives/engine.h"
#include "passes/pass.h"
#include "session/session.h"
#include "tests/reference/interp_world.h"
#include "tests/support/ir_case.h"
#include "tests/support/loop_link.h"
#include "tests/support/random_graph.h"
#include "tests/support/transformer_graph.h"

enum { MOST = 4, BATCH = 8, SEQ = 4, DIM = 64, VOCAB = 1001 };

static const char ZERO_0[] = "", ZERO_1[] = "states * fsdp:0", ZERO_3[] = "* fsdp:0";

/* ---- ranks as threads: bytes of exchanges ------------------------------------------------------------------------------ */

static _Atomic int64_t payload; /* bytes of values, of all ranks together */

/* Before each piece goes a note, on a channel of its own; what is small lies in it. */
static bool counting_send(void *link, int rank, int channel, const void *data, size_t bytes, sglcomm_request *request)
{
    const bool note = channel % 2 == 1;
    if (channel != SGLCOMM_BEATS)
        atomic_fetch_add(&payload, (int64_t)bytes - (note ? (int64_t)sizeof(sglcomm_note) : 0));
    return loop_link.send(link, rank, channel, data, bytes, request);
}

static const sglexec_comm_ops loop_ops = { .name = "loop", SGLCOMM_ENGINE_CALLS };

typedef struct job {
    const char *text; /* of the graph */
    const char *layouts;
    int64_t dp, fsdp, tp, bucket; /* bucket 0: the plan's default */
    int ranks;
    float *embed; /* what rank 0 ends with */
    int64_t embed_bytes;
    pthread_barrier_t barrier;
    int64_t sent; /* in the second step */
} job;

typedef struct rank {
    job *job;
    pthread_t thread;
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
    sgl_status status;
    char message[1024];
} rank;

/* Small numbers, which differ from element to element. */
static sgl_status begin_parameter(rank *r, const sglir_graph *g, const sglir_node *node)
{
    if (node->op != SGLIR_OP_INPUT || sglir_attr_int(g, node, "role") != SGL_PARAMETER) return SGL_OK;
    const sglir_type *type = sglir_type_of(g, node->out_first);
    const int64_t count = sglir_elements(type);
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) data[i] = (float)((i * 37 + type->dims[0]) % 101 - 50) * 0.002f;
    sgl_status status =
        sgl_state_write(r->session, sglir_attr_string(g, node, "name"), data, (size_t)count * sizeof *data);
    free(data);
    return status;
}

static sgl_status feed(rank *r)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = i * 131 % VOCAB;
        targets[i] = i * 257 % VOCAB;
    }
    SGLCORE_TRY(sgl_feed(r->program, "tokens", tokens, sizeof tokens));
    return sgl_feed(r->program, "targets", targets, sizeof targets);
}

static sgl_status freeze(rank *r)
{
    const sgl_attr fields[] = { { .name = "mesh.dp", .kind = SGL_ATTR_INT, .i = r->job->dp },
                                { .name = "mesh.fsdp", .kind = SGL_ATTR_INT, .i = r->job->fsdp },
                                { .name = "mesh.tp", .kind = SGL_ATTR_INT, .i = r->job->tp },
                                { .name = "layouts", .kind = SGL_ATTR_STRING, .s = r->job->layouts },
                                { .name = "bucket", .kind = SGL_ATTR_INT, .i = r->job->bucket } };
    const size_t count = sizeof fields / sizeof fields[0] - (r->job->bucket == 0);
    sglir_graph *ir;
    sgl_graph *graph;
    sgl_plan *plan;
    SGLCORE_TRY(sgl_plan_new(r->vm, &plan));
    for (size_t i = 0; i < count; i++) SGLCORE_TRY(sgl_plan_set(plan, &fields[i]));
    SGLCORE_TRY(sglir_parse(&r->vm->env, "graph", r->job->text, strlen(r->job->text), &ir));
    SGLCORE_TRY(sglsession_graph_take(r->vm, ir, &graph));
    SGLCORE_TRY(sgl_freeze(r->session, graph, plan, &r->program));
    for (int64_t n = 0; n < ir->nodes.count; n++) SGLCORE_TRY(begin_parameter(r, ir, &ir->nodes.data[n]));
    return feed(r);
}

static sglcomm_link_ops counting; /* loop_link, but for send: set before the ranks begin */

static sgl_status open_rank(rank *r)
{
    const sgl_config config = { .threads = 1 };
    const sglexec_comm_options options = { .timeout_s = 20 };
    sglexec_comm *comm;
    SGLCORE_TRY(sgl_open(&config, &r->vm));
    SGLCORE_TRY(sgl_session_new(r->vm, "cpu", &r->session));
    SGLCORE_TRY(sglcomm_open(&r->vm->env, &options, &counting, &comm));
    SGLCORE_TRY(sglsession_take_world(r->session, &loop_ops, comm));
    return freeze(r);
}

static void *rank_main(void *argument)
{
    rank *r = argument;
    int64_t before = 0;
    r->status = open_rank(r);
    if (r->status == SGL_OK) r->status = sgl_step(r->program); /* before the first step ranks compare what they do */
    pthread_barrier_wait(&r->job->barrier);
    before = atomic_load(&payload);
    pthread_barrier_wait(&r->job->barrier);
    if (r->status == SGL_OK) r->status = sgl_step(r->program);
    pthread_barrier_wait(&r->job->barrier);
    if (sgl_session_rank(r->session) == 0) r->job->sent = atomic_load(&payload) - before; /* alike on all of them */
    pthread_barrier_wait(&r->job->barrier);
    float *embed = malloc((size_t)r->job->embed_bytes);
    if (r->status == SGL_OK) r->status = sgl_state_read(r->session, "embed", embed, (size_t)r->job->embed_bytes);
    if (sgl_session_rank(r->session) == 0) memcpy(r->job->embed, embed, (size_t)r->job->embed_bytes);
    free(embed);
    snprintf(r->message, sizeof r->message, "%s", sgl_error_message(r->vm));
    pthread_barrier_wait(&r->job->barrier);
    sgl_close(r->vm);
    return NULL;
}

static void run_job(job *j)
{
    rank ranks[MOST];
    j->ranks = (int)(j->dp * j->fsdp * j->tp);
    j->embed_bytes = VOCAB * DIM * (int64_t)sizeof *j->embed;
    j->embed = malloc((size_t)j->embed_bytes);
    loop_world(j->ranks, 0);
    counting = loop_link;
    counting.send = counting_send;
    pthread_barrier_init(&j->barrier, NULL, (unsigned)j->ranks);
    for (int i = 0; i < j->ranks; i++) {
        ranks[i] = (rank){ .job = j };
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < j->ranks; i++) pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&j->barrier);
    for (int i = 0; i < j->ranks; i++)
        if (ranks[i].status != SGL_OK) fail_msg("\"%s\" over %d ranks: %s", j->layouts, j->ranks, ranks[i].message);
}

/* ---- a transformer ------------------------------------------------------------------------------------------------------ */

static sglir_graph *transformer(sglcore_env *env, const transformer_sizes *sizes)
{
    sglir_graph *g;
    assert_int_equal(transformer_graph(env, sizes, &g), SGL_OK);
    return g;
}

static int64_t parameter_bytes(const sglir_graph *g)
{
    int64_t bytes = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op == SGLIR_OP_INPUT && sglir_attr_int(g, node, "role") == SGL_PARAMETER)
            bytes += sglir_bytes(sglir_type_of(g, node->out_first));
    }
    return bytes;
}

/* All ranks together send n times what one of them does: of all_reduce 2 (n - 1) B, of a gather and of handing out (n - 1) B
 * each, of B bytes of parameters. Parts are as they come: 1,001 rows on 4 ranks are 251 and three times 250, and nothing is
 * padded, however much goes in one exchange; what is beyond the formula are the loss, its count and the norm, a few numbers. */
static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *layouts;
        int64_t dp, fsdp;
        double times; /* of (n - 1) B */
    } rows[] = {
        { "dp=2", ZERO_0, 2, 1, 2 },           { "dp=4", ZERO_0, 4, 1, 2 },
        { "fsdp=2, zero 1", ZERO_1, 1, 2, 2 }, { "fsdp=4, zero 1", ZERO_1, 1, 4, 2 },
        { "fsdp=2, zero 3", ZERO_3, 1, 2, 3 }, { "fsdp=4, zero 3", ZERO_3, 1, 4, 3 },
    };
    const transformer_sizes sizes = {
        .layers = 2, .batch = BATCH, .seq = SEQ, .dim = DIM, .heads = 2, .ffn = 170, .vocab = VOCAB, .dtype = SGL_F32
    };
    static const int64_t buckets[] = { 0, 1, 40000 };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    sglcore_text text = ir_case_print(&env, g);
    const double bytes = (double)parameter_bytes(g);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float *first = NULL;
        for (int b = 0; b < 3; b++) {
            job j = { .text = text.data, .layouts = rows[i].layouts, .dp = rows[i].dp, .fsdp = rows[i].fsdp };
            j.tp = 1;
            j.bucket = buckets[b];
            run_job(&j);
            const double formula = rows[i].times * (j.ranks - 1) * bytes, ratio = (double)j.sent / formula;
            if (b == 0)
                printf("%-16s %10lld bytes, by formula %10.0f: %.5f\n", rows[i].name, (long long)j.sent, formula,
                       ratio);
            const double most = b == 0 ? 1.001 : 1.005; /* small sums by themselves go another way, in more bytes */
            if (!(ratio >= 1 && ratio <= most)) fail_msg("%s: %.5f of the formula's bytes", rows[i].name, ratio);
            assert_true(j.embed[0] == j.embed[0] && j.embed[0] != -0.098f); /* no NaN, and learnt */
            if (first && memcmp(first, j.embed, (size_t)j.embed_bytes) != 0)
                fail_msg("%s: other buckets, other bits", rows[i].name);
            if (first)
                free(j.embed);
            else
                first = j.embed;
        }
        free(first);
    }
    sglcore_text_free(&env, &text);
    sglir_graph_free(g);
}

/* Widths that tp does not divide: 171 are 86 and 85, and a bucket that w1 and w3 of 86 fill is not full of those of 85. All ranks
 * run the same exchanges nevertheless, and the steps come to the same as in other buckets. */
static void test_uneven(void **state)
{
    (void)state;
    static const char layouts[] = "blocks.*.w1 tp:0, blocks.*.w3 tp:0, blocks.*.w2 tp:1, * fsdp:0, blocks.*.w1 fsdp:1, "
                                  "blocks.*.w3 fsdp:1";
    static const int64_t buckets[] = { 1, 22000, 44000, 66000 };
    const transformer_sizes sizes = {
        .layers = 2, .batch = BATCH, .seq = SEQ, .dim = DIM, .heads = 2, .ffn = 171, .vocab = VOCAB, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    sglcore_text text = ir_case_print(&env, g);
    float *first = NULL;
    for (int b = 0; b < 4; b++) {
        job j = { .text = text.data, .layouts = layouts, .dp = 1, .fsdp = 2, .tp = 2, .bucket = buckets[b] };
        run_job(&j);
        if (first && memcmp(first, j.embed, (size_t)j.embed_bytes) != 0)
            fail_msg("bucket %lld: other bits", (long long)buckets[b]);
        if (first)
            free(j.embed);
        else
            first = j.embed;
    }
    free(first);
    sglcore_text_free(&env, &text);
    sglir_graph_free(g);
}

/* ---- when parameters are whole -------------------------------------------------------------------------------------------- */

static sglplan plan_of(int64_t fsdp, const char *layouts, const char *disable, int64_t bucket)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_FSDP] = fsdp;
    if (bucket > 0) plan.bucket = bucket;
    snprintf(plan.layouts, sizeof plan.layouts, "%s", layouts);
    snprintf(plan.disable, sizeof plan.disable, "%s", disable);
    return plan;
}

static sglir_graph *placed(sglcore_env *env, const sglir_graph *g, const sglplan *plan)
{
    sglir_graph *made = NULL;
    const sglpass_context context = { .env = env, .plan = plan };
    if (sglpass_run(&context, g, NULL, &made) != SGL_OK) fail_msg("%s", env->message);
    return made;
}

static int64_t arena_of(sglcore_env *env, const sglir_graph *g, const sglplan *plan)
{
    sglir_graph *made = placed(env, g, plan);
    const int64_t bytes = made->space_bytes[SGLIR_SPACE_ARENA];
    sglir_graph_free(made);
    return bytes;
}

/* Of parameters that are most of what there is, one block's stand whole at a time, and a second one's ahead. */
static void test_peak(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 4, .seq = 4, .dim = 128, .heads = 2, .ffn = 384, .vocab = 128, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    const int64_t whole = parameter_bytes(g);
    const sglplan kept = plan_of(4, ZERO_3, "regather", 1), again = plan_of(4, ZERO_3, "", 1);
    const int64_t with_all = arena_of(&env, g, &kept), without = arena_of(&env, g, &again);
    printf("parameters %lld bytes; peak %lld kept whole, %lld gathered again\n", (long long)whole, (long long)with_all,
           (long long)without);
    assert_true(with_all >= whole);
    assert_true(without <= whole / 2);
    sglir_graph_free(g);
}

/* ---- how many exchanges ---------------------------------------------------------------------------------------------------- */

static void count_exchanges(sglcore_env *env, const sglir_graph *g, int64_t micro, int64_t bucket, int *gathers,
                            int *handed_out)
{
    sglplan plan = plan_of(2, ZERO_3, "", bucket);
    plan.mesh[SGLIR_AXIS_MICRO] = micro;
    sglir_graph *made = placed(env, g, &plan);
    *gathers = *handed_out = 0;
    for (int64_t n = 0; n < made->nodes.count; n++) {
        const uint16_t op = made->nodes.data[n].op;
        *gathers += op == SGLIR_OP_ALL_GATHER || op == SGLIR_OP_ALL_GATHER_EACH;
        *handed_out += op == SGLIR_OP_REDUCE_SCATTER || op == SGLIR_OP_REDUCE_SCATTER_EACH;
    }
    sglir_graph_free(made);
}

/* Blocks of nine parameters, some 790 kB each: one by one, a block at a time, all at once. */
static void test_merged(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 4, .seq = 4, .dim = 128, .heads = 2, .ffn = 384, .vocab = 128, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    const int parameters = 8 * 9 + 2;
    int gathers[3], handed_out[3];
    static const int64_t buckets[] = { 1, 700000, 1 << 30 };
    for (int i = 0; i < 3; i++) count_exchanges(&env, g, 1, buckets[i], &gathers[i], &handed_out[i]);
    printf("exchanges of a step: %d + %d, %d + %d, %d + %d\n", gathers[0], handed_out[0], gathers[1], handed_out[1],
           gathers[2], handed_out[2]);
    assert_int_equal(gathers[0], 2 * parameters);
    assert_int_equal(handed_out[0], parameters);
    assert_true(gathers[1] >= 2 * 6 && gathers[1] <= 2 * 10);
    assert_true(handed_out[1] >= 6 && handed_out[1] <= 10);
    assert_int_equal(gathers[2], 2);
    assert_int_equal(handed_out[2], 1);
    /* In a loop over micro-batches each turn hands out; what is gathered stays outside. */
    for (int i = 0; i < 3; i++) count_exchanges(&env, g, 2, buckets[i], &gathers[i], &handed_out[i]);
    printf("of which with two micro-batches stand in the graph: %d + %d, %d + %d, %d + %d\n", gathers[0], handed_out[0],
           gathers[1], handed_out[1], gathers[2], handed_out[2]);
    assert_int_equal(gathers[0], parameters);
    assert_int_equal(handed_out[0], parameters);
    assert_true(handed_out[1] >= 6 && handed_out[1] <= 10);
    assert_int_equal(gathers[2], 1);
    assert_int_equal(handed_out[2], 1);
    sglir_graph_free(g);
}

/* ---- ahead of readers ----------------------------------------------------------------------------------------------------------- */

static bool is_gather(const sglir_node *node)
{
    return node->op == SGLIR_OP_ALL_GATHER || node->op == SGLIR_OP_ALL_GATHER_EACH;
}

static int64_t bytes_made(const sglir_graph *g, const sglir_node *node)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->out_count; i++) bytes += sglir_bytes(sglir_type_of(g, node->out_first + i));
    return bytes;
}

/* The exchange that makes what the wait hands on; SGLIR_NONE for what is no wait for a gather. */
static sglir_id awaited(const sglir_graph *g, const sglir_node *wait)
{
    if (wait->op != SGLIR_OP_WAIT) return SGLIR_NONE;
    const sglir_id exchange = sglir_value_at(g, sglir_arg(g, wait, 0))->node;
    return is_gather(sglir_node_at(g, exchange)) ? exchange : SGLIR_NONE;
}

/* Each gather but the first begins while the one before it has not been waited for, or is worked with; of what has begun and is not
 * waited for there are never more bytes than two of the largest. */
static void test_prefetch(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 4, .seq = 4, .dim = 128, .heads = 2, .ffn = 384, .vocab = 128, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    const sglplan plan = plan_of(4, ZERO_3, "", 700000);
    sglir_graph *made = placed(&env, g, &plan);
    uint8_t *under_way = calloc((size_t)made->nodes.count, 1);
    int64_t largest = 0, ahead = 0, most = 0;
    int begun = 0, early = 0;
    const sglir_region *top = &made->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_id id = top->nodes.data[n];
        const sglir_node *node = sglir_node_at(made, id);
        const sglir_id ended = awaited(made, node);
        if (is_gather(node)) {
            const int64_t bytes = bytes_made(made, node);
            const sglir_node *next = sglir_node_at(made, top->nodes.data[n + 1]);
            begun++;
            early += awaited(made, next) != id;
            under_way[id] = 1;
            ahead += bytes;
            largest = bytes > largest ? bytes : largest;
            most = ahead > most ? ahead : most;
        } else if (ended != SGLIR_NONE && under_way[ended]) {
            under_way[ended] = 0;
            ahead -= bytes_made(made, sglir_node_at(made, ended));
        }
    }
    printf("of %d gathers %d begin early; largest %lld bytes, under way at the most %lld\n", begun, early,
           (long long)largest, (long long)most);
    assert_true(early >= begun - 2);
    assert_true(most <= 2 * largest);
    assert_int_equal(ahead, 0);
    free(under_way);
    sglir_graph_free(made);
    sglir_graph_free(g);
}

/* ---- the numbers ------------------------------------------------------------------------------------------------------------ */

/* Up to what this test is about, with parameters and states by themselves, as the interpreter knows them. */
static const sglpass list[] = { { "simplify", sglpass_simplify, SGLIR_LOGICAL, true, "" },
                                { "autodiff", sglpass_autodiff, SGLIR_PER_RANK, false, "" },
                                { "shard", sglpass_shard, SGLIR_PER_RANK, false, "" },
                                { "micro", sglpass_micro_split, SGLIR_PER_RANK, false, "" },
                                { "simplify-again", sglpass_simplify, SGLIR_PER_RANK, true, "" },
                                { "collect", sglpass_collect, SGLIR_PER_RANK, true, "" },
                                { "recompute", sglpass_recompute, SGLIR_PER_RANK, true, "" },
                                { "regather", sglpass_regather, SGLIR_PER_RANK, true, "" },
                                { NULL, NULL, SGLIR_LOGICAL, false, NULL } };

static sglir_graph *as_rank(sglcore_env *env, const sglir_graph *g, const sglplan *plan, int64_t number)
{
    sglir_graph *made = NULL;
    bool changed;
    const sglpass_context context = { .env = env, .plan = plan, .rank = number, .changed = &changed };
    if (sglpass_run_list(&context, list, g, NULL, &made) != SGL_OK) fail_msg("rank %d: %s", (int)number, env->message);
    if (sglir_verify(made, SGLIR_PER_RANK) != SGL_OK) fail_msg("rank %d: %s", (int)number, env->message);
    return made;
}

static void check_numbers(sglcore_env *env, const char *name, const sglir_graph *g, const sglplan *plan,
                          const interp *whole)
{
    const int64_t ranks = plan->mesh[SGLIR_AXIS_FSDP] * plan->mesh[SGLIR_AXIS_DP];
    sglir_graph *graphs[INTERP_MOST_RANKS];
    interp in[INTERP_MOST_RANKS] = { { 0 } };
    ir_message message;
    for (int64_t r = 0; r < ranks; r++) graphs[r] = as_rank(env, g, plan, r);
    if (!ir_case_round_trip(env, graphs[0], &message)) fail_msg("%s: %s", name, message.text);
    if (!interp_world_run(whole, plan, (const sglir_graph *const *)graphs, in)) fail_msg("%s: %s", name, in[0].error);
    for (int64_t r = 0; r < ranks; r++) {
        interp expected;
        assert_true(interp_expected(whole, plan, r, graphs[r], &expected));
        if (!ir_case_same_results(&expected, &in[r], graphs[r], (ir_tolerance){ 1e-10, 1e-12 }, &message))
            fail_msg("%s, rank %d: %s", name, (int)r, message.text);
        interp_free(&expected);
    }
    for (int64_t r = 0; r < ranks; r++) {
        interp_free(&in[r]);
        sglir_graph_free(graphs[r]);
    }
}

static void check_all(sglcore_env *env, const char *name, const sglir_graph *g, uint64_t seed, int64_t micro)
{
    static const char *const layouts[] = { ZERO_1, ZERO_3 };
    static const int64_t buckets[] = { 1, 300, 4 << 20 };
    sglplan alone;
    interp whole = { 0 };
    sglir_graph *expanded = NULL;
    sglplan_init(&alone);
    const sglpass_context context = { .env = env, .plan = &alone };
    assert_int_equal(sglpass_run(&context, g, "autodiff", &expanded), SGL_OK);
    ir_case_fill(&whole, g, seed);
    if (!interp_run(&whole, expanded)) fail_msg("%s: %s", name, whole.error);
    for (int i = 0; i < 2; i++) {
        for (int b = 0; b < 3; b++) {
            sglplan plan = plan_of(b == 0 ? 3 : 2, layouts[i], "", buckets[b]);
            if (b == 2) plan.mesh[SGLIR_AXIS_DP] = 2;
            if (b == 1) plan.mesh[SGLIR_AXIS_MICRO] = micro;
            check_numbers(env, name, g, &plan, &whole);
        }
    }
    interp_free(&whole);
    sglir_graph_free(expanded);
}

static void test_numbers(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 3, .batch = 12, .seq = 4, .dim = 8, .heads = 2, .ffn = 10, .vocab = 11, .dropout = 0.25
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    check_all(&env, "transformer", g, 7, 3);
    sglir_recompute(g, "blocks.1");
    check_all(&env, "transformer, a block made again", g, 8, 2);
    sglir_graph_free(g);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        char name[32];
        snprintf(name, sizeof name, "seed %d", (int)seed);
        g = random_graph(&env, seed);
        assert_non_null(g);
        check_all(&env, name, g, seed, 1);
        sglir_graph_free(g);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------ */

typedef struct compiling {
    const sglir_graph *sharded;
    const sglplan *plan;
} compiling;

static sgl_status compile(sglcore_env *env, void *user)
{
    const compiling *c = user;
    const sglpass_context context = { .env = env, .plan = c->plan };
    sglir_graph *collected = NULL, *again = NULL;
    sgl_status status = sglpass_collect(&context, c->sharded, &collected);
    if (status == SGL_OK) status = sglpass_regather(&context, collected, &again);
    sglir_graph_free(collected);
    sglir_graph_free(again);
    return status;
}

static void test_memory_faults(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 1, .batch = 4, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes), *sharded = NULL;
    const sglplan plan = plan_of(2, ZERO_3, "", 100);
    const sglpass_context context = { .env = &env, .plan = &plan };
    assert_int_equal(sglpass_run(&context, g, "simplify-again", &sharded), SGL_OK);
    compiling c = { sharded, &plan };
    fault_each_allocation(compile, &c);
    sglir_graph_free(sharded);
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bytes),        cmocka_unit_test(test_uneven),
                                        cmocka_unit_test(test_peak),         cmocka_unit_test(test_merged),
                                        cmocka_unit_test(test_prefetch),     cmocka_unit_test(test_numbers),
                                        cmocka_unit_test(test_memory_faults) };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}

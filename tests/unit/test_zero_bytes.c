/* test_zero_bytes.c -- data parallel whose states, gradients and parameters are in parts (ZeRO): bytes that cross the link, against
 * the formula of each level.
 *
 * In: a small transformer with extents that no number of ranks divides, in buckets of several sizes. Out: bytes that the ranks of
 * a session send in a step, as threads of this process, and a parameter after it, the same bits in every bucket. ctest: serial */
#include "tests/support/session_ranks.h"

#include "tests/support/ir_case.h"
#include "tests/support/transformer_graph.h"

enum { BATCH = 8, SEQ = 4, DIM = 64, VOCAB = 1001 };

static const char ZERO_0[] = "", ZERO_1[] = "states * fsdp:0", ZERO_3[] = "* fsdp:0";

typedef struct job {
    const char *text; /* of the graph */
    session_layout layout;
    int64_t bucket;           /* 0: the plan's own */
    float embed[VOCAB * DIM]; /* what rank 0 ends with */
    pthread_barrier_t barrier;
    int64_t sent; /* of values, by all ranks together, in the second step */
} job;

/* ---- one rank --------------------------------------------------------------------------------------------------------------- */

/* Small numbers, which differ from element to element. */
static sgl_status begin_parameter(session_rank *r, const char *name, const sgl_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->dims[i];
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) data[i] = (float)((i * 37 + type->dims[0]) % 101 - 50) * 0.002f;
    sgl_status status = sgl_state_write(r->session, name, data, (size_t)count * sizeof *data);
    free(data);
    return status;
}

static sgl_status begin(session_rank *r)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    const char *name;
    sgl_type type;
    sgl_role role;
    for (int i = 0; sgl_state_info(r->session, i, &name, &role, &type) == SGL_OK && name; i++)
        if (role == SGL_PARAMETER) SGLCORE_TRY(begin_parameter(r, name, &type));
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = i * 131 % VOCAB;
        targets[i] = i * 257 % VOCAB;
    }
    SGLCORE_TRY(sgl_feed(r->program, "tokens", tokens, sizeof tokens));
    return sgl_feed(r->program, "targets", targets, sizeof targets);
}

static sgl_status body(session_rank *r)
{
    job *j = r->all->job;
    const sgl_attr bucket = { .name = "bucket", .kind = SGL_ATTR_INT, .i = j->bucket };
    float *embed = r->number == 0 ? j->embed : malloc(sizeof j->embed);
    sgl_status status = session_rank_freeze(r, j->text, &j->layout, j->bucket > 0 ? &bucket : NULL, &r->program);
    if (status == SGL_OK) status = begin(r);
    if (status == SGL_OK) status = sgl_step(r->program); /* before the first step ranks compare what they do */
    pthread_barrier_wait(&j->barrier);
    const int64_t before = loop_values_sent();
    pthread_barrier_wait(&j->barrier);
    if (status == SGL_OK) status = sgl_step(r->program);
    pthread_barrier_wait(&j->barrier);
    if (r->number == 0) j->sent = loop_values_sent() - before; /* alike on all of them */
    pthread_barrier_wait(&j->barrier);
    if (status == SGL_OK) status = sgl_state_read(r->session, "embed", embed, sizeof j->embed);
    if (r->number != 0) free(embed);
    return status;
}

static void run_job(job *j)
{
    char layout[SESSION_LAYOUT_ROOM];
    session_ranks all = { .size = session_layout_size(&j->layout), .body = body, .job = j };
    pthread_barrier_init(&j->barrier, NULL, (unsigned)all.size);
    session_ranks_run(&all);
    pthread_barrier_destroy(&j->barrier);
    session_ranks_all_good(&all, session_layout_text(&j->layout, layout));
}

/* Other buckets come to the same bits: `first` holds those of the first one. */
static void check_bits(float *first, const job *j, bool is_first, const char *name)
{
    if (is_first)
        memcpy(first, j->embed, sizeof j->embed);
    else if (memcmp(first, j->embed, sizeof j->embed) != 0)
        fail_msg("%s, bucket %lld: other bits", name, (long long)j->bucket);
}

/* ---- the tests ---------------------------------------------------------------------------------------------------------------- */

static sglir_graph *transformer(sglcore_env *env, int64_t ffn)
{
    const transformer_sizes sizes = {
        .layers = 2, .batch = BATCH, .seq = SEQ, .dim = DIM, .heads = 2, .ffn = ffn, .vocab = VOCAB, .dtype = SGL_F32
    };
    sglir_graph *g;
    assert_int_equal(transformer_graph(env, &sizes, &g), SGL_OK);
    return g;
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
    static const int64_t buckets[] = { 0, 1, 40000 };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, 170);
    sglcore_text text = ir_case_print(&env, g);
    const double bytes = (double)transformer_parameter_bytes(g);
    static job j;
    static float first[VOCAB * DIM];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int b = 0; b < 3; b++) {
            j = (job){ .text = text.data, .layout = { rows[i].dp, rows[i].fsdp, 1, rows[i].layouts } };
            j.bucket = buckets[b];
            run_job(&j);
            const int ranks = session_layout_size(&j.layout);
            const double formula = rows[i].times * (ranks - 1) * bytes, ratio = (double)j.sent / formula;
            if (b == 0)
                printf("%-16s %10lld bytes, by formula %10.0f: %.5f\n", rows[i].name, (long long)j.sent, formula,
                       ratio);
            const double most = b == 0 ? 1.001 : 1.005; /* small sums by themselves go another way, in more bytes */
            if (!(ratio >= 1 && ratio <= most)) fail_msg("%s: %.5f of the formula's bytes", rows[i].name, ratio);
            assert_true(j.embed[0] == j.embed[0] && j.embed[0] != -0.098f); /* no NaN, and learnt */
            check_bits(first, &j, b == 0, rows[i].name);
        }
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
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, 171);
    sglcore_text text = ir_case_print(&env, g);
    static job j;
    static float first[VOCAB * DIM];
    for (int b = 0; b < 4; b++) {
        j = (job){ .text = text.data, .layout = { 1, 2, 2, layouts }, .bucket = buckets[b] };
        run_job(&j);
        check_bits(first, &j, b == 0, "fsdp=2,tp=2");
    }
    sglcore_text_free(&env, &text);
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bytes), cmocka_unit_test(test_uneven) };
    return cmocka_run_group_tests_name("zero, bytes", tests, NULL, NULL);
}

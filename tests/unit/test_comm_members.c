/* test_comm_members.c -- exchanges of many: each member comes as it would by itself, in whatever sizes, in place or not, many
 * under way at once; one exchange costs one latency; what cannot be is refused.
 *
 * In: members whose elements are numbers of rank and place, under drawn counts. Out: sums and parts, compared element by element.
 * ctest: serial */
#include "comm_case.h"

enum { MOST_MEMBERS = 24, TURNS = 45 };

/* The same on every rank. */
typedef struct many {
    int kind, members;
    int64_t counts[MOST_MEMBERS][LOOP_RANKS];
    int64_t turned[MOST_MEMBERS][LOOP_RANKS]
                  [LOOP_RANKS]; /* of all_to_all, in place of counts: elements from row to column */
    bool in_place[MOST_MEMBERS];
} many;

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Small, large and empty parts; some exchanges of small ones alone. */
static many draw(uint64_t seed, int ranks)
{
    static const int64_t sizes[] = { 0, 1, 7, 300, 5000, 600000 };
    static const int kinds[] = { SGLEXEC_ALL_GATHER, SGLEXEC_REDUCE_SCATTER, SGLEXEC_ALL_TO_ALL };
    many m = { .kind = kinds[next(&seed) % 3] };
    const uint64_t largest = next(&seed) % 8 == 0 ? 6 : 2 + next(&seed) % 4;
    m.members = 1 + (int)(next(&seed) % MOST_MEMBERS);
    for (int i = 0; i < m.members; i++) {
        const int64_t size = sizes[next(&seed) % largest];
        m.in_place[i] = next(&seed) % 3 == 0;
        for (int p = 0; p < ranks; p++) m.counts[i][p] = size / ranks + (p < size % ranks);
        if (next(&seed) % 4 == 0) m.counts[i][next(&seed) % (uint64_t)ranks] = 0;
        for (int p = 0; p < ranks * ranks && m.kind == SGLEXEC_ALL_TO_ALL; p++)
            m.turned[i][p / ranks][p % ranks] =
                next(&seed) % 4 ? (int64_t)(next(&seed) % (uint64_t)(size / ranks + 1)) : 0;
    }
    return m;
}

/* Whole numbers, so that sums are exact. */
static float element(int rank, int member, int64_t i) { return (float)((rank + 1) * (int)((member * 31 + i) % 1009)); }

typedef struct buffers {
    float *from[MOST_MEMBERS], *to[MOST_MEMBERS];
    int64_t counts_in[MOST_MEMBERS][LOOP_RANKS];
    sglexec_member members[MOST_MEMBERS];
} buffers;

static int64_t before(const many *m, int member, int place)
{
    int64_t count = 0;
    for (int p = 0; p < place; p++) count += m->counts[member][p];
    return count;
}

static int64_t turned_before(const many *m, int member, int from, int to)
{
    int64_t count = 0;
    for (int p = 0; p < to; p++) count += m->turned[member][from][p];
    return count;
}

static void fill_turns(const many *m, int ranks, int rank, buffers *b)
{
    for (int i = 0; i < m->members; i++) {
        const int64_t out = turned_before(m, i, rank, ranks);
        int64_t in = 0;
        for (int p = 0; p < ranks; p++) in += b->counts_in[i][p] = m->turned[i][p][rank];
        b->from[i] = calloc((size_t)out + 1, sizeof(float));
        b->to[i] = calloc((size_t)in + 1, sizeof(float));
        for (int64_t e = 0; e < out; e++) b->from[i][e] = element(rank, i, e);
        b->members[i] = (sglexec_member){ b->from[i], b->to[i], m->turned[i][rank], b->counts_in[i] };
    }
}

static bool turns_are_right(const many *m, int ranks, int rank, const buffers *b)
{
    for (int i = 0; i < m->members; i++) {
        const float *to = b->to[i];
        for (int p = 0; p < ranks; p++) {
            const int64_t first = turned_before(m, i, p, rank);
            for (int64_t e = 0; e < m->turned[i][p][rank]; e++)
                if (*to++ != element(p, i, first + e)) return false;
        }
        if (*to != 0) return false; /* behind the end */
    }
    return true;
}

static void fill(const many *m, int ranks, int rank, buffers *b)
{
    if (m->kind == SGLEXEC_ALL_TO_ALL) {
        fill_turns(m, ranks, rank, b);
        return;
    }
    const bool gathers = m->kind == SGLEXEC_ALL_GATHER;
    for (int i = 0; i < m->members; i++) {
        const int64_t all = before(m, i, ranks), own = m->counts[i][rank], first = before(m, i, rank);
        float *large = calloc((size_t)all + 1, sizeof *large), *small = calloc((size_t)own + 1, sizeof *small);
        if (m->in_place[i]) {
            free(small);
            small = large + first;
        }
        for (int64_t e = 0; e < (gathers ? own : all); e++)
            (gathers ? small : large)[e] = element(rank, i, gathers ? first + e : e);
        b->from[i] = gathers ? small : large;
        b->to[i] = gathers ? large : small;
        b->members[i] = (sglexec_member){ b->from[i], b->to[i], m->counts[i], NULL };
    }
}

static bool is_right(const many *m, int ranks, int rank, const buffers *b)
{
    const bool gathers = m->kind == SGLEXEC_ALL_GATHER;
    if (m->kind == SGLEXEC_ALL_TO_ALL) return turns_are_right(m, ranks, rank, b);
    for (int i = 0; i < m->members; i++) {
        for (int p = 0; p < ranks; p++) {
            const int64_t first = before(m, i, p);
            for (int64_t e = 0; e < m->counts[i][p] && (gathers || p == rank); e++) {
                const float sum = element(ranks * (ranks + 1) / 2 - 1, i, first + e);
                const float wanted = gathers ? element(p, i, first + e) : sum;
                if (b->to[i][gathers ? first + e : e] != wanted) return false;
            }
        }
    }
    return true;
}

static void release(const many *m, buffers *b)
{
    const bool gathers = m->kind == SGLEXEC_ALL_GATHER;
    for (int i = 0; i < m->members; i++) {
        free(gathers ? b->to[i] : b->from[i]);
        if (!m->in_place[i] || m->kind == SGLEXEC_ALL_TO_ALL) free(gathers ? b->from[i] : b->to[i]);
    }
}

/* Two are under way at once. */
static void many_body(comm_rank *r)
{
    many *m = calloc(2, sizeof *m);
    buffers *b = calloc(2, sizeof *b);
    const uint64_t first = *(const uint64_t *)r->all->context;
    for (uint64_t turn = 0; turn < TURNS && r->status == SGL_OK; turn++) {
        uint32_t tickets[2];
        for (int k = 0; k < 2; k++) {
            m[k] = draw(first + 2 * turn + (uint64_t)k, r->all->size);
            fill(&m[k], r->all->size, r->rank, &b[k]);
            const sglexec_exchange x = { .kind = (uint8_t)m[k].kind,
                                         .dtype = SGL_F32,
                                         .members = b[k].members,
                                         .member_count = m[k].members,
                                         .label = "many" };
            if (r->status == SGL_OK) r->status = sglcomm_start(r->comm->world, &x, NULL, &tickets[k]);
        }
        for (int k = 0; k < 2 && r->status == SGL_OK; k++) r->status = sglcomm_wait(r->comm->world, tickets[k], NULL);
        for (int k = 0; k < 2; k++) {
            if (r->status == SGL_OK && !is_right(&m[k], r->all->size, r->rank, &b[k]))
                r->fault = m[k].kind == SGLEXEC_ALL_GATHER       ? "a gather of many is wrong"
                           : m[k].kind == SGLEXEC_REDUCE_SCATTER ? "a sum of many is wrong"
                                                                 : "an all_to_all of many is wrong";
            release(&m[k], &b[k]);
        }
    }
    free(m);
    free(b);
}

static void test_members(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++) {
        for (int delay_us = 0; delay_us <= 100; delay_us += 100) {
            uint64_t seed = (uint64_t)size * 1000 + (uint64_t)delay_us;
            comm_case all = { .size = size, .options = { .timeout_s = 60 }, .body = many_body, .context = &seed };
            loop_world(size, delay_us);
            comm_case_run(&all);
            comm_case_all_good(&all);
        }
    }
}

/* ---- one latency -------------------------------------------------------------------------------------------------------------- */

enum { ONE_BY_ONE = 16, LATENCY_MS = 5 };

typedef struct timed {
    double together_s[2], apart_s[2];
} timed;

static double time_of(comm_rank *r, sglexec_exchange *list, int count)
{
    const sglexec_exchange meet = { .kind = SGLEXEC_BARRIER };
    uint32_t ticket;
    r->status = sglcomm_start(r->comm->world, &meet, NULL, &ticket);
    if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
    const double since = comm_case_now_s();
    for (int i = 0; i < count && r->status == SGL_OK; i++) {
        r->status = sglcomm_start(r->comm->world, &list[i], NULL, &ticket);
        if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
    }
    return comm_case_now_s() - since;
}

static void timed_body(comm_rank *r)
{
    static const int64_t counts[] = { 5000, 5000 };
    timed *t = r->all->context;
    float *from = calloc(ONE_BY_ONE, 10000 * sizeof *from), *to = calloc(ONE_BY_ONE, 10000 * sizeof *to);
    sglexec_member members[ONE_BY_ONE];
    sglexec_exchange apart[ONE_BY_ONE];
    for (int i = 0; i < ONE_BY_ONE; i++) {
        members[i] = (sglexec_member){ from + 10000 * i, to + 10000 * i, counts, NULL };
        apart[i] = (sglexec_exchange){ .kind = SGLEXEC_REDUCE_SCATTER,
                                       .dtype = SGL_F32,
                                       .counts = counts,
                                       .from = members[i].from,
                                       .to = members[i].to };
    }
    sglexec_exchange together = {
        .kind = SGLEXEC_REDUCE_SCATTER, .dtype = SGL_F32, .members = members, .member_count = ONE_BY_ONE
    };
    t->together_s[r->rank] = time_of(r, &together, 1);
    if (r->status == SGL_OK) t->apart_s[r->rank] = time_of(r, apart, ONE_BY_ONE);
    free(from);
    free(to);
}

static void test_one_latency(void **state)
{
    (void)state;
    timed t = { { 0 }, { 0 } };
    comm_case all = {
        .size = 2, .options = { .timeout_s = 20, .latency_us = 1000 * LATENCY_MS }, .body = timed_body, .context = &t
    };
    loop_world(2, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
    printf("16 sums: %.1f ms together, %.1f ms one by one\n", t.together_s[0] * 1e3, t.apart_s[0] * 1e3);
    assert_true(t.apart_s[0] >= ONE_BY_ONE * LATENCY_MS * 1e-3);
    assert_true(t.together_s[0] <= 0.5 * t.apart_s[0]);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------------- */

static void refused_body(comm_rank *r)
{
    static const int64_t counts[] = { 2, 2 }, bad[] = { 2, -1 }, others[] = { 1, 1 };
    float data[8] = { 0 };
    sglexec_member good = { data, data + 4, counts, NULL }, bare = { data, data + 4, NULL, NULL },
                   negative = { data, data + 4, bad, NULL }, meets = { data + 3, data, counts, NULL },
                   nowhere = { NULL, data, counts, NULL }, odd = { data, data + 4, counts, others },
                   negative_in = { data, data + 4, counts, bad }, onto = { data, data + 3, counts, counts };
    const struct {
        sglexec_exchange x;
        const char *why;
    } rows[] = {
        { { .kind = SGLEXEC_ALL_REDUCE, .members = &good, .member_count = 1 }, "of this kind has no members" },
        { { .kind = SGLEXEC_ALL_GATHER, .members = NULL, .member_count = 1 }, "there are no members" },
        { { .kind = SGLEXEC_ALL_GATHER, .members = &good, .member_count = -1 }, "there are no members" },
        { { .kind = SGLEXEC_ALL_GATHER, .members = &bare, .member_count = 1 }, "a member has no counts" },
        { { .kind = SGLEXEC_ALL_GATHER, .members = &negative, .member_count = 1 }, "a count is negative" },
        { { .kind = SGLEXEC_ALL_GATHER, .members = &meets, .member_count = 1 }, "from and to overlap" },
        { { .kind = SGLEXEC_REDUCE_SCATTER, .members = &nowhere, .member_count = 1 }, "from or to is NULL" },
        { { .kind = SGLEXEC_ALL_TO_ALL, .members = &good, .member_count = 1 }, "a member has no counts" },
        { { .kind = SGLEXEC_ALL_TO_ALL, .members = &negative_in, .member_count = 1 }, "a count is negative" },
        { { .kind = SGLEXEC_ALL_TO_ALL, .members = &odd, .member_count = 1 }, "is not what it receives from itself" },
        { { .kind = SGLEXEC_ALL_TO_ALL, .members = &onto, .member_count = 1 }, "from and to overlap" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t ticket;
        sglexec_exchange x = rows[i].x;
        x.dtype = SGL_F32;
        if (sglcomm_start(r->comm->world, &x, NULL, &ticket) != SGL_INVALID_ARGUMENT)
            r->fault = rows[i].why;
        else if (!strstr(r->env.message, rows[i].why))
            r->fault = rows[i].why;
    }
}

/* The bytes of all are counted as bytes, up to 2^63 and without a sum that wraps. Own parts stand in place; nothing is read. */
static void sizes_body(comm_rank *r)
{
    static const int64_t half[] = { 0, INT64_MAX / 2 }, few[] = { 0, INT64_MAX / 17 }, most[] = { 0, INT64_MAX },
                         sixth[] = { 0, INT64_MAX / 6 }, none[] = { 0, 0 };
    const struct {
        sgl_dtype dtype;
        const int64_t *counts[3];
        bool good, turns; /* turns: what comes has these counts, and nothing goes */
    } rows[] = {
        { SGL_I8, { half, half }, true, false },           { SGL_I8, { half, half, few }, false, false },
        { SGL_I8, { few, most }, false, false },           { SGL_I16, { sixth, sixth }, true, false },
        { SGL_I16, { sixth, sixth, sixth }, true, false }, { SGL_I16, { few, few, few }, true, false },
        { SGL_I32, { sixth, sixth }, false, false },       { SGL_I8, { half, half }, true, true },
        { SGL_I8, { half, half, few }, false, true },
    };
    char data[1];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sglexec_member members[3];
        sglexec_exchange x = { .kind = rows[i].turns ? SGLEXEC_ALL_TO_ALL : SGLEXEC_ALL_GATHER,
                               .dtype = (uint8_t)rows[i].dtype,
                               .members = members };
        while (x.member_count < 3 && rows[i].counts[x.member_count]) {
            const int64_t *counts = rows[i].counts[x.member_count];
            members[x.member_count++] = (sglexec_member){ data, data, rows[i].turns ? none : counts, counts };
        }
        const sgl_status status = sglcomm_check_exchange(&r->env, "world", 2, rows[i].turns ? 0 : r->rank, &x);
        if (status != (rows[i].good ? SGL_OK : SGL_INVALID_ARGUMENT))
            r->fault = rows[i].good ? "members of fewer bytes than 2^63 are refused" : "members of too many bytes pass";
        else if (!rows[i].good && !strstr(r->env.message, "beyond 2^63"))
            r->fault = "the message does not tell of the bytes";
    }
}

/* Ranks whose members differ find out, though the bytes of all are alike; context: the kind. */
static void differs_body(comm_rank *r)
{
    static const int64_t small[] = { 100, 100 }, large[] = { 200, 200 };
    float *data = calloc(1600, sizeof *data);
    uint32_t ticket;
    const bool first = r->rank == 0;
    const int64_t *one = first ? small : large, *two = first ? large : small;
    const sglexec_member members[] = { { data, data + 800, one, one }, { data + 400, data + 1200, two, two } };
    const sglexec_exchange x = { .kind = *(const uint8_t *)r->all->context,
                                 .dtype = SGL_F32,
                                 .members = members,
                                 .member_count = 2,
                                 .label = "skewed" };
    r->status = sglcomm_start(r->comm->world, &x, NULL, &ticket);
    if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
    free(data);
}

static void test_refusals(void **state)
{
    (void)state;
    comm_case all = { .size = 2, .options = { .timeout_s = 20 }, .body = refused_body };
    loop_world(2, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
    all.body = sizes_body;
    loop_world(2, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
    all.body = differs_body;
    for (int i = 0; i < 2; i++) {
        uint8_t kind = i ? SGLEXEC_ALL_TO_ALL : SGLEXEC_ALL_GATHER;
        all.context = &kind;
        loop_world(2, 0);
        comm_case_run(&all);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(all.ranks[rank].status, SGL_DEVICE);
            assert_non_null(strstr(all.ranks[rank].message, "skewed"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_members), cmocka_unit_test(test_one_latency),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests_name("comm members", tests, NULL, NULL);
}

/* test_comm_exchanges.c -- every exchange over the loop link, with 1 to 8 ranks, against a plain computation.
 *
 * In: each kind, dtype and reduction at the sizes where the way changes; storms of random exchanges over three groups. Out:
 * equal bits, or the case that differs. Beside it: arguments that are refused, the conversions of narrow floats for every
 * code, the bytes that a kind moves, and the times of a shaped link. */
#include "comm_case.h"

#include "backend/cpu/narrow.h"

static const sglexec_comm_options patient = { .timeout_s = 60 };

/* ---- every kind, dtype, size ---------------------------------------------------------------------------------------------- */

static const int64_t sizes[] = { 0, 1, 7, 1000, 5000, 40000 };

static void each_dtype(comm_rank *r)
{
    exchange_case c;
    uint64_t number = 0;
    for (int kind = 0; kind <= SGLEXEC_BROADCAST; kind++)
        for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++)
            for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]) && !r->fault && r->status == SGL_OK; i++) {
                const int reduction = dtype == SGL_BOOL ? SGLEXEC_MAX : (int)(number % 3);
                if (dtype == SGL_I4 || (sizes[i] > 5000 && dtype != SGL_F32 && dtype != SGL_F16)) continue;
                exchange_case_make(&c, ++number, r->all->size, r->rank, (sglexec_exchange_kind)kind, (sgl_dtype)dtype,
                                   (sglexec_reduction)reduction, sizes[i]);
                r->status = exchange_case_start(&c, &comm_case_ops, r->comm->world, number);
                if (r->status == SGL_OK) r->fault = exchange_case_end(&c, &comm_case_ops, r->comm->world, &r->status);
                if (r->fault) r->fault = strdup(r->fault);
            }
}

static void test_each_dtype(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++) {
        comm_case all = { .size = size, .options = patient, .body = each_dtype };
        loop_world(size, 0);
        comm_case_run(&all);
        comm_case_all_good(&all);
    }
}

/* Parts of several rows of pieces, at every kind. */
static void several_rows(comm_rank *r)
{
    exchange_case c;
    for (int kind = 0; kind <= SGLEXEC_BROADCAST && !r->fault && r->status == SGL_OK; kind++) {
        exchange_case_make(&c, 99 + (uint64_t)kind, r->all->size, r->rank, (sglexec_exchange_kind)kind, SGL_F32,
                           SGLEXEC_SUM, 200000);
        r->status = exchange_case_start(&c, &comm_case_ops, r->comm->world, (uint64_t)kind);
        if (r->status == SGL_OK) r->fault = exchange_case_end(&c, &comm_case_ops, r->comm->world, &r->status);
    }
}

static void test_several_rows(void **state)
{
    (void)state;
    /* On a link with a rate, however high, pieces are small. */
    comm_case all = { .size = 3, .options = { .timeout_s = 60, .bytes_per_s = 1e12 }, .body = several_rows };
    loop_world(3, 100);
    comm_case_run(&all);
    comm_case_all_good(&all);
}

static void storm(comm_rank *r)
{
    const char *fault =
        exchange_storm(&comm_case_ops, r->comm, *(const uint64_t *)r->all->context, 240, 20000, 300, &r->status);
    if (fault) r->fault = strdup(fault);
}

static void test_storms(void **state)
{
    (void)state;
    static const int worlds[] = { 2, 3, 4, 8 };
    for (int i = 0; i < 4; i++) {
        uint64_t seed = 1000 + (uint64_t)i;
        comm_case all = { .size = worlds[i], .options = patient, .body = storm, .context = &seed };
        loop_world(worlds[i], 200);
        comm_case_run(&all);
        comm_case_all_good(&all);
    }
}

/* Many pieces between two ranks, each behind its note, whichever comes when. */
static void many_pieces(comm_rank *r)
{
    enum { BYTES = 12 << 20 };
    uint32_t *data = malloc(BYTES);
    uint32_t ticket;
    for (int turn = 0; turn < 3 && r->status == SGL_OK; turn++) {
        for (uint32_t i = 0; i < BYTES / 4; i++) data[i] = r->rank == 0 ? i * 7 + (uint32_t)turn : 0;
        const sglexec_exchange x = { .kind = r->rank == 0 ? SGLEXEC_SEND : SGLEXEC_RECEIVE,
                                     .dtype = SGL_U32,
                                     .count = BYTES / 4,
                                     .from = data,
                                     .to = data,
                                     .peer = 1 - r->rank };
        r->status = sglcomm_start(r->comm->world, &x, NULL, &ticket);
        if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
        for (uint32_t i = 0; i < BYTES / 4; i++)
            if (data[i] != i * 7 + (uint32_t)turn) r->fault = "pieces came in another order";
    }
    free(data);
}

static void test_many_pieces(void **state)
{
    (void)state;
    comm_case all = { .size = 2, .options = { .timeout_s = 60, .bytes_per_s = 1e12 }, .body = many_pieces };
    loop_world(2, 60);
    comm_case_run(&all);
    comm_case_all_good(&all);
}

/* A ring of sends that all start before any receive, and a rank that sends to another twice. */
static void ring(comm_rank *r)
{
    enum { COUNT = 300000 };
    float *from = malloc(COUNT * sizeof *from), *to = malloc(COUNT * sizeof *to);
    uint32_t sent, received;
    const int size = r->all->size;
    for (int round = 0; round < 3 && r->status == SGL_OK; round++) {
        for (int i = 0; i < COUNT; i++) from[i] = (float)(r->rank * 10 + round);
        sglexec_exchange x = { .kind = SGLEXEC_SEND,
                               .dtype = SGL_F32,
                               .count = COUNT,
                               .from = from,
                               .peer = (r->rank + 1) % size,
                               .label = "send" };
        sglexec_group *group = r->comm->world;
        r->status = sglcomm_start(group, &x, NULL, &sent);
        x = (sglexec_exchange){ .kind = SGLEXEC_RECEIVE,
                                .dtype = SGL_F32,
                                .count = COUNT,
                                .to = to,
                                .peer = (r->rank + size - 1) % size,
                                .label = "receive" };
        /* Nobody receives before its send has ended. */
        if (r->status == SGL_OK) r->status = sglcomm_wait(group, sent, NULL);
        if (r->status == SGL_OK) r->status = sglcomm_start(group, &x, NULL, &received);
        if (r->status == SGL_OK) r->status = sglcomm_wait(group, received, NULL);
        for (int i = 0; r->status == SGL_OK && i < COUNT; i++)
            if (to[i] != (float)((r->rank + size - 1) % size * 10 + round)) r->fault = "the ring brought other numbers";
    }
    free(from);
    free(to);
}

static void pipe_body(comm_rank *r)
{
    enum { COUNT = 300000 };
    float *data = malloc(COUNT * sizeof *data);
    uint32_t ticket;
    for (int round = 0; round < 4 && r->status == SGL_OK; round++) {
        for (int i = 0; i < COUNT; i++) data[i] = r->rank == 0 ? (float)round : -1;
        const int last = r->all->size - 1;
        for (int turn = 0; turn < 2 && r->status == SGL_OK; turn++) {
            const bool receives = turn == 0;
            if ((receives && r->rank == 0) || (!receives && r->rank == last)) continue;
            const sglexec_exchange x = { .kind = receives ? SGLEXEC_RECEIVE : SGLEXEC_SEND,
                                         .dtype = SGL_F32,
                                         .count = COUNT,
                                         .from = data,
                                         .to = data,
                                         .peer = r->rank + (receives ? -1 : 1),
                                         .label = "pipe" };
            r->status = sglcomm_start(r->comm->world, &x, NULL, &ticket);
            if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
        }
        for (int i = 0; r->status == SGL_OK && i < COUNT; i++)
            if (data[i] != (float)round) r->fault = "the pipe brought other numbers";
    }
    free(data);
}

static void test_pipe(void **state)
{
    (void)state;
    comm_case all = { .size = 4, .options = patient, .body = pipe_body };
    loop_world(4, 50);
    comm_case_run(&all);
    comm_case_all_good(&all);
}

/* All send first, and a large send ends only when it is received: late, told as a wait in a ring. */
static void test_ring_of_sends(void **state)
{
    (void)state;
    comm_case all = { .size = 3, .options = { .timeout_s = 0.4 }, .body = ring };
    loop_world(3, 0);
    comm_case_run(&all);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(all.ranks[r].status, SGL_DEVICE);
        assert_non_null(strstr(all.ranks[r].message, "awaiting rank"));
        assert_string_equal(all.ranks[r].message, all.ranks[0].message);
    }
}

/* ---- what is refused ---------------------------------------------------------------------------------------------------------- */

#define REFUSES(group, text, ...)                                                                                      \
    do {                                                                                                               \
        const sglexec_exchange refused_x = { .label = "x", __VA_ARGS__ };                                              \
        uint32_t refused_ticket;                                                                                       \
        if (sglcomm_start((group), &refused_x, NULL, &refused_ticket) != SGL_INVALID_ARGUMENT ||                       \
            !strstr(r->env.message, (text)))                                                                           \
            r->fault = "not refused: " text;                                                                           \
    } while (0)

static void refusals(comm_rank *r)
{
    float data[64];
    const int64_t bad[] = { 4, -1 }, huge[] = { INT64_MAX / 2, INT64_MAX / 2 }, some[] = { 4, 4 };
    sglexec_group *world = r->comm->world, *group;
    int twice[] = { 0, 0 }, far[] = { 0, 7 }, other[] = { 1 - r->rank };
    REFUSES(world, "i4 share a byte", .kind = SGLEXEC_SEND, .dtype = SGL_I4, .count = 4, .from = data,
            .peer = 1 - r->rank);
    REFUSES(world, "bools have no sum", .kind = SGLEXEC_ALL_REDUCE, .dtype = SGL_BOOL, .count = 4, .from = data,
            .to = data);
    REFUSES(world, "negative", .kind = SGLEXEC_ALL_GATHER, .dtype = SGL_F32, .counts = bad, .from = data,
            .to = data + 8);
    REFUSES(world, "beyond 2^63", .kind = SGLEXEC_ALL_GATHER, .dtype = SGL_F32, .counts = huge, .from = data,
            .to = data + 8);
    REFUSES(world, "negative", .kind = SGLEXEC_BROADCAST, .dtype = SGL_F32, .count = -1, .from = data, .to = data);
    REFUSES(world, "no place", .kind = SGLEXEC_BROADCAST, .dtype = SGL_F32, .count = 4, .from = data, .to = data,
            .peer = 2);
    REFUSES(world, "itself", .kind = SGLEXEC_SEND, .dtype = SGL_F32, .count = 4, .from = data, .peer = r->rank);
    REFUSES(world, "is NULL", .kind = SGLEXEC_ALL_REDUCE, .dtype = SGL_F32, .count = 4, .from = data);
    REFUSES(world, "overlap", .kind = SGLEXEC_ALL_REDUCE, .dtype = SGL_F32, .count = 8, .from = data, .to = data + 4);
    REFUSES(world, "overlap", .kind = SGLEXEC_ALL_TO_ALL, .dtype = SGL_F32, .counts = some, .counts_in = some,
            .from = data, .to = data);
    REFUSES(world, "no such kind", .kind = 40);
    REFUSES(world, "no such dtype", .kind = SGLEXEC_SEND, .dtype = 200);
    REFUSES(world, "no such reduction", .kind = SGLEXEC_ALL_REDUCE, .dtype = SGL_F32, .reduction = 9, .count = 1,
            .from = data, .to = data);
    if (sglcomm_group(r->comm, "g", twice, 2, &group) != SGL_INVALID_ARGUMENT || !strstr(r->env.message, "twice") ||
        sglcomm_group(r->comm, "g", far, 2, &group) != SGL_INVALID_ARGUMENT || !strstr(r->env.message, "no rank 7") ||
        sglcomm_group(r->comm, "g", other, 1, &group) != SGL_OK || group != NULL ||
        sglcomm_group(r->comm, "g", twice, 3, &group) != SGL_INVALID_ARGUMENT)
        r->fault = "a group that cannot be was made";
    if (sglcomm_wait(world, 77, NULL) != SGL_WRONG_STATE) r->fault = "a ticket that was not given was waited for";
    uint32_t ticket;
    const sglexec_exchange x = { .kind = SGLEXEC_BARRIER };
    if (sglcomm_start(world, &x, data, &ticket) != SGL_UNSUPPORTED) r->fault = "a stream was taken";
}

static void test_refusals(void **state)
{
    (void)state;
    comm_case all = { .size = 2, .options = patient, .body = refusals };
    loop_world(2, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
}

/* A queue that is full, and one that goes on after it. */
static void full_queue(comm_rank *r)
{
    float data = 1;
    uint32_t ticket = 0;
    const sglexec_exchange x = { .kind = SGLEXEC_RECEIVE, .dtype = SGL_F32, .count = 1, .to = &data, .peer = 0 };
    const sglexec_exchange y = { .kind = SGLEXEC_SEND, .dtype = SGL_F32, .count = 1, .from = &data, .peer = 1 };
    if (r->rank == 1) {
        for (int i = 0; i < SGLCOMM_QUEUE; i++)
            if (sglcomm_start(r->comm->world, &x, NULL, &ticket) != SGL_OK) r->fault = "the queue was full too soon";
        if (sglcomm_start(r->comm->world, &x, NULL, &ticket) != SGL_LIMIT) r->fault = "the queue was never full";
        comm_case_sleep_ms(100);
    } else {
        comm_case_sleep_ms(150);
        for (int i = 0; i < SGLCOMM_QUEUE && r->status == SGL_OK; i++) {
            r->status = sglcomm_start(r->comm->world, &y, NULL, &ticket);
            if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
        }
    }
    if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
}

static void test_full_queue(void **state)
{
    (void)state;
    comm_case all = { .size = 2, .options = patient, .body = full_queue };
    loop_world(2, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------------------------- */

static void test_narrow_codes(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        const uint16_t wide[2] = { (uint16_t)code, 0 };
        const uint8_t byte[2] = { (uint8_t)code, 0 };
        uint16_t out;
        uint8_t out8;
        const void *const wides[] = { &wide[0], &wide[1] }, *const bytes[] = { &byte[0], &byte[1] };
        sglcomm_reduce(SGL_BF16, SGLEXEC_SUM, &out, wides, 2, 1);
        assert_int_equal(out, sglcpu_narrow_bf16(sglcpu_widen_bf16(wide[0]) + 0.0f));
        sglcomm_reduce(SGL_F16, SGLEXEC_SUM, &out, wides, 2, 1);
        assert_int_equal(out, sglcpu_narrow_f16(sglcpu_widen_f16(wide[0]) + 0.0f));
        if (code > 255) continue;
        for (uint32_t other = 0; other < 256; other++) {
            const uint8_t second = (uint8_t)other;
            const void *const pair[] = { &byte[0], &second };
            sglcomm_reduce(SGL_F8E4M3, SGLEXEC_SUM, &out8, pair, 2, 1);
            assert_int_equal(out8, sglcpu_narrow_f8e4m3(sglcpu_widen_f8e4m3(byte[0]) + sglcpu_widen_f8e4m3(second)));
            sglcomm_reduce(SGL_F8E5M2, SGLEXEC_SUM, &out8, pair, 2, 1);
            assert_int_equal(out8, sglcpu_narrow_f8e5m2(sglcpu_widen_f8e5m2(byte[0]) + sglcpu_widen_f8e5m2(second)));
        }
        sglcomm_reduce(SGL_F8E4M3, SGLEXEC_SUM, &out8, bytes, 2, 1);
    }
    /* Sums of numbers far apart round f16 at every place. */
    uint64_t seed = 3;
    for (int i = 0; i < 200000; i++) {
        const uint64_t bits = exchange_random(&seed);
        const uint16_t a = (uint16_t)bits, b = (uint16_t)(bits >> 16);
        const void *const pair[] = { &a, &b };
        uint16_t out;
        sglcomm_reduce(SGL_F16, SGLEXEC_SUM, &out, pair, 2, 1);
        assert_int_equal(out, sglcpu_narrow_f16(sglcpu_widen_f16(a) + sglcpu_widen_f16(b)));
        sglcomm_reduce(SGL_BF16, SGLEXEC_SUM, &out, pair, 2, 1);
        assert_int_equal(out, sglcpu_narrow_bf16(sglcpu_widen_bf16(a) + sglcpu_widen_bf16(b)));
    }
}

static void test_not_numbers(void **state)
{
    (void)state;
    const float nan = strtof("nan", NULL), a[] = { nan, 1, 2, -1 }, b[] = { 1, nan, 3, -2 };
    const void *const pair[] = { a, b };
    float out[4];
    sglcomm_reduce(SGL_F32, SGLEXEC_MAX, out, pair, 2, 4);
    assert_true(out[0] != out[0] && out[1] != out[1] && out[2] == 3 && out[3] == -1);
    sglcomm_reduce(SGL_F32, SGLEXEC_MIN, out, pair, 2, 4);
    assert_true(out[0] != out[0] && out[1] != out[1] && out[2] == 2 && out[3] == -2);
    const int8_t x = 127, y = 1;
    const void *const bytes[] = { &x, &y };
    int8_t sum;
    sglcomm_reduce(SGL_I8, SGLEXEC_SUM, &sum, bytes, 2, 1);
    assert_int_equal(sum, -128);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------------------- */

static void move(comm_rank *r)
{
    enum { BYTES = 3 << 20 };
    const int kind = *(const int *)r->all->context;
    unsigned char *from = calloc(1, BYTES * 4), *to = calloc(1, BYTES * 4);
    const bool each = kind == SGLEXEC_REDUCE_SCATTER || kind == SGLEXEC_ALL_GATHER || kind == SGLEXEC_ALL_TO_ALL;
    const sglexec_exchange x = { .kind = (uint8_t)kind,
                                 .dtype = SGL_U8,
                                 .count = each ? BYTES / r->all->size : BYTES,
                                 .from = from,
                                 .to = to,
                                 .label = "moved" };
    uint32_t ticket;
    r->status = sglcomm_start(r->comm->world, &x, NULL, &ticket);
    if (r->status == SGL_OK) r->status = sglcomm_wait(r->comm->world, ticket, NULL);
    free(from);
    free(to);
}

/* What all ranks send together, to the formula of the kind, notes included, within 0.3%. */
static void test_bytes_moved(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    static const struct {
        sglexec_exchange_kind kind;
        double formula; /* of n - 1 */
    } rows[] = { { SGLEXEC_ALL_REDUCE, 2 },
                 { SGLEXEC_REDUCE_SCATTER, 1 },
                 { SGLEXEC_ALL_GATHER, 1 },
                 { SGLEXEC_ALL_TO_ALL, 1 },
                 { SGLEXEC_BROADCAST, 0 } };
    for (int n = 2; n <= 4; n++)
        for (int i = 0; i < 5; i++) {
            int kind = (int)rows[i].kind;
            comm_case all = { .size = n, .options = patient, .body = move, .context = &kind };
            loop_world(n, 0);
            comm_case_run(&all);
            comm_case_all_good(&all);
            const double parts = n == 2 ? 1 : (double)(n - 1) / n + (double)(n - 1) / n + (double)(n - 1) * (n - 2) / n;
            const double awaited =
                rows[i].kind == SGLEXEC_BROADCAST ? parts * BYTES : rows[i].formula * (n - 1) * BYTES;
            const double sent = (double)loop_bytes_sent();
            if (sent < awaited || sent > awaited * 1.003)
                fail_msg("kind %d, %d ranks: %.0f bytes sent, %.0f by the formula", rows[i].kind, n, sent, awaited);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_dtype),  cmocka_unit_test(test_several_rows), cmocka_unit_test(test_storms),
        cmocka_unit_test(test_many_pieces), cmocka_unit_test(test_pipe),         cmocka_unit_test(test_ring_of_sends),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_full_queue),   cmocka_unit_test(test_narrow_codes),
        cmocka_unit_test(test_not_numbers), cmocka_unit_test(test_bytes_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

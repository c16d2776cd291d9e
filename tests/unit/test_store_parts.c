/* test_store_parts.c -- checkpoints of several ranks: which parts meet where, how they are written and put together again, and
 * manifests whose parts are not what they must be.
 *
 * In: tensors cut into boxes, saved as so many ranks would. Out: the same bytes in wholes and in other boxes, reads of no more
 * than was wanted, errors that name the tensor. The process runs in a folder of its own. */
#include "checkpoint_cases.h"

#include "store/internal.h"

enum { TENSORS = 4, BYTES = 8192, FOLDER_STEP = 2 };
#define FOLDER "run/step-00000002"

/* ---- boxes -------------------------------------------------------------------------------------------------------- */

static uint64_t seed = 1;
static int64_t below(int64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)(seed >> 33) % n;
}

static sglstore_box any_box(const sgl_type *type)
{
    sglstore_box box = { .offsets = { 0 } };
    for (int d = 0; d < type->rank; d++) {
        box.offsets[d] = below(type->dims[d] + 1);
        box.dims[d] = below(type->dims[d] - box.offsets[d] + 1);
    }
    return box;
}

/* The element of the whole that stands at `at` in the box. */
static int64_t whole_element(const sgl_type *type, const sglstore_box *box, int64_t at)
{
    int64_t element = 0, scale = 1;
    for (int d = type->rank - 1; d >= 0; d--) {
        element += (box->offsets[d] + at % box->dims[d]) * scale;
        at /= box->dims[d];
        scale *= type->dims[d];
    }
    return element;
}

static void test_runs(void **state)
{
    (void)state;
    for (int turn = 0; turn < 3000; turn++) {
        sgl_type type = { .dtype = SGL_F32, .rank = (int)below(4) };
        for (int d = 0; d < type.rank; d++) type.dims[d] = 1 + below(5);
        const sglstore_box a = any_box(&type), b = any_box(&type);
        bool in_a[700] = { false }, in_b[700] = { false };
        int64_t both = 0, seen = 0, from, to, last = -1;
        for (int64_t i = 0; i < sglstore_box_elements(type.rank, &a); i++) in_a[whole_element(&type, &a, i)] = true;
        for (int64_t i = 0; i < sglstore_box_elements(type.rank, &b); i++) in_b[whole_element(&type, &b, i)] = true;
        for (int i = 0; i < 700; i++) both += in_a[i] && in_b[i];
        sglstore_runs runs = sglstore_runs_of(type.rank, &a, &b);
        while (sglstore_runs_next(&runs, &from, &to)) {
            assert_true(from > last && runs.count > 0);
            last = from + runs.count - 1;
            for (int64_t i = 0; i < runs.count; i++)
                assert_int_equal(whole_element(&type, &a, from + i), whole_element(&type, &b, to + i));
            seen += runs.count;
        }
        assert_int_equal(seen, both);
    }
}

static int ranks = 3; /* that save */

/* ---- saving and loading --------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    sgl_type type;
    uint8_t role;
    int dim; /* along which ranks have parts; -1: rank 0 has the whole */
} tensors[TENSORS] = {
    { "wq", { SGL_F32, 2, { 7, 12 } }, SGL_PARAMETER, 0 },
    { "wo", { SGL_BF16, 3, { 3, 5, 7 } }, SGL_PARAMETER, 1 },
    { "m/wq", { SGL_F32, 2, { 7, 12 } }, SGL_STATE, 1 },
    { "step", { SGL_I64, 0, { 0 } }, SGL_STATE, -1 },
};

typedef struct piece {
    sglstore_box box;
    int64_t bytes, writes;
    unsigned char data[BYTES];
} piece;

static int64_t size_of(int t) { return sglcore_dtype_bytes(tensors[t].type.dtype, 1); }
static unsigned char byte_of(int t, int64_t at)
{
    return (unsigned char)((uint64_t)(at * 31 + t * 101 + 7) * 2654435761u >> 13);
}

/* A part along `dim` of `count`, as evenly as can be, the last ones larger: not as any plan cuts. */
static sglstore_box cut(int t, int dim, int count, int place)
{
    sglstore_box box = sglstore_box_whole(&tensors[t].type);
    if (dim < 0) return box;
    const int64_t extent = tensors[t].type.dims[dim];
    box.offsets[dim] = extent * place / count;
    box.dims[dim] = extent * (place + 1) / count - box.offsets[dim];
    return box;
}

static void fill(piece *p, int t)
{
    p->bytes = sglstore_box_elements(tensors[t].type.rank, &p->box) * size_of(t);
    for (int64_t i = 0; i < p->bytes; i++)
        p->data[i] = byte_of(t, whole_element(&tensors[t].type, &p->box, i / size_of(t)) * size_of(t) + i % size_of(t));
}

static sgl_status read_piece(void *user, int64_t offset, void *data, int64_t bytes)
{
    const piece *p = user;
    assert_true(offset >= 0 && bytes > 0 && offset + bytes <= p->bytes);
    memcpy(data, p->data + offset, (size_t)bytes);
    return SGL_OK;
}

static sgl_status write_piece(void *user, int64_t offset, const void *data, int64_t bytes)
{
    piece *p = user;
    assert_true(offset >= 0 && bytes > 0 && offset + bytes <= p->bytes);
    memcpy(p->data + offset, data, (size_t)bytes);
    p->writes++;
    return SGL_OK;
}

static sgl_status save_rank(sglcore_env *env, int rank, sglcore_text *sheets)
{
    piece *pieces = calloc(TENSORS, sizeof *pieces);
    sglstore_source sources[TENSORS];
    int count = 0;
    for (int t = 0; t < TENSORS; t++) {
        if (tensors[t].dim < 0 && rank > 0) continue;
        pieces[t].box = cut(t, tensors[t].dim, ranks, rank);
        fill(&pieces[t], t);
        sources[count++] = (sglstore_source){ .name = tensors[t].name,
                                              .type = tensors[t].type,
                                              .role = tensors[t].role,
                                              .user = &pieces[t],
                                              .read = read_piece,
                                              .box = tensors[t].dim < 0 ? NULL : &pieces[t].box };
    }
    sgl_status status = sglstore_save_files(env, "run", FOLDER_STEP, rank, sources, count, sheets);
    free(pieces);
    return status;
}

static sgl_status save_all(sglcore_env *env)
{
    sglcore_text sheets = { 0 };
    SGLCORE_TRY(sglstore_save_begin(env, "run", FOLDER_STEP, "{}"));
    sgl_status status = SGL_OK;
    for (int r = 0; r < ranks && status == SGL_OK; r++) status = save_rank(env, r, &sheets);
    if (status == SGL_OK) status = sglstore_save_end(env, "run", FOLDER_STEP, "{}", &sheets, true, 0);
    if (status != SGL_OK) sglstore_save_abandon(env, "run", FOLDER_STEP);
    sglcore_text_free(env, &sheets);
    return status;
}

/* As rank `place` of `count` that cut along `dim` (-1: whole); what is read must be what was saved, or nothing was touched. */
static sgl_status load_part(sglcore_env *env, int dim, int count, int place, bool *touched)
{
    piece *pieces = calloc(TENSORS, sizeof *pieces), *expected = calloc(1, sizeof *expected);
    sglstore_target targets[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        pieces[t].box = cut(t, tensors[t].type.rank > dim ? dim : -1, count, place);
        pieces[t].bytes = sglstore_box_elements(tensors[t].type.rank, &pieces[t].box) * size_of(t);
        targets[t] = (sglstore_target){ .name = tensors[t].name,
                                        .type = tensors[t].type,
                                        .role = tensors[t].role,
                                        .user = &pieces[t],
                                        .write = write_piece,
                                        .box = dim < 0 ? NULL : &pieces[t].box };
    }
    sgl_status status = sglstore_checkpoint_load(env, FOLDER, targets, TENSORS, false);
    *touched = false;
    for (int t = 0; t < TENSORS; t++) {
        *touched = *touched || pieces[t].writes > 0;
        expected->box = pieces[t].box;
        fill(expected, t);
        if (status == SGL_OK) assert_memory_equal(pieces[t].data, expected->data, expected->bytes);
    }
    free(expected);
    free(pieces);
    return status;
}

static void test_any_to_any(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    bool touched;
    must(save_all(&env));
    assert_string_equal(names_in(FOLDER),
                        "manifest.json parameters.rank-00001.safetensors parameters.rank-00002.safetensors "
                        "parameters.safetensors states.rank-00001.safetensors "
                        "states.rank-00002.safetensors states.safetensors");
    for (int dim = -1; dim < 3; dim++)
        for (int count = 1; count <= 8; count++)
            for (int place = 0; place < count; place++) must(load_part(&env, dim, count, place, &touched));
    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

/* Each file is one that other tools read: parts are named with their places. */
static void test_files_alone(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglstore_tensors *file;
    sgl_type type;
    int64_t index;
    must(save_all(&env));
    must(sglstore_tensors_open(&env, FOLDER "/parameters.rank-00001.safetensors", &file));
    assert_int_equal(sglstore_tensors_count(file), 2);
    must(sglstore_tensors_find(file, "wq[2:4,0:12]", &index));
    sglstore_tensors_entry(file, index, &type, NULL, NULL);
    assert_true(type.rank == 2 && type.dims[0] == 2 && type.dims[1] == 12);
    must(sglstore_tensors_find(file, "wo[0:3,1:3,0:7]", &index));
    assert_true(index >= 0);
    sglstore_tensors_close(file);
    remove_tree("run");
}

/* ---- reading no more than is wanted ------------------------------------------------------------------------------------ */

static int64_t bytes_read;
static int count_reads(void *user, int fd, void *data, size_t bytes, int64_t offset, size_t *got)
{
    bytes_read += (int64_t)bytes;
    return sglcore_io_posix.read_at(user, fd, data, bytes, offset, got);
}

static sgl_status write_nothing(void *user, int64_t offset, const void *data, int64_t bytes)
{
    (void)offset;
    (void)data;
    *(int64_t *)user += bytes;
    return SGL_OK;
}

static sgl_status read_zeros(void *user, int64_t offset, void *data, int64_t bytes)
{
    (void)user;
    (void)offset;
    memset(data, 0, (size_t)bytes);
    return SGL_OK;
}

static void test_ranges(void **state)
{
    (void)state;
    enum { ROWS = 64, COLUMNS = 65536 };
    const sgl_type type = { SGL_F32, 2, { ROWS, COLUMNS } };
    sglcore_env env = plain_env();
    int64_t got = 0;
    sglcore_io io = *env.io;
    io.read_at = count_reads;
    env.io = &io;
    const sglstore_source source = { "w", type, SGL_PARAMETER, NULL, read_zeros, NULL };
    must(sglstore_checkpoint_save(&env, "run", FOLDER_STEP, NULL, &source, 1, 0));
    for (int dim = 0; dim < 2; dim++) {
        sglstore_box box = sglstore_box_whole(&type);
        box.dims[dim] /= 4;
        box.offsets[dim] = 2 * box.dims[dim];
        const sglstore_target target = { "w", type, SGL_PARAMETER, &got, write_nothing, &box, NULL };
        sglstore_loading *loading;
        must(sglstore_load_begin(&env, FOLDER, &target, 1, false, &loading));
        bytes_read = 0;
        must(sglstore_load_check(loading, 1, 2)); /* the one tensor is rank 0's to check */
        assert_int_equal(bytes_read, 0);
        must(sglstore_load_read(loading));
        sglstore_load_end(loading);
        assert_int_equal(bytes_read, ROWS * COLUMNS * 4 / 4);
        bytes_read = 0;
        must(sglstore_tensors_load(&env, FOLDER "/parameters.safetensors", &target, 1));
        assert_true(bytes_read < ROWS * COLUMNS * 4 / 4 + 4096);
    }
    assert_int_equal(got, ROWS * COLUMNS * 4);
    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- what is damaged ------------------------------------------------------------------------------------------------- */

/* The first place of `from` behind the first of `after` in the manifest becomes `to`, with the right hash at the end. */
static void forge(const char *original, const char *after, const char *from, const char *to)
{
    static const char seal[] = "\"xxh3_128\": \"";
    char *text = calloc(1, strlen(original) + 4096), hash[33];
    const char *at = strstr(original, after);
    assert_non_null(at);
    at = strstr(at, from);
    assert_non_null(at);
    sprintf(text, "%.*s%s%s", (int)(at - original), original, to, at + strlen(from));
    char *end = text + strlen(text) - strlen("\"\n}\n") - 32;
    sglcore_hash_text(sglcore_hash_bytes(text, (size_t)(end - text) - strlen(seal)), hash);
    memcpy(end, hash, 32);
    write_all(FOLDER "/manifest.json", text, (int64_t)strlen(text));
    free(text);
}

static void assert_corrupt(const char *message)
{
    sglcore_env env = plain_env();
    bool touched;
    assert_int_equal(load_part(&env, 0, 2, 1, &touched), SGL_CORRUPT);
    assert_false(touched);
    if (strstr(env.message, message) == NULL) fail_msg("%s expected: %s", message, env.message);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_manifests_that_lie(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    int64_t bytes;
    bool touched;
    must(save_all(&env));
    char *m = read_all(FOLDER "/manifest.json", &bytes);
    forge(m, "\"step\"", "2", "2");
    must(load_part(&env, 0, 2, 1, &touched));

    static const struct {
        const char *after, *from, *to, *message;
    } lies[] = {
        { "parameters.rank-00001", "\"offsets\": [2, 0]", "\"offsets\": [1, 0]",
          "wq[0:2,0:12] and wq[1:3,0:12] overlap" },
        { "parameters.rank-00001", "\"offsets\": [2, 0]", "\"offsets\": [3, 0]",
          "wq[3:5,0:12] and wq[4:7,0:12] overlap" },
        { "parameters.rank-00001", "\"offsets\": [2, 0]", "\"offsets\": [6, 0]",
          "wq: a part from 6 on, 2 long, of 7 along dimension 0" },
        { "parameters.rank-00001", "\"offsets\": [2, 0]", "\"offsets\": [2]",
          "wq: shape, offsets and whole have not as many dimensions" },
        { "parameters.rank-00001", ", \"offsets\": [2, 0]", "", "wq: of offsets and whole there is one alone" },
        { "parameters.rank-00001", "\"whole\": [7, 12]", "\"whole\": [8, 12]", "wq[2:4,0:12] of f32[8,12]" },
        { "parameters.rank-00001", "\"shape\": [2, 12]", "\"shape\": [0, 12]", "wq: a part from 2 on, 0 long" },
        { "parameters.rank-00001", "\"shape\": [2, 12]", "\"shape\": [1, 12]",
          "wq: a part of it is missing: the 3 that are there have 72 elements of f32[7,12]" },
        { "parameters.rank-00001", "\"name\": \"wq\"", "\"name\": \"wk\"", "wk: a part of it is missing" },
        { "\"files\"", "parameters.rank-00002", "parameters.rank-00001",
          "'parameters.rank-00001.safetensors' is there twice" },
        { "\"files\"", "parameters.rank-00002", "parameters.rank-2",
          "'parameters.rank-2.safetensors' is no name of a file" },
        { "\"files\"", "parameters.rank-00002", "../../parameters.rank-00002", "is no name of a file" },
        { "\"files\"", "parameters.rank-00002", "parameters.rank-00003",
          "parameters.rank-00003.safetensors: the file is missing" },
        { "\"files\"", "parameters.rank-00002", "states.rank-00009", "wo: a part of it is missing" },
        { "{", "\"format\": 2", "\"format\": 1", "format 1 has no parts" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        forge(m, lies[i].after, lies[i].from, lies[i].to);
        assert_corrupt(lies[i].message);
    }
    free(m);
    remove_tree("run");
}

static void test_files_that_are_damaged(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    int64_t bytes;
    must(save_all(&env));
    const char *path = FOLDER "/states.rank-00002.safetensors";
    char *data = read_all(path, &bytes);
    flip_bit(path, bytes - 1, 3);
    assert_corrupt("states.rank-00002.safetensors: m/wq[0:7,8:12]: its bytes are not those that were saved");
    flip_bit(path, bytes - 1, 3);
    flip_bit(path, 20, 0);
    assert_corrupt("states.rank-00002.safetensors");
    write_all(path, data, bytes - 1);
    assert_corrupt("states.rank-00002.safetensors");
    assert_int_equal(remove(path), 0);
    assert_corrupt("states.rank-00002.safetensors: the file is missing; it was saved, by another rank");
    free(data);
    remove_tree("run");
}

/* ---- what fails --------------------------------------------------------------------------------------------------------- */

static sgl_status save_body(sglcore_env *env, void *context)
{
    (void)context;
    return save_all(env);
}

static sgl_status load_body(sglcore_env *env, void *context)
{
    bool touched;
    (void)context;
    sgl_status status = load_part(env, 0, 2, 1, &touched);
    if (status == SGL_OUT_OF_MEMORY) assert_false(touched);
    return status;
}

static void test_faults(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    bool touched;
    ranks = 2;
    assert_true(fault_each_allocation(save_body, NULL) >= 30);
    assert_true(fault_each_io_tolerant(save_body, NULL, NULL) >= 60);
    must(save_all(&env));
    assert_true(fault_each_allocation(load_body, NULL) >= 30);
    assert_true(fault_each_io_tolerant(load_body, NULL, NULL) >= 30);
    must(load_part(&env, -1, 1, 0, &touched));
    remove_tree("run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_any_to_any),
        cmocka_unit_test(test_files_alone),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_manifests_that_lie),
        cmocka_unit_test(test_files_that_are_damaged),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("parts of checkpoints", tests, NULL, NULL);
}

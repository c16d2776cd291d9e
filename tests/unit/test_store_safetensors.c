/* test_store_safetensors.c -- safetensors files: every dtype and shape there and back, every kind of bad header refused
 * with the file and the entry named, every allocation and file operation failing. Started in an empty folder. */
#include "fault.h"

#include <stdio.h>
#include <unistd.h>

#include "safetensors_bytes.h"

/* ---- tensors in memory ------------------------------------------------------------------------------------------ */

enum { TENSORS_MOST = 32 };

typedef struct tensor {
    char name[64];
    sgl_type type;
    int64_t bytes;
    unsigned char *data;
} tensor;

static sgl_status read_tensor(void *user, int64_t offset, void *data, int64_t bytes)
{
    const tensor *t = user;
    assert_true(offset >= 0 && bytes > 0 && offset + bytes <= t->bytes);
    memcpy(data, t->data + offset, (size_t)bytes);
    return SGL_OK;
}

static tensor tensor_of(const char *name, sgl_dtype dtype, int rank, const int64_t *dims)
{
    tensor t = { .type = { dtype, rank, { 0 } } };
    int64_t count = 1;
    snprintf(t.name, sizeof t.name, "%s", name);
    for (int i = 0; i < rank; i++) {
        t.type.dims[i] = dims[i];
        count *= dims[i];
    }
    t.bytes = sglcore_dtype_bytes(dtype, count);
    t.data = malloc((size_t)t.bytes + 1);
    for (int64_t i = 0; i < t.bytes; i++) t.data[i] = (unsigned char)(i * 7 + (i >> 8) + name[0]);
    return t;
}

static sglstore_source source_of(tensor *t)
{
    return (sglstore_source){ t->name, t->type, SGL_PARAMETER, t, read_tensor, NULL };
}

static sglcore_env plain_env(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    return env;
}

/* One of each dtype the format has, and odd shapes; the last is longer than one piece of reading. */
static int make_tensors(tensor tensors[TENSORS_MOST])
{
    int count = 0;
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
        char name[64];
        if (dtype == SGL_I4) continue;
        snprintf(name, sizeof name, "of %s \"\xC3\xA9\\", sgl_dtype_name((sgl_dtype)dtype));
        tensors[count++] = tensor_of(name, (sgl_dtype)dtype, 2, (int64_t[]){ 3, 5 });
    }
    tensors[count++] = tensor_of("scalar", SGL_BF16, 0, NULL);
    tensors[count++] = tensor_of("empty", SGL_F32, 1, (int64_t[]){ 0 });
    tensors[count++] = tensor_of("empty.too", SGL_F32, 3, (int64_t[]){ 4, 0, 2 });
    tensors[count++] = tensor_of("eight.dims", SGL_U16, 8, (int64_t[]){ 1, 2, 1, 3, 1, 1, 2, 1 });
    tensors[count++] = tensor_of("large", SGL_F32, 2, (int64_t[]){ 517, 1031 });
    return count;
}

static void free_tensors(tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) free(tensors[i].data);
}

/* ---- there and back --------------------------------------------------------------------------------------------- */

static void check_entry(sglstore_tensors *file, const tensor *t, sglcore_hash hash)
{
    int64_t index, offset, bytes;
    sgl_type type;
    assert_int_equal(sglstore_tensors_find(file, t->name, &index), SGL_OK);
    assert_true(index >= 0);
    assert_string_equal(sglstore_tensors_entry(file, index, &type, &offset, &bytes), t->name);
    assert_int_equal(type.dtype, t->type.dtype);
    assert_int_equal(type.rank, t->type.rank);
    assert_memory_equal(type.dims, t->type.dims, sizeof type.dims);
    assert_int_equal(bytes, t->bytes);
    assert_int_equal(offset % (sglcore_dtype_bits(type.dtype) / 8), 0);
    unsigned char *data = malloc((size_t)bytes + 1);
    assert_int_equal(sglstore_tensors_read(file, index, 0, data, bytes), SGL_OK);
    assert_memory_equal(data, t->data, bytes);
    if (bytes > 3) {
        assert_int_equal(sglstore_tensors_read(file, index, 2, data, bytes - 3), SGL_OK);
        assert_memory_equal(data, t->data + 2, bytes - 3);
    }
    assert_true(sglcore_hash_equal(hash, sglcore_hash_bytes(t->data, (size_t)t->bytes)));
    free(data);
}

static void test_round_trip(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    tensor tensors[TENSORS_MOST];
    sglstore_source sources[TENSORS_MOST];
    sglcore_hash hashes[TENSORS_MOST];
    sglstore_extent extent, found;
    sglstore_tensors *file;
    int64_t index;
    int count = make_tensors(tensors);
    for (int i = 0; i < count; i++) sources[i] = source_of(&tensors[i]);
    assert_int_equal(sglstore_tensors_write(&env, "all.safetensors", sources, count, hashes, &extent), SGL_OK);
    assert_int_equal(sglstore_tensors_open(&env, "all.safetensors", &file), SGL_OK);
    assert_int_equal(sglstore_tensors_count(file), count);
    for (int i = 0; i < count; i++) check_entry(file, &tensors[i], hashes[i]);
    found = sglstore_tensors_extent(file);
    assert_int_equal(found.bytes, extent.bytes);
    assert_true(sglcore_hash_equal(found.header, extent.header));
    sglstore_tensors_entry(file, 0, NULL, &index, NULL);
    assert_int_equal(index % 64, 0); /* the data as a whole */

    assert_int_equal(sglstore_tensors_find(file, "not.there", &index), SGL_OK);
    assert_int_equal(index, -1);
    assert_int_equal(sglstore_tensors_find(file, "", &index), SGL_OK);
    assert_int_equal(index, -1);
    char byte;
    assert_int_equal(sglstore_tensors_read(file, 0, -1, &byte, 1), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_tensors_read(file, 0, INT64_MAX, &byte, 1), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_tensors_read(file, 0, 0, &byte, INT64_MAX), SGL_INVALID_ARGUMENT);
    sglstore_tensors_close(file);

    /* The same sources give the same bytes. */
    char *one, *two;
    int64_t one_bytes, two_bytes;
    assert_int_equal(sglstore_tensors_write(&env, "again.safetensors", sources, count, NULL, NULL), SGL_OK);
    assert_int_equal(sglcore_read_file(&env, "all.safetensors", &one, &one_bytes), SGL_OK);
    assert_int_equal(sglcore_read_file(&env, "again.safetensors", &two, &two_bytes), SGL_OK);
    assert_int_equal(one_bytes, extent.bytes);
    assert_int_equal(two_bytes, one_bytes);
    assert_memory_equal(one, two, one_bytes);
    sglcore_free(&env, one, (size_t)one_bytes + 1);
    sglcore_free(&env, two, (size_t)two_bytes + 1);
    free_tensors(tensors, count);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_no_tensors(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglstore_tensors *file;
    assert_int_equal(sglstore_tensors_write(&env, "none.safetensors", NULL, 0, NULL, NULL), SGL_OK);
    assert_int_equal(sglstore_tensors_open(&env, "none.safetensors", &file), SGL_OK);
    assert_int_equal(sglstore_tensors_count(file), 0);
    sglstore_tensors_close(file);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_many(void **state)
{
    (void)state;
#ifdef SGL_HARD_MODE
    enum { MANY = 300 }; /* every append moves the whole header there */
#else
    enum { MANY = 20000 };
#endif
    sglcore_env env = plain_env();
    sglstore_tensors *file;
    tensor one = tensor_of("one", SGL_F32, 1, (int64_t[]){ 2 });
    char(*names)[32] = malloc(MANY * sizeof *names);
    sglstore_source *sources = malloc(MANY * sizeof *sources);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "blocks.%d.weight", i);
        sources[i] = source_of(&one);
        sources[i].name = names[i];
    }
    int64_t start = sglcore_now_ns();
    assert_int_equal(sglstore_tensors_write(&env, "many.safetensors", sources, MANY, NULL, NULL), SGL_OK);
    assert_int_equal(sglstore_tensors_open(&env, "many.safetensors", &file), SGL_OK);
    for (int i = MANY - 1; i >= 0; i--) {
        int64_t index;
        assert_int_equal(sglstore_tensors_find(file, names[i], &index), SGL_OK);
        assert_int_equal(index, i);
    }
    assert_true(sglcore_now_ns() - start < 10000000000); /* about 0.1 s; a minute with a search for each name */
    sglstore_tensors_close(file);
    free(names);
    free(sources);
    free(one.data);
}

static void assert_refused(const sglstore_source *sources, int count, sgl_status expected, const char *message)
{
    sglcore_env env = plain_env();
    assert_int_equal(sglstore_tensors_write(&env, "refused.safetensors", sources, count, NULL, NULL), expected);
    assert_non_null(strstr(env.message, message));
    assert_int_equal(access("refused.safetensors", F_OK), -1); /* all is checked before the file is made */
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_refused_sources(void **state)
{
    (void)state;
    tensor t = tensor_of("w", SGL_F32, 1, (int64_t[]){ 2 });
    sglstore_source two[2] = { source_of(&t), source_of(&t) };
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "refused.safetensors: there are two tensors 'w'");
    two[1].name = "";
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "a tensor cannot be named ''");
    two[1].name = "__metadata__";
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "a tensor cannot be named '__metadata__'");
    two[1].name = "caf\xE9";
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "is not UTF-8 text");
    two[1].name = "x";
    two[1].type.dtype = SGL_I4;
    assert_refused(two, 2, SGL_UNSUPPORTED, "x: safetensors files have no dtype i4");
    two[1].type = (sgl_type){ SGL_F32, 2, { INT64_MAX, 2 } };
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "x: the shape is none");
    two[1].type = (sgl_type){ SGL_F32, 1, { -1 } };
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "x: the shape is none");
    two[1].type = (sgl_type){ SGL_F32, 9, { 1 } };
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "x: the shape is none");
    two[1].type = (sgl_type){ SGL_U8, 1, { INT64_MAX } };
    assert_refused(two, 2, SGL_INVALID_ARGUMENT, "x: more bytes than can be counted");
    free(t.data);
}

static sgl_status refuse_to_read(void *user, int64_t offset, void *data, int64_t bytes)
{
    (void)offset;
    (void)data;
    (void)bytes;
    return sglcore_fail(user, SGL_DEVICE, "the device fell asleep");
}

static void test_failing_source(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglstore_source source = { "w", { SGL_F32, 1, { 2 } }, SGL_PARAMETER, &env, refuse_to_read, NULL };
    assert_int_equal(sglstore_tensors_write(&env, "half.safetensors", &source, 1, NULL, NULL), SGL_DEVICE);
    assert_string_equal(env.message, "the device fell asleep");
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- bad headers ------------------------------------------------------------------------------------------------ */

static void assert_bad(const char *header, int64_t data_bytes, const char *message)
{
    unsigned char file[4096];
    char said[2048];
    sgl_status status = safetensors_bytes_try(file, safetensors_make(file, header, data_bytes), said);
    if (status != SGL_CORRUPT || strcmp(said, message) != 0)
        print_message("header %s\n  wanted %s\n  has    %s\n", header, message, status == SGL_OK ? "no error" : said);
    assert_int_equal(status, SGL_CORRUPT);
    assert_string_equal(said, message);
}

static void test_good_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t data_bytes;
    } good[] = {
        { "{}", 0 },
        { "{}      ", 0 },
        { "{" ENTRY("a", "F32", "[2]", 0, 8) "}", 8 },
        { "{" ENTRY("b", "F32", "[2]", 8, 16) "," ENTRY("a", "F32", "[2]", 0, 8) "}\n ", 16 },
        { "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"}," ENTRY("a", "U8", "[]", 0, 1) "}", 1 },
        { "{\"a\":{\"data_offsets\":[0,1],\"later\":{\"x\":[null,1.5]},\"shape\":[1],\"dtype\":\"BOOL\"}}", 1 },
        { "{" ENTRY("z", "F64", "[0]", 0, 0) "," ENTRY("a", "I8", "[3]", 0, 3) "," ENTRY("y", "I8", "[0]", 3, 3) "}",
          3 },
        { "{\"\\u0061\\/b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}", 2 },
    };
    unsigned char file[4096];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(safetensors_bytes_try(file, safetensors_make(file, good[i].header, good[i].data_bytes), NULL),
                         SGL_OK);
}

static void test_bad_entries(void **state)
{
    (void)state;
#define PLACE(column) "the.file: header: line 1 column " #column ": "
#define PLACE_IN(name, column) "the.file: header: " name ": line 1 column " #column ": "
    assert_bad("{" ENTRY("a", "U64", "[1]", 0, 8) "}", 8, PLACE_IN("a", 20) "dtype 'U64' is none that sgl has");
    assert_bad("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "the.file: header: a: the entry has no dtype");
    assert_bad("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "the.file: header: a: the entry has no shape");
    assert_bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "the.file: header: a: the entry has no data_offsets");
    assert_bad("{\"a\":{}}", 0, "the.file: header: a: the entry has no dtype");
    assert_bad("{\"a\":4}", 0, PLACE_IN("a", 6) "an object, '{', is expected");
    assert_bad("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, PLACE_IN("a", 29) "dtype is there twice");
    assert_bad("{\"a\":{\"dtype\":7}}", 0, PLACE_IN("a", 15) "a text in quotes is expected");
    assert_bad("{" ENTRY("a", "F32", "4", 0, 4) "}", 4, PLACE_IN("a", 29) "an array, '[', is expected");
    assert_bad("{" ENTRY("a", "F32", "[-1]", 0, 4) "}", 4,
               PLACE_IN("a", 30) "a whole number of 0 .. 2^63 - 1 is expected");
    assert_bad("{" ENTRY("a", "F32", "[1.0]", 0, 4) "}", 4,
               PLACE_IN("a", 30) "a whole number of 0 .. 2^63 - 1 is expected");
    assert_bad("{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, PLACE_IN("a", 46) "more than 8 dimensions");
    assert_bad("{\"a\":{\"data_offsets\":[0]}}", 0, PLACE_IN("a", 25) "data_offsets are two numbers");
    assert_bad("{\"a\":{\"data_offsets\":[0,1,2]}}", 2, PLACE_IN("a", 27) "data_offsets are two numbers");
    assert_bad("{" ENTRY("a", "F32", "[1]", 4, 0) "}", 4, PLACE_IN("a", 53) "data_offsets end before they begin");
    assert_bad("{" ENTRY("", "F32", "[1]", 0, 4) "}", 4, PLACE(5) "an entry has an empty name");
    assert_bad("{" ENTRY("a", "U8", "[1]", 0, 1) "," ENTRY("a", "U8", "[1]", 1, 2) "}", 2,
               PLACE(58) "there are two entries 'a'");
    assert_bad("{\"a\\u0000b\":{}}", 0, PLACE(10) "a zero byte in a text");
    assert_bad("{\"__metadata__\":{\"a\":1}}", 0, PLACE_IN("__metadata__", 22) "a text in quotes is expected");
    assert_bad("{\"__metadata__\":{},\"__metadata__\":{}}", 0, PLACE(35) "__metadata__ is there twice");
}

static void test_bad_json(void **state)
{
    (void)state;
    assert_bad("", 0, PLACE(1) "an object, '{', is expected");
    assert_bad("[]", 0, PLACE(1) "an object, '{', is expected");
    assert_bad("{", 0, PLACE(2) "a text in quotes is expected");
    assert_bad("{}}", 0, PLACE(3) "there is something behind the value");
    assert_bad("{\"a\":{\"dtype\":\"F32\",\n\"shape\":[1],,", 0,
               "the.file: header: a: line 2 column 13: a text in quotes is expected");
    assert_bad("{\"a\xFF\":{}}", 0, PLACE(4) "a byte that is not UTF-8");
    assert_bad("{" ENTRY("a", "U8", "[1]", 0, 1), 1, PLACE(53) "',' or '}' is expected");
}

static void test_bad_ranges(void **state)
{
    (void)state;
    assert_bad("{" ENTRY("a", "F32", "[2]", 0, 4) "}", 4,
               "the.file: header: a: the data have 4 bytes, dtype and shape want 8");
    assert_bad("{" ENTRY("a", "F32", "[2]", 0, 8) "}", 7,
               "the.file: header: a: the data end at 8, the file has 7 bytes of data");
    assert_bad("{" ENTRY("a", "U8", "[8]", 9223372036854775799, 9223372036854775807) "}", 8,
               "the.file: header: a: the data end at 9223372036854775807, the file has 8 bytes of data");
    assert_bad("{" ENTRY("a", "F32", "[4294967296,4294967296]", 0, 0) "}", 0,
               "the.file: header: a: the shape has more elements than can be counted");
    assert_bad("{" ENTRY("a", "F32", "[4611686018427387904]", 0, 0) "}", 0,
               "the.file: header: a: the shape has more elements than can be counted");
    assert_bad("{" ENTRY("a", "U8", "[9223372036854775807]", 0, 9223372036854775807) "}", 8,
               "the.file: header: a: the data end at 9223372036854775807, the file has 8 bytes of data");
    assert_bad("{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 3, 7) "}", 7,
               "the.file: b: the data overlap those of a");
    assert_bad("{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[0]", 2, 2) "}", 4,
               "the.file: b: the data overlap those of a");
    assert_bad("{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 5, 9) "}", 9,
               "the.file: b: there is a hole of 1 bytes before the data");
    assert_bad("{" ENTRY("a", "U8", "[4]", 2, 6) "}", 6, "the.file: a: there is a hole of 2 bytes before the data");
    assert_bad("{" ENTRY("a", "U8", "[4]", 0, 4) "}", 6, "the.file: offset 65: 2 bytes behind the last entry");
    assert_bad("{}", 1, "the.file: offset 10: 1 bytes behind the last entry");
}

static void test_bad_length(void **state)
{
    (void)state;
    char said[2048];
    unsigned char file[16] = "{}";
    assert_int_equal(safetensors_bytes_try(file, 0, said), SGL_CORRUPT);
    assert_string_equal(said, "the.file: 0 bytes, fewer than the 8 of a header's length");
    assert_int_equal(safetensors_bytes_try(file, 7, said), SGL_CORRUPT);
    assert_string_equal(said, "the.file: 7 bytes, fewer than the 8 of a header's length");
    size_t bytes = safetensors_make(file, "{}", 0);
    for (size_t cut = 8; cut < bytes; cut++) {
        assert_int_equal(safetensors_bytes_try(file, cut, said), SGL_CORRUPT);
        assert_non_null(strstr(said, "offset 0: a header of 2 bytes, the file has "));
    }
    memset(file, 0xFF, 8);
    assert_int_equal(safetensors_bytes_try(file, bytes, said), SGL_CORRUPT);
    assert_string_equal(said,
                        "the.file: offset 0: a header of 18446744073709551615 bytes, the format allows 100000000");
}

static void test_missing_file(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglstore_tensors *file;
    assert_int_equal(sglstore_tensors_open(&env, "no.safetensors", &file), SGL_NOT_FOUND);
    assert_string_equal(env.message, "cannot open no.safetensors: No such file or directory");
    assert_null(file);
    assert_int_equal(sglstore_tensors_open(&env, ".", &file), SGL_IO);
    assert_non_null(strstr(env.message, "cannot read the size of .: Is a directory"));
    assert_int_equal(env.bytes_in_use, 0);
}

/* A file that becomes shorter while it is open. */
static void test_shrinking_file(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    tensor t = tensor_of("w", SGL_F32, 1, (int64_t[]){ 100 });
    sglstore_source source = source_of(&t);
    sglstore_tensors *file;
    char data[400];
    assert_int_equal(sglstore_tensors_write(&env, "shrinks", &source, 1, NULL, NULL), SGL_OK);
    assert_int_equal(sglstore_tensors_open(&env, "shrinks", &file), SGL_OK);
    assert_int_equal(truncate("shrinks", 200), 0);
    assert_int_equal(sglstore_tensors_read(file, 0, 0, data, 400), SGL_CORRUPT);
    assert_string_equal(env.message, "shrinks: the file ends at 200; it was longer when it was opened");
    sglstore_tensors_close(file);
    free(t.data);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- faults ----------------------------------------------------------------------------------------------------- */

static sgl_status write_and_read(sglcore_env *env, void *context)
{
    sglstore_tensors *file = NULL;
    tensor *tensors = context;
    sglstore_source sources[3] = { source_of(&tensors[0]), source_of(&tensors[1]), source_of(&tensors[2]) };
    char data[64];
    sgl_status status = sglstore_tensors_write(env, "faulty", sources, 3, NULL, NULL);
    if (status == SGL_OK) status = sglstore_tensors_open(env, "faulty", &file);
    if (status == SGL_OK) status = sglstore_tensors_read(file, 1, 0, data, tensors[1].bytes);
    if (status == SGL_OK) assert_memory_equal(data, tensors[1].data, tensors[1].bytes);
    if (status != SGL_OK) assert_true(strlen(env->message) > 0);
    sglstore_tensors_close(file);
    return status;
}

static void test_faults(void **state)
{
    (void)state;
    tensor tensors[3] = { tensor_of("a", SGL_F64, 1, (int64_t[]){ 5 }), tensor_of("b", SGL_F32, 1, (int64_t[]){ 3 }),
                          tensor_of("c", SGL_U8, 1, (int64_t[]){ 9 }) };
    assert_true(fault_each_allocation(write_and_read, tensors) >= 10);
    /* create, write header and three tensors, sync, close; open, size, two reads of the header, read, close: the last
     * is of a file that was only read, and may fail */
    assert_int_equal(fault_each_io_tolerant(write_and_read, tensors, NULL), 13);
    free_tensors(tensors, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_many),           cmocka_unit_test(test_refused_sources),
        cmocka_unit_test(test_failing_source), cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_entries),    cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_bad_ranges),     cmocka_unit_test(test_bad_length),
        cmocka_unit_test(test_missing_file),   cmocka_unit_test(test_shrinking_file),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("store safetensors", tests, NULL, NULL);
}

/* test_store_checkpoint_damage.c -- damaged checkpoints: a bit of every byte flipped, every length cut, files gone or of
 * another checkpoint, manifests that lie. Each is an error that names the file and the entry, and no target was written.
 * Started in an empty folder. */
#include "checkpoint_cases.h"

/* ---- damage ----------------------------------------------------------------------------------------------------- */

static const char *const files[] = { "manifest.json", "parameters.safetensors", "states.safetensors" };
enum { FILES = 3 };

static void path_of(char path[256], int file) { snprintf(path, 256, "run/step-00000002/%s", files[file]); }

/* Loading step 2 fails, says why and where, and has written nothing. Returns the message. */
static const char *assert_damaged(const char *where)
{
    static char message[2048];
    sglcore_env env = plain_env();
    model m;
    model_init(&m, 7);
    sgl_status status = sglstore_checkpoint_load(&env, "run/step-00000002", m.targets, MODEL_TENSORS, false);
    memcpy(message, env.message, sizeof message);
    if (status != SGL_CORRUPT || strncmp(message, where, strlen(where)) != 0)
        fail_msg("%s expected, status %s: %s", where, sgl_status_name(status), message);
    assert_int_equal(m.writes, 0);
    assert_int_equal(env.bytes_in_use, 0);
    return message;
}

/* The name of the entry in whose data the byte lies, NULL: in the header. */
static const char *entry_at(int file, int64_t byte)
{
    static char name[128];
    sglcore_env env = plain_env();
    sglstore_tensors *tensors;
    char path[256];
    bool found = false;
    path_of(path, file);
    must(sglstore_tensors_open(&env, path, &tensors));
    for (int64_t i = 0; i < sglstore_tensors_count(tensors); i++) {
        int64_t offset, bytes;
        const char *entry = sglstore_tensors_entry(tensors, i, NULL, &offset, &bytes);
        if (byte < offset || byte >= offset + bytes) continue;
        snprintf(name, sizeof name, "%s", entry);
        found = true;
    }
    sglstore_tensors_close(tensors);
    return found ? name : NULL;
}

static void test_a_bit_of_every_byte(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char path[256], where[512];
    int64_t bytes;
    must(model_save(&env, "run", 2, 2, 0));
    for (int file = 0; file < FILES; file++) {
        path_of(path, file);
        free(read_all(path, &bytes));
        assert_true(bytes > 200);
        for (int64_t at = 0; at < bytes; at++) {
            const char *entry = file > 0 ? entry_at(file, at) : NULL;
            snprintf(where, sizeof where,
                     entry != NULL ? "%s: %s: its bytes are not those that were saved" : "%s: ", path, entry);
            flip_bit(path, at, (int)(at % 8));
            assert_damaged(where);
            flip_bit(path, at, (int)(at % 8));
        }
    }
    assert_holds("run/step-00000002", 2);
    remove_tree("run");
}

static void test_every_length_cut(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char path[256], where[300];
    int64_t bytes;
    must(model_save(&env, "run", 2, 2, 0));
    for (int file = 0; file < FILES; file++) {
        path_of(path, file);
        snprintf(where, sizeof where, "%s: ", path);
        char *data = read_all(path, &bytes);
        for (int64_t length = bytes - 1; length >= 0; length--) {
            assert_int_equal(truncate(path, length), 0);
            assert_damaged(where);
        }
        write_all(path, data, bytes);
        FILE *longer = fopen(path, "ab");
        assert_non_null(longer);
        fputc(0, longer);
        fclose(longer);
        assert_damaged(where);
        write_all(path, data, bytes);
        free(data);
    }
    /* A tensor whose data were cut off is named. */
    path_of(path, 2);
    char *data = read_all(path, &bytes);
    write_all(path, data, bytes - 1);
    assert_non_null(strstr(assert_damaged(path), ": mask: the data end at "));
    free(data);
    remove_tree("run");
}

/* A change that no reader of the header could see: one sort of blank for another. */
static void test_header_blanks(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char path[256];
    int64_t bytes;
    must(model_save(&env, "run", 2, 2, 0));
    path_of(path, 1);
    char *data = read_all(path, &bytes), *end = strstr(data + 8, "}} ");
    assert_non_null(end);
    end[2] = '\n';
    write_all(path, data, bytes);
    assert_non_null(strstr(assert_damaged(path), ": header: its bytes are not those that were saved (hash "));
    free(data);
    remove_tree("run");
}

static void test_files_gone(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char path[256];
    int64_t bytes, step;
    char *found, *meta;
    must(model_save(&env, "run", 2, 2, 0));
    for (int file = 1; file < FILES; file++) {
        path_of(path, file);
        char *data = read_all(path, &bytes);
        assert_int_equal(remove(path), 0);
        assert_non_null(strstr(assert_damaged(path), ": the file is missing; it was saved"));
        assert_int_equal(sglstore_checkpoint_find(&env, "run/step-00000002", &found, &meta, &step), SGL_CORRUPT);
        assert_null(found);
        write_all(path, data, bytes);
        free(data);
    }
    /* The files of another checkpoint of the same shapes in the place of its own. */
    must(model_save(&env, "run", 3, 3, 0));
    char other[256];
    path_of(path, 2);
    snprintf(other, sizeof other, "run/step-00000003/%s", files[2]);
    assert_int_equal(rename(other, path), 0);
    assert_non_null(strstr(assert_damaged(path), "its bytes are not those that were saved"));
    remove_tree("run");
}

/* ---- manifests that lie ----------------------------------------------------------------------------------------- */

/* Puts `to` in the place of the first `from` in the manifest, and the right hash at its end. */
static void forge(const char *original, const char *from, const char *to)
{
    static const char seal[] = "\"xxh3_128\": \"";
    char text[16384], hash[33];
    const char *at = strstr(original, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - original), original, to, at + strlen(from));
    char *end = text + strlen(text) - strlen("\"\n}\n") - 32;
    sglcore_hash_text(sglcore_hash_bytes(text, (size_t)(end - text) - strlen(seal)), hash);
    memcpy(end, hash, 32);
    write_all("run/step-00000002/manifest.json", text, (int64_t)strlen(text));
}

static void assert_forgery(const char *original, const char *from, const char *to, const char *message)
{
    forge(original, from, to);
    const char *said = assert_damaged("run/step-00000002/");
    if (strstr(said, message) == NULL) fail_msg("%s expected: %s", message, said);
}

static void test_manifests_that_lie(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    int64_t bytes;
    must(model_save(&env, "run", 2, 2, 0));
    char *m = read_all("run/step-00000002/manifest.json", &bytes);
    forge(m, "\"step\": 2", "\"step\": 2");
    assert_holds("run/step-00000002", 2);
    assert_forgery(m, "[7, 11]", "[11, 7]", "embed.weight: the file has f32[7,11], saved was f32[11,7]");
    assert_forgery(m, "\"bf16\"", "\"f16\"", "norm.gain: the file has bf16[13], saved was f16[13]");
    assert_forgery(m, "norm.gain", "norm.pain",
                   "parameters.safetensors: norm.pain was saved and is missing; norm.gain is there and was not saved");
    assert_forgery(m, "norm.gain", "embed.weight",
                   "parameters.safetensors: embed.weight: the manifest has the entry twice");
    assert_forgery(m, "\"bytes\": ", "\"bytes\": 1", "bytes, saved were 1");
    assert_forgery(m, "\"header_xxh3_128\": \"", "\"header_xxh3_128\": \"0", "a hash of 32 digits is expected");
    assert_forgery(m, "[7, 11]", "[1,1,1,1,1,1,1,1,1]", "more than 8 dimensions");
    assert_forgery(m, "\"bf16\"", "\"bf17\"", "dtype 'bf17' is none that sgl has");
    assert_forgery(m, "\"step\": 2", "\"step\": -2", "manifest.json: line 4 column 10: a whole number");
    assert_forgery(m, "\"step\"", "\"stop\"", "there is no step");
    assert_forgery(m, "\"step\": 2", "\"step\": 2, \"step\": 2", "step is there twice");
    assert_forgery(m, "{\"number\": 2}", "[]", "manifest.json: line 5 column 10: an object, '{', is expected");
    assert_forgery(m, "states.safetensors", "states.safetensorz", "'states.safetensors' is expected");
    assert_forgery(m, "\"files\": [", "\"files\": [], \"others\": [", "2 files are expected");

    /* A row less: the entry is one that the manifest does not know. */
    char row[512];
    const char *from = strstr(m, "{\"name\": \"norm.gain\""), *to = strchr(from, '}');
    snprintf(row, sizeof row, "%.*s", (int)(to + 2 - from), from);
    assert_forgery(m, row, "", "parameters.safetensors: norm.gain is there and was not saved");
    forge(m, "\"format\": 1", "\"format\": 3");
    assert_int_equal(sglstore_checkpoint_load(&env, "run/step-00000002", NULL, 0, false), SGL_UNSUPPORTED);
    assert_string_equal(env.message,
                        "run/step-00000002/manifest.json: format 3, this version of sgl reads formats 1 and 2");
    forge(m, "\"meta\"", "\"of a later version\": [{}], \"meta\""); /* what is not known is passed over */
    assert_holds("run/step-00000002", 2);
    free(m);
    remove_tree("run");
}

/* ---- finding ---------------------------------------------------------------------------------------------------- */

/* What was changed, or is of a later version, is told: a run does not go on from an older state unasked. */
static void test_changed_ones_are_told(void **state)
{
    (void)state;
    sglcore_env env = logging_env();
    char *path, *meta;
    int64_t step, bytes;
    must(model_save(&env, "run", 1, 1, 0));
    must(model_save(&env, "run", 2, 2, 0));
    for (int file = 0; file < FILES; file++) {
        char name[256];
        path_of(name, file);
        flip_bit(name, 40, 0); /* in the manifest's version, in a name in the headers */
        assert_int_equal(sglstore_checkpoint_find(&env, "run", &path, &meta, &step), SGL_CORRUPT);
        assert_memory_equal(env.message, name, strlen(name));
        flip_bit(name, 40, 0);
    }
    char *m = read_all("run/step-00000002/manifest.json", &bytes);
    forge(m, "\"format\": 1", "\"format\": 3");
    assert_int_equal(sglstore_checkpoint_find(&env, "run", &path, &meta, &step), SGL_UNSUPPORTED);
    write_all("run/step-00000002/manifest.json", m, bytes);
    free(m);
    assert_string_equal(checkpoint_warnings, "");
    assert_int_equal(find_number("run", &step), 2);
    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bit_of_every_byte), cmocka_unit_test(test_every_length_cut),
        cmocka_unit_test(test_header_blanks),       cmocka_unit_test(test_files_gone),
        cmocka_unit_test(test_manifests_that_lie),  cmocka_unit_test(test_changed_ones_are_told),
    };
    return cmocka_run_group_tests_name("store checkpoints, damage", tests, NULL, NULL);
}

/* test_store_checkpoint.c -- checkpoints: saved, found, loaded; kept, replaced, swept; what does not fit the program, of
 * which no target was written then; the newest cut off; speed. Started in an empty folder. */
#include "checkpoint_cases.h"

/* ---- saving and finding ----------------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    env.io = &sglcore_io_posix;
    model m;
    char *path, *meta;
    int64_t step;
    const char *odd = " { \"text\": \"l\\u00e9t \xC3\xA9\\n\",\n\t\"deep\": [1, {\"a\": null}], \"n\": 1.50e0 }\n";
    model_init(&m, 1);
    must(sglstore_checkpoint_save(&env, "a/b//run", 12, odd, m.sources, MODEL_TENSORS, 0));
    assert_string_equal(names_in("a/b/run"), "step-00000012");
    assert_string_equal(names_in("a/b/run/step-00000012"), "manifest.json parameters.safetensors states.safetensors");
    assert_holds("a/b/run/step-00000012", 1);
    assert_holds("a/b/run/step-00000012/", 1);

    must(sglstore_checkpoint_find(&env, "a/b/run", &path, &meta, &step));
    assert_string_equal(path, "a/b/run/step-00000012");
    assert_int_equal(step, 12);
    assert_string_equal(meta,
                        "{ \"text\": \"l\\u00e9t \xC3\xA9\\n\",\n\t\"deep\": [1, {\"a\": null}], \"n\": 1.50e0 }");
    sglcore_free(&env, path, strlen(path) + 1);
    sglcore_free(&env, meta, strlen(meta) + 1);

    must(sglstore_checkpoint_find(&env, "a/b/run/step-00000012", &path, &meta, &step)); /* the checkpoint itself */
    assert_string_equal(path, "a/b/run/step-00000012");
    sglcore_free(&env, path, strlen(path) + 1);
    sglcore_free(&env, meta, strlen(meta) + 1);

    must(sglstore_checkpoint_save(&env, "a/b/run", INT64_MAX, NULL, m.sources, MODEL_TENSORS, 0));
    must(sglstore_checkpoint_find(&env, "a/b/run", &path, &meta, &step));
    assert_string_equal(path, "a/b/run/step-9223372036854775807");
    assert_true(step == INT64_MAX);
    assert_string_equal(meta, "{}");
    sglcore_free(&env, path, strlen(path) + 1);
    sglcore_free(&env, meta, strlen(meta) + 1);
    assert_int_equal(env.bytes_in_use, 0);
    remove_tree("a/b/run");
}

/* One role may be empty. */
static void test_no_states(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    model m;
    model_init(&m, 4);
    must(sglstore_checkpoint_save(&env, "run", 1, NULL, m.sources, 1, 0));
    must(sglstore_checkpoint_load(&env, "run/step-00000001", &m.targets[MODEL_TENSORS - 1], 1, false));
    assert_int_equal(m.writes, 1);
    must(sglstore_checkpoint_save(&env, "run", 2, NULL, m.sources, 0, 0));
    must(sglstore_checkpoint_load(&env, "run/step-00000002", NULL, 0, false));
    remove_tree("run");
}

static void assert_not_saved(sgl_status expected, int64_t step, const char *meta, const sglstore_source *sources,
                             int64_t count, const char *message)
{
    sglcore_env env = plain_env();
    assert_int_equal(sglstore_checkpoint_save(&env, "run", step, meta, sources, count, 0), expected);
    assert_non_null(strstr(env.message, message));
    assert_int_equal(env.bytes_in_use, 0);
    if (access("run", F_OK) == 0) assert_string_equal(names_in("run"), "");
}

static void test_bad_arguments(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    model m;
    model_init(&m, 1);
    char *path, *meta, longest[5000];
    int64_t step;
    assert_not_saved(SGL_INVALID_ARGUMENT, 1, "[1]", m.sources, 1,
                     "the meta of a checkpoint: it must be a JSON object");
    assert_not_saved(SGL_INVALID_ARGUMENT, 1, "{\"a\":", m.sources, 1, "the meta of a checkpoint: line 1 column 6");
    assert_not_saved(SGL_INVALID_ARGUMENT, 1, "{} {}", m.sources, 1, "there is something behind the value");
    assert_not_saved(SGL_INVALID_ARGUMENT, 1, "", m.sources, 1, "the meta of a checkpoint: line 1 column 1");
    assert_not_saved(SGL_INVALID_ARGUMENT, -1, NULL, m.sources, 1, "a checkpoint of step -1");
    m.sources[2].role = SGL_CACHE;
    assert_not_saved(SGL_INVALID_ARGUMENT, 1, NULL, m.sources, 3,
                     "norm.gain: a checkpoint holds parameters and states");
    m.sources[2] = m.sources[0];
    assert_not_saved(SGL_INVALID_ARGUMENT, 1, NULL, m.sources, 3, "there are two tensors 'embed.weight'");
    m.sources[2].name = "int4";
    m.sources[2].type.dtype = SGL_I4;
    assert_not_saved(SGL_UNSUPPORTED, 1, NULL, m.sources, 3, "int4: safetensors files have no dtype i4");
    memset(longest, 'x', sizeof longest);
    longest[4999] = 0;
    assert_int_equal(sglstore_checkpoint_save(&env, longest, 1, NULL, m.sources, 1, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_checkpoint_save(&env, "", 1, NULL, m.sources, 1, 0), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_checkpoint_find(&env, "", &path, &meta, &step), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_checkpoint_find(&env, longest, &path, &meta, &step), SGL_INVALID_ARGUMENT);
    assert_int_equal(sglstore_checkpoint_find(&env, "nowhere", &path, &meta, &step), SGL_NOT_FOUND);
    assert_non_null(strstr(env.message, "nowhere"));
    assert_int_equal(mkdir("hollow", 0777), 0);
    assert_int_equal(sglstore_checkpoint_find(&env, "hollow", &path, &meta, &step), SGL_NOT_FOUND);
    assert_non_null(strstr(env.message, "hollow: there is no checkpoint in it"));
    assert_int_equal(sglstore_checkpoint_load(&env, "hollow", NULL, 0, false), SGL_NOT_FOUND);
    assert_non_null(strstr(env.message, "hollow/manifest.json"));
    write_all("file", "x", 1);
    assert_int_equal(sglstore_checkpoint_save(&env, "file/run", 1, NULL, m.sources, 1, 0), SGL_IO);
    assert_non_null(strstr(env.message, "cannot make the folder file: Not a directory"));
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_keep(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    int64_t step;
    for (int i = 1; i <= 5; i++) must(model_save(&env, "run", i, (uint64_t)i, 0));
    assert_string_equal(names_in("run"), "step-00000001 step-00000002 step-00000003 step-00000004 step-00000005");
    must(model_save(&env, "run", 6, 6, 3));
    assert_string_equal(names_in("run"), "step-00000004 step-00000005 step-00000006");
    assert_int_equal(find_number("run", &step), 6);
    assert_int_equal(step, 6);

    /* A run that began anew in the folder: what was just saved stays, whatever its number. */
    must(model_save(&env, "run", 2, 22, 2));
    assert_string_equal(names_in("run"), "step-00000002 step-00000006");
    must(model_save(&env, "run", 3, 33, 1));
    assert_string_equal(names_in("run"), "step-00000003");

    /* What is not ours stays. */
    write_all("run/step-7", "x", 1);
    write_all("run/.step-00000001.partial.txt", "x", 1);
    assert_int_equal(mkdir("run/step-best", 0777), 0);
    must(model_save(&env, "run", 8, 8, 1));
    assert_string_equal(names_in("run"), ".step-00000001.partial.txt step-00000008 step-7 step-best");
    assert_int_equal(find_number("run", &step), 8);
    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_same_step_twice(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    int64_t step;
    must(model_save(&env, "run", 5, 1, 2));
    must(model_save(&env, "run", 5, 2, 2));
    assert_int_equal(find_number("run", &step), 2);
    assert_string_equal(names_in("run"), "step-00000005");
    remove_tree("run");
}

/* ---- what killed processes leave -------------------------------------------------------------------------------- */

static void test_leftovers(void **state)
{
    (void)state;
    sglcore_env env = logging_env();
    int64_t step;
    must(model_save(&env, "run", 1, 1, 0));
    must(model_save(&env, "run", 2, 2, 0));
    assert_int_equal(mkdir("run/.step-00000009.partial", 0777), 0); /* killed while it wrote */
    write_all("run/.step-00000009.partial/parameters.safetensors", "half", 4);
    assert_int_equal(find_number("run", &step), 2);

    /* Killed between the two renames that replace step 2: the old one is found, and comes back. */
    assert_int_equal(rename("run/step-00000002", "run/.step-00000002.replaced"), 0);
    assert_int_equal(find_number("run", &step), 2);
    assert_int_equal(step, 2);
    must(model_save(&env, "run", 3, 3, 0));
    assert_string_equal(names_in("run"), "step-00000001 step-00000002 step-00000003");
    assert_holds("run/step-00000002", 2);

    /* Killed after them: the new one counts, the old one goes. */
    must(model_save(&env, "old", 3, 4, 0));
    assert_int_equal(rename("old/step-00000003", "run/.step-00000003.replaced"), 0);
    assert_int_equal(find_number("run", &step), 3);
    must(model_save(&env, "run", 4, 4, 0));
    assert_string_equal(names_in("run"), "step-00000001 step-00000002 step-00000003 step-00000004");
    assert_int_equal(find_number("run", &step), 4);
    assert_string_equal(checkpoint_warnings, "");

    /* What cannot be swept does not keep a run from saving. */
    assert_int_equal(mkdir("run/.step-00000007.partial", 0777), 0);
    assert_int_equal(mkdir("run/.step-00000007.partial/inner", 0777), 0);
    write_all("run/.step-00000007.partial/inner/file", "x", 1);
    must(model_save(&env, "run", 5, 5, 1));
    assert_string_equal(names_in("run"), ".step-00000007.partial step-00000005");
    assert_non_null(strstr(checkpoint_warnings, "cannot remove run/.step-00000007.partial/inner: "));
    assert_non_null(strstr(checkpoint_warnings, "; this leftover stays\n"));
    assert_int_equal(remove("run/.step-00000007.partial/inner/file"), 0);
    assert_int_equal(remove("run/.step-00000007.partial/inner"), 0);
    remove_tree("run");
    remove_tree("old");
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- what does not fit the program ------------------------------------------------------------------------------ */

static void assert_unfit(model *m, int count, bool parameters_only, const char *message)
{
    sglcore_env env = plain_env();
    m->writes = 0;
    assert_int_equal(sglstore_checkpoint_load(&env, "run/step-00000002", m->targets, count, parameters_only), SGL_TYPE);
    if (strstr(env.message, message) == NULL) fail_msg("%s expected: %s", message, env.message);
    assert_int_equal(m->writes, 0);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_other_programs(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    model m;
    must(model_save(&env, "run", 2, 2, 0));
    enum { EMBED = MODEL_TENSORS - 1, EMBED_M = MODEL_TENSORS - 2, GAIN = MODEL_TENSORS - 3, STEP = MODEL_TENSORS - 4 };

    model_init(&m, 3);
    m.targets[EMBED].type.dims[0] = 8;
    assert_unfit(
        &m, MODEL_TENSORS, false,
        "run/step-00000002/parameters.safetensors: embed.weight: the file has f32[7,11], the program f32[8,11]");
    model_init(&m, 3);
    m.targets[GAIN].type.dtype = SGL_F16;
    assert_unfit(&m, MODEL_TENSORS, true, "norm.gain: the file has bf16[13], the program f16[13]");
    model_init(&m, 3);
    m.targets[STEP].type.rank = 1;
    m.targets[STEP].type.dims[0] = 1;
    assert_unfit(&m, MODEL_TENSORS, false, "states.safetensors: step: the file has i64[], the program i64[1]");
    model_init(&m, 3);
    m.targets[EMBED_M].name = "embed.weight.v";
    assert_unfit(&m, MODEL_TENSORS, false,
                 "states.safetensors: embed.weight.v is missing; the program has this state, f32[7,11], and no such "
                 "state as embed.weight.m");
    model_init(&m, 3);
    assert_unfit(&m, MODEL_TENSORS - 1, false,
                 "parameters.safetensors: embed.weight: the program has no such parameter");
    model_init(&m, 3);
    m.targets[STEP].role = SGL_PARAMETER;
    assert_unfit(&m, MODEL_TENSORS, false,
                 "parameters.safetensors: step is missing; the program has this parameter, i64[]");
    model_init(&m, 3);
    m.targets[EMBED] = m.targets[GAIN];
    assert_int_equal(sglstore_checkpoint_load(&env, "run/step-00000002", m.targets, MODEL_TENSORS, false),
                     SGL_INVALID_ARGUMENT);
    assert_non_null(strstr(env.message, "norm.gain: there are two targets of this name"));
    assert_int_equal(m.writes, 0);
    remove_tree("run");
}

static sgl_status refuse_to_write(void *user, int64_t offset, const void *data, int64_t bytes)
{
    (void)offset;
    (void)data;
    (void)bytes;
    return sglcore_fail(user, SGL_DEVICE, "the device fell asleep");
}

static void test_parameters_only(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    model m, expected;
    must(model_save(&env, "run", 2, 2, 0));
    model_init(&m, 3);
    model_init(&expected, 2);
    assert_int_equal(remove("run/step-00000002/states.safetensors"), 0); /* not even looked at */
    must(sglstore_checkpoint_load(&env, "run/step-00000002", m.targets, MODEL_TENSORS, true));
    for (int i = 0; i < MODEL_TENSORS; i++) {
        bool same = memcmp(m.tensors[i].data, expected.tensors[i].data, (size_t)model_bytes(&m.tensors[i])) == 0;
        assert_true(same == (m.tensors[i].role == SGL_PARAMETER || model_bytes(&m.tensors[i]) == 0));
    }
    m.targets[0].user = &env;
    m.targets[0].write = refuse_to_write;
    assert_int_equal(sglstore_checkpoint_load(&env, "run/step-00000002", m.targets, MODEL_TENSORS, true), SGL_DEVICE);
    assert_string_equal(env.message, "the device fell asleep");
    remove_tree("run");
}

/* ---- the newest is not whole ------------------------------------------------------------------------------------ */

static void assert_damaged(sglcore_env *env, const char *dir, const char *message)
{
    char *path, *meta;
    int64_t step;
    assert_int_equal(sglstore_checkpoint_find(env, dir, &path, &meta, &step), SGL_CORRUPT);
    if (strstr(env->message, message) == NULL) fail_msg("%s expected: %s", message, env->message);
    assert_null(path);
    assert_null(meta);
}

static void test_older_one_is_taken(void **state)
{
    (void)state;
    sglcore_env env = logging_env();
    char *path, *meta;
    int64_t step;
    for (int i = 1; i <= 4; i++) must(model_save(&env, "run", i, (uint64_t)i, 0));
    assert_int_equal(remove("run/step-00000004/manifest.json"), 0);
    assert_int_equal(remove("run/step-00000003/manifest.json"), 0);
    must(sglstore_checkpoint_find(&env, "run", &path, &meta, &step));
    assert_string_equal(path, "run/step-00000002");
    assert_int_equal(step, 2);
    assert_holds(path, 2);
    sglcore_free(&env, path, strlen(path) + 1);
    sglcore_free(&env, meta, strlen(meta) + 1);
    const char *first = strstr(checkpoint_warnings, "cannot open run/step-00000004/manifest.json: No such file");
    const char *second = strstr(checkpoint_warnings, "cannot open run/step-00000003/manifest.json: No such file");
    assert_true(first == checkpoint_warnings && second > first);
    assert_non_null(strstr(second, "; an older checkpoint is looked for\n"));

    /* One with a manifest is not passed over, whatever its files lack: step 1 is whole, and not taken. */
    assert_int_equal(truncate("run/step-00000002/states.safetensors", 500), 0);
    assert_damaged(&env, "run", "run/step-00000002/states.safetensors: ");
    assert_int_equal(remove("run/step-00000002/states.safetensors"), 0);
    assert_damaged(&env, "run", "run/step-00000002/states.safetensors: the file is missing; it was saved");
    assert_int_equal(truncate("run/step-00000002/manifest.json", 100), 0);
    assert_damaged(&env, "run", "run/step-00000002/manifest.json: ");

    /* None is left. */
    assert_int_equal(remove("run/step-00000002/manifest.json"), 0);
    assert_int_equal(remove("run/step-00000001/manifest.json"), 0);
    assert_damaged(&env, "run", "cannot open run/step-00000004/manifest.json: No such file");
    assert_non_null(strstr(env.message, "; run holds no complete checkpoint"));

    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

static sgl_status read_nothing(void *user, int64_t offset, void *data, int64_t bytes)
{
    (void)user;
    memset(data, (int)offset, (size_t)bytes);
    return SGL_OK;
}

static sgl_status write_nothing(void *user, int64_t offset, const void *data, int64_t bytes)
{
    (void)offset;
    (void)data;
    (void)bytes;
    ++*(int64_t *)user;
    return SGL_OK;
}

/* Saved, found and loaded in reverse order without searching: about 0.3 s, a minute when each name is looked for. */
static void test_many_tensors(void **state)
{
    (void)state;
#ifdef SGL_HARD_MODE
    enum { MANY = 300 }; /* every append moves the whole manifest there */
#else
    enum { MANY = 20000 };
#endif
    sglcore_env env = plain_env();
    char(*names)[32] = malloc(MANY * sizeof *names);
    sglstore_source *sources = calloc(MANY, sizeof *sources);
    sglstore_target *targets = calloc(MANY, sizeof *targets);
    int64_t writes = 0, step;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "blocks.%d.weight", i);
        sgl_type type = { i % 2 ? SGL_F32 : SGL_F64, 1, { 1 } };
        uint8_t role = i % 3 ? SGL_STATE : SGL_PARAMETER;
        sources[i] = (sglstore_source){ names[i], type, role, NULL, read_nothing, NULL };
        targets[MANY - 1 - i] = (sglstore_target){ names[i], type, role, &writes, write_nothing, NULL, NULL };
    }
    int64_t start = sglcore_now_ns();
    char *path, *meta;
    must(sglstore_checkpoint_save(&env, "run", 1, NULL, sources, MANY, 0));
    must(sglstore_checkpoint_find(&env, "run", &path, &meta, &step));
    must(sglstore_checkpoint_load(&env, path, targets, MANY, false));
    assert_int_equal(writes, MANY);
    assert_true(sglcore_now_ns() - start < 15000000000);
    sglcore_free(&env, path, strlen(path) + 1);
    sglcore_free(&env, meta, strlen(meta) + 1);
    free(names);
    free(sources);
    free(targets);
    remove_tree("run");
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),         cmocka_unit_test(test_no_states),
        cmocka_unit_test(test_bad_arguments),      cmocka_unit_test(test_keep),
        cmocka_unit_test(test_same_step_twice),    cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_other_programs),     cmocka_unit_test(test_parameters_only),
        cmocka_unit_test(test_older_one_is_taken), cmocka_unit_test(test_many_tensors),
    };
    return cmocka_run_group_tests_name("store checkpoints", tests, NULL, NULL);
}

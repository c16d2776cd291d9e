/* checkpoint.c -- training state on disk: folders DIR/step-NNNNNNNN that are complete or not there.
 *
 * Comes in: tensors by role. Goes out: two safetensors files and a manifest with the hash of every tensor, written into
 * DIR/.step-NNNNNNNN.partial, read back and compared, then renamed. Reading checks everything before the first byte is
 * handed to a target. Odd invariant: a folder under its final name was complete when it got it; what is found damaged was
 * damaged later. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "store/internal.h"

enum { FORMAT = 1 };

/* Parameters first, then what the optimizer and the rest keep. */
static const struct {
    const char *file;
    uint8_t role;
} parts[] = { { "parameters.safetensors", SGL_PARAMETER }, { "states.safetensors", SGL_STATE } };
enum { PARTS = sizeof parts / sizeof parts[0] };

/* ---- paths ---------------------------------------------------------------------------------------------------------- */

typedef struct path_text {
    char text[4096];
} path_text;

static sgl_status join(sglcore_env *env, path_text *path, const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    if (a + b + 2 > sizeof path->text) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s/%s: the path is too long", dir, name);
    memcpy(path->text, dir, a);
    path->text[a] = '/';
    memcpy(path->text + a + 1, name, b + 1);
    return SGL_OK;
}

static const char *step_name(int64_t step, bool partial, char name[64])
{
    char digits[24];
    int length = 0;
    uint64_t left = (uint64_t)step;
    do digits[length++] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    while (length < 8) digits[length++] = '0';
    size_t at = 0;
    for (const char *s = partial ? ".step-" : "step-"; *s; s++) name[at++] = *s;
    while (length > 0) name[at++] = digits[--length];
    for (const char *s = partial ? ".partial" : ""; *s; s++) name[at++] = *s;
    name[at] = 0;
    return name;
}

/* -1 when the name is none of a checkpoint. */
static int64_t step_of_name(const char *name)
{
    int64_t step = 0;
    if (strncmp(name, "step-", 5) != 0 || !name[5]) return -1;
    for (const char *s = name + 5; *s; s++) {
        if (*s < '0' || *s > '9' || step > INT64_MAX / 10 - 1) return -1;
        step = step * 10 + (*s - '0');
    }
    return step;
}

typedef struct step_list {
    sglcore_env *env;
    SGLCORE_VEC(int64_t) steps;
    bool failed;
} step_list;

static int add_step(void *context, const char *name)
{
    step_list *list = context;
    int64_t step = step_of_name(name);
    if (step < 0) return 0;
    list->failed = sglcore_vec_push(list->env, &list->steps, step) != SGL_OK;
    return list->failed;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static sgl_status list_steps(sglcore_env *env, const char *dir, step_list *list)
{
    list->env = env;
    if (env->io->list(env->io->user, dir, add_step, list) != 0) return list->failed ? SGL_OUT_OF_MEMORY : sglcore_fail_io(env, "list", dir);
    if (list->steps.count) qsort(list->steps.data, (size_t)list->steps.count, sizeof(int64_t), newest_first);
    return SGL_OK;
}

/* ---- the manifest ------------------------------------------------------------------------------------------------------ */

static sgl_status no_memory(sglcore_env *env) { return sglcore_fail(env, SGL_OUT_OF_MEMORY, "no memory for a checkpoint's manifest"); }

static json_t *tensor_row(const sglstore_source *source, sglcore_hash hash)
{
    char text[33];
    sglcore_hash_text(hash, text);
    json_t *shape = json_array();
    int bad = 0;
    for (int i = 0; i < source->type.rank; i++) bad |= json_array_append_new(shape, json_integer(source->type.dims[i]));
    json_t *row = json_pack("{s:s, s:s, s:o, s:s}", "name", source->name, "dtype", sgl_dtype_name(source->type.dtype), "shape",
                            shape, "xxh3_128", text);
    if (!bad) return row;
    json_decref(row);
    return NULL;
}

/* Writes one part's file into the partial folder and adds its rows to the manifest. */
static sgl_status write_part(sglcore_env *env, const char *folder, int part, const sglstore_source *sources, int64_t count,
                             json_t *files)
{
    SGLCORE_VEC(sglstore_source) own = { 0 };
    sgl_status status = SGL_OK;
    for (int64_t i = 0; i < count && status == SGL_OK; i++)
        if (sources[i].role == parts[part].role) status = sglcore_vec_push(env, &own, sources[i]);
    size_t hash_bytes = (size_t)own.count * sizeof(sglcore_hash);
    sglcore_hash *hashes = sglcore_alloc(env, hash_bytes);
    if (own.count && !hashes) status = SGL_OUT_OF_MEMORY;
    path_text path;
    if (status == SGL_OK) status = join(env, &path, folder, parts[part].file);
    if (status == SGL_OK) status = sglstore_tensors_write(env, path.text, own.data, own.count, hashes);
    json_t *rows = json_array();
    int bad = 0;
    for (int64_t i = 0; i < own.count && status == SGL_OK; i++) bad |= json_array_append_new(rows, tensor_row(&own.data[i], hashes[i]));
    json_t *file = json_pack("{s:s, s:o}", "file", parts[part].file, "tensors", rows);
    if (status == SGL_OK && (bad || json_array_append(files, file) != 0)) status = no_memory(env);
    json_decref(file);
    sglcore_free(env, hashes, hash_bytes);
    sglcore_vec_free(env, &own);
    return status;
}

static sgl_status write_manifest(sglcore_env *env, const char *folder, int64_t step, const char *meta, json_t *files)
{
    json_error_t error;
    json_t *parsed = meta ? json_loads(meta, JSON_REJECT_DUPLICATES, &error) : json_object();
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "checkpoint: meta is no JSON object");
    }
    json_t *manifest = json_pack("{s:i, s:s, s:I, s:o, s:O}", "format", FORMAT, "written_by", "sgl " SGL_VERSION, "step",
                                 (json_int_t)step, "meta", parsed, "files", files);
    char *text = manifest ? json_dumps(manifest, JSON_INDENT(1)) : NULL;
    json_decref(manifest);
    if (!text) return no_memory(env);
    path_text path;
    sgl_status status = join(env, &path, folder, "manifest.json");
    if (status == SGL_OK) status = sglcore_write_file(env, path.text, text, (int64_t)strlen(text));
    free(text);
    return status;
}

/* An open manifest: the JSON, and where it came from. */
typedef struct manifest {
    json_t *json;
    const char *folder;
} manifest;

static sgl_status damaged(sglcore_env *env, const char *folder, const char *what)
{
    return sglcore_fail(env, SGL_CORRUPT, "%s/manifest.json: %s", folder, what);
}

static sgl_status read_manifest(sglcore_env *env, const char *folder, manifest *m)
{
    path_text path;
    char *text;
    int64_t bytes;
    json_error_t error;
    *m = (manifest){ NULL, folder };
    SGLCORE_TRY(join(env, &path, folder, "manifest.json"));
    SGLCORE_TRY(sglcore_read_file(env, path.text, &text, &bytes));
    m->json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    sglcore_free(env, text, (size_t)bytes + 1);
    if (!m->json)
        return sglcore_fail(env, SGL_CORRUPT, "%s: line %d column %d: %s", path.text, error.line, error.column, error.text);
    const char *wrong = NULL;
    if (!json_is_object(m->json) || json_integer_value(json_object_get(m->json, "format")) != FORMAT) wrong = "a format that this version does not read";
    else if (!json_is_integer(json_object_get(m->json, "step"))) wrong = "there is no step";
    else if (!json_is_object(json_object_get(m->json, "meta"))) wrong = "there is no meta";
    else if (json_array_size(json_object_get(m->json, "files")) != PARTS) wrong = "the list of files is not complete";
    if (!wrong) return SGL_OK;
    json_decref(m->json);
    m->json = NULL;
    return damaged(env, folder, wrong);
}

static const json_t *manifest_tensors(const manifest *m, int part)
{
    const json_t *file = json_array_get(json_object_get(m->json, "files"), (size_t)part);
    const char *name = json_string_value(json_object_get(file, "file"));
    if (!name || strcmp(name, parts[part].file) != 0) return NULL;
    return json_object_get(file, "tensors");
}

/* ---- checking ------------------------------------------------------------------------------------------------------------ */

static const json_t *find_row(const json_t *rows, const char *name)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *has = json_string_value(json_object_get(row, "name"));
        if (has && strcmp(has, name) == 0) return row;
    }
    return NULL;
}

/* Reads one entry piece by piece, hashing it and, when there is a target, handing it over. */
static sgl_status stream_entry(sglcore_env *env, sglstore_tensors *file, int64_t index, char *piece, const sglstore_target *target,
                               sglcore_hash *hash)
{
    int64_t bytes;
    sglstore_tensors_entry(file, index, NULL, NULL, &bytes);
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t at = 0; at < bytes; at += SGLSTORE_PIECE) {
        int64_t now = bytes - at < SGLSTORE_PIECE ? bytes - at : SGLSTORE_PIECE;
        SGLCORE_TRY(sglstore_tensors_read(file, index, at, piece, now));
        sglcore_hasher_add(&hasher, piece, (size_t)now);
        if (target) SGLCORE_TRY(target->write(target->user, at, piece, now));
    }
    (void)env;
    *hash = sglcore_hasher_end(&hasher);
    return SGL_OK;
}

/* Every entry of the file is in the manifest with this hash, and every row of the manifest is in the file. */
static sgl_status check_part(sglcore_env *env, const manifest *m, int part, sglstore_tensors *file, char *piece)
{
    const json_t *rows = manifest_tensors(m, part);
    if (!json_is_array(rows)) return damaged(env, m->folder, "the rows of a file are missing");
    int64_t count = sglstore_tensors_count(file);
    for (int64_t i = 0; i < count; i++) {
        const char *name = sglstore_tensors_entry(file, i, NULL, NULL, NULL);
        const json_t *row = i < (int64_t)json_array_size(rows) ? json_array_get(rows, (size_t)i) : NULL;
        const char *expected = json_string_value(json_object_get(row, "name"));
        if (!expected || strcmp(expected, name) != 0) row = find_row(rows, name); /* zero-sized entries may have moved */
        if (!row) return sglcore_fail(env, SGL_CORRUPT, "%s/%s: %s: the manifest does not know this entry", m->folder, parts[part].file, name);
        sglcore_hash hash;
        char text[33];
        SGLCORE_TRY(stream_entry(env, file, i, piece, NULL, &hash));
        sglcore_hash_text(hash, text);
        const char *wanted = json_string_value(json_object_get(row, "xxh3_128"));
        if (!wanted || strcmp(wanted, text) != 0)
            return sglcore_fail(env, SGL_CORRUPT, "%s/%s: %s: its bytes are not those that were saved (hash %s, the manifest says %s)",
                                m->folder, parts[part].file, name, text, wanted ? wanted : "none");
    }
    if ((int64_t)json_array_size(rows) != count)
        return sglcore_fail(env, SGL_CORRUPT, "%s/%s: %lld entries, the manifest has %zu", m->folder, parts[part].file, (long long)count,
                            json_array_size(rows));
    return SGL_OK;
}

static sgl_status open_part(sglcore_env *env, const char *folder, int part, sglstore_tensors **file)
{
    path_text path;
    SGLCORE_TRY(join(env, &path, folder, parts[part].file));
    return sglstore_tensors_open(env, path.text, file);
}

static sgl_status check_folder(sglcore_env *env, const manifest *m, char *piece)
{
    for (int part = 0; part < PARTS; part++) {
        sglstore_tensors *file = NULL;
        SGLCORE_TRY(open_part(env, m->folder, part, &file));
        sgl_status status = check_part(env, m, part, file, piece);
        sglstore_tensors_close(file);
        if (status != SGL_OK) return status;
    }
    return SGL_OK;
}

/* ---- saving ---------------------------------------------------------------------------------------------------------------- */

static sgl_status write_folder(sglcore_env *env, const char *folder, int64_t step, const char *meta,
                               const sglstore_source *sources, int64_t count)
{
    json_t *files = json_array();
    sgl_status status = files ? SGL_OK : no_memory(env);
    for (int part = 0; part < PARTS && status == SGL_OK; part++) status = write_part(env, folder, part, sources, count, files);
    if (status == SGL_OK) status = write_manifest(env, folder, step, meta, files);
    json_decref(files);
    return status;
}

static sgl_status verify_folder(sglcore_env *env, const char *folder)
{
    manifest m;
    char *piece = sglcore_alloc(env, SGLSTORE_PIECE);
    if (!piece) return SGL_OUT_OF_MEMORY;
    sgl_status status = read_manifest(env, folder, &m);
    if (status == SGL_OK) status = check_folder(env, &m, piece);
    json_decref(m.json);
    sglcore_free(env, piece, SGLSTORE_PIECE);
    return status;
}

typedef struct partial_list {
    sglcore_env *env;
    const char *dir;
    sgl_status status;
} partial_list;

/* What an earlier process left half-written, or half-removed. */
static int remove_partial(void *context, const char *name)
{
    partial_list *list = context;
    size_t length = strlen(name);
    path_text path;
    if (strncmp(name, ".step-", 6) != 0 || length < 14 || strcmp(name + length - 8, ".partial") != 0) return 0;
    list->status = join(list->env, &path, list->dir, name);
    if (list->status == SGL_OK) list->status = sglcore_remove_dir(list->env, path.text);
    return list->status != SGL_OK;
}

static sgl_status sweep(sglcore_env *env, const char *dir)
{
    partial_list list = { env, dir, SGL_OK };
    if (env->io->list(env->io->user, dir, remove_partial, &list) == 0) return SGL_OK;
    return list.status != SGL_OK ? list.status : sglcore_fail_io(env, "list", dir);
}

/* Takes a complete folder away: first its name, so that it is never seen half-removed. */
static sgl_status remove_step(sglcore_env *env, const char *dir, int64_t step)
{
    path_text from, to;
    char name[64];
    SGLCORE_TRY(join(env, &from, dir, step_name(step, false, name)));
    SGLCORE_TRY(join(env, &to, dir, step_name(step, true, name)));
    if (env->io->rename(env->io->user, from.text, to.text) != 0) return sglcore_fail_io(env, "rename", from.text);
    return sglcore_remove_dir(env, to.text);
}

static sgl_status remove_old(sglcore_env *env, const char *dir, int keep)
{
    step_list list = { 0 };
    sgl_status status = keep > 0 ? list_steps(env, dir, &list) : SGL_OK;
    for (int64_t i = keep; i < list.steps.count && status == SGL_OK; i++) status = remove_step(env, dir, list.steps.data[i]);
    sglcore_vec_free(env, &list.steps);
    return status;
}

static sgl_status make_dirs(sglcore_env *env, const char *dir)
{
    path_text path;
    size_t length = strlen(dir);
    if (length + 1 > sizeof path.text) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s: the path is too long", dir);
    memcpy(path.text, dir, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (path.text[i] != '/' && path.text[i] != 0) continue;
        char was = path.text[i];
        path.text[i] = 0;
        if (env->io->make_dir(env->io->user, path.text) != 0) return sglcore_fail_io(env, "make the folder", path.text);
        path.text[i] = was;
    }
    return SGL_OK;
}

/* A checkpoint of the same step that is there already goes only when the new one is whole. */
static sgl_status put_in_place(sglcore_env *env, const char *dir, int64_t step, const char *partial)
{
    path_text final;
    char name[64];
    SGLCORE_TRY(join(env, &final, dir, step_name(step, false, name)));
    step_list list = { 0 };
    sgl_status status = list_steps(env, dir, &list);
    bool is_there = false;
    for (int64_t i = 0; i < list.steps.count; i++) is_there |= list.steps.data[i] == step;
    sglcore_vec_free(env, &list.steps);
    if (status != SGL_OK) return status;
    if (is_there) {
        path_text aside;
        SGLCORE_TRY(join(env, &aside, dir, ".step-replaced.partial"));
        if (env->io->rename(env->io->user, final.text, aside.text) != 0) return sglcore_fail_io(env, "rename", final.text);
        if (env->io->rename(env->io->user, partial, final.text) != 0) {
            status = sglcore_fail_io(env, "rename", partial);
            env->io->rename(env->io->user, aside.text, final.text);
            return status;
        }
        SGLCORE_TRY(sglcore_remove_dir(env, aside.text));
    } else if (env->io->rename(env->io->user, partial, final.text) != 0) {
        return sglcore_fail_io(env, "rename", partial);
    }
    if (env->io->sync_dir(env->io->user, dir) != 0) return sglcore_fail_io(env, "sync", dir);
    return SGL_OK;
}

sgl_status sglstore_checkpoint_save(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                                    const sglstore_source *sources, int64_t count, int keep)
{
    path_text partial;
    char name[64];
    SGLCORE_TRY(make_dirs(env, dir));
    SGLCORE_TRY(sweep(env, dir));
    SGLCORE_TRY(join(env, &partial, dir, step_name(step, true, name)));
    SGLCORE_TRY(make_dirs(env, partial.text));
    sgl_status status = write_folder(env, partial.text, step, meta, sources, count);
    if (status == SGL_OK) status = verify_folder(env, partial.text);
    if (status == SGL_OK && env->io->sync_dir(env->io->user, partial.text) != 0) status = sglcore_fail_io(env, "sync", partial.text);
    if (status == SGL_OK) status = put_in_place(env, dir, step, partial.text);
    if (status != SGL_OK) {
        char why[sizeof env->message]; /* the first failure is what the caller must read */
        memcpy(why, env->message, sizeof why);
        sglcore_remove_dir(env, partial.text);
        memcpy(env->message, why, sizeof why);
        return status;
    }
    return remove_old(env, dir, keep);
}

/* ---- finding and loading ---------------------------------------------------------------------------------------------------- */

static char *copy_text(sglcore_env *env, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sglcore_alloc(env, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

/* Takes path, meta and step of the folder when its manifest can be read and its files are there. */
static sgl_status take_folder(sglcore_env *env, const char *folder, char **path, char **meta, int64_t *step)
{
    manifest m;
    SGLCORE_TRY(read_manifest(env, folder, &m));
    sgl_status status = SGL_OK;
    for (int part = 0; part < PARTS && status == SGL_OK; part++) {
        sglstore_tensors *file = NULL;
        status = open_part(env, folder, part, &file);
        sglstore_tensors_close(file);
    }
    char *text = status == SGL_OK ? json_dumps(json_object_get(m.json, "meta"), JSON_COMPACT) : NULL;
    if (status == SGL_OK) {
        *step = json_integer_value(json_object_get(m.json, "step"));
        *path = copy_text(env, folder);
        *meta = text ? copy_text(env, text) : NULL;
        if (!*path || !*meta) {
            if (*path) sglcore_free(env, *path, strlen(*path) + 1);
            if (*meta) sglcore_free(env, *meta, strlen(*meta) + 1);
            *path = *meta = NULL;
            status = no_memory(env);
        }
    }
    free(text);
    json_decref(m.json);
    return status;
}

sgl_status sglstore_checkpoint_find(sglcore_env *env, const char *dir, char **path, char **meta, int64_t *step)
{
    *path = *meta = NULL;
    sgl_status itself = take_folder(env, dir, path, meta, step);
    if (itself == SGL_OK || itself == SGL_OUT_OF_MEMORY) return itself;
    if (itself != SGL_NOT_FOUND) return itself; /* it is a checkpoint, and a damaged one */
    step_list list = { 0 };
    sgl_status status = list_steps(env, dir, &list);
    sgl_status last = SGL_NOT_FOUND;
    bool found = false;
    for (int64_t i = 0; i < list.steps.count && status == SGL_OK && !found; i++) {
        path_text folder;
        char name[64];
        status = join(env, &folder, dir, step_name(list.steps.data[i], false, name));
        if (status != SGL_OK) break;
        last = take_folder(env, folder.text, path, meta, step);
        found = last == SGL_OK;
        if (last == SGL_OUT_OF_MEMORY) status = last;
        else if (!found && i + 1 < list.steps.count) sglcore_log(env, SGL_LOG_WARNING, "%s; an older checkpoint is looked for", env->message);
    }
    int64_t count = list.steps.count;
    sglcore_vec_free(env, &list.steps);
    if (status != SGL_OK || found) return status;
    if (count > 0) return last;
    return sglcore_fail(env, SGL_NOT_FOUND, "%s: there is no checkpoint in it", dir);
}

static const sglstore_target *find_target(const sglstore_target *targets, int64_t count, const char *name, int64_t hint)
{
    if (hint < count && strcmp(targets[hint].name, name) == 0) return &targets[hint];
    for (int64_t i = 0; i < count; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}

static bool same_type(const sgl_type *a, const sgl_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

static const char *type_text(const sgl_type *type, char text[256])
{
    size_t at = 0;
    for (const char *s = sgl_dtype_name(type->dtype); *s; s++) text[at++] = *s;
    text[at++] = '[';
    for (int i = 0; i < type->rank; i++) {
        char digits[24];
        int length = 0;
        int64_t left = type->dims[i];
        do digits[length++] = (char)('0' + left % 10);
        while ((left /= 10) > 0);
        if (i) text[at++] = ',';
        while (length > 0) text[at++] = digits[--length];
    }
    text[at++] = ']';
    text[at] = 0;
    return text;
}

/* Every entry has its target and every target its entry, of one type. */
static sgl_status match_part(sglcore_env *env, const char *folder, int part, const sglstore_tensors *file,
                             const sglstore_target *targets, int64_t count)
{
    char a[256], b[256];
    int64_t wanted = 0;
    for (int64_t i = 0; i < sglstore_tensors_count(file); i++) {
        sgl_type type;
        const char *name = sglstore_tensors_entry(file, i, &type, NULL, NULL);
        const sglstore_target *target = find_target(targets, count, name, i);
        if (!target || target->role != parts[part].role)
            return sglcore_fail(env, SGL_TYPE, "%s/%s: %s: the program has no such %s", folder, parts[part].file, name,
                                parts[part].role == SGL_PARAMETER ? "parameter" : "state");
        if (!same_type(&type, &target->type))
            return sglcore_fail(env, SGL_TYPE, "%s/%s: %s: the file has %s, the program %s", folder, parts[part].file, name,
                                type_text(&type, a), type_text(&target->type, b));
    }
    for (int64_t t = 0; t < count; t++) {
        if (targets[t].role != parts[part].role) continue;
        bool found = false;
        if (wanted < sglstore_tensors_count(file)) found = strcmp(sglstore_tensors_entry(file, wanted, NULL, NULL, NULL), targets[t].name) == 0;
        for (int64_t i = 0; i < sglstore_tensors_count(file) && !found; i++)
            found = strcmp(sglstore_tensors_entry(file, i, NULL, NULL, NULL), targets[t].name) == 0;
        if (!found) return sglcore_fail(env, SGL_TYPE, "%s/%s: %s is missing", folder, parts[part].file, targets[t].name);
        wanted++;
    }
    return SGL_OK;
}

static sgl_status load_part(sglcore_env *env, sglstore_tensors *file, const sglstore_target *targets, int64_t count, char *piece)
{
    for (int64_t i = 0; i < sglstore_tensors_count(file); i++) {
        const char *name = sglstore_tensors_entry(file, i, NULL, NULL, NULL);
        sglcore_hash hash;
        SGLCORE_TRY(stream_entry(env, file, i, piece, find_target(targets, count, name, i), &hash));
    }
    return SGL_OK;
}

/* All checks over all wanted parts, then all writes. */
static sgl_status load_checked(sglcore_env *env, const manifest *m, sglstore_tensors *files[PARTS], int wanted,
                               const sglstore_target *targets, int64_t count, char *piece)
{
    for (int part = 0; part < wanted; part++) {
        SGLCORE_TRY(open_part(env, m->folder, part, &files[part]));
        SGLCORE_TRY(match_part(env, m->folder, part, files[part], targets, count));
    }
    for (int part = 0; part < wanted; part++) SGLCORE_TRY(check_part(env, m, part, files[part], piece));
    for (int part = 0; part < wanted; part++) SGLCORE_TRY(load_part(env, files[part], targets, count, piece));
    return SGL_OK;
}

sgl_status sglstore_checkpoint_load(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count,
                                    bool parameters_only)
{
    manifest m;
    sglstore_tensors *files[PARTS] = { 0 };
    char *piece = sglcore_alloc(env, SGLSTORE_PIECE);
    if (!piece) return SGL_OUT_OF_MEMORY;
    sgl_status status = read_manifest(env, path, &m);
    if (status == SGL_OK) status = load_checked(env, &m, files, parameters_only ? 1 : PARTS, targets, count, piece);
    for (int part = 0; part < PARTS; part++) sglstore_tensors_close(files[part]);
    json_decref(m.json);
    sglcore_free(env, piece, SGLSTORE_PIECE);
    return status;
}

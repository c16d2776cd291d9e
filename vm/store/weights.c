/* weights.c -- tensors of one safetensors file that is no part of a checkpoint, such as an exported model.
 *
 * In: the file, targets. Out: every target has got its bytes, of a part those of the part, or an error that names what does not fit, and nothing was
 * written. There is no manifest: names, dtypes and shapes are held against the targets alone. */
#include <string.h>

#include "store/internal.h"

typedef struct weights {
    sglcore_env *env;
    sglstore_tensors *file;
    const sglstore_target *targets;
    int64_t count;
    int64_t *entries; /* of each target */
    bool *wanted;     /* by entry */
    char *piece;
} weights;

static sgl_status match(weights *w, int64_t t)
{
    const sglstore_target *target = &w->targets[t];
    sgl_type type;
    char a[SGL_TYPE_ROOM], b[SGL_TYPE_ROOM];
    SGLCORE_TRY(sglstore_tensors_find(w->file, target->name, &w->entries[t]));
    if (w->entries[t] < 0) return sglcore_fail(w->env, SGL_TYPE, "%s is missing; the model has it", target->name);
    sglstore_tensors_entry(w->file, w->entries[t], &type, NULL, NULL);
    w->wanted[w->entries[t]] = true;
    if (type.dtype == target->type.dtype && type.rank == target->type.rank &&
        memcmp(type.dims, target->type.dims, (size_t)type.rank * sizeof type.dims[0]) == 0)
        return SGL_OK;
    return sglcore_fail(w->env, SGL_TYPE, "%s is %s, the model has %s", target->name, sgl_type_text(&type, a, sizeof a),
                        sgl_type_text(&target->type, b, sizeof b));
}

static sgl_status match_all(weights *w)
{
    for (int64_t t = 0; t < w->count; t++) SGLCORE_TRY(match(w, t));
    for (int64_t i = 0; i < sglstore_tensors_count(w->file); i++)
        if (!w->wanted[i])
            return sglcore_fail(w->env, SGL_TYPE, "%s is in it, and the model has none",
                                sglstore_tensors_entry(w->file, i, NULL, NULL, NULL));
    return SGL_OK;
}

static sgl_status load(const weights *w, int64_t t)
{
    const sglstore_box whole = sglstore_box_whole(&w->targets[t].type);
    return sglstore_read_common(w->file, w->entries[t], &whole, &w->targets[t], w->piece);
}

sgl_status sglstore_tensors_load(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count)
{
    weights w = { .env = env, .targets = targets, .count = count };
    SGLCORE_TRY(sglstore_tensors_open(env, path, &w.file));
    size_t entry_bytes = (size_t)(count + 1) * sizeof *w.entries;
    size_t wanted_bytes = (size_t)(sglstore_tensors_count(w.file) + 1) * sizeof *w.wanted;
    w.entries = sglcore_alloc(env, entry_bytes);
    w.wanted = sglcore_alloc_zero(env, wanted_bytes);
    w.piece = sglcore_alloc(env, SGLSTORE_PIECE);
    sgl_status status = w.entries && w.wanted && w.piece ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        status = match_all(&w);
        for (int64_t t = 0; t < count && status == SGL_OK; t++) status = load(&w, t);
        if (status != SGL_OK) status = sglcore_fail_at(env, status, "%s", path);
    }
    sglcore_free(env, w.entries, entry_bytes);
    sglcore_free(env, w.wanted, wanted_bytes);
    sglcore_free(env, w.piece, SGLSTORE_PIECE);
    sglstore_tensors_close(w.file);
    return status;
}

/* load.c -- loads checkpoints: parts of tensors out of any number of files, into targets that want wholes or other parts.
 *
 * In: a checkpoint's folder; targets. Out: targets that were given every byte of theirs, or, when anything does not fit or was
 * changed, none. Several ranks may load one checkpoint, each its parts, and share the work of checking it. Odd invariant: files
 * stay open from the first check to the last byte, so that nothing is allocated while targets change; but of a checkpoint of very
 * many ranks no more than one is open at a time. */
#include <string.h>

#include "store/internal.h"

enum { MOST_OPEN = 64 };
#define NO_ROW UINT32_MAX

struct sglstore_loading {
    sglstore_manifest m; /* m.env is NULL until it was read */
    sglcore_env *env;
    const char *folder;
    int kinds;                                   /* so many are wanted */
    SGLCORE_VEC(const sglstore_row *) rows;      /* of those kinds, sheet by sheet */
    SGLCORE_VEC(const sglstore_target *) wanted; /* of each row, NULL: by none */
    SGLCORE_VEC(uint32_t) next;                  /* the next row of the same tensor */
    sglcore_map first;                           /* tensor -> its first row */
    SGLCORE_VEC(sglstore_opened) opened;         /* of each sheet, where they are kept open */
    char *piece;
};

/* ---- rows --------------------------------------------------------------------------------------------------------- */

/* Parameters and states may have the same name. */
static sglcore_hash key_of(int kind, const char *name)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_u64(&hasher, (uint64_t)kind);
    sglcore_hasher_string(&hasher, name);
    return sglcore_hasher_end(&hasher);
}

static sgl_status take_row(sglstore_loading *l, int kind, const sglstore_row *row)
{
    uint64_t next = NO_ROW;
    const sglcore_hash key = key_of(kind, row->name);
    if (!sglcore_map_get(&l->first, key, &next)) next = NO_ROW;
    SGLCORE_TRY(sglcore_map_put(l->env, &l->first, key, (uint64_t)l->rows.count));
    SGLCORE_TRY(sglcore_vec_push(l->env, &l->rows, row));
    SGLCORE_TRY(sglcore_vec_push(l->env, &l->wanted, NULL));
    return sglcore_vec_push(l->env, &l->next, (uint32_t)next);
}

static bool keeps_open(const sglstore_loading *l) { return l->m.sheets.count <= MOST_OPEN; }

/* Files are opened, and their headers held against the manifest; where there are very many, each with its rows. */
static sgl_status take_files(sglstore_loading *l)
{
    SGLCORE_TRY(sglcore_vec_reserve(l->env, &l->opened, l->m.sheets.count));
    for (int64_t s = 0; s < l->m.sheets.count; s++) {
        const sglstore_sheet *sheet = &l->m.sheets.data[s];
        sglstore_opened *opened = &l->opened.data[l->opened.count++];
        *opened = (sglstore_opened){ 0 };
        if (sheet->kind >= l->kinds) continue;
        if (keeps_open(l)) SGLCORE_TRY(sglstore_file_open(l->env, l->folder, sheet, opened));
        for (int64_t i = 0; i < sheet->rows.count; i++) SGLCORE_TRY(take_row(l, sheet->kind, &sheet->rows.data[i]));
    }
    return SGL_OK;
}

/* ---- against the targets ---------------------------------------------------------------------------------------- */

/* Another number of terms: each is added to the first one. */
static bool is_summed(const sglstore_row *row, const sglstore_target *target)
{
    return target->add != NULL && row->type.dims[0] != target->type.dims[0];
}

static sglstore_box box_of(const sglstore_row *row, const sglstore_target *target)
{
    sglstore_box box = row->box;
    if (is_summed(row, target)) box.offsets[0] = 0;
    return box;
}

/* Terms are parts of their own, or there is one alone. */
static bool has_type(const sglstore_row *row, const sglstore_target *target)
{
    const sgl_type *type = &row->type;
    if (type->dtype != target->type.dtype || type->rank != target->type.rank) return false;
    const int first = type->rank > 0 && is_summed(row, target) && row->box.dims[0] == 1;
    return memcmp(type->dims + first, target->type.dims + first, (size_t)(type->rank - first) * sizeof type->dims[0]) ==
           0;
}

static sgl_status match_target(sglstore_loading *l, int kind, const sglstore_target *target, bool *found)
{
    uint64_t row;
    char a[SGL_TYPE_ROOM], b[SGL_TYPE_ROOM];
    *found = sglcore_map_get(&l->first, key_of(kind, target->name), &row);
    if (!*found) return SGL_OK;
    if (l->wanted.data[row] != NULL)
        return sglcore_fail(l->env, SGL_INVALID_ARGUMENT, "%s: there are two targets of this name", target->name);
    for (; row != NO_ROW; row = l->next.data[row]) {
        if (!has_type(l->rows.data[row], target))
            return sglcore_fail(l->env, SGL_TYPE, "%s: the file has %s, the program %s", target->name,
                                sgl_type_text(&l->rows.data[row]->type, a, sizeof a),
                                sgl_type_text(&target->type, b, sizeof b));
        l->wanted.data[row] = target;
    }
    return SGL_OK;
}

/* Another program often lacks one thing and has another: both are named. */
static sgl_status tell_unmatched(sglcore_env *env, int kind, const sglstore_target *missing, const char *extra)
{
    char type[SGL_TYPE_ROOM];
    const char *noun = sglstore_kinds[kind].noun;
    if (missing == NULL) return sglcore_fail(env, SGL_TYPE, "%s: the program has no such %s", extra, noun);
    if (extra == NULL)
        return sglcore_fail(env, SGL_TYPE, "%s is missing; the program has this %s, %s", missing->name, noun,
                            sgl_type_text(&missing->type, type, sizeof type));
    return sglcore_fail(env, SGL_TYPE, "%s is missing; the program has this %s, %s, and no such %s as %s",
                        missing->name, noun, sgl_type_text(&missing->type, type, sizeof type), noun, extra);
}

/* The name of a row of this kind that nobody wants. What a pass has made may be left out, and is told once. */
static const char *find_extra(const sglstore_loading *l, int kind)
{
    int64_t at = 0;
    for (int64_t s = 0; s < l->m.sheets.count; s++) {
        const sglstore_sheet *sheet = &l->m.sheets.data[s];
        if (sheet->kind >= l->kinds) continue;
        for (int64_t i = 0; i < sheet->rows.count; i++, at++) {
            const char *name = sheet->rows.data[i].name;
            if (sheet->kind != kind || l->wanted.data[at] != NULL) continue;
            if (!sglstore_is_made(name)) return name;
            if (l->next.data[at] == NO_ROW)
                sglcore_log(l->env, SGL_LOG_INFO, "%s: the program has no such state, and does without it", name);
        }
    }
    return NULL;
}

static sgl_status match_kind(sglstore_loading *l, int kind, const sglstore_target *targets, int64_t count)
{
    const sglstore_target *missing = NULL;
    for (int64_t i = 0; i < count; i++) {
        bool found;
        if (targets[i].role != sglstore_kinds[kind].role) continue;
        SGLCORE_TRY(match_target(l, kind, &targets[i], &found));
        if (!found && missing == NULL && !sglstore_is_made(targets[i].name)) missing = &targets[i];
    }
    const char *extra = find_extra(l, kind);
    return missing == NULL && extra == NULL ? SGL_OK : tell_unmatched(l->env, kind, missing, extra);
}

static sgl_status begin(sglstore_loading *l, const sglstore_target *targets, int64_t count)
{
    char name[SGLSTORE_FILE_ROOM];
    sgl_status status = sglstore_manifest_read(l->env, l->folder, &l->m);
    if (status != SGL_OK) {
        l->m.env = NULL;
        return status;
    }
    l->piece = sglcore_alloc(l->env, SGLSTORE_PIECE);
    if (l->piece == NULL) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(take_files(l));
    for (int kind = 0; kind < l->kinds; kind++) {
        status = match_kind(l, kind, targets, count);
        if (status != SGL_OK)
            return sglcore_fail_at(l->env, status, "%s/%s", l->folder, sglstore_file_name(kind, 0, name));
    }
    return SGL_OK;
}

sgl_status sglstore_load_begin(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count,
                               bool parameters_only, sglstore_loading **loading)
{
    *loading = sglcore_alloc_zero(env, sizeof **loading);
    if (*loading == NULL) return SGL_OUT_OF_MEMORY;
    (*loading)->env = env;
    (*loading)->folder = path;
    (*loading)->kinds = parameters_only ? 1 : SGLSTORE_KINDS;
    return begin(*loading, targets, count);
}

void sglstore_load_end(sglstore_loading *loading)
{
    if (loading == NULL) return;
    sglcore_env *env = loading->env;
    for (int64_t i = 0; i < loading->opened.count; i++) sglstore_file_close(&loading->opened.data[i]);
    sglcore_vec_free(env, &loading->opened);
    if (loading->m.env != NULL) sglstore_manifest_free(&loading->m);
    sglcore_vec_free(env, &loading->rows);
    sglcore_vec_free(env, &loading->wanted);
    sglcore_vec_free(env, &loading->next);
    sglcore_map_free(env, &loading->first);
    if (loading->piece != NULL) sglcore_free(env, loading->piece, SGLSTORE_PIECE);
    sglcore_free(env, loading, sizeof *loading);
}

/* ---- data --------------------------------------------------------------------------------------------------------- */

/* What is done with rows: those of a share are checked, or those that a target wants of are handed on. */
typedef struct work {
    bool check;
    int64_t rank, ranks;
} work;

static bool is_due(const sglstore_loading *l, const work *w, int64_t row)
{
    const sglstore_target *target = l->wanted.data[row];
    sglstore_box common;
    if (w->check) return row * w->ranks / l->rows.count == w->rank;
    if (target == NULL) return false;
    const sglstore_box box = box_of(l->rows.data[row], target);
    return target->box == NULL || sglstore_box_common(target->type.rank, &box, target->box, &common);
}

static sgl_status load_row(const sglstore_loading *l, const sglstore_opened *opened, int64_t entry,
                           const sglstore_target *target)
{
    const sglstore_row *row = opened->rows.data[entry];
    if (!is_summed(row, target)) return sglstore_file_load(opened, entry, target, l->piece);
    const sglstore_box box = box_of(row, target);
    sglstore_target sum = *target;
    sum.write = target->add;
    return sglstore_read_common(opened->file, entry, &box, &sum, l->piece);
}

/* The row of each entry of an open file; its rows are those from `first` on. */
static sgl_status work_through(const sglstore_loading *l, const work *w, const sglstore_opened *opened, int64_t first)
{
    for (int64_t i = 0; i < opened->rows.count; i++) {
        const int64_t row = first + (opened->rows.data[i] - opened->sheet->rows.data);
        if (!is_due(l, w, row)) continue;
        SGLCORE_TRY(w->check ? sglstore_file_check(opened, i, l->piece) : load_row(l, opened, i, l->wanted.data[row]));
    }
    return SGL_OK;
}

static sgl_status open_and_work(const sglstore_loading *l, const work *w, const sglstore_sheet *sheet, int64_t first)
{
    sglstore_opened opened;
    sgl_status status = sglstore_file_open(l->env, l->folder, sheet, &opened);
    if (status == SGL_OK) status = work_through(l, w, &opened, first);
    sglstore_file_close(&opened);
    return status;
}

static sgl_status each_file(const sglstore_loading *l, const work *w)
{
    int64_t first = 0;
    for (int64_t s = 0; s < l->m.sheets.count; s++) {
        const sglstore_sheet *sheet = &l->m.sheets.data[s];
        bool any = false;
        if (sheet->kind >= l->kinds) continue;
        for (int64_t i = 0; i < sheet->rows.count && !any; i++) any = is_due(l, w, first + i);
        if (any)
            SGLCORE_TRY(keeps_open(l) ? work_through(l, w, &l->opened.data[s], first)
                                      : open_and_work(l, w, sheet, first));
        first += sheet->rows.count;
    }
    return SGL_OK;
}

sgl_status sglstore_load_check(const sglstore_loading *loading, int64_t rank, int64_t ranks)
{
    return each_file(loading, &(work){ .check = true, .rank = rank, .ranks = ranks });
}

sgl_status sglstore_load_read(const sglstore_loading *loading) { return each_file(loading, &(work){ .check = false }); }

sgl_status sglstore_checkpoint_load(sglcore_env *env, const char *path, const sglstore_target *targets, int64_t count,
                                    bool parameters_only)
{
    sglstore_loading *loading;
    sgl_status status = sglstore_load_begin(env, path, targets, count, parameters_only, &loading);
    if (status == SGL_OK) status = sglstore_load_check(loading, 0, 1);
    if (status == SGL_OK) status = sglstore_load_read(loading);
    sglstore_load_end(loading);
    return status;
}

/* plan.c -- the plan as data: its fields by name, their ranges, its text and its hash.
 *
 * In: fields as a script or a command line names them. Out: a plan that the passes may trust. A field that is refused
 * leaves the plan as it was. Odd invariant: the text names every field, defaults too, and holds nothing of the device;
 * the hash also counts which composites the device runs whole, because the passes leave those in one piece. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "plan/compress.h"
#include "plan/layout.h"
#include "plan/plan.h"

/* Field name per axis: "mesh.dp", ..., and "micro" for the time axis, which spans no ranks. */
#define AXIS_FIELD(name, text) "mesh." text,
static const char *const mesh_fields[SGLIR_AXIS_COUNT] = { SGLIR_AXIS_MAP(AXIS_FIELD) };
#undef AXIS_FIELD

static const char *field_of_axis(int axis) { return axis == SGLIR_AXIS_MICRO ? "micro" : mesh_fields[axis]; }

static const struct {
    const char *name;
    sgl_dtype dtype;
} precisions[] = { { "fp32", SGL_F32 }, { "fp64", SGL_F64 }, { "bf16", SGL_BF16 }, { "fp16", SGL_F16 } };
enum { PRECISION_COUNT = sizeof precisions / sizeof precisions[0] };

/* Of fp16, and for a trace. Scales are powers of two: to scale rounds nothing. */
static const struct {
    const char *name;
    size_t at; /* in sglplan */
    int64_t initial, least, most;
    bool power; /* of two */
} numbers[] = { { "scale", offsetof(sglplan, scale), 1 << 16, 1, 1 << 30, true },
                { "scale_growth_interval", offsetof(sglplan, scale_growth_interval), 2000, 1, 1 << 30, false },
                { "max_skips", offsetof(sglplan, max_skips), 20, 1, 1 << 30, false },
                { "unfused", offsetof(sglplan, unfused), 0, 0, 1, false },
                { "chunks", offsetof(sglplan, chunks), 0, 0, SGLPLAN_MOST_CHUNKS, false },
                { "bucket", offsetof(sglplan, bucket), 4 << 20, 1, (int64_t)1 << 40, false } };
enum { NUMBER_COUNT = sizeof numbers / sizeof numbers[0] };

static int64_t number_in(const sglplan *plan, int number)
{
    return *(const int64_t *)(const void *)((const char *)plan + numbers[number].at);
}

static int64_t *number_at(sglplan *plan, int number) { return (int64_t *)(void *)((char *)plan + numbers[number].at); }

void sglplan_init(sglplan *plan)
{
    *plan = (sglplan){ .precision = SGL_F32 };
    for (int i = 0; i < NUMBER_COUNT; i++) *number_at(plan, i) = numbers[i].initial;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) plan->mesh[axis] = 1;
}

/* ---- setting a field ------------------------------------------------------------------------------------------- */

static const char *kind_text(char kind)
{
    switch (kind) {
    case 'i': return "a whole number";
    case 'b': return "a boolean";
    case 'f': return "a number with a fraction";
    case 's': return "a text";
    case 't': return "a dtype";
    default: return "a list";
    }
}

static sgl_status check_kind(sglcore_env *env, const sglir_named *field, char kind)
{
    if (field->kind == kind && (kind != 's' || field->s != NULL)) return SGL_OK;
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: %s must be %s, not %s", field->name, kind_text(kind),
                        field->kind == kind ? "nothing" : kind_text(field->kind));
}

static sgl_status set_extent(sglcore_env *env, sglplan *plan, int axis, const sglir_named *field)
{
    SGLCORE_TRY(check_kind(env, field, 'i'));
    if (field->i < 1 || field->i > SGLPLAN_MOST_RANKS)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: %s is %lld, and must be from 1 to %lld", field->name,
                            (long long)field->i, (long long)SGLPLAN_MOST_RANKS);
    int64_t ranks = axis == SGLIR_AXIS_MICRO ? 1 : field->i;
    for (int other = 0; other < SGLIR_AXIS_COUNT; other++) {
        if (other != axis && other != SGLIR_AXIS_MICRO) ranks *= plan->mesh[other];
    }
    if (ranks > SGLPLAN_MOST_RANKS)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "plan: with %s = %lld the mesh spans %lld ranks, and %lld are the most there may be",
                            field->name, (long long)field->i, (long long)ranks, (long long)SGLPLAN_MOST_RANKS);
    plan->mesh[axis] = field->i;
    return SGL_OK;
}

static sgl_status set_precision(sglcore_env *env, sglplan *plan, const sglir_named *field)
{
    const char *names[PRECISION_COUNT];
    SGLCORE_TRY(check_kind(env, field, 's'));
    for (int i = 0; i < PRECISION_COUNT; i++) {
        names[i] = precisions[i].name;
        if (strcmp(field->s, names[i]) != 0) continue;
        plan->precision = (uint8_t)precisions[i].dtype;
        return SGL_OK;
    }
    char hint[SGLCORE_HINT_ROOM];
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: precision \"%s\" is none of fp32, fp64, bf16, fp16%s",
                        field->s, sglcore_hint(field->s, names, PRECISION_COUNT, hint));
}

static const char *const schedules[SGLPLAN_SCHEDULE_COUNT] = {
#define SGLPLAN_SCHEDULE_TEXT(name, text) text,
    SGLPLAN_SCHEDULES(SGLPLAN_SCHEDULE_TEXT)
#undef SGLPLAN_SCHEDULE_TEXT
};

static const char *const attentions[SGLPLAN_ATTENTION_COUNT] = {
#define SGLPLAN_ATTENTION_TEXT(name, text) text,
    SGLPLAN_ATTENTIONS(SGLPLAN_ATTENTION_TEXT)
#undef SGLPLAN_ATTENTION_TEXT
};

static const char *const offloads[SGLPLAN_OFFLOAD_COUNT] = {
#define SGLPLAN_OFFLOAD_TEXT(name, text) text,
    SGLPLAN_OFFLOADS(SGLPLAN_OFFLOAD_TEXT)
#undef SGLPLAN_OFFLOAD_TEXT
};

/* Any of the words, comma-separated. */
static sgl_status set_offload(sglcore_env *env, sglplan *plan, const sglir_named *field)
{
    uint8_t set = 0;
    SGLCORE_TRY(check_kind(env, field, 's'));
    for (const char *at = field->s + strspn(field->s, ", "); *at; at += strspn(at, ", ")) {
        char word[32], hint[SGLCORE_HINT_ROOM];
        const size_t length = strcspn(at, ", ");
        int found = 0;
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        while (found < SGLPLAN_OFFLOAD_COUNT && strcmp(offloads[found], word) != 0) found++;
        if (found == SGLPLAN_OFFLOAD_COUNT)
            return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                                "plan: offload: \"%s\" is none of moments, params, activations%s", word,
                                sglcore_hint(word, offloads, SGLPLAN_OFFLOAD_COUNT, hint));
        set |= (uint8_t)(1u << found);
        at += length;
    }
    plan->offload = set;
    return SGL_OK;
}

const char *sglplan_offloads_text(uint8_t offload, char text[SGLPLAN_OFFLOADS_ROOM])
{
    text[0] = '\0';
    for (int i = 0; i < SGLPLAN_OFFLOAD_COUNT; i++) {
        const size_t used = strlen(text);
        if (offload >> i & 1)
            snprintf(text + used, SGLPLAN_OFFLOADS_ROOM - used, "%s%s", used ? ", " : "", offloads[i]);
    }
    return text;
}

/* Of what adds up from block to block. */
static const char *const streams[] = { "narrow", "fp32" };
enum { STREAMS = sizeof streams / sizeof streams[0] };

/* One of the words: its number. */
static sgl_status set_word(sglcore_env *env, const char *const *words, int count, uint8_t *number,
                           const sglir_named *field)
{
    char hint[SGLCORE_HINT_ROOM], list[128] = "";
    SGLCORE_TRY(check_kind(env, field, 's'));
    for (int i = 0; i < count; i++) {
        if (strcmp(field->s, words[i]) == 0) {
            *number = (uint8_t)i;
            return SGL_OK;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: %s \"%s\" is none of %s%s", field->name, field->s, list,
                        sglcore_hint(field->s, words, count, hint));
}

static sgl_status set_number(sglcore_env *env, sglplan *plan, int number, const sglir_named *field)
{
    SGLCORE_TRY(check_kind(env, field, 'i'));
    int64_t least = numbers[number].least, most = numbers[number].most;
    bool power = (field->i & (field->i - 1)) == 0;
    if (field->i < least || field->i > most || (numbers[number].power && !power))
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: %s is %lld, and must be %sfrom %lld to %lld", field->name,
                            (long long)field->i, numbers[number].power ? "a power of two " : "", (long long)least,
                            (long long)most);
    *number_at(plan, number) = field->i;
    return SGL_OK;
}

static sgl_status set_text(sglcore_env *env, char *text, size_t room, const sglir_named *field)
{
    SGLCORE_TRY(check_kind(env, field, 's'));
    size_t length = strlen(field->s);
    if (length >= room)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: %s has %zu characters, and may have %zu", field->name,
                            length, room - 1);
    memcpy(text, field->s, length + 1);
    return SGL_OK;
}

static sgl_status set_memory(sglcore_env *env, sglplan *plan, const sglir_named *field)
{
    SGLCORE_TRY(check_kind(env, field, 'i'));
    if (field->i < 0)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: memory is %lld bytes; give 0 for no bound",
                            (long long)field->i);
    plan->memory = field->i;
    return SGL_OK;
}

static sgl_status set_layouts(sglcore_env *env, char *text, size_t size, const sglir_named *field)
{
    SGLCORE_TRY(check_kind(env, field, 's'));
    SGLCORE_TRY(sglplan_layouts_check(env, field->name, field->s));
    return set_text(env, text, size, field);
}

static sgl_status set_compress(sglcore_env *env, sglplan *plan, const sglir_named *field)
{
    SGLCORE_TRY(check_kind(env, field, 's'));
    SGLCORE_TRY(sglplan_compress_check(env, field->s));
    return set_text(env, plan->compress, sizeof plan->compress, field);
}

sgl_status sglplan_set(sglcore_env *env, sglplan *plan, const sglir_named *field)
{
    static const char *const others[] = { "precision",   "schedule", "attention", "cut",    "wide",    "layouts",
                                          "activations", "compress", "disable",   "memory", "offload", "stream" };
    const char *names[SGLIR_AXIS_COUNT + NUMBER_COUNT + sizeof others / sizeof others[0]];
    int count = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        names[count++] = field_of_axis(axis);
        if (strcmp(field->name, field_of_axis(axis)) == 0) return set_extent(env, plan, axis, field);
    }
    for (int i = 0; i < NUMBER_COUNT; i++) {
        names[count++] = numbers[i].name;
        if (strcmp(field->name, numbers[i].name) == 0) return set_number(env, plan, i, field);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) names[count++] = others[i];
    if (strcmp(field->name, "memory") == 0) return set_memory(env, plan, field);
    if (strcmp(field->name, "offload") == 0) return set_offload(env, plan, field);
    if (strcmp(field->name, "precision") == 0) return set_precision(env, plan, field);
    if (strcmp(field->name, "schedule") == 0)
        return set_word(env, schedules, SGLPLAN_SCHEDULE_COUNT, &plan->schedule, field);
    if (strcmp(field->name, "attention") == 0)
        return set_word(env, attentions, SGLPLAN_ATTENTION_COUNT, &plan->attention, field);
    if (strcmp(field->name, "stream") == 0) return set_word(env, streams, STREAMS, &plan->stream, field);
    if (strcmp(field->name, "cut") == 0) return set_text(env, plan->cut, sizeof plan->cut, field);
    if (strcmp(field->name, "disable") == 0) return set_text(env, plan->disable, sizeof plan->disable, field);
    if (strcmp(field->name, "wide") == 0) return set_text(env, plan->wide, sizeof plan->wide, field);
    if (strcmp(field->name, "layouts") == 0) return set_layouts(env, plan->layouts, sizeof plan->layouts, field);
    if (strcmp(field->name, "activations") == 0)
        return set_layouts(env, plan->activations, sizeof plan->activations, field);
    if (strcmp(field->name, "compress") == 0) return set_compress(env, plan, field);
    char hint[SGLCORE_HINT_ROOM];
    return sglcore_fail(env, SGL_NOT_FOUND, "plan: there is no field \"%s\"%s", field->name,
                        sglcore_hint(field->name, names, count, hint));
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

int64_t sglplan_chunks(const sglplan *plan)
{
    if (plan->chunks > 0) return plan->chunks;
    return plan->schedule == SGLPLAN_INTERLEAVED ? 2 : 1;
}

const char *sglplan_schedule_name(const sglplan *plan) { return schedules[plan->schedule]; }

bool sglplan_disables(const sglplan *plan, const char *pass) { return sglcore_list_has(plan->disable, pass); }

static const char *precision_name(const sglplan *plan)
{
    for (int i = 0; i < PRECISION_COUNT; i++) {
        if (precisions[i].dtype == plan->precision) return precisions[i].name;
    }
    return "unknown";
}

sgl_status sglplan_print(const sglplan *plan, sglcore_env *env, sglcore_text *text)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        SGLCORE_TRY(sglcore_text_add(env, text, "%s = %lld\n", field_of_axis(axis), (long long)plan->mesh[axis]));
    SGLCORE_TRY(sglcore_text_add(env, text, "precision = \"%s\"\n", precision_name(plan)));
    SGLCORE_TRY(sglcore_text_add(env, text, "schedule = \"%s\"\n", schedules[plan->schedule]));
    SGLCORE_TRY(sglcore_text_add(env, text, "attention = \"%s\"\n", attentions[plan->attention]));
    for (int i = 0; i < NUMBER_COUNT; i++)
        SGLCORE_TRY(sglcore_text_add(env, text, "%s = %lld\n", numbers[i].name, (long long)number_in(plan, i)));
    SGLCORE_TRY(sglcore_text_add(env, text, "cut = \"%s\"\n", plan->cut));
    SGLCORE_TRY(sglcore_text_add(env, text, "memory = %lld\n", (long long)plan->memory));
    char offload[SGLPLAN_OFFLOADS_ROOM];
    SGLCORE_TRY(sglcore_text_add(env, text, "offload = \"%s\"\n", sglplan_offloads_text(plan->offload, offload)));
    SGLCORE_TRY(sglcore_text_add(env, text, "wide = \"%s\"\n", plan->wide));
    SGLCORE_TRY(sglcore_text_add(env, text, "stream = \"%s\"\n", streams[plan->stream]));
    SGLCORE_TRY(sglcore_text_add(env, text, "layouts = \"%s\"\n", plan->layouts));
    SGLCORE_TRY(sglcore_text_add(env, text, "activations = \"%s\"\n", plan->activations));
    SGLCORE_TRY(sglcore_text_add(env, text, "compress = \"%s\"\n", plan->compress));
    return sglcore_text_add(env, text, "disable = \"%s\"\n", plan->disable);
}

sglcore_hash sglplan_hash(const sglplan *plan)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        sglcore_hasher_string(&hasher, field_of_axis(axis));
        sglcore_hasher_u64(&hasher, (uint64_t)plan->mesh[axis]);
    }
    sglcore_hasher_string(&hasher, precision_name(plan));
    sglcore_hasher_string(&hasher, schedules[plan->schedule]);
    sglcore_hasher_string(&hasher, attentions[plan->attention]);
    for (int i = 0; i < NUMBER_COUNT; i++) sglcore_hasher_u64(&hasher, (uint64_t)number_in(plan, i));
    sglcore_hasher_u64(&hasher, (uint64_t)plan->memory);
    sglcore_hasher_u64(&hasher, plan->offload);
    sglcore_hasher_string(&hasher, plan->cut);
    sglcore_hasher_string(&hasher, plan->wide);
    sglcore_hasher_string(&hasher, streams[plan->stream]);
    sglcore_hasher_string(&hasher, plan->layouts);
    sglcore_hasher_string(&hasher, plan->activations);
    sglcore_hasher_string(&hasher, plan->compress);
    sglcore_hasher_string(&hasher, plan->disable);
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        if (plan->native[op]) sglcore_hasher_string(&hasher, sglir_ops[op].name);
    }
    return sglcore_hasher_end(&hasher);
}

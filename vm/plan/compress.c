/* compress.c -- the plan's `compress`: read, checked, asked by name. In and out: compress.h. */
#include "plan/compress.h"

#include <string.h>

#include "plan/layout.h"

static const char *const names[SGLPLAN_CODEC_COUNT + 1] = {
#define SGLPLAN_CODEC(name, text, help) #text,
#include "plan/codecs.def"
#undef SGLPLAN_CODEC
    "none"
};

typedef struct entry {
    const char *pattern, *codec; /* codec NULL: there is not one word behind the pattern */
    size_t length, codec_length;
} entry;

static bool next_entry(const char **at, entry *e)
{
    const char *from = *at + strspn(*at, ", ");
    if (*from == '\0') return false;
    *e = (entry){ .pattern = from, .length = strcspn(from, ", ") };
    from += e->length;
    from += strspn(from, " ");
    e->codec_length = strcspn(from, ", ");
    e->codec = e->codec_length ? from : NULL;
    from += e->codec_length;
    from += strspn(from, " ");
    if (*from != ',' && *from != '\0') e->codec = NULL;
    *at = from + strcspn(from, ",");
    return true;
}

/* SGLPLAN_CODEC_COUNT: none; beyond: there is no such codec. */
static int codec_of(const entry *e)
{
    int codec = 0;
    while (codec <= SGLPLAN_CODEC_COUNT &&
           (strlen(names[codec]) != e->codec_length || memcmp(names[codec], e->codec, e->codec_length) != 0))
        codec++;
    return codec;
}

sgl_status sglplan_compress_check(sglcore_env *env, const char *compress)
{
    const char *at = compress;
    char hint[SGLCORE_HINT_ROOM], word[32];
    entry e;
    for (int count = 0; next_entry(&at, &e); count++) {
        if (e.codec == NULL)
            return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                                "plan: compress: '%.*s' is not of the form \"PATTERN CODEC\", such as \"*.wq int8\"",
                                (int)(at - e.pattern), e.pattern);
        if (codec_of(&e) > SGLPLAN_CODEC_COUNT) {
            size_t length = e.codec_length < sizeof word ? e.codec_length : sizeof word - 1;
            memcpy(word, e.codec, length);
            word[length] = '\0';
            return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: compress: there is no codec '%s' for '%.*s'%s", word,
                                (int)e.length, e.pattern, sglcore_hint(word, names, SGLPLAN_CODEC_COUNT + 1, hint));
        }
        if (count == SGLPLAN_MOST_PATTERNS)
            return sglcore_fail(env, SGL_LIMIT, "plan: compress has more than %d entries", SGLPLAN_MOST_PATTERNS);
    }
    return SGL_OK;
}

sglplan_codec sglplan_compress_of(const sglplan *plan, const char *name, uint64_t *named)
{
    const char *at = plan->compress;
    int codec = SGLPLAN_CODEC_COUNT;
    entry e;
    *named = 0;
    for (int i = 0; next_entry(&at, &e); i++) {
        if (!sglplan_pattern_fits(e.pattern, e.length, name, strlen(name))) continue;
        *named |= UINT64_C(1) << i;
        codec = codec_of(&e);
    }
    return (sglplan_codec)codec;
}

bool sglplan_compress_entry(const sglplan *plan, int number, const char **pattern, size_t *length)
{
    const char *at = plan->compress;
    entry e = { 0 };
    for (int i = 0; i <= number; i++) {
        if (!next_entry(&at, &e)) return false;
    }
    *pattern = e.pattern;
    *length = e.length;
    return true;
}

sglplan_axes sglplan_compress_axes(const sglplan *plan)
{
    sglplan_axes axes = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (plan->mesh[axis] > 1) axes |= SGLPLAN_COMPRESS_AXES & SGLPLAN_AXIS(axis);
    }
    return axes;
}

bool sglplan_split_residual(const sglplan *plan, const char *parameter, int rank, int8_t at[SGLIR_AXIS_COUNT])
{
    const sglplan_axes axes = sglplan_compress_axes(plan);
    uint64_t named;
    bool any = false;
    sglplan_layout_of(plan, parameter, false, at, &named);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const bool none = at[axis] < 0 || at[axis] + 1 >= rank || axis == SGLIR_AXIS_MICRO || plan->mesh[axis] == 1;
        at[axis] = (int8_t)(axes & SGLPLAN_AXIS(axis) ? 0 : none ? -1 : at[axis] + 1);
        any = any || at[axis] >= 0;
    }
    return any;
}

const char *sglplan_residual_of(const char *name)
{
    const size_t length = strlen(SGLPLAN_RESIDUAL);
    return strncmp(name, SGLPLAN_RESIDUAL, length) == 0 ? name + length : NULL;
}

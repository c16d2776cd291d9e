/* attention_sight.c -- which keys a block of queries sees: by place in time (causal, window) and by segment.
 *
 * In: the shapes, the offset of the first query, segments where there are any. Out: the range of keys to go through, how a
 * block of them meets the queries, and scores hidden from those that do not see them. Odd invariant: a segment below 0 is
 * none, read without its sign it is greater than all that are. */
#include "backend/cpu/attention.h"

/* The least and the greatest without sign, the greatest with it. */
static void range_of(const int32_t *segments, int64_t count, uint32_t *least, uint32_t *most, int32_t *last)
{
    uint32_t low = UINT32_MAX, high = 0;
    int32_t top = INT32_MIN;
    for (int64_t i = 0; i < count; i++) {
        uint32_t segment = (uint32_t)segments[i];
        low = segment < low ? segment : low;
        high = segment > high ? segment : high;
        top = segments[i] > top ? segments[i] : top;
    }
    *least = low, *most = high, *last = top;
}

sglcpu_sight sglcpu_sight_of(const sglcpu_launch *launch, const sglcpu_heads *a, int64_t offset, int64_t batch,
                             int64_t query, int64_t queries)
{
    sglcpu_sight s = { .heads = a, .offset = offset, .query = query, .queries = queries };
    if (a->query_segments == NULL) return s;
    s.query_segments = (const int32_t *)(const void *)sglcpu_at(launch, a->query_segments) + batch * a->t + query;
    s.key_segments = (const int32_t *)(const void *)sglcpu_at(launch, a->key_segments) + batch * a->s;
    range_of(s.query_segments, queries, &s.least, &s.most, &s.last);
    return s;
}

void sglcpu_visible_keys(const sglcpu_sight *sight, int64_t *first, int64_t *last)
{
    const sglcpu_heads *a = sight->heads;
    int64_t own = sight->offset + sight->query; /* place of the first query among the keys */
    *first = 0;
    *last = a->s;
    if (!a->causal) return;
    *last = sglcpu_max(sglcpu_min(a->s, own + sight->queries), 0);
    if (a->window > 0) *first = sglcpu_min(sglcpu_max(own - a->window + 1, 0), *last);
}

sglcpu_meeting sglcpu_meet(const sglcpu_sight *sight, int64_t key, int64_t keys)
{
    if (sight->key_segments == NULL) return SGLCPU_TOGETHER;
    uint32_t least, most;
    int32_t last;
    range_of(sight->key_segments + key, keys, &least, &most, &last);
    if (last < 0 || sight->last < 0) return SGLCPU_APART; /* nobody on one side */
    if (least > (uint32_t)sight->last || sight->least > (uint32_t)last) return SGLCPU_APART;
    /* they overlap, so that where each is one segment, it is the same one */
    return least == most && sight->least == sight->most ? SGLCPU_TOGETHER : SGLCPU_MIXED;
}

static void mask_times(const sglcpu_sight *sight, int64_t key, int64_t keys, char *scores, int64_t ld,
                       const char *number)
{
    const sglcpu_heads *a = sight->heads;
    int64_t own = sight->offset + sight->query, queries = sight->queries, size = a->size;
    if (!a->causal || (a->window == 0 && key + keys <= own + 1)) return;
    for (int64_t r = 0; r < keys; r++) {
        /* query i sees this key from i = key - own on, and with a window until i = key - own + window - 1 */
        int64_t from = key + r - own, to = a->window > 0 ? from + a->window : queries;
        char *row = scores + r * ld * size;
        from = sglcpu_min(sglcpu_max(from, 0), queries);
        to = sglcpu_min(sglcpu_max(to, 0), queries);
        sglcpu_spread(row, number, size, from);
        sglcpu_spread(row + to * size, number, size, queries - to);
    }
}

/* A key below 0 is seen by none; a query below 0 equals no key that is not. */
static void mask_segments(const sglcpu_sight *sight, int64_t key, int64_t keys, char *scores, int64_t ld,
                          const char *number)
{
    const int32_t *own = sight->query_segments;
    int64_t queries = sight->queries, size = sight->heads->size;
    for (int64_t r = 0; r < keys; r++) {
        int32_t segment = sight->key_segments[key + r];
        char *row = scores + r * ld * size;
        if (segment < 0) {
            sglcpu_spread(row, number, size, queries);
        } else if (sight->heads->real) {
            double *at = (double *)(void *)row, value = *(const double *)(const void *)number;
            for (int64_t i = 0; i < queries; i++) at[i] = own[i] == segment ? at[i] : value;
        } else {
            float *at = (float *)(void *)row, value = *(const float *)(const void *)number;
            for (int64_t i = 0; i < queries; i++) at[i] = own[i] == segment ? at[i] : value;
        }
    }
}

void sglcpu_mask_scores(const sglcpu_sight *sight, sglcpu_meeting meeting, int64_t key, int64_t keys, char *scores,
                        int64_t ld, double value)
{
    _Alignas(8) char number[8];
    sglcpu_put_number(number, sight->heads->held, value);
    mask_times(sight, key, keys, scores, ld, number);
    if (meeting == SGLCPU_MIXED) mask_segments(sight, key, keys, scores, ld, number);
}

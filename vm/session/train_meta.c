/* train_meta.c -- what a checkpoint of a training run keeps beside its states, so that the run can go on from it.
 *
 * Comes in: the host's meta, a JSON object as text, and how far the run is. Goes out: one object: the host's members as
 * they stand, then our own. Odd invariant: a member of the host's that is named as one of ours gives way to it. */
#include <string.h>

#include "session/session.h"
#include "store/json.h"

/* The last one where something picks alone: elsewhere every step has as many. */
static const char *const own_keys[] = { "step", "steps", "cursor", "seed", "evaluated", "tokens" };
enum { OWN_KEYS = sizeof own_keys / sizeof own_keys[0] };
static int own_count(const sgl_train_config *c) { return c->pick ? OWN_KEYS : OWN_KEYS - 1; }

/* The members of the host's meta, as they stand, but for those of our own. */
static sgl_status add_members(sglcore_env *env, const char *meta, int own_keys_count, sglcore_text *key,
                              sglcore_text *text)
{
    sglstore_json json = { .env = env, .text = meta, .bytes = (int64_t)strlen(meta) };
    bool more = true;
    SGLCORE_TRY(sglstore_json_open(&json, '{'));
    for (;;) {
        int64_t from;
        bool own = false;
        SGLCORE_TRY(sglstore_json_member(&json, key, &more));
        if (!more) return sglstore_json_end(&json);
        SGLCORE_TRY(sglstore_json_skip(&json, &from));
        for (int i = 0; i < own_keys_count; i++) own = own || strcmp(key->data, own_keys[i]) == 0;
        if (own) continue;
        SGLCORE_TRY(sglcore_text_quote(env, text, key->data));
        SGLCORE_TRY(sglcore_text_add(env, text, ":"));
        SGLCORE_TRY(sglcore_text_bytes(env, text, meta + from, (size_t)(json.at - from)));
        SGLCORE_TRY(sglcore_text_add(env, text, ","));
    }
}

sgl_status sglsession_train_meta(sglcore_env *env, const sgl_train_config *config, const sglsession_progress *progress,
                                 sglcore_text *text)
{
    const int64_t values[OWN_KEYS] = { progress->step,        config->steps,       progress->step,
                                       (int64_t)config->seed, progress->evaluated, progress->tokens_done };
    const int own = own_count(config);
    sglcore_text key = { 0 };
    sgl_status status = sglcore_text_add(env, text, "{");
    if (status == SGL_OK && config->meta) status = add_members(env, config->meta, own, &key, text);
    sglcore_text_free(env, &key);
    if (status == SGL_CORRUPT) return sglcore_fail_at(env, SGL_INVALID_ARGUMENT, "sgl_train: meta");
    for (int i = 0; i < own && status == SGL_OK; i++)
        status = sglcore_text_add(env, text, "%s\"%s\":%lld", i ? "," : "", own_keys[i], (long long)values[i]);
    return status == SGL_OK ? sglcore_text_add(env, text, "}") : status;
}

/* tokens.c -- token data for a host: sgl_tokens_* of sgl.h over the token files of store/.
 *
 * Comes in: a config, a cursor. Goes out: windows of tokens and their targets. What is opened stands in the VM's list, so that
 * sgl_close frees it; it has the room for one batch that training reads into. */
#include "session/session.h"
#include "store/store.h"

sgl_status sgl_tokens_open(sgl_vm *vm, const sgl_tokens_config *config, sgl_tokens **tokens)
{
    SGLSESSION_NEEDS(vm && config && tokens, vm, "vm, config or tokens is NULL");
    *tokens = NULL;
    sgl_tokens *made = sglcore_alloc_zero(&vm->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->vm = vm;
    sglsession_link_in(&vm->tokens, &made->link);
    sgl_status status = sglstore_tokens_open(&vm->env, config, &made->tokens);
    if (status == SGL_OK) status = sglstore_tokens_scan(made->tokens, &vm->interrupted);
    if (status == SGL_INTERRUPTED) sglsession_resume(vm);
    if (status == SGL_OK) {
        made->buffer_bytes = config->batch * config->seq * (int64_t)sizeof(int32_t);
        made->inputs = sglcore_alloc(&vm->env, (size_t)made->buffer_bytes);
        made->targets = sglcore_alloc(&vm->env, (size_t)made->buffer_bytes);
        if (!made->inputs || !made->targets) status = SGL_OUT_OF_MEMORY;
    }
    if (status != SGL_OK) {
        sgl_tokens_free(made);
        return status;
    }
    *tokens = made;
    return SGL_OK;
}

void sgl_tokens_free(sgl_tokens *tokens)
{
    if (!tokens) return;
    sglcore_env *env = &tokens->vm->env;
    sglsession_link_out(&tokens->link);
    sglstore_tokens_free(tokens->tokens);
    sglcore_free(env, tokens->inputs, (size_t)tokens->buffer_bytes);
    sglcore_free(env, tokens->targets, (size_t)tokens->buffer_bytes);
    sglcore_free(env, tokens, sizeof *tokens);
}

sgl_status sgl_tokens_train(sgl_tokens *tokens, int64_t cursor, int32_t *inputs, int32_t *targets)
{
    SGLSESSION_NEEDS(tokens && cursor >= 0 && inputs && targets, tokens ? tokens->vm : NULL,
                     "tokens, inputs or targets is NULL, or cursor is below 0");
    return sglstore_tokens_train(tokens->tokens, cursor, inputs, targets);
}

sgl_status sgl_tokens_eval(sgl_tokens *tokens, int64_t cursor, int32_t *inputs, int32_t *targets)
{
    SGLSESSION_NEEDS(tokens && cursor >= 0 && inputs && targets, tokens ? tokens->vm : NULL,
                     "tokens, inputs or targets is NULL, or cursor is below 0");
    return sglstore_tokens_eval(tokens->tokens, cursor, inputs, targets);
}

void sgl_tokens_sizes(const sgl_tokens *tokens, int64_t *train, int64_t *held_out, int64_t *train_batches,
                      int64_t *eval_batches)
{
    sglstore_tokens_sizes sizes = { 0 };
    if (tokens) sizes = sglstore_tokens_sizes_of(tokens->tokens);
    if (train) *train = sizes.train;
    if (held_out) *held_out = sizes.held_out;
    if (train_batches) *train_batches = sizes.train_batches;
    if (eval_batches) *eval_batches = sizes.eval_batches;
}

sgl_status sgl_tokens_ngram_loss(sgl_tokens *tokens, int order, double *nats)
{
    SGLSESSION_NEEDS(tokens && nats, tokens ? tokens->vm : NULL, "tokens or nats is NULL");
    return sglstore_tokens_ngram_loss(tokens->tokens, order, nats);
}

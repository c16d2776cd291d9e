/* shard.c -- layouts over the ranks of a mesh.
 *
 * In: a step over the whole batch, plan->mesh. Out: the same, as one rank. A plan of one rank leaves all as it is. */
#include "passes/pass.h"

sgl_status sglpass_shard(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sgl_status status = sglir_rewrite_graph(context->env, in, "shard", NULL, NULL, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, false);
    return status;
}

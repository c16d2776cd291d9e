/* transformer_whole.h -- a transformer's step in an environment of its own, and what one rank comes to: what plans are held to.
 *
 * In: sizes. Out: the graph, the inputs and results of one rank. Odd invariant: whatever is left in the environment when it is
 * closed is a failed assertion. */
#ifndef TRANSFORMER_WHOLE_H
#define TRANSFORMER_WHOLE_H

#include "tests/unit/fault.h"

#include "tests/support/transformer_graph.h"
#include "tests/support/world_check.h"

typedef struct transformer_whole {
    sglcore_env env;
    sglir_graph *g;
    interp results;
} transformer_whole;

static inline void transformer_whole_open(transformer_whole *w, const transformer_sizes *sizes)
{
    ir_message message;
    w->results = (interp){ 0 };
    sglcore_env_init(&w->env, NULL, NULL, NULL, NULL);
    assert_int_equal(transformer_graph(&w->env, sizes, &w->g), SGL_OK);
    if (!world_check_alone(&w->env, w->g, 7, &w->results, &message)) fail_msg("%s", message.text);
}

static inline void transformer_whole_close(transformer_whole *w)
{
    interp_free(&w->results);
    sglir_graph_free(w->g);
    assert_int_equal(w->env.bytes_in_use, 0);
}

#endif

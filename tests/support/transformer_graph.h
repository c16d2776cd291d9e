/* transformer_graph.h -- the training step of a small Llama-like model as a script would trace it: embedding, blocks of
 * attention and gated feed-forward, a tied vocabulary loss averaged over valid targets, gradients, clipping, AdamW over
 * packs. For tests of passes at any size. In: sizes. Out: a logical graph in float32; feeds tokens, targets
 * (i32[batch, seq], -1: ignored), seed, step; fetches loss and grad_norm. */
#ifndef TRANSFORMER_GRAPH_H
#define TRANSFORMER_GRAPH_H

#include "ir/ir.h"

typedef struct transformer_sizes {
    int64_t layers, batch, seq, dim, heads, ffn, vocab;
    int64_t kv_heads; /* 0: as many as heads */
    double dropout;   /* 0: none */
    sgl_dtype dtype;  /* F64 is 0: that of a zeroed struct */
} transformer_sizes;

/* Heads, hidden units and the vocabulary over tp, as a plan's layouts say it. */
#define TRANSFORMER_TENSOR                                                                                             \
    "blocks.*.wq tp:0, blocks.*.wk tp:0, blocks.*.wv tp:0, blocks.*.wo tp:1, blocks.*.w1 tp:0, blocks.*.w3 tp:0, "     \
    "blocks.*.w2 tp:1, embed tp:0"

sgl_status transformer_graph(sglcore_env *env, const transformer_sizes *sizes, sglir_graph **graph);
int64_t transformer_parameter_bytes(const sglir_graph *graph);

#endif

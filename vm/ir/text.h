/* text.h -- what the files of the text form share: numbering, one node as text, the schema of attributes.
 *
 * The form, one node a line (print.c writes it, parse.c reads it; `#` opens a comment up to the line's end):
 *
 *   graph "train" {
 *     %0 = input() {role=0, name="embed.weight", dtype=f32, dims=[256,384]} : f32[256,384] @"llama.lua":42 scope "embed"
 *     %1, %2 = unpack(%0) {ranks=[1,1], dims=[4,8]} : f32[4] in arena+0, f32[8] in arena+64 epoch 1 work 64 in arena+96 pass "recompute"
 *     %3 = scan(%1) {steps=4} : f32[4] {
 *       region(%4: i64[], %5: f32[4]) {
 *         yield %5
 *       }
 *     }
 *     fetch "loss" %3
 *     update "embed.weight" %0
 *     member "embed.weight" of "params" role parameter offset 0 : f32[256,384]
 *     recompute "blocks.0"
 *     memory {arena=4096, state=0, io=0, const=0, lower_bound=4096}
 *   }
 *
 * Behind the type of a value that is split over ranks may stand what it is a part of, and from where:
 *
 *     %6 = input() {...} : f32[4,64]{dp:0} of [8,64] from [4,0]
 *
 * Behind the epoch may stand the turn of a pipeline's stage, `turn 2`.
 *
 * Values are numbered densely in the order in which they appear. An attribute that is zero, empty or -1, and is so by
 * default, is not written. Read, any attribute that has a default may be left out, and so may the types and all that
 * stands after them. */
#ifndef SGLIR_TEXT_H
#define SGLIR_TEXT_H

#include "ir/ir.h"

enum {
    SGLIR_TEXT_DEPTH = 32, /* most regions within regions that are read */
    SGLIR_ROLES = SGL_CACHE + 1
};

/* Per value its number in the text; SGLIR_NONE for what is in no region. Freed with sglcore_free(.., *bytes). */
sgl_status sglir_number_values(const sglir_graph *g, sglir_id **numbers, size_t *bytes);

/* Appends the node's line, without its regions. numbers NULL: the ids themselves. The node must be well formed. */
sgl_status sglir_text_node(const sglir_graph *g, const sglir_id *numbers, sglir_id node, sglcore_text *text);

extern const char *const sglir_space_names[SGLIR_SPACES]; /* "" for NONE */
extern const char *const sglir_role_names[SGLIR_ROLES];

#endif

/* padding_parts.h -- inside the rules of padding: what more than one file of them asks, and the rules that have a file of their own.
 *
 * padding_rules.c goes through a graph and has what most ops do alike, padding_ops.c ops whose places matter, padding_moves.c
 * movement and indices, padding_loops.c loops and branches. */
#ifndef SGLIR_PADDING_PARTS_H
#define SGLIR_PADDING_PARTS_H

#include "ir/padding.h"

/* Why padding gets in, as messages say it. */
#define SGLIR_PADDING_CONFLICT "its arguments have it in different places of one dimension"
#define SGLIR_PADDING_OF_ROWS "the op moves rows, and each row has its padding in another place"

/* The axis padded with a number, or with anything (NaN). */
void sglir_padding_fill(sglir_padding_axis *axis, double content);
/* In no axis but the one (-1: none) does the state hold padding, the turn aside. */
bool sglir_padding_only_along(const sglir_padding_state *state, int axis);
bool sglir_padding_has_any(const sglir_padding_state *state);
/* What all arguments hold, of one shape; `but` is left out, contents are dropped. */
bool sglir_padding_join_all(const sglir_padding_view *v, int but, sglir_padding_state *made);
/* Each argument that has padding has the rows of all together. */
bool sglir_padding_rows_agree(const sglir_padding_view *v, const sglir_padding_state *made);
/* What a value that tells the turn of a loop leaves in what is made with it. */
void sglir_padding_turned(const sglir_padding_view *v, const sglir_padding_state *start, sglir_padding_state *made);

/* Of a loop or branch. */
void sglir_padding_control(sglir_padding_view *v);
/* false: the op moves nothing. */
bool sglir_padding_moves(sglir_padding_view *v);

#endif

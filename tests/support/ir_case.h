/* ir_case.h -- what tests of graphs share: a graph from its text and back, seeded inputs, results compared.
 *
 * In: graphs, seeds. Out: true, or false and a message. Sections are seen through: a graph whose parameters were gathered
 * into sections is fed from, and compared with, one whose parameters stand alone, member by member. */
#ifndef IR_CASE_H
#define IR_CASE_H

#include "core/core.h"
#include "ir/ir.h"
#include "tests/reference/interp.h"

typedef struct ir_message {
    char text[4096];
} ir_message;

/* NULL and a message when the text is wrong. */
sglir_graph *ir_case_parse(sglcore_env *env, const char *name, const char *text, ir_message *message);
/* The graph's text, freed with sglcore_text_free; "" when it cannot be printed. */
sglcore_text ir_case_print(sglcore_env *env, const sglir_graph *g);
/* The same to stderr: it is longer than cmocka prints. */
void ir_case_show(sglcore_env *env, const sglir_graph *g);
/* Nodes of the op, in all regions. */
int ir_case_count(const sglir_graph *g, sglir_op op);
/* parse(print(g)) has both hashes of g, and prints the same again. */
bool ir_case_round_trip(sglcore_env *env, const sglir_graph *g, ir_message *message);

/* How far two numbers may be apart: relative to the largest magnitude in the tensor, and besides. */
typedef struct ir_tolerance {
    double relative, absolute;
} ir_tolerance;

/* Gives every input of g a value: floats of parameters and feeds in [-1, 1), of states and caches in [0, 1); integers in
 * 0..3, bools either. The value depends on the seed and the input's name alone. */
void ir_case_fill(interp *in, const sglir_graph *g, uint64_t seed);
/* Gives the inputs of `to` the values that `from` has for a graph of the same meaning: by name, or through members. */
bool ir_case_feed_as(interp *to, const sglir_graph *g, const interp *from, ir_message *message);
/* Fetches and updates of `a` stand in `b` (run on `gb`) too, within the tolerance, and b's sections hold nothing else
 * that is new. */
bool ir_case_same_results(const interp *a, const interp *b, const sglir_graph *gb, ir_tolerance tolerance,
                          ir_message *message);
/* Fills, runs both and compares: they are the same within the tolerance when every float is a double, or else bit for bit
 * when every op rounds to its dtype (a constant folded in f32 is the latter, a sum taken in another order the former). */
bool ir_case_same_meaning(const sglir_graph *a, const sglir_graph *b, uint64_t seed, ir_tolerance tolerance,
                          ir_message *message);

#endif

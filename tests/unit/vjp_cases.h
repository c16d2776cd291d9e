/* vjp_cases.h -- for each op that has a derivative, the small graphs on which it is held against central differences.
 *
 * A case is a graph in text form, without its first and last line; what it fetches is weighed and summed to a scalar, and
 * derived by every input that is a float. The first letter of an input's name says what it holds: x numbers in (-2, 2),
 * p positive ones, i indices -1, 0, ... 5, 0, ..., c conditions, o the number 1. `orders`: 1, or 2 to derive twice. */
#ifndef VJP_CASES_H
#define VJP_CASES_H

#include "ir/ir.h"

#define IN(number, name, dtype, dims)                                                                                  \
    "%" #number " = input() {role=0, name=\"" name "\", dtype=" dtype ", dims=[" dims "]}\n"
#define FEED(number, name, dtype, dims)                                                                                \
    "%" #number " = input() {role=2, name=\"" name "\", dtype=" dtype ", dims=[" dims "]}\n"
#define OF_X(dims, line) IN(0, "x", "f64", dims) line "\nfetch \"y\" %1\n"
#define OF_P(dims, line) IN(0, "p", "f64", dims) line "\nfetch \"y\" %1\n"
#define OF_XX(a, b, line) IN(0, "xa", "f64", a) IN(1, "xb", "f64", b) line "\nfetch \"y\" %2\n"
#define OF_XP(a, b, line) IN(0, "x", "f64", a) IN(1, "p", "f64", b) line "\nfetch \"y\" %2\n"
#define PLACES_1 "stride=[2], dilation=[1], low=[1], high=[1]"
#define PLACES_2 "stride=[1,2], dilation=[2,1], low=[1,1], high=[0,-1]"
#define QKV(t, h, s, g)                                                                                                \
    IN(0, "xq", "f64", "2," #t "," #h ",4")                                                                            \
    IN(1, "xk", "f64", "2," #s "," #g ",4")                                                                            \
    IN(2, "xv", "f64", "2," #s "," #g ",3")                                                                            \
    FEED(3, "o", "i64", "")
/* For three queries and four keys of two sequences: -1,0,0 and 0,1,1; -1,0,0,0 and 1,1,1,-1. */
#define SEGMENTS                                                                                                       \
    FEED(4, "iq", "i32", "2,3")                                                                                        \
    FEED(5, "ik", "i32", "2,4")                                                                                        \
    "%6 = constant() {value=3, dtype=i32}\n%7 = broadcast(%6) {dims=[2,3]}\n%8 = div(%4, %7)\n"                        \
    "%9 = broadcast(%6) {dims=[2,4]}\n%10 = div(%5, %9)\n"

typedef struct vjp_case {
    sglir_op op;
    int orders;
    const char *label, *text;
} vjp_case;

static const vjp_case vjp_cases[] = {
    /* elementwise, one argument */
    { SGLIR_OP_CAST, 1, "widen", IN(0, "x", "f32", "2,3") "%1 = cast(%0) {to=f64}\nfetch \"y\" %1\n" },
    { SGLIR_OP_CAST, 1, "there and back",
      IN(0, "x", "f32", "2,3") "%1 = cast(%0) {to=f64}\n%2 = mul(%1, %1)\nfetch \"y\" %2\n" },
    { SGLIR_OP_LAID_OUT, 1, "", OF_X("2,3", "%1 = laid_out(%0) {split=[-1,-1,1,-1,-1,-1,-1]}") },
    { SGLIR_OP_NEG, 1, "", OF_X("2,3", "%1 = neg(%0)") },
    { SGLIR_OP_ABS, 1, "", OF_X("2,3", "%1 = abs(%0)") },
    { SGLIR_OP_EXP, 2, "", OF_X("2,3", "%1 = exp(%0)") },
    { SGLIR_OP_LOG, 2, "", OF_P("2,3", "%1 = log(%0)") },
    { SGLIR_OP_SQRT, 2, "", OF_P("2,3", "%1 = sqrt(%0)") },
    { SGLIR_OP_RSQRT, 2, "", OF_P("2,3", "%1 = rsqrt(%0)") },
    { SGLIR_OP_RECIPROCAL, 2, "", OF_P("2,3", "%1 = reciprocal(%0)") },
    { SGLIR_OP_SIN, 2, "", OF_X("2,3", "%1 = sin(%0)") },
    { SGLIR_OP_COS, 2, "", OF_X("2,3", "%1 = cos(%0)") },
    { SGLIR_OP_TANH, 2, "", OF_X("2,3", "%1 = tanh(%0)") },
    { SGLIR_OP_ERF, 2, "", OF_X("2,3", "%1 = erf(%0)") },
    { SGLIR_OP_SIGMOID, 2, "", OF_X("2,3", "%1 = sigmoid(%0)") },
    { SGLIR_OP_LOG1P, 2, "", OF_P("2,3", "%1 = log1p(%0)") },
    { SGLIR_OP_EXPM1, 2, "", OF_X("2,3", "%1 = expm1(%0)") },
    { SGLIR_OP_CLAMP, 1, "", OF_X("2,8", "%1 = clamp(%0) {minimum=-0.7, maximum=1.1}") },
    { SGLIR_OP_CLAMP, 1, "one bound", OF_X("2,8", "%1 = clamp(%0) {maximum=0.3}") },
    { SGLIR_OP_SILU, 2, "", OF_X("2,3", "%1 = silu(%0)") },
    { SGLIR_OP_GELU, 2, "by tanh", OF_X("2,3", "%1 = gelu(%0)") },
    { SGLIR_OP_GELU, 2, "exact", OF_X("2,3", "%1 = gelu(%0) {exact=1}") },
    { SGLIR_OP_SILU_GRAD, 2, "", OF_XX("2,3", "2,3", "%2 = silu_grad(%0, %1)") },
    { SGLIR_OP_GELU_GRAD, 2, "by tanh", OF_XX("2,3", "2,3", "%2 = gelu_grad(%0, %1)") },
    { SGLIR_OP_GELU_GRAD, 1, "exact", OF_XX("2,3", "2,3", "%2 = gelu_grad(%0, %1) {exact=1}") },
    /* elementwise, two and three */
    { SGLIR_OP_ADD, 1, "", OF_XX("2,3", "2,3", "%2 = add(%0, %1)") },
    { SGLIR_OP_SUB, 1, "", OF_XX("2,3", "2,3", "%2 = sub(%0, %1)") },
    { SGLIR_OP_MUL, 2, "", OF_XX("2,3", "2,3", "%2 = mul(%0, %1)") },
    { SGLIR_OP_MUL, 2, "by itself", OF_X("2,3", "%1 = mul(%0, %0)") },
    { SGLIR_OP_DIV, 2, "", OF_XP("2,3", "2,3", "%2 = div(%0, %1)") },
    { SGLIR_OP_REMAINDER, 1, "", OF_XP("2,3", "2,3", "%2 = remainder(%0, %1)") },
    { SGLIR_OP_POW, 2, "", IN(0, "p", "f64", "2,3") IN(1, "x", "f64", "2,3") "%2 = pow(%0, %1)\nfetch \"y\" %2\n" },
    { SGLIR_OP_POW, 2, "cube of negatives too",
      IN(0, "x", "f64", "2,3") "%1 = constant() {value=3, dtype=f64}\n%2 = broadcast(%1) {dims=[2,3]}\n"
                               "%3 = pow(%0, %2)\nfetch \"y\" %3\n" },
    { SGLIR_OP_POW, 1, "square",
      IN(0, "x", "f64", "2,3") "%1 = constant() {value=2, dtype=f64}\n%2 = broadcast(%1) {dims=[2,3]}\n"
                               "%3 = pow(%0, %2)\nfetch \"y\" %3\n" },
    { SGLIR_OP_MAXIMUM, 1, "", OF_XX("2,3", "2,3", "%2 = maximum(%0, %1)") },
    { SGLIR_OP_MINIMUM, 1, "", OF_XX("2,3", "2,3", "%2 = minimum(%0, %1)") },
    { SGLIR_OP_SELECT, 1, "",
      IN(0, "xa", "f64", "2,3") IN(1, "xb", "f64", "2,3") FEED(2, "c", "bool", "2,3") "%3 = select(%2, %0, %1)\n"
                                                                                      "fetch \"y\" %3\n" },
    /* reductions */
    { SGLIR_OP_REDUCE_SUM, 1, "", OF_X("2,3,4", "%1 = reduce_sum(%0) {axes=[0,2]}") },
    { SGLIR_OP_REDUCE_SUM, 1, "kept", OF_X("2,3,4", "%1 = reduce_sum(%0) {axes=[1], keep=1}") },
    { SGLIR_OP_REDUCE_SUM, 1, "of none", OF_X("2,0,4", "%1 = reduce_sum(%0) {axes=[1]}") },
    { SGLIR_OP_REDUCE_MAX, 1, "", OF_X("2,3,4", "%1 = reduce_max(%0) {axes=[0,2]}") },
    { SGLIR_OP_REDUCE_MAX, 1, "kept", OF_X("2,3,4", "%1 = reduce_max(%0) {axes=[2], keep=1}") },
    { SGLIR_OP_REDUCE_MIN, 1, "", OF_X("2,3,4", "%1 = reduce_min(%0) {axes=[1]}") },
    { SGLIR_OP_MEAN, 1, "", OF_X("2,3,4", "%1 = mean(%0) {axes=[0,1]}") },
    { SGLIR_OP_REDUCE_PROD, 2, "", OF_X("2,3,2", "%1 = reduce_prod(%0) {axes=[0,2]}") },
    { SGLIR_OP_REDUCE_PROD, 2, "kept", OF_X("2,3", "%1 = reduce_prod(%0) {axes=[0], keep=1}") },
    { SGLIR_OP_REDUCE_PROD, 1, "of nothing", OF_X("2,0", "%1 = reduce_prod(%0) {axes=[1]}") },
    { SGLIR_OP_REDUCE_PROD, 1, "over no axis", OF_X("2", "%1 = reduce_prod(%0) {axes=[]}") },
    { SGLIR_OP_LOGSUMEXP, 2, "", OF_X("2,3,4", "%1 = logsumexp(%0) {axes=[0,2]}") },
    { SGLIR_OP_LOGSUMEXP, 1, "kept", OF_X("2,3", "%1 = logsumexp(%0) {axes=[1], keep=1}") },
    /* along an axis */
    { SGLIR_OP_RECURRENCE, 2, "", OF_XX("2,4", "2,4", "%2 = recurrence(%0, %1) {axis=1}") },
    { SGLIR_OP_RECURRENCE, 2, "in reverse", OF_XX("3,2", "3,2", "%2 = recurrence(%0, %1) {axis=0, reverse=1}") },
    { SGLIR_OP_RECURRENCE, 1, "of nothing", OF_XX("2,0", "2,0", "%2 = recurrence(%0, %1) {axis=1}") },
    { SGLIR_OP_RECURRENCE, 1, "of one", OF_XX("2,1", "2,1", "%2 = recurrence(%0, %1) {axis=1}") },
    { SGLIR_OP_CUMULATIVE_SUM, 1, "", OF_X("2,4", "%1 = cumulative_sum(%0) {axis=1}") },
    { SGLIR_OP_CUMULATIVE_SUM, 1, "all before, in reverse",
      OF_X("4,2", "%1 = cumulative_sum(%0) {axis=0, reverse=1, exclusive=1}") },
    { SGLIR_OP_CUMULATIVE_PROD, 2, "", OF_X("2,4", "%1 = cumulative_prod(%0) {axis=1}") },
    { SGLIR_OP_CUMULATIVE_PROD, 2, "all before, in reverse",
      OF_X("4,2", "%1 = cumulative_prod(%0) {axis=0, reverse=1, exclusive=1}") },
    { SGLIR_OP_SORT, 1, "", OF_X("2,5", "%1, %2 = sort(%0) {axis=1}") },
    { SGLIR_OP_SORT, 2, "of squares, descending",
      OF_X("5,2", "%3 = mul(%0, %0)\n%1, %2 = sort(%3) {axis=0, descending=1}") },
    { SGLIR_OP_TOP_K, 1, "", OF_X("2,5", "%1, %2 = top_k(%0) {k=2}") },
    { SGLIR_OP_TAKE_ALONG, 1, "",
      IN(0, "x", "f64", "2,5,2") FEED(1, "i", "i32", "2,4,2") "%2 = take_along(%0, %1) {axis=1}\nfetch \"y\" %2\n" },
    { SGLIR_OP_ADD_ALONG, 1, "",
      IN(0, "x", "f64", "2,7,2")
          FEED(1, "i", "i64", "2,7,2") "%2 = add_along(%1, %0) {axis=1, extent=4}\nfetch \"y\" %2\n" },
    /* given by the script: the true derivative, so that differences agree */
    { SGLIR_OP_CUSTOM, 2, "a square and a product",
      IN(0, "xa", "f64", "2,3") IN(
          1, "xb", "f64",
          "2,3") "%2 = mul(%0, %0)\n%3 = mul(%0, %1)\n%4 = stop_gradient(%2)\n%5 = stop_gradient(%3)\n"
                 "%6 = custom_seed(%2)\n%7 = custom_seed(%3)\n"
                 "%8 = mul(%6, %0)\n%9 = add(%8, %8)\n%10 = mul(%7, %1)\n%11 = add(%9, %10)\n%12 = mul(%7, %0)\n"
                 "%13, %14 = custom(%4, %5, %0, %1, %11, %12, %6, %7) {results=2}\nfetch \"y\" %13\nfetch \"z\" %14\n" },
    { SGLIR_OP_CUSTOM, 2, "one result of two is used, and softmax stands in the formula",
      IN(0, "x", "f64",
         "2,3") "%2 = logsumexp(%0) {axes=[1]}\n%3 = exp(%0)\n%4 = stop_gradient(%2)\n%5 = stop_gradient(%3)\n"
                "%6 = custom_seed(%2)\n%7 = custom_seed(%3)\n"
                "%8 = softmax(%0)\n%9 = reshape(%6) {dims=[2,1]}\n%10 = broadcast(%9) {dims=[2,3]}\n%11 = mul(%8, %10)\n"
                "%12 = mul(%7, %3)\n%15 = add(%11, %12)\n"
                "%13, %14 = custom(%4, %5, %0, %15, %6, %7) {results=2}\nfetch \"y\" %13\n" },
    /* windows */
    { SGLIR_OP_WINDOWS, 1, "", OF_X("2,5,2", "%1 = windows(%0) {size=[3], " PLACES_1 "}") },
    { SGLIR_OP_WINDOWS, 1, "in two dimensions, padded by a number, cut",
      OF_X("1,5,4,2", "%1 = windows(%0) {size=[2,3], value=0.5, " PLACES_2 "}") },
    { SGLIR_OP_WINDOWS_ADD, 1, "", OF_X("2,3,3,2", "%1 = windows_add(%0) {extent=[5], " PLACES_1 "}") },
    { SGLIR_OP_CONV, 2, "", OF_XX("2,5,3", "2,3,3", "%2 = conv(%0, %1) {" PLACES_1 "}") },
    { SGLIR_OP_CONV, 2, "two dimensions, groups",
      OF_XX("1,5,4,4", "2,2,3,2", "%2 = conv(%0, %1) {groups=2, " PLACES_2 "}") },
    { SGLIR_OP_CONV_INPUT_GRAD, 2, "",
      OF_XX("2,3,2", "2,3,3", "%2 = conv_input_grad(%0, %1) {extent=[5], " PLACES_1 "}") },
    { SGLIR_OP_CONV_INPUT_GRAD, 1, "two dimensions, groups",
      OF_XX("1,4,1,2", "2,2,3,2", "%2 = conv_input_grad(%0, %1) {extent=[5,4], groups=2, " PLACES_2 "}") },
    { SGLIR_OP_CONV_WEIGHT_GRAD, 2, "",
      OF_XX("2,5,3", "2,3,2", "%2 = conv_weight_grad(%0, %1) {size=[3], " PLACES_1 "}") },
    { SGLIR_OP_CONV_WEIGHT_GRAD, 1, "two dimensions, groups",
      OF_XX("1,5,4,4", "1,4,1,2", "%2 = conv_weight_grad(%0, %1) {size=[2,3], groups=2, " PLACES_2 "}") },
    /* movement */
    { SGLIR_OP_FLIP, 1, "", OF_X("2,3,4", "%1 = flip(%0) {axes=[0,2]}") },
    { SGLIR_OP_RESHAPE, 1, "", OF_X("2,6", "%1 = reshape(%0) {dims=[3,4]}") },
    { SGLIR_OP_BROADCAST, 1, "", OF_X("3,1", "%1 = broadcast(%0) {dims=[2,3,4]}") },
    { SGLIR_OP_TRANSPOSE, 1, "", OF_X("2,3,4", "%1 = transpose(%0) {order=[2,0,1]}") },
    { SGLIR_OP_SLICE, 1, "", OF_X("2,7", "%1 = slice(%0) {axis=1, start=1, stop=6, step=2}") },
    { SGLIR_OP_SLICE, 1, "uneven step", OF_X("2,7", "%1 = slice(%0) {axis=1, start=0, stop=6, step=4}") },
    { SGLIR_OP_SLICE, 1, "of nothing", OF_X("2,7", "%1 = slice(%0) {axis=1, start=3, stop=3}") },
    { SGLIR_OP_PAD, 1, "", OF_X("2,3", "%1 = pad(%0) {axis=1, before=2, after=1, between=2, value=0.5}") },
    { SGLIR_OP_PAD, 1, "of nothing", OF_X("2,0", "%1 = pad(%0) {axis=1, before=2, after=1, between=2}") },
    { SGLIR_OP_CONCAT, 1, "", OF_XX("2,3", "2,4", "%2 = concat(%0, %1, %0) {axis=1}") },
    { SGLIR_OP_PACK, 1, "", OF_XX("2,3", "", "%2 = pack(%0, %1, %0)") },
    { SGLIR_OP_UNPACK, 1, "",
      IN(0, "x", "f64",
         "11") "%1, %2, %3 = unpack(%0) {ranks=[1,0,2], dims=[4,2,3]}\nfetch \"y\" %1\nfetch \"z\" %3\n" },
    /* products */
    { SGLIR_OP_DOT, 2, "x w^T",
      OF_XX("2,3,4", "5,4", "%2 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[2], contract_b=[1]}") },
    { SGLIR_OP_DOT, 1, "x w",
      OF_XX("2,3,4", "4,5", "%2 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[2], contract_b=[0]}") },
    { SGLIR_OP_DOT, 1, "x^T w",
      OF_XX("4,3", "4,5", "%2 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[0], contract_b=[0]}") },
    { SGLIR_OP_DOT, 1, "batches in the middle",
      OF_XX("3,2,4", "4,5,2", "%2 = dot(%0, %1) {batch_a=[1], batch_b=[2], contract_a=[2], contract_b=[0]}") },
    { SGLIR_OP_DOT, 1, "two batches, two contracted the other way round",
      OF_XX("2,3,4,2,3", "3,5,3,2,2",
            "%2 = dot(%0, %1) {batch_a=[0,1], batch_b=[3,0], contract_a=[4,3], contract_b=[2,4]}") },
    { SGLIR_OP_DOT, 1, "outer",
      OF_XX("2", "3", "%2 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[], contract_b=[]}") },
    { SGLIR_OP_DOT, 1, "inner",
      OF_XX("4", "4", "%2 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[0], contract_b=[0]}") },
    { SGLIR_OP_DOT, 2, "with itself",
      OF_X("3,4", "%1 = dot(%0, %0) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[1]}") },
    { SGLIR_OP_MATMUL, 1, "", OF_XX("2,3,4", "4,5", "%2 = matmul(%0, %1)") },
    { SGLIR_OP_MATMUL, 1, "batches repeated", OF_XX("2,1,3,4", "5,4,2", "%2 = matmul(%0, %1)") },
    { SGLIR_OP_MATMUL, 1, "vectors", OF_XX("4", "2,4,3", "%2 = matmul(%0, %1)") },
    { SGLIR_OP_LINEAR, 1, "", OF_XX("2,3,4", "5,4", "%2 = linear(%0, %1)") },
    { SGLIR_OP_LINEAR, 1, "with bias",
      IN(0, "xa", "f64", "2,4") IN(1, "xw", "f64", "3,4") IN(2, "xb", "f64", "3") "%3 = linear(%0, %1, %2)\n"
                                                                                  "fetch \"y\" %3\n" },
    /* by index */
    { SGLIR_OP_GATHER, 1, "",
      IN(0, "x", "f64", "5,3") FEED(1, "i", "i32", "2,4") "%2 = gather(%0, %1)\nfetch \"y\" %2\n" },
    { SGLIR_OP_SCATTER_ADD, 1, "",
      IN(0, "x", "f64", "2,4,3") FEED(1, "i", "i64", "2,4") "%2 = scatter_add(%1, %0) {extent=4}\nfetch \"y\" %2\n" },
    { SGLIR_OP_DYNAMIC_SLICE, 1, "",
      IN(0, "x", "f64", "2,5")
          FEED(1, "o", "i64", "") "%2 = dynamic_slice(%0, %1) {axis=1, size=3}\nfetch \"y\" %2\n" },
    { SGLIR_OP_DYNAMIC_UPDATE, 1, "",
      IN(0, "xa", "f64", "2,5") IN(1, "xb", "f64", "2,3")
          FEED(2, "o", "i64", "") "%3 = dynamic_update(%0, %1, %2) {axis=1}\n"
                                  "fetch \"y\" %3\n" },
    /* composites */
    { SGLIR_OP_SOFTMAX, 2, "", OF_X("2,4", "%1 = softmax(%0)") },
    { SGLIR_OP_RMS_NORM, 2, "", OF_XX("2,4", "4", "%2 = rms_norm(%0, %1)") },
    { SGLIR_OP_LAYER_NORM, 2, "",
      IN(0, "x", "f64", "2,4") IN(1, "xg", "f64", "4") IN(2, "xb", "f64", "4") "%3 = layer_norm(%0, %1, %2)\n"
                                                                               "fetch \"y\" %3\n" },
    { SGLIR_OP_ROPE, 2, "",
      IN(0, "x", "f64", "1,3,2,4") FEED(1, "o", "i64", "") "%2 = rope(%0, %1) {theta=100}\nfetch \"y\" %2\n" },
    { SGLIR_OP_ROPE, 2, "positions, frequencies",
      IN(0, "x", "f64", "1,3,2,4")
          FEED(1, "j", "i32", "1,3") "%2 = rope(%0, %1) {frequencies=[0.5,-2]}\nfetch \"y\" %2\n" },
    { SGLIR_OP_ROPE, 2, "the other way",
      IN(0, "x", "f64", "1,3,2,4")
          FEED(1, "o", "i64", "") "%2 = rope(%0, %1) {theta=100, inverse=1}\nfetch \"y\" %2\n" },
    { SGLIR_OP_ATTENTION, 2, "causal",
      QKV(3, 2, 4, 2) "%4, %5 = attention(%0, %1, %2, %3) {scale=0.5}\nfetch \"y\" %4\n" },
    { SGLIR_OP_ATTENTION, 2, "grouped, a window",
      QKV(4, 4, 5, 2) "%4, %5 = attention(%0, %1, %2, %3) {scale=0.5, window=2}\nfetch \"y\" %4\n" },
    { SGLIR_OP_ATTENTION, 2, "all keys",
      QKV(3, 2, 4, 1) "%4, %5 = attention(%0, %1, %2, %3) {scale=0.5, causal=0}\nfetch \"y\" %4\n" },
    { SGLIR_OP_ATTENTION, 2, "segments",
      QKV(3, 2, 4, 1) SEGMENTS "%11, %12 = attention(%0, %1, %2, %3, %8, %10) {scale=0.5}\nfetch \"y\" %11\n" },
    { SGLIR_OP_ATTENTION, 2, "segments, all keys",
      QKV(3, 4, 4, 2) SEGMENTS
      "%11, %12 = attention(%0, %1, %2, %3, %8, %10) {scale=0.5, causal=0}\nfetch \"y\" %11\n" },
    { SGLIR_OP_ATTENTION, 2, "through lse",
      QKV(3, 2, 4, 1) "%4, %5 = attention(%0, %1, %2, %3) {scale=0.5}\nfetch \"y\" %4\nfetch \"z\" %5\n" },
    { SGLIR_OP_ATTENTION_GRAD, 1, "",
      QKV(3, 2, 4, 1)
          IN(4, "xd", "f64", "2,3,2,3") "%5, %6 = attention(%0, %1, %2, %3) {scale=0.5}\n"
                                        "%7, %8, %9 = attention_grad(%0, %1, %2, %5, %6, %4, %3) {scale=0.5}\n"
                                        "fetch \"y\" %7\nfetch \"z\" %8\nfetch \"w\" %9\n" },
    { SGLIR_OP_ATTENTION_GRAD, 1, "segments",
      QKV(3, 2, 4, 1)
          SEGMENTS IN(13, "xd", "f64", "2,3,2,3") "%11, %12 = attention(%0, %1, %2, %3, %8, %10) {scale=0.5}\n"
                                                  "%14, %15, %16 = attention_grad(%0, %1, %2, %11, %12, %13, %3, %8, "
                                                  "%10) {scale=0.5}\n"
                                                  "fetch \"y\" %14\nfetch \"z\" %15\nfetch \"w\" %16\n" },
    { SGLIR_OP_CROSS_ENTROPY, 2, "",
      IN(0, "x", "f64", "3,2,6") FEED(1, "i", "i32", "3,2") "%2 = cross_entropy(%0, %1)\nfetch \"y\" %2\n" },
    { SGLIR_OP_CROSS_ENTROPY, 2, "another ignored",
      IN(0, "x", "f64", "5,6") FEED(1, "j", "i32", "5") "%2 = cross_entropy(%0, %1) {ignore=2}\nfetch \"y\" %2\n" },
    { SGLIR_OP_LINEAR_CROSS_ENTROPY, 2, "",
      IN(0, "x", "f64", "3,2,4") IN(1, "xw", "f64", "6,4")
          FEED(2, "i", "i64", "3,2") "%3 = linear_cross_entropy(%0, %1, %2)\n"
                                     "fetch \"y\" %3\n" },
    { SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, 1, "",
      IN(0, "x", "f64", "3,2,4") IN(1, "xw", "f64", "6,4") FEED(2, "i", "i64", "3,2")
          IN(3, "xg", "f64", "3,2") "%4, %5, %6 = linear_cross_entropy_grad(%0, %1, %2, %3)\n"
                                    "fetch \"y\" %4\nfetch \"z\" %5\nfetch \"w\" %6\n" },
    /* control: carries, values from around, stacks, a branch taken and one that is not */
    { SGLIR_OP_SCAN, 2, "xs, carries and a stack",
      IN(0, "x", "f64", "3") IN(1, "xw", "f64", "3") IN(
          2, "xs", "f64",
          "4,3") "%3 = constant() {value=0, dtype=f64}\n"
                 "%4 = broadcast(%3) {dims=[4,3]}\n"
                 "%5, %6 = scan(%0, %4) {steps=4} {\nregion(%7: i64[], %8: f64[3], %9: f64[4,3]) {\n"
                 "%10 = dynamic_slice(%2, %7) {axis=0, size=1}\n%11 = reshape(%10) {dims=[3]}\n%12 = mul(%8, %1)\n"
                 "%13 = add(%12, %11)\n%14 = sin(%13)\n%15 = mul(%14, %11)\n%16 = reshape(%15) {dims=[1,3]}\n"
                 "%17 = dynamic_update(%9, %16, %7) {axis=0}\nyield %14, %17\n}\n}\nfetch \"y\" %5\nfetch \"z\" %6\n" },
    { SGLIR_OP_SCAN, 2, "from the last to the first, run again",
      IN(0, "x", "f64", "3")
          IN(2, "xs", "f64",
             "4,3") "%3 = scan(%0) {steps=4, recompute=1} {\n"
                    "region(%7: i64[], %8: f64[3]) {\n%9 = constant() {value=3, dtype=i64}\n%10 = sub(%9, %7)\n"
                    "%11 = dynamic_slice(%2, %10) {axis=0, size=1}\n%12 = reshape(%11) {dims=[3]}\n%13 = mul(%8, %12)\n"
                    "%14 = sin(%13)\nyield %14\n}\n}\nfetch \"y\" %3\n" },
    { SGLIR_OP_SCAN, 2, "no turn, and slices that meet",
      IN(0, "x", "f64", "3") IN(
          1, "xs", "f64",
          "4,3") "%2 = scan(%0) {steps=0} {\nregion(%3: i64[], %4: f64[3]) {\n"
                 "%5 = exp(%4)\nyield %5\n}\n}\n%6 = scan(%0) {steps=3} {\nregion(%7: i64[], %8: f64[3]) {\n"
                 "%9 = constant() {value=2, dtype=i64}\n%10 = remainder(%7, %9)\n%11 = dynamic_slice(%1, %10) {axis=0, size=2}\n"
                 "%12 = reduce_sum(%11) {axes=[0]}\n%13 = dynamic_slice(%1, %7) {axis=0, size=1}\n%14 = reshape(%13) {dims=[3]}\n"
                 "%15 = mul(%12, %14)\n%16 = mul(%15, %8)\n%17 = sin(%16)\nyield %17\n}\n}\n"
                 "fetch \"y\" %2\nfetch \"z\" %6\n" },
    { SGLIR_OP_SCAN, 2, "rows of a table, in a loop within a loop",
      IN(0, "x", "f64", "9,2") IN(
          1, "xh", "f64",
          "2,2") "%2 = scan(%1) {steps=3} {\nregion(%3: i64[], %4: f64[2,2]) {\n"
                 "%5 = scan(%4) {steps=2} {\nregion(%6: i64[], %7: f64[2,2]) {\n%8 = add(%3, %6)\n"
                 "%9 = broadcast(%8) {dims=[2]}\n%10 = iota() {axis=0, dims=[2], dtype=i64}\n%11 = add(%9, %10)\n"
                 "%12 = gather(%0, %11)\n%13 = mul(%12, %7)\n%14 = sin(%13)\n%15 = add(%14, %12)\nyield %15\n}\n}\n"
                 "yield %5\n}\n}\n%16 = sin(%0)\n%17 = reduce_sum(%16) {axes=[0,1]}\nfetch \"y\" %2\nfetch \"z\" %17\n" },
    { SGLIR_OP_COND, 2, "both ways",
      IN(0, "x", "f64", "3")
          IN(1, "xw", "f64",
             "3") "%2 = constant() {value=100, dtype=f64}\n"
                  "%3 = reduce_sum(%0) {axes=[0]}\n%4 = less(%3, %2)\n%5 = less(%2, %3)\n"
                  "%6 = cond(%4) {\nregion() {\n%7 = mul(%0, %1)\n%8 = sin(%7)\nyield %8\n}\nregion() {\n%9 = exp(%0)\n"
                  "yield %9\n}\n}\n%10 = cond(%5) {\nregion() {\n%11 = mul(%0, %1)\nyield %11\n}\nregion() {\n"
                  "%12 = cos(%1)\n%13 = mul(%12, %12)\nyield %13\n}\n}\nfetch \"y\" %6\nfetch \"z\" %10\n" },
    { SGLIR_OP_WHILE, 2, "ended by itself, and by its limit",
      IN(0, "x", "f64", "3")
          IN(1, "xw", "f64",
             "3") "%2 = constant() {value=3, dtype=i64}\n"
                  "%3 = while(%0) {limit=5} {\nregion(%4: i64[], %5: f64[3]) {\n%6 = less(%4, %2)\nyield %6\n}\n"
                  "region(%7: i64[], %8: f64[3]) {\n%9 = mul(%8, %1)\n%10 = sin(%9)\nyield %10\n}\n}\n"
                  "%11 = while(%1) {limit=2} {\nregion(%12: i64[], %13: f64[3]) {\n%14 = less(%12, %2)\nyield %14\n}\n"
                  "region(%15: i64[], %16: f64[3]) {\n%17 = mul(%16, %0)\n%18 = cos(%17)\nyield %18\n}\n}\n"
                  "fetch \"y\" %3\nfetch \"z\" %11\n" },
};
enum { VJP_CASES = sizeof vjp_cases / sizeof vjp_cases[0] };

#endif

/* precision_class.c -- how narrow each op may be: the policy of bf16 and fp16, one line an op.
 *
 * In: an op. Out: its class. Products are narrow, for they are what a step's time and a network's noise are made of; what
 * moves, adds or bends elements follows its arguments, so that the residual stream and what the backward pass keeps are
 * narrow; sums, exponentials, logarithms, quotients and losses are f32, as in Micikevicius et al., arXiv:1710.03740. Odd
 * invariant: each row of ops.def has a line here, or the table below does not compile. */
#include "passes/precision.h"

enum {
    AS_IT_IS = SGLPASS_AS_IT_IS,
    NARROW = SGLPASS_NARROW,
    FOLLOWS = SGLPASS_FOLLOWS,
    NORM = SGLPASS_NORM,
    WIDE = SGLPASS_WIDE,

    /* the border, generators, integers, what passes make */
    CLASS_INPUT = AS_IT_IS,
    CLASS_GRAD = AS_IT_IS,
    CLASS_SCALE = AS_IT_IS,
    CLASS_UNSCALE = AS_IT_IS,
    CLASS_UPDATE_NUMBER = AS_IT_IS,
    CLASS_CONSTANT = AS_IT_IS,
    CLASS_IOTA = AS_IT_IS,
    CLASS_SEGMENTS = AS_IT_IS,
    CLASS_RANDOM_UNIFORM = AS_IT_IS,
    CLASS_RANDOM_NORMAL = AS_IT_IS,
    CLASS_CAST = AS_IT_IS,
    CLASS_NOT = AS_IT_IS,
    CLASS_BIT_NOT = AS_IT_IS,
    CLASS_AND = AS_IT_IS,
    CLASS_OR = AS_IT_IS,
    CLASS_BIT_AND = AS_IT_IS,
    CLASS_BIT_OR = AS_IT_IS,
    CLASS_BIT_XOR = AS_IT_IS,
    CLASS_SHIFT_LEFT = AS_IT_IS,
    CLASS_SHIFT_RIGHT = AS_IT_IS,
    CLASS_FUSED = WIDE,
    CLASS_COPY = WIDE,
    CLASS_ACCUMULATE = WIDE,
    CLASS_AFTER = WIDE,
    CLASS_COORDINATE = WIDE, /* of what ranks exchange nothing stands in a graph yet */
    CLASS_SHARE = WIDE,
    CLASS_TERMS = WIDE,
    CLASS_DECLARE = WIDE,
    CLASS_ALL_REDUCE = WIDE,
    CLASS_ALL_MAX = WIDE,
    CLASS_REDUCE_SCATTER = WIDE,
    CLASS_ALL_GATHER = WIDE,
    CLASS_REDUCE_SCATTER_EACH = WIDE,
    CLASS_ALL_GATHER_EACH = WIDE,
    CLASS_SEND = WIDE,
    CLASS_RECEIVE = WIDE,
    CLASS_ALL_TO_ALL = WIDE,
    CLASS_ALL_TO_ALL_EACH = WIDE,
    CLASS_RING_SHIFT = WIDE,
    CLASS_WAIT = WIDE,
    CLASS_OFFLOAD = WIDE,
    CLASS_PREFETCH = WIDE,
    CLASS_ARRIVED = WIDE,
    CLASS_SCAN = WIDE, /* of regions: what they take and give; what stands in them is of its own class */
    CLASS_COND = WIDE,
    CLASS_WHILE = WIDE,

    /* products */
    CLASS_DOT = NARROW,
    CLASS_MATMUL = NARROW,
    CLASS_LINEAR = NARROW,
    CLASS_CONV = NARROW,
    CLASS_CONV_INPUT_GRAD = NARROW,
    CLASS_CONV_WEIGHT_GRAD = NARROW,
    CLASS_ATTENTION = NARROW,
    CLASS_LINEAR_CROSS_ENTROPY = NARROW,
    CLASS_ATTENTION_GRAD =
        WIDE, /* these two as a script writes them; autodiff makes its own, as narrow as the products */
    CLASS_LINEAR_CROSS_ENTROPY_GRAD = WIDE,

    /* elementwise */
    CLASS_STOP_GRADIENT = FOLLOWS,
    CLASS_LAID_OUT = FOLLOWS,
    CLASS_NEG = FOLLOWS,
    CLASS_ABS = FOLLOWS,
    CLASS_SIGN = FOLLOWS,
    CLASS_FLOOR = FOLLOWS,
    CLASS_ROUND = FOLLOWS,
    CLASS_TANH = FOLLOWS,
    CLASS_SIGMOID = FOLLOWS,
    CLASS_SILU = FOLLOWS,
    CLASS_SILU_GRAD = FOLLOWS,
    CLASS_GELU = FOLLOWS,
    CLASS_GELU_GRAD = FOLLOWS,
    CLASS_CLAMP = FOLLOWS,
    CLASS_ADD = FOLLOWS,
    CLASS_SUB = FOLLOWS,
    CLASS_MUL = FOLLOWS,
    CLASS_DIV = FOLLOWS, /* by a constant; see sglpass_precision */
    CLASS_MAXIMUM = FOLLOWS,
    CLASS_MINIMUM = FOLLOWS,
    CLASS_SELECT = FOLLOWS,
    CLASS_EXP = WIDE,
    CLASS_EXPM1 = WIDE,
    CLASS_LOG = WIDE,
    CLASS_LOG1P = WIDE,
    CLASS_SQRT = WIDE,
    CLASS_RSQRT = WIDE,
    CLASS_RECIPROCAL = WIDE,
    CLASS_SIN = WIDE,
    CLASS_COS = WIDE,
    CLASS_ERF = WIDE,
    CLASS_POW = WIDE,
    CLASS_REMAINDER = WIDE,
    CLASS_IS_FINITE = WIDE,
    CLASS_EQUAL = WIDE,
    CLASS_NOT_EQUAL = WIDE,
    CLASS_LESS = WIDE,
    CLASS_LESS_EQUAL = WIDE,

    /* sums */
    CLASS_REDUCE_SUM = WIDE,
    CLASS_REDUCE_MAX = WIDE,
    CLASS_REDUCE_MIN = WIDE,
    CLASS_REDUCE_PROD = WIDE,
    CLASS_ARGMAX = WIDE,
    CLASS_ARGMIN = WIDE,
    CLASS_MEAN = WIDE,
    CLASS_LOGSUMEXP = WIDE,
    CLASS_RECURRENCE = WIDE,
    CLASS_CUMULATIVE_SUM = WIDE,
    CLASS_CUMULATIVE_PROD = WIDE,
    CLASS_ADD_ALONG = WIDE,
    CLASS_SCATTER_ADD = WIDE,
    CLASS_WINDOWS_ADD = WIDE,

    /* movement */
    CLASS_SORT = FOLLOWS,
    CLASS_TOP_K = FOLLOWS,
    CLASS_TAKE_ALONG = FOLLOWS,
    CLASS_RESHAPE = FOLLOWS,
    CLASS_BROADCAST = FOLLOWS,
    CLASS_TRANSPOSE = FOLLOWS,
    CLASS_FLIP = FOLLOWS,
    CLASS_SLICE = FOLLOWS,
    CLASS_PAD = FOLLOWS,
    CLASS_CONCAT = FOLLOWS,
    CLASS_PACK = FOLLOWS,
    CLASS_UNPACK = FOLLOWS,
    CLASS_WINDOWS = FOLLOWS,
    CLASS_GATHER = FOLLOWS,
    CLASS_DYNAMIC_SLICE = FOLLOWS,
    CLASS_DYNAMIC_UPDATE = FOLLOWS,
    CLASS_ROPE = FOLLOWS,

    /* rows, losses, what a user derives */
    CLASS_RMS_NORM = NORM,
    CLASS_LAYER_NORM = NORM,
    CLASS_SOFTMAX = WIDE,
    CLASS_CROSS_ENTROPY = WIDE,
    CLASS_CUSTOM_SEED = WIDE,
    CLASS_CUSTOM = WIDE
};

sglpass_width sglpass_width_of(sglir_op op)
{
    static const uint8_t classes[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, ...) [SGLIR_OP_##NAME] = CLASS_##NAME,
#include "ir/ops.def"
#undef SGLIR_OP
    };
    return (sglpass_width)classes[op];
}

/* test_ir_infer.c -- what every op makes of the types of its arguments: shapes and dtypes, what is owed, how it is split;
 * or with which words it refuses them.
 *
 * A case is one line: the op, types of arguments as they are printed ("f32[4,8]{micro:0,partial(tp),scaled}", apart by
 * blanks), attributes, and the types of the results, or the error that follows "op: ". */
#include "fault.h"

#include <stdio.h>

#include "ir/ir.h"

typedef struct type_case {
    const char *op, *args, *attrs, *expected;
} type_case;

/* ---- running a case ------------------------------------------------------------------------------------------- */

static void add(char *text, size_t size, const char *format, ...) SGL_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t used = strlen(text);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

static int axis_of(const char *name, size_t length)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (strlen(sglir_axis_name(axis)) == length && strncmp(sglir_axis_name(axis), name, length) == 0) return axis;
    }
    fail_msg("no axis %s", name);
    return 0;
}

/* One type as it is printed, made an input of the text form. Returns what follows it. */
static const char *add_input(char *text, size_t size, int number, const char *type)
{
    int layout[SGLIR_AXIS_COUNT], partial = 0, scaled = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) layout[axis] = -1;
    const char *open = strchr(type, '['), *close = strchr(type, ']'), *at = close + 1;
    while (*at == '{' || *at == ',') {
        at++;
        size_t length = strcspn(at, ":(,}");
        if (at[length] == ':')
            layout[axis_of(at, length)] = at[length + 1] - '0';
        else if (at[length] == '(')
            partial |= 1 << axis_of(at + length + 1, strcspn(at + length + 1, ")"));
        else
            scaled = 1;
        at += strcspn(at, ",}");
    }
    if (*at == '}') at++;
    add(text, size, "%%%d = input() {role=2, name=\"a%d\", dtype=%.*s, dims=%.*s, layout=[", number, number,
        (int)(open - type), type, (int)(close + 1 - open), open);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) add(text, size, "%s%d", axis > 0 ? "," : "", layout[axis]);
    add(text, size, "], partial=%d, scaled=%d}\n", partial, scaled);
    return at + strspn(at, " ");
}

/* How many results the line has: the row's number, or one more than there are ';' in what is expected. */
static int result_count(const type_case *c)
{
    int count = sglir_ops[sglir_op_find(c->op)].results;
    if (count >= 0) return count;
    count = 1;
    if (strcspn(c->expected, "[") > strcspn(c->expected, " ")) return count; /* an error */
    for (const char *at = strstr(c->expected, "; "); at != NULL; at = strstr(at + 2, "; ")) count++;
    return count;
}

/* The case as a graph; NULL when it is refused, and then the message stands in env. */
static sglir_graph *parse_case(const type_case *c, sglcore_env *env)
{
    static char text[8192];
    int count = 0, results = result_count(c);
    snprintf(text, sizeof text, "graph \"case\" {\n");
    for (const char *at = c->args; *at != '\0';) at = add_input(text, sizeof text, count++, at);
    for (int i = 0; i < results; i++) add(text, sizeof text, "%s%%%d", i > 0 ? ", " : "", count + i);
    add(text, sizeof text, " = %s(", c->op);
    for (int i = 0; i < count; i++) add(text, sizeof text, "%s%%%d", i > 0 ? ", " : "", i);
    add(text, sizeof text, ")%s%s%s\nfetch \"y\" %%%d\n}\n", c->attrs[0] != '\0' ? " {" : "", c->attrs,
        c->attrs[0] != '\0' ? "}" : "", count);
    sglir_graph *g = NULL;
    sglcore_env_init(env, NULL, NULL, NULL, NULL);
    sgl_status status = sglir_parse(env, "case", text, strlen(text), &g);
    assert_true((status == SGL_OK) == (g != NULL));
    return g;
}

static void run_case(const type_case *c)
{
    static char have[4096];
    sglcore_env env;
    sglir_graph *g = parse_case(c, &env);
    have[0] = '\0';
    if (g != NULL) {
        const sglir_node *node = sglir_maker(g, g->outputs.data[0].value);
        for (uint32_t i = 0; i < node->out_count; i++) {
            char type[512];
            sglir_type_text(sglir_type_of(g, node->out_first + i), type, sizeof type);
            add(have, sizeof have, "%s%s", i > 0 ? "; " : "", type);
        }
    } else { /* "case:3:6: op: what is wrong" */
        char before[64];
        snprintf(before, sizeof before, " %s: ", c->op);
        const char *what = strstr(env.message, before);
        add(have, sizeof have, "%s", what == NULL ? env.message : what + strlen(before));
    }
    if (strcmp(have, c->expected) != 0)
        fail_msg("%s(%s) {%s}\n  gives    %s\n  expected %s", c->op, c->args, c->attrs, have, c->expected);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- shapes and dtypes ---------------------------------------------------------------------------------------- */

#define DOT(batch_a, batch_b, contract_a, contract_b)                                                                  \
    "batch_a=[" batch_a "], batch_b=[" batch_b "], contract_a=[" contract_a "], contract_b=[" contract_b "]"
#define QKV "f32[2,5,6,8] f32[2,7,3,8] f32[2,7,3,4] "

static const type_case shapes[] = {
    /* generators */
    { "constant", "", "value=1.5, dtype=bf16", "bf16[]" },
    { "constant", "", "value=1.5, dtype=i32", "1.5 is no i32" },
    { "constant", "", "value=-1, dtype=u8", "-1 is no u8" },
    { "constant", "", "value=7, dtype=i4", "i4[]" },
    { "constant", "", "value=8, dtype=i4", "8 is no i4" },
    { "constant", "", "value=2, dtype=bool", "2 is no bool" },
    { "constant", "", "value=9223372036854775808, dtype=i64", "9.2233720368547758e+18 is no i64" },
    { "iota", "", "axis=1, dims=[2,256], dtype=u8", "u8[2,256]" },
    { "iota", "", "axis=1, dims=[2,257], dtype=u8", "257 elements along axis 1 are more than u8 counts" },
    { "iota", "", "axis=2, dims=[2,3], dtype=i32", "axis 2 is not among the axes 0..1" },
    { "iota", "", "axis=0, dims=[], dtype=i32", "axis 0 of a scalar" },
    { "iota", "", "axis=0, dims=[2,-3], dtype=i32", "dimension 1 has the extent -3" },
    { "iota", "", "axis=0, dims=[1,1,1,1,1,1,1,1,1], dtype=i32", "9 dimensions, at most 8 are possible" },
    { "iota", "", "axis=0, dims=[4], dtype=bool", "counts in numbers, not in bool" },
    { "segments", "", "counts=[2,0,3], values=[1,2,0.5], dtype=f32", "f32[5]" },
    { "segments", "", "counts=[2,3], values=[1], dtype=f32", "2 counts and 1 values" },
    { "segments", "", "counts=[-2], values=[1], dtype=f32", "count 0 is -2" },
    { "segments", "", "counts=[9223372036854775807,1], values=[1,1], dtype=f32",
      "the counts add up to more than 64 bits hold" },
    { "random_uniform", "i64[] i64[] i64[]", "id=3, dims=[2,3], dtype=f32", "f32[2,3]" },
    { "random_normal", "i64[] i64[1] i64[]", "id=3, dims=[2,3], dtype=f32",
      "argument 1 (step) is i64[1], i64[] is needed" },
    { "random_normal", "i64[] i64[] i64[]", "id=3, dims=[2,3], dtype=i32", "gives floats, not i32" },
    /* elementwise */
    { "neg", "i32[2,3]", "", "i32[2,3]" },
    { "neg", "bool[2]", "", "is not defined for bool; use and, or, not, or cast to a number" },
    { "exp", "i32[2]", "", "argument 0 is i32, a float is needed" },
    { "add", "f32[2,3] f32[2,3]", "", "f32[2,3]" },
    { "add", "f32[2,3] f64[2,3]", "", "argument 0 is f32, argument 1 is f64: cast one of them" },
    { "add", "f32[2,3] f32[3]", "", "argument 0 is [2,3], argument 1 is [3]: the shapes must be the same" },
    { "less", "u8[2] u8[2]", "", "bool[2]" },
    { "not", "bool[2]", "", "bool[2]" },
    { "and", "bool[2] i32[2]", "", "argument 1 is i32, bool is needed" },
    { "is_finite", "f32[2]", "", "bool[2]" },
    { "cast", "f32[2]", "to=i4", "i4[2]" },
    { "select", "bool[2] f32[2] f32[2]", "", "f32[2]" },
    { "select", "i32[2] f32[2] f32[2]", "", "the condition is i32, bool is needed" },
    { "select", "bool[] f32[2] f32[2]", "", "argument 0 is [], argument 1 is [2]: the shapes must be the same" },
    { "silu_grad", "f32[2] f32[3]", "", "argument 0 is [2], argument 1 is [3]: the shapes must be the same" },
    /* reductions */
    { "reduce_sum", "f32[2,3,4]", "axes=[0,2]", "f32[3]" },
    { "reduce_sum", "f32[2,3,4]", "axes=[0,2], keep=1", "f32[1,3,1]" },
    { "reduce_max", "i32[2,0]", "axes=[1]", "i32[2]" },
    { "reduce_sum", "f32[2,3,4]", "axes=[]", "f32[2,3,4]" },
    { "reduce_sum", "f32[2,3,4]", "axes=[1,1]", "the axes must ascend, 1 stands before 1" },
    { "reduce_sum", "f32[2,3,4]", "axes=[3]", "axis 3 is not among the axes 0..2" },
    { "reduce_sum", "f32[2,3,4]", "axes=[-1]", "axis -1 is not among the axes 0..2" },
    { "reduce_min", "bool[2]", "axes=[0]", "is not defined for bool; cast to a number first" },
    { "mean", "i32[2]", "axes=[0]", "argument 0 is i32, a float is needed" },
    /* movement */
    { "reshape", "f32[2,3,4]", "dims=[6,4]", "f32[6,4]" },
    { "reshape", "f32[2,0]", "dims=[0,7]", "f32[0,7]" },
    { "reshape", "f32[2,3]", "dims=[5]", "[2,3] has 6 elements, [5] has 5" },
    { "broadcast", "f32[3,1]", "dims=[2,3,4]", "f32[2,3,4]" },
    { "broadcast", "f32[3,2]", "dims=[3,4]",
      "[3,2] cannot become [3,4]: dimensions are aligned at the end and only extents of 1 repeat" },
    { "broadcast", "f32[3,2]", "dims=[2]",
      "[3,2] cannot become [2]: dimensions are aligned at the end and only extents of 1 repeat" },
    { "broadcast", "f32[1]", "dims=[4611686018427387904,4]",
      "a result of f32[4611686018427387904,4] has more bytes than 64 bits count" },
    { "transpose", "f32[2,3,4]", "order=[2,0,1]", "f32[4,2,3]" },
    { "transpose", "f32[2,3,4]", "order=[2,0,2]", "dimension 2 stands twice in the order" },
    { "transpose", "f32[2,3,4]", "order=[0,1]", "an order of 2 dimensions for [2,3,4]" },
    { "transpose", "f32[2,3,4]", "order=[0,1,3]", "axis 3 is not among the axes 0..2" },
    { "slice", "f32[2,9]", "axis=1, start=1, stop=8, step=3", "f32[2,3]" },
    { "slice", "f32[2,9]", "axis=1, start=3, stop=3", "f32[2,0]" },
    { "slice", "f32[2,9]", "axis=1, start=1, stop=10", "1:10 along axis 1 is not within [2,9]" },
    { "slice", "f32[2,9]", "axis=1, start=2, stop=1", "2:1 along axis 1 is not within [2,9]" },
    { "slice", "f32[2,9]", "axis=1, start=1, stop=2, step=0", "the step is 0, at least 1 is needed" },
    { "pad", "f32[2,3]", "axis=1, before=1, after=2, between=2", "f32[2,10]" },
    { "pad", "f32[2,0]", "axis=1, before=1, after=2, between=2", "f32[2,3]" },
    { "pad", "f32[2,3]", "axis=1, before=-1, after=2", "before -1, after 2, between 0: none may be negative" },
    { "pad", "f32[2]", "axis=0, before=9223372036854775807, after=2", "an extent does not fit 64 bits" },
    { "pad", "i32[2]", "axis=0, before=1, after=2, value=0.5", "the value 0.5 is no i32" },
    { "concat", "f32[2,3] f32[2,0] f32[2,4]", "axis=1", "f32[2,7]" },
    { "concat", "f32[2,3] f32[3,3]", "axis=1",
      "argument 0 is [2,3], argument 1 is [3,3]: they may differ along axis 1 only" },
    { "concat", "f32[2,3] f32[2]", "axis=1",
      "argument 0 is [2,3], argument 1 is [2]: they may differ along axis 1 only" },
    { "pack", "f32[2,3] f32[] f32[4]", "", "f32[11]" },
    { "pack", "f32[2,3] f64[]", "", "argument 0 is f32, argument 1 is f64: cast one of them" },
    { "unpack", "f32[11]", "ranks=[2,0,1], dims=[2,3,4]", "f32[2,3]; f32[]; f32[4]" },
    { "unpack", "f32[11]", "ranks=[2], dims=[2,3]", "the results have 6 elements, the argument 11" },
    { "unpack", "f32[6]", "ranks=[3], dims=[2,3]", "result 0 has 3 dimensions, 2 are left in dims" },
    { "unpack", "f32[6]", "ranks=[1], dims=[6,1]", "1 entries of dims belong to no result" },
    { "unpack", "f32[6,1]", "ranks=[1], dims=[6]", "argument 0 is [6,1], [n] is needed" },
    /* by index */
    { "gather", "f32[9,4] i32[2,3]", "", "f32[2,3,4]" },
    { "gather", "f32[9] u8[]", "", "f32[]" },
    { "gather", "f32[9,4] f32[2]", "", "argument 1 is f32, an integer is needed" },
    { "gather", "f32[] i32[2]", "", "the table is a scalar, [v, ...] is needed" },
    { "gather", "f32[9,1,1,1,1] i32[1,1,1,1,1]", "", "the result would have 9 dimensions, at most 8 are possible" },
    { "scatter_add", "i32[2,3] f32[2,3,4]", "extent=9", "f32[9,4]" },
    { "scatter_add", "i32[2,3] f32[2,4]", "extent=9",
      "updates [2,4] do not begin with the dimensions of the indices [2,3]" },
    { "scatter_add", "i32[2,3] f32[2,3]", "extent=-1", "the extent is -1" },
    { "dynamic_slice", "f32[2,9] i64[]", "axis=1, size=4", "f32[2,4]" },
    { "dynamic_slice", "f32[2,9] i64[]", "axis=1, size=10", "10 elements along axis 1 of [2,9]" },
    { "dynamic_slice", "f32[2,9] i32[]", "axis=1, size=1", "argument 1 (start) is i32[], i64[] is needed" },
    { "dynamic_update", "f32[2,9] f32[2,4] i64[]", "axis=1", "f32[2,9]" },
    { "dynamic_update", "f32[2,9] f32[1,4] i64[]", "axis=1", "an update [1,4] does not fit into [2,9] along axis 1" },
    /* products */
    { "dot", "f32[2,3,4] f32[2,5,4]", DOT("0", "0", "2", "2"), "f32[2,3,5]" },
    { "dot", "f32[3,2,4] f32[4,5,2]", DOT("1", "2", "2", "0"), "f32[2,3,5]" },
    { "dot", "f32[2,3] f32[4]", DOT("", "", "", ""), "f32[2,3,4]" },
    { "dot", "f32[2,3] f32[3,2]", DOT("", "", "1,0", "0,1"), "f32[]" },
    { "dot", "f32[2,3] f32[4,5]", DOT("", "", "1", "0"),
      "dimension 1 of [2,3] and dimension 0 of [4,5] differ, contract_a and contract_b pair them" },
    { "dot", "f32[2,3] f32[3,5]", DOT("", "", "1,1", "0,1"), "contract_a names dimension 1 a second time" },
    { "dot", "f32[2,3] f32[3,5]", DOT("1", "0", "1", "0"), "contract_a names dimension 1 a second time" },
    { "dot", "f32[2,3] f32[3,5]", DOT("", "", "2", "0"), "contract_a names dimension 2 of an argument of 2" },
    { "dot", "f32[2,3] f32[3,5]", DOT("", "", "1", ""), "contract_a names 1 dimensions, contract_b 0" },
    { "dot", "i32[2,3] i32[3,5]", DOT("", "", "1", "0"), "argument 0 is i32, a float is needed" },
    { "dot", "f32[1,1,1,1,1] f32[1,1,1,1,1]", DOT("", "", "", ""), "the result would have more than 8 dimensions" },
    { "matmul", "f32[5,1,2,3] f32[4,3,6]", "", "f32[5,4,2,6]" },
    { "matmul", "f32[3] f32[4,3,6]", "", "f32[4,6]" },
    { "matmul", "f32[4,2,3] f32[3]", "", "f32[4,2]" },
    { "matmul", "f32[3] f32[3]", "", "f32[]" },
    { "matmul", "f32[32,512] f32[768,64]", "", "inner dimensions differ: [32,512] x [768,64]" },
    { "matmul", "f32[2,3,4] f32[3,4,5]", "", "leading dimensions do not broadcast: [2,3,4] x [3,4,5]" },
    { "matmul", "f32[] f32[3]", "", "a scalar is no matrix: [] x [3]; use mul" },
    { "linear", "f32[5,2,3] f32[4,3] f32[4]", "", "f32[5,2,4]" },
    { "linear", "f32[3] f32[4,3]", "", "f32[4]" },
    { "linear", "f32[2,4] f32[4,3]", "", "x [2,4] does not end in the weight's second extent, [4,3]" },
    { "linear", "f32[2,3] f32[4,3] f32[3]", "", "a bias [3] for a weight [4,3]" },
    /* composites */
    { "softmax", "f32[2,3]", "", "f32[2,3]" },
    { "softmax", "f32[]", "", "a scalar has no last dimension" },
    { "rms_norm", "bf16[2,3] bf16[3]", "", "bf16[2,3]" },
    { "rms_norm", "f32[2,3] f32[2]", "", "argument 1 is [2], the last dimension of [2,3] is needed" },
    { "layer_norm", "f32[2,3] f32[3] f32[3]", "eps=-1", "eps is -1, a finite number from 0 is needed" },
    { "rope", "f32[2,5,3,4] i64[]", "", "f32[2,5,3,4]" },
    { "rope", "f32[2,5,3,3] i64[]", "", "the last dimension of [2,5,3,3] is odd: it is turned in pairs" },
    { "rope", "f32[2,5,4] i64[]", "", "argument 0 is [2,5,4], [b, t, h, d] is needed" },
    { "attention", QKV "i64[]", "scale=0.5", "f32[2,5,6,4]; f32[2,6,5]" },
    { "attention", "bf16[2,5,6,8] bf16[2,7,3,8] bf16[2,7,3,4] i64[]", "scale=0.5", "bf16[2,5,6,4]; f32[2,6,5]" },
    { "attention", "f32[2,5,6,8] f32[2,7,4,8] f32[2,7,4,4] i64[]", "scale=0.5",
      "6 query heads are no multiple of 4 key heads" },
    { "attention", "f32[2,5,6,8] f32[2,7,3,8] f32[2,8,3,4] i64[]", "scale=0.5",
      "q [2,5,6,8], k [2,7,3,8] and v [2,8,3,4] do not fit [b, t, h, d], [b, s, g, d] and [b, s, g, e]" },
    { "attention", QKV "i64[]", "scale=0.5, causal=0, window=3",
      "a window counts back from the query's own place, so it needs causal" },
    { "attention_grad", QKV "f32[2,5,6,4] f32[2,6,5] f32[2,5,6,4] i64[]", "scale=0.5",
      "f32[2,5,6,8]; f32[2,7,3,8]; f32[2,7,3,4]" },
    { "attention_grad", QKV "f32[2,5,6,4] f32[2,5,6] f32[2,5,6,4] i64[]", "scale=0.5",
      "argument 4 (lse) is f32[2,5,6], f32[2,6,5] is needed" },
    { "cross_entropy", "bf16[2,3,9] u16[2,3]", "", "f32[2,3]" },
    { "cross_entropy", "f64[9] i64[]", "", "f64[]" },
    { "cross_entropy", "f32[2,9] i32[3]", "", "targets [3] are not the leading dimensions of [2,9]" },
    { "linear_cross_entropy", "f32[2,3,4] f32[9,4] i32[2,3]", "", "f32[2,3]" },
    { "linear_cross_entropy", "f32[2,3,4] f32[9,5] i32[2,3]", "",
      "inner dimensions differ: x [2,3,4] and weight [9,5]" },
    { "linear_cross_entropy_grad", "f32[2,3,4] f32[9,4] i32[2,3] f32[2,3]", "", "f32[2,3]; f32[2,3,4]; f32[9,4]" },
    { "linear_cross_entropy_grad", "f32[2,3,4] f32[9,4] i32[2,3] f32[2]", "",
      "argument 3 (dlosses) is f32[2], f32[2,3] is needed" },
    /* grad */
    { "grad", "f32[] f32[2,3] f64[]", "", "f32[2,3]; f64[]" },
    { "grad", "f32[1] f32[2,3]", "", "of f32[1]: what is derived must be a float scalar; sum it first" },
    { "grad", "f32[] i32[2,3]", "", "argument 1 is i32, a float is needed" },
    { "copy", "f32[2]", "", "f32[2]" },
};

/* ---- what is owed --------------------------------------------------------------------------------------------- */

static const type_case owed[] = {
    { "neg", "f32[2]{partial(micro)}", "", "f32[2]{partial(micro)}" },
    { "neg", "f32[2]{scaled}", "", "f32[2]{scaled}" },
    { "abs", "f32[2]{partial(micro)}", "",
      "argument 0 still owes a sum over micro; abs is not linear in it, so that must be settled before" },
    { "exp", "f32[2]{partial(dp),partial(tp),scaled}", "",
      "argument 0 still owes a sum over dp, tp and a loss scale; exp is not linear in it, so that must be settled before" },
    { "exp", "f32[2]{scaled}", "",
      "argument 0 still owes a loss scale; exp is not linear in it, so that must be settled before" },
    { "add", "f32[2]{partial(tp)} f32[2]{partial(tp)}", "", "f32[2]{partial(tp)}" },
    { "add", "f32[2]{partial(tp)} f32[2]", "",
      "argument 0 still owes a sum over tp; argument 1 owes nothing: they must owe the same" },
    { "sub", "f32[2] f32[2]{partial(tp)}", "",
      "argument 1 still owes a sum over tp; argument 0 owes nothing: they must owe the same" },
    { "add", "f32[2]{partial(tp)} f32[2]{partial(tp),scaled}", "",
      "argument 0 still owes a sum over tp; argument 1 owes a sum over tp and a loss scale: they must owe the same" },
    { "mul", "f32[2] f32[2]{partial(micro),scaled}", "", "f32[2]{partial(micro),scaled}" },
    { "mul", "f32[2]{partial(micro)} f32[2]{partial(micro)}", "",
      "argument 0 still owes a sum over micro; argument 1 owes a sum over micro: a product of two sums is not the sum of "
      "products" },
    { "div", "f32[2]{scaled} f32[2]", "", "f32[2]{scaled}" },
    { "div", "f32[2] f32[2]{partial(micro)}", "",
      "argument 1 still owes a sum over micro; div is not linear in it, so that must be settled before" },
    { "select", "bool[2] f32[2]{partial(dp)} f32[2]{partial(dp)}", "", "f32[2]{partial(dp)}" },
    { "select", "bool[2]{partial(dp)} f32[2]{partial(dp)} f32[2]{partial(dp)}", "",
      "argument 0 still owes a sum over dp; select is not linear in it, so that must be settled before" },
    { "cast", "f32[2]{partial(dp)}", "to=bf16", "bf16[2]{partial(dp)}" },
    { "cast", "f32[2]{partial(dp)}", "to=i32",
      "argument 0 still owes a sum over dp; cast is not linear in it, so that must be settled before" },
    { "pad", "f32[2]{partial(dp)}", "axis=0, before=1, after=0", "f32[3]{partial(dp)}" },
    { "pad", "f32[2]{partial(dp)}", "axis=0, before=1, after=0, value=1",
      "argument 0 still owes a sum over dp; pad is not linear in it, so that must be settled before" },
    { "reduce_sum", "f32[2]{partial(dp)}", "axes=[0]", "f32[]{partial(dp)}" },
    { "reduce_max", "f32[2]{partial(dp)}", "axes=[0]",
      "argument 0 still owes a sum over dp; reduce_max is not linear in it, so that must be settled before" },
    { "pack", "f32[2]{partial(dp)} f32[3]{partial(dp)}", "", "f32[5]{partial(dp)}" },
    { "pack", "f32[2]{partial(dp)} f32[3]", "",
      "argument 0 still owes a sum over dp; argument 1 owes nothing: they must owe the same" },
    { "unpack", "f32[5]{partial(dp),scaled}", "ranks=[1,1], dims=[2,3]",
      "f32[2]{partial(dp),scaled}; f32[3]{partial(dp),scaled}" },
    { "dot", "f32[2,3]{partial(micro)} f32[3,4]", DOT("", "", "1", "0"), "f32[2,4]{partial(micro)}" },
    { "linear", "f32[2,3]{partial(tp)} f32[4,3]", "", "f32[2,4]{partial(tp)}" },
    { "linear", "f32[2,3]{partial(tp)} f32[4,3] f32[4]", "",
      "argument 0 still owes a sum over tp; argument 2 owes nothing: they must owe the same" },
    { "linear", "f32[2,3] f32[4,3]{partial(tp)} f32[4]{partial(tp)}", "", "f32[2,4]{partial(tp)}" },
    { "softmax", "f32[2]{scaled}", "",
      "argument 0 still owes a loss scale; softmax is not linear in it, so that must be settled before" },
    { "grad", "f32[]{partial(micro)} f32[2]", "",
      "argument 0 still owes a sum over micro; grad is not linear in it, so that must be settled before" },
    { "accumulate", "f32[2] f32[2]{partial(micro)}", "", "f32[2]" },
    { "accumulate", "f32[2]{partial(dp),scaled} f32[2]{partial(dp),partial(micro),scaled}", "",
      "f32[2]{partial(dp),scaled}" },
    { "accumulate", "f32[2] f32[2]", "",
      "argument 1 is f32[2] and owes no sum over micro: it would be added once per micro-batch; add it once, outside" },
    { "accumulate", "f32[2] f32[2]{partial(micro),scaled}", "",
      "argument 0 is f32[2], argument 1 is f32[2]{partial(micro),scaled}: but for the sum over micro they must owe the "
      "same" },
};

/* ---- how it is split ------------------------------------------------------------------------------------------ */

static const type_case split[] = {
    { "exp", "f32[2,3]{micro:0,tp:1}", "", "f32[2,3]{tp:1,micro:0}" },
    { "add", "f32[2,3]{micro:0} f32[2,3]", "", "f32[2,3]{micro:0}" },
    { "add", "f32[2,3]{micro:0} f32[2,3]{micro:1}", "",
      "arguments 0 and 1 are split over micro along dimensions that do not run together" },
    { "mul", "f32[2]{micro:0} f32[2]{partial(micro)}", "",
      "argument 1 still owes a sum over micro, argument 0 is split over it: the sum must be taken before" },
    { "mul", "f32[2]{dp:0} f32[2]{partial(micro)}", "", "f32[2]{dp:0,partial(micro)}" },
    { "reduce_sum", "f32[2,3]{micro:0}", "axes=[0]", "f32[3]{partial(micro)}" },
    { "reduce_sum", "f32[2,3]{micro:0}", "axes=[0], keep=1", "f32[1,3]{partial(micro)}" },
    { "reduce_sum", "f32[2,3]{micro:1}", "axes=[0]", "f32[3]{micro:0}" },
    { "reduce_max", "f32[2,3]{micro:0}", "axes=[0]",
      "argument 0 is split over micro along dimension 0, where the op needs it whole" },
    { "mean", "f32[2,3]{micro:0}", "axes=[0]",
      "argument 0 is split over micro along dimension 0, where the op needs it whole" },
    { "transpose", "f32[2,3]{tp:0}", "order=[1,0]", "f32[3,2]{tp:1}" },
    { "reshape", "f32[2,3,4]{micro:0}", "dims=[6,4]", "f32[6,4]{micro:0}" },
    { "reshape", "f32[2,3,4]{cp:1}", "dims=[6,4]",
      "argument 0 is split over cp along dimension 1, where the op needs it whole" },
    { "reshape", "f32[6,4]{micro:0}", "dims=[2,3,4]", "f32[2,3,4]{micro:0}" },
    { "reshape", "f32[2,12]{tp:1}", "dims=[2,3,4]", "f32[2,3,4]{tp:1}" },
    { "reshape", "f32[2,3,4]{tp:1}", "dims=[2,12]", "f32[2,12]{tp:1}" },
    { "reshape", "f32[1,5,4]{micro:0}", "dims=[5,4]", "f32[5,4]{micro:0}" }, /* a local extent of 1 that is a part */
    { "reshape", "f32[1,5]{micro:0}", "dims=[1,5,1]", "f32[1,5,1]{micro:0}" },
    { "reshape", "f32[5,4]{micro:0}", "dims=[1,5,4]", "f32[1,5,4]{micro:1}" },
    { "reshape", "f32[5,4]{micro:0}", "dims=[1,5,4], layout=[-1,-1,-1,-1,-1,-1,0]", "f32[1,5,4]{micro:0}" },
    { "reshape", "f32[5,4]", "dims=[1,5,4], layout=[-1,-1,-1,-1,-1,-1,0]",
      "layout splits dimension 0 over micro, but that follows from the arguments" },
    { "broadcast", "f32[2,1]{micro:0}", "dims=[3,2,4]", "f32[3,2,4]{micro:1}" },
    { "broadcast", "f32[4]", "dims=[2,4], layout=[-1,-1,-1,-1,-1,-1,0]", "f32[2,4]{micro:0}" },
    { "broadcast", "f32[4]{tp:0}", "dims=[2,4], layout=[-1,-1,-1,-1,-1,-1,0]", "f32[2,4]{tp:1,micro:0}" },
    { "broadcast", "f32[4]", "dims=[2,4], layout=[-1,-1,-1,-1,-1,-1,1]",
      "layout splits dimension 1 over micro, but that follows from the arguments" },
    { "broadcast", "f32[]{partial(micro)}", "dims=[2], layout=[-1,-1,-1,-1,-1,-1,0]",
      "layout splits over micro what still owes a sum over it" },
    { "broadcast", "f32[]", "dims=[2], layout=[0]", "layout has 1 entries, one for each of the 7 axes is needed" },
    { "broadcast", "f32[]", "dims=[2], layout=[1,-1,-1,-1,-1,-1,-1]", "layout splits dimension 1 of 1" },
    { "iota", "", "axis=0, dims=[2,4], dtype=i32, layout=[-1,-1,-1,-1,-1,-1,1]", "i32[2,4]{micro:1}" },
    { "random_uniform", "i64[] i64[] i64[]", "id=0, dims=[4], dtype=f32, layout=[0,-1,-1,-1,-1,-1,-1]",
      "f32[4]{dp:0}" },
    { "dynamic_slice", "f32[8,3] i64[]", "axis=0, size=2, layout=[-1,-1,-1,-1,-1,-1,0]", "f32[2,3]{micro:0}" },
    { "dynamic_slice", "f32[8,3]{tp:1} i64[]", "axis=0, size=2", "f32[2,3]{tp:1}" },
    { "dynamic_slice", "f32[8,3]{tp:0} i64[]", "axis=0, size=2",
      "argument 0 is split over tp along dimension 0, where the op needs it whole" },
    { "dynamic_update", "f32[2,8]{tp:0} f32[2,1]{tp:0} i64[]", "axis=1", "f32[2,8]{tp:0}" },
    { "slice", "f32[2,8]{tp:0}", "axis=1, start=0, stop=3", "f32[2,3]{tp:0}" },
    { "pad", "f32[2,8]{tp:1}", "axis=1, before=0, after=3",
      "argument 0 is split over tp along dimension 1, where the op needs it whole" },
    { "concat", "f32[2,8]{tp:0} f32[2,1]{tp:0}", "axis=1", "f32[2,9]{tp:0}" },
    { "concat", "f32[2,8]{tp:0} f32[3,8]", "axis=0",
      "argument 0 is split over tp along dimension 0, where the op needs it whole" },
    { "pack", "f32[2]{tp:0} f32[2]", "", "argument 0 is split over tp; the op takes whole values: gather it first" },
    { "unpack", "f32[2]{tp:0}", "ranks=[1], dims=[2]",
      "argument 0 is split over tp; the op takes whole values: gather it first" },
    { "grad", "f32[] f32[2]{tp:0}", "", "argument 1 is split over tp; the op takes whole values: gather it first" },
    { "dot", "f32[2,3]{micro:0} f32[3,4]{tp:1}", DOT("", "", "1", "0"), "f32[2,4]{tp:1,micro:0}" },
    { "dot", "f32[2,3]{tp:1} f32[3,4]{tp:0}", DOT("", "", "1", "0"), "f32[2,4]{partial(tp)}" },
    { "dot", "f32[2,3]{tp:0} f32[3,4]{tp:1}", DOT("", "", "1", "0"),
      "arguments 0 and 1 are split over tp along dimensions that do not run together" },
    { "matmul", "f32[5,2,3]{micro:0} f32[3,4]{tp:0}", "", "f32[5,2,4]{micro:0,partial(tp)}" },
    { "matmul", "f32[3]{tp:0} f32[5,3,4]{micro:0}", "", "f32[5,4]{micro:0,partial(tp)}" },
    { "linear", "f32[5,3]{micro:0} f32[4,3]{tp:0} f32[4]{tp:0}", "", "f32[5,4]{tp:1,micro:0}" },
    { "linear", "f32[5,3]{tp:1} f32[4,3]{tp:1}", "", "f32[5,4]{partial(tp)}" },
    { "linear", "f32[5,3]{tp:1} f32[4,3]{tp:1} f32[4]", "",
      "argument 0 is split over tp along dimension 1, where the op needs it whole" },
    { "gather", "f32[9,4]{tp:1} i32[2]{micro:0}", "", "f32[2,4]{tp:1,micro:0}" },
    { "gather", "f32[9,4]{tp:0} i32[2]", "",
      "argument 0 is split over tp along dimension 0, where the op needs it whole" },
    { "scatter_add", "i32[2]{micro:0} f32[2,4]{micro:0}", "extent=9", "f32[9,4]{partial(micro)}" },
    { "softmax", "f32[2,3]{micro:0}", "", "f32[2,3]{micro:0}" },
    { "softmax", "f32[2,3]{tp:1}", "", "argument 0 is split over tp along dimension 1, where the op needs it whole" },
    { "rms_norm", "f32[2,3]{micro:0} f32[3]", "", "f32[2,3]{micro:0}" },
    { "rms_norm", "f32[2,3] f32[3]{tp:0}", "",
      "argument 1 is split over tp along dimension 0, where the op needs it whole" },
    { "rope", "f32[2,5,3,4]{micro:0,tp:2} i64[]", "", "f32[2,5,3,4]{tp:2,micro:0}" },
    { "attention", "f32[2,5,6,8]{micro:0,tp:2} f32[2,7,3,8]{micro:0,tp:2} f32[2,7,3,4]{micro:0,tp:2} i64[]", "scale=1",
      "f32[2,5,6,4]{tp:2,micro:0}; f32[2,6,5]{tp:1,micro:0}" },
    { "attention", "f32[2,5,6,8]{cp:1} f32[2,7,3,8] f32[2,7,3,4] i64[]", "scale=1",
      "argument 0 is split over cp along dimension 1, where the op needs it whole" },
    { "attention_grad",
      "f32[2,5,6,8]{tp:2} f32[2,7,3,8]{tp:2} f32[2,7,3,4]{tp:2} f32[2,5,6,4]{tp:2} f32[2,6,5]{tp:1} "
      "f32[2,5,6,4]{tp:2,partial(micro)} i64[]",
      "scale=1",
      "f32[2,5,6,8]{tp:2,partial(micro)}; f32[2,7,3,8]{tp:2,partial(micro)}; f32[2,7,3,4]{tp:2,partial(micro)}" },
    { "cross_entropy", "f32[2,9]{micro:0} i32[2]{micro:0}", "", "f32[2]{micro:0}" },
    { "linear_cross_entropy", "f32[2,4]{micro:0} f32[9,4] i32[2]{micro:0}", "", "f32[2]{micro:0}" },
    { "linear_cross_entropy", "f32[2,4] f32[9,4]{tp:0} i32[2]", "",
      "argument 1 is split over tp along dimension 0, where the op needs it whole" },
    { "linear_cross_entropy_grad", "f32[2,4]{micro:0} f32[9,4] i32[2]{micro:0} f32[2]{micro:0}", "",
      "f32[2]{micro:0}; f32[2,4]{micro:0}; f32[9,4]{partial(micro)}" },
};

#define RUN(table)                                                                                                     \
    static void test_##table(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) run_case(&table[i]);                               \
    }
RUN(shapes)
RUN(owed)
RUN(split)

/* ---- what is no table ----------------------------------------------------------------------------------------- */

/* A zero owes whatever its partner does. */
static void test_zero_joins_a_partial_sum(void **state)
{
    (void)state;
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglir_graph_new(&env, "case", &g), SGL_OK);
    const int64_t dims[] = { 4 };
    sglir_type type = sglir_type_make(SGL_F32, 1, dims), mask = sglir_type_make(SGL_BOOL, 1, dims);
    type.partial = 1 << SGLIR_AXIS_MICRO;
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type), m = sglir_input(g, SGL_FEED, "m", &mask);
    sglir_id masked = sglir_select(g, m, x, sglir_constant(g, SGL_F32, 0));
    assert_int_equal(sglir_status(g), SGL_OK);
    assert_true(sglir_type_equal(sglir_type_of(g, masked), &type));
    sglir_select(g, m, x, sglir_constant(g, SGL_F32, 1));
    assert_int_equal(sglir_status(g), SGL_TYPE);
    assert_string_equal(env.message,
                        "select: argument 1 still owes a sum over micro; argument 2 owes nothing: they must "
                        "owe the same");
    sglir_graph_free(g);
}

/* What is broadcast beside a split value is split like it, so that a sum over it is owed. */
static void test_broadcast_beside_a_split_value(void **state)
{
    (void)state;
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglir_graph_new(&env, "case", &g), SGL_OK);
    const int64_t dims[] = { 2, 4 };
    sglir_type type = sglir_type_make(SGL_F32, 2, dims);
    type.sharded[SGLIR_AXIS_MICRO] = 0;
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type);
    const int64_t axes[] = { 0, 1 };
    sglir_id count = sglir_reduce(g, SGLIR_OP_REDUCE_SUM, sglir_constant_like(g, x, 1), axes, 2, false);
    assert_int_equal(sglir_status(g), SGL_OK);
    assert_int_equal(sglir_type_of(g, count)->partial, 1 << SGLIR_AXIS_MICRO);
    sglir_id half = sglir_arg(g, sglir_maker(g, sglir_scale(g, x, 0.5)), 1);
    assert_true(sglir_type_equal(sglir_type_of(g, half), &type));
    sglir_graph_free(g);
}

/* A label is a small number, and stands only where there is a dimension. */
static void check_labels(const sglir_labels *labels, const int8_t row[SGL_MAX_RANK], int rank)
{
    for (int d = 0; d < SGL_MAX_RANK; d++) {
        assert_true(row[d] >= -1 && row[d] < labels->count);
        if (d >= rank) assert_int_equal(row[d], -1);
    }
}

static void test_labels_are_in_range(void **state)
{
    (void)state;
    int labelled = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        sglcore_env env;
        sglir_labels labels;
        sglir_graph *g = parse_case(&shapes[i], &env);
        if (g == NULL) continue;
        const sglir_node *node = sglir_maker(g, g->outputs.data[0].value);
        if (sglir_labels_of(g, node, &labels)) {
            labelled++;
            assert_in_range(labels.count, 0, 31);
            assert_int_equal((labels.summed | labels.refused) >> labels.count, 0);
            assert_int_equal(labels.summed & labels.refused, 0);
            for (uint32_t a = 0; a < node->arg_count; a++)
                check_labels(&labels, labels.args[a], sglir_type_of(g, sglir_arg(g, node, a))->rank);
            for (uint32_t r = 0; r < node->out_count; r++)
                check_labels(&labels, labels.results[r], sglir_type_of(g, node->out_first + r)->rank);
        }
        sglir_graph_free(g);
    }
    assert_true(labelled > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_owed),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_zero_joins_a_partial_sum),
        cmocka_unit_test(test_broadcast_beside_a_split_value),
        cmocka_unit_test(test_labels_are_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

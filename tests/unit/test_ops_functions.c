/* test_ops_functions.c -- the ops as Lua sees them: functions that are formulas over the graph's ops, einsum, windows.
 *
 * A case is a Lua expression over inputs; its trace is derived where it asks for gradients, and run by the reference
 * interpreter, and must give numbers worked out by hand or with NumPy. Beside them: errors, with the words a script sees. */
#include "dsl_host.h"

#include <math.h>

#include "passes/pass.h"
#include "session/session.h"
#include "tests/reference/interp.h"

typedef struct function_case {
    const char *inputs;     /* "x f64[2,3]=1,2,3,4,5,6 n i32[1]=4" */
    const char *expression; /* of Lua, over the inputs, s = require "sgl" and grad(y, x): of the sum of y */
    const char *wanted;     /* "f64[2]: 1,nan" */
} function_case;

#define SIX "x f64[2,3]=1,2,3,4,5,6"

static const function_case cases[] = {
    /* elementwise */
    { "x f64[3]=1.5,-1.5,2", "s.ceil(x)", "f64[3]: 2,-1,2" },
    { "x f64[2]=1,0", "s.tan(x)", "f64[2]: 1.5574077246549023,0" },
    { "x f64[2]=8,0.5", "s.log2(x)", "f64[2]: 3,-1" },
    { "x f64[2]=3,-1", "s.exp2(x)", "f64[2]: 8,0.5" },
    { "x f64[2]=1000,0.1", "x:log10()", "f64[2]: 3,-1" },
    { "x f64[2]=3,nan", "x:is_nan()", "bool[2]: 0,1" },
    { "b bool[4]=0,0,1,1 c bool[4]=0,1,0,1", "b:logical_xor(c)", "bool[4]: 0,1,1,0" },
    { "x f64[3]=3,-2,nan", "s.where(s.less(x, 0), -1, x)", "f64[3]: 3,-1,nan" },
    { "x f64[4]=-3,0.5,3,nan", "x:clamp(-1, 1)", "f64[4]: -1,0.5,1,nan" },
    { "x f64[3]=-3,0.5,3 y f64[]=1", "x:clamp(nil, y)", "f64[3]: -3,0.5,1" },
    { "x i32[3]=-3,0,3", "x:clamp(-1)", "i32[3]: -1,0,3" },
    { "x u8[2]=129,3", "s.bit_xor(x, 1):shift_right(1)", "u8[2]: 64,1" },
    { "x f64[2]=2.5,-0.4", "x:round()", "f64[2]: 2,-0" },
    /* activations: what they are, and what their slopes are at the kinks */
    { "x f64[4]=-2,0,3,nan", "x:relu()", "f64[4]: 0,0,3,nan" },
    { "x f64[3]=-2,0,3", "grad(x:relu(), x)", "f64[3]: 0,0,1" },
    { "x f64[3]=-2,0,3", "x:leaky_relu(0.5)", "f64[3]: -1,0,3" },
    { "x f64[3]=-2,0,3", "grad(x:leaky_relu(0.5), x)", "f64[3]: 0.5,0.5,1" },
    { "x f64[3]=-1,0,900", "x:elu(2)", "f64[3]: -1.2642411176571153,0,900" },
    { "x f64[3]=-1,0,900", "grad(x:elu(2), x)", "f64[3]: 0.7357588823428847,2,1" },
    { "x f64[3]=-800,0,800", "x:softplus()", "f64[3]: 0,0.6931471805599453,800" },
    { "x f64[5]=-4,-1,0,1,4", "x:hardtanh()", "f64[5]: -1,-1,0,1,1" },
    { "x f64[5]=-4,-1,0,1,4", "grad(x:hardtanh(), x)", "f64[5]: 0,0,1,0,0" },
    { "x f64[4]=-3,0,1,2", "grad(x:hardtanh(-2, 2), x)", "f64[4]: 0,1,1,0" },
    { "x f64[4]=-3,0,3,9", "x:hardsigmoid()", "f64[4]: 0,0.5,1,1" },
    { "x f64[4]=-3,-9,3,9", "grad(x:hardsigmoid(), x)", "f64[4]: 0,0,0,0" },
    { "x f64[5]=-inf,-3,0,3,9", "x:hardswish()", "f64[5]: 0,0,0,3,9" },
    { "x f64[6]=-inf,-3,0,3,9,inf", "grad(x:hardswish(), x)", "f64[6]: 0,0,0.5,1,1,1" },
    { "x f64[3]=-800,0,800", "grad(x:softplus(), x)", "f64[3]: 0,0.5,1" },
    { "x f64[2]=-800,0", "x:log_sigmoid()", "f64[2]: -800,-0.6931471805599453" },
    { "x f64[2]=1,-30", "x:mish()", "f64[2]: 0.8650983882673103,-2.8072868906528395e-12" },
    { "x f64[3]=-4,0.5,2", "x:hardtanh()", "f64[3]: -1,0.5,1" },
    { "x f64[3]=-4,0,4", "x:hardsigmoid()", "f64[3]: 0,0.5,1" },
    { "x f64[3]=-4,1,4", "x:hardswish()", "f64[3]: 0,0.6666666666666666,4" },
    { "x f64[2,2]=0,0,1000,0", "x:log_softmax()", "f64[2,2]: -0.6931471805599453,-0.6931471805599453,0,-1000" },
    { "x f32[3]=30000,30000.25,29999", /* floats of that size are 2e-3 apart */
      "(x:log_softmax() * 1e4):round()", "f32[3]: -9753,-7253,-19753" },
    { "x f64[2,2]=0,1000,0,0", "x:softmax(0)", "f64[2,2]: 0.5,1,0.5,0" },
    { "x f64[1,2,2]=0,1000,0,0", "x:softmax(-2)", "f64[1,2,2]: 0.5,1,0.5,0" },
    { "x f64[2,2]=0,1000,0,0", "x:log_softmax(0)", "f64[2,2]: -0.6931471805599453,0,-0.6931471805599453,-1000" },
    { "x f64[2,2]=0,0,0,0", "grad(x:softmax(0) * s.iota({ 2, 1 }), x)", "f64[2,2]: -0.25,-0.25,0.25,0.25" },
    { "x bf16[2]=0,0", "x:log_softmax()", "bf16[2]: -0.6931471805599453,-0.6931471805599453" },
    /* reductions */
    { "b bool[2,2]=1,1,0,1", "b:sum(0)", "i64[2]: 1,2" },
    { "b bool[2,2]=1,1,0,1", "b:prod()", "i64[]: 0" },
    { SIX, "x:prod(-1)", "f64[2]: 6,120" },
    { "x f64[2,2]=0,2,3,0", "grad(x:prod(), x)", "f64[2,2]: 0,0,0,0" },
    { "x f64[3]=0,2,3", "grad(x:prod(), x)", "f64[3]: 6,0,0" },
    { "x f64[2,2]=0,0,0,2", "x:any(1)", "bool[2]: 0,1" },
    { "x f64[2,2]=1,nan,0,2", "x:all(1)", "bool[2]: 1,0" },
    { "n i32[4]=1,2,3,5", "n:mean()", "f32[]: 2.75" },
    { "x f64[2,2]=-inf,-inf,0,0", "x:logsumexp(-1)", "f64[2]: -inf,0.6931471805599453" },
    { "x f64[2,2]=-inf,-inf,0,0", "grad(x:logsumexp(-1), x)", "f64[2,2]: 0,0,0.5,0.5" },
    { "x f64[2]=inf,1", "x:logsumexp()", "f64[]: inf" },
    { SIX, "x:var()", "f64[]: 3.5" },
    { SIX, "x:var(0, false, 0)", "f64[3]: 2.25,2.25,2.25" },
    { SIX, "x:std({ -1 }, true)", "f64[2,1]: 1,1" },
    { "x f64[1]=4", "x:var()", "f64[]: nan" },
    { SIX, "x:argmax()", "i64[]: 5" },
    { SIX, "(-x):argmin(0, true)", "i64[1,3]: 1,1,1" },
    /* along an axis */
    { SIX, "x:cumsum()", "f64[2,3]: 1,3,6,4,9,15" },
    { SIX, "x:cumsum(0, { exclusive = true, reverse = true })", "f64[2,3]: 4,5,6,0,0,0" },
    { SIX, "x:cumprod()", "f64[2,3]: 1,2,6,4,20,120" },
    { "x f64[4]=2,0,3,0", "grad(x:cumprod(), x)", "f64[4]: 1,8,0,0" },
    { "n i64[3]=2,3,4", "n:cumprod(0, { exclusive = true })", "i64[3]: 1,2,6" },
    { "x f64[3]=0.5,0.5,0.5 y f64[3]=1,1,1", "s.recurrence(x, y)", "f64[3]: 1,1.5,1.75" },
    { "x f64[3]=3,1,2", "select(2, x:sort())", "i64[3]: 1,2,0" },
    { "x f64[3]=3,1,2", "x:argsort(0, true)", "i64[3]: 0,2,1" },
    { "x f64[2,3]=3,1,2,5,9,7", "x:top_k(2)", "f64[2,2]: 3,2,9,7" },
    { "x f64[2,3]=3,1,2,5,9,7", "grad(x:top_k(2) * s.iota({ 2 }), x)", "f64[2,3]: 0,0,1,0,0,1" },
    { SIX " n i64[2,1]=2,0", "x:take_along(n)", "f64[2,1]: 3,4" },
    { SIX " n i64[2,3]=1,1,0,0,0,5", "s.add_along(n, x, 1, 2)", "f64[2,2]: 3,3,9,0" },
    /* shapes */
    { SIX, "x:flip(-1)", "f64[2,3]: 3,2,1,6,5,4" },
    { SIX, "x:flip({ 0, 1 })", "f64[2,3]: 6,5,4,3,2,1" },
    { SIX, "x:unsqueeze(1)", "f64[2,1,3]: 1,2,3,4,5,6" },
    { SIX, "x:unsqueeze(-1)", "f64[2,3,1]: 1,2,3,4,5,6" },
    { "x f64[1,2,1]=1,2", "x:squeeze()", "f64[2]: 1,2" },
    { "x f64[1,2,1]=1,2", "x:squeeze(-1)", "f64[1,2]: 1,2" },
    { "x f64[2,1,3]=1,2,3,4,5,6", "x:flatten(1)", "f64[2,3]: 1,2,3,4,5,6" },
    { "x f64[2,1,3]=1,2,3,4,5,6", "x:flatten()", "f64[6]: 1,2,3,4,5,6" },
    { "x f64[]=4", "x:flatten()", "f64[1]: 4" },
    { "x f64[2]=1,2 y f64[2]=3,4", "s.stack({ x, y })", "f64[2,2]: 1,2,3,4" },
    { "x f64[2]=1,2 y f64[2]=3,4", "s.stack({ x, y }, -1)", "f64[2,2]: 1,3,2,4" },
    { SIX, "select(3, x:split(3, 1))", "f64[2,1]: 3,6" },
    { SIX, "select(2, x:split({ 1, 2 }, -1))", "f64[2,2]: 2,3,5,6" },
    { SIX, "x:roll(1, 1)", "f64[2,3]: 3,1,2,6,4,5" },
    { SIX, "x:roll(-1)", "f64[2,3]: 4,5,6,1,2,3" },
    { SIX, "x:index(-1)", "f64[3]: 4,5,6" },
    { SIX, "x:index(':', { 0, nil, 2 })", "f64[2,2]: 1,3,4,6" },
    { SIX, "x:index({ 1 }, 0)", "f64[1]: 4" },
    { "", "s.constant({ { 1, 2.5 }, { -3, 4 } }, 'f64')", "f64[2,2]: 1,2.5,-3,4" },
    { "", "s.constant({ { { 1 }, { 7 } } }, 'i32')", "i32[1,2,1]: 1,7" },
    { "", "s.full({ 2 }, 0.5, 'f64')", "f64[2]: 0.5,0.5" },
    { SIX, "s.dynamic_update(x, s.full({ 1, 3 }, 9, 'f64'), 1, 0)", "f64[2,3]: 1,2,3,9,9,9" },
    { SIX, "x:dynamic_slice(1, 1, 2)", "f64[2,2]: 2,3,5,6" },
    { "q f64[1,2,1,1]=0,0 v f64[1,2,1,1]=2,4", "(s.attention(q, q, v))", "f64[1,2,1,1]: 3,3" },
    { "q f64[1,2,1,1]=0,0 v f64[1,2,1,1]=2,4", "(s.attention(q, q, v, 0, { causal = true }))", "f64[1,2,1,1]: 2,3" },
    { "x f64[1,1,1,2]=3,4", "s.rope(x, 0)", "f64[1,1,1,2]: 3,4" },
    { "", "s.constant({ true, false })", "bool[2]: 1,0" },
    { "", "s.constant({ {}, {} })", "f32[2,0]: " },
    { "", "s.equal(s.normal({ 3 }), s.normal({ 3 })):sum()", "i64[]: 0" },
    { "", "s.bernoulli({ 100 }, 1):sum() + s.bernoulli({ 100 }, s.zeros({ 100 })):sum()", "i64[]: 100" },
    { "", "s.uniform({ 1000 }, 'f64'):floor():abs():sum()", "f64[]: 0" },
    { "n u8[2]=2,7", "n:one_hot(3)", "f32[2,3]: 0,0,1,0,0,0" },
    { "x f64[2,2]=1,2,3,4", "x:tril()", "f64[2,2]: 1,0,3,4" },
    { "x f64[1,2,2]=1,2,3,4", "x:triu(1)", "f64[1,2,2]: 0,2,0,0" },
    { "", "s.eye(2, 'i32')", "i32[2,2]: 1,0,0,1" },
    { "n i64[]=5 z i64[]=0", "s.random_bernoulli(n, z, z, 5, { 4 }, 0.5)", "bool[4]: 1,0,0,0" },
    /* einsum */
    { SIX " y f64[3,2]=1,2,3,4,5,6", "s.einsum('ij,jk->ik', x, y)", "f64[2,2]: 22,28,49,64" },
    { SIX " y f64[3,2]=1,2,3,4,5,6", "s.einsum('ij, jk -> ki', x, y)", "f64[2,2]: 22,49,28,64" },
    { SIX " y f64[3,2]=1,2,3,4,5,6", "s.einsum('ij,jk', x, y)", "f64[2,2]: 22,28,49,64" },
    { SIX, "s.einsum('ij->j', x)", "f64[3]: 5,7,9" },
    { SIX, "s.einsum('ij->', x)", "f64[]: 21" },
    { SIX, "s.einsum('ba', x)", "f64[3,2]: 1,4,2,5,3,6" },
    { "x f64[3,3]=1,2,3,4,5,6,7,8,9", "s.einsum('ii', x)", "f64[]: 15" },
    { "x f64[3,3]=1,2,3,4,5,6,7,8,9", "s.einsum('ii->i', x)", "f64[3]: 1,5,9" },
    { "x f64[2,3,2]=1,2,3,4,5,6,7,8,9,10,11,12", "s.einsum('iji->ji', x)", "f64[3,2]: 1,8,3,10,5,12" },
    { SIX " y f64[2]=1,10 z f64[3]=1,0,1", "s.einsum('ij,i,j->', x, y, z)", "f64[]: 104" },
    { "x f64[2]=1,2 y f64[3]=1,2,3", "s.einsum('i,j->ji', x, y)", "f64[3,2]: 1,2,2,4,3,6" },
    { "x f64[2]=1,2 y f64[2]=3,4", "s.einsum('i,i->i', x, y)", "f64[2]: 3,8" },
    { "x f64[2]=1,2 y f64[2]=3,4", "s.einsum('i,j', x, y)", "f64[2,2]: 3,4,6,8" },
    { "x f64[2,1,2]=1,2,3,4 y f64[2,2,1]=1,2,3,4", "s.einsum('bij,bjk->bik', x, y)", "f64[2,1,1]: 5,25" },
    { "x f64[2,1,2]=1,2,3,4 y f64[2,1]=1,10", "s.einsum('...ij,jk->...ik', x, y)", "f64[2,1,1]: 21,43" },
    { "x f64[2,1,2]=1,2,3,4 y f64[1,2,1]=1,10", "s.einsum('...ij,...jk', x, y)", "f64[2,1,1]: 21,43" },
    { "x f64[1,2]=1,2 y f64[3,2]=1,2,3,4,5,6", "s.einsum('...,...', x, y)", "f64[3,2]: 1,4,3,8,5,12" },
    { SIX, "s.einsum('...j->...', x)", "f64[2]: 6,15" },
    { "n i32[2,2]=1,2,3,4 m i32[2]=1,10", "s.einsum('ij,j->i', n, m)", "i32[2]: 21,43" },
    { SIX " y f64[3]=1,10,100", "grad(s.einsum('ij,j->i', x, y), y)", "f64[3]: 5,7,9" },
    { "x f64[0,3]= y f64[3]=1,2,3", "s.einsum('ij,j->', x, y)", "f64[]: 0" },
    /* custom derivatives */
    { "x f64[3]=1,2,3", "s.custom(function(a) return a * a, a end, function(a, dy) return dy * 7 * a end)(x)",
      "f64[3]: 1,4,9" },
    { "x f64[3]=1,2,3",
      "grad(s.custom(function(a) return a * a, a end, function(a, dy) return dy * 7 * a end)(x) * x, x)",
      "f64[3]: 8,32,72" },
    { "x f64[2]=1,2 y f64[2]=3,4",
      "grad(s.custom(function(a, b) return { a + b, a * b } end, function(r, d) return { d[1] * 2 + d[2] * 100, 5 } end)(x, y)[1], x)",
      "f64[2]: 2,2" },
    { "x f64[2]=1,2 y f64[2]=3,4",
      "grad(s.custom(function(a, b) return a + b end, function(r, d) return { nil, d * 3 } end)(x, y) * y, y)",
      "f64[2]: 13,18" },
    { "x f64[2]=1,2 n i64[]=3",
      "grad(s.custom(function(k, a) return a * k end, function(r, d) return { nil, d } end)(n, x), x)", "f64[2]: 1,1" },
    { "x f64[1]=3", /* twice: of the gradient 7 a, given, comes 7 */
      "grad(grad(s.custom(function(a) return a * a, a end, function(a, dy) return dy * 7 * a end)(x), x), x)",
      "f64[1]: 7" },
    /* windows */
    { "x f64[1,4,1]=1,2,3,4 w f64[1,3,1]=1,10,100", "s.conv(x, w)", "f64[1,2,1]: 321,432" },
    { "x f64[1,4,1]=1,2,3,4 w f64[1,3,1]=1,10,100", "s.conv(x, w, { padding = 'same' })",
      "f64[1,4,1]: 210,321,432,43" },
    { "x f64[1,4,1]=1,2,3,4 w f64[1,2,1]=1,10", "s.conv(x, w, { padding = { { 1, 0 } }, stride = 2, dilation = 2 })",
      "f64[1,2,1]: 20,42" },
    { "x f64[1,1,2]=3,4 w f64[2,1,1]=1,10", "s.conv(x, w, { groups = 2 })", "f64[1,1,2]: 3,40" },
    { "x f64[1,2,2,1]=1,2,3,4 w f64[1,2,2,1]=1,10,100,1000", "s.conv(x, w)", "f64[1,1,1,1]: 4321" },
    { "x f64[1,2,1]=1,2 w f64[1,3,1]=1,10,100", "s.conv_transpose(x, w, { stride = 2 }, 1)",
      "f64[1,6,1]: 1,10,102,20,200,0" },
    { "x f64[1,2,1]=1,2 w f64[1,3,1]=1,10,100", "s.conv_transpose(x, w, { padding = 1 })", "f64[1,2,1]: 12,120" },
    { "x f64[1,4,1]=1,2,3,4 w f64[1,2,1]=1,1", "grad(s.conv(x, w), w)", "f64[1,2,1]: 6,9" },
    { "x f64[1,4,1]=-1,-2,-3,-4", "x:max_pool(2)", "f64[1,2,1]: -1,-3" },
    { "x f64[1,4,1]=-1,-2,-3,-4", "x:max_pool(3, { padding = 1, stride = 2 })", "f64[1,2,1]: -1,-2" },
    { "n i8[1,2,1]=-7,-9", "n:max_pool(3, { padding = 1 })", "i8[1,1,1]: -7" },
    { "x f64[1,2,2,1]=1,2,3,4", "x:max_pool({ 2, 1 })", "f64[1,1,2,1]: 3,4" },
    { "x f64[1,4,1]=1,2,3,4", "grad(x:max_pool(2), x)", "f64[1,4,1]: 0,1,0,1" },
    { "x f64[1,4,1]=1,2,3,4", "x:avg_pool(2)", "f64[1,2,1]: 1.5,3.5" },
    { "x f64[1,3,1]=3,6,9", "x:avg_pool(3, { padding = 1, stride = 1 })", "f64[1,3,1]: 3,6,5" },
    { "x f64[1,3,1]=3,6,9", "x:avg_pool(3, { padding = 1, stride = 1 }, false)", "f64[1,3,1]: 4.5,6,7.5" },
    { "x f64[1,3,1]=1,2,3", "x:windows(2, { padding = { { 1, 0 } } }, 9)", "f64[1,3,2,1]: 9,1,1,2,2,3" },
};

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

/* "f64[2,3]" as a tensor of zeros; *at goes past it. */
static interp_tensor read_type(const char **at)
{
    char name[16];
    int64_t dims[SGL_MAX_RANK];
    int rank = 0;
    sgl_dtype dtype;
    size_t length = strcspn(*at, "[");
    assert_true(length < sizeof name);
    snprintf(name, sizeof name, "%.*s", (int)length, *at);
    assert_int_equal(sgl_dtype_from_name(name, &dtype), SGL_OK);
    for (*at += length + 1; **at != ']'; *at += **at == ',') {
        char *end;
        dims[rank++] = strtoll(*at, &end, 10);
        *at = end;
    }
    ++*at;
    return interp_tensor_new(dtype, rank, dims);
}

static void read_numbers(const char **at, interp_tensor *t)
{
    for (int64_t e = 0; e < t->count; e++) {
        char *end;
        interp_set(t, e, strtod(*at, &end));
        assert_true(end != *at);
        *at = end + (*end == ',');
    }
}

/* Lua that declares the inputs; their numbers go to the interpreter. */
static void declare_inputs(const char *at, char *text, size_t size, interp *in)
{
    while (*at != '\0') {
        char name = at[0];
        assert_true(at[1] == ' ');
        at += 2;
        interp_tensor t = read_type(&at);
        assert_true(*at++ == '=');
        read_numbers(&at, &t);
        add(text, size, "local %c = core.input('feed', '%c', '%s', {", name, name, sgl_dtype_name(t.dtype));
        for (int i = 0; i < t.rank; i++) add(text, size, "%lld,", (long long)t.dims[i]);
        add(text, size, "})\n");
        interp_input(in, (const char[]){ name, '\0' }, &t);
        interp_tensor_free(&t);
        at += *at == ' ';
    }
}

static const char script[] = "local s = require 'sgl'\n"
                             "local function grad(y, x) return (s.grad(y:sum(), { x }))[1] end\n"
                             "graph = core.trace('g', function()\n%s"
                             "local y = %s\ncore.fetch('y', y)\nend)\nreturn core.job {}";

static const function_case *running;
static interp *oracle;

static void compare(const function_case *c, const interp_tensor *y)
{
    const char *at = c->wanted;
    interp_tensor wanted = read_type(&at);
    assert_true(at[0] == ':' && at[1] == ' ');
    at += 2;
    read_numbers(&at, &wanted);
    bool same = y->dtype == wanted.dtype && y->rank == wanted.rank &&
                memcmp(y->dims, wanted.dims, (size_t)y->rank * sizeof y->dims[0]) == 0;
    if (!same) fail_msg("%s: not of the type %s", c->expression, c->wanted);
    for (int64_t e = 0; e < y->count; e++) {
        double a = interp_get(y, e), b = interp_get(&wanted, e);
        if (!(isnan(b) ? isnan(a) : a == b || fabs(a - b) <= 1e-12 * fabs(b)))
            fail_msg("%s: element %lld is %.17g, and must be %.17g", c->expression, (long long)e, a, b);
    }
    interp_tensor_free(&wanted);
}

/* Derives, runs and compares the graph in the global `graph`. */
static int run_graph(lua_State *L)
{
    lua_getglobal(L, "graph");
    sgldsl_graph *traced = sgldsl_to_graph(L, -1);
    assert_non_null(traced);
    const sglir_graph *g = traced->graph->ir;
    sglplan plan;
    sglir_graph *plain = NULL;
    sglplan_init(&plan);
    sglpass_context context = { .env = g->env, .plan = &plan };
    if (sglpass_autodiff(&context, g, &plain) != SGL_OK) fail_msg("%s: %s", running->expression, g->env->message);
    assert_int_equal(sglir_verify(plain, SGLIR_PER_RANK), SGL_OK);
    if (!interp_run(oracle, plain)) fail_msg("%s: %s", running->expression, oracle->error);
    compare(running, interp_fetch(oracle, "y"));
    sglir_graph_free(plain);
    return 0;
}

static void check_case(const function_case *c)
{
    static char inputs[1024], text[4096];
    dsl_host host;
    sgl_job *job;
    interp in = { 0 };
    inputs[0] = '\0';
    declare_inputs(c->inputs, inputs, sizeof inputs, &in);
    snprintf(text, sizeof text, script, inputs, c->expression);
    running = c;
    oracle = &in;
    dsl_open(&host);
    if (dsl_load(&host, text, &job) != SGL_OK) fail_msg("%s: %s", c->expression, sgl_error_message(host.vm));
    if (sgldsl_enter(job, run_graph, NULL) != SGL_OK) fail_msg("%s: %s", c->expression, sgl_error_message(host.vm));
    dsl_close(&host);
    interp_free(&in);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(&cases[i]);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

#define XY "x f64[2,3]=0,0,0,0,0,0 y f64[4]=0,0,0,0"

static const function_case refusals[] = {
    { XY, "s.einsum('ij,jk->ik', x)", "einsum 'ij,jk->ik': 2 terms and 1 tensors" },
    { XY, "s.einsum('ij,j->i', x, y)", "einsum 'ij,j->i': label j is 3, and 4 in argument 2, [4]" },
    { XY, "s.einsum('ijk->i', x)", "einsum 'ijk->i': term 1 names 3 dimensions, argument 1 is [2,3]" },
    { XY, "s.einsum('i->i', x)", "einsum 'i->i': term 1 names 1 dimensions, argument 1 is [2,3]" },
    { XY, "s.einsum('...ijk->i', x)", "einsum '...ijk->i': term 1 names 3 dimensions, argument 1 is [2,3]" },
    { XY, "s.einsum('ij->ik', x)", "einsum 'ij->ik': label k of the result is in no term" },
    { XY, "s.einsum('ij->ii', x)", "einsum 'ij->ii': label i stands twice in the result" },
    { XY, "s.einsum('ii', x)", "einsum 'ii': label i is both 2 and 3 in [2,3]" },
    { XY, "s.einsum('i1->i', x)", "einsum 'i1->i': '1' is neither a letter nor the only '...' of its term" },
    { XY, "s.einsum('ij', 3)", "einsum 'ij': argument 1 is no tensor" },
    { XY, "s.einsum(x)", "einsum: the equation must be a string, as 'ij,jk->ik'" },
    { XY, "x:split(2, 1)", "split: 3 elements along axis 1 do not make 2 equal parts" },
    { XY, "x:split({ 1, 1 }, 1)", "split: the sizes add up to 2, axis 1 has 3 elements" },
    { XY, "x:roll(1, 2)", "roll: axis 2 of f64[2,3]: there are 2, counted from 0" },
    { XY, "x:squeeze(0)", "squeeze: dimension 0 of f64[2,3] is no 1" },
    { XY, "x:index(0, 3)", "index: 3 along axis 1 of f64[2,3]" },
    { XY, "x:index(0, 0, 0)", "index: 3 places for f64[2,3]" },
    { XY, "x:index('all')", "index: place 1 must be an integer, ':' or { start, stop, step }" },
    { XY, "s.stack({})", "stack: a list of tensors is needed" },
    { XY, "y:max_pool(2)",
      "max_pool: x must be a tensor [n, s..., c] with at least one spatial dimension, not f64[4]" },
    { "x f64[1,4,4,1]=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "x:avg_pool({ 2, 2, 2 })",
      "avg_pool: size has 3 entries for 2 spatial dimensions" },
    { "x f64[1,2,1]=0,0", "x:avg_pool(3)", "windows: a window spans 3 elements of spatial dimension 0, which has 2" },
    { XY, "s.custom(function(a) return a end, function(r, d) return d:sum() end)(x)",
      "custom: its gradient 0 is f64[], and the input is f64[2,3]" },
    { XY, "s.custom(function(a) return a end, function(r, d) return 'no' end)(x)",
      "custom: gradient 1 is a string value; it must be a tensor, a number or nil" },
    { XY, "s.custom(function(a) end, function(r, d) return d end)(x)", "custom: forward must return a tensor" },
    { XY, "s.custom(function(a) return x end, function(r, d) return d end)(3)",
      "custom: none of the arguments is a tensor of floats" },
    { XY, "s.custom(3)(x)", "custom(forward, backward): two functions are needed" },
    { XY, "x:clamp(2, 1)", "clamp: the minimum 2 is above the maximum 1" },
    { XY, "x:shift_left(1)", "shift_left: argument 0 is f64, an integer is needed" },
    { XY, "x:softmax(2)", "softmax: axis 2 of f64[2,3]: there are 2, counted from 0" },
    { XY, "x:cast('float32')", "cast: there is no dtype 'float32'; here it is 'f32'" },
    { XY, "s.constant({ { 1, 2 }, { 3 } })", "constant: a list of 1 stands where the first has 2" },
    { XY, "s.constant({ { 1, 2 }, 3 })", "constant: a list of none stands where the first has 2" },
    { XY, "s.constant({ 1, { 3 } })", "constant: a table stands in the list, after a number" },
    { XY, "x:mean(0, 1)", "mean: keep must be true or false, not 1; several axes are a list: { 0, 1 }" },
    { XY, "s.log(x)", "sgl.log(name, value) shows a number at each step; the logarithm is the method, x:log()" },
    { XY, "x * s.nn.linear(2, 3).weight", "mul: argument 2 is a parameter; call it for its tensor: layer.weight()" },
    { XY, "s.nn.linear(2, 3).weight * x", "call it for its tensor, as in layer.weight()" },
    { XY, "-s.nn.buffer { 2, init = s.nn.init.ones }", "call it for its tensor, as in layer.weight()" },
    { XY, "x:backward()", "tensors have no method 'backward'; an optimizer's minimize" },
    { XY, "s.normal(3)", "normal: the extents are a list: sgl.normal({ 2, 3 })" },
    { XY, "x:top_k(4)", "top_k: the 4 largest along the last dimension of [2,3]" },
    /* arguments beyond a function's own */
    { XY, "x:log(2)", "log takes no argument besides the tensor; got 1 more: it is written x:log()" },
    { XY, "s.add(x, 1, 10)", "add takes b besides the tensor; got 1 more: it is written a:add(b)" },
    { XY, "s.add(1, x, 10, nil, 10)", "add takes a, b; got 3 more: it is written sgl.add(a, b)" },
    { XY, "x:softmax(0, 1)", "softmax takes axis besides the tensor; got 1 more: it is written x:softmax(axis)" },
    { XY, "s.zeros({ 2 }, 'f32', 3)", "zeros takes dims, dtype; got 1 more: it is written sgl.zeros(dims, dtype)" },
    { XY, "x:dtype(3)", "dtype takes no argument besides the tensor" },
    { XY, "s.log('x', x:sum(), 3)", "log takes name, value; got 1 more: it is written sgl.log(name, value)" },
    { XY, "s.nn.linear(2, 3, {}, 4)", "linear takes input, output, options; got 1 more: it is written nn.linear(" },
    { XY, "s.nn.auxiliary_loss(x)", "auxiliary_loss takes no argument; got 1 more: it is written nn.auxiliary_loss()" },
    /* options that are misspelt */
    { XY, "s.zeros({ 1, 4, 2 }):max_pool(2, { strid = 2 })",
      "max_pool: there is no option 'strid'; did you mean 'stride'?" },
    { XY, "s.zeros({ 1, 4, 2 }):avg_pool(2, { pading = 2 })",
      "avg_pool: there is no option 'pading'; did you mean 'padding'?" },
    { XY, "s.zeros({ 1, 4, 2 }):windows(2, { dilatoin = 2 })",
      "windows: there is no option 'dilatoin'; did you mean 'dilation'?" },
    { XY, "s.conv(s.zeros({ 1, 4, 2 }), s.zeros({ 1, 1, 2 }), { group = 2 })",
      "conv: there is no option 'group'; did you mean 'groups'?" },
    { XY, "s.conv(s.zeros({ 1, 4, 2 }), s.zeros({ 1, 1, 2 }), 2)", "conv: give a table of options, not 2" },
    { XY, "s.conv(s.zeros({ 1, 4, 2 }), s.zeros({ 1, 1, 2 }), { padding = 'valid' })",
      "conv: padding must be numbers or 'same', not 'valid'" },
    { XY, "s.conv_transpose(s.zeros({ 1, 4, 1 }), s.zeros({ 1, 1, 2 }), { strides = 2 })",
      "conv_transpose: there is no option 'strides'; did you mean 'stride'?" },
    { XY, "s.nn.parameter { 2, inti = print }", "parameter: there is no option 'inti'; did you mean 'init'?" },
    /* what is no list of numbers, and what is missing */
    { XY, "s.constant({ a = 1 })", "constant: here is the key 'a'; it takes a table of numbers, nested by rows" },
    { XY, "s.constant({ { 1, 2 }, { 3, 4, n = 2 } })", "here is the key 'n'" },
    { XY, "x:gather(1)", "gather: its indices are a tensor of integers, not 1" },
    { XY, "s.nn.sequential(1)", "nn has no 'sequential'; nn.stack(count, make) repeats one kind of block" },
    { XY, "s.sequential(1)", "sgl has no 'sequential'; nn.stack(count, make) repeats one kind of block" },
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        static char inputs[1024], text[4096];
        const function_case *c = &refusals[i];
        dsl_host host;
        sgl_job *job;
        interp in = { 0 };
        inputs[0] = '\0';
        declare_inputs(c->inputs, inputs, sizeof inputs, &in);
        snprintf(text, sizeof text, script, inputs, c->expression);
        dsl_open(&host);
        if (dsl_load(&host, text, &job) == SGL_OK) fail_msg("%s is not refused", c->expression);
        const char *message = sgl_error_message(host.vm);
        if (strstr(message, c->wanted) == NULL)
            fail_msg("%s\n  says     %s\n  expected %s", c->expression, message, c->wanted);
        if (strncmp(message, "case.lua:", 9) != 0) fail_msg("no line of the script: %s", message);
        dsl_close(&host);
        interp_free(&in);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_interp.c -- the interpreter of the IR, the oracle of all else, against numbers worked out by hand: every primitive
 * has a case (a new one without any fails the test). Composites are held against their decompositions elsewhere. */
#include "fault.h"

#include <math.h>
#include <stdio.h>

#include "tests/support/ir_case.h"

typedef struct interp_case {
    const char *inputs; /* "x f32[2]=1,2 i i64[]=3"; p is owed a sum over micro */
    const char *body;   /* nodes; inputs are %0, %1, ... in order; what is named %y is fetched */
    const char *wanted; /* "1,2,nan" */
} interp_case;

static const interp_case cases[] = {
    /* elementwise */
    { "x f64[3]=1,-2,0", "%90 = neg(%0)", "-1,2,-0" },
    { "x i8[2]=-128,5", "%90 = neg(%0)", "-128,-5" },
    { "x f64[3]=1,-2,-0", "%90 = abs(%0)", "1,2,0" },
    { "x f64[4]=3,-2,0,nan", "%90 = sign(%0)", "1,-1,0,nan" },
    { "x i32[3]=7,0,-7", "%90 = sign(%0)", "1,0,-1" },
    { "x f64[2]=0,1", "%90 = exp(%0)", "1,2.718281828459045" },
    { "x f64[3]=1,0,-1", "%90 = log(%0)", "0,-inf,nan" },
    { "x f64[2]=9,2", "%90 = sqrt(%0)", "3,1.4142135623730951" },
    { "x f64[2]=4,0", "%90 = rsqrt(%0)", "0.5,inf" },
    { "x f64[2]=4,-2", "%90 = declare(%0) {axes=1, dim=0}", "4,-2" },
    { "x f64[2]=4,-2", "%90 = terms(%0) {axes=1, ranks=2}", "4,-2,0,0" },
    { "x f64[2]=4,-2", "%90 = reciprocal(%0)", "0.25,-0.5" },
    { "x f64[2]=0,1", "%90 = sin(%0)", "0,0.8414709848078965" },
    { "x f64[2]=0,1", "%90 = cos(%0)", "1,0.5403023058681398" },
    { "x f64[2]=0,1", "%90 = tanh(%0)", "0,0.7615941559557649" },
    { "x f64[2]=0,1", "%90 = erf(%0)", "0,0.8427007929497149" },
    { "x f64[2]=0,1", "%90 = sigmoid(%0)", "0.5,0.7310585786300049" },
    { "x f64[3]=1.5,-1.5,2", "%90 = floor(%0)", "1,-2,2" },
    { "x f64[6]=0.5,1.5,-2.5,2.4,inf,nan", "%90 = round(%0)", "0,2,-2,2,inf,nan" },
    { "x f64[3]=0,1e-20,-1", "%90 = log1p(%0)", "0,1e-20,-inf" },
    { "x f64[3]=0,1e-20,-inf", "%90 = expm1(%0)", "0,1e-20,-1" },
    { "x u8[2]=0,5", "%90 = bit_not(%0)", "255,250" },
    { "x bool[2]=0,1", "%90 = bit_not(%0)", "1,0" },
    { "x i8[2]=-4,6 y i8[2]=7,3", "%90 = bit_and(%0, %1)", "4,2" },
    { "x bool[2]=1,1 y bool[2]=0,1", "%90 = bit_or(%0, %1)", "1,1" },
    { "x i8[2]=-4,6 y i8[2]=7,3", "%90 = bit_xor(%0, %1)", "-5,5" },
    { "x i8[4]=1,1,3,3 y i8[4]=7,8,6,-1", "%90 = shift_left(%0, %1)", "-128,0,-64,0" },
    { "x i8[5]=-128,-3,-3,5,5 y i8[5]=7,1,8,2,-1", "%90 = shift_right(%0, %1)", "-1,-2,-1,1,0" },
    { "x u8[3]=255,255,1 y u8[3]=4,8,0", "%90 = shift_right(%0, %1)", "15,0,1" },
    { "x bool[2]=0,1", "%90 = not(%0)", "1,0" },
    { "x f64[3]=1,inf,nan", "%90 = is_finite(%0)", "1,0,0" },
    { "x f64[4]=2.7,-2.7,nan,0", "%90 = cast(%0) {to=i32}", "2,-2,0,0" },
    { "x f64[3]=0.5,0,nan", "%90 = cast(%0) {to=bool}", "1,0,1" },
    { "x i32[3]=300,-1,5", "%90 = cast(%0) {to=u8}", "44,255,5" },
    { "x f64[2]=1,2", "%90 = stop_gradient(%0)", "1,2" },
    { "x f64[2]=1,2", "%90 = laid_out(%0) {split=[0,-1,-1,-1,-1,-1,-1]}", "1,2" },
    { "x f64[2]=1,2", "%90 = copy(%0)", "1,2" },
    { "x f64[2]=1,2", "%90 = offload(%0)", "1,2" },
    { "x f64[2]=1,2", "%90 = prefetch(%0)", "1,2" },
    { "x f64[2]=1,2", "%90 = custom_seed(%0)", "0,0" },
    { "n i64[]=7", "%90 = update_number(%0)", "7" },
    { "x f64[2]=1,2 y f64[]=5", "%90 = after(%0, %1)", "1,2" },
    { "x f64[2]=1,2 s f64[]=8", "%80 = scale(%0, %1)\n%81 = mul(%80, %0)\n%90 = unscale(%81, %1)", "1,4" },
    { "x i8[2]=100,-100 y i8[2]=100,-100", "%90 = add(%0, %1)", "-56,56" },
    { "x f64[2]=1,2 p f64[2]=5,7", "%90 = accumulate(%0, %1)", "6,9" },
    { "x u8[1]=3 y u8[1]=5", "%90 = sub(%0, %1)", "254" },
    { "x f64[2]=3,4 y f64[2]=5,6", "%90 = mul(%0, %1)", "15,24" },
    { "x i64[5]=7,-7,7,-7,3 y i64[5]=2,2,-2,-2,0", "%90 = div(%0, %1)", "3,-4,-4,3,0" },
    { "x f64[2]=1,-1 y f64[2]=4,0", "%90 = div(%0, %1)", "0.25,-inf" },
    { "x i64[5]=7,-7,7,-7,3 y i64[5]=3,3,-3,-3,0", "%90 = remainder(%0, %1)", "1,2,-2,-1,0" },
    { "x f64[2]=7.5,-7.5 y f64[2]=2,2", "%90 = remainder(%0, %1)", "1.5,0.5" },
    { "x f64[2]=2,9 y f64[2]=10,0.5", "%90 = pow(%0, %1)", "1024,3" },
    { "x f64[3]=1,nan,3 y f64[3]=2,1,nan", "%90 = maximum(%0, %1)", "2,nan,nan" },
    { "x f64[3]=1,nan,3 y f64[3]=2,1,-1", "%90 = minimum(%0, %1)", "1,nan,-1" },
    { "x f64[3]=1,2,nan y f64[3]=1,3,nan", "%90 = equal(%0, %1)", "1,0,0" },
    { "x f64[3]=1,2,nan y f64[3]=1,3,nan", "%90 = not_equal(%0, %1)", "0,1,1" },
    { "x i32[3]=1,2,3 y i32[3]=2,2,2", "%90 = less(%0, %1)", "1,0,0" },
    { "x f64[3]=1,2,nan y f64[3]=2,2,2", "%90 = less_equal(%0, %1)", "1,1,0" },
    { "x bool[4]=0,0,1,1 y bool[4]=0,1,0,1", "%90 = and(%0, %1)", "0,0,0,1" },
    { "x bool[4]=0,0,1,1 y bool[4]=0,1,0,1", "%90 = or(%0, %1)", "0,1,1,1" },
    { "c bool[2]=0,1 x f64[2]=1,2 y f64[2]=3,4", "%90 = select(%0, %1, %2)", "3,2" },
    /* generators */
    { "", "%90 = constant() {value=2.5, dtype=f64}", "2.5" },
    { "", "%90 = iota() {axis=1, dims=[2,3], dtype=i32}", "0,1,2,0,1,2" },
    { "", "%90 = segments() {counts=[2,0,3], values=[1.5,9,2], dtype=f64}", "1.5,1.5,2,2,2" },
    /* words of Philox4x32-10 with counter 0 and key 0 begin with 6627e8d5 e169c58d bc57ac4c 9b00dbd8 */
    { "s i64[]=5 t i64[]=0 o i64[]=0", "%90 = random_uniform(%0, %1, %2) {id=5, dims=[4], dtype=f64}",
      "0.3990464210510254,0.8805201649665833,0.7357127666473389,0.6054818034172058" },
    { "s i64[]=5 t i64[]=0 o i64[]=2", "%90 = random_uniform(%0, %1, %2) {id=5, dims=[2], dtype=f64}",
      "0.7357127666473389,0.6054818034172058" },
    { "s i64[]=5 t i64[]=0 o i64[]=0", "%90 = random_normal(%0, %1, %2) {id=5, dims=[2], dtype=f64}",
      "0.9911374751458971,-0.6176090549848544" },
    /* reductions */
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = reduce_sum(%0) {axes=[0]}", "5,7,9" },
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = reduce_sum(%0) {axes=[1], keep=1}", "6,15" },
    { "x f64[2,0]=", "%90 = reduce_sum(%0) {axes=[1]}", "0,0" },
    { "x f64[2,2]=1,nan,3,2", "%90 = reduce_max(%0) {axes=[1]}", "nan,3" },
    { "x f64[1,0]=", "%90 = reduce_max(%0) {axes=[1]}", "-inf" },
    { "x i8[1,0]=", "%90 = reduce_max(%0) {axes=[1]}", "-128" },
    { "x u8[1,0]=", "%90 = reduce_min(%0) {axes=[1]}", "255" },
    { "x i32[2,2]=1,-4,3,2", "%90 = reduce_min(%0) {axes=[0,1]}", "-4" },
    { "x bool[2,2]=0,1,0,0", "%90 = reduce_max(%0) {axes=[1]}", "1,0" },
    { "x bool[2,2]=1,1,0,1", "%90 = reduce_min(%0) {axes=[1]}", "1,0" },
    { "x bool[1,0]=", "%90 = reduce_max(%0) {axes=[1]}", "0" },
    { "x bool[1,0]=", "%90 = reduce_min(%0) {axes=[1]}", "1" },
    { "x f64[2,3]=1,2,3,-4,0,inf", "%90 = reduce_prod(%0) {axes=[1]}", "6,nan" },
    { "x i8[2,2]=100,3,7,-1", "%90 = reduce_prod(%0) {axes=[1]}", "44,-7" },
    { "x f64[2,0]=", "%90 = reduce_prod(%0) {axes=[1]}", "1,1" },
    { "x f64[3,3]=1,3,3,2,nan,nan,-2,-1,-3", "%90 = argmax(%0) {axis=1}", "1,1,1" },
    { "x f64[3,3]=1,3,1,2,nan,nan,-2,-1,-3", "%90 = argmin(%0) {axis=1}", "0,1,2" },
    { "x i32[2,2]=4,1,4,2", "%90 = argmax(%0) {axis=0, keep=1}", "0,1" },
    { "x bool[4]=0,1,0,1", "%90 = argmax(%0) {axis=0}", "1" },
    { "x f64[2,0]=", "%90 = argmin(%0) {axis=1}", "-1,-1" },
    /* along an axis */
    { "a f64[4]=nan,2,3,0 b f64[4]=1,1,-1,5", "%90 = recurrence(%0, %1) {axis=0}", "1,3,8,5" },
    { "a f64[4]=2,3,0,nan b f64[4]=1,1,-1,5", "%90 = recurrence(%0, %1) {axis=0, reverse=1}", "-3,-2,-1,5" },
    { "a i8[3,2]=9,9,2,3,4,5 b i8[3,2]=50,1,0,1,0,1", "%90 = recurrence(%0, %1) {axis=0}", "50,1,100,4,-112,21" },
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = cumulative_sum(%0) {axis=1}", "1,3,6,4,9,15" },
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = cumulative_sum(%0) {axis=0, reverse=1}", "5,7,9,4,5,6" },
    { "x u8[4]=200,100,1,2", "%90 = cumulative_sum(%0) {axis=0, exclusive=1}", "0,200,44,45" },
    { "x f64[2,0]=", "%90 = cumulative_sum(%0) {axis=1, exclusive=1}", "" },
    { "x f64[2,5]=3,nan,1,3,-inf,0,2,0,1,2", "%90, %91 = sort(%0) {axis=1}", "-inf,1,3,3,nan,0,0,1,2,2" },
    { "x f64[2,5]=3,nan,1,3,-inf,0,2,0,1,2", "%91, %90 = sort(%0) {axis=1}", "4,2,0,3,1,0,2,3,1,4" },
    { "x f64[5]=3,nan,1,3,-inf", "%91, %90 = sort(%0) {axis=0, descending=1}", "0,3,2,4,1" },
    { "x i64[2,2]=4,1,3,2", "%90, %91 = sort(%0) {axis=0}", "3,1,4,2" },
    { "x f64[2,3]=1,2,3,4,5,6 i i32[2,4]=2,0,-1,3,1,1,2,0", "%90 = take_along(%0, %1) {axis=1}", "3,1,0,0,5,5,6,4" },
    { "x f64[2,2]=1,2,3,4 i i32[1,2]=1,0", "%90 = take_along(%0, %1) {axis=0}", "3,2" },
    { "i i32[2,3]=1,1,-1,0,3,1 x f64[2,3]=1,2,3,4,5,6", "%90 = add_along(%0, %1) {axis=1, extent=2}", "0,3,4,6" },
    /* windows */
    { "x f64[1,4,1]=1,2,3,4", "%90 = windows(%0) {size=[3], stride=[2], dilation=[1], low=[1], high=[2], value=9}",
      "9,1,2,2,3,4,4,9,9" },
    { "x f64[1,5,1]=1,2,3,4,5", "%90 = windows(%0) {size=[2], stride=[1], dilation=[2], low=[-1], high=[0]}",
      "2,4,3,5" },
    { "x f64[1,2,2,2]=1,2,3,4,5,6,7,8",
      "%90 = windows(%0) {size=[2,1], stride=[1,1], dilation=[1,1], low=[0,0], high=[0,0]}", "1,2,5,6,3,4,7,8" },
    { "y f64[1,3,3,1]=1,2,3,4,5,6,7,8,9",
      "%90 = windows_add(%0) {extent=[4], stride=[2], dilation=[1], low=[1], high=[2]}", "2,7,5,13" },
    { "y i8[1,2,2,1]=100,1,100,2", "%90 = windows_add(%0) {extent=[3], stride=[1], dilation=[1], low=[0], high=[0]}",
      "100,101,2" },
    /* movement */
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = flip(%0) {axes=[1]}", "3,2,1,6,5,4" },
    { "x bool[2,3]=1,0,0,0,1,1", "%90 = flip(%0) {axes=[0,1]}", "1,1,0,0,0,1" },
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = reshape(%0) {dims=[3,2]}", "1,2,3,4,5,6" },
    { "x f64[2,1]=1,2", "%90 = broadcast(%0) {dims=[2,2,3]}", "1,1,1,2,2,2,1,1,1,2,2,2" },
    { "x f64[2,3]=1,2,3,4,5,6", "%90 = transpose(%0) {order=[1,0]}", "1,4,2,5,3,6" },
    { "x i64[1,2,3]=1,2,3,4,5,6", "%90 = transpose(%0) {order=[2,0,1]}", "1,4,2,5,3,6" },
    { "x f64[2,5]=0,1,2,3,4,5,6,7,8,9", "%90 = slice(%0) {axis=1, start=1, stop=5, step=2}", "1,3,6,8" },
    { "x f64[2,2]=1,2,3,4", "%90 = pad(%0) {axis=1, before=1, after=2, between=1, value=9}",
      "9,1,9,2,9,9,9,3,9,4,9,9" },
    { "x f64[2,1]=1,2 y f64[2,2]=3,4,5,6", "%90 = concat(%0, %1) {axis=1}", "1,3,4,2,5,6" },
    { "x f64[2]=1,2 y f64[2,2]=3,4,5,6 z f64[0]= w f64[]=7", "%90 = pack(%0, %1, %2, %3)", "1,2,3,4,5,6,7" },
    { "x f64[7]=1,2,3,4,5,6,7", "%80, %81, %90, %82 = unpack(%0) {ranks=[1,1,2,0], dims=[2,0,2,2]}", "3,4,5,6" },
    { "x f64[4]=1,2,3,4 s i64[]=9", "%90 = dynamic_slice(%0, %1) {axis=0, size=3}", "2,3,4" },
    { "x f64[4]=1,2,3,4 s i64[]=-9", "%90 = dynamic_slice(%0, %1) {axis=0, size=3}", "1,2,3" },
    { "x f64[2,3]=1,2,3,4,5,6 u f64[2,1]=8,9 s i64[]=1", "%90 = dynamic_update(%0, %1, %2) {axis=1}", "1,8,3,4,9,6" },
    { "x f64[2]=1,2 u f64[1]=8 s i64[]=5", "%90 = dynamic_update(%0, %1, %2) {axis=0}", "1,8" },
    /* by index */
    { "x f64[3,2]=1,2,3,4,5,6 i i32[4]=2,-1,0,3", "%90 = gather(%0, %1)", "5,6,0,0,1,2,0,0" },
    { "i i32[4]=1,5,1,-1 x f64[4,2]=1,2,3,4,5,6,7,8", "%90 = scatter_add(%0, %1) {extent=3}", "0,0,6,8,0,0" },
    /* products: [batch, free of a, free of b] */
    { "a f64[2,3]=1,2,3,4,5,6 b f64[3,2]=1,2,3,4,5,6",
      "%90 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}", "22,28,49,64" },
    { "a f64[2,2]=1,2,3,4 b f64[3,2]=1,2,3,4,5,6",
      "%90 = dot(%0, %1) {batch_a=[1], batch_b=[1], contract_a=[], contract_b=[]}", "1,3,5,3,9,15,4,8,12,8,16,24" },
    { "a f64[2]=1,2 b f64[2]=3,4", "%90 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[0], contract_b=[0]}", "11" },
    { "a f64[2,2]=1,2,3,4 b f64[2,2]=5,6,7,8",
      "%90 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[0,1], contract_b=[1,0]}", "69" },
    /* regions */
    { "x f64[]=1 y f64[]=10",
      "%90, %91 = scan(%0, %1) {steps=4} {region(%20: i64[], %21: f64[], %22: f64[]) {\n"
      "%23 = cast(%20) {to=f64}\n%24 = add(%21, %23)\n%25 = add(%22, %0)\nyield %25, %24}}",
      "5" }, /* (1,10) -> (11,1) -> (2,12) -> (13,4) -> (5,16), each with x = 1 added to the second */
    { "x f64[]=3", "%90 = scan(%0) {steps=0} {region(%20: i64[], %21: f64[]) {%22 = neg(%21) yield %22}}", "3" },
    { "c bool[]=1 x f64[]=3", "%90 = cond(%0) {region() {%20 = neg(%1) yield %20} region() {yield %1}}", "-3" },
    { "c bool[]=0 x f64[]=3", "%90 = cond(%0) {region() {%20 = neg(%1) yield %20} region() {yield %1}}", "3" },
    { "x f64[]=3 n i64[]=2",
      "%90 = while(%0) {limit=-1} {region(%20: i64[], %21: f64[]) {%22 = less(%20, %1) yield %22} "
      "region(%23: i64[], %24: f64[]) {%25 = mul(%24, %24) yield %25}}",
      "81" },
    { "x f64[]=3 n i64[]=2",
      "%90 = while(%0) {limit=1} {region(%20: i64[], %21: f64[]) {%22 = less(%20, %1) yield %22} "
      "region(%23: i64[], %24: f64[]) {%25 = mul(%24, %24) yield %25}}",
      "9" },
    { "x f64[2,2]=1,2,3,4 y f64[2]=10,20",
      "%80, %90 = fused(%0, %1) {domain=[2,2], inner=1} {region(%20: f64[2,2], %21: f64[2]) {\n"
      "%22 = broadcast(%21) {dims=[2,2]}\n%23 = add(%20, %22)\n%24 = reduce_sum(%23) {axes=[1]}\nyield %23, %24}}",
      "33,37" },
    /* differences */
    { "x f64[2]=3,-2",
      "%10 = mul(%0, %0)\n%11 = stop_gradient(%0)\n%12 = mul(%10, %11)\n%13 = reduce_sum(%12) {axes=[0]}\n%90 = grad(%13, %0)",
      "18,8" },
};

/* ---- reading a case ----------------------------------------------------------------------------------------- */

static int64_t read_numbers(const char **at, double *numbers, int64_t room)
{
    int64_t count = 0;
    while (**at != '\0' && **at != ' ') {
        char *end;
        assert_true(count < room);
        numbers[count++] = strtod(*at, &end);
        assert_true(end != *at);
        *at = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* Adds an INPUT line to the text for each input, and gives it to the interpreter. */
static int read_inputs(sglcore_env *env, const char *at, sglcore_text *text, interp *in)
{
    int count = 0;
    while (*at != '\0') {
        char name[16], type[32], dims_text[32];
        int length = 0, rank = 0;
        int64_t dims[SGL_MAX_RANK];
        double numbers[32];
        sgl_dtype dtype;
        assert_int_equal(sscanf(at, "%15s %31[a-z0-9]%31[][0-9,]=%n", name, type, dims_text, &length), 3);
        assert_int_equal(sgl_dtype_from_name(type, &dtype), SGL_OK);
        for (char *part = strtok(dims_text, "[,]"); part != NULL; part = strtok(NULL, "[,]"))
            dims[rank++] = atoll(part);
        at += length;
        interp_tensor t = interp_tensor_new(dtype, rank, dims);
        assert_int_equal(read_numbers(&at, numbers, 32), t.count);
        for (int64_t e = 0; e < t.count; e++) interp_set(&t, e, numbers[e]);
        interp_input(in, name, &t);
        interp_tensor_free(&t);
        assert_int_equal(sglcore_text_add(env, text, "%%%d = input() {role=2, name=\"%s\", dtype=%s, dims=[", count++,
                                          name, type),
                         SGL_OK);
        for (int i = 0; i < rank; i++) {
            assert_int_equal(sglcore_text_add(env, text, "%s%lld", i > 0 ? "," : "", (long long)dims[i]), SGL_OK);
        }
        const char *owed = name[0] == 'p' ? ", partial=64" : ""; /* over micro */
        assert_int_equal(sglcore_text_add(env, text, "]%s}\n", owed), SGL_OK);
        at += *at == ' ';
    }
    return count;
}

static void check_case(const interp_case *c)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    interp in = { 0 };
    sglcore_text text = { 0 };
    assert_int_equal(sglcore_text_add(&env, &text, "graph \"case\" {\n"), SGL_OK);
    read_inputs(&env, c->inputs, &text, &in);
    assert_int_equal(sglcore_text_add(&env, &text, "%s\nfetch \"y\" %%90\n}\n", c->body), SGL_OK);
    ir_message message;
    sglir_graph *g = ir_case_parse(&env, c->body, text.data, &message);
    if (g == NULL) fail_msg("%s", message.text);
    if (!interp_run(&in, g)) fail_msg("%s: %s", c->body, in.error);
    const interp_tensor *y = interp_fetch(&in, "y");
    double wanted[32];
    const char *at = c->wanted;
    assert_int_equal(read_numbers(&at, wanted, 32), y->count);
    for (int64_t e = 0; e < y->count; e++) {
        double found = interp_get(y, e);
        bool same =
            isnan(wanted[e]) ? isnan(found) : found == wanted[e] || fabs(found - wanted[e]) <= 1e-9 * fabs(wanted[e]);
        if (!same) fail_msg("%s: element %lld is %.17g, and must be %.17g", c->body, (long long)e, found, wanted[e]);
    }
    sglir_graph_free(g);
    sglcore_text_free(&env, &text);
    interp_free(&in);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(&cases[i]);
}

static void test_every_primitive_has_a_case(void **state)
{
    (void)state;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        bool among_ranks = sglir_is_among_ranks((sglir_op)op) || sglir_is_wait((sglir_op)op);
        if ((sglir_ops[op].flags & SGLIR_COMPOSITE) || op == SGLIR_OP_INPUT || among_ranks)
            continue; /* test_interp_world */
        char call[64];
        snprintf(call, sizeof call, "= %s(", sglir_ops[op].name);
        bool found = false;
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            found = found || strstr(cases[i].body, call) != NULL;
        if (!found) fail_msg("%s has no case", sglir_ops[op].name);
    }
}

/* ---- rounding, state, errors -------------------------------------------------------------------------------- */

static double rounded_once(const char *dtype, double value)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglcore_text text = { 0 };
    assert_int_equal(
        sglcore_text_add(&env, &text,
                         "graph \"r\" {\n%%0 = constant() {value=%.17g, dtype=f64}\n%%1 = cast(%%0) {to=%s}\n"
                         "fetch \"y\" %%1\n}",
                         value, dtype),
        SGL_OK);
    ir_message message;
    sglir_graph *g = ir_case_parse(&env, "rounding", text.data, &message);
    if (g == NULL) fail_msg("%s", message.text);
    interp in = { .round = true };
    assert_true(interp_run(&in, g));
    double result = interp_get(interp_fetch(&in, "y"), 0);
    interp_free(&in);
    sglir_graph_free(g);
    sglcore_text_free(&env, &text);
    return result;
}

static void test_rounding(void **state)
{
    (void)state;
    assert_true(rounded_once("f64", 0.1) == 0.1);
    assert_true(rounded_once("f32", 0.1) == (double)0.1f);
    assert_true(rounded_once("f32", 1e-45) == ldexp(1, -149));
    assert_true(rounded_once("bf16", 1.00390625) == 1.0);      /* 1 + 2^-8, a tie: to even */
    assert_true(rounded_once("bf16", 1.01171875) == 1.015625); /* 1 + 3 * 2^-8, a tie: up */
    assert_true(rounded_once("bf16", 3.3895e38) == 3.3895313892515355e38);
    assert_true(rounded_once("bf16", 3.4e38) == INFINITY);
    assert_true(rounded_once("f16", 65519) == 65504);
    assert_true(rounded_once("f16", 65520) == INFINITY);
    assert_true(rounded_once("f16", ldexp(3, -25)) == ldexp(2, -24)); /* subnormal: 1.5 steps, a tie */
    assert_true(rounded_once("f16", ldexp(1, -26)) == 0);
    assert_true(rounded_once("f8e4m3", 17) == 16);
    assert_true(rounded_once("f8e4m3", 449) == 448);
    assert_true(rounded_once("f8e5m2", 1.126) == 1.25);
    assert_true(rounded_once("f8e5m2", -0.1) == -0.09375);
}

static void test_carry_and_errors(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    ir_message message;
    sglir_graph *g =
        ir_case_parse(&env, "steps",
                      "graph \"s\" {\n%0 = input() {role=1, name=\"n\", dtype=i64, dims=[]}\n"
                      "%1 = constant() {value=1, dtype=i64}\n%2 = add(%0, %1)\nupdate \"n\" %2\nfetch \"n\" %0\n}",
                      &message);
    if (g == NULL) fail_msg("%s", message.text);
    interp in = { 0 };
    assert_false(interp_run(&in, g));
    assert_string_equal(in.error, "input \"n\" is not given");
    interp_tensor n = interp_tensor_new(SGL_I32, 0, NULL);
    interp_input(&in, "n", &n);
    assert_false(interp_run(&in, g));
    assert_string_equal(in.error, "input \"n\" is given with another type than the graph's");
    interp_tensor_free(&n);
    n = interp_tensor_new(SGL_I64, 0, NULL);
    interp_input(&in, "n", &n);
    interp_tensor_free(&n);
    for (int64_t step = 0; step < 3; step++) {
        assert_true(interp_run(&in, g));
        assert_int_equal(interp_fetch(&in, "n")->ints[0], step);
        assert_int_equal(interp_update(&in, "n")->ints[0], step + 1);
        assert_null(interp_fetch(&in, "other"));
        interp_carry(&in);
    }
    interp_free(&in);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* The comparison of graphs sees sections, and sees what is wrong. */
static void test_same_meaning(void **state)
{
    (void)state;
    static const char apart[] = "graph \"a\" {\n%0 = input() {role=0, name=\"u\", dtype=f64, dims=[2]}\n"
                                "%1 = input() {role=0, name=\"v\", dtype=f64, dims=[2]}\n%2 = mul(%0, %1)\n"
                                "fetch \"y\" %2\nupdate \"v\" %2\n}";
    static const struct {
        const char *text, *message; /* NULL: the same */
    } others[] = {
        { "graph \"b\" {\n%0 = input() {role=0, name=\"s\", dtype=f64, dims=[5]}\n"
          "%1 = slice(%0) {axis=0, start=0, stop=2}\n%2 = slice(%0) {axis=0, start=2, stop=4}\n%3 = mul(%1, %2)\n"
          "%4 = slice(%0) {axis=0, start=4, stop=5}\n%5 = pack(%1, %3, %4)\nfetch \"y\" %3\nupdate \"s\" %5\n"
          "member \"u\" of \"s\" role parameter offset 0 : f64[2]\nmember \"v\" of \"s\" role parameter offset 2 : f64[2]\n}",
          NULL },
        { "graph \"b\" {\n%0 = input() {role=0, name=\"s\", dtype=f64, dims=[4]}\n"
          "%1 = slice(%0) {axis=0, start=0, stop=2}\n%2 = slice(%0) {axis=0, start=2, stop=4}\n%3 = mul(%1, %2)\n"
          "%5 = pack(%3, %3)\nfetch \"y\" %3\nupdate \"s\" %5\n"
          "member \"u\" of \"s\" role parameter offset 0 : f64[2]\nmember \"v\" of \"s\" role parameter offset 2 : f64[2]\n}",
          "member \"u\" is changed, and was not before" },
        { "graph \"b\" {\n%0 = input() {role=0, name=\"u\", dtype=f64, dims=[2]}\n"
          "%1 = input() {role=0, name=\"v\", dtype=f64, dims=[2]}\n%2 = add(%0, %1)\nfetch \"y\" %2\nupdate \"v\" %2\n}",
          "fetch \"y\"[0]" },
        { "graph \"b\" {\n%0 = input() {role=0, name=\"u\", dtype=f64, dims=[2]}\n"
          "%1 = input() {role=0, name=\"v\", dtype=f64, dims=[2]}\n%2 = mul(%0, %1)\nfetch \"y\" %2\n}",
          "update \"v\" is lost" },
        { "graph \"b\" {\n%0 = input() {role=0, name=\"u\", dtype=f64, dims=[2]}\n"
          "%1 = input() {role=0, name=\"v\", dtype=f64, dims=[2]}\n%2 = mul(%0, %1)\nfetch \"y\" %2\nupdate \"v\" %2\n"
          "update \"u\" %2\n}",
          "update \"u\" is new" },
        { "graph \"b\" {\n%0 = input() {role=0, name=\"w\", dtype=f64, dims=[2]}\nfetch \"y\" %0\n}",
          "input \"w\" is neither" },
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        sglcore_env env;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        ir_message message = { "" };
        sglir_graph *a = ir_case_parse(&env, "a", apart, &message),
                    *b = ir_case_parse(&env, "b", others[i].text, &message);
        if (a == NULL || b == NULL) fail_msg("%s", message.text);
        bool same = ir_case_same_meaning(a, b, 3, (ir_tolerance){ 1e-12, 0 }, &message);
        if (same != (others[i].message == NULL)) fail_msg("case %zu: %s", i, message.text);
        if (!same && strstr(message.text, others[i].message) == NULL) fail_msg("case %zu: %s", i, message.text);
        sglir_graph_free(a);
        sglir_graph_free(b);
        assert_int_equal(env.bytes_in_use, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_every_primitive_has_a_case),
        cmocka_unit_test(test_rounding),     cmocka_unit_test(test_carry_and_errors),
        cmocka_unit_test(test_same_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

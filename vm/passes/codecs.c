/* codecs.c -- the codecs of codecs.def as nodes: numbers rounded to bf16; blocks of i8 with a scale each. In and out: codecs.h. */
#include "passes/codecs.h"

#include "plan/compress.h"

static sglpass_codes sglpass_encode_bf16(sglir_graph *g, sglir_id x)
{
    return (sglpass_codes){ 1, { sglir_cast(g, x, SGL_BF16) } };
}

static sglir_id sglpass_decode_bf16(sglir_graph *g, const sglpass_codes *codes, sgl_dtype dtype)
{
    return sglir_cast(g, codes->values[0], dtype);
}

/* The scale is in f32 before anything is divided by it: all ranks divide and multiply by the same number. */
static sglpass_codes sglpass_encode_int8(sglir_graph *g, sglir_id x)
{
    if (sglir_status(g) != SGL_OK) return (sglpass_codes){ 0 };
    const sgl_dtype dtype = (sgl_dtype)sglir_type_of(g, x)->dtype;
    const int64_t last = sglir_type_of(g, x)->rank - 1;
    sglir_id most = sglir_reduce(g, SGLIR_OP_REDUCE_MAX, sglir_unary(g, SGLIR_OP_ABS, x), &last, 1, true);
    sglir_id scale = sglir_cast(g, sglir_scale(g, most, 1.0 / 127), SGL_F32);
    sglir_id wide = sglir_cast(g, scale, dtype), zero = sglir_constant_like(g, wide, 0);
    sglir_id some = sglir_binary(g, SGLIR_OP_LESS, zero, wide);
    sglir_id divisor = sglir_select(g, some, wide, sglir_constant_like(g, wide, 1));
    sglir_id steps = sglir_unary(g, SGLIR_OP_ROUND, sglir_div(g, x, divisor));
    sglir_id most_steps = sglir_constant(g, dtype, 127), least_steps = sglir_constant(g, dtype, -127);
    steps = sglir_binary(g, SGLIR_OP_MINIMUM, sglir_binary(g, SGLIR_OP_MAXIMUM, steps, least_steps), most_steps);
    return (sglpass_codes){ 2, { sglir_cast(g, steps, SGL_I8), scale } };
}

static sglir_id sglpass_decode_int8(sglir_graph *g, const sglpass_codes *codes, sgl_dtype dtype)
{
    return sglir_mul(g, sglir_cast(g, codes->values[0], dtype), sglir_cast(g, codes->values[1], dtype));
}

const sglpass_codec sglpass_codec_rows[] = {
#define SGLPLAN_CODEC(name, text, help) { sglpass_encode_##text, sglpass_decode_##text },
#include "plan/codecs.def"
#undef SGLPLAN_CODEC
};

/* random_border.c -- a random program as a whole: its dtypes, inputs, steps, loss and outputs. In and out: random_program.h.
 *
 * What it may be asked besides its values is drawn here too: gradients, micro-batches, modules whose values are made again,
 * precision. Odd invariant: two runs of a program differ in what its states carry, so what states hold counts as exact only
 * where it runs once. */
#include <stdio.h>
#include <string.h>

#include "tests/support/random_parts.h"

static void choose_palette(random_drawer *d, uint64_t seed)
{
    static const sgl_dtype whole[] = { SGL_I32, SGL_I64, SGL_BOOL, SGL_U8, SGL_I16, SGL_I8, SGL_U16, SGL_U32 };
    static const sgl_dtype low[] = { SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2 };
    switch (seed % 4) {
    case 0:
    case 1: d->palette[d->palette_count++] = SGL_F64; break;
    case 2: d->palette[d->palette_count++] = SGL_F32; break;
    default:
        d->palette[d->palette_count++] = low[random_draw(d, random_one_in(d, 3) ? 4 : 2)];
        d->palette[d->palette_count++] = SGL_F32;
        break;
    }
    d->palette[d->palette_count++] = SGL_BOOL;
    for (int i = 0; i < 2; i++) d->palette[d->palette_count++] = whole[random_draw(d, 8)];
    d->palette[d->palette_count++] = random_one_in(d, 2) ? SGL_I64 : SGL_I16;
    d->smooth = seed % 4 == 0;
    d->empties = seed % 4 != 3 && seed % 3 == 0;
}

/* A parameter or state of more than one step has been rounded. */
static void inputs(random_drawer *d, bool one_step, random_value *parameters, random_value *state,
                   random_value *counter)
{
    for (int i = 0; i < d->palette_count; i++) {
        int64_t dims[3] = { random_extent(d), random_extent(d), random_extent(d) };
        int rank = (int)random_draw(d, 4);
        if (d->batch > 0) {
            dims[0] = d->batch;
            rank = rank > 0 ? rank : 1;
        }
        random_join(d, random_input(d, SGL_FEED, d->palette[i], rank, dims));
    }
    d->parameters = d->count;
    d->parameter_count = one_step ? 3 : 0;
    for (int i = 0; i < 3; i++) {
        int64_t dims[3] = { 2 + (int64_t)random_draw(d, 3), 3, 2 };
        parameters[i] = random_input(d, SGL_PARAMETER, d->palette[0], (int)random_draw(d, 4), dims);
        parameters[i].exact = one_step;
        random_join(d, parameters[i]);
    }
    if (d->large) {
        int rank;
        int64_t dims[SGL_MAX_RANK];
        for (int i = 0; i < 2; i++) {
            random_large_shape(d, &rank, dims);
            random_join(d, random_input(d, SGL_PARAMETER, d->palette[0], rank, dims));
        }
        random_large_shape(d, &rank, dims);
        *state = random_input(d, SGL_STATE, d->palette[0], rank, dims);
    } else {
        *state = random_input(d, SGL_STATE, d->palette[0], 1, (int64_t[]){ 5 });
    }
    state->exact = one_step;
    *counter = random_input(d, SGL_STATE, SGL_I64, 0, NULL);
    random_join(d, *state);
    random_join(d, *counter);
}

static sglir_id total(random_drawer *d, sglir_id x)
{
    int64_t axes[SGL_MAX_RANK];
    int rank = random_type(d, x)->rank;
    for (int i = 0; i < rank; i++) axes[i] = i;
    return rank == 0 ? x : sglir_reduce(d->g, SGLIR_OP_REDUCE_SUM, x, axes, rank, false);
}

/* A sum over values drawn of late; its gradients by the parameters and one value between; the parameters' next values. */
static void learn(random_drawer *d, const random_value *parameters)
{
    sgl_dtype wide = d->palette[0] == SGL_F64 ? SGL_F64 : SGL_F32;
    sglir_id loss = sglir_constant(d->g, wide, 0), args[5], gradients[4];
    int terms = 0, kinked = 0, between = -1;
    for (int i = d->count - 1; i >= 0 && (terms < 12 || kinked < 8); i--) {
        if (!d->pool[i].derives || !random_is_float(d, d->pool[i].id)) continue;
        if (terms >= 12 && !d->pool[i].kinked) continue; /* these are few, and their derivatives are to be seen */
        kinked += d->pool[i].kinked;
        bool smooth = !d->pool[i].exact; /* what is exact may have been cut to an integer */
        if (terms == 2 && smooth && random_type(d, d->pool[i].id)->dtype == wide) between = i;
        loss = sglir_add(d->g, loss, sglir_cast(d->g, total(d, random_squash(d, d->pool[i].id)), wide));
        terms++;
    }
    args[0] = loss;
    for (int i = 0; i < 3; i++) args[i + 1] = parameters[i].id;
    int count = 3;
    if (between >= 0) args[++count] = d->pool[between].id;
    const sglir_named outer = SGLIR_I("outer", random_one_in(d, 2)); /* as an optimizer takes them: fp16 scales these */
    sglir_emit(d->g, SGLIR_OP_GRAD, args, count + 1, &outer, 1, gradients);
    sglir_output_add(d->g, SGLIR_FETCH, "loss", loss);
    if (between >= 0) sglir_output_add(d->g, SGLIR_FETCH, "d between", gradients[3]);
    for (int i = 0; i < 3 && sglir_status(d->g) == SGL_OK; i++) {
        char name[32];
        const char *parameter = sglir_attr_string(d->g, sglir_maker(d->g, parameters[i].id), "name");
        snprintf(name, sizeof name, "%s", parameter);
        sglir_output_add(d->g, SGLIR_UPDATE, name,
                         sglir_sub(d->g, parameters[i].id, sglir_scale(d->g, gradients[i], 0.125)));
        snprintf(name, sizeof name, "d %d", i);
        sglir_output_add(d->g, SGLIR_FETCH, name, gradients[i]);
    }
}

static void update(random_drawer *d, random_value state, sglir_id next)
{
    char name[32];
    snprintf(name, sizeof name, "%s", sglir_attr_string(d->g, sglir_maker(d->g, state.id), "name"));
    sglir_output_add(d->g, SGLIR_UPDATE, name, next);
}

sglir_graph *random_program(sglcore_env *env, uint64_t seed, random_traits *traits)
{
    random_drawer d = { .env = env, .state = seed * 2 + 1 };
    random_value parameters[3], state, counter;
    if (sglir_graph_new(env, "random", &d.g) != SGL_OK) return NULL;
    for (int i = 0; i < 4; i++) random_draw(&d, 2);
    choose_palette(&d, seed);
    *traits = (random_traits){ .smooth = d.smooth, .micro = 1, .steps = random_one_in(&d, 3) ? 2 : 1 };
    traits->bounded = seed % 5 == 1;
    traits->differs = seed % 4 == 1;
    traits->precision = seed % 4 != 2 ? SGL_F32 : seed % 8 < 4 ? SGL_BF16 : SGL_F16;
    if (random_one_in(&d, 4)) {
        d.batch = 4;
        traits->micro = seed % 8 < 2 ? 2 : seed % 8 < 4 ? 3 : 4; /* of 4 rows: 3 parts are uneven */
    }
    traits->large = d.large = !d.smooth && random_one_in(&d, 4);
    traits->differs = traits->differs && !d.large;
    inputs(&d, traits->steps == 1, parameters, &state, &counter);
    random_steps(&d, d.smooth  ? 8 + (int)random_draw(&d, 20)
                     : d.large ? 8 + (int)random_draw(&d, 12)
                               : 12 + (int)random_draw(&d, 50));
    traits->derived = d.smooth || !random_one_in(&d, 4);
    if (sglir_status(d.g) == SGL_OK && traits->derived) learn(&d, parameters);
    for (int i = 0; i < 5 && sglir_status(d.g) == SGL_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        sglir_output_add(d.g, SGLIR_FETCH, name,
                         d.pool[d.count - 1 - (int)random_draw(&d, (uint64_t)(d.count < 12 ? d.count : 12))].id);
    }
    if (sglir_status(d.g) == SGL_OK) {
        random_value v = random_fitting(&d, random_type(&d, state.id), 'x', false);
        if (d.large && random_one_in(&d, 2)) v.id = random_moved(&d, state.id);
        update(&d, state,
               sglir_add(d.g, sglir_scale(d.g, state.id, 0.5), sglir_scale(d.g, random_squash(&d, v.id), 0.5)));
        update(&d, counter, sglir_add(d.g, counter.id, sglir_constant(d.g, SGL_I64, 1)));
        if (random_one_in(&d, 4))
            sglir_output_add(d.g, SGLIR_FETCH, "updates", sglir_unary(d.g, SGLIR_OP_UPDATE_NUMBER, counter.id));
        if (random_one_in(&d, 4)) sglir_recompute(d.g, RANDOM_MODULE);
    }
    if (sglir_status(d.g) == SGL_OK) return d.g;
    sglir_graph_free(d.g);
    return NULL;
}

/* train_scalars.c -- the numbers that a training run tells. In and out: train_scalars.h.
 *
 * Odd invariant: fetches are read in the order in which the programs list them, which is that of the names found first. */
#include "session/train_scalars.h"

#include <string.h>

#define LOGGED "log." /* what the names of an evaluation's logged numbers begin with */

static sgl_status as_double(sgl_program *program, const char *name, sgl_dtype dtype, double *value)
{
    union {
        double f64;
        float f32;
        int64_t i64;
        int32_t i32;
        uint8_t u8;
    } got = { 0 };
    int64_t bytes = sglcore_dtype_bytes(dtype, 1);
    SGLCORE_TRY(sgl_fetch(program, name, &got, (size_t)bytes));
    switch (dtype) {
    case SGL_F64: *value = got.f64; return SGL_OK;
    case SGL_F32: *value = (double)got.f32; return SGL_OK;
    case SGL_I64: *value = (double)got.i64; return SGL_OK;
    case SGL_I32: *value = (double)got.i32; return SGL_OK;
    case SGL_BOOL: *value = got.u8; return SGL_OK;
    default:
        return sglcore_fail(&program->session->vm->env, SGL_UNSUPPORTED,
                            "fetch '%s': a scalar of dtype %s is not read here; cast it to f32 in the script", name,
                            sgl_dtype_name(dtype));
    }
}

/* A fetch after number *at that is told, and its name as it is told; false: there are no more. */
static bool next_told(const sgl_program *program, bool of_eval, int *at, const char **fetch, const char **told,
                      sgl_dtype *dtype)
{
    const size_t prefix = of_eval ? strlen(LOGGED) : 0;
    sgl_type type;
    while (sgl_program_fetch(program, (*at)++, fetch, &type) == SGL_OK && *fetch) {
        if (type.rank != 0 || strncmp(*fetch, LOGGED, prefix) != 0) continue;
        *told = *fetch + prefix;
        *dtype = type.dtype;
        return true;
    }
    return false;
}

sgl_status sglsession_scalars_find(const sgl_program *program, bool of_eval, sglsession_scalars *scalars)
{
    sglcore_env *env = &program->session->vm->env;
    const char *fetch, *told;
    sgl_dtype dtype;
    int total = 0, at = 0;
    *scalars = (sglsession_scalars){ .of_eval = of_eval };
    if (program->session->ops->blank) return SGL_OK;
    while (next_told(program, of_eval, &at, &fetch, &told, &dtype)) total++;
    if (total == 0) return SGL_OK;
    scalars->names = sglcore_alloc(env, (size_t)total * sizeof *scalars->names);
    scalars->values = sglcore_alloc(env, (size_t)total * sizeof *scalars->values);
    scalars->count = total;
    if (!scalars->names || !scalars->values) return SGL_OUT_OF_MEMORY;
    at = 0;
    for (int i = 0; i < total && next_told(program, of_eval, &at, &fetch, &told, &dtype); i++) scalars->names[i] = told;
    return SGL_OK;
}

void sglsession_scalars_free(sglcore_env *env, sglsession_scalars *scalars)
{
    sglcore_free(env, scalars->names, (size_t)scalars->count * sizeof *scalars->names);
    sglcore_free(env, scalars->values, (size_t)scalars->count * sizeof *scalars->values);
}

/* Number i of the scalars; *at: behind the fetch of the one before it. */
static sgl_status read_one(const sglsession_scalars *scalars, sgl_program *program, int i, int *at, double *value)
{
    const char *fetch, *told;
    sgl_dtype dtype;
    if (!next_told(program, scalars->of_eval, at, &fetch, &told, &dtype) || strcmp(told, scalars->names[i]) != 0)
        return sglcore_fail(
            &program->session->vm->env, SGL_INVALID_ARGUMENT,
            "sgl_train: a program that pick gave does not fetch '%s' where the others do; programs of all "
            "buckets come of one script",
            scalars->names[i]);
    return as_double(program, fetch, dtype, value);
}

sgl_status sglsession_scalars_read(sglsession_scalars *scalars, sgl_program *program)
{
    int at = 0;
    for (int i = 0; i < scalars->count; i++) SGLCORE_TRY(read_one(scalars, program, i, &at, &scalars->values[i]));
    return SGL_OK;
}

sgl_status sglsession_scalars_add(sglsession_scalars *scalars, sgl_program *program, double targets)
{
    int at = 0;
    for (int i = 0; i < scalars->count; i++) {
        double value;
        SGLCORE_TRY(read_one(scalars, program, i, &at, &value));
        if (targets > 0) scalars->values[i] += targets * value; /* a mean over nothing is no number */
    }
    return SGL_OK;
}

sgl_status sglsession_fetch_scalar(sgl_program *program, const char *name, double *value)
{
    const char *fetch;
    sgl_type type = { .dtype = SGL_F32 };
    for (int i = 0; sgl_program_fetch(program, i, &fetch, &type) == SGL_OK && fetch; i++)
        if (strcmp(fetch, name) == 0) break;
    return as_double(program, name, type.dtype, value);
}

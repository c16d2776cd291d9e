/* fetch_file.c -- what a program fetches, as a safetensors file.
 *
 * Comes in: a program that has stepped, a path. Goes out: a file with every fetch by its name, complete or not there. */
#include <string.h>

#include "core/io.h"
#include "session/session.h"
#include "store/store.h"

typedef struct fetched {
    sgl_program *program;
    const sglexec_operand *operand;
} fetched;

typedef struct fetches {
    fetched *each;
    sglstore_source *sources;
    int64_t count;
} fetches;

static sgl_status read_fetched(void *user, int64_t offset, void *data, int64_t bytes)
{
    const fetched *f = user;
    const sgl_session *session = f->program->session;
    return session->ops->read(session->device, sglsession_space(f->program, f->operand->space),
                              f->operand->offset + offset, data, bytes);
}

static void list(sgl_program *program, const fetches *f)
{
    for (int64_t i = 0; i < f->count; i++) {
        const sglexec_port *port = &program->program->fetches.data[i];
        f->each[i] = (fetched){ program, &port->operand };
        sgl_type type = { .dtype = (sgl_dtype)port->operand.dtype, .rank = port->operand.rank };
        memcpy(type.dims, port->operand.dims, sizeof type.dims);
        f->sources[i] = (sglstore_source){ .name = sglcore_string(program->program->strings, port->name),
                                           .type = type,
                                           .role = SGL_PARAMETER,
                                           .user = &f->each[i],
                                           .read = read_fetched };
    }
}

static sgl_status make(sglcore_env *env, void *user, const char *beside)
{
    const fetches *f = user;
    return sglstore_tensors_write(env, beside, f->sources, f->count, NULL, NULL);
}

sgl_status sgl_fetch_file(sgl_program *program, const char *path)
{
    SGLSESSION_NEEDS(program && path, program ? program->session->vm : NULL, "program or path is NULL");
    sglcore_env *env = &program->session->vm->env;
    if (!program->steps_done)
        return sglcore_fail(env, SGL_WRONG_STATE, "sgl_fetch_file: the program has not stepped yet");
    fetches f = { .count = program->program->fetches.count };
    f.each = sglcore_alloc(env, (size_t)f.count * sizeof *f.each);
    f.sources = sglcore_alloc(env, (size_t)f.count * sizeof *f.sources);
    sgl_status status = (f.each && f.sources) || f.count == 0 ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) list(program, &f);
    if (status == SGL_OK) status = sglcore_replace_file(env, path, make, &f);
    sglcore_free(env, f.each, (size_t)f.count * sizeof *f.each);
    sglcore_free(env, f.sources, (size_t)f.count * sizeof *f.sources);
    return status;
}

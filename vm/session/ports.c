/* ports.c -- what goes into a program and comes out of it by name: feeds and fetches.
 *
 * Comes in: a host's numbers, whole; the layout that the pass shard has put on each feed. Goes out: this rank's part of a feed
 * in the program's place for it, fetches as they lie, types and parts for whoever asks. Odd invariant: a host sees whole
 * types alone; a part is what it may fill, never what it must hand over. */
#include <string.h>

#include "plan/mesh.h"
#include "session/session.h"

/* ---- parts ------------------------------------------------------------------------------------------------------ */

static int64_t bytes_of(const sglexec_operand *operand, const int64_t *dims)
{
    int64_t count = 1;
    for (int i = 0; i < operand->rank; i++) count *= dims[i];
    return sglcore_dtype_bytes((sgl_dtype)operand->dtype, count);
}

static sgl_status lay_feed(sgl_program *program, sglexec_port *port, const char *name, const sglir_type *whole)
{
    sglcore_env *env = &program->session->vm->env;
    const sglir_id input = sglir_input_find(program->placed, name);
    const sglir_type *placed = sglir_type_of(program->placed, input);
    bool split = false;
    if (sglir_home_of(program->placed, sglir_value_at(program->placed, input)->node) >= 0) { /* other stages read it */
        memcpy(port->whole, whole->dims, sizeof port->whole);
        return SGL_OK;
    }
    for (int d = 0; d < whole->rank; d++) {
        sglplan_axes axes = 0;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
            if (axis != SGLIR_AXIS_MICRO && placed->sharded[axis] == d) axes |= SGLPLAN_AXIS(axis);
        }
        sglplan_part part = sglplan_part_along(&program->plan, axes, program->rank, whole->dims[d], 1);
        if (placed->rank != whole->rank || part.size != port->operand.dims[d])
            return sglcore_fail(env, SGL_INTERNAL, "feed '%s': dimension %d of its part has %lld entries, not %lld",
                                name, d, (long long)port->operand.dims[d], (long long)part.size);
        port->whole[d] = whole->dims[d];
        port->at[d] = part.offset;
        split = split || part.size != whole->dims[d];
    }
    if (!split || port->operand.dtype != SGL_I4) return SGL_OK;
    return sglcore_fail(env, SGL_UNSUPPORTED,
                        "feed '%s': two elements of i4 share a byte: feed it as i8 where the plan "
                        "splits it",
                        name);
}

sgl_status sglsession_lay_feeds(sgl_program *program, const sglir_graph *traced)
{
    sglexec_program *p = program->program;
    for (int64_t i = 0; i < p->feeds.count; i++) {
        const char *name = sglcore_string(p->strings, p->feeds.data[i].name);
        sglir_id whole = sglir_input_find(traced, name);
        if (whole == SGLIR_NONE) continue; /* a pass has made it, as it lies */
        SGLCORE_TRY(lay_feed(program, &p->feeds.data[i], name, sglir_type_of(traced, whole)));
    }
    return SGL_OK;
}

/* Writes the part of `data` that the port keeps, run by run: from the last dimension that is cut on, elements lie together. */
static sgl_status write_part(const sgl_program *program, const sglexec_port *port, const char *data)
{
    const sgl_session *session = program->session;
    const sglexec_operand *o = &port->operand;
    void *space = sglsession_space(program, o->space);
    int cut = o->rank; /* dimensions before it are gone through, from the one before it on all is one run */
    while (cut > 0 && o->dims[cut - 1] == port->whole[cut - 1]) cut--;
    int64_t inner = 1, runs = 1, at[SGL_MAX_RANK] = { 0 };
    for (int d = cut > 0 ? cut - 1 : 0; d < o->rank; d++) inner *= o->dims[d];
    for (int d = 0; d < cut - 1; d++) runs *= o->dims[d];
    int64_t size = sglcore_dtype_bytes((sgl_dtype)o->dtype, 1), bytes = sglcore_dtype_bytes((sgl_dtype)o->dtype, inner);
    for (int64_t run = 0; run < runs && bytes > 0; run++) {
        int64_t from = 0;
        for (int d = 0; d < o->rank; d++) from = from * port->whole[d] + port->at[d] + at[d];
        SGLCORE_TRY(session->ops->write(session->device, space, o->offset + run * bytes, data + from * size, bytes));
        for (int d = cut - 2; d >= 0 && ++at[d] == o->dims[d]; d--) at[d] = 0;
    }
    return SGL_OK;
}

/* ---- by name ---------------------------------------------------------------------------------------------------- */

/* The port of this name, with the size that the host gave checked against the whole. */
static sgl_status find_port(const sgl_program *program, const char *what, const sglexec_port *ports, int64_t count,
                            const char *name, size_t bytes, const sglexec_port **port)
{
    sglcore_env *env = &program->session->vm->env;
    const char *names[64];
    int listed = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *has = sglcore_string(program->program->strings, ports[i].name);
        if (strcmp(has, name) == 0) {
            *port = &ports[i];
            int64_t wanted = bytes_of(&ports[i].operand, ports[i].whole);
            if (wanted == (int64_t)bytes) return SGL_OK;
            return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s '%s' has %lld bytes, not %zu", what, name,
                                (long long)wanted, bytes);
        }
        if (listed < 64) names[listed++] = has;
    }
    char hint[SGLCORE_HINT_ROOM];
    return sglcore_fail(env, SGL_NOT_FOUND, "the program has no %s '%s'%s", what, name,
                        sglcore_hint(name, names, listed, hint));
}

sgl_status sgl_feed(sgl_program *program, const char *name, const void *data, size_t bytes)
{
    SGLSESSION_NEEDS(program && name && (data || !bytes), program ? program->session->vm : NULL,
                     "program, name or data is NULL");
    const sglexec_program *p = program->program;
    const sglexec_port *port = NULL;
    SGLCORE_TRY(find_port(program, "feed", p->feeds.data, p->feeds.count, name, bytes, &port));
    SGLCORE_TRY(sglsession_ready(program));
    return write_part(program, port, data);
}

sgl_status sgl_feed_alike(sgl_program *program, const char *name, const void *data, size_t bytes)
{
    SGLSESSION_NEEDS(program && name && (data || !bytes), program ? program->session->vm : NULL,
                     "program, name or data is NULL");
    SGLCORE_TRY(sgl_feed(program, name, data, bytes));
    if (program->ranks == 1) return SGL_OK;
    const uint64_t fed = sglcore_hash_bytes(name, strlen(name)).low ^ sglcore_hash_bytes(data, bytes).low;
    program->session->world.fed ^= (uint32_t)(fed >> 32); /* in any order of feeds */
    return SGL_OK;
}

sgl_status sgl_fetch(sgl_program *program, const char *name, void *data, size_t bytes)
{
    SGLSESSION_NEEDS(program && name && (data || !bytes), program ? program->session->vm : NULL,
                     "program, name or data is NULL");
    if (!program->steps_done)
        return sglcore_fail(&program->session->vm->env, SGL_WRONG_STATE, "fetch '%s': the program has not stepped yet",
                            name);
    const sglexec_program *p = program->program;
    const sglexec_port *port = NULL;
    SGLCORE_TRY(find_port(program, "fetch", p->fetches.data, p->fetches.count, name, bytes, &port));
    const sgl_session *session = program->session;
    return session->ops->read(session->device, sglsession_space(program, port->operand.space), port->operand.offset,
                              data, (int64_t)bytes);
}

static sgl_status describe_port(const sgl_program *program, const sglexec_port *ports, int64_t count, int index,
                                const char **name, sgl_type *type)
{
    *name = NULL;
    if (index < 0 || index >= count) return SGL_OK;
    const sglexec_operand *operand = &ports[index].operand;
    *name = sglcore_string(program->program->strings, ports[index].name);
    if (!type) return SGL_OK;
    type->dtype = (sgl_dtype)operand->dtype;
    type->rank = operand->rank;
    memcpy(type->dims, ports[index].whole, sizeof type->dims);
    return SGL_OK;
}

sgl_status sgl_program_feed(const sgl_program *program, int index, const char **name, sgl_type *type)
{
    SGLSESSION_NEEDS(program && name, program ? program->session->vm : NULL, "program or name is NULL");
    return describe_port(program, program->program->feeds.data, program->program->feeds.count, index, name, type);
}

sgl_status sgl_program_feed_part(const sgl_program *program, int index, int64_t *offsets, int64_t *dims)
{
    SGLSESSION_NEEDS(program && offsets && dims, program ? program->session->vm : NULL,
                     "program, offsets or dims is NULL");
    SGLSESSION_NEEDS(index >= 0 && index < program->program->feeds.count, program->session->vm,
                     "the program has no feed of this index");
    const sglexec_port *port = &program->program->feeds.data[index];
    memcpy(offsets, port->at, (size_t)port->operand.rank * sizeof *offsets);
    memcpy(dims, port->operand.dims, (size_t)port->operand.rank * sizeof *dims);
    return SGL_OK;
}

sgl_status sgl_program_fetch(const sgl_program *program, int index, const char **name, sgl_type *type)
{
    SGLSESSION_NEEDS(program && name, program ? program->session->vm : NULL, "program or name is NULL");
    return describe_port(program, program->program->fetches.data, program->program->fetches.count, index, name, type);
}

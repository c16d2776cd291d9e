/* watch.c -- looking at what a session and its programs do: measured, traced, and told as figures.
 *
 * Comes in: a session, a program. Goes out: profiles and traces that its next steps fill, what the device reaches, flops and
 * bytes. Odd invariant: a program is watched by a profile or a trace of its own, which go when the program does. */
#include "session/session.h"

sgl_status sgl_program_profile(sgl_program *program, int on)
{
    if (!program) return SGL_INVALID_ARGUMENT;
    sglexec_profile_free(program->profile);
    program->profile = NULL;
    return on ? sglexec_profile_new(program->program, &program->profile) : SGL_OK;
}

sgl_status sgl_session_machine(sgl_session *session, sgl_machine *machine)
{
    SGLSESSION_NEEDS(session && machine, session ? session->vm : NULL, "session or machine is NULL");
    sglexec_ceilings c = { 0 };
    if (!session->ops->ceilings)
        return sglcore_fail(&session->vm->env, SGL_UNSUPPORTED,
                            "sgl_session_machine: the device %s computes nothing that could be measured",
                            session->ops->name);
    SGLCORE_TRY(session->ops->ceilings(session->device, &c));
    *machine = (sgl_machine){ .flops_per_s = c.flops_per_s,
                              .bytes_per_s = c.bytes_per_s,
                              .narrow_flops_per_s = c.narrow_flops_per_s };
    return SGL_OK;
}

sgl_status sgl_program_roof(sgl_program *program, const sgl_machine *machine)
{
    SGLSESSION_NEEDS(program && machine, program ? program->session->vm : NULL, "program or machine is NULL");
    const sgl_machine *m = machine;
    if (!program->profile)
        return sglcore_fail(&program->session->vm->env, SGL_WRONG_STATE,
                            "sgl_program_roof: the program is not measured; call sgl_program_profile first");
    program->profile->ceilings =
        (sglexec_ceilings){ .flops_per_s = m->flops_per_s,
                            .narrow_flops_per_s = m->narrow_flops_per_s > 0 ? m->narrow_flops_per_s : m->flops_per_s,
                            .bytes_per_s = m->bytes_per_s };
    return SGL_OK;
}

sgl_status sgl_program_trace(sgl_program *program, int on)
{
    if (!program) return SGL_INVALID_ARGUMENT;
    sglexec_trace_free(program->trace);
    program->trace = NULL;
    return on ? sglexec_trace_new(program->program, &program->trace) : SGL_OK;
}

/* ---- figures ------------------------------------------------------------------------------------------------------ */

sgl_vm *sgl_program_vm(const sgl_program *program) { return program ? program->session->vm : NULL; }

double sgl_program_flops(const sgl_program *program) { return program ? program->program->flops : 0; }

sgl_status sgl_session_peak_flops(sgl_session *session, double *flops_per_s)
{
    SGLSESSION_NEEDS(session && flops_per_s, session ? session->vm : NULL, "session or flops_per_s is NULL");
    return session->ops->peak_flops(session->device, flops_per_s);
}

int sgl_session_computes(const sgl_session *session) { return session && !session->ops->blank; }

int64_t sgl_session_bytes(const sgl_session *session) { return session ? session->state_planned : 0; }

int64_t sgl_program_bytes(const sgl_program *program)
{
    if (!program) return 0;
    const int64_t *bytes = program->program->space_bytes;
    return bytes[SGLIR_SPACE_ARENA] + bytes[SGLIR_SPACE_IO] + bytes[SGLIR_SPACE_CONST];
}

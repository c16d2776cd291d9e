/* command_measure.c -- measures some steps of a run and tells of them. In and out: command_measure.h.
 *
 * Odd invariant: what the machine reaches is measured before the run takes its memory, which may leave none for that. */
#include "dsl/command_measure.h"

#include <errno.h>
#include <string.h>

static sgl_status open_timeline(command_measure *m)
{
    char path[4096];
    sgl_status status =
        command_rank_path(m->vm, "--timeline", m->o->timeline, sgl_session_rank(m->session), path, sizeof path);
    if (status != SGL_OK || !*path) return status;
    m->timeline = fopen(path, "w");
    return m->timeline ? SGL_OK : sgl_fail(m->vm, SGL_IO, "--timeline %s: %s", path, strerror(errno));
}

sgl_status command_measure_begin(command_measure *m, const command_train_options *o, sgl_session *session,
                                 sgl_program *program, int64_t start_step)
{
    *m = (command_measure){ .o = o, .vm = sgl_program_vm(program), .session = session, .program = program };
    if (o->measured == 0) return SGL_OK;
    const sgl_status status = open_timeline(m);
    if (status != SGL_OK) return status;
    m->from = start_step + o->unmeasured;
    m->until = m->from + o->measured;
    m->machine = o->machine;
    if (!sgl_session_computes(session) || m->machine.bytes_per_s > 0 || m->machine.flops_per_s > 0) return SGL_OK;
    return sgl_session_machine(session, &m->machine);
}

void command_measure_close(command_measure *m)
{
    if (m->timeline) fclose(m->timeline);
    m->timeline = NULL;
}

static sgl_status write_timeline(command_measure *m)
{
    const sgl_status status = sgl_program_report(m->program, "timeline", "json", command_write, m->timeline);
    const bool bad = ferror(m->timeline);
    FILE *file = m->timeline;
    m->timeline = NULL;
    if (fclose(file) != 0 || bad) return sgl_fail(m->vm, SGL_IO, "--timeline %s: %s", m->o->timeline, strerror(errno));
    return status;
}

static sgl_status tell(command_measure *m, command_progress *progress)
{
    command_progress_end(progress);
    m->until = 0;
    sgl_status status = sgl_program_report(m->program, "profile", m->o->format, command_write, stdout);
    if (status == SGL_OK && m->timeline) status = write_timeline(m);
    if (status == SGL_OK) status = sgl_program_profile(m->program, 0);
    fflush(stdout);
    return status;
}

static sgl_status start(const command_measure *m)
{
    sgl_status status = sgl_program_profile(m->program, 1);
    return status == SGL_OK ? sgl_program_roof(m->program, &m->machine) : status;
}

sgl_status command_measure_step(command_measure *m, command_progress *progress, int64_t step)
{
    if (m->until == 0 || step < m->from) return SGL_OK;
    if (step == m->from) return start(m);
    return step == m->until ? tell(m, progress) : SGL_OK;
}

sgl_status command_measure_end(command_measure *m, command_progress *progress)
{
    if (m->until == 0 || progress->first_step < 0) return SGL_OK;
    if (progress->last_step < m->from) { /* too short a run: the table says so */
        const sgl_status status = start(m);
        if (status != SGL_OK) return status;
    }
    return tell(m, progress);
}

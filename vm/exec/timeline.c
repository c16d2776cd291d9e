/* timeline.c -- the last replay that was measured as Chrome's trace events, a JSON that Perfetto (https://ui.perfetto.dev)
 * and chrome://tracing open.
 *
 * Comes in: launches in time (profile.h). Goes out: a slice for each on the track "kernels", with what it is, its script line,
 * and its rates; waits and exchanges that hold the kernels up on the track "exposed communication"; and from the begin of an
 * exchange to the end of its wait, where it goes on beside the kernels, a slice of the track "exchanges". Format: "Trace Event
 * Format", its JSON Object Format; times are microseconds. Odd invariant: exchanges that overlap lie on tracks of their own,
 * since slices of one track must nest. */
#include "exec/device.h"

enum { KERNELS = 1, EXPOSED = 2, EXCHANGES = 3, MOST_LANES = 16 };

typedef struct writer {
    const sglexec_profile *profile;
    int rank, lanes;
    int64_t lane_end[MOST_LANES]; /* of the exchange that lies there last */
    sglcore_text *text;
} writer;

/* By which a viewer colours. */
static const char *category(uint16_t op)
{
    switch (op) {
    case SGLIR_OP_FUSED: return "fused";
    case SGLIR_OP_DOT: return "product";
    case SGLIR_OP_ATTENTION:
    case SGLIR_OP_ATTENTION_GRAD: return "attention";
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD: return "loss";
    default: return sglexec_is_exposed(op) ? "communication" : "other";
    }
}

static sgl_status name_track(const writer *w, int track, const char *name)
{
    return sglcore_text_add(
        w->profile->program->env, w->text,
        "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", w->rank, track,
        name);
}

static sgl_status name_process(const writer *w)
{
    return sglcore_text_add(w->profile->program->env, w->text,
                            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n",
                            w->rank, w->rank);
}

/* Up to what it says of itself; the caller closes it. */
static sgl_status begin_slice(const writer *w, const sglexec_instruction *i, int track, int64_t begun, int64_t ended)
{
    const sglexec_program *p = w->profile->program;
    sglcore_text label = { 0 };
    SGLCORE_TRY(sglcore_text_add(p->env, w->text, "{\"ph\":\"X\",\"name\":"));
    sgl_status status = sglir_is_begun(i->op) ? sglexec_exchange_label(p, i, &label) : sglexec_work_label(p, i, &label);
    if (status == SGL_OK) status = sglcore_text_quote(p->env, w->text, label.data);
    sglcore_text_free(p->env, &label);
    SGLCORE_TRY(status);
    return sglcore_text_add(
        p->env, w->text,
        ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"instruction\":%lld",
        category(i->op), w->rank, track, (double)begun / 1e3, (double)(ended - begun) / 1e3,
        (long long)(i - p->instructions.data));
}

static sgl_status put_launch(const writer *w, const sglexec_launched *l)
{
    const sglexec_program *p = w->profile->program;
    const sglexec_instruction *i = &p->instructions.data[l->instruction];
    const double ns = (double)(l->ended - l->begun);
    const double roof_s = sglexec_roof_s(p, i, &w->profile->ceilings);
    SGLCORE_TRY(begin_slice(w, i, sglexec_is_exposed(i->op) ? EXPOSED : KERNELS, l->begun, l->ended));
    if (ns > 0)
        SGLCORE_TRY(sglcore_text_add(p->env, w->text, ",\"GFLOP/s\":%.1f,\"GB/s\":%.1f", i->flops / ns, i->bytes / ns));
    if (ns > 0 && roof_s > 0)
        SGLCORE_TRY(sglcore_text_add(p->env, w->text, ",\"share of roof\":%.3f", roof_s * 1e9 / ns));
    SGLCORE_TRY(sglcore_text_add(p->env, w->text, ","));
    SGLCORE_TRY(sglexec_origin_json(p, i->origin, w->text));
    return sglcore_text_add(p->env, w->text, "}},\n");
}

/* The first lane that is free by then; where there is none, the last. */
static int lane_of(writer *w, int64_t begun, int64_t ended)
{
    int lane = 0;
    while (lane < w->lanes && w->lane_end[lane] > begun) lane++;
    if (lane == MOST_LANES) return MOST_LANES - 1;
    if (lane == w->lanes) w->lanes++;
    w->lane_end[lane] = ended;
    return lane;
}

/* The launch that began what launch number `at` waits for: the last one before it. */
static const sglexec_launched *beginning_of(const sglexec_profile *profile, int64_t at)
{
    const uint32_t begun = profile->program->instructions.data[profile->launched[at].instruction].begun;
    while (at-- > 0)
        if (profile->launched[at].instruction == begun) return &profile->launched[at];
    return NULL;
}

static sgl_status put_exchange(writer *w, int64_t at)
{
    const sglexec_program *p = w->profile->program;
    const sglexec_launched *wait = &w->profile->launched[at], *start = beginning_of(w->profile, at);
    if (!start) return SGL_OK; /* it was left out */
    const int lane = lane_of(w, start->begun, wait->ended);
    SGLCORE_TRY(begin_slice(w, &p->instructions.data[start->instruction], EXCHANGES + lane, start->begun, wait->ended));
    return sglcore_text_add(p->env, w->text, "}},\n");
}

static sgl_status put_all(writer *w)
{
    const sglexec_profile *profile = w->profile;
    const sglexec_program *p = profile->program;
    SGLCORE_TRY(sglcore_text_add(p->env, w->text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"));
    for (int64_t at = 0; at < profile->launched_count; at++) {
        SGLCORE_TRY(put_launch(w, &profile->launched[at]));
        if (sglir_is_wait(p->instructions.data[profile->launched[at].instruction].op)) SGLCORE_TRY(put_exchange(w, at));
    }
    SGLCORE_TRY(name_track(w, KERNELS, "kernels"));
    SGLCORE_TRY(name_track(w, EXPOSED, "exposed communication"));
    for (int lane = 0; lane < w->lanes; lane++) SGLCORE_TRY(name_track(w, EXCHANGES + lane, "exchanges"));
    SGLCORE_TRY(name_process(w));
    SGLCORE_TRY(
        sglcore_text_add(p->env, w->text,
                         "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}}\n],\n"
                         "\"otherData\":{\"program\":",
                         w->rank, w->rank));
    SGLCORE_TRY(sglcore_text_quote(p->env, w->text, sglcore_string(p->strings, p->name)));
    return sglcore_text_add(p->env, w->text, ",\"left out\":%lld}}\n", (long long)profile->left_out);
}

sgl_status sglexec_profile_timeline(const sglexec_profile *profile, int rank, sglcore_text *text)
{
    writer w = { .profile = profile, .rank = rank, .text = text };
    return put_all(&w);
}

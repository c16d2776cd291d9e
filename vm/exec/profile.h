/* profile.h -- what a replay has measured: launches and time of each instruction of one program, and the last replay in time.
 *
 * Comes in: marks of time from replay (exec/measure.c), ceilings of the device. Goes out: JSON or text, and a timeline. A device
 * that has marks (device.h) is not waited for between instructions, so that what is measured is what a step takes but for
 * launches one by one; on another one each instruction is waited for. */
#ifndef SGLEXEC_PROFILE_H
#define SGLEXEC_PROFILE_H

#include "exec/program.h"

struct sglexec_device_ops;
struct sglexec_device;

typedef struct sglexec_spent {
    int64_t launches, ns;
} sglexec_spent;

/* What a device reaches, measured or told; 0: it is not known. */
typedef struct sglexec_ceilings {
    double flops_per_s,
        narrow_flops_per_s; /* of a large product: in f32; in bf16, which stands for all narrow floats */
    double bytes_per_s;     /* of a large copy: what is read and what is written */
} sglexec_ceilings;

/* A launch of the last replay; ns since that began. */
typedef struct sglexec_launched {
    uint32_t instruction;
    int64_t begun, ended;
} sglexec_launched;

/* Marks are read after so many, or at the end of a replay. */
enum { SGLEXEC_MOST_MARKS = 4096 };

typedef struct sglexec_marked {
    uint32_t instruction;
    int32_t begun, ended; /* numbers of marks */
} sglexec_marked;

typedef struct sglexec_profile {
    const sglexec_program *program;
    sglexec_spent *spent; /* one per instruction; control's stays 0 */
    size_t bytes;         /* of spent */
    int64_t replays;      /* whole ones */
    sglexec_ceilings ceilings;
    sglexec_launched *launched; /* of the last replay, in its order */
    int64_t launched_count, launched_room;
    int64_t left_out; /* launches of the last replay for which there was no room */
    int64_t began_ns; /* the last replay, by the host's clock */
    int64_t begun_ns; /* the launch at hand, or mark 0, since then */
    bool follows;     /* the last mark is where the next launch begins */
    int32_t marks, marked_count;
    sglexec_marked marked[SGLEXEC_MOST_MARKS]; /* launches between marks that were not read yet */
    int64_t mark_ns[SGLEXEC_MOST_MARKS];
} sglexec_profile;

/* For a program that outlives it. */
sgl_status sglexec_profile_new(const sglexec_program *program, sglexec_profile **profile);
void sglexec_profile_free(sglexec_profile *profile); /* NULL is allowed */

/* Of the shape that sgl.h tells at sgl_program_profile. */
sgl_status sglexec_profile_json(const sglexec_profile *profile, sglcore_text *text);
/* Two tables: the costliest kernels, the costliest instructions. */
sgl_status sglexec_profile_print(const sglexec_profile *profile, sglcore_text *text);
/* The last replay as JSON of Chrome's trace events, which Perfetto opens; rank: whose it is. */
sgl_status sglexec_profile_timeline(const sglexec_profile *profile, int rank, sglcore_text *text);

/* Seconds that one launch of the instruction takes at least, at the ceilings; 0: they are not known. */
double sglexec_roof_s(const sglexec_program *program, const sglexec_instruction *i, const sglexec_ceilings *ceilings);
/* What exchanges and moves, or waits for them, hold up is no computing. */
static inline bool sglexec_is_exposed(uint16_t op) { return sglir_is_wait(op) || sglir_is_begun(op); }
/* "dot f32[64,8]", "fused kernel 3": what an instruction makes tells products apart. */
sgl_status sglexec_work_label(const sglexec_program *program, const sglexec_instruction *i, sglcore_text *text);

/* ---- replay's side (measure.c), which allocates nothing ---- */
void sglexec_measure_begin(sglexec_profile *profile);
/* Around the launch of instruction n. */
sgl_status sglexec_measure_before(sglexec_profile *profile, const struct sglexec_device_ops *ops,
                                  struct sglexec_device *device);
sgl_status sglexec_measure_after(sglexec_profile *profile, const struct sglexec_device_ops *ops,
                                 struct sglexec_device *device, uint32_t n);
/* What was done since the last launch is no part of the next one: a loop's index written, a predicate read. */
static inline void sglexec_measure_gap(sglexec_profile *profile)
{
    if (profile) profile->follows = false;
}
/* All that was launched is done when it returns. */
sgl_status sglexec_measure_end(sglexec_profile *profile, const struct sglexec_device_ops *ops,
                               struct sglexec_device *device);

#endif

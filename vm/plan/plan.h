/* plan.h -- the plan as data: what is asked of the passes, apart from the mathematics; and the cost of a node.
 * A plan is printable and hashable. Setting a field checks its name, kind and range. */
#ifndef SGLPLAN_PLAN_H
#define SGLPLAN_PLAN_H

#include "ir/ir.h"

/* In which order the stages of a pipeline take their turns. UNSTAGED: there are none, along pp every rank computes the
 * same. */
#define SGLPLAN_SCHEDULES(X)                                                                                           \
    X(UNSTAGED, "none")                                                                                                \
    X(GPIPE, "gpipe") X(1F1B, "1f1b") X(INTERLEAVED, "interleaved") X(ZERO_BUBBLE, "zero-bubble")
typedef enum sglplan_schedule {
#define SGLPLAN_SCHEDULE_ENUM(name, text) SGLPLAN_##name,
    SGLPLAN_SCHEDULES(SGLPLAN_SCHEDULE_ENUM)
#undef SGLPLAN_SCHEDULE_ENUM
        SGLPLAN_SCHEDULE_COUNT
} sglplan_schedule;
/* Of a mesh, all its axes together; of micro-batches of a step as many. */
#define SGLPLAN_MOST_RANKS ((int64_t)1 << 20)
/* Of a pipeline whose stages take turns (sets of them hold a bit for each), and of the chunks of one of them. */
enum { SGLPLAN_MOST_STAGES = 64, SGLPLAN_MOST_CHUNKS = 64 };
/* Of a field by patterns of names: sets of them hold a bit for each. */
enum { SGLPLAN_MOST_PATTERNS = 64 };

/* What attention over parts of the sequence takes: whole keys and values; or parts of the heads, of the whole sequence;
 * or keys and values block by block, round the ring of ranks. AUTO: whatever sends the fewest bytes. */
#define SGLPLAN_ATTENTIONS(X) X(AUTO, "auto") X(GATHER, "gather") X(HEADS, "heads") X(RING, "ring")
typedef enum sglplan_attention {
#define SGLPLAN_ATTENTION_ENUM(name, text) SGLPLAN_ATTENTION_##name,
    SGLPLAN_ATTENTIONS(SGLPLAN_ATTENTION_ENUM)
#undef SGLPLAN_ATTENTION_ENUM
        SGLPLAN_ATTENTION_COUNT
} sglplan_attention;

/* What goes to memory of the host while it is not used (docs/offload.md): optimizers' states, parameters, what the
 * backward needs of the forward. Sets of them hold a bit for each. */
#define SGLPLAN_OFFLOADS(X) X(MOMENTS, "moments") X(PARAMS, "params") X(ACTIVATIONS, "activations")
enum {
#define SGLPLAN_OFFLOAD_ENUM(name, text) SGLPLAN_OFFLOAD_##name,
    SGLPLAN_OFFLOADS(SGLPLAN_OFFLOAD_ENUM)
#undef SGLPLAN_OFFLOAD_ENUM
        SGLPLAN_OFFLOAD_COUNT
};

typedef struct sglplan {
    int64_t mesh[SGLIR_AXIS_COUNT]; /* extent per axis, 1 where it is not used; MICRO: micro-batches of a step */
    uint8_t precision; /* sgl_dtype of the products: F32 or F64 as traced; BF16, F16: narrower than traced */
    uint8_t schedule;  /* sglplan_schedule: of the stages along pp */
    uint8_t attention; /* sglplan_attention */
    uint8_t offload;   /* a bit per SGLPLAN_OFFLOADS */
    uint8_t stream;    /* bf16, fp16: 1: a sum of a narrow value and a wide one is wide; 0: narrow */
    int64_t chunks;    /* interleaved: of a stage; 0: as many as sglplan_chunks says */
    int64_t scale;     /* fp16: of the loss, at first */
    int64_t scale_growth_interval; /* good steps after which it doubles */
    int64_t max_skips;             /* steps skipped one after another that are an error */
    int64_t unfused;               /* 1: the pass fuse is left out, each node is an instruction of its own */
    int64_t bucket;        /* bytes of a gradient, or of several, that ranks sum in one exchange, at the least */
    int64_t memory;        /* most bytes of a program, of all kinds together; 0: no bound */
    char wide[256];        /* bf16, fp16: patterns of modules and parameters that stay f32, comma-separated */
    char layouts[2048];    /* which dimensions of parameters are split over which axes (plan/layout.h) */
    char activations[512]; /* the same of what modules give each other, by patterns of their paths */
    char cut[512];         /* modules with which chunks of a pipeline begin, patterns, comma-separated; "": balanced */
    char compress[1024];   /* which gradients are exchanged in fewer bytes (plan/compress.h) */
    char disable[256];     /* optional passes to leave out, comma-separated */
    bool native[SGLIR_OP_COUNT]; /* composites that the device runs whole; filled from the device before the passes */
} sglplan;

/* States that the pass precision makes for fp16: the scale of the loss; steps since it changed; steps skipped, of all
 * and one after another; of the latter the first parameter (as the traced graph numbers them) whose gradient was not
 * finite. */
#define SGLPLAN_SCALE "~loss_scale.scale"
#define SGLPLAN_SCALE_GOOD "~loss_scale.good"
#define SGLPLAN_SCALE_SKIPPED "~loss_scale.skipped"
#define SGLPLAN_SCALE_IN_A_ROW "~loss_scale.in_a_row"
#define SGLPLAN_SCALE_FIRST "~loss_scale.first"

static inline bool sglplan_offloads(const sglplan *plan, int what) { return (plan->offload >> what & 1) != 0; }
/* Whether stages along pp take turns. */
static inline bool sglplan_is_staged(const sglplan *plan)
{
    return plan->schedule != SGLPLAN_UNSTAGED && plan->mesh[SGLIR_AXIS_PP] > 1;
}

void sglplan_init(sglplan *plan);
sgl_status sglplan_set(sglcore_env *env, sglplan *plan, const sglir_named *field);
/* Of a stage of the pipeline: 2 under interleaved unless the plan says so, else 1. */
int64_t sglplan_chunks(const sglplan *plan);
const char *sglplan_schedule_name(const sglplan *plan);
/* "moments, params" of a set of SGLPLAN_OFFLOADS, "" of none. */
enum { SGLPLAN_OFFLOADS_ROOM = 48 };
const char *sglplan_offloads_text(uint8_t offload, char text[SGLPLAN_OFFLOADS_ROOM]);
bool sglplan_disables(const sglplan *plan, const char *pass);
sgl_status sglplan_print(const sglplan *plan, sglcore_env *env, sglcore_text *text);
sglcore_hash sglplan_hash(const sglplan *plan);

/* What one node costs on one rank: arithmetic and the bytes that it must read and write. */
typedef struct sglplan_cost {
    double flops;           /* multiply-adds of products count 2 */
    double transcendentals; /* evaluations of exp, log, tanh, ... */
    double bytes;           /* arguments read once, results written once */
} sglplan_cost;
sglplan_cost sglplan_cost_of(const sglir_graph *g, sglir_id node); /* of a region: of its nodes, times its steps */
/* Seconds on paper: of what a node costs on a device, and of bytes that are moved between its memory and the host's. The rates are
 * those of one GPU (4.3 TB/s, 400 TFLOP/s of products, 55 GB/s each way): what decides is how many bytes of the one kind go by
 * while one of the other does, and that other devices have alike. */
double sglplan_seconds(const sglplan_cost *cost);
double sglplan_move_seconds(int64_t bytes);
/* The same of a node that may yet become a part of a kernel, of which each does a part of the work in memory. */
double sglplan_seconds_unfused(const sglir_graph *g, sglir_id node);
sglplan_cost sglplan_cost_graph(const sglir_graph *g);

#endif

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

typedef struct sglplan {
    int64_t mesh[SGLIR_AXIS_COUNT]; /* extent per axis, 1 where it is not used; MICRO: micro-batches of a step */
    uint8_t precision; /* sgl_dtype of the products: F32 or F64 as traced; BF16, F16: narrower than traced */
    uint8_t schedule;  /* sglplan_schedule: of the stages along pp */
    uint8_t attention; /* sglplan_attention */
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
sglplan_cost sglplan_cost_graph(const sglir_graph *g);

#endif

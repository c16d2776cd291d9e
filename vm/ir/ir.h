/* ir.h -- the graph: a static SSA form in index-addressed arrays, its types, and the calls that every pass is written in.
 *
 * Owns: nodes, values, regions, attributes, origins, the op table (ops.def). Nodes stand in their region in an order in
 * which each value is made before it is used; ids are 32-bit indices into the graph's arrays, never pointers. A pass
 * reads one graph and builds another (ir/rewrite), so a graph only ever grows at its end: there is no deletion, and no
 * stale use. Odd invariant: the building calls are sticky. After a failure they return SGLIR_NONE and do nothing, so
 * that a rule reads as a formula; whoever called the rule looks at sglir_status() once. */
#ifndef SGLIR_IR_H
#define SGLIR_IR_H

#include "core/core.h"

typedef uint32_t sglir_id;
#define SGLIR_NONE UINT32_MAX

/* ---- types -------------------------------------------------------------------------------------------------- */

/* Mesh axes that a layout speaks of: of ranks, but for MICRO, the time axis: micro-batches, one after another. */
#define SGLIR_AXIS_MAP(X) X(DP, "dp") X(FSDP, "fsdp") X(TP, "tp") X(PP, "pp") X(EP, "ep") X(CP, "cp") X(MICRO, "micro")
typedef enum sglir_axis {
#define SGLIR_AXIS_ENUM(name, text) SGLIR_AXIS_##name,
    SGLIR_AXIS_MAP(SGLIR_AXIS_ENUM)
#undef SGLIR_AXIS_ENUM
        SGLIR_AXIS_COUNT
} sglir_axis;

/* What a value is and what is still owed on it. Two types are equal when all fields are. */
typedef struct sglir_type {
    uint8_t dtype;              /* sgl_dtype */
    uint8_t rank;               /* 0 .. SGL_MAX_RANK */
    uint8_t scaled;             /* 1: carries a loss scale not yet removed */
    uint8_t partial;            /* bit per axis: a sum over that axis not yet taken */
    int8_t sharded[8];          /* per axis: the dimension split over it, or -1 */
    int64_t dims[SGL_MAX_RANK]; /* beyond rank: 0 */
} sglir_type;

#define SGLIR_TYPE_ROOM 512

/* A whole (unsharded, nothing owed) type. */
sglir_type sglir_type_make(sgl_dtype dtype, int rank, const int64_t *dims);
bool sglir_type_equal(const sglir_type *a, const sglir_type *b);
bool sglir_same_shape(const sglir_type *a, const sglir_type *b); /* rank and dims only */
int64_t sglir_elements(const sglir_type *type); /* -1 when it overflows; no value of a graph has such a type */
int64_t sglir_bytes(const sglir_type *type);    /* of the dense row-major form; -1 when it overflows */
/* "f32[16,256]", with owed parts "f32[4,8]{dp:0,partial(tp),partial(micro),scaled}": first what is sharded, then what
 * is partial, in the order of the axes. Returns text; SGLIR_TYPE_ROOM bytes hold any type. */
const char *sglir_type_text(const sglir_type *type, char *text, size_t size);
const char *sglir_shape_text(const sglir_type *type, char *text, size_t size); /* "[16,256]" */
const char *sglir_axis_name(int axis);

/* ---- ops ---------------------------------------------------------------------------------------------------- */

typedef enum sglir_op {
#define SGLIR_OP(NAME, ...) SGLIR_OP_##NAME,
#include "ir/ops.def"
#undef SGLIR_OP
    SGLIR_OP_COUNT
} sglir_op;

enum {                        /* flags, a column of ops.def */
       SGLIR_ELEMENTWISE = 1, /* one result element from the argument elements at the same place */
       SGLIR_REDUCTION = 2,
       SGLIR_MOVEMENT = 4,   /* elements change place, not value */
       SGLIR_GENERATOR = 8,  /* no tensor argument decides its values: iota, constant, random */
       SGLIR_COMPOSITE = 16, /* has a decomposition into primitives */
       SGLIR_REGION = 32,    /* holds regions */
       SGLIR_EFFECT = 64,    /* never removed, never merged */
       SGLIR_COMMUTES = 128, /* binary and commutative: arguments may be ordered for CSE */
       SGLIR_EXCHANGE =
           256,          /* ranks exchange: it settles what its type says, and all ranks of the group must reach it */
       SGLIR_VIEW = 512, /* results are the bytes of argument 0, seen otherwise */
       SGLIR_MOVE = 1024 /* copies between the device's memory and the host's, beside what else runs */
};

typedef struct sglir_op_row {
    const char *name;
    int minimum, maximum; /* arguments; maximum -1: any number */
    int results;          /* -1: as many as its rule says */
    uint32_t flags;
    const char *linear; /* arguments in which it is: "" none, "0" one, "01" jointly, "0|1" each by itself, "*" all */
    const char *attrs; /* schema: "axis:i keep:b=0 eps:f=1e-5 axes:I name:s to:t values:F", in this order on the node */
    const char *help;  /* its meaning, as a formula */
} sglir_op_row;
extern const sglir_op_row sglir_ops[SGLIR_OP_COUNT];
/* Of the column `linear`: whether the argument stands in the group that begins there; and the next group, "" past the last. */
bool sglir_linear_has(const char *group, uint32_t argument);
const char *sglir_linear_next(const char *group);
/* What is told of the op beside its meaning, from ops_words.def, where the notation stands. */
typedef struct sglir_op_words {
    const char *arguments, *shapes;
    const char *derivative; /* in words too where no formula is its own */
    const char *rule;       /* column vjp of its row */
} sglir_op_words;
sglir_op_words sglir_op_words_of(sglir_op op);
/* SGLIR_OP_COUNT when there is none. */
sglir_op sglir_op_find(const char *name);
/* Whether a kernel makes its result for nothing: numbers generated where they are read, or an index map of a load. */
bool sglir_op_is_free(sglir_op op);

/* ---- attributes --------------------------------------------------------------------------------------------- */

/* On a node: one per entry of the op's schema, in its order. */
typedef struct sglir_attr {
    char kind;      /* i b f s t I F, as in the schema */
    uint32_t name;  /* interned */
    uint32_t count; /* of a list */
    union {
        int64_t i;       /* i, b, t (dtype) */
        double f;        /* f */
        uint32_t string; /* s: interned */
        uint32_t first;  /* I: into graph->ints; F: into graph->floats */
    } as;
} sglir_attr;

/* How a caller hands attributes over: named, in any order, absent ones take the schema's default. */
typedef struct sglir_named {
    const char *name;
    char kind;
    int64_t i; /* value, or the count of a list */
    double f;
    const char *s;
    const int64_t *ints;
    const double *floats;
} sglir_named;
#define SGLIR_I(NAME, VALUE) ((sglir_named){ .name = (NAME), .kind = 'i', .i = (VALUE) })
#define SGLIR_F(NAME, VALUE) ((sglir_named){ .name = (NAME), .kind = 'f', .f = (VALUE) })
#define SGLIR_S(NAME, VALUE) ((sglir_named){ .name = (NAME), .kind = 's', .s = (VALUE) })
#define SGLIR_INTS(NAME, COUNT, DATA) ((sglir_named){ .name = (NAME), .kind = 'I', .i = (COUNT), .ints = (DATA) })
#define SGLIR_FLOATS(NAME, COUNT, DATA) ((sglir_named){ .name = (NAME), .kind = 'F', .i = (COUNT), .floats = (DATA) })

/* ---- the graph ---------------------------------------------------------------------------------------------- */

/* Where a value lives once `memory` has run. */
typedef enum sglir_space {
    SGLIR_SPACE_NONE,  /* not placed (yet), or never stored: inside a kernel */
    SGLIR_SPACE_ARENA, /* transient, shared over time */
    SGLIR_SPACE_STATE, /* the session's block of sections */
    SGLIR_SPACE_IO,    /* feeds and fetches */
    SGLIR_SPACE_CONST, /* constants of the program */
    SGLIR_SPACE_HOST,  /* as the arena, in memory of the host that the device reaches (docs/offload.md) */
    SGLIR_SPACE_AWAY,  /* as the state block, there */
    SGLIR_SPACES
} sglir_space;

typedef struct sglir_value {
    sglir_type type;
    sglir_id node;   /* that makes it, or SGLIR_NONE for a region's parameter */
    sglir_id region; /* in which it stands */
    uint32_t index;  /* of the result or of the parameter */
    uint8_t space;   /* sglir_space */
    uint32_t whole;  /* 1 + place in graph->wholes; 0: it is no part, or nobody said of what */
    int64_t offset;  /* bytes from the start of the space */
} sglir_value;

/* What a value that is split over ranks is a part of, and where this rank's part begins: told, never worked out from local
 * extents, and of no graph's hash, since ranks with equal parts share one program. */
typedef struct sglir_whole {
    int64_t dims[SGL_MAX_RANK], starts[SGL_MAX_RANK];
} sglir_whole;

enum {
    SGLIR_MOST_TURNS = 1 << 20,
    SGLIR_MOST_ATTRS = 16, /* of an op */
    SGLIR_MOST_ARGS = 16,
    SGLIR_MOST_RESULTS = 8 /* of one whose dimensions have labels */
};
typedef struct sglir_node {
    uint16_t op;
    uint16_t epoch; /* of a recomputed clone; nodes of different epochs never merge */
    uint32_t turn;  /* of a pipeline's stage, 1, 2, ..., taken one after another; 0: it goes where it fits */
    uint32_t arg_first, arg_count; /* graph->args */
    sglir_id out_first;            /* results are consecutive values */
    uint32_t out_count;
    uint32_t attr_first, attr_count; /* graph->attrs, the op's schema order */
    sglir_id region_first;           /* regions are consecutive */
    uint32_t region_count;
    sglir_id region;                 /* in which it stands */
    uint32_t origin;                 /* graph->origins */
    int64_t work_offset, work_bytes; /* workspace in the arena, after `memory` */
} sglir_node;

typedef struct sglir_region {
    sglir_id node; /* that holds it, SGLIR_NONE for the top region (id 0) */
    SGLCORE_VEC(sglir_id) parameters;
    SGLCORE_VEC(sglir_id) nodes; /* in order */
    SGLCORE_VEC(sglir_id) results;
} sglir_region;

/* Where a node came from: a script line, the module path, and for what a pass made, that pass. */
typedef struct sglir_origin {
    uint32_t file;  /* interned; 0: none */
    int32_t line;   /* 0: none */
    uint32_t scope; /* interned module path "blocks.0.attn" */
    uint32_t pass;  /* interned name of the pass that made it, 0: traced */
} sglir_origin;

/* What the graph gives back. UPDATE: the new value of the state that the INPUT of this name reads. */
typedef enum sglir_output_role { SGLIR_FETCH, SGLIR_UPDATE } sglir_output_role;
typedef struct sglir_output {
    sglir_output_role role;
    uint32_t name;
    sglir_id value;
} sglir_output;

/* A named tensor that is a range of a section: how a session finds "blocks.0.attn.wq". Filled by `sections`. */
typedef struct sglir_member {
    uint32_t section; /* interned name of the section's INPUT */
    uint32_t name;
    uint8_t role;   /* sgl_role */
    int64_t offset; /* elements from the section's start */
    sglir_type type;
} sglir_member;

typedef struct sglir_graph {
    sglcore_env *env;
    sglcore_strings *strings;
    uint32_t name;
    sgl_status status; /* sticky */
    SGLCORE_VEC(sglir_node) nodes;
    SGLCORE_VEC(sglir_value) values;
    SGLCORE_VEC(sglir_region) regions; /* [0] is the top one; its parameters are none: inputs are INPUT nodes */
    SGLCORE_VEC(sglir_id) args;
    SGLCORE_VEC(sglir_attr) attrs;
    SGLCORE_VEC(int64_t) ints;
    SGLCORE_VEC(double) floats;
    SGLCORE_VEC(sglir_origin) origins; /* [0] is "nowhere" */
    SGLCORE_VEC(sglir_output) outputs;
    SGLCORE_VEC(sglir_member) members;
    SGLCORE_VEC(sglir_whole) wholes;
    /* Interned module paths whose inner values the backward makes again. */
    SGLCORE_VEC(uint32_t) recomputed;
    sglcore_map names;                 /* { name, 0 }: the INPUT of that name; { name, 1 + role }: the output */
    int64_t space_bytes[SGLIR_SPACES]; /* per sglir_space, after `memory` */
    int64_t arena_lower_bound;         /* largest sum of live bytes, after `memory` */
    SGLCORE_VEC(sglir_id) open;        /* stack of regions being built */
    uint32_t origin;                   /* of the nodes that are emitted now */
} sglir_graph;

sgl_status sglir_graph_new(sglcore_env *env, const char *name, sglir_graph **graph);
void sglir_graph_free(sglir_graph *graph); /* NULL is allowed */
sgl_status sglir_status(const sglir_graph *graph);
/* Makes a status that is not OK, its message recorded already, the graph's, unless it has failed before. */
sgl_status sglir_stick(sglir_graph *graph, sgl_status status);
/* The value of the INPUT of that name, SGLIR_NONE when there is none. Asks for no memory. */
sglir_id sglir_input_find(const sglir_graph *graph, const char *name);

/* ---- building ----------------------------------------------------------------------------------------------- */

/* The op as it stands: shapes must already fit (no broadcasting, no promotion). Infers the result types; writes the
 * results' ids to out (as many as the op yields) and returns the first, or SGLIR_NONE. A failure names the origin:
 * "llama.lua:42: matmul: inner dimensions differ: [32,512] x [768,64]". */
sglir_id sglir_emit(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                    int attr_count, sglir_id *out);
/* The same for ops with regions that were closed by sglir_region_end just before. Types of region parameters and results
 * are taken as they are, owed parts included. */
sglir_id sglir_emit_regions(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                            int attr_count, const sglir_id *regions, int region_count, sglir_id *out);
sglir_id sglir_region_begin(sglir_graph *g, const sglir_type *parameters, int count, sglir_id *parameter_ids);
void sglir_region_end(sglir_graph *g, const sglir_id *results, int count);
/* Regions of one node have consecutive ids, whatever is held by the first of them: of a node with several, all ids are
 * taken before the first region is begun. Returns the first, SGLIR_NONE on failure. */
sglir_id sglir_region_take(sglir_graph *g, int count);
void sglir_region_begin_at(sglir_graph *g, sglir_id region, const sglir_type *parameters, int count,
                           sglir_id *parameter_ids);
/* One more parameter of the region that was begun last. */
sglir_id sglir_region_parameter(sglir_graph *g, const sglir_type *type);
/* Leaves regions that will not be ended, until `open` are open (1: the top one alone). What stands in them is dead. */
void sglir_region_abandon(sglir_graph *g, int64_t open);

/* The user's door: broadcasts (NumPy) and promotes (JAX, table in build.c) the arguments of an elementwise op first, by
 * BROADCAST and CAST nodes; counts negative axes from the end, fills in one -1 of reshape's dims, takes all axes where a
 * reduction names none. Other ops as sglir_emit. */
sglir_id sglir_build(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                     int attr_count, sglir_id *out);

/* What nodes from number `first` on do in the place of one of another graph is kept apart as that was: epoch and turn. */
void sglir_keep_apart(sglir_graph *g, int64_t first, const sglir_node *as);

/* Inputs and outputs. A name is given once per graph. */
sglir_id sglir_input(sglir_graph *g, sgl_role role, const char *name, const sglir_type *type);
void sglir_output_add(sglir_graph *g, sglir_output_role role, const char *name, sglir_id value);

/* Says what the value, which is split over ranks, is a part of: the part must lie within it, and what is not split be all of
 * it. */
void sglir_set_whole(sglir_graph *g, sglir_id value, const sglir_whole *whole);

/* Marks what nodes of the module path (their origin's scope, or one within it) make: the backward makes it again. */
void sglir_recompute(sglir_graph *g, const char *path);

void sglir_set_origin(sglir_graph *g, const char *file, int line, const char *scope, const char *pass);
void sglir_set_origin_of(sglir_graph *g, const sglir_origin *origin, const sglir_graph *from); /* strings re-interned */
/* The place of `node` of `from` (which may be g), made by this pass; what autodiff has made stays autodiff's, whoever
 * works it over, so that forward and backward can be told apart to the end. */
void sglir_set_origin_made(sglir_graph *g, const sglir_graph *from, sglir_id node, const char *pass);
sgl_status sglir_fail_node(sglir_graph *g, sglir_id node, sgl_status status, const char *format, ...) SGL_PRINTF(4, 5);
/* At a node of the graph that g is made from. */
sgl_status sglir_fail_from(sglir_graph *g, const sglir_graph *from, sglir_id node, sgl_status status,
                           const char *format, ...) SGL_PRINTF(5, 6);
sgl_status sglir_fail_here(sglir_graph *g, const char *op, const char *format, ...)
    SGL_PRINTF(3, 4); /* TYPE at the current origin */

/* Formulas. Elementwise ones broadcast and promote, as sglir_build; `like` gives dtype and shape. */
sglir_id sglir_constant(sglir_graph *g, sgl_dtype dtype, double value);    /* rank 0 */
sglir_id sglir_constant_like(sglir_graph *g, sglir_id like, double value); /* broadcast to its shape */
sglir_id sglir_unary(sglir_graph *g, sglir_op op, sglir_id x);
sglir_id sglir_binary(sglir_graph *g, sglir_op op, sglir_id a, sglir_id b);
sglir_id sglir_add(sglir_graph *g, sglir_id a, sglir_id b);
sglir_id sglir_sub(sglir_graph *g, sglir_id a, sglir_id b);
sglir_id sglir_mul(sglir_graph *g, sglir_id a, sglir_id b);
sglir_id sglir_div(sglir_graph *g, sglir_id a, sglir_id b);
sglir_id sglir_scale(sglir_graph *g, sglir_id x, double factor); /* x * factor, in x's dtype */
sglir_id sglir_select(sglir_graph *g, sglir_id condition, sglir_id yes, sglir_id no);
sglir_id sglir_cast(sglir_graph *g, sglir_id x, sgl_dtype to); /* x itself when it has that dtype */
sglir_id sglir_reduce(sglir_graph *g, sglir_op op, sglir_id x, const int64_t *axes, int count, bool keep);
sglir_id sglir_reshape(sglir_graph *g, sglir_id x, int rank, const int64_t *dims); /* x itself when nothing changes */
sglir_id sglir_reshape_like(sglir_graph *g, sglir_id x, sglir_id like);
sglir_id sglir_broadcast(sglir_graph *g, sglir_id x, int rank, const int64_t *dims); /* NumPy: aligned at the end */
sglir_id sglir_broadcast_like(sglir_graph *g, sglir_id x, sglir_id like);
sglir_id sglir_sum_to_shape(sglir_graph *g, sglir_id x, int rank, const int64_t *dims); /* the transpose of broadcast */
sglir_id sglir_transpose(sglir_graph *g, sglir_id x, const int64_t *order);
sglir_id sglir_slice(sglir_graph *g, sglir_id x, int axis, int64_t start, int64_t stop);
sglir_id sglir_pad(sglir_graph *g, sglir_id x, int axis, int64_t before, int64_t after); /* with zeros */
/* Each element one place further along axis, or one back to the start; the place left free is 0, the last one is lost. */
sglir_id sglir_shift(sglir_graph *g, sglir_id x, int axis, bool back);
sglir_id sglir_recurrence(sglir_graph *g, sglir_id a, sglir_id b, int axis, bool reverse);
/* dot_general as in XLA: result dims are [batch..., free of a..., free of b...]. */
sglir_id sglir_dot(sglir_graph *g, sglir_id a, sglir_id b, int batch, const int64_t *batch_a, const int64_t *batch_b,
                   int contract, const int64_t *contract_a, const int64_t *contract_b);

/* ---- reading ------------------------------------------------------------------------------------------------ */

static inline const sglir_node *sglir_node_at(const sglir_graph *g, sglir_id node) { return &g->nodes.data[node]; }
static inline const sglir_value *sglir_value_at(const sglir_graph *g, sglir_id value) { return &g->values.data[value]; }
static inline const sglir_type *sglir_type_of(const sglir_graph *g, sglir_id value)
{
    return &g->values.data[value].type;
}
static inline sglir_id sglir_arg(const sglir_graph *g, const sglir_node *node, uint32_t i)
{
    return g->args.data[node->arg_first + i];
}
/* Where an INPUT lives, of the stages of a pipeline. One that has a home stays in the graph, whether it is read or not. */
enum { SGLIR_HOME_UNSAID = -1, SGLIR_HOME_ALL = -2 };
int64_t sglir_home_of(const sglir_graph *g, sglir_id input); /* of the node */
void sglir_set_home(sglir_graph *g, sglir_id input, int64_t home);
/* Of a state by name, itself an INPUT or a member of a section; false: the graph has none. */
bool sglir_state_home(const sglir_graph *g, const char *name, int64_t *home);
/* Its results are the bytes of argument 0, seen otherwise. */
static inline bool sglir_is_view(const sglir_node *node) { return (sglir_ops[node->op].flags & SGLIR_VIEW) != 0; }
/* NULL: it is no part, or nobody said of what. */
static inline const sglir_whole *sglir_whole_of(const sglir_graph *g, sglir_id value)
{
    uint32_t whole = g->values.data[value].whole;
    return whole != 0 ? &g->wholes.data[whole - 1] : NULL;
}
/* The node that makes the value, NULL for a region's parameter. Pointers into a graph die when it grows. */
const sglir_node *sglir_maker(const sglir_graph *g, sglir_id value);
/* A loop runs its last region, its body, over and over; its regions' parameters are (index, carries). */
static inline bool sglir_is_loop(const sglir_node *node)
{
    return node->op == SGLIR_OP_SCAN || node->op == SGLIR_OP_WHILE;
}
/* A loop or a branch: its regions are run as blocks of their own, where a kernel's is one piece. */
static inline bool sglir_is_control(const sglir_node *node) { return sglir_is_loop(node) || node->op == SGLIR_OP_COND; }
static inline bool sglir_is_move(sglir_op op) { return (sglir_ops[op].flags & SGLIR_MOVE) != 0; }
static inline bool sglir_is_exchange(sglir_op op) { return (sglir_ops[op].flags & SGLIR_EXCHANGE) != 0; }
/* What ranks exchange, or which of them this one is: no op of one rank's mathematics. */
static inline bool sglir_is_among_ranks(sglir_op op)
{
    return sglir_is_exchange(op) || op == SGLIR_OP_COORDINATE || op == SGLIR_OP_SHARE || op == SGLIR_OP_WAIT;
}
/* What begins where it stands and ends where it is waited for: exchanges and moves; and the op that waits for each. */
static inline bool sglir_is_begun(sglir_op op) { return (sglir_ops[op].flags & (SGLIR_EXCHANGE | SGLIR_MOVE)) != 0; }
static inline bool sglir_is_wait(sglir_op op) { return op == SGLIR_OP_WAIT || op == SGLIR_OP_ARRIVED; }
static inline sglir_id sglir_body(const sglir_node *node) { return node->region_first + node->region_count - 1; }
/* As many regions as nodes of the op hold. */
static inline int sglir_region_count(sglir_op op)
{
    return op == SGLIR_OP_COND || op == SGLIR_OP_WHILE ? 2 : sglir_ops[op].flags & SGLIR_REGION ? 1 : 0;
}
/* Attributes by name; the name must be in the op's schema (asserted). */
int64_t sglir_attr_int(const sglir_graph *g, const sglir_node *node, const char *name);
double sglir_attr_float(const sglir_graph *g, const sglir_node *node, const char *name);
const char *sglir_attr_string(const sglir_graph *g, const sglir_node *node, const char *name);
const int64_t *sglir_attr_ints(const sglir_graph *g, const sglir_node *node, const char *name, int *count);
const double *sglir_attr_floats(const sglir_graph *g, const sglir_node *node, const char *name, int *count);
/* Fills `named` with the node's attributes, ready for sglir_emit into another graph. Returns the count.
 * The lists point into g. */
int sglir_attrs_named(const sglir_graph *g, const sglir_node *node, sglir_named named[SGLIR_MOST_ATTRS]);
/* "llama.lua:42" or "autodiff of llama.lua:42" or "" */
const char *sglir_origin_text(const sglir_graph *g, uint32_t origin, char *text, size_t size);
/* The splat value of a constant (through broadcasts and reshapes); false when it is none. */
bool sglir_constant_value(const sglir_graph *g, sglir_id value, double *out);

/* How the dimensions of an op's arguments and results belong together: the one description that sharding, micro
 * batching and the cost rules read (as einsum labels: dims with the same label run together). Label values are small
 * numbers from 0; -1 marks a dimension that cannot be split. A label that stands in arguments only is summed over: a
 * result is then partial when it is split. Labels of results come after those of the arguments. */
typedef struct sglir_labels {
    int8_t args[SGLIR_MOST_ARGS][SGL_MAX_RANK];
    int8_t results[SGLIR_MOST_RESULTS][SGL_MAX_RANK];
    int count;        /* of labels */
    uint32_t summed;  /* bit per label: contracted by a sum when split (dot, reduce_sum) */
    uint32_t refused; /* bit per label: cannot be split at all */
} sglir_labels;
/* False for nodes with more than SGLIR_MOST_ARGS arguments (pack, concat: handled by their callers) or none that makes sense. */
bool sglir_labels_of(const sglir_graph *g, const sglir_node *node, sglir_labels *labels);

/* In place of a dimension. */
enum {
    SGLIR_WHOLE = -1 /* the same on every rank of the axis */,
    SGLIR_PARTIAL = -2 /* a sum over the axis is owed */
};
/* How a node runs along an axis of ranks over which its first argument is split along a dimension that its labels refuse
 * (beyond.c): per argument and result a dimension, or one of the above. */
typedef struct sglir_beyond {
    int8_t args[SGLIR_MOST_ARGS], results[SGLIR_MOST_RESULTS];
    bool extreme; /* each rank's maximum or minimum, one of as many as there are ranks, of which all_max makes one */
} sglir_beyond;
/* False: it cannot. */
bool sglir_beyond_of(const sglir_graph *g, const sglir_node *node, int dim, sglir_beyond *beyond);

/* ---- walk: what passes ask ----------------------------------------------------------------------------------- */

/* The node was made by the pass, as its origin says. */
bool sglir_is_made_by(const sglir_graph *g, const sglir_node *node, const char *pass);
/* Number of uses of each value as argument, region result or output; out has values.count entries. */
void sglir_count_uses(const sglir_graph *g, uint32_t *out);
/* Marks (1) in out[values.count] every value that depends on one of `from`, within the top region and below. */
void sglir_mark_dependents(const sglir_graph *g, const sglir_id *from, int count, uint8_t *out);
/* Marks (1) in out[nodes.count] every node that an output, an effect or a region result needs. */
sgl_status sglir_mark_live(const sglir_graph *g, uint8_t *out);
/* Last position (in the region's node order) at which each value of the region is used; region results and outputs
 * count as used past the end. Uses inside nested regions count at the position of the node that holds them. */
void sglir_last_uses(const sglir_graph *g, sglir_id region, int64_t *out);
/* Ranks exchange in the node, or in a region within it that is run as a block of its own. */
bool sglir_exchanges(const sglir_graph *g, const sglir_node *node);
/* Calls back for each use, in the node's regions and in those within, of a value that is not made in them. */
void sglir_each_capture(const sglir_graph *g, const sglir_node *node, void (*use)(void *user, sglir_id value),
                        void *user);

/* ---- rewrite: how a pass builds its graph --------------------------------------------------------------------- */

typedef struct sglir_rewrite {
    const sglir_graph *from;
    sglir_graph *to;
    sglir_id *map; /* from-value to to-value, SGLIR_NONE while not made; from->values.count entries */
    void *user;
    const char *pass;    /* named in the origins of what rules emit */
    const uint8_t *live; /* per node of `from`, by sglir_mark_live: what copies of regions keep; NULL: all */
} sglir_rewrite;

/* A rule looks at one node of `from`. It returns false to have the node copied as it is, or true after it has put the
 * ids of the values that stand for the results into rewrite->map (SGLIR_NONE entries: the value must have no user). */
typedef bool (*sglir_rule)(sglir_rewrite *rewrite, sglir_id node);

/* Visits the live nodes in order, regions included (a region node not taken by the rule is rebuilt around its visited
 * regions), copies outputs and members; origins are kept. *to is a new graph. */
sgl_status sglir_rewrite_graph(sglcore_env *env, const sglir_graph *from, const char *pass, sglir_rule rule, void *user,
                               sglir_graph **to);
/* For rules: copies one node with mapped arguments, of a live one's regions what is live; results go into the map. */
void sglir_copy_node(sglir_rewrite *rewrite, sglir_id node);
/* The same for a node with regions, built around what the filler emits for each of them: the region's parameters are
 * mapped before it is called. It may put a value other than the map's into results[i], which are SGLIR_NONE at first. */
typedef void (*sglir_filler)(void *user, sglir_id region, sglir_id *results);
void sglir_copy_around(sglir_rewrite *rewrite, sglir_id node, sglir_filler filler, void *user);
/* For rules and passes of their own walk: a rewrite over an empty new graph, and the copy of outputs and members. */
sgl_status sglir_rewrite_begin(sglcore_env *env, const sglir_graph *from, const char *pass, void *user,
                               sglir_rewrite *rewrite);
sgl_status sglir_rewrite_end(sglir_rewrite *rewrite, bool copy_outputs,
                             sglir_graph **to); /* frees the map; NULL on failure */

/* ---- composites ----------------------------------------------------------------------------------------------- */

/* Emits the decomposition of a composite into g: args are ids in g. Writes the results. The node's attributes come
 * from `node` of `from` (which may be g). */
typedef void (*sglir_compose_fn)(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                                 sglir_id *results);
/* NULL for primitives. */
sglir_compose_fn sglir_compose_rule(sglir_op op);

/* ---- verify, text, meaning -------------------------------------------------------------------------------------- */

typedef enum sglir_stage { SGLIR_LOGICAL, SGLIR_PER_RANK, SGLIR_FUSED, SGLIR_PLACED } sglir_stage;
/* Checks what every graph of the stage must be: order, arity, attributes, types re-inferred, linearity where partial or
 * scaled, regions closed, outputs there and nothing owed on them, no `grad` after autodiff, slots within their space. */
sgl_status sglir_verify(const sglir_graph *g, sglir_stage stage);

/* Text form; parse(print(g)) has the hashes of g. */
sgl_status sglir_print(const sglir_graph *g, sgl_write_fn write, void *user);
/* The same with remarks, which the parser skips: what `remark` adds to the text stands behind `#` at the end of a node's line,
 * or of the graph's first where node is SGLIR_NONE. */
typedef sgl_status (*sglir_remark)(void *of, const sglir_graph *g, sglir_id node, sglcore_text *text);
sgl_status sglir_print_remarked(const sglir_graph *g, sglir_remark remark, void *of, sgl_write_fn write, void *user);
sgl_status sglir_print_dot(const sglir_graph *g, sgl_write_fn write, void *user);
sgl_status sglir_parse(sglcore_env *env, const char *name, const char *text, size_t length, sglir_graph **graph);

/* Ops, attributes, types, structure; no names, lines, ids. */
sglcore_hash sglir_math_hash(const sglir_graph *g);
/* Adds names of inputs and outputs, members, slots, and the library's version. */
sglcore_hash sglir_job_hash(const sglir_graph *g);

#endif

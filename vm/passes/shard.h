/* shard.h -- inside the pass `shard`: forms of values over the mesh, how a node runs under them, and how a value is
 * brought from one form into another.
 *
 * shard.c walks the graph, after shard_apart.c and shard_packs.c took apart what cannot be split as one; shard_demand.c
 * says in which parts values will be wanted; shard_choose.c along which labels a node runs, shard_beyond.c which run
 * without; shard_attention.c how attention over parts of the sequence does, shard_ring.c block by block; shard_turn.c
 * turns values from form to form, shard_forms.c says which there are and what others cost; shard_emit.c emits a node
 * with local extents; shard_region.c does so for loops and branches. Odd invariant: a value of the old graph may stand
 * in the new one in several forms at once; each is made once per region and found again. */
#ifndef SGLPASS_SHARD_H
#define SGLPASS_SHARD_H

#include "passes/pass.h"
#include "plan/mesh.h"

/* In place of a dimension. */
enum { SGLPASS_WHOLE = SGLIR_WHOLE, SGLPASS_PARTIAL = SGLIR_PARTIAL };

typedef struct sglpass_form {
    int8_t at[SGLIR_AXIS_COUNT]; /* per axis: the dimension that is split over it, or one of the above */
    int64_t unit[SGL_MAX_RANK];  /* per dimension: where it is split, it is cut at multiples of this; 1 elsewhere */
    int8_t ring;                 /* an axis along which parts lie: whose part it is counts places round it */
    int32_t by;                  /* so many before this rank; 0: its own; beyond the extent: that, sent once more */
} sglpass_form;

/* How one node runs. */
typedef struct sglpass_way {
    sglir_id node;
    uint32_t form_first;   /* sharder->forms: of each argument, then of each result */
    sglplan_axes by_heads; /* attention takes parts of its heads over these; what it makes is turned back */
    sglplan_axes owed;     /* its gradient owes sums over these of what lies in parts of the sequence: handed out */
    sglplan_axes ring;     /* it takes keys and values block by block round this one; 0: it does not */
    int32_t blocks;        /* how many other ranks' */
} sglpass_way;

enum { SGLPASS_SEQUENCE = 1, SGLPASS_HEADS = 2 }; /* dimensions of attention's queries, and of what is made of them */

typedef struct sglpass_made {
    sglir_id value, made; /* of the old graph, of the new one */
    sglpass_form form;
    uint32_t before; /* 1 + place of the one made before it of the same value, 0: none */
} sglpass_made;

typedef struct sglpass_sharder {
    const sglpass_context *context;
    sglcore_env *env;
    const sglir_graph *from;
    sglir_graph *to;
    sglir_rewrite rewrite;
    const int8_t *demands; /* SGLIR_AXIS_COUNT per old value: the dimension that will be wanted split, -1: none */
    const uint8_t *live;   /* per node */
    sglplan_coordinate at; /* of the rank whose program it is */
    sglir_id coordinate[SGLIR_AXIS_COUNT]; /* as values; SGLIR_NONE where the axis has one place */
    uint32_t *latest;                      /* per old value: 1 + place in `made` of its last form, 0: none */
    SGLCORE_VEC(sglpass_made) made;        /* of regions that are open */
    SGLCORE_VEC(sglpass_form) forms;       /* a stack, for nodes at hand */
    SGLCORE_VEC(sglir_id) ids;             /* a stack too */
} sglpass_sharder;

static inline int64_t sglpass_extent(const sglpass_sharder *s, int axis)
{
    return axis == SGLIR_AXIS_MICRO ? 1 : s->context->plan->mesh[axis];
}

sglpass_form sglpass_form_whole(void);
/* The local extent of an extent that is split over `axes`, cut at multiples of unit. */
int64_t sglpass_local(const sglpass_sharder *s, int64_t extent, int64_t unit, sglplan_axes axes);
sglplan_axes sglpass_axes_of(const sglpass_form *form, int at); /* those that have `at` */
/* Of the rank that has most, the first: all ranks must find the same. */
double sglpass_local_bytes(const sglpass_sharder *s, sglir_id value, const sglpass_form *form);

/* ---- values by form (shard_forms.c) ------------------------------------------------------------------------------ */

/* Whether a dimension that both have split over axes is cut at the same places. */
bool sglpass_cut_alike(const sglpass_sharder *s, sglir_id value, int dim, const sglpass_form *a, const sglpass_form *b,
                       sglplan_axes axes);
/* The old value stands in the new graph as `made`, in this form. */
void sglpass_put(sglpass_sharder *s, sglir_id value, sglir_id made, const sglpass_form *form);
/* The form in which it was made first; NULL: it was not. */
const sglpass_made *sglpass_first(const sglpass_sharder *s, sglir_id value);
/* Forgets what was made since `made` had so many entries: the region in which it stands is closed. */
void sglpass_forget(sglpass_sharder *s, int64_t count);
/* NULL: it is not there so. */
const sglpass_made *sglpass_find(const sglpass_sharder *s, sglir_id value, const sglpass_form *form);
/* Bytes that each rank sends to have the value so. */
double sglpass_price(const sglpass_sharder *s, sglir_id value, const sglpass_form *form);
/* Bytes sent to turn what is there in one form into another. */
double sglpass_price_from(const sglpass_sharder *s, sglir_id value, const sglpass_form *have, const sglpass_form *want);

/* Axes that move from one dimension to another in one all_to_all. */
typedef struct sglpass_move {
    sglplan_axes axes; /* 0: none */
    int from, to;
    bool even_to; /* whether all ranks' parts of `to` are as large; else those of `from` are */
} sglpass_move;

/* One that brings `have` nearer to `want`: one of its dimensions is cut evenly, so that what goes to a rank, or comes
 * from it, is one range of a transposed value. */
sglpass_move sglpass_find_move(const sglpass_sharder *s, sglir_id value, const sglpass_form *have,
                               const sglpass_form *want);
void sglpass_apply_move(sglpass_form *form, const sglpass_move *m, const sglpass_form *want);

/* ---- from form to form (shard_turn.c) ---------------------------------------------------------------------------- */

/* The value in this form: found, or made from one that is there. */
sglir_id sglpass_take(sglpass_sharder *s, sglir_id value, const sglpass_form *form);
/* A node `terms`: this rank's terms of its argument, whatever form that is there in, without an exchange. */
void sglpass_emit_terms(sglpass_sharder *s, const sglir_node *node);
/* At which element of an extent, split along dim as the form says, this rank's part begins. */
sglir_id sglpass_begin(sglpass_sharder *s, const sglpass_form *form, int dim, int64_t extent);
/* Along an axis from which element of an extent this rank's part begins, as a value: i64 []. */
sglir_id sglpass_start(sglpass_sharder *s, int axis, int64_t extent, int64_t unit);
/* That of the rank at a place along it, which is such a value too. */
sglir_id sglpass_start_at(sglpass_sharder *s, sglir_id place, int axis, int64_t extent, int64_t unit);

/* Writes down of what value of these extents `made` is this rank's part in that form; order: its dimension i is the
 * value's order[i]; NULL: i. (shard_emit.c) */
void sglpass_tell(sglpass_sharder *s, sglir_id made, const int64_t *dims, const sglpass_form *form,
                  const int64_t *order);

/* shard_demand.c: fills demands. */
sgl_status sglpass_demands(sglpass_sharder *s, sglcore_arena *arena);

/* ---- beyond labels (shard_beyond.c) ------------------------------------------------------------------------------ */

/* The number of the argument that is the offset of attention or rope; -1: there is none. */
int sglpass_offset_of(const sglir_graph *g, const sglir_node *node);
/* Taken arguments that count from the start of the whole: they count from this rank's. */
void sglpass_move_beyond(sglpass_sharder *s, const sglpass_way *run, sglir_id *args);
/* The maximum or minimum of an argument that is split where it is reduced; false: the node is no such one. */
bool sglpass_emit_extreme(sglpass_sharder *s, const sglpass_way *run, sglir_id x, sglir_id *out);

/* ---- attention block by block (shard_ring.c) --------------------------------------------------------------------- */

/* How many other ranks' blocks of keys some rank's queries see round the axis; -1: queries and keys do not both lie
 * along the sequence over that axis alone. The forms of its arguments are those from `first` on. */
int sglpass_ring_blocks(const sglpass_sharder *s, const sglir_node *node, uint32_t first, int axis);
/* Of the same argument, keys or values or segments of keys, the block of the rank `by` places before. */
sglpass_form sglpass_ring_form(const sglpass_sharder *s, const sglir_node *node, const sglpass_form *own, int axis,
                               int by);
bool sglpass_is_ring_arg(const sglpass_sharder *s, const sglir_node *node, uint32_t arg);
/* The node's arguments as they were taken stand at s->ids from `first` on; its results go behind them. */
sgl_status sglpass_emit_ring(sglpass_sharder *s, const sglpass_way *run, int64_t first);
/* What the rank `by` places before this one has of a value of these whole extents. made, in this form: of the rank `of`
 * places before this one the part. */
sglir_id sglpass_shift(sglpass_sharder *s, sglir_id made, const int64_t *dims, const sglpass_form *form, int of,
                       int by);

/* ---- nodes (shard_choose.c, shard_emit.c, shard_region.c) -------------------------------------------------------- */

/* How the node runs where it costs least; forms are pushed onto s->forms. */
sgl_status sglpass_choose(sglpass_sharder *s, sglir_id node, sglpass_way *run);
/* The same where result 0 is wanted in this form, which is split where its first one is whole: false when the node
 * cannot be run so from what its arguments are, or memory ran out, which sticks to the new graph. */
bool sglpass_choose_along(sglpass_sharder *s, sglir_id node, const sglpass_form *wanted, sglpass_way *run);
sgl_status sglpass_emit(sglpass_sharder *s, const sglpass_way *run);
sgl_status sglpass_emit_input(sglpass_sharder *s, sglir_id node);
sgl_status sglpass_emit_control(sglpass_sharder *s, sglir_id node);
/* All live nodes of a region of the old graph, in order. */
sgl_status sglpass_emit_nodes(sglpass_sharder *s, sglir_id region);

#endif

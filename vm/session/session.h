/* session.h -- the VM and the session from inside: who owns what, and in which order it goes.
 *
 * A VM owns everything made from it, in lists, so that sgl_close frees what a host forgot. A session owns one device, the
 * state block with its layout, and its programs: training, evaluation and generation programs meet in the states that
 * they name alike. */
#ifndef SGLSESSION_SESSION_H
#define SGLSESSION_SESSION_H

#include <stdatomic.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "exec/net.h"
#include "ir/ir.h"
#include "ir/padding.h"
#include "passes/pass.h"
#include "plan/mesh.h"
#include "plan/plan.h"
#include "store/box.h"
#include "store/store.h"

/* A link in one of the VM's lists; the first member of what is listed. */
typedef struct sglsession_link {
    struct sglsession_link *next, **at;
} sglsession_link;

typedef struct sglsession_hook {
    sglsession_link link;
    void (*close)(void *user);
    void *user;
} sglsession_hook;

struct sgl_vm {
    sglcore_env env;
    int threads;
    atomic_int interrupted; /* what runs stops at the next step */
    atomic_bool stop_now;   /* and replay between two instructions */
    sglsession_link *hooks, *graphs, *plans, *sessions, *tokens;
    char *found_path, *found_meta; /* of sgl_checkpoint_find */
};

struct sgl_graph {
    sglsession_link link;
    sgl_vm *vm;
    sglir_graph *ir;
    sglir_padding *padding; /* NULL: no dim with buckets was declared */
};

struct sgl_plan {
    sglsession_link link;
    sgl_vm *vm;
    sglplan plan;
};

struct sgl_tokens {
    sglsession_link link;
    sgl_vm *vm;
    sglstore_tokens *tokens;
    int32_t *inputs, *targets; /* of one batch, for sgl_train */
    int64_t buffer_bytes;
};

struct sgl_program {
    sglsession_link link;
    sgl_session *session;
    sglexec_program *program;
    sglir_graph *placed;          /* the graph it was frozen from, for reports */
    sglplan plan;                 /* as the passes had it */
    int64_t ranks, rank;          /* of its mesh */
    sglcore_hash job;             /* of the traced graph */
    sglexec_exchanges *exchanges; /* NULL: none, or the ranks have not met yet */
    void *prepared;
    bool settled;             /* what prepare began is done */
    void *io, *constants;     /* device blocks of program->space_bytes, NULL until first used */
    sglexec_profile *profile; /* NULL: not measured */
    sglexec_trace *trace;     /* NULL: nobody looks at the numbers */
    char *parameters; /* names in the order of the traced graph, each with its zero; NULL where no loss is scaled */
    int64_t parameter_bytes;
    int64_t max_skips;
    bool learns; /* it updates parameters or states, not caches alone */
    int64_t steps_done;
};

/* What a rank tells all others where they agree, and what they agree on. */
typedef struct sglsession_note {
    int32_t status;  /* sgl_status, of this rank */
    int32_t stop;    /* it wants to stop; then: any does */
    int32_t unsaved; /* it has steps that are in no checkpoint; then: rank 0 has */
    uint32_t fed;    /* the hash of what it was fed that must be alike */
} sglsession_note;

/* The ranks among which a session is one. */
typedef struct sglsession_world {
    const sglexec_comm_ops *ops;
    sglexec_comm *comm; /* NULL: not joined, a world of one */
    sglexec_net *net;
    int rank; /* of a session that has not joined: whose programs are planned */
    int ranks;
    sglsession_note *notes; /* of all ranks */
    uint32_t fed;           /* by sgl_feed_alike, since the ranks agreed */
    int told_by;            /* of what they failed with together last: the rank that prints it; -1: nothing */
    int busy;               /* how many works are under way that say so */
    bool host_busy;         /* one of them is the host's */
} sglsession_world;

struct sgl_session {
    sglsession_link link;
    sgl_vm *vm;
    sglsession_world world;
    const sglexec_device_ops *ops;
    sglexec_device_ops looking; /* sgl_session_look: the null device, but that it plans as another */
    sglexec_device *device;
    sglir_graph
        *layout; /* INPUT nodes with places, and members: where each state lives; the scope of an INPUT's origin is
                            the name of the program that brought it */
    void *state; /* device block; what has been planned may be more than what is there yet */
    int64_t state_bytes, state_planned;
    void *arena; /* device block that all programs use in turn: nothing in it outlives a step */
    int64_t arena_bytes, arena_planned;
    void *away, *host; /* as state and arena, in memory of the host that the device reaches */
    int64_t away_bytes, away_planned, host_bytes, host_planned;
    char *locked; /* the folder of checkpoints that this session alone may write; NULL: none */
    int lock;     /* its file */
    SGLCORE_VEC(struct sglsession_split) splits; /* states of which each rank has a part */
    sglcore_map warned;                          /* of sglpass_context: said once for all programs */
    bool torn; /* a program that learns failed or was stopped within a step: the states are of no step */
    sglsession_link *programs;
};

/* INVALID_ARGUMENT; the message, "CALL: WHAT", stands in the VM where there is one. */
sgl_status sglsession_refuse(sgl_vm *vm, const char *call, const char *what);
/* For the first lines of a public function. */
#define SGLSESSION_NEEDS(condition, vm, what)                                                                          \
    do {                                                                                                               \
        if (!(condition)) return sglsession_refuse((vm), __func__, (what));                                            \
    } while (0)
/* Hands the text to a host's writer. What the writer fails with has a message, its own or one that names the call. */
sgl_status sglsession_hand(sgl_vm *vm, const char *call, const sglcore_text *text, sgl_write_fn write, void *user);

void sglsession_link_in(sglsession_link **list, sglsession_link *link);
/* The host's handle of a graph, in the VM's list; the graph is freed when there is no memory for it. */
sgl_status sglsession_graph_take(sgl_vm *vm, sglir_graph *ir, sgl_graph **graph);
void sglsession_link_out(sglsession_link *link);
/* Frees what was declared of the graph's padding. */
void sglsession_forget_padding(sgl_graph *graph);

/* Every parameter, state and cache of the session by name: where it lies in the state block. Returns false past the end. */
typedef struct sglsession_state {
    const char *name;
    sgl_role role;
    sgl_type type;                        /* of the whole */
    const struct sglsession_split *split; /* NULL: every rank has the whole */
    sglstore_box box;                     /* what this rank has */
    uint8_t space;                        /* STATE or AWAY: of which block (sglsession_states) */
    int64_t offset, bytes;                /* of that, in the block */
    const char *program;                  /* that brought it */
    bool made; /* by a pass: it begins as `initial` throughout, and a checkpoint may lack it */
    double initial;
} sglsession_state;
static inline int64_t sglsession_whole_bytes(const sglsession_state *state)
{
    const sglstore_box whole = sglstore_box_whole(&state->type);
    return sglcore_dtype_bytes(state->type.dtype, sglstore_box_elements(state->type.rank, &whole));
}
/* The block in which states of the space lie, which is ready. */
static inline void *sglsession_states(const sgl_session *session, uint8_t space)
{
    return space == SGLIR_SPACE_AWAY ? session->away : session->state;
}
bool sglsession_state_at(const sgl_session *session, int64_t index, sglsession_state *state);
/* The program that brought the INPUT of a layout. */
const char *sglsession_brought_by(const sglir_graph *layout, sglir_id input);
bool sglsession_state_find(const sgl_session *session, const char *name, sglsession_state *state);

/* How a state is cut: over each axis along which dimension, -1: along none; and where it lives. */
typedef struct sglsession_split {
    sglcore_hash name;
    sgl_type whole;
    int8_t at[SGLIR_AXIS_COUNT];
    int64_t mesh[SGLIR_AXIS_COUNT];
    int64_t stage; /* of a pipeline, which alone has it; below 0: every stage has it */
} sglsession_split;
/* NULL: every rank has the whole. */
const sglsession_split *sglsession_split_find(const sgl_session *session, const char *name);
/* What a rank of the mesh has of it; and whether no rank before it has the same. */
sglstore_box sglsession_box(const sglsession_split *split, int64_t rank);
bool sglsession_has_first(const sglsession_split *split, int64_t rank);
/* TYPE unless the plan cuts the state, which program `brought_by` has brought, as it is cut. */
sgl_status sglsession_check_split(const sgl_session *session, const sglir_graph *traced, const sglir_node *node,
                                  const sglplan *plan, const char *brought_by);
/* Notes how the plan cuts states that the session does not have yet, and on which stage the placed graph has them. */
sgl_status sglsession_keep_splits(sgl_session *session, const sglir_graph *traced, const sglir_graph *placed,
                                  const sglplan *plan);
/* Of a state that is split, in memory that is ready: writes this rank's part of the whole; gathers the whole over the ranks, all
 * of which call it. */
sgl_status sglsession_write_part(sgl_session *session, const sglsession_state *state, const void *whole);
sgl_status sglsession_read_whole(sgl_session *session, const sglsession_state *state, void *whole);

/* Device memory is taken when it is first used, so that planning alone takes none: the state block, or everything that
 * the program needs to be fed and stepped. Does nothing when it is there. */
sgl_status sglsession_ready_states(sgl_session *session);
sgl_status sglsession_ready(sgl_program *program);
/* The same without what takes other ranks. */
sgl_status sglsession_ready_memory(sgl_program *program);
/* Where the places of a space begin, of a program that is ready. */
void *sglsession_space(const sgl_program *program, uint8_t space);
/* Writes its initial value throughout a state that a pass has made. */
sgl_status sglsession_begin_state(sgl_session *session, const sglsession_state *state);
/* The same for all of a block that lie from offset `before` on, where their place is new. */
sgl_status sglsession_begin_states(sgl_session *session, sglir_space space, int64_t before);
/* Keeps the names of the traced graph's parameters with the program, which then watches its skipped steps. */
sgl_status sglsession_keep_names(sgl_program *program, const sglir_graph *traced);
/* LIMIT when the program has skipped as many steps one after another as its plan allows. */
sgl_status sglsession_check_skips(sgl_program *program, int64_t step);
/* What an interrupt asked for is done. */
void sglsession_resume(sgl_vm *vm);
/* Two handles of one call must be of one VM; the message, in the first one's, names the call and what is of another. */
sgl_status sglsession_same_vm(sgl_vm *vm, const sgl_vm *other, const char *call, const char *what);
/* INVALID_ARGUMENT, with the message in `vm`, unless graph and plan (NULL is allowed) are of that VM; TYPE where the graph
 * wants a state that the session has otherwise. */
sgl_status sglsession_check(const sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, const char *call);
/* What each feed of the frozen program is a part of: its type in the traced graph, cut as the placed graph's layout says. */
sgl_status sglsession_lay_feeds(sgl_program *program, const sglir_graph *traced);
/* The world of an open comm, which is closed with the session, or here where that fails. */
sgl_status sglsession_take_world(sgl_session *session, const sglexec_comm_ops *ops, sglexec_comm *comm);
/* Leaves the world; before the device is closed. */
void sglsession_leave(sgl_session *session);
/* Which rank of the plan's mesh this session is, of how many. INVALID_ARGUMENT: the world has another number of ranks, or the
 * mesh has no such rank. */
sgl_status sglsession_place(const sgl_session *session, const sglplan *plan, int64_t *rank, int64_t *ranks);
/* What has to be so before a program of several ranks is fed or stepped, once: all ranks have the same graph, plan and order of
 * exchanges, and its groups are made. All ranks call it. Does nothing for a program of one rank, or on a blank device. */
sgl_status sglsession_meet(sgl_program *program);
/* The same was done. */
bool sglsession_has_met(const sgl_program *program);
/* All ranks would come to the end of a step, as far as exchanges go; INVALID_ARGUMENT on all of them, with both sides of what
 * would hang, where not: *known then. All ranks call it. */
sgl_status sglsession_prove_order(sgl_program *program, bool *known);
/* All ranks tell each other their notes: in `note` this rank's own (the status is `mine`), then what they agree on. Where any of
 * them has failed all do, those that have not with the status and the message of the first that has; NOT_FOUND means an end
 * of data, and is an error where not all have it. Any call of it on one rank fits any other on another. */
sgl_status sglsession_agree(sgl_session *session, sgl_status mine, sglsession_note *note);
/* All ranks were given the same to train; INVALID_ARGUMENT on all, with what differs and both values, where not. All ranks call it. */
sgl_status sglsession_compare_runs(sgl_session *session, const sgl_train_config *config);
/* The world is lost. The message is left. */
bool sglsession_is_lost(const sgl_session *session);
/* A failure of this rank alone, whose message stands in the env, in the midst of what all ranks do: they are told. Returns it. */
sgl_status sglsession_lose(sgl_session *session, sgl_status status);
/* Long work without exchanges; may be nested. */
void sglsession_begin_busy(sgl_session *session, const char *what);
void sglsession_end_busy(sgl_session *session);
/* sgl_checkpoint_save, with what the ranks agreed on while they waited for it. */
sgl_status sglsession_save(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep,
                           sglsession_note *note);
/* How far a training run is; and the JSON object that its checkpoint keeps: the host's meta with that, and seed. */
typedef struct sglsession_progress {
    int64_t step; /* which is the data cursor too */
    int64_t evaluated, tokens_done;
} sglsession_progress;
sgl_status sglsession_train_meta(sglcore_env *env, const sgl_train_config *config, const sglsession_progress *progress,
                                 sglcore_text *text);
/* Gives the folder of sgl_checkpoint_lock back. */
void sglsession_unlock(sgl_session *session);
/* Frees what the last sgl_checkpoint_find handed out. */
void sglsession_forget_found(sgl_vm *vm);
/* The plan of the host, or the default one, with what the session's device runs whole. */
sglplan sglsession_plan(const sgl_session *session, const sgl_plan *plan);

#endif

/* sgl.h -- the public C API of sgl, whole.
 *
 * A host opens a VM, builds a graph (by hand with sgl_emit, or by loading a Lua script), freezes it into a program
 * bound to a session, and replays the program. The library never exits, prints or keeps global state; every call that
 * can fail returns a status, and sgl_error_message() then says what, where, and what to do (of a call that was given no
 * object at all there is no message: it has no VM to stand in). A VM and everything made
 * from it belong to one thread at a time; several VMs may live in one process.
 *
 * Ownership: what a call returns through a `**` argument belongs to the VM and is freed by its own *_free or by
 * sgl_close. Strings returned are valid until the object they came from is freed. */
#ifndef SGL_H
#define SGL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SGL_API __attribute__((visibility("default")))
#define SGL_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define SGL_API
#define SGL_PRINTF(format_at, first_at)
#endif

#define SGL_VERSION "0.1.0"
#define SGL_MAX_RANK 8

/* ---- status ------------------------------------------------------------------------------------------------- */

/* The one table of status codes: enum suffix, value, what it means. */
#define SGL_STATUS_MAP(X)                                                                                              \
    X(OK, 0, "success")                                                                                                \
    X(OUT_OF_MEMORY, 1, "an allocation failed")                                                                        \
    X(INVALID_ARGUMENT, 2, "an argument of a call is out of its range")                                                \
    X(TYPE, 3, "shapes or dtypes of a graph do not fit")                                                               \
    X(NOT_FOUND, 4, "a name is not there")                                                                             \
    X(IO, 5, "a file operation failed")                                                                                \
    X(CORRUPT, 6, "a file's content is not what it must be")                                                           \
    X(SCRIPT, 7, "a script raised an error")                                                                           \
    X(LIMIT, 8, "a bound set by the host was reached")                                                                 \
    X(INTERRUPTED, 9, "the host asked to stop")                                                                        \
    X(WRONG_STATE, 10, "a call came in the wrong order")                                                               \
    X(UNSUPPORTED, 11, "the device or build cannot do this")                                                           \
    X(DEVICE, 12, "a device or transport failed")                                                                      \
    X(INTERNAL, 13, "an invariant of the library does not hold; please report it")                                     \
    X(NOT_FINITE, 14, "a number came out infinite or NaN where that was looked for")

typedef enum sgl_status {
#define SGL_STATUS_ENUM(name, value, text) SGL_##name = value,
    SGL_STATUS_MAP(SGL_STATUS_ENUM)
#undef SGL_STATUS_ENUM
} sgl_status;

SGL_API const char *sgl_status_name(sgl_status status); /* "OUT_OF_MEMORY" */
SGL_API const char *sgl_status_text(sgl_status status); /* "an allocation failed" */
SGL_API const char *sgl_version(void);

/* ---- dtypes and types --------------------------------------------------------------------------------------- */

/* enum suffix, text form, bits per element */
/* clang-format off */
#define SGL_DTYPE_MAP(X)                                                                                              \
    X(F64, "f64", 64) X(F32, "f32", 32) X(BF16, "bf16", 16) X(F16, "f16", 16) X(F8E4M3, "f8e4m3", 8)                  \
    X(F8E5M2, "f8e5m2", 8) X(I64, "i64", 64) X(I32, "i32", 32) X(I16, "i16", 16) X(I8, "i8", 8)                       \
    X(U8, "u8", 8) X(U16, "u16", 16) X(U32, "u32", 32) X(I4, "i4", 4) X(BOOL, "bool", 8)

typedef enum sgl_dtype {
#define SGL_DTYPE_ENUM(name, text, bits) SGL_##name,
    SGL_DTYPE_MAP(SGL_DTYPE_ENUM)
#undef SGL_DTYPE_ENUM
    SGL_DTYPE_COUNT
} sgl_dtype;
/* clang-format on */

SGL_API const char *sgl_dtype_name(sgl_dtype dtype);
SGL_API sgl_status sgl_dtype_from_name(const char *name, sgl_dtype *dtype);

/* The type of a tensor: elements in row-major order, the last dimension contiguous. */
typedef struct sgl_type {
    sgl_dtype dtype;
    int32_t rank;
    int64_t dims[SGL_MAX_RANK];
} sgl_type;

/* ---- VM ----------------------------------------------------------------------------------------------------- */

typedef struct sgl_vm sgl_vm;

/* Like realloc with sizes: block NULL allocates, new_bytes 0 frees (and returns NULL). Blocks are aligned as malloc's. */
typedef void *(*sgl_alloc_fn)(void *user, void *block, size_t old_bytes, size_t new_bytes);

typedef enum sgl_log_level { SGL_LOG_ERROR, SGL_LOG_WARNING, SGL_LOG_INFO, SGL_LOG_DEBUG } sgl_log_level;
typedef void (*sgl_log_fn)(void *user, sgl_log_level level, const char *message);

/* Receives text or bytes piece by piece; a status other than OK stops the writer, which returns that status. */
typedef sgl_status (*sgl_write_fn)(void *user, const char *data, size_t bytes);

typedef struct sgl_config {
    sgl_alloc_fn alloc; /* NULL: malloc and free */
    void *alloc_user;
    sgl_log_fn log; /* NULL: silence */
    void *log_user;
    int threads; /* compute threads of the CPU backend, 0: one per core this process may use */
} sgl_config;

/* Opens a VM. config may be NULL. On failure *vm is NULL. */
SGL_API sgl_status sgl_open(const sgl_config *config, sgl_vm **vm);
/* Frees the VM and all that was made from it. NULL is allowed. */
SGL_API void sgl_close(sgl_vm *vm);
/* The message of the last call on this VM that failed; "" when none did. */
SGL_API const char *sgl_error_message(const sgl_vm *vm);
/* Asks what runs on this VM to stop, with INTERRUPTED: once, and sgl_train and sgl_generate stop at the next step (all ranks
 * after the same one, whoever was asked), sgl_freeze between two passes; twice, and a step stops between two of its
 * instructions: what it computed is lost, the states of a program that learns can be saved no more until a checkpoint is
 * loaded, and a world of ranks is lost with it. The status that tells of it takes the request back, and so does sgl_resume.
 * sgl_interrupt is safe in a signal handler. */
SGL_API void sgl_interrupt(sgl_vm *vm);
SGL_API void sgl_resume(sgl_vm *vm);
/* How often the VM has been asked to stop since the last request was taken back: 0, 1, or 2 for more. A script of the front
 * end asks too, and ends with INTERRUPTED at the first. */
SGL_API int sgl_interrupted(const sgl_vm *vm);

/* The nearest of `count` names to `name` by edit distance, or NULL when none is near: for "did you mean". */
SGL_API const char *sgl_nearest(const char *name, const char *const *names, int count);

/* Bytes of the well-formed UTF-8 sequence that `text` begins with, 0 when it begins with none. */
SGL_API int sgl_utf8_bytes(const char *text, size_t left);
/* Writes `text` in the quotes of JSON to out, no terminating zero, as far as capacity goes. Returns the bytes that the whole
 * needs, 0 when the text is not UTF-8. */
SGL_API size_t sgl_json_quote(const char *text, size_t bytes, char *out, size_t capacity);
/* "f32[16,256]"; SGL_TYPE_ROOM bytes hold any type. Returns text. */
#define SGL_TYPE_ROOM 200
SGL_API const char *sgl_type_text(const sgl_type *type, char *text, size_t capacity);

/* For front ends and bindings: the VM's allocator, its message, its log, and a call when it closes. */
SGL_API void *sgl_realloc(sgl_vm *vm, void *block, size_t old_bytes, size_t new_bytes);
SGL_API sgl_status sgl_fail(sgl_vm *vm, sgl_status status, const char *format, ...)
    SGL_PRINTF(3, 4); /* returns status */
SGL_API void sgl_log(sgl_vm *vm, sgl_log_level level, const char *format, ...) SGL_PRINTF(3, 4);
/* Calls close(user) at the start of sgl_close, last registered first; sgl_off_close takes it back. */
SGL_API sgl_status sgl_on_close(sgl_vm *vm, void (*close)(void *user), void *user);
SGL_API void sgl_off_close(sgl_vm *vm, void (*close)(void *user), void *user);

/* ---- graphs ------------------------------------------------------------------------------------------------- */

typedef struct sgl_graph sgl_graph;
typedef struct sgl_value {
    uint32_t id; /* SGL_NO_VALUE.id when there is none */
} sgl_value;
#define SGL_NO_VALUE ((sgl_value){ UINT32_MAX })

typedef enum sgl_role {
    SGL_PARAMETER, /* learnt, lives in a session, shared by name between programs */
    SGL_STATE,     /* kept between steps like a parameter (moments, counters), saved in checkpoints */
    SGL_FEED,      /* given by the host before a step */
    SGL_CACHE      /* kept between steps like a state, never saved (keys and values of a generation) */
} sgl_role;

/* An attribute of an op; which an op takes is a column of ops.def. */
typedef enum sgl_attr_kind {
    SGL_ATTR_INT,
    SGL_ATTR_FLOAT,
    SGL_ATTR_STRING,
    SGL_ATTR_DTYPE,
    SGL_ATTR_INTS,
    SGL_ATTR_FLOATS
} sgl_attr_kind;

typedef struct sgl_attr {
    const char *name;
    sgl_attr_kind kind;
    int64_t i;            /* INT; DTYPE as its enum; for INTS and FLOATS the count */
    double f;             /* FLOAT */
    const char *s;        /* STRING */
    const int64_t *ints;  /* INTS */
    const double *floats; /* FLOATS */
} sgl_attr;

SGL_API sgl_status sgl_graph_new(sgl_vm *vm, const char *name, sgl_graph **graph);
SGL_API void sgl_graph_free(sgl_graph *graph);

/* Sets the origin (script file, line, and module path such as "blocks.0.attn") of the nodes emitted from now on. */
SGL_API sgl_status sgl_graph_origin(sgl_graph *graph, const char *file, int line, const char *scope);

/* An input of the graph. Names are unique within a graph; parameters and states carry path names ("blocks.0.attn.wq"). */
SGL_API sgl_status sgl_input(sgl_graph *graph, sgl_role role, const char *name, const sgl_type *type, sgl_value *value);

/* Emits one op of ops.def. Elementwise ops broadcast (NumPy) and promote (JAX) their arguments. *count_out is the
 * number of results written to results (at most capacity; more is INVALID_ARGUMENT). */
SGL_API sgl_status sgl_emit(sgl_graph *graph, const char *op, const sgl_value *arguments, int argument_count,
                            const sgl_attr *attrs, int attr_count, sgl_value *results, int capacity, int *count_out);

/* Loops and branches ("scan", "while", "cond") hold regions: parts of the graph that are run over and over, or not at all.
 * First all regions of the op are taken (*first, and the following ids), then each is begun, given parameters, filled by
 * sgl_emit, and ended with what it yields; then the op is emitted around them. What stands around a region may be used in
 * it; what was made in one is seen only there. The index of a loop is its first parameter. Regions may hold regions. */
SGL_API sgl_status sgl_regions(sgl_graph *graph, const char *op, uint32_t *first, int *count);
SGL_API sgl_status sgl_region_begin(sgl_graph *graph, uint32_t region);
SGL_API sgl_status sgl_region_parameter(sgl_graph *graph, const sgl_type *type, sgl_value *value);
SGL_API sgl_status sgl_region_end(sgl_graph *graph, const sgl_value *results, int count);
SGL_API sgl_status sgl_emit_regions(sgl_graph *graph, const char *op, const sgl_value *arguments, int argument_count,
                                    const sgl_attr *attrs, int attr_count, uint32_t first, sgl_value *results,
                                    int capacity, int *count_out);
/* How many regions are begun and not ended; and leaving those beyond `depth`, whose nodes are dead then. */
SGL_API int sgl_region_depth(const sgl_graph *graph);
SGL_API void sgl_region_abandon(sgl_graph *graph, int depth);

/* Gradients of the scalar `of` with respect to each of `wrt`, which may be inputs or any earlier value. */
SGL_API sgl_status sgl_grad(sgl_graph *graph, sgl_value of, const sgl_value *wrt, int count, sgl_value *gradients);
/* Whether a gradient of `of` comes to any of `wrt` (1), or no way to them lets one pass (0): such a loss would teach nothing. */
SGL_API sgl_status sgl_reaches(const sgl_graph *graph, sgl_value of, const sgl_value *wrt, int count, int *reached);

/* Makes a graph of its own of what `values` need and of nothing else, no updates: fetches "value.0", "value.1", ... Where a
 * value is needed whose content the host has already, one of `known` (known_count may be 0), the feed "known.K" stands in its
 * place, K its index there; a known value that a needed gradient is taken through is computed all the same, and feeds that
 * nothing needs are not there (sgl_program_feed lists those that are). */
SGL_API sgl_status sgl_graph_extract(const sgl_graph *graph, const sgl_value *values, int count, const sgl_value *known,
                                     int known_count, sgl_graph **extracted);

SGL_API sgl_status sgl_value_type(const sgl_graph *graph, sgl_value value, sgl_type *type);

/* Marks a module path ("blocks.0"; all within it counts too): what the backward needs of its inner values is made again
 * there, instead of being kept; what it hands on is kept. Changes memory and time, no number. */
SGL_API sgl_status sgl_graph_recompute(sgl_graph *graph, const char *path);
/* Names a value to be read after a step, or the new value of the parameter or state `name`. */
SGL_API sgl_status sgl_output_fetch(sgl_graph *graph, const char *name, sgl_value value);
SGL_API sgl_status sgl_output_update(sgl_graph *graph, const char *name, sgl_value value);

/* Dims with buckets. A dim is as long as the longest row of a batch; a graph is traced, and frozen, for each of a few
 * lengths of it (buckets), and shorter rows are padded. What follows holds a graph to the promise that padding changes no
 * number: feeds, and masks made of how long each row is, are declared; sgl_padding_check then finds whether anything that the
 * graph gives back depends on padding, and names the op that lets it in. */

/* Along dimension `axis` of `value`, a feed or (computed 1, right after it was made) a mask, runs the dim: beyond a row's
 * own length stands `content` (NaN: anything). rows: the dimension whose entries are the rows, -1: there is one row. A feed
 * may be declared anew. */
SGL_API sgl_status sgl_padding_declare(sgl_graph *graph, sgl_value value, const char *dim, int axis, int rows,
                                       double content, int computed);
/* For loops, told in an open region, before what uses them: `parameter` begins as `first`; `place`, i64[], is where along the
 * dim the turn at hand is (reverse: turns go from the end); each turn writes its own entry of `parameter`. */
SGL_API sgl_status sgl_padding_like(sgl_graph *graph, sgl_value parameter, sgl_value first);
SGL_API sgl_status sgl_padding_turn(sgl_graph *graph, sgl_value place, const char *dim, int reverse);
SGL_API sgl_status sgl_padding_stack(sgl_graph *graph, sgl_value parameter, const char *dim);
/* Whether the dim runs along dimension `axis` of the value: 1, its entries in their order; 2, made one with others; 0. */
SGL_API sgl_status sgl_padding_find(sgl_graph *graph, sgl_value value, const char *dim, int axis, int *found);
/* TYPE, and the message names the line, when an output of the graph depends on padding. */
SGL_API sgl_status sgl_padding_check(sgl_graph *graph);
/* TYPE, and the message names the line, when the graph differs from `other`, the same one traced with another bucket of the
 * dim, in more than its extents. */
SGL_API sgl_status sgl_padding_compare(sgl_graph *graph, const sgl_graph *other, const char *dim);

/* Walks the op table: name, and a line of its documentation, NULL past the end. For completion and help. */
SGL_API const char *sgl_op_name(int index);
SGL_API const char *sgl_op_help(int index);
/* What docs/ops.md tells beside it: the names of its arguments ("x, weight, bias?"), their shapes and those of its results
 * ("[..., in], [out, in], [out]? -> [..., out]"), the gradients of its arguments. */
SGL_API const char *sgl_op_arguments(int index);
SGL_API const char *sgl_op_shapes(int index);
SGL_API const char *sgl_op_derivative(int index);
/* Number of arguments an op takes (maximum -1: any number) and its attribute schema ("axis:i keep:b=0"), by name. */
SGL_API sgl_status sgl_op_signature(sgl_vm *vm, const char *op, int *minimum, int *maximum, const char **attrs);

/* ---- plans -------------------------------------------------------------------------------------------------- */

typedef struct sgl_plan sgl_plan;
SGL_API sgl_status sgl_plan_new(sgl_vm *vm, sgl_plan **plan);
SGL_API void sgl_plan_free(sgl_plan *plan);
/* Keys: "micro" (INT: micro-batches per step), "mesh.dp" ... (INT), "precision" (STRING "fp32", "fp64" for graphs traced in f64,
 * "bf16" or "fp16": products in that dtype, parameters and sums in f32, fp16 with a scaled loss), for fp16 "scale" (INT: the
 * first one, a power of two), "scale_growth_interval" (INT: good steps after which it doubles), "max_skips" (INT: steps with
 * gradients that are not finite, one after another, that end sgl_train with LIMIT), for both "wide" (STRING: patterns, comma-
 * separated, such as "head.*, blocks.0.attn": what these modules compute, and what is done with parameters of these names, stays
 * f32; '*' is any characters, and a module's name stands for all within) and "stream" (STRING: "narrow", or "fp32": a
 * sum of a narrow value and an f32 one that was not broadcast stays f32, so that what blocks add to is never rounded), "unfused" (INT 0 or 1: every node is an
 * instruction of its own, for sgl_program_trace), "bucket" (INT: ranks sum gradients in exchanges of at least so many bytes each,
 * but for what is left over; 4 MiB), "disable" (STRING: names of passes to leave out, comma-separated). */
SGL_API sgl_status sgl_plan_set(sgl_plan *plan, const sgl_attr *value);
/* The axes of a mesh of ranks in order ("dp", ...), NULL past the end: what may follow "mesh." above. */
SGL_API const char *sgl_axis_name(int index);

/* ---- sessions and programs ---------------------------------------------------------------------------------- */

typedef struct sgl_session sgl_session;
typedef struct sgl_program sgl_program;

/* device: "cpu", "cuda" or "null" (plans everything, computes nothing). */
SGL_API sgl_status sgl_session_new(sgl_vm *vm, const char *device, sgl_session **session);
/* A session that plans as for the device and computes nothing, as on "null": the device need not be on this machine. */
SGL_API sgl_status sgl_session_look(sgl_vm *vm, const char *device, sgl_session **session);
/* 0 for a device that computes nothing: what is read from it is zeros, its steps have no loss, and saving is UNSUPPORTED. */
SGL_API int sgl_session_computes(const sgl_session *session);
SGL_API void sgl_session_free(sgl_session *session); /* frees its programs too */

/* Runs the passes over a copy of the graph and binds the program to the session. Parameters and states that the
 * session does not have yet are allocated (zero); those it has must have the same role and type (TYPE, and the message names
 * both programs). plan may be NULL. Of a plan with stages the first program decides on which of them a state lives: freeze the
 * one that trains first. Session, graph and plan must be of one VM. */
SGL_API sgl_status sgl_freeze(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan,
                              sgl_program **program);
SGL_API void sgl_program_free(sgl_program *program);

/* Copies `bytes` bytes, the whole of the feed `name`, into the program's place for it. It stays until fed again. Where the
 * program is one rank's of several, the whole is that of all ranks, and what is kept is this rank's part of it: nothing else
 * of `data` is read. The numbers are not looked at: a token that is not below the vocabulary is no error, its row reads as
 * zeros and learns nothing, and as a target it is one that no class matches. sgl_tokens_* check theirs. */
SGL_API sgl_status sgl_feed(sgl_program *program, const char *name, const void *data, size_t bytes);
/* The same of data that are there whole on each of several ranks: before a step of sgl_train these compare what each of them was
 * fed so since its last step (INVALID_ARGUMENT on all, with two ranks that differ). */
SGL_API sgl_status sgl_feed_alike(sgl_program *program, const char *name, const void *data, size_t bytes);
/* Replays the program once. Nothing is allocated. */
SGL_API sgl_status sgl_step(sgl_program *program);
/* Copies the value of a fetch of the last step. */
SGL_API sgl_status sgl_fetch(sgl_program *program, const char *name, void *data, size_t bytes);
/* The feeds and fetches in their order; NULL name past the end. Types are those of the graph, whole, whatever the plan. */
SGL_API sgl_status sgl_program_feed(const sgl_program *program, int index, const char **name, sgl_type *type);
/* Which part of that feed this rank keeps: where it begins along each dimension and how far it goes, as many entries as the
 * type has dimensions (room for SGL_MAX_RANK). A source may fill that part of the whole alone. */
SGL_API sgl_status sgl_program_feed_part(const sgl_program *program, int index, int64_t *offsets, int64_t *dims);
SGL_API sgl_status sgl_program_fetch(const sgl_program *program, int index, const char **name, sgl_type *type);

/* Writes all that the program fetches, as it is after its last step, into a safetensors file: beside, synced, renamed. */
SGL_API sgl_status sgl_fetch_file(sgl_program *program, const char *path);

/* The parameters and states of a session, in a stable order; *name is NULL past the end. */
SGL_API sgl_status sgl_state_info(const sgl_session *session, int index, const char **name, sgl_role *role,
                                  sgl_type *type);
/* Whole tensors, whatever the plan. A write keeps this rank's part. A read of what the plan splits gathers it over the ranks: all
 * of them call it alike; WRONG_STATE in a session that has not joined. */
SGL_API sgl_status sgl_state_read(sgl_session *session, const char *name, void *data, size_t bytes);
SGL_API sgl_status sgl_state_write(sgl_session *session, const char *name, const void *data, size_t bytes);

/* ---- ranks ---------------------------------------------------------------------------------------------------- */

/* A program whose plan has a mesh of n ranks is one of n, each in a process of its own, that exchange as they step. A launcher
 * starts the processes (mpirun -n 4 PROGRAM), and each session joins their world. From then on all ranks make the same calls
 * in the same order: freeze, feed, step, save, load. Fetches are whole on each of them, and so are states, but for those that the
 * plan splits. Without a world such a program can be planned, printed and reported, as that of rank 0, and is refused where it
 * would be fed or stepped.
 *
 * A rank that fails between such calls, and cannot make the next one, tells the others by sgl_session_fail; a step that fails
 * tells them itself. Then the world is lost: every call that exchanges fails with DEVICE and one message on all ranks, no step
 * is finished any more, and nothing is saved. */
typedef struct sgl_join_config {
    const char
        *transport;   /* "self", "mpi"; NULL: SGL_TRANSPORT, or what the launcher speaks that started the process */
    double timeout_s; /* of one exchange, until a rank that does not come counts as lost; 0: 300 */
} sgl_join_config;

/* Joins the world, before programs are frozen; it is left by sgl_session_free, which waits for the other ranks. config may be
 * NULL. WRONG_STATE: it has joined, or has programs. DEVICE: the transport failed, or the ranks differ in version or
 * timeout: sgl_tells says whether this rank is to tell it. A process joins MPI's world once. */
SGL_API sgl_status sgl_join(sgl_session *session, const sgl_join_config *config);
/* This rank and how many there are: 0 and 1 for a session that has not joined. */
SGL_API int sgl_session_rank(const sgl_session *session);
SGL_API int sgl_session_ranks(const sgl_session *session);
/* Programs are from now on planned, printed and reported as those of that rank of their mesh. WRONG_STATE in a session that
 * has joined. A mesh that has no such rank: INVALID_ARGUMENT where the program is frozen. */
SGL_API sgl_status sgl_session_plan_rank(sgl_session *session, int rank);
/* The host on which that rank runs; "" for a rank that there is not. */
SGL_API const char *sgl_session_host(const sgl_session *session, int rank);
/* Long work of the host without exchanges ("loading data"): until it is over (what NULL) the others' waiting is not counted.
 * Freezing, saving, loading say so themselves. Does nothing in a session that has not joined. */
SGL_API void sgl_busy(sgl_session *session, const char *what);
/* OK, or DEVICE and why the world is lost, after at most so long a wait for bad news. A launcher that ends a job because one
 * rank died sends the others SIGTERM: a host that got one asks here, with 300, whether that is why. */
SGL_API sgl_status sgl_world_check(sgl_session *session, int wait_ms);
/* This rank fails, for that reason, in a way that no exchange tells: the world is lost. Does nothing where it is already, or in
 * a session that has not joined. */
SGL_API void sgl_session_fail(sgl_session *session, const char *message);
/* All ranks call it with the status that each has come to by itself (its message the VM's), as after checks of files that may
 * fail on all alike or on some: OK where all gave OK; else none goes on, each returns its own failure, or the first of the
 * others' with that one's message, and one tells it (sgl_tells). The world is not lost by it. Returns `mine` in a session that
 * has not joined. */
SGL_API sgl_status sgl_session_agree(sgl_session *session, sgl_status mine);
/* After a call has failed: 1 on the rank whose place it is to print why, so that a job says it once; 1 in a session that has
 * not tried to join. Of a failure that no other rank knows of this rank has to tell: sgl_session_fail first, and where several fail
 * alike one of them is it. */
SGL_API int sgl_tells(const sgl_session *session);
/* Before a world is joined: 1 where a launcher (mpirun, srun, the MPI Operator) started this process, and what it says: the
 * rank, and how many there are (0: it does not say). 0, and rank 0 of 1, where none did. Both may be NULL. */
SGL_API int sgl_launched(int *rank, int *ranks);
/* The words, NULL at the end, that a host hands to execvp to have so many ranks of a command (`count` words) on this machine:
 * mpirun's. Nothing is started. They belong to the VM, the command's own words to the caller. */
SGL_API sgl_status sgl_launch_command(sgl_vm *vm, int ranks, int count, char *const *command,
                                      const char *const **words);

/* ---- seeing before running ---------------------------------------------------------------------------------- */

/* Prints the graph as it is after `pass` ("" or NULL: as traced; "all": as frozen). format: "text" or "dot". */
SGL_API sgl_status sgl_graph_print(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, const char *pass,
                                   const char *format, sgl_write_fn write, void *user);
/* Text: what recompute could spare of the graph's program, beside what the plan has chosen: for several amounts the bytes
 * and, against keeping everything, how many more flops and bytes moved. Nothing, where the backward keeps nothing. */
SGL_API sgl_status sgl_memory_trade(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan,
                                    sgl_write_fn write, void *user);
/* Of one rank, for times on paper; 0: it takes no time. A message of B bytes takes B / link_bytes_per_s + link_latency_s. */
typedef struct sgl_machine {
    double flops_per_s, bytes_per_s;
    double link_latency_s, link_bytes_per_s;
    double narrow_flops_per_s; /* of products in bf16 and narrower; 0: as flops_per_s */
} sgl_machine;
typedef struct sgl_foresight {
    int64_t ranks, programs;  /* of the mesh; how many were planned: ranks with equal parts have equal ones */
    double step_s, exposed_s; /* the longest of a rank: a step, and what of it is spent waiting for exchanges */
} sgl_foresight;
/* Plans all ranks of the plan's mesh, but for those of which the session has a program, and runs a step of them on paper, nothing
 * buffered; none is started. INVALID_ARGUMENT: they would not all come to its end, and the message names both sides. LIMIT: too
 * many programs of uneven parts. A rank has one link out, which one exchange has at a time, and what it receives takes none of
 * it. machine: NULL, no times. */
SGL_API sgl_status sgl_foresee(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan,
                               const sgl_machine *machine, sgl_foresight *foresight);
/* kind: "memory" (format "text", "json", "svg"), "program" (format "text": every instruction with line, kernel, slot; format
 * "json": the same as data, below), "kernels" (format "text": the program's text with each fused kernel described, step by
 * step, under the first instruction that launches it, and with its source where the device compiles one), "plan" (format "text", and "json", below: what this rank of the plan's mesh
 * holds and exchanges), "summary" (format "json": counts, bytes, flops).
 *
 * The program as JSON; a number of bytes or an offset is a whole number, `flops` and `bytes` of an instruction, the
 * arithmetic and the traffic of one launch, may be fractions:
 *   { "program": NAME, "arena_bytes": N, "arena_lower_bound": N, "state_bytes": N, "io_bytes": N, "const_bytes": N,
 *     "host_bytes": N, "away_bytes": N,          in memory of the host: of a step, and states kept there
 *     "feeds": [PORT...], "fetches": [PORT...], "states": [PORT...],
 *     "instructions": [INSTRUCTION...],          in the order in which they run, the body of a loop behind the loop
 *     "kernels": [TEXT...] }                     the description of kernel 0, 1, ..., one line a step
 *   INSTRUCTION = { "number": N, "op": NAME, "depth": loops around it, "launches": in one replay (a loop: its own turns),
 *     "kernel": index into "kernels" or null, "arguments": [OPERAND...], "results": [OPERAND...],
 *     "work": { "offset": N, "bytes": N } or null, "flops": X, "bytes": X,
 *     "file": NAME, "line": N, "scope": PATH, "pass": NAME }     the origin: "" and 0 where there is none
 *   OPERAND = { "type": "f32[4,8]", "space": "arena", "state", "io", "const", "host" or "away", "offset": N, "bytes": N }
 *   PORT = { "name": NAME, "type", "space", "offset", "bytes" as above }
 * The plan as JSON; bytes sent are those of this rank in one step, by the formula of each op (docs/transport.md), a mean over the
 * ranks of a group where parts are uneven:
 *   { "program": NAME, "rank": N, "ranks": N, "mesh": { "dp": N, ... }, "parameter_bytes": N, "optimizer_bytes": N, "cache_bytes": N,
 *     "state_bytes": all three as they lie in sections, "arena_bytes": N, "io_bytes": N, "const_bytes": N,
 *     "host_bytes": N, "away_bytes": N,
 *     "feeds": [{ "name": NAME, "part": TYPE, "whole": TYPE, "at": [N...] }...],
 *     "exchanges": [{ "op": NAME, "axes": "dp+fsdp", "ranks": N, "count": in one step, "bytes_sent": N }...] } */
SGL_API sgl_status sgl_program_report(const sgl_program *program, const char *kind, const char *format,
                                      sgl_write_fn write, void *user);
/* From now on (`on` not 0, counts from zero) every step measures its instructions, which are launched one by one, so that a
 * step takes longer; or no more. The first step of a program is better not measured: it loads kernels. sgl_program_report tells it
 * as kind "profile": format "text", the costliest kernels and instructions; format "json", the costliest first:
 *   { "program": NAME, "steps": N, "ms": all instructions of all steps, "exposed_ms": of these
 *     what exchanges are waited for, "flops_per_s": X, "narrow_flops_per_s": X, "bytes_per_s": X (as sgl_program_roof was
 *     told, else 0), "instructions": [
 *       { "number", "op", "kernel", "file", "line", "scope", "pass" as in the program's JSON,
 *         "launches": N, "ms": X, "roof_ms": X, in all steps; "flops": X, "bytes": X, of one launch }...], "kernels": [TEXT...] }
 * Loops are not among the instructions: what is in them is. And as kind "timeline", format "json": the last step as Chrome's
 * trace events, a slice for each launch, wait and exchange under way, for Perfetto. WRONG_STATE for a program that was never
 * measured. */
SGL_API sgl_status sgl_program_profile(sgl_program *program, int on);
/* What the session's device reaches, measured anew, in less than two seconds: a large product in f32 and in bf16, a large copy;
 * of a device that is limited in power what it sustains. Links stay 0. UNSUPPORTED for a device that computes nothing. */
SGL_API sgl_status sgl_session_machine(sgl_session *session, sgl_machine *machine);
/* Holds the profile of a program that is measured against these rates: the roof of an instruction is the least time that it takes
 * at them, that of its bytes or that of its arithmetic. WRONG_STATE for a program that is not measured. */
SGL_API sgl_status sgl_program_roof(sgl_program *program, const sgl_machine *machine);
/* From now on (`on` not 0) every step looks at what each instruction gives, and stops with NOT_FINITE at the first one that makes
 * a NaN of none, or an infinity of finite numbers; the message tells the script's line, the op, the shapes, the module path,
 * whether it is a gradient, and what the numbers were that went in. Feeds, parameters and states are looked at before the
 * first instruction. An infinity that went in may go on (a mask); where sgl.h, ops.def or a fill says so it is no fault either:
 * a padding, the extreme of nothing, the lse of a query that sees no key. The states are then of no step. Steps take many times
 * as long. Freeze with the plan's "unfused" to be told the node and not the kernel. */
SGL_API sgl_status sgl_program_trace(sgl_program *program, int on);
/* The names of the passes in order, NULL past the end. */
SGL_API const char *sgl_pass_name(int index);
/* What this machine has and every knob with its value, as text. */
SGL_API sgl_status sgl_doctor(sgl_vm *vm, sgl_write_fn write, void *user);
/* The value of a knob, one of the SGL_* environment variables that sgl_doctor lists: its default where it is not set, NULL
 * where there is no such knob. */
SGL_API const char *sgl_knob(const char *variable);

/* ---- checkpoints -------------------------------------------------------------------------------------------- */

/* Writes every parameter and state of the session, and `meta` (a JSON object as text), into DIR/step-NNNNNNNN: beside,
 * synced, checked, renamed. Then removes all but the last `keep` checkpoints (0 keeps all). In a world of ranks each of them
 * calls it: rank 0 writes what is whole everywhere, and where the plan splits states each rank its parts, into files of its own in
 * the same folder; where it fails on one it fails on all of them. */
SGL_API sgl_status sgl_checkpoint_save(sgl_session *session, const char *dir, int64_t step, const char *meta, int keep);
/* Keeps every other session, of this process or another, from writing checkpoints into DIR (which is made), until this session
 * is freed or locks another folder (NULL: none). WRONG_STATE when another has it. sgl_checkpoint_save and sgl_train lock their
 * folder for as long as they run; a process that ends, however it does, holds none. Of several ranks rank 0 alone locks. */
SGL_API sgl_status sgl_checkpoint_lock(sgl_session *session, const char *dir);
/* Finds the last complete checkpoint of DIR (or DIR itself when it is one): its path and meta, owned by the VM until
 * the next call of this function. NOT_FOUND when there is none. */
SGL_API sgl_status sgl_checkpoint_find(sgl_vm *vm, const char *dir, const char **path, const char **meta,
                                       int64_t *step);
/* Reads a checkpoint into the session. Everything is checked before anything is changed. With parameters_only,
 * states are left as they are (for --init-from and for generation). It may have been saved by any number of ranks
 * under any plan. In a world of ranks each of them reads its own parts, and where that fails on one it fails on all. */
SGL_API sgl_status sgl_checkpoint_load(sgl_session *session, const char *path, int parameters_only);
/* The parameters and buffers from one safetensors file that is in no checkpoint: all of them and nothing else, by their
 * names, in their dtypes and shapes, or TYPE. States are left as they are. */
SGL_API sgl_status sgl_parameters_load(sgl_session *session, const char *path);

/* ---- token data --------------------------------------------------------------------------------------------- */

typedef struct sgl_tokens sgl_tokens;
typedef struct sgl_tokens_config {
    /* One file or many, in this order; with *, ? or [...] in the last part of a path all files that match, in the order of
     * their names. Regular files: they are read at any place, for as long as the tokens are open. */
    const char *const *paths;
    int path_count;
    /* "bytes", "u16", "u32" (raw little-endian), "llmc" (headed); NULL: from content and name, INVALID_ARGUMENT where these
     * leave it open and bytes are not enough for vocab. */
    const char *format;
    /* Every token must be below. Checked when opened, in all of up to 1 GiB, in evenly spread blocks of what is larger; and
     * again, each of them, when read. The error names file and offset. */
    int64_t vocab;
    int64_t seq;     /* tokens per sequence; a window holds seq + 1 */
    int64_t batch;   /* sequences per batch */
    uint64_t seed;   /* of the shuffle */
    double held_out; /* the last part of the tokens kept for evaluation: 0.0 .. 0.5 */
} sgl_tokens_config;

SGL_API sgl_status sgl_tokens_open(sgl_vm *vm, const sgl_tokens_config *config, sgl_tokens **tokens);
SGL_API void sgl_tokens_free(sgl_tokens *tokens);
/* Fills inputs and targets, i32[batch, seq] each, of batch number `cursor` (0, 1, ...: epochs follow one another, each
 * with its own shuffle, so that the cursor is the whole position). Evaluation batches are in order, unshuffled. */
SGL_API sgl_status sgl_tokens_train(sgl_tokens *tokens, int64_t cursor, int32_t *inputs, int32_t *targets);
SGL_API sgl_status sgl_tokens_eval(sgl_tokens *tokens, int64_t cursor, int32_t *inputs, int32_t *targets);
/* Sizes: tokens in the training part, in the held-out part, batches per epoch, evaluation batches. */
SGL_API void sgl_tokens_sizes(const sgl_tokens *tokens, int64_t *train, int64_t *held_out, int64_t *train_batches,
                              int64_t *eval_batches);
/* Mean loss in nats per token of an interpolated byte model of order n (n - 1 bytes tell the n-th), counted on the training part, over the
 * held-out part: the yardstick that a small model's loss is printed beside. Only for format "bytes". */
SGL_API sgl_status sgl_tokens_ngram_loss(sgl_tokens *tokens, int order, double *nats);

/* ---- training and generation ---------------------------------------------------------------------------------- */

/* What one step gave: the rank-0 fetches of the train program by name ("loss", "lr", "grad_norm", logged values). */
typedef struct sgl_step_record {
    int64_t step;        /* of the step just done, from 1 */
    int64_t steps;       /* asked for */
    int64_t tokens;      /* elements of the feed "tokens" in this step, without padding; 0 without one */
    int64_t tokens_done; /* of this step and all before it, start_tokens included */
    const char *bucket;  /* of this step, as in sgl_bucket; "" when nothing picks */
    double step_ms;
    int count;
    const char *const *names;
    const double *values;
} sgl_step_record;

/* The program that takes a batch of data whose rows differ in length. */
typedef struct sgl_bucket {
    sgl_program *program;
    const char *text; /* "seq=512", "src=64,tgt=32"; "" where the data have no dim with buckets */
    int64_t tokens;   /* elements of the batch's "tokens" without padding; -1: as many as the feed of the program has */
    int fresh;        /* 1: it was frozen just now */
} sgl_bucket;

/* What one evaluation gave: means over its batches, each weighted by the targets that its loss is a mean over. */
typedef struct sgl_eval_record {
    int64_t step; /* done when it began */
    double loss;
    int64_t targets;          /* of all batches; batches, where the loss counts none */
    int count;                /* of the rank-0 fetches log.NAME of the evaluation program */
    const char *const *names; /* without "log." */
    const double *values;
} sgl_eval_record;

typedef struct sgl_train_config {
    sgl_program *train;
    sgl_program *eval;  /* NULL: no evaluation; fetches loss_sum, count, and log.NAME of what is told besides */
    sgl_tokens *tokens; /* fills the feeds "tokens" and "targets"; NULL: `feed` does */
    /* Called before each step (evaluation: is_eval 1, cursor counts its batches; it returns NOT_FOUND past the last). */
    sgl_status (*feed)(void *user, sgl_program *program, int64_t cursor, int is_eval);
    /* Called before `feed`: which program takes the batch (sgl_family_pick); NULL: always `train`, and `eval`. It must be of
     * the session and fetch what `train` (`eval`) fetches. NOT_FOUND as feed. */
    sgl_status (*pick)(void *user, int64_t cursor, int is_eval, sgl_bucket *bucket);
    void *user;
    /* Steps already done (from a checkpoint's meta); the data cursor of step s is s - 1. Where it is not 0, checkpoints of later
     * steps in `out`, of a branch that the run leaves, are renamed to step-NNNNNNNN.aside, with a warning. */
    int64_t start_step;
    int64_t start_tokens; /* where something picks: tokens of the steps already done (meta "tokens") */
    int64_t evaluated;    /* step of the last evaluation (from meta), 0: none; one left out at start_step is made up */
    int64_t steps;        /* of the whole run */
    int64_t stop_at;      /* leave after this step; 0: at `steps` */
    uint64_t seed;        /* of dropout and other random ops */
    int64_t eval_every, eval_batches; /* 0: only at the end / all of the held-out part */
    int64_t save_every;               /* 0: only at the end */
    int keep;
    const char *out;  /* folder of checkpoints; NULL: none are written */
    const char *meta; /* a JSON object kept in every checkpoint beside step, seed, evaluated and (picked) tokens */
    /* May be NULL; a status other than OK stops the run, on all ranks. Of several ranks each one's on_step is called, with the
     * same numbers but for its own step_ms; the other two are rank 0's alone. */
    sgl_status (*on_step)(void *user, const sgl_step_record *record);
    sgl_status (*on_eval)(void *user, const sgl_eval_record *record);
    sgl_status (*on_save)(void *user, int64_t step, const char *path);
} sgl_train_config;

/* Runs the loop. INTERRUPTED after sgl_interrupt: the step was finished and a checkpoint saved; after a second one the step was
 * left as it was, and nothing saved. When anything but a step fails (feed, a callback, an evaluation), what was learnt until
 * then is saved before the error is returned; when that fails too, the message tells both. Of several ranks all call it alike:
 * before each step they agree whether one was asked to stop, or has failed, and do what follows together, the others with its
 * status and its message. What a rank fails with inside a step loses the world: nothing is saved then. */
SGL_API sgl_status sgl_train(sgl_session *session, const sgl_train_config *config);

typedef struct sgl_generate_config {
    /* Fetches logits [1, vocab]. Of a plan of several ranks all call sgl_generate alike, and agree after each token whether one was
     * asked to stop. Either feeds tokens i32[1, 1] and position i64[], and keeps in caches what it must know of the
     * tokens before; or feeds tokens i32[1, n], n > 1, and last i64[], and reads the whole text, up to `last`, each time. */
    sgl_program *decode;
    const int32_t *prompt; /* at least one token */
    int64_t prompt_count;
    int64_t count;      /* tokens to make */
    int64_t context;    /* positions that the program has; past them the last half is read in anew; 0: no bound */
    double temperature; /* 0: the likeliest */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
    sgl_status (*on_token)(void *user, int32_t token); /* each made token; a status other than OK stops */
    void *user;
} sgl_generate_config;
SGL_API sgl_status sgl_generate(sgl_session *session, const sgl_generate_config *config);
/* Whether one token after another gives what several at once give: *agrees is 0 where a part of the model looks at other
 * tokens and keeps nothing of them. UNSUPPORTED where it sees later ones. `decode` and `few` are programs of the job's graphs
 * of these names (few: tokens i32[1, n], last i64[]), both in f32 (plan: "wide" = "*"), since narrow sums differ by more than
 * is looked for; a few tokens go through both, in the session as it is. Of a session that has joined all ranks call it. */
SGL_API sgl_status sgl_generate_agrees(sgl_session *session, sgl_program *decode, sgl_program *few, int *agrees);

/* Arithmetic of one step of a program (2 per multiply-add of its products), and what a large product reaches on the
 * session's device, measured once (about 30 ms) when first asked: the two halves of model-flops utilisation. */
SGL_API double sgl_program_flops(const sgl_program *program);
SGL_API sgl_status sgl_session_peak_flops(sgl_session *session, double *flops_per_s);
/* Device bytes: states of the session, and what the program needs beside them. */
SGL_API int64_t sgl_session_bytes(const sgl_session *session);
SGL_API int64_t sgl_program_bytes(const sgl_program *program);
/* The VM that the program was made from. */
SGL_API sgl_vm *sgl_program_vm(const sgl_program *program);

/* ---- scripts (the Lua front end; built on this header alone) ------------------------------------------------- */

typedef struct sgl_job sgl_job;

typedef struct sgl_setting {
    const char *key; /* a field of sgl.config */
    const char *value;
} sgl_setting;

/* Loads a script that returns sgl.job {...}. Settings override fields of its sgl.config; an unknown key or a value of
 * the wrong type is an error that names it and the nearest right one. */
SGL_API sgl_status sgl_load_file(sgl_vm *vm, const char *path, const sgl_setting *settings, int count, sgl_job **job);
SGL_API sgl_status sgl_load_text(sgl_vm *vm, const char *name, const char *text, const sgl_setting *settings, int count,
                                 sgl_job **job);
SGL_API void sgl_job_free(sgl_job *job);

/* Traces one of the job's graphs, owned by the job:
 *   "init"   updates every parameter and state with its first value (feed: seed i64[])
 *   "train"  one optimizer step (feeds: the batch, step i64[], seed i64[]; fetches: loss, lr, grad_norm, logged values)
 *   "eval"   loss over one batch, no update (fetches: loss_sum, count, log.NAME of what sgl.log named)
 *   "decode" one generation step (NOT_FOUND when the job declares no context)
 *   "export" fetches each parameter and buffer by its name, with adapters merged and averages in place as the job says
 *   "few"    what sgl_generate_agrees compares it with (NOT_FOUND too for a context of 1)
 *   "text"   in its place where they do not agree: the context read anew for each token (NOT_FOUND as few)
 * Where the data have dims with buckets (sgl.dim), train and eval are those of the largest ones; a family has the others. */
SGL_API sgl_status sgl_job_graph(sgl_job *job, const char *which, sgl_graph **graph);
SGL_API sgl_status sgl_job_plan(sgl_job *job, sgl_plan **plan);
/* The data that the script declares with data.text or data.tokens, opened (owned by the VM); NOT_FOUND for other jobs. */
SGL_API sgl_status sgl_job_tokens(sgl_job *job, sgl_tokens **tokens);
/* For jobs whose data is a Lua function: calls it and feeds what it returns, rows of a dim padded to the extent that the
 * program has; a longer row is an error. Fits sgl_train_config.feed (user: the job). NOT_FOUND when it returns nil. */
SGL_API sgl_status sgl_job_feed(void *job, sgl_program *program, int64_t cursor, int is_eval);
/* The programs of "train" or "eval" of a job, one for each choice of buckets of its dims (one, where it has none), traced and
 * frozen in the session when they are first needed, and kept. plan may be NULL. A family is freed before its job and session:
 * by sgl_family_free, or with the job. */
typedef struct sgl_family sgl_family;
SGL_API sgl_status sgl_family_new(sgl_job *job, sgl_session *session, const sgl_plan *plan, const char *which,
                                  sgl_family **family);
SGL_API void sgl_family_free(sgl_family *family);
/* Makes batch `cursor` and gives the program with the smallest buckets that hold its longest rows; sgl_job_feed of the same
 * cursor feeds that batch. NOT_FOUND as sgl_job_feed; SCRIPT when a row is longer than the largest bucket. */
SGL_API sgl_status sgl_family_pick(sgl_family *family, int64_t cursor, int is_eval, sgl_bucket *bucket);
/* Choice `index` of buckets, the smallest first; text NULL past the end. tokens is -1. */
SGL_API sgl_status sgl_family_at(sgl_family *family, int index, sgl_bucket *bucket);
/* A number that the job table gives ("steps", "eval_every", "save_every", "seed", ...), or "dims": of how many dims with
 * buckets its data are; NOT_FOUND when it does not. */
SGL_API sgl_status sgl_job_number(sgl_job *job, const char *key, double *value);
/* What a checkpoint keeps so that generation needs the folder alone: a JSON object with the script's path and text and
 * the settings. Owned by the job. */
SGL_API sgl_status sgl_job_meta(sgl_job *job, const char **json);
/* The fields of the script's sgl.config, in order: key, value as text, type ("integer", "number", "string", "boolean");
 * *key is NULL past the end. */
SGL_API sgl_status sgl_job_setting(sgl_job *job, int index, const char **key, const char **value, const char **type);

#ifdef __cplusplus
}
#endif
#endif

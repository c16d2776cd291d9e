/* dsl.h -- the Lua front end from inside: one job is one Lua state over one VM.
 *
 * Comes in: a script. Goes out: graphs, built call by call through sgl.h, which is all that this room knows of the library.
 * The rule that shapes every file here: a Lua error is a longjmp, which runs no cleanup. So whatever must be freed belongs
 * to the job (scratch, session, program) or to Lua (userdata) before the next call that can raise, and Lua is entered at one
 * place only, sgldsl_enter. */
#ifndef SGLDSL_DSL_H
#define SGLDSL_DSL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lauxlib.h>
#include <lua.h>

#include "sgl.h"

/* What one entry into a script may use. Every entry (loading, a trace, a batch) starts with full budgets. */
typedef struct sgldsl_limits {
    int64_t instructions; /* of the Lua machine */
    int64_t cpu_ms;       /* of the thread: what C functions of the library take counts here */
    int64_t memory_bytes; /* of all Lua objects of the job */
    int64_t graph_units;  /* nodes, arguments, results and list attributes of all graphs of the job that are alive */
} sgldsl_limits;

enum {
    SGLDSL_STRIDE = 1000,     /* instructions between two looks at the budgets */
    SGLDSL_FRAMES = 256,      /* nested traces and scopes; Lua's C stack ends before */
    SGLDSL_NAME_BYTES = 1024, /* of names of inputs, outputs, scopes, string attributes */
    SGLDSL_SCRIPT_BYTES = 16 << 20,
    SGLDSL_SCRATCHES = 4
};

typedef struct sgldsl_graph {
    sgl_graph *graph; /* NULL: gone */
    struct sgl_job *job;
    char name[64];
    lua_Integer serial; /* its place in the table of living graphs */
    int64_t units;
    /* The origin set last, so that it is set again only when it changes. */
    char file[256];
    char scope[SGLDSL_NAME_BYTES + 1];
    int line;
} sgldsl_graph;

typedef struct sgldsl_tensor {
    sgldsl_graph *graph; /* kept alive by the userdata's one user value */
    sgl_value value;
} sgldsl_tensor;

/* A trace or scope that is open: what holds while its function runs. */
typedef struct sgldsl_frame {
    sgldsl_graph *graph; /* NULL: no trace */
    const char *scope;
    int regions; /* of the graph that were open before it */
} sgldsl_frame;

typedef struct sgldsl_scratch {
    void *data;
    size_t bytes;
} sgldsl_scratch;

/* Why the allocator last said no. */
typedef enum sgldsl_refusal { SGLDSL_REFUSED_BY_HOST, SGLDSL_REFUSED_BY_BOUND } sgldsl_refusal;

struct sgl_job {
    sgl_vm *vm;
    lua_State *L;
    sgldsl_limits limits;

    int64_t bytes; /* of Lua objects */
    sgldsl_refusal refusal;
    int64_t units; /* of living graphs */

    bool entered;              /* Lua is running */
    int64_t instructions_left; /* of this entry */
    int64_t cpu_end_ns;
    bool expired; /* a budget is used up: nothing catches the error on its way out */
    bool interrupted_now;
    atomic_int interrupted;
    bool wrong_setting; /* the error on its way is about a setting */

    sgldsl_frame frames[SGLDSL_FRAMES]; /* [0]: no trace, no scope */
    int depth;                          /* of the innermost one */
    uint32_t slice, slices;             /* numbers of the coroutine slice that runs, and of the last one that began */
    int slice_depth;                    /* depth at which it began */

    const void *tensor_metatable, *graph_metatable; /* identities, anchored in the registry */
    int tensor_reference, living_reference;         /* of the metatable and of the living graphs, for quick access */
    int frame_reference;                            /* of what the frames keep alive */
    lua_Integer graphs;                             /* made so far */
    sgldsl_scratch scratch[SGLDSL_SCRATCHES];
    struct sgl_family *families; /* that the host has not freed */
    sgl_session *session;        /* of core.eval */
    sgl_program *program;        /* of the core.eval that is running */
};

/* A script, however it came. */
typedef struct sgldsl_source {
    const char *name; /* as errors show it */
    const char *text;
    size_t bytes;
    const char *folder; /* where `require` looks for the script's own modules; NULL: nowhere */
} sgldsl_source;

/* ---- state.c: the Lua state and the one way in -------------------------------------------------------------------- */

extern const sgldsl_limits sgldsl_default_limits;

sgl_status sgldsl_new(sgl_vm *vm, const sgldsl_limits *limits, sgl_job **job);
void sgldsl_free(sgl_job *job);
/* Runs body(argument) in protected mode with full budgets. What it raises comes back as a status and the VM's message. */
sgl_status sgldsl_enter(sgl_job *job, lua_CFunction body, void *argument);
/* The light userdata that sgldsl_enter handed to its body. */
void *sgldsl_argument(lua_State *L);

static inline sgl_job *sgldsl_job(lua_State *L) { return *(sgl_job **)lua_getextraspace(L); }
/* Charges work done in C to the instruction budget; raises when it is used up. */
void sgldsl_charge(lua_State *L, int64_t instructions);
/* A block of the job that lasts until the same scratch is asked for again; raises when memory runs out. */
void *sgldsl_scratch_get(lua_State *L, int index, size_t bytes);
sgldsl_frame *sgldsl_frame_now(sgl_job *job);

/* ---- error.c: errors on their way from a status to a script and back ---------------------------------------------- */

typedef struct sgldsl_place {
    char file[256];
    int line; /* 0: no script line is on the stack */
} sgldsl_place;

/* The innermost line of a script (not of the stdlib) at or above `level` of the stack. */
void sgldsl_where(lua_State *L, int level, sgldsl_place *place);
/* Raises `file:line: message`. The formats are those of lua_pushfstring. */
int sgldsl_error(lua_State *L, const char *format, ...);
/* Raises what the VM's message says. */
int sgldsl_raise(lua_State *L, sgl_status status);
static inline void sgldsl_check(lua_State *L, sgl_status status)
{
    if (status != SGL_OK) sgldsl_raise(L, status);
}
/* Raises the error of a used-up budget; level 0 is the running function. */
int sgldsl_expire(lua_State *L, int level, const char *what);
/* The message handler of sgldsl_enter: adds the script's frames. */
int sgldsl_message(lua_State *L);
/* Turns the error value on top of the job's stack into a status and the VM's message. */
sgl_status sgldsl_status(sgl_job *job, int lua_status);

/* ---- sandbox.c and its parts: what a script finds ------------------------------------------------------------------ */

int sgldsl_open_sandbox(lua_State *L);
int sgldsl_open_tables(lua_State *L);     /* table.*, pairs */
int sgldsl_open_coroutines(lua_State *L); /* coroutine.*, pcall, xpcall */
int sgldsl_open_patterns(lua_State *L);   /* string.find, match, gmatch, gsub */
int sgldsl_open_require(lua_State *L);
int sgldsl_open_core(lua_State *L); /* leaves the table of sgl.core on the stack */

/* ---- require.c: modules --------------------------------------------------------------------------------------------- */

/* Chunk names of the stdlib begin with '=' and this; those of scripts with '@'. */
#define SGLDSL_STDLIB_PREFIX "stdlib/"
static inline bool sgldsl_is_stdlib(const char *source)
{
    for (const char *p = "=" SGLDSL_STDLIB_PREFIX; *p != '\0'; p++, source++)
        if (*p != *source) return false;
    return true;
}
/* Compiles a script's text (chunk.c): leaves a function or an error's message, and returns Lua's status. */
int sgldsl_load_chunk(lua_State *L, const char *text, size_t bytes, const char *name);
/* Leaves the value of the module on the stack. */
void sgldsl_require(lua_State *L, const char *name);
/* Reading a text file in two steps, so that memory can be asked for in between: its size, then its bytes. */
sgl_status sgldsl_file_bytes(sgl_vm *vm, const char *path, size_t *bytes);
sgl_status sgldsl_file_read(sgl_vm *vm, const char *path, char *text, size_t bytes);
/* Refuses what is no UTF-8 text. */
sgl_status sgldsl_check_text(sgl_vm *vm, const char *name, const char *text, size_t bytes);

/* ---- text.c: small things ----------------------------------------------------------------------------------------------- */

/* Of the best so far (NULL: none) and another, the one nearer to `name`; NULL when none is near. */
const char *sgldsl_nearer(const char *name, const char *best, const char *other);
/* The nearest of the strings of the list at `index`, or NULL. */
const char *sgldsl_nearest(lua_State *L, const char *name, int index);
/* Pushes a number as the shortest text that reads back as the same number, with '.' in every locale. */
void sgldsl_push_number_text(lua_State *L, int index);
/* What a message calls the kind of a value. */
const char *sgldsl_typename(lua_State *L, int index);
/* A text argument that is a name: not empty, no zero byte, at most SGLDSL_NAME_BYTES. */
const char *sgldsl_name(lua_State *L, int index, const char *what);

/* ---- tensor.c ---------------------------------------------------------------------------------------------------------- */

void sgldsl_open_tensors(lua_State *L);
void sgldsl_push_tensor(lua_State *L, sgldsl_graph *graph, sgl_value value);
/* NULL when it is none. */
sgldsl_tensor *sgldsl_to_tensor(lua_State *L, int index);
sgldsl_graph *sgldsl_to_graph(lua_State *L, int index);
/* The type of a tensor; raises when its graph is gone. `what` names the caller. */
void sgldsl_type_of(lua_State *L, const sgldsl_tensor *tensor, const char *what, sgl_type *type);
/* "f32[4,8]" into text (SGLDSL_TYPE_TEXT bytes). */
enum { SGLDSL_TYPE_TEXT = SGL_TYPE_ROOM };
static inline const char *sgldsl_type_text(const sgl_type *type, char *text)
{
    return sgl_type_text(type, text, SGLDSL_TYPE_TEXT);
}

/* ---- emit.c: an op from Lua values ---------------------------------------------------------------------------------------- */

/* Emits op on the `count` values from `first` on; the attributes are the table at `attrs` (0: none). Pushes the results. */
int sgldsl_emit(lua_State *L, const char *op, int first, int count, int attrs);
int sgldsl_core_emit(lua_State *L);
int sgldsl_core_constant(lua_State *L);
bool sgldsl_is_float(sgl_dtype dtype);
sgl_dtype sgldsl_dtype_argument(lua_State *L, int index, const char *what);

/* ---- trace.c: graphs and what is open -------------------------------------------------------------------------------------- */

/* The graph of the running trace, its origin set to the script's line; raises when there is none. */
sgldsl_graph *sgldsl_tracing(lua_State *L, const char *what);
/* Pushes a new graph userdata. */
sgldsl_graph *sgldsl_push_graph(lua_State *L, const char *name);
/* The tensor at `index`, of the running trace; raises otherwise. */
sgldsl_tensor *sgldsl_check_tensor(lua_State *L, int index, const char *what, const sgldsl_graph *graph);
/* Raises: the tensor is of another graph than the one that is traced. */
void sgldsl_refuse_foreign(lua_State *L, const sgldsl_tensor *tensor, const char *what, const sgldsl_graph *graph);
/* Counts what a graph grew by; raises above the bound. */
void sgldsl_grow(lua_State *L, sgldsl_graph *graph, int64_t units);
/* Opens a trace or scope. The value at `anchor` is what must stay alive: the graph, or the text of the scope. */
void sgldsl_enter_frame(lua_State *L, sgldsl_graph *graph, const char *scope, int anchor);
/* Closes all that are open beyond `depth`. */
void sgldsl_leave_frames(lua_State *L, int depth);
int sgldsl_core_trace(lua_State *L);
int sgldsl_core_scope(lua_State *L);
int sgldsl_core_input(lua_State *L);
int sgldsl_core_fetch(lua_State *L);
int sgldsl_core_update(lua_State *L);
int sgldsl_core_recompute(lua_State *L);
int sgldsl_core_grad(lua_State *L);
int sgldsl_core_reaches(lua_State *L);
/* Dims of a type from the list at `index`; raises, naming what they are for. */
void sgldsl_read_dims(lua_State *L, int index, const char *what, sgl_type *type);

/* ---- padding.c: dims with buckets ------------------------------------------------------------------------------------------ */

int sgldsl_core_padding(lua_State *L);
int sgldsl_core_padding_like(lua_State *L);
int sgldsl_core_padding_turn(lua_State *L);
int sgldsl_core_padding_stack(lua_State *L);
int sgldsl_core_padded(lua_State *L);
int sgldsl_core_padding_check(lua_State *L);
int sgldsl_core_padding_compare(lua_State *L);

/* ---- region.c: loops and branches ------------------------------------------------------------------------------------------ */

int sgldsl_core_regions(lua_State *L);
int sgldsl_core_region(lua_State *L);
int sgldsl_core_parameter(lua_State *L);
int sgldsl_core_emit_regions(lua_State *L);

/* ---- signature.c: calls with too many arguments ----------------------------------------------------------------------------- */

int sgldsl_core_exact(lua_State *L);

/* ---- family.c: the programs of a job by buckets ------------------------------------------------------------------------------ */

void sgldsl_free_families(sgl_job *job);

/* ---- settings.c: --set and sgl.config ------------------------------------------------------------------------------------------ */

void sgldsl_keep_settings(lua_State *L, const sgl_setting *settings, int count);
/* Raises for a setting that nothing in the script has declared. */
void sgldsl_check_settings(lua_State *L, const char *script);
int sgldsl_core_settings(lua_State *L);
int sgldsl_core_declare(lua_State *L);

/* ---- job.c, eval.c ------------------------------------------------------------------------------------------------------------- */

sgl_status sgldsl_load(sgl_vm *vm, const sgldsl_source *source, const sgl_setting *settings, int count,
                       const sgldsl_limits *limits, sgl_job **job);
int sgldsl_core_job(lua_State *L);
int sgldsl_core_eval(lua_State *L);
/* Makes a job belong to its VM: sgl_close frees it. */
sgl_status sgldsl_attach(sgl_job *job);

/* Keys of the registry: the address of each is its identity. */
extern const char sgldsl_key_tensors;    /* metatable of tensors */
extern const char sgldsl_key_graphs;     /* metatable of graphs */
extern const char sgldsl_key_signatures; /* op name to its parsed schema */
extern const char sgldsl_key_settings;   /* key to text */
extern const char sgldsl_key_fields;     /* list: key, value, type, key, ... */
extern const char sgldsl_key_modules;    /* name to value */
extern const char sgldsl_key_texts;      /* list: name, text of the script's own modules, in the order of loading */
extern const char sgldsl_key_stdlib;     /* _ENV of the stdlib */
extern const char sgldsl_key_script;     /* { name, text, folder } */
extern const char sgldsl_key_job;        /* what core.job was given */
extern const char sgldsl_key_traced;     /* "init", ... to graph userdata */
extern const char sgldsl_key_meta;       /* the text of sgl_job_meta */
extern const char sgldsl_key_shown;      /* what the console gave last */
extern const char sgldsl_key_console;    /* the graph of the console */

#endif

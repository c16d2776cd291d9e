/* ir_case.c -- graphs from text and back, seeded inputs, results compared. In and out: ir_case.h. */
#include "tests/support/ir_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail(ir_message *message, const char *format, ...) SGL_PRINTF(2, 3);
static bool fail(ir_message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- text --------------------------------------------------------------------------------------------------- */

sglir_graph *ir_case_parse(sglcore_env *env, const char *name, const char *text, ir_message *message)
{
    sglir_graph *g;
    if (sglir_parse(env, name, text, strlen(text), &g) == SGL_OK) return g;
    fail(message, "%s", env->message);
    return NULL;
}

typedef struct text_sink {
    sglcore_env *env;
    sglcore_text text;
} text_sink;

static sgl_status add_text(void *user, const char *data, size_t bytes)
{
    text_sink *sink = user;
    return sglcore_text_bytes(sink->env, &sink->text, data, bytes);
}

sglcore_text ir_case_print(sglcore_env *env, const sglir_graph *g)
{
    text_sink sink = { .env = env };
    if (sglir_print(g, add_text, &sink) != SGL_OK) {
        sink.text.count = 0;
        (void)sglcore_text_bytes(env, &sink.text, "", 0);
    }
    return sink.text;
}

static bool same_graph(const sglir_graph *a, const sglir_graph *b, const char *text, const char *again,
                       ir_message *message)
{
    if (!sglcore_hash_equal(sglir_math_hash(a), sglir_math_hash(b))) {
        return fail(message, "parse(print(g)) has another math hash:\n%s", text);
    }
    if (!sglcore_hash_equal(sglir_job_hash(a), sglir_job_hash(b))) {
        return fail(message, "parse(print(g)) has another job hash:\n%s", text);
    }
    return strcmp(text, again) == 0 ||
           fail(message, "print(parse(print(g))) differs from print(g):\n%s\n%s", text, again);
}

void ir_case_show(sglcore_env *env, const sglir_graph *g)
{
    sglcore_text text = ir_case_print(env, g);
    fprintf(stderr, "%s\n", text.data);
    sglcore_text_free(env, &text);
}

int ir_case_count(const sglir_graph *g, sglir_op op)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) count += g->nodes.data[n].op == op;
    return count;
}

bool ir_case_round_trip(sglcore_env *env, const sglir_graph *g, ir_message *message)
{
    sglcore_text text = ir_case_print(env, g);
    if (text.count == 0) return fail(message, "the graph cannot be printed: %s", env->message);
    sglir_graph *read = ir_case_parse(env, "printed", text.data, message);
    bool good = read != NULL;
    if (good) {
        sglcore_text again = ir_case_print(env, read);
        good = same_graph(g, read, text.data, again.data, message);
        sglcore_text_free(env, &again);
        sglir_graph_free(read);
    }
    sglcore_text_free(env, &text);
    return good;
}

/* ---- inputs ------------------------------------------------------------------------------------------------- */

/* A 64-bit mixer (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). */
static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static double seeded(uint64_t seed, const char *name, int64_t element)
{
    uint64_t key = seed;
    for (const char *c = name; *c != '\0'; c++) key = mixed(key * 31 + (unsigned char)*c + 1);
    return (double)(mixed(key + (uint64_t)element * UINT64_C(0x9e3779b97f4a7c15)) >> 11) * ldexp(1, -53);
}

static interp_tensor zeros_like(const sglir_type *type)
{
    return interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims);
}

/* The n-th INPUT node of g, or NULL. */
static const sglir_node *next_input(const sglir_graph *g, int64_t *n)
{
    const sglir_region *top = &g->regions.data[0];
    while (*n < top->nodes.count) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[(*n)++]);
        if (node->op == SGLIR_OP_INPUT) return node;
    }
    return NULL;
}

void ir_case_fill(interp *in, const sglir_graph *g, uint64_t seed)
{
    int64_t n = 0;
    for (const sglir_node *node; (node = next_input(g, &n)) != NULL;) {
        const char *name = sglir_attr_string(g, node, "name");
        int64_t role = sglir_attr_int(g, node, "role");
        interp_tensor t = zeros_like(sglir_type_of(g, node->out_first));
        bool positive = role == SGL_STATE || role == SGL_CACHE;
        for (int64_t e = 0; e < t.count; e++) {
            double value = seeded(seed, name, e);
            if (t.floats != NULL) {
                t.floats[e] = positive ? value : 2 * value - 1;
            } else {
                t.ints[e] = (int64_t)(value * (t.dtype == SGL_BOOL ? 2 : 4));
            }
        }
        interp_input(in, name, &t);
        interp_tensor_free(&t);
    }
}

static const interp_tensor *input_of(const interp *in, const char *name)
{
    for (int i = 0; i < in->input_count; i++) {
        if (strcmp(in->inputs[i].name, name) == 0) return &in->inputs[i].tensor;
    }
    return NULL;
}

/* Puts the section's members, as `from` has them, into t. */
static bool gather_members(interp_tensor *t, const sglir_graph *g, const char *section, const interp *from,
                           ir_message *message)
{
    bool any = false;
    for (int64_t i = 0; i < g->members.count; i++) {
        const sglir_member *member = &g->members.data[i];
        if (strcmp(sglcore_string(g->strings, member->section), section) != 0) continue;
        const char *name = sglcore_string(g->strings, member->name);
        const interp_tensor *source = input_of(from, name);
        if (source == NULL) continue; /* a member that this graph does not use */
        any = true;
        if (source->count != sglir_elements(&member->type) || member->offset + source->count > t->count) {
            return fail(message, "member \"%s\" of section \"%s\" has another size than the input", name, section);
        }
        for (int64_t e = 0; e < source->count; e++) interp_set(t, member->offset + e, interp_get(source, e));
    }
    return any || fail(message, "input \"%s\" is neither in the graph before nor a section of its inputs", section);
}

bool ir_case_feed_as(interp *to, const sglir_graph *g, const interp *from, ir_message *message)
{
    int64_t n = 0;
    bool good = true;
    for (const sglir_node *node; good && (node = next_input(g, &n)) != NULL;) {
        const char *name = sglir_attr_string(g, node, "name");
        const interp_tensor *own = input_of(from, name);
        if (own != NULL) {
            interp_input(to, name, own);
            continue;
        }
        interp_tensor t = zeros_like(sglir_type_of(g, node->out_first));
        bool made = sglir_attr_int(g, node, "made") != 0;
        for (int64_t e = 0; e < t.count && made; e++) interp_set(&t, e, sglir_attr_float(g, node, "initial"));
        good = made || gather_members(&t, g, name, from, message);
        if (good) interp_input(to, name, &t);
        interp_tensor_free(&t);
    }
    return good;
}

/* ---- results ------------------------------------------------------------------------------------------------ */

static bool same_number(double a, double b, double slack)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= slack;
}

/* Elements [offset, offset + a->count) of b against those of a. */
static bool same_elements(const char *what, const char *name, const interp_tensor *a, const interp_tensor *b,
                          int64_t offset, ir_tolerance tolerance, ir_message *message)
{
    double largest = 0;
    for (int64_t e = 0; e < a->count; e++) {
        double value = fabs(interp_get(a, e));
        if (isfinite(value) && value > largest) largest = value;
    }
    for (int64_t e = 0; e < a->count; e++) {
        double x = interp_get(a, e), y = interp_get(b, offset + e);
        if (same_number(x, y, tolerance.relative * largest + tolerance.absolute)) continue;
        return fail(message, "%s \"%s\"[%lld]: %.17g before, %.17g after (largest %.17g)", what, name, (long long)e, x,
                    y, largest);
    }
    return true;
}

static bool same_tensor(const char *what, const char *name, const interp_tensor *a, const interp_tensor *b,
                        ir_tolerance tolerance, ir_message *message)
{
    if (a->dtype != b->dtype || a->rank != b->rank ||
        memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->rank) != 0) {
        return fail(message, "%s \"%s\" has another type after", what, name);
    }
    return same_elements(what, name, a, b, 0, tolerance, message);
}

static const sglir_member *member_named(const sglir_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->members.count; i++) {
        if (strcmp(sglcore_string(g->strings, g->members.data[i].name), name) == 0) return &g->members.data[i];
    }
    return NULL;
}

/* The update of a state that stands in a section now. */
static bool same_member(const interp_named *update, const interp *b, const sglir_graph *gb, ir_tolerance tolerance,
                        ir_message *message)
{
    const sglir_member *member = member_named(gb, update->name);
    if (member == NULL) return fail(message, "update \"%s\" is lost", update->name);
    const char *section = sglcore_string(gb->strings, member->section);
    const interp_tensor *whole = interp_update(b, section);
    if (whole == NULL) return fail(message, "update \"%s\": its section \"%s\" has none", update->name, section);
    if (member->offset + update->tensor.count > whole->count) {
        return fail(message, "update \"%s\" is larger than its section", update->name);
    }
    return same_elements("update", update->name, &update->tensor, whole, member->offset, tolerance, message);
}

/* An update of a section that `a` does not know must leave alone what `a` does not update. */
static bool nothing_new(const interp *a, const interp *b, const sglir_graph *gb, const interp_named *update,
                        ir_message *message)
{
    const interp_tensor *before = input_of(b, update->name);
    bool section = false;
    for (int64_t i = 0; i < gb->members.count; i++) {
        const sglir_member *member = &gb->members.data[i];
        if (strcmp(sglcore_string(gb->strings, member->section), update->name) != 0) continue;
        section = true;
        const char *name = sglcore_string(gb->strings, member->name);
        if (interp_update(a, name) != NULL || before == NULL) continue;
        for (int64_t e = member->offset; e < member->offset + sglir_elements(&member->type); e++) {
            if (same_number(interp_get(before, e), interp_get(&update->tensor, e), 0)) continue;
            return fail(message, "member \"%s\" is changed, and was not before", name);
        }
    }
    return section || update->name[0] == '~' || fail(message, "update \"%s\" is new", update->name);
}

/* Whether a pass has made states of its own; it may show them too. */
static bool has_made(const sglir_graph *g)
{
    int64_t n = 0;
    for (const sglir_node *node; (node = next_input(g, &n)) != NULL;) {
        if (sglir_attr_int(g, node, "made")) return true;
    }
    return false;
}

bool ir_case_same_results(const interp *a, const interp *b, const sglir_graph *gb, ir_tolerance tolerance,
                          ir_message *message)
{
    for (int i = 0; i < a->fetch_count; i++) {
        const interp_named *fetch = &a->fetches[i];
        const interp_tensor *other = interp_fetch(b, fetch->name);
        if (other == NULL) return fail(message, "fetch \"%s\" is lost", fetch->name);
        if (!same_tensor("fetch", fetch->name, &fetch->tensor, other, tolerance, message)) return false;
    }
    for (int i = 0; i < b->fetch_count; i++) {
        if (interp_fetch(a, b->fetches[i].name) == NULL && !has_made(gb))
            return fail(message, "fetch \"%s\" is new", b->fetches[i].name);
    }
    for (int i = 0; i < a->update_count; i++) {
        const interp_named *update = &a->updates[i];
        const interp_tensor *other = interp_update(b, update->name);
        bool good = other != NULL ? same_tensor("update", update->name, &update->tensor, other, tolerance, message)
                                  : same_member(update, b, gb, tolerance, message);
        if (!good) return false;
    }
    for (int i = 0; i < b->update_count; i++) {
        if (interp_update(a, b->updates[i].name) == NULL && !nothing_new(a, b, gb, &b->updates[i], message))
            return false;
    }
    return true;
}

static bool same_when(bool round, const sglir_graph *a, const sglir_graph *b, uint64_t seed, ir_tolerance tolerance,
                      ir_message *message)
{
    interp before = { .round = round }, after = { .round = round };
    ir_case_fill(&before, a, seed);
    bool good = ir_case_feed_as(&after, b, &before, message);
    if (good && !interp_run(&before, a)) good = fail(message, "the graph before does not run: %s", before.error);
    if (good && !interp_run(&after, b)) good = fail(message, "the graph after does not run: %s", after.error);
    good = good && ir_case_same_results(&before, &after, b, tolerance, message);
    interp_free(&before);
    interp_free(&after);
    return good;
}

bool ir_case_same_meaning(const sglir_graph *a, const sglir_graph *b, uint64_t seed, ir_tolerance tolerance,
                          ir_message *message)
{
    ir_message rounded;
    return same_when(false, a, b, seed, tolerance, message) ||
           same_when(true, a, b, seed, (ir_tolerance){ 0 }, &rounded);
}

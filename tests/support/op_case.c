/* op_case.c -- cases.def as a table, its letters replaced, its graphs built through the text form. In and out: op_case.h.
 * Odd invariant: an argument's numbers depend on its name and the seed alone, so that the same case has the same numbers
 * in every dtype, but for what the dtype cannot hold. */
#include "tests/support/op_case.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---------------------------------------------------------------------------------------------- */

#define CASE(KIND, DTYPES, CONDITION, ARGUMENTS, ATTRIBUTES)                                                           \
    {                                                                                                                  \
        .kind = OP_##KIND, .dtypes = OP_##DTYPES, .condition = CONDITION, .arguments = ARGUMENTS,                      \
        .attributes = ATTRIBUTES                                                                                       \
    }
#define BODY(KIND, DTYPES, CONDITION, ARGUMENTS, TEXT)                                                                 \
    {                                                                                                                  \
        .kind = OP_##KIND, .dtypes = OP_##DTYPES, .condition = CONDITION, .arguments = ARGUMENTS, .body = TEXT         \
    }
#define REFUSED(ARGUMENTS, ATTRIBUTES, MESSAGE)                                                                        \
    {                                                                                                                  \
        .kind = OP_REFUSED, .arguments = ARGUMENTS, .attributes = ATTRIBUTES, .message = MESSAGE                       \
    }

/* Per op an array, then all arrays one after another. */
#define OP_NO_CASES(NAME, why)
#define OP_CASES(NAME, ...) static const op_case cases_of_##NAME[] = { __VA_ARGS__ };
#include "tests/ops/cases.def"
#undef OP_CASES

typedef struct op_cases_row {
    sglir_op op;
    const op_case *cases;
    int count;
} op_cases_row;

static const op_cases_row rows[] = {
#define OP_CASES(NAME, ...)                                                                                            \
    { SGLIR_OP_##NAME, cases_of_##NAME, (int)(sizeof cases_of_##NAME / sizeof cases_of_##NAME[0]) },
#include "tests/ops/cases.def"
#undef OP_CASES
};
enum { ROWS = sizeof rows / sizeof rows[0] };

bool op_case_at(int number, op_case *c)
{
    for (int row = 0; row < ROWS; row++) {
        if (number < rows[row].count) {
            *c = rows[row].cases[number];
            c->op = rows[row].op;
            return true;
        }
        number -= rows[row].count;
    }
    return false;
}

/* ---- letters ------------------------------------------------------------------------------------------------- */

op_binding op_binding_plain(void)
{
    static const int8_t extents[26] = { 2, 3, 4, 5, 1, 7, 2, 4, 3, 2, 5, 6, 3, 4, 6, 2, 8, 1, 5, 3, 2, 9, 2, 3, 4, 5 };
    op_binding binding = { .dtype = SGL_F64, .index = SGL_I32 };
    for (int i = 0; i < 26; i++) binding.extents[i] = extents[i];
    return binding;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '"'; }

static void add(char *out, size_t size, const char *format, ...) SGL_PRINTF(3, 4);
static void add(char *out, size_t size, const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(out);
    va_start(arguments, format);
    vsnprintf(out + used, size - used, format, arguments);
    va_end(arguments);
}

/* The leading dims; where there are none, one of the commas beside them goes too. Returns what follows. */
static const char *add_star(char *out, size_t size, const char *at, const op_binding *b)
{
    if (isdigit((unsigned char)*at)) {
        add(out, size, "%d", b->star_rank + (*at - '0'));
        return at + 1;
    }
    for (int i = 0; i < b->star_rank; i++) add(out, size, "%s%lld", i > 0 ? "," : "", (long long)b->star[i]);
    if (b->star_rank > 0) return at;
    size_t used = strlen(out);
    if (*at == ',') return at + 1;
    if (used > 0 && out[used - 1] == ',') out[used - 1] = '\0';
    return at;
}

/* In which composites compute. */
static sgl_dtype wide(sgl_dtype dtype) { return dtype == SGL_F64 ? SGL_F64 : SGL_F32; }

/* Replaces letters, T, W, I and stars of `text`, `length` bytes of it. */
static void expand(char *out, size_t size, const char *text, size_t length, const op_binding *b)
{
    const char *end = text + length;
    for (const char *at = text; at < end;) {
        bool word_begins = at == text || !in_word(at[-1]);
        char *after;
        if (*at == '*') {
            at = add_star(out, size, at + 1, b);
        } else if (word_begins && isdigit((unsigned char)*at)) {
            long times = strtol(at, &after, 10);
            bool letter = after < end && islower((unsigned char)*after) && !in_word(after[1]);
            if (letter) {
                add(out, size, "%lld", (long long)(times * b->extents[*after - 'a']));
                at = after + 1;
            } else {
                add(out, size, "%.*s", (int)(after - at), at);
                at = after;
            }
        } else if (word_begins && isalpha((unsigned char)*at) && (at + 1 == end || (!in_word(at[1]) && at[1] != '=')) &&
                   (islower((unsigned char)*at) || strchr("TWI", *at) != NULL)) {
            if (islower((unsigned char)*at))
                add(out, size, "%lld", (long long)b->extents[*at - 'a']);
            else
                add(out, size, "%s", sgl_dtype_name(*at == 'T' ? b->dtype : *at == 'W' ? wide(b->dtype) : b->index));
            at++;
        } else {
            add(out, size, "%c", *at++);
        }
    }
}

/* ---- graphs -------------------------------------------------------------------------------------------------- */

static bool is_integer(sgl_dtype dtype) { return dtype != SGL_BOOL && !sglcore_dtype_is_float(dtype); }

bool op_case_takes(const op_case *c, sgl_dtype dtype)
{
    switch (c->dtypes) {
    case OP_FLOATS: return sglcore_dtype_is_float(dtype);
    case OP_NUMBERS: return dtype != SGL_BOOL;
    case OP_ANY: return true;
    case OP_BOOLS: return dtype == SGL_BOOL;
    case OP_INTEGERS: return is_integer(dtype);
    case OP_BITS: return !sglcore_dtype_is_float(dtype);
    default: return false;
    }
}

int op_case_arguments(const op_case *c)
{
    int count = 0;
    for (const char *at = c->arguments; *at != '\0'; at += strspn(at, " ")) {
        at += strcspn(at, " ");
        count++;
    }
    return count;
}

/* "T[a,2b]:p" as an input, whose name says what its numbers are. Returns what follows it. */
static const char *add_input(char *text, size_t size, const char *at, int number, const op_binding *b)
{
    size_t length = strcspn(at, " "), type = strcspn(at, ": "), dtype = strcspn(at, "[");
    char letter = type < length ? at[type + 1] : 'x';
    add(text, size, "%%%d = input() {role=2, name=\"%c%d\", dtype=", number, letter, number);
    expand(text, size, at, dtype, b);
    add(text, size, ", dims=");
    expand(text, size, at + dtype, type - dtype, b);
    add(text, size, "}\n");
    return at + length + strspn(at + length, " ");
}

static void add_node(char *text, size_t size, const op_case *c, int arguments, const op_binding *b)
{
    int results = sglir_ops[c->op].results >= 0 ? sglir_ops[c->op].results : 1;
    for (int i = 0; i < results; i++) add(text, size, "%s%%%d", i > 0 ? ", " : "", 100 + i);
    add(text, size, " = %s(", sglir_ops[c->op].name);
    for (int i = 0; i < arguments; i++) add(text, size, "%s%%%d", i > 0 ? ", " : "", i);
    add(text, size, ")");
    if (c->attributes[0] != '\0') {
        add(text, size, " {");
        expand(text, size, c->attributes, strlen(c->attributes), b);
        add(text, size, "}");
    }
}

sglir_graph *op_case_graph(sglcore_env *env, const op_case *c, const op_binding *binding)
{
    char text[8192] = "graph \"case\" {\n";
    int arguments = 0;
    sglir_graph *g = NULL;
    for (const char *at = c->arguments; *at != '\0';) at = add_input(text, sizeof text, at, arguments++, binding);
    if (c->body != NULL)
        expand(text, sizeof text, c->body, strlen(c->body), binding);
    else
        add_node(text, sizeof text, c, arguments, binding);
    add(text, sizeof text, "\n}\n");
    if (sglir_parse(env, "case", text, strlen(text), &g) != SGL_OK) return NULL;
    int fetches = 0;
    for (int64_t n = 0; n < g->regions.data[0].nodes.count; n++) {
        const sglir_node node = *sglir_node_at(g, g->regions.data[0].nodes.data[n]);
        for (uint32_t r = 0; node.op == c->op && r < node.out_count; r++) {
            char name[16];
            snprintf(name, sizeof name, "y%d", fetches++);
            sglir_output_add(g, SGLIR_FETCH, name, node.out_first + r);
        }
    }
    if (sglir_status(g) == SGL_OK) return g;
    sglir_graph_free(g);
    return NULL;
}

const char *op_case_label(const op_case *c, const op_binding *binding, char *text, size_t size)
{
    text[0] = '\0';
    add(text, size, "%s(", sglir_ops[c->op].name);
    expand(text, size, c->arguments, strlen(c->arguments), binding);
    add(text, size, ")");
    const char *more = c->body != NULL ? c->body : c->attributes;
    if (more[0] == '\0') return text;
    add(text, size, " {");
    expand(text, size, more, strlen(more), binding);
    add(text, size, "}");
    return text;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static double uniform(uint64_t seed, const char *name, int64_t i)
{
    const uint32_t counter[4] = { (uint32_t)i, (uint32_t)seed, (uint32_t)(seed >> 32), 5 };
    const uint32_t key[2] = { (uint32_t)name[0], name[0] == '\0' ? 0 : (uint32_t)name[1] };
    uint32_t words[4];
    sglcore_philox(counter, key, words);
    return words[0] / 4294967296.0;
}

static double number(const interp_tensor *t, uint64_t seed, const char *name, int64_t i)
{
    double u = uniform(seed, name, i);
    bool whole = t->ints != NULL, negative = !whole || sglcore_dtype_is_signed(t->dtype);
    int64_t count = t->count > 1 ? t->count : 2, place = (i * 29 + 3) % count - count / 2;
    switch (name[0]) {
    case 'p': return whole ? 1 + floor(6 * u) : 0.5 + 1.5 * u;
    case 'u': return whole ? floor(2 * u) : u;
    case 'k':
        return whole ? (double)(negative ? place : place + count / 2) : 0.11 * (double)place + 0.037 * name[1] - 1.7;
    case 'i': return negative ? (double)(i % 7 - 1) : (double)(i % 6);
    case 'j': return (double)(i % 6);
    case 'o': return 1;
    default: return whole ? floor((negative ? 15 * u - 7 : 7 * u)) : 4 * u - 2;
    }
}

void op_case_fill(interp *in, const sglir_graph *g, uint64_t seed)
{
    const sglir_region *top = &g->regions.data[0];
    bool round = in->round;
    in->round = true; /* so that each input becomes a number of its dtype */
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        if (node->op != SGLIR_OP_INPUT) continue;
        const sglir_type *type = sglir_type_of(g, node->out_first);
        const char *name = sglir_attr_string(g, node, "name");
        interp_tensor t = interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims);
        bool made = sglir_attr_int(g, node, "made") != 0; /* a state of a pass begins as it says */
        double initial = sglir_attr_float(g, node, "initial");
        for (int64_t i = 0; i < t.count; i++) interp_set(&t, i, made ? initial : number(&t, seed, name, i));
        interp_input(in, name, &t);
        interp_tensor_free(&t);
    }
    in->round = round;
}

/* parse.c -- the text form of a graph, read. In: bytes that nobody vouches for (the form stands in text.h). Out: a graph
 * whose every node went through sglir_emit, so that types are inferred anew and what is written must equal them; or a
 * message "name:line:column: ..." and no graph. Nothing in the text is trusted: numbers, names, depth and use of values
 * are checked before anything is built of them. Odd invariant: a node is emitted after its regions, so its line is kept
 * in a `statement` meanwhile. */
#include <string.h>

#include "ir/infer.h"
#include "ir/lex.h"
#include "ir/text.h"

typedef SGLCORE_VEC(sglir_id) id_list;

typedef struct parser {
    sglir_lexer lexer;
    sglcore_env *env;
    sglir_graph *g;
    sglcore_arena arena;
    sglcore_map values; /* number in the text to value; SGLIR_NONE once its region is closed */
    id_list numbers;    /* of the values that are open to use, innermost region last */
    int depth;
} parser;

typedef struct placed_type {
    sglir_type type;
    uint8_t space;
    int64_t offset;
} placed_type;

/* A node's line. */
typedef struct statement {
    sglir_token start, op_at;
    id_list results; /* numbers as written */
    id_list args;    /* values */
    id_list regions;
    sglir_op op;
    sglir_named attrs[SGLIR_MOST_ATTRS];
    int attr_count;
    SGLCORE_VEC(placed_type) types;
    bool typed; /* types are written */
    int64_t epoch, line, work_bytes, work_offset;
    const char *file, *scope, *pass;
} statement;

static bool fails(parser *p, sgl_status status) { return sglir_lex_fail_at(&p->lexer, &p->lexer.token, status); }

static bool push(parser *p, id_list *list, sglir_id id)
{
    return sglcore_vec_push(p->env, list, id) == SGL_OK || fails(p, SGL_OUT_OF_MEMORY);
}

/* ---- values ------------------------------------------------------------------------------------------------- */

static sglcore_hash key_of(uint32_t number) { return (sglcore_hash){ .low = number }; }

static bool define_value(parser *p, const sglir_token *at, uint32_t number, sglir_id value)
{
    uint64_t found;
    if (sglcore_map_get(&p->values, key_of(number), &found)) {
        return sglir_lex_fail(&p->lexer, at, SGL_CORRUPT, "%%%u is defined twice", (unsigned)number);
    }
    if (sglcore_map_put(p->env, &p->values, key_of(number), value) != SGL_OK) return fails(p, SGL_OUT_OF_MEMORY);
    return push(p, &p->numbers, number);
}

static bool close_values(parser *p, int64_t from)
{
    for (int64_t i = from; i < p->numbers.count; i++) {
        if (sglcore_map_put(p->env, &p->values, key_of(p->numbers.data[i]), SGLIR_NONE) != SGL_OK) {
            return fails(p, SGL_OUT_OF_MEMORY);
        }
    }
    p->numbers.count = from;
    return true;
}

static bool use_value(parser *p, sglir_id *value)
{
    sglir_token at = p->lexer.token;
    uint32_t number;
    uint64_t found = SGLIR_NONE;
    if (!sglir_lex_value(&p->lexer, &number)) return false;
    if (!sglcore_map_get(&p->values, key_of(number), &found)) {
        return sglir_lex_fail(&p->lexer, &at, SGL_CORRUPT, "%%%u is used before it is defined", (unsigned)number);
    }
    *value = (sglir_id)found;
    if (found == SGLIR_NONE) {
        return sglir_lex_fail(&p->lexer, &at, SGL_CORRUPT, "%%%u is used outside its region", (unsigned)number);
    }
    return true;
}

/* %1, %2, ... up to something else; none when the next token is no value. */
static bool use_values(parser *p, id_list *list)
{
    if (p->lexer.token.kind != SGLIR_TOKEN_VALUE) return true;
    do {
        sglir_id value;
        if (!use_value(p, &value) || !push(p, list, value)) return false;
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return true;
}

/* ---- types -------------------------------------------------------------------------------------------------- */

/* The index of the word among `count` names, or -1. */
static int word_among(const sglir_lexer *lexer, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (sglir_lex_is_word(lexer, names[i])) return i;
    }
    return -1;
}

static int axis_word(const sglir_lexer *lexer)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (sglir_lex_is_word(lexer, sglir_axis_name(axis))) return axis;
    }
    return -1;
}

static bool parse_axis(parser *p, int *axis)
{
    *axis = axis_word(&p->lexer);
    if (*axis < 0) return sglir_lex_expected(&p->lexer, "a mesh axis (dp, fsdp, tp, pp, ep, cp, micro)");
    return sglir_lex_advance(&p->lexer);
}

static bool parse_dtype(parser *p, int64_t *dtype)
{
    for (*dtype = 0; *dtype < SGL_DTYPE_COUNT; ++*dtype) {
        if (sglir_lex_take_word(&p->lexer, sgl_dtype_name((sgl_dtype)*dtype))) return true;
    }
    return sglir_lex_expected(&p->lexer, "a dtype such as f32");
}

/* {dp:0,partial(tp),scaled} after the brace */
static bool parse_owed(parser *p, sglir_type *type)
{
    do {
        int axis;
        int64_t dim;
        if (sglir_lex_take_word(&p->lexer, "scaled")) {
            type->scaled = 1;
        } else if (sglir_lex_take_word(&p->lexer, "partial")) {
            if (!sglir_lex_sign(&p->lexer, '(')) return false;
            do {
                if (!parse_axis(p, &axis)) return false;
                type->partial |= (uint8_t)(1u << axis);
            } while (sglir_lex_take_sign(&p->lexer, ','));
            if (!sglir_lex_sign(&p->lexer, ')')) return false;
        } else {
            if (!parse_axis(p, &axis) || !sglir_lex_sign(&p->lexer, ':')) return false;
            if (!sglir_lex_int(&p->lexer, 0, type->rank - 1, &dim)) return false;
            type->sharded[axis] = (int8_t)dim;
        }
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return sglir_lex_sign(&p->lexer, '}');
}

/* True when the brace that follows a type opens what is owed on it, and not the node's regions. */
static bool opens_owed(const parser *p)
{
    if (!sglir_lex_is_sign(&p->lexer, '{')) return false;
    sglir_lexer ahead = p->lexer; /* plain data: looking ahead is advancing a copy */
    if (!sglir_lex_advance(&ahead)) return false;
    return sglir_lex_is_word(&ahead, "scaled") || sglir_lex_is_word(&ahead, "partial") || axis_word(&ahead) >= 0;
}

static bool parse_type(parser *p, sglir_type *type)
{
    sglir_token at = p->lexer.token;
    int64_t dtype, dims[SGL_MAX_RANK] = { 0 }, elements = 1;
    int rank = 0;
    if (!parse_dtype(p, &dtype) || !sglir_lex_sign(&p->lexer, '[')) return false;
    while (!sglir_lex_is_sign(&p->lexer, ']')) {
        if (rank > 0 && !sglir_lex_sign(&p->lexer, ',')) return false;
        if (rank == SGL_MAX_RANK) {
            return sglir_lex_fail(&p->lexer, &at, SGL_CORRUPT, "a type has more than %d dimensions", SGL_MAX_RANK);
        }
        if (!sglir_lex_int(&p->lexer, 0, INT64_MAX, &dims[rank])) return false;
        if (__builtin_mul_overflow(elements, dims[rank], &elements)) elements = -1;
        rank++;
    }
    if (elements < 0 || sglcore_dtype_bytes((sgl_dtype)dtype, elements) < 0) {
        return sglir_lex_fail(&p->lexer, &at, SGL_CORRUPT, "a type has more bytes than 63 bits can count");
    }
    *type = sglir_type_make((sgl_dtype)dtype, rank, dims);
    if (!sglir_lex_sign(&p->lexer, ']')) return false;
    return !opens_owed(p) || (sglir_lex_sign(&p->lexer, '{') && parse_owed(p, type));
}

static bool parse_placed_type(parser *p, placed_type *placed)
{
    *placed = (placed_type){ .space = SGLIR_SPACE_NONE };
    if (!parse_type(p, &placed->type)) return false;
    if (!sglir_lex_take_word(&p->lexer, "in")) return true;
    int space = word_among(&p->lexer, sglir_space_names + 1, 4);
    if (space < 0) return sglir_lex_expected(&p->lexer, "a space (arena, state, io, const)");
    placed->space = (uint8_t)(space + 1);
    return sglir_lex_advance(&p->lexer) && sglir_lex_sign(&p->lexer, '+') &&
           sglir_lex_int(&p->lexer, 0, INT64_MAX, &placed->offset);
}

/* ---- a node's line ------------------------------------------------------------------------------------------ */

static bool parse_op(parser *p, statement *s)
{
    s->op_at = p->lexer.token;
    if (p->lexer.token.kind != SGLIR_TOKEN_WORD) return sglir_lex_expected(&p->lexer, "an op");
    const char *names[SGLIR_OP_COUNT];
    for (int i = 0; i < SGLIR_OP_COUNT; i++) names[i] = sglir_ops[i].name;
    int op = word_among(&p->lexer, names, SGLIR_OP_COUNT);
    if (op < 0) {
        char word[64] = "";
        if (s->op_at.length < sizeof word) memcpy(word, s->op_at.start, s->op_at.length);
        const char *near = sglcore_nearest(word, names, SGLIR_OP_COUNT);
        if (near == NULL) return sglir_lex_expected(&p->lexer, "an op");
        return sglir_lex_fail(&p->lexer, &s->op_at, SGL_CORRUPT, "there is no op '%s'; did you mean '%s'?", word, near);
    }
    s->op = (sglir_op)op;
    return sglir_lex_advance(&p->lexer);
}

/* The elements between brackets, `size` bytes each, copied into the arena. */
static bool parse_list(parser *p, sglir_named *attr)
{
    SGLCORE_VEC(int64_t) ints = { 0 };
    SGLCORE_VEC(double) floats = { 0 };
    bool whole = attr->kind == 'I', good = sglir_lex_sign(&p->lexer, '[');
    int64_t count = 0;
    while (good && !sglir_lex_is_sign(&p->lexer, ']')) {
        int64_t i = 0;
        double f = 0;
        good = (count == 0 || sglir_lex_sign(&p->lexer, ',')) &&
               (whole ? sglir_lex_int(&p->lexer, INT64_MIN, INT64_MAX, &i) : sglir_lex_float(&p->lexer, &f));
        if (good && (whole ? sglcore_vec_push(p->env, &ints, i) : sglcore_vec_push(p->env, &floats, f)) != SGL_OK) {
            good = fails(p, SGL_OUT_OF_MEMORY);
        }
        count++;
    }
    good = good && sglir_lex_sign(&p->lexer, ']');
    if (good && count > 0) {
        size_t bytes = (size_t)count * sizeof(int64_t);
        void *kept = sglcore_arena_alloc(&p->arena, bytes);
        good = kept != NULL || fails(p, SGL_OUT_OF_MEMORY);
        if (good) memcpy(kept, whole ? (void *)ints.data : (void *)floats.data, bytes);
        attr->ints = whole ? kept : NULL;
        attr->floats = whole ? NULL : kept;
    }
    attr->i = count;
    sglcore_vec_free(p->env, &ints);
    sglcore_vec_free(p->env, &floats);
    return good;
}

static bool find_attr(parser *p, const statement *s, sglir_named *attr)
{
    const sglir_token *token = &p->lexer.token;
    const char *cursor = sglir_ops[s->op].attrs;
    sglir_schema_item entry;
    if (token->kind != SGLIR_TOKEN_WORD) return sglir_lex_expected(&p->lexer, "an attribute's name");
    while (sglir_schema_step(&cursor, &entry)) {
        if ((size_t)entry.name_length != token->length || memcmp(entry.name, token->start, token->length) != 0)
            continue;
        attr->name = sglcore_arena_string(&p->arena, entry.name, token->length);
        attr->kind = entry.kind;
        return attr->name != NULL || fails(p, SGL_OUT_OF_MEMORY);
    }
    return sglir_lex_fail(&p->lexer, token, SGL_CORRUPT, "%s has no attribute '%.*s'; it has: %s",
                          sglir_ops[s->op].name, (int)(token->length < 64 ? token->length : 64), token->start,
                          *sglir_ops[s->op].attrs != '\0' ? sglir_ops[s->op].attrs : "none");
}

static bool parse_attr(parser *p, statement *s)
{
    sglir_token at = p->lexer.token;
    sglir_named attr = { 0 };
    if (!find_attr(p, s, &attr)) return false;
    for (int i = 0; i < s->attr_count; i++) {
        if (strcmp(s->attrs[i].name, attr.name) != 0) continue;
        return sglir_lex_fail(&p->lexer, &at, SGL_CORRUPT, "attribute '%s' is given twice", attr.name);
    }
    if (s->attr_count == SGLIR_MOST_ATTRS) return sglir_lex_fail(&p->lexer, &at, SGL_CORRUPT, "too many attributes");
    if (!sglir_lex_advance(&p->lexer) || !sglir_lex_sign(&p->lexer, '=')) return false;
    bool good;
    switch (attr.kind) {
    case 'b': good = sglir_lex_int(&p->lexer, 0, 1, &attr.i); break;
    case 'f': good = sglir_lex_float(&p->lexer, &attr.f); break;
    case 's': good = sglir_lex_string(&p->lexer, &attr.s); break;
    case 't': good = parse_dtype(p, &attr.i); break;
    case 'I':
    case 'F': good = parse_list(p, &attr); break;
    default: good = sglir_lex_int(&p->lexer, INT64_MIN, INT64_MAX, &attr.i); break;
    }
    s->attrs[s->attr_count++] = attr;
    return good;
}

static bool parse_attrs(parser *p, statement *s)
{
    /* Of an op without attributes and types a brace opens the regions. */
    if (!sglir_lex_is_sign(&p->lexer, '{')) return true;
    sglir_lexer ahead = p->lexer;
    if (sglir_lex_advance(&ahead) && sglir_lex_is_word(&ahead, "region")) return true;
    if (!sglir_lex_sign(&p->lexer, '{')) return false;
    if (sglir_lex_take_sign(&p->lexer, '}')) return true;
    do {
        if (!parse_attr(p, s)) return false;
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return sglir_lex_sign(&p->lexer, '}');
}

static bool parse_types(parser *p, statement *s)
{
    if (!sglir_lex_take_sign(&p->lexer, ':')) return true;
    s->typed = true;
    do {
        placed_type placed;
        if (!parse_placed_type(p, &placed)) return false;
        if (sglcore_vec_push(p->env, &s->types, placed) != SGL_OK) return fails(p, SGL_OUT_OF_MEMORY);
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return true;
}

/* work 64 in arena+96 */
static bool parse_work(parser *p, statement *s)
{
    return sglir_lex_int(&p->lexer, 0, INT64_MAX, &s->work_bytes) && sglir_lex_word(&p->lexer, "in") &&
           sglir_lex_word(&p->lexer, sglir_space_names[SGLIR_SPACE_ARENA]) && sglir_lex_sign(&p->lexer, '+') &&
           sglir_lex_int(&p->lexer, 0, INT64_MAX, &s->work_offset);
}

/* epoch 1 work 64 in arena+96 @"llama.lua":42 scope "embed" pass "autodiff", each of them or none */
static bool parse_origin(parser *p, statement *s)
{
    sglir_lexer *lexer = &p->lexer;
    if (sglir_lex_take_word(lexer, "epoch") && !sglir_lex_int(lexer, 0, UINT16_MAX, &s->epoch)) return false;
    if (sglir_lex_take_word(lexer, "work") && !parse_work(p, s)) return false;
    if (sglir_lex_take_sign(lexer, '@') && !(sglir_lex_string(lexer, &s->file) && sglir_lex_sign(lexer, ':') &&
                                             sglir_lex_int(lexer, 0, INT32_MAX, &s->line))) {
        return false;
    }
    if (sglir_lex_take_word(lexer, "scope") && !sglir_lex_string(lexer, &s->scope)) return false;
    if (sglir_lex_take_word(lexer, "pass") && !sglir_lex_string(lexer, &s->pass)) return false;
    return lexer->status == SGL_OK;
}

static bool parse_results(parser *p, statement *s)
{
    if (p->lexer.token.kind != SGLIR_TOKEN_VALUE) return true;
    do {
        uint32_t number;
        if (!sglir_lex_value(&p->lexer, &number) || !push(p, &s->results, number)) return false;
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return sglir_lex_sign(&p->lexer, '=');
}

/* ---- emitting a node ---------------------------------------------------------------------------------------- */

static bool check_results(parser *p, const statement *s)
{
    const sglir_node *node = &p->g->nodes.data[p->g->nodes.count - 1];
    if (s->results.count != node->out_count || (s->typed && s->types.count != node->out_count)) {
        return sglir_lex_fail(&p->lexer, &s->op_at, SGL_CORRUPT,
                              "%s yields %u results; %lld are named, %lld types are given", sglir_ops[s->op].name,
                              (unsigned)node->out_count, (long long)s->results.count, (long long)s->types.count);
    }
    for (int64_t i = 0; i < s->types.count; i++) {
        const sglir_type *made = sglir_type_of(p->g, node->out_first + (sglir_id)i), *written = &s->types.data[i].type;
        if (sglir_type_equal(made, written)) continue;
        char made_text[SGLIR_TYPE_ROOM], written_text[SGLIR_TYPE_ROOM];
        return sglir_lex_fail(&p->lexer, &s->op_at, SGL_TYPE, "%s: result %lld is %s, but %s is written",
                              sglir_ops[s->op].name, (long long)i, sglir_type_text(made, made_text, sizeof made_text),
                              sglir_type_text(written, written_text, sizeof written_text));
    }
    return true;
}

static bool emit(parser *p, statement *s)
{
    sglir_graph *g = p->g;
    sglir_set_origin(g, s->file, (int)s->line, s->scope, s->pass);
    int64_t before = g->nodes.count;
    sglir_emit_regions(g, s->op, s->args.data, (int)s->args.count, s->attrs, s->attr_count, s->regions.data,
                       (int)s->regions.count, NULL);
    if (sglir_status(g) != SGL_OK) return sglir_lex_fail_at(&p->lexer, &s->op_at, sglir_status(g));
    if (g->nodes.count != before + 1) {
        return sglir_lex_fail(&p->lexer, &s->op_at, SGL_INTERNAL, "%s made no node", sglir_ops[s->op].name);
    }
    if (!check_results(p, s)) return false;
    sglir_node *node = &g->nodes.data[before];
    node->epoch = (uint16_t)s->epoch;
    node->work_bytes = s->work_bytes;
    node->work_offset = s->work_offset;
    for (uint32_t i = 0; i < node->out_count; i++) {
        if (i < s->types.count) {
            g->values.data[node->out_first + i].space = s->types.data[i].space;
            g->values.data[node->out_first + i].offset = s->types.data[i].offset;
        }
        if (!define_value(p, &s->start, s->results.data[i], node->out_first + i)) return false;
    }
    return true;
}

/* ---- regions ------------------------------------------------------------------------------------------------ */

static bool parse_block(parser *p);

static bool parse_parameters(parser *p, id_list *numbers, statement *types)
{
    if (!sglir_lex_word(&p->lexer, "region") || !sglir_lex_sign(&p->lexer, '(')) return false;
    while (!sglir_lex_is_sign(&p->lexer, ')')) {
        uint32_t number;
        placed_type placed;
        if (numbers->count > 0 && !sglir_lex_sign(&p->lexer, ',')) return false;
        if (!sglir_lex_value(&p->lexer, &number) || !sglir_lex_sign(&p->lexer, ':')) return false;
        if (!parse_placed_type(p, &placed) || !push(p, numbers, number)) return false;
        if (sglcore_vec_push(p->env, &types->types, placed) != SGL_OK) return fails(p, SGL_OUT_OF_MEMORY);
    }
    return sglir_lex_sign(&p->lexer, ')') && sglir_lex_sign(&p->lexer, '{');
}

static bool begin_region(parser *p, const sglir_token *at, const id_list *numbers, const statement *types, sglir_id *id)
{
    size_t count = (size_t)numbers->count;
    sglir_type *plain = sglcore_alloc(p->env, count * sizeof *plain);
    sglir_id *values = sglcore_alloc(p->env, count * sizeof *values);
    bool good = count == 0 || (plain != NULL && values != NULL);
    if (!good) fails(p, SGL_OUT_OF_MEMORY);
    if (good) {
        for (size_t i = 0; i < count; i++) plain[i] = types->types.data[i].type;
        *id = sglir_region_begin(p->g, plain, (int)count, values);
        if (sglir_status(p->g) != SGL_OK) good = sglir_lex_fail_at(&p->lexer, at, sglir_status(p->g));
    }
    for (size_t i = 0; i < count && good; i++) {
        p->g->values.data[values[i]].space = types->types.data[i].space;
        p->g->values.data[values[i]].offset = types->types.data[i].offset;
        good = define_value(p, at, numbers->data[i], values[i]);
    }
    sglcore_free(p->env, plain, count * sizeof *plain);
    sglcore_free(p->env, values, count * sizeof *values);
    return good;
}

/* region(%1: f32[4]) { ... yield %2 } */
static bool parse_region(parser *p, statement *holder)
{
    sglir_token at = p->lexer.token;
    if (p->depth == SGLIR_TEXT_DEPTH) {
        return sglir_lex_fail(&p->lexer, &at, SGL_LIMIT, "more than %d regions within regions", SGLIR_TEXT_DEPTH);
    }
    statement parameters = { 0 }; /* its results and types are the parameters'; its args the region's results */
    int64_t open = p->numbers.count;
    sglir_id id = SGLIR_NONE;
    p->depth++;
    bool good = parse_parameters(p, &parameters.results, &parameters) &&
                begin_region(p, &at, &parameters.results, &parameters, &id) && parse_block(p) &&
                sglir_lex_word(&p->lexer, "yield") && use_values(p, &parameters.args) && sglir_lex_sign(&p->lexer, '}');
    if (good) {
        sglir_region_end(p->g, parameters.args.data, (int)parameters.args.count);
        if (sglir_status(p->g) != SGL_OK) good = sglir_lex_fail_at(&p->lexer, &at, sglir_status(p->g));
    }
    good = good && close_values(p, open) && push(p, &holder->regions, id);
    p->depth--;
    sglcore_vec_free(p->env, &parameters.results);
    sglcore_vec_free(p->env, &parameters.types);
    sglcore_vec_free(p->env, &parameters.args);
    return good;
}

static bool parse_regions(parser *p, statement *s)
{
    if (!sglir_lex_take_sign(&p->lexer, '{')) return p->lexer.status == SGL_OK;
    do {
        if (!parse_region(p, s)) return false;
    } while (!sglir_lex_take_sign(&p->lexer, '}'));
    return true;
}

static bool parse_node(parser *p)
{
    statement s = { .start = p->lexer.token, .file = "", .scope = "", .pass = "" };
    bool good = parse_results(p, &s) && parse_op(p, &s) && sglir_lex_sign(&p->lexer, '(') && use_values(p, &s.args) &&
                sglir_lex_sign(&p->lexer, ')') && parse_attrs(p, &s) && parse_types(p, &s) && parse_origin(p, &s) &&
                parse_regions(p, &s) && emit(p, &s);
    sglcore_vec_free(p->env, &s.results);
    sglcore_vec_free(p->env, &s.args);
    sglcore_vec_free(p->env, &s.regions);
    sglcore_vec_free(p->env, &s.types);
    return good;
}

/* ---- the border of the graph -------------------------------------------------------------------------------- */

static bool parse_output(parser *p, sglir_output_role role)
{
    sglir_token at = p->lexer.token;
    const char *name;
    sglir_id value;
    if (!sglir_lex_advance(&p->lexer) || !sglir_lex_string(&p->lexer, &name) || !use_value(p, &value)) return false;
    sglir_output_add(p->g, role, name, value);
    return sglir_status(p->g) == SGL_OK || sglir_lex_fail_at(&p->lexer, &at, sglir_status(p->g));
}

/* member "embed.weight" of "params" role parameter offset 0 : f32[256,384] */
static bool parse_member(parser *p)
{
    sglir_lexer *lexer = &p->lexer;
    const char *name, *section;
    sglir_member member = { 0 };
    if (!sglir_lex_advance(lexer) || !sglir_lex_string(lexer, &name) || !sglir_lex_word(lexer, "of") ||
        !sglir_lex_string(lexer, &section) || !sglir_lex_word(lexer, "role")) {
        return false;
    }
    int role = word_among(lexer, sglir_role_names, SGLIR_ROLES);
    if (role < 0) return sglir_lex_expected(lexer, "a role (parameter, state, feed, cache)");
    member.role = (uint8_t)role;
    if (!sglir_lex_advance(lexer) || !sglir_lex_word(lexer, "offset") ||
        !sglir_lex_int(lexer, 0, INT64_MAX, &member.offset) || !sglir_lex_sign(lexer, ':') ||
        !parse_type(p, &member.type)) {
        return false;
    }
    sgl_status status = sglcore_intern(p->g->strings, name, strlen(name), &member.name);
    if (status == SGL_OK) status = sglcore_intern(p->g->strings, section, strlen(section), &member.section);
    if (status == SGL_OK) status = sglcore_vec_push(p->env, &p->g->members, member);
    return status == SGL_OK || fails(p, status);
}

/* memory {arena=4096, state=0, io=0, const=0, lower_bound=4096} */
static bool parse_memory(parser *p)
{
    if (!sglir_lex_advance(&p->lexer) || !sglir_lex_sign(&p->lexer, '{')) return false;
    do {
        int space = word_among(&p->lexer, sglir_space_names + 1, 4);
        int64_t *bytes = space >= 0 ? &p->g->space_bytes[space + 1] : &p->g->arena_lower_bound;
        if (space < 0 && !sglir_lex_is_word(&p->lexer, "lower_bound")) {
            return sglir_lex_expected(&p->lexer, "a space (arena, state, io, const) or lower_bound");
        }
        if (!sglir_lex_advance(&p->lexer) || !sglir_lex_sign(&p->lexer, '=') ||
            !sglir_lex_int(&p->lexer, 0, INT64_MAX, bytes)) {
            return false;
        }
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return sglir_lex_sign(&p->lexer, '}');
}

/* Nodes, and at the top the border too, up to what opens no such line. */
static bool parse_block(parser *p)
{
    while (p->lexer.status == SGL_OK) {
        bool top = p->depth == 0, good;
        if (top && sglir_lex_is_word(&p->lexer, "fetch")) {
            good = parse_output(p, SGLIR_FETCH);
        } else if (top && sglir_lex_is_word(&p->lexer, "update")) {
            good = parse_output(p, SGLIR_UPDATE);
        } else if (top && sglir_lex_is_word(&p->lexer, "member")) {
            good = parse_member(p);
        } else if (top && sglir_lex_is_word(&p->lexer, "memory")) {
            good = parse_memory(p);
        } else if (sglir_lex_is_sign(&p->lexer, '}') || sglir_lex_is_word(&p->lexer, "yield")) {
            return true;
        } else {
            good = parse_node(p);
        }
        if (!good) return false;
    }
    return false;
}

static bool parse_graph(parser *p)
{
    const char *name;
    if (!sglir_lex_word(&p->lexer, "graph") || !sglir_lex_string(&p->lexer, &name)) return false;
    sgl_status status = sglir_graph_new(p->env, name, &p->g);
    if (status != SGL_OK) return fails(p, status);
    if (!sglir_lex_sign(&p->lexer, '{') || !parse_block(p) || !sglir_lex_sign(&p->lexer, '}')) return false;
    return p->lexer.token.kind == SGLIR_TOKEN_END || sglir_lex_expected(&p->lexer, "the end of the text");
}

sgl_status sglir_parse(sglcore_env *env, const char *name, const char *text, size_t length, sglir_graph **graph)
{
    *graph = NULL;
    parser p = { .env = env, .arena = { .env = env } };
    sglir_lex_begin(&p.lexer, env, &p.arena, name, text, length);
    if (p.lexer.status == SGL_OK && parse_graph(&p)) {
        *graph = p.g;
    } else {
        sglir_graph_free(p.g);
    }
    sglcore_arena_free(&p.arena);
    sglcore_map_free(env, &p.values);
    sglcore_vec_free(env, &p.numbers);
    return p.lexer.status;
}

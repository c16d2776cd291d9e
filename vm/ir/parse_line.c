/* parse_line.c -- pieces of the text form: values by number, types with what is owed and where they lie, and a node's line
 * from its results to its origin. In: tokens. Out: a statement whose numbers, names and kinds are checked; whether its
 * types fit is for sglir_emit to say. Odd invariant: a brace may open attributes, what a type owes, or regions; the word
 * behind it tells. */
#include <string.h>

#include "ir/parse.h"

bool sglir_parse_fails(sglir_parser *p, sgl_status status)
{
    return sglir_lex_fail_at(&p->lexer, &p->lexer.token, status);
}

bool sglir_parse_push(sglir_parser *p, sglir_id_list *list, sglir_id id)
{
    return sglcore_vec_push(p->env, list, id) == SGL_OK || sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
}

/* ---- values ------------------------------------------------------------------------------------------------- */

static sglcore_hash key_of(uint32_t number) { return (sglcore_hash){ .low = number }; }

bool sglir_parse_define(sglir_parser *p, const sglir_token *at, uint32_t number, sglir_id value)
{
    uint64_t found;
    if (sglcore_map_get(&p->values, key_of(number), &found)) {
        return sglir_lex_fail(&p->lexer, at, SGL_CORRUPT, "%%%u is defined twice", (unsigned)number);
    }
    if (sglcore_map_put(p->env, &p->values, key_of(number), value) != SGL_OK)
        return sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
    return sglir_parse_push(p, &p->numbers, number);
}

bool sglir_parse_close_values(sglir_parser *p, int64_t from)
{
    for (int64_t i = from; i < p->numbers.count; i++) {
        if (sglcore_map_put(p->env, &p->values, key_of(p->numbers.data[i]), SGLIR_NONE) != SGL_OK) {
            return sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
        }
    }
    p->numbers.count = from;
    return true;
}

bool sglir_parse_use_value(sglir_parser *p, sglir_id *value)
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
bool sglir_parse_use_values(sglir_parser *p, sglir_id_list *list)
{
    if (p->lexer.token.kind != SGLIR_TOKEN_VALUE) return true;
    do {
        sglir_id value;
        if (!sglir_parse_use_value(p, &value) || !sglir_parse_push(p, list, value)) return false;
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return true;
}

/* ---- types -------------------------------------------------------------------------------------------------- */

/* The index of the word among `count` names, or -1. */
int sglir_parse_among(const sglir_lexer *lexer, const char *const *names, int count)
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

static bool parse_axis(sglir_parser *p, int *axis)
{
    *axis = axis_word(&p->lexer);
    if (*axis < 0) return sglir_lex_expected(&p->lexer, "a mesh axis (dp, fsdp, tp, pp, ep, cp, micro)");
    return sglir_lex_advance(&p->lexer);
}

static bool parse_dtype(sglir_parser *p, int64_t *dtype)
{
    for (*dtype = 0; *dtype < SGL_DTYPE_COUNT; ++*dtype) {
        if (sglir_lex_take_word(&p->lexer, sgl_dtype_name((sgl_dtype)*dtype))) return true;
    }
    return sglir_lex_expected(&p->lexer, "a dtype such as f32");
}

/* {dp:0,partial(tp),scaled} after the brace */
static bool parse_owed(sglir_parser *p, sglir_type *type)
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
static bool opens_owed(const sglir_parser *p)
{
    if (!sglir_lex_is_sign(&p->lexer, '{')) return false;
    sglir_lexer ahead = p->lexer; /* plain data: looking ahead is advancing a copy */
    if (!sglir_lex_advance(&ahead)) return false;
    return sglir_lex_is_word(&ahead, "scaled") || sglir_lex_is_word(&ahead, "partial") || axis_word(&ahead) >= 0;
}

bool sglir_parse_type(sglir_parser *p, sglir_type *type)
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

static bool parse_extents(sglir_parser *p, int rank, int64_t *extents)
{
    for (int i = 0; i < rank; i++) {
        if (!sglir_lex_sign(&p->lexer, i == 0 ? '[' : ',')) return false;
        if (!sglir_lex_int(&p->lexer, 0, INT64_MAX, &extents[i])) return false;
    }
    return (rank > 0 || sglir_lex_sign(&p->lexer, '[')) && sglir_lex_sign(&p->lexer, ']');
}

/* of [8,64] from [4,0] */
static bool parse_whole(sglir_parser *p, sglir_placed_type *placed)
{
    int rank = placed->type.rank;
    placed->is_part = sglir_lex_take_word(&p->lexer, "of");
    if (!placed->is_part) return p->lexer.status == SGL_OK;
    return parse_extents(p, rank, placed->whole.dims) && sglir_lex_word(&p->lexer, "from") &&
           parse_extents(p, rank, placed->whole.starts);
}

bool sglir_parse_place(sglir_parser *p, const sglir_token *at, sglir_id value, const sglir_placed_type *placed)
{
    p->g->values.data[value].space = placed->space;
    p->g->values.data[value].offset = placed->offset;
    if (placed->is_part) sglir_set_whole(p->g, value, &placed->whole);
    return sglir_status(p->g) == SGL_OK || sglir_lex_fail_at(&p->lexer, at, sglir_status(p->g));
}

bool sglir_parse_placed_type(sglir_parser *p, sglir_placed_type *placed)
{
    *placed = (sglir_placed_type){ .space = SGLIR_SPACE_NONE };
    if (!sglir_parse_type(p, &placed->type) || !parse_whole(p, placed)) return false;
    if (!sglir_lex_take_word(&p->lexer, "in")) return true;
    int space = sglir_parse_among(&p->lexer, sglir_space_names + 1, SGLIR_SPACES - 1);
    if (space < 0) return sglir_lex_expected(&p->lexer, "a space (arena, state, io, const, host, away)");
    placed->space = (uint8_t)(space + 1);
    return sglir_lex_advance(&p->lexer) && sglir_lex_sign(&p->lexer, '+') &&
           sglir_lex_int(&p->lexer, 0, INT64_MAX, &placed->offset);
}

/* ---- a node's line ------------------------------------------------------------------------------------------ */

static bool parse_op(sglir_parser *p, sglir_statement *s)
{
    s->op_at = p->lexer.token;
    if (p->lexer.token.kind != SGLIR_TOKEN_WORD) return sglir_lex_expected(&p->lexer, "an op");
    const char *names[SGLIR_OP_COUNT];
    for (int i = 0; i < SGLIR_OP_COUNT; i++) names[i] = sglir_ops[i].name;
    int op = sglir_parse_among(&p->lexer, names, SGLIR_OP_COUNT);
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
static bool parse_list(sglir_parser *p, sglir_named *attr)
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
            good = sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
        }
        count++;
    }
    good = good && sglir_lex_sign(&p->lexer, ']');
    if (good && count > 0) {
        size_t bytes = (size_t)count * sizeof(int64_t);
        void *kept = sglcore_arena_alloc(&p->arena, bytes);
        good = kept != NULL || sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
        if (good) memcpy(kept, whole ? (void *)ints.data : (void *)floats.data, bytes);
        attr->ints = whole ? kept : NULL;
        attr->floats = whole ? NULL : kept;
    }
    attr->i = count;
    sglcore_vec_free(p->env, &ints);
    sglcore_vec_free(p->env, &floats);
    return good;
}

static bool find_attr(sglir_parser *p, const sglir_statement *s, sglir_named *attr)
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
        return attr->name != NULL || sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
    }
    return sglir_lex_fail(&p->lexer, token, SGL_CORRUPT, "%s has no attribute '%.*s'; it has: %s",
                          sglir_ops[s->op].name, (int)(token->length < 64 ? token->length : 64), token->start,
                          *sglir_ops[s->op].attrs != '\0' ? sglir_ops[s->op].attrs : "none");
}

static bool parse_attr(sglir_parser *p, sglir_statement *s)
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

static bool parse_attrs(sglir_parser *p, sglir_statement *s)
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

static bool parse_types(sglir_parser *p, sglir_statement *s)
{
    if (!sglir_lex_take_sign(&p->lexer, ':')) return true;
    s->typed = true;
    do {
        sglir_placed_type placed;
        if (!sglir_parse_placed_type(p, &placed)) return false;
        if (sglcore_vec_push(p->env, &s->types, placed) != SGL_OK) return sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return true;
}

/* work 64 in arena+96 */
static bool parse_work(sglir_parser *p, sglir_statement *s)
{
    return sglir_lex_int(&p->lexer, 0, INT64_MAX, &s->work_bytes) && sglir_lex_word(&p->lexer, "in") &&
           sglir_lex_word(&p->lexer, sglir_space_names[SGLIR_SPACE_ARENA]) && sglir_lex_sign(&p->lexer, '+') &&
           sglir_lex_int(&p->lexer, 0, INT64_MAX, &s->work_offset);
}

/* epoch 1 turn 2 work 64 in arena+96 @"llama.lua":42 scope "embed" pass "autodiff", each of them or none */
static bool parse_origin(sglir_parser *p, sglir_statement *s)
{
    sglir_lexer *lexer = &p->lexer;
    if (sglir_lex_take_word(lexer, "epoch") && !sglir_lex_int(lexer, 0, UINT16_MAX, &s->epoch)) return false;
    if (sglir_lex_take_word(lexer, "turn") && !sglir_lex_int(lexer, 0, SGLIR_MOST_TURNS, &s->turn)) return false;
    if (sglir_lex_take_word(lexer, "work") && !parse_work(p, s)) return false;
    if (sglir_lex_take_sign(lexer, '@') && !(sglir_lex_string(lexer, &s->file) && sglir_lex_sign(lexer, ':') &&
                                             sglir_lex_int(lexer, 0, INT32_MAX, &s->line))) {
        return false;
    }
    if (sglir_lex_take_word(lexer, "scope") && !sglir_lex_string(lexer, &s->scope)) return false;
    if (sglir_lex_take_word(lexer, "pass") && !sglir_lex_string(lexer, &s->pass)) return false;
    return lexer->status == SGL_OK;
}

static bool parse_results(sglir_parser *p, sglir_statement *s)
{
    if (p->lexer.token.kind != SGLIR_TOKEN_VALUE) return true;
    do {
        uint32_t number;
        if (!sglir_lex_value(&p->lexer, &number) || !sglir_parse_push(p, &s->results, number)) return false;
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return sglir_lex_sign(&p->lexer, '=');
}

bool sglir_parse_line(sglir_parser *p, sglir_statement *s)
{
    return parse_results(p, s) && parse_op(p, s) && sglir_lex_sign(&p->lexer, '(') &&
           sglir_parse_use_values(p, &s->args) && sglir_lex_sign(&p->lexer, ')') && parse_attrs(p, s) &&
           parse_types(p, s) && parse_origin(p, s);
}

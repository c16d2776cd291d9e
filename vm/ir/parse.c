/* parse.c -- the text form of a graph, read. In: bytes that nobody vouches for (the form stands in text.h). Out: a graph
 * whose every node went through sglir_emit, so that types are inferred anew and what is written must equal them; or a
 * message "name:line:column: ..." and no graph. Nothing in the text is trusted: numbers, names, depth and use of values
 * are checked before anything is built of them. Odd invariant: a node is emitted after its regions, so its line is kept
 * in a `statement` meanwhile. */
#include <string.h>

#include "ir/parse.h"

/* ---- emitting a node ---------------------------------------------------------------------------------------- */

static bool check_results(sglir_parser *p, const sglir_statement *s)
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

static bool emit(sglir_parser *p, sglir_statement *s)
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
    node->turn = (uint32_t)s->turn;
    node->work_bytes = s->work_bytes;
    node->work_offset = s->work_offset;
    for (uint32_t i = 0; i < node->out_count; i++) {
        if (i < s->types.count && !sglir_parse_place(p, &s->start, node->out_first + i, &s->types.data[i]))
            return false;
        if (!sglir_parse_define(p, &s->start, s->results.data[i], node->out_first + i)) return false;
    }
    return true;
}

/* ---- regions ------------------------------------------------------------------------------------------------ */

static bool parse_block(sglir_parser *p);

static bool parse_parameters(sglir_parser *p, sglir_id_list *numbers, sglir_statement *types)
{
    if (!sglir_lex_word(&p->lexer, "region") || !sglir_lex_sign(&p->lexer, '(')) return false;
    while (!sglir_lex_is_sign(&p->lexer, ')')) {
        uint32_t number;
        sglir_placed_type placed;
        if (numbers->count > 0 && !sglir_lex_sign(&p->lexer, ',')) return false;
        if (!sglir_lex_value(&p->lexer, &number) || !sglir_lex_sign(&p->lexer, ':')) return false;
        if (!sglir_parse_placed_type(p, &placed) || !sglir_parse_push(p, numbers, number)) return false;
        if (sglcore_vec_push(p->env, &types->types, placed) != SGL_OK) return sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
    }
    return sglir_lex_sign(&p->lexer, ')') && sglir_lex_sign(&p->lexer, '{');
}

static bool begin_region(sglir_parser *p, const sglir_token *at, const sglir_id_list *numbers,
                         const sglir_statement *types, sglir_id id)
{
    size_t count = (size_t)numbers->count;
    sglir_type *plain = sglcore_alloc(p->env, count * sizeof *plain);
    sglir_id *values = sglcore_alloc(p->env, count * sizeof *values);
    bool good = count == 0 || (plain != NULL && values != NULL);
    if (!good) sglir_parse_fails(p, SGL_OUT_OF_MEMORY);
    if (good) {
        for (size_t i = 0; i < count; i++) plain[i] = types->types.data[i].type;
        sglir_region_begin_at(p->g, id, plain, (int)count, values);
        if (sglir_status(p->g) != SGL_OK) good = sglir_lex_fail_at(&p->lexer, at, sglir_status(p->g));
    }
    for (size_t i = 0; i < count && good; i++) {
        good = sglir_parse_place(p, at, values[i], &types->types.data[i]) &&
               sglir_parse_define(p, at, numbers->data[i], values[i]);
    }
    sglcore_free(p->env, plain, count * sizeof *plain);
    sglcore_free(p->env, values, count * sizeof *values);
    return good;
}

/* region(%1: f32[4]) { ... yield %2 } */
static bool parse_region(sglir_parser *p, sglir_statement *holder, sglir_id id)
{
    sglir_token at = p->lexer.token;
    if (p->depth == SGLIR_TEXT_DEPTH) {
        return sglir_lex_fail(&p->lexer, &at, SGL_LIMIT, "more than %d regions within regions", SGLIR_TEXT_DEPTH);
    }
    sglir_statement parameters = { 0 }; /* its results and types are the parameters'; its args the region's results */
    int64_t open = p->numbers.count;
    p->depth++;
    bool good = parse_parameters(p, &parameters.results, &parameters) &&
                begin_region(p, &at, &parameters.results, &parameters, id) && parse_block(p) &&
                sglir_lex_word(&p->lexer, "yield") && sglir_parse_use_values(p, &parameters.args) &&
                sglir_lex_sign(&p->lexer, '}');
    if (good) {
        sglir_region_end(p->g, parameters.args.data, (int)parameters.args.count);
        if (sglir_status(p->g) != SGL_OK) good = sglir_lex_fail_at(&p->lexer, &at, sglir_status(p->g));
    }
    good = good && sglir_parse_close_values(p, open) && sglir_parse_push(p, &holder->regions, id);
    p->depth--;
    sglcore_vec_free(p->env, &parameters.results);
    sglcore_vec_free(p->env, &parameters.types);
    sglcore_vec_free(p->env, &parameters.args);
    return good;
}

static bool parse_regions(sglir_parser *p, sglir_statement *s)
{
    if (!sglir_lex_take_sign(&p->lexer, '{')) return p->lexer.status == SGL_OK;
    int taken = sglir_region_count(s->op);
    sglir_id first = sglir_region_take(p->g, taken);
    do {
        bool one_more = s->regions.count >= taken; /* too many, which is for the op to say */
        sglir_id id = one_more ? sglir_region_take(p->g, 1) : first + (sglir_id)s->regions.count;
        if (sglir_status(p->g) != SGL_OK) return sglir_parse_fails(p, sglir_status(p->g));
        if (!parse_region(p, s, id)) return false;
    } while (!sglir_lex_take_sign(&p->lexer, '}'));
    return true;
}

static bool parse_node(sglir_parser *p)
{
    sglir_statement s = { .start = p->lexer.token, .file = "", .scope = "", .pass = "" };
    bool good = sglir_parse_line(p, &s) && parse_regions(p, &s) && emit(p, &s);
    sglcore_vec_free(p->env, &s.results);
    sglcore_vec_free(p->env, &s.args);
    sglcore_vec_free(p->env, &s.regions);
    sglcore_vec_free(p->env, &s.types);
    return good;
}

/* ---- the border of the graph -------------------------------------------------------------------------------- */

static bool parse_output(sglir_parser *p, sglir_output_role role)
{
    sglir_token at = p->lexer.token;
    const char *name;
    sglir_id value;
    if (!sglir_lex_advance(&p->lexer) || !sglir_lex_string(&p->lexer, &name) || !sglir_parse_use_value(p, &value))
        return false;
    sglir_output_add(p->g, role, name, value);
    return sglir_status(p->g) == SGL_OK || sglir_lex_fail_at(&p->lexer, &at, sglir_status(p->g));
}

/* member "embed.weight" of "params" role parameter offset 0 : f32[256,384] */
static bool parse_member(sglir_parser *p)
{
    sglir_lexer *lexer = &p->lexer;
    const char *name, *section;
    sglir_member member = { 0 };
    if (!sglir_lex_advance(lexer) || !sglir_lex_string(lexer, &name) || !sglir_lex_word(lexer, "of") ||
        !sglir_lex_string(lexer, &section) || !sglir_lex_word(lexer, "role")) {
        return false;
    }
    int role = sglir_parse_among(lexer, sglir_role_names, SGLIR_ROLES);
    if (role < 0) return sglir_lex_expected(lexer, "a role (parameter, state, feed, cache)");
    member.role = (uint8_t)role;
    if (!sglir_lex_advance(lexer) || !sglir_lex_word(lexer, "offset") ||
        !sglir_lex_int(lexer, 0, INT64_MAX, &member.offset) || !sglir_lex_sign(lexer, ':') ||
        !sglir_parse_type(p, &member.type)) {
        return false;
    }
    sgl_status status = sglcore_intern(p->g->strings, name, strlen(name), &member.name);
    if (status == SGL_OK) status = sglcore_intern(p->g->strings, section, strlen(section), &member.section);
    if (status == SGL_OK) status = sglcore_vec_push(p->env, &p->g->members, member);
    return status == SGL_OK || sglir_parse_fails(p, status);
}

/* recompute "blocks.0" */
static bool parse_recomputed(sglir_parser *p)
{
    const char *path;
    if (!sglir_lex_advance(&p->lexer) || !sglir_lex_string(&p->lexer, &path)) return false;
    sglir_recompute(p->g, path);
    return sglir_status(p->g) == SGL_OK || sglir_parse_fails(p, sglir_status(p->g));
}

/* memory {arena=4096, state=0, io=0, const=0, lower_bound=4096} */
static bool parse_memory(sglir_parser *p)
{
    if (!sglir_lex_advance(&p->lexer) || !sglir_lex_sign(&p->lexer, '{')) return false;
    do {
        int space = sglir_parse_among(&p->lexer, sglir_space_names + 1, SGLIR_SPACES - 1);
        int64_t *bytes = space >= 0 ? &p->g->space_bytes[space + 1] : &p->g->arena_lower_bound;
        if (space < 0 && !sglir_lex_is_word(&p->lexer, "lower_bound")) {
            return sglir_lex_expected(&p->lexer, "a space (arena, state, io, const, host, away) or lower_bound");
        }
        if (!sglir_lex_advance(&p->lexer) || !sglir_lex_sign(&p->lexer, '=') ||
            !sglir_lex_int(&p->lexer, 0, INT64_MAX, bytes)) {
            return false;
        }
    } while (sglir_lex_take_sign(&p->lexer, ','));
    return sglir_lex_sign(&p->lexer, '}');
}

/* Nodes, and at the top the border too, up to what opens no such line. */
static bool parse_block(sglir_parser *p)
{
    while (p->lexer.status == SGL_OK) {
        bool top = p->depth == 0, good;
        if (top && sglir_lex_is_word(&p->lexer, "fetch")) {
            good = parse_output(p, SGLIR_FETCH);
        } else if (top && sglir_lex_is_word(&p->lexer, "update")) {
            good = parse_output(p, SGLIR_UPDATE);
        } else if (top && sglir_lex_is_word(&p->lexer, "member")) {
            good = parse_member(p);
        } else if (top && sglir_lex_is_word(&p->lexer, "recompute")) {
            good = parse_recomputed(p);
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

static bool parse_graph(sglir_parser *p)
{
    const char *name;
    if (!sglir_lex_word(&p->lexer, "graph") || !sglir_lex_string(&p->lexer, &name)) return false;
    sgl_status status = sglir_graph_new(p->env, name, &p->g);
    if (status != SGL_OK) return sglir_parse_fails(p, status);
    if (!sglir_lex_sign(&p->lexer, '{') || !parse_block(p) || !sglir_lex_sign(&p->lexer, '}')) return false;
    return p->lexer.token.kind == SGLIR_TOKEN_END || sglir_lex_expected(&p->lexer, "the end of the text");
}

sgl_status sglir_parse(sglcore_env *env, const char *name, const char *text, size_t length, sglir_graph **graph)
{
    *graph = NULL;
    sglir_parser p = { .env = env, .arena = { .env = env } };
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

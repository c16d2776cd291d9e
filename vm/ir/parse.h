/* parse.h -- inside the parser of the text form: its state, a node's line, and the pieces that lines are read from.
 * parse_line.c reads values, types and a node's line; parse.c emits nodes and reads regions and the border. Every call
 * returns false once something has failed; the lexer then has the status and the env the message. */
#ifndef SGLIR_PARSE_H
#define SGLIR_PARSE_H

#include "ir/infer.h"
#include "ir/lex.h"
#include "ir/text.h"

typedef SGLCORE_VEC(sglir_id) sglir_id_list;

typedef struct sglir_parser {
    sglir_lexer lexer;
    sglcore_env *env;
    sglir_graph *g;
    sglcore_arena arena;
    sglcore_map values;    /* number in the text to value; SGLIR_NONE once its region is closed */
    sglir_id_list numbers; /* of the values that are open to use, innermost region last */
    int depth;
} sglir_parser;

typedef struct sglir_placed_type {
    sglir_type type;
    uint8_t space;
    bool is_part; /* whole is written */
    int64_t offset;
    sglir_whole whole;
} sglir_placed_type;

/* A node's line. */
typedef struct sglir_statement {
    sglir_token start, op_at;
    sglir_id_list results; /* numbers as written */
    sglir_id_list args;    /* values */
    sglir_id_list regions;
    sglir_op op;
    sglir_named attrs[SGLIR_MOST_ATTRS];
    int attr_count;
    SGLCORE_VEC(sglir_placed_type) types;
    bool typed; /* types are written */
    int64_t epoch, line, turn, work_bytes, work_offset;
    const char *file, *scope, *pass;
} sglir_statement;

/* Fails at the present token with a status whose message is recorded. */
bool sglir_parse_fails(sglir_parser *p, sgl_status status);
bool sglir_parse_push(sglir_parser *p, sglir_id_list *list, sglir_id id);

/* The number stands for the value from now on, until the values from some count on are closed with their region. */
bool sglir_parse_define(sglir_parser *p, const sglir_token *at, uint32_t number, sglir_id value);
bool sglir_parse_close_values(sglir_parser *p, int64_t from);
bool sglir_parse_use_value(sglir_parser *p, sglir_id *value);
/* %1, %2, ... up to something else; none when the next token is no value. */
bool sglir_parse_use_values(sglir_parser *p, sglir_id_list *list);

/* The index of the present word among `count` names, or -1. */
int sglir_parse_among(const sglir_lexer *lexer, const char *const *names, int count);
bool sglir_parse_type(sglir_parser *p, sglir_type *type);
bool sglir_parse_placed_type(sglir_parser *p, sglir_placed_type *placed);
/* What stands behind its type is the value's. */
bool sglir_parse_place(sglir_parser *p, const sglir_token *at, sglir_id value, const sglir_placed_type *placed);
/* All of a node's line but its regions. */
bool sglir_parse_line(sglir_parser *p, sglir_statement *s);

#endif

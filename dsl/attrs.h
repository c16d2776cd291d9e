/* attrs.h -- attributes of an op, from a Lua table to sgl_attr by the op's schema ("axis:i keep:b=0").
 * What is converted points into the Lua values and into scratch 2, and lasts until the next conversion. */
#ifndef SGLDSL_ATTRS_H
#define SGLDSL_ATTRS_H

#include "dsl/dsl.h"

enum { SGLDSL_ATTRS = 16 };

/* Converts the table at `index`; raises for names that the op does not have and values of the wrong kind. *cells is the
 * number of list elements, and what texts weigh beside them. Returns the number of attributes. */
int sgldsl_attrs(lua_State *L, const char *op, int index, sgl_attr attrs[SGLDSL_ATTRS], int64_t *cells);

#endif

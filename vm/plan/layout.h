/* layout.h -- which dimension of a parameter or state a plan splits over which axis: the plan's `layouts`, by pattern
 * of names; and of what goes from module to module: its `activations`, by pattern of paths.
 *
 * In: the text "PATTERN AXIS:DIM AXIS:DIM, PATTERN AXIS:DIM", a name. Out: a dimension per axis. A pattern stands for
 * parameters and for the states that an optimizer keeps of them; behind the word `states` for these states alone. Of
 * several that fit a name the last one that speaks of an axis holds; AXIS:- keeps it whole. */
#ifndef SGLPLAN_LAYOUT_H
#define SGLPLAN_LAYOUT_H

#include "plan/plan.h"

/* INVALID_ARGUMENT, with the entry in the message, where the text is not of that form. */
sgl_status sglplan_layouts_check(sglcore_env *env, const char *field, const char *layouts);
/* Per axis the dimension that is split, -1: none. is_state: `name` is the parameter's, whose state is asked for.
 * *named: a bit per entry that fits, in order. */
void sglplan_layout_of(const sglplan *plan, const char *name, bool is_state, int8_t at[SGLIR_AXIS_COUNT],
                       uint64_t *named);
/* The same of the field `activations`, for what the module of this path gives and takes; a '*' is any characters but
 * dots. */
void sglplan_activations_of(const sglplan *plan, const char *path, size_t length, int8_t at[SGLIR_AXIS_COUNT],
                            uint64_t *named);
/* The pattern of an entry of either field, by its number; false past the end. */
bool sglplan_layout_entry(const char *text, int number, const char **pattern, size_t *length);

/* '*' is any characters, dots too. */
bool sglplan_pattern_fits(const char *pattern, size_t length, const char *name, size_t name_length);

#endif

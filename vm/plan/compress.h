/* compress.h -- which gradients a plan exchanges compressed, and how: the plan's `compress`, by pattern of names.
 *
 * In: the text "PATTERN CODEC, PATTERN CODEC", a parameter's name. Out: a row of codecs.def. Of several patterns that
 * fit a name the last one holds; the codec "none" leaves it as it is. */
#ifndef SGLPLAN_COMPRESS_H
#define SGLPLAN_COMPRESS_H

#include "plan/mesh.h"

typedef enum sglplan_codec {
#define SGLPLAN_CODEC(name, text, help) SGLPLAN_CODEC_##name,
#include "plan/codecs.def"
#undef SGLPLAN_CODEC
    SGLPLAN_CODEC_COUNT
} sglplan_codec;

/* Gradients are exchanged compressed over these, where they have ranks. */
#define SGLPLAN_COMPRESS_AXES SGLPLAN_STORE_AXES
/* What quantizing a parameter's gradient has lost so far is a state of this name and the parameter's: [ranks, dims...],
 * each rank's terms of it in a place of its own. */
#define SGLPLAN_RESIDUAL "~residual/"

/* INVALID_ARGUMENT, with the entry in the message, where the text is not of that form or names no codec. */
sgl_status sglplan_compress_check(sglcore_env *env, const char *compress);
/* SGLPLAN_CODEC_COUNT: exchanged as it is. *named: a bit per entry that fits, in order. */
sglplan_codec sglplan_compress_of(const sglplan *plan, const char *name, uint64_t *named);
/* The pattern of an entry, by its number; false past the end. */
bool sglplan_compress_entry(const sglplan *plan, int number, const char **pattern, size_t *length);
/* Axes over which the plan compresses, and the ranks along them. */
sglplan_axes sglplan_compress_axes(const sglplan *plan);
/* How the residual of a parameter, of so many dimensions itself, is split: a place per rank, the rest as the parameter
 * is over other axes. False: it is whole. */
bool sglplan_split_residual(const sglplan *plan, const char *parameter, int rank, int8_t at[SGLIR_AXIS_COUNT]);
/* The parameter whose residual a state of this name is; NULL: it is none. */
const char *sglplan_residual_of(const char *name);

#endif

/* codecs.h -- inside the pass `compress`: what a codec makes of a value, as ordinary nodes.
 *
 * In: blocks of numbers, [..., block]. Out: up to three values that are exchanged in place of it, each with the dimensions of x
 * but the last; decoded they are x but for what was lost. Odd invariant: nothing couples one block with another, so that parts
 * of encoded blocks are encoded parts. */
#ifndef SGLPASS_CODECS_H
#define SGLPASS_CODECS_H

#include "ir/ir.h"

enum { SGLPASS_MOST_CODES = 3, SGLPASS_BLOCK = 256 /* most numbers of a block */ };

typedef struct sglpass_codes {
    int count;
    sglir_id values[SGLPASS_MOST_CODES];
} sglpass_codes;

typedef struct sglpass_codec {
    sglpass_codes (*encode)(sglir_graph *g, sglir_id x);
    sglir_id (*decode)(sglir_graph *g, const sglpass_codes *codes, sgl_dtype dtype);
} sglpass_codec;

extern const sglpass_codec sglpass_codec_rows[]; /* by sglplan_codec */

#endif

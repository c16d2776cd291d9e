/* infer.h -- how sglir_emit and the inference rules (column infer of ops.def) meet.
 * A rule fills `results` (count of them in *count, which arrives as the row's number) or fails through sglir_fail_here,
 * with a message that names the op and the shapes. Attributes arrive in the schema's order, defaults filled in. */
#ifndef SGLIR_INFER_H
#define SGLIR_INFER_H

#include "ir/ir.h"

typedef struct sglir_infer {
    sglir_graph *g;
    sglir_op op;
    const char *name;         /* of the op, for messages */
    const sglir_id *args;
    int arg_count;
    const sglir_named *attrs; /* complete, schema order */
    int attr_count;
    const sglir_id *regions;
    int region_count;
    sglir_type *results; /* room for `capacity` */
    int *count;
    int capacity;
} sglir_infer;

typedef sgl_status (*sglir_infer_fn)(const sglir_infer *in);

/* For rules. */
const sglir_type *sglir_infer_arg(const sglir_infer *in, int i);
const sglir_named *sglir_infer_attr(const sglir_infer *in, const char *name);
sgl_status sglir_infer_fail(const sglir_infer *in, const char *format, ...) SGL_PRINTF(2, 3);

#endif

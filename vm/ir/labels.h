/* labels.h -- inside the room: in what the label rules are written (labels*.c). A rule numbers the dimensions of a view
 * and marks labels as summed over or refused; rows it leaves alone are -1, which cannot be split. */
#ifndef SGLIR_LABELS_H
#define SGLIR_LABELS_H

#include <assert.h>
#include <string.h>

#include "ir/infer.h"

#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, vjp, labels, ...)        \
    bool sglir_labels_##labels(const sglir_view *v, sglir_labels *l);
#include "ir/ops.def"
#undef SGLIR_OP

static inline int sglir_label(sglir_labels *l) { return l->count++; }

static inline int sglir_label_summed(sglir_labels *l)
{
    l->summed |= 1u << l->count;
    return sglir_label(l);
}

static inline int sglir_label_refused(sglir_labels *l)
{
    l->refused |= 1u << l->count;
    return sglir_label(l);
}

/* Labels of their own for the first `count` dims of `row`. */
static inline void sglir_label_row(sglir_labels *l, int8_t *row, int count)
{
    for (int i = 0; i < count; i++) row[i] = (int8_t)sglir_label(l);
}

static inline void sglir_label_copy(int8_t *to, const int8_t *from, int count) { memcpy(to, from, (size_t)count); }

static inline const sglir_named *sglir_label_attr(const sglir_view *v, const char *name)
{
    for (int i = 0; i < v->attr_count; i++) {
        if (strcmp(v->attrs[i].name, name) == 0) return &v->attrs[i];
    }
    assert(!"the op has no attribute of this name");
    return NULL;
}

#endif

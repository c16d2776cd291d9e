/* internal.h -- what the files of the store share and nobody else needs: the size of a piece, bytes of a type. */
#ifndef SGLSTORE_INTERNAL_H
#define SGLSTORE_INTERNAL_H

#include "store/store.h"

/* Tensors are read, hashed and written in pieces of this many bytes. */
enum { SGLSTORE_PIECE = 1 << 20 };

/* Of a dense tensor; -1 when it overflows. */
int64_t sglstore_bytes_of(const sgl_type *type);

#endif

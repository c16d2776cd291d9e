/* move.h -- the values that the kernels of move.cu take. Numbers count units of the kernel (of move_4: elements). */
#ifndef SGLCUDA_MOVE_H
#define SGLCUDA_MOVE_H

#include "index.h"

/* `runs` runs of `run` units, evenly apart on either side; from and to: from the beginning of a space. */
typedef struct sglcuda_move {
    long long from, to, run, runs, from_pitch, to_pitch;
    long long last; /* move_4: the target's last element where a half byte lies beyond it, else -1 */
    unsigned first_block;
    unsigned char from_space, to_space; /* 0 .. SGLCUDA_MOVE_SPACES - 1 */
} sglcuda_move;

/* As many as the 4 KiB of a kernel's arguments hold beside its pointers, rounded down. */
enum { SGLCUDA_MOVES = 60, SGLCUDA_MOVE_SPACES = 6 };

typedef struct sglcuda_moves {
    long long count;
    sglcuda_move moves[SGLCUDA_MOVES];
} sglcuda_moves;

/* One move whose one side is shifted by a start that the device reads, clamped to 0 .. last_start. */
typedef struct sglcuda_move_at {
    sglcuda_move move; /* spaces are not read: from and to count from the kernel's own pointers */
    long long last_start, step;
    int shifts_target;
} sglcuda_move_at;

/* Along an axis: `extent` positions of `inner` units become `padded`, `before` ahead of them and step - 1 between
 * them. */
typedef struct sglcuda_pad {
    long long total, inner, before, extent, step, padded;
    sglcuda_fill_value value;
} sglcuda_pad;

#endif

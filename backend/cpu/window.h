/* window.h -- windows over the spatial dims of channels-last tensors: which element of x each window element is.
 *
 * x is [samples, extent..., channels], windows are [samples, count..., size...]. A row is one place of one sample, all its
 * channels; rows and windows are numbered in row-major order through the samples. */
#ifndef SGLCPU_WINDOW_H
#define SGLCPU_WINDOW_H

#include "backend/cpu/cpu.h"

enum { SGLCPU_SPATIAL = (SGL_MAX_RANK - 2) / 2 };

typedef struct sglcpu_windows {
    int spatial;
    int64_t extent[SGLCPU_SPATIAL], count[SGLCPU_SPATIAL], size[SGLCPU_SPATIAL];
    int64_t stride[SGLCPU_SPATIAL], dilation[SGLCPU_SPATIAL], low[SGLCPU_SPATIAL];
    int64_t samples, rows, places, window; /* of a sample: rows of x, windows; elements of a window */
} sglcpu_windows;

/* extent, count, size: one per spatial dim; the rest from the instruction's attributes. */
sglcpu_windows sglcpu_windows_of(const sglexec_program *program, const sglexec_instruction *i, int spatial,
                                 int64_t samples, const int64_t *extent, const int64_t *count, const int64_t *size);
/* The row of x that element k of window o (through all samples) looks at; -1: padding. */
int64_t sglcpu_window_row(const sglcpu_windows *w, int64_t o, int64_t k);
/* The window whose element k looks at the row; -1: none. */
int64_t sglcpu_window_over(const sglcpu_windows *w, int64_t row, int64_t k);

#endif

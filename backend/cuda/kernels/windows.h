/* windows.h -- the values that the kernels of windows.cu take: which element of x each window element is.
 *
 * x is [samples, extent..., channels], windows are [samples, count..., size...]. A row is one place of one sample, all
 * its channels; rows and windows are numbered in row-major order through the samples. */
#ifndef SGLCUDA_WINDOWS_H
#define SGLCUDA_WINDOWS_H

#include "index.h"

enum { SGLCUDA_SPATIAL = 3, SGLCUDA_WINDOWS_THREADS = 256, SGLCUDA_WINDOWS_VECTOR = 8 };

typedef struct sglcuda_windows {
    long long extent[SGLCUDA_SPATIAL], count[SGLCUDA_SPATIAL], size[SGLCUDA_SPATIAL];
    long long stride[SGLCUDA_SPATIAL], dilation[SGLCUDA_SPATIAL], low[SGLCUDA_SPATIAL];
    long long rows, places, window; /* of a sample: rows of x, windows; elements of a window */
    long long total,
        channels;      /* windows: units of the result and of a row; windows_add: elements of the result, of a row */
    long long vectors; /* windows_add: threads of a row */
    int spatial;
    sglcuda_fill_value value;
} sglcuda_windows;

#endif

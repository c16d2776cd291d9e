/* padding_loops.h -- the rule of loops and branches, which has a file of its own. */
#ifndef SGLIR_PADDING_LOOPS_H
#define SGLIR_PADDING_LOOPS_H

#include "ir/padding.h"

void sglir_padding_control(sglir_padding_view *v);

#endif

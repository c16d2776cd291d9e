/* broken.c -- which decision of the passes a test has broken. In and out: broken.h. Empty but in builds with tests. */
#include "core/broken.h"

#ifdef SGL_BREAKS
sglcore_break sglcore_broken = SGLCORE_BREAK_NONE;
#endif

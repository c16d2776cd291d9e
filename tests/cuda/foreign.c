/* foreign.c -- modules named libsgl_cuda.so that the library must refuse: one of another build, and one (BARE) that is no backend.
 *
 * Out: the symbol that is looked for, with an identity that no build has. Odd invariant: nothing of it may be called. */
#include "backend/backend.h"

#ifdef BARE
extern const int nothing_of_sgl;
const int nothing_of_sgl = 1;
#else
extern const sglbackend_module sglcuda_module;
const sglbackend_module sglcuda_module = { .identity = "another build" };
#endif

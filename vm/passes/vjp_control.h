/* vjp_control.h -- inside the derivatives of loops and branches: what vjp_control.c and vjp_loop.c share. Both emit a node
 * that does what the derived one does and keeps more (the stand-in), and a node of derivatives that uses what is kept. */
#ifndef SGLPASS_VJP_CONTROL_H
#define SGLPASS_VJP_CONTROL_H

#include "passes/vjp_turn.h"

/* A value of a turn's graph h that the derivative takes from the node that runs the region. */
typedef struct sglpass_kept {
    sglir_id value;
    int64_t stack; /* of a loop: the carry in which it lies anyway, -1: none */
    int64_t slot;  /* among the results that the stand-in has beside its own */
} sglpass_kept;
typedef SGLCORE_VEC(sglpass_kept) sglpass_kept_list;

/* Lists what the turn's fates say is kept. */
bool sglpass_control_keep(const sglpass_vjp *v, const sglpass_turn *t, sglpass_kept_list *list);
/* Whether the gradients that come owe a loss scale. */
bool sglpass_control_scaled(const sglpass_vjp *v);
/* A gradient of `like`: the value, zeros where it is SGLIR_NONE; owing what the gradients that come owe. Wide: where `like`
 * is a narrow float, in f32 and as it was summed: the cast of a parameter that a region uses is one, and its gradient
 * must not be rounded turn by turn. */
sglir_id sglpass_control_gradient(const sglpass_vjp *v, sglir_id value, sglir_id like, bool wide);
/* A wide gradient in the dtype of `like`; whoever rounded that takes it unrounded again (vjp_wide.c). */
sglir_id sglpass_control_narrow(const sglpass_vjp *v, sglir_id value, sglir_id like);
/* The origin of the node that is derived, or of what is derived from it. */
void sglpass_control_origin(const sglpass_vjp *v, bool derived);
/* The region itself into the open one, as far as its yields and the kept values (NULL: none) need it. */
bool sglpass_control_copy_region(const sglpass_turn *t, const sglpass_kept_list *kept, sglir_rewrite *rewrite);

#endif

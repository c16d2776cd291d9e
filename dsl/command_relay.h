/* command_relay.h -- what ranks write to stderr, on its way through the process that started them. */
#ifndef SGLDSL_COMMAND_RELAY_H
#define SGLDSL_COMMAND_RELAY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct command_relay {
    int to;
    bool told;      /* a rank has told of a failure */
    bool passes;    /* the line at hand goes through as it comes */
    char line[160]; /* how it begins; where it does not pass, all that has come of it */
    size_t used;
    char held[2048]; /* lines that say nothing once the failure is told */
    size_t held_used;
    char out[4096];
    size_t out_used;
} command_relay;

/* Hands on what comes from `from` until that ends; r is zero but for `to`. Each second `look` is called. */
void command_relay_run(command_relay *r, int from, void (*look)(void *user), void *user);
/* Once it is known whether the failure was told, by a rank or by whoever stands for them: where not, hands on what was held. */
void command_relay_end(command_relay *r, bool told);

#endif

/* shape.c -- the link that SGL_NET describes: how long a message takes on it.
 *
 * Comes in: a latency, a rate, messages. Goes out: the time at which each would have arrived. A rank has one link out:
 * messages leave one after the other, each for bytes / rate, and arrive a latency after they have left; what a rank
 * receives is not held back. So an all_reduce of B bytes over n ranks takes 2 (n - 1) / n B / rate + 2 latencies, and a
 * message B / rate + latency. The sender holds a piece until that time and then hands it to the real link, whose own
 * time is hidden under the next piece's. Odd invariant: times are made of times, never of the clock at which the thread
 * came by, so that late wake-ups do not add up. */
#include <math.h>
#include <string.h>

#include "collectives/engine.h"

int64_t sglcomm_shape_arrival(const sglexec_comm_options *options, int64_t ready_ns, int64_t bytes, int64_t *free_ns)
{
    const int64_t from = *free_ns > ready_ns ? *free_ns : ready_ns;
    const double takes_ns = options->bytes_per_s > 0 ? (double)bytes * 1e9 / options->bytes_per_s : 0;
    *free_ns = from + (int64_t)llrint(takes_ns);
    return *free_ns + (int64_t)llrint(options->latency_us * 1e3);
}

static sgl_status parse_part(sglcore_env *env, const char *text, const char *part, size_t bytes,
                             sglexec_comm_options *options)
{
    static const char latency[] = "latency_us=", rate[] = "gbps=";
    const bool is_latency = strncmp(part, latency, sizeof latency - 1) == 0;
    if (!is_latency && strncmp(part, rate, sizeof rate - 1) != 0)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "SGL_NET='%s': '%.*s' is neither latency_us=N nor gbps=N", text,
                            (int)bytes, part);
    const char *number = part + (is_latency ? sizeof latency - 1 : sizeof rate - 1);
    char *end;
    const double value = sglcore_strtod(number, &end);
    if (end == number || end != part + bytes || !(value >= 0) || value > 1e9 || (!is_latency && value < 1e-6))
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "SGL_NET='%s': '%.*s' holds no number in range", text,
                            (int)bytes, part);
    if (is_latency)
        options->latency_us = value;
    else
        options->bytes_per_s = value * 1e9 / 8;
    return SGL_OK;
}

sgl_status sglcomm_shape_parse(sglcore_env *env, const char *text, sglexec_comm_options *options)
{
    sglexec_comm_options parsed = *options;
    for (const char *part = text; *part != '\0';) {
        const size_t bytes = strcspn(part, ",");
        SGLCORE_TRY(parse_part(env, text, part, bytes, &parsed));
        part += bytes;
        if (*part == ',') part++;
    }
    *options = parsed;
    return SGL_OK;
}

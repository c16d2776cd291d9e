/* knob.c -- the SGL_* environment variables: the one file that calls getenv.
 *
 * In: the table of knob.h and the process's environment, read anew at each question. Out: texts, numbers, membership in
 * lists. A variable that is set but empty counts as not set. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/knob.h"

const sglcore_knob_row sglcore_knob_rows[SGLCORE_KNOB_COUNT] = {
#define KNOB_ROW(name, variable, otherwise, text) [SGLCORE_KNOB_##name] = { variable, otherwise, text },
    SGLCORE_KNOB_MAP(KNOB_ROW)
#undef KNOB_ROW
};

const char *sglcore_knob_text(sglcore_knob knob)
{
    const char *value = getenv(sglcore_knob_rows[knob].variable);
    return value != NULL && value[0] != '\0' ? value : sglcore_knob_rows[knob].otherwise;
}

static bool parse_int(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0) return false;
    *value = parsed;
    return true;
}

int64_t sglcore_knob_int(sglcore_knob knob)
{
    int64_t value = 0;
    if (!parse_int(sglcore_knob_text(knob), &value)) (void)parse_int(sglcore_knob_rows[knob].otherwise, &value);
    return value;
}

bool sglcore_knob_lists(sglcore_knob knob, const char *word)
{
    const char *list = sglcore_knob_text(knob);
    return sglcore_list_has(list, "all") || sglcore_list_has(list, word);
}

const char *sglcore_launcher(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        if (getenv(variables[i]) != NULL) return variables[i];
    return NULL;
}

/* Of a variable that holds a number of at least `least`; `otherwise` where it is not set, or holds none. */
static int64_t number_of(const char *variable, int64_t least, int64_t otherwise)
{
    int64_t value;
    const char *text = getenv(variable);
    return text != NULL && parse_int(text, &value) && value >= least && value <= INT32_MAX ? value : otherwise;
}

void sglcore_launched(int64_t *rank, int64_t *ranks)
{
    static const struct {
        const char *rank, *ranks;
    } rows[] = { { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
                 { "PMIX_RANK", "SLURM_STEP_NUM_TASKS" }, /* srun --mpi=pmix */
                 { "PMI_RANK", "PMI_SIZE" } };
    *rank = 0;
    *ranks = sglcore_launcher() ? 0 : 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (getenv(rows[i].rank) == NULL) continue;
        *rank = number_of(rows[i].rank, 0, 0);
        *ranks = number_of(rows[i].ranks, 1, 0);
        return;
    }
}

int64_t sglcore_launched_here(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID" };
    int64_t rank, ranks;
    sglcore_launched(&rank, &ranks);
    if (!sglcore_launcher()) return 0;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const int64_t here = number_of(variables[i], 0, -1);
        if (here >= 0) return here;
    }
    return rank;
}

bool sglcore_cache_folder(char *path, size_t room)
{
    const char *asked = sglcore_knob_text(SGLCORE_KNOB_CACHE), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = 0;
    if (strcmp(asked, "off") == 0) return false;
    if (asked[0] != '\0')
        length = snprintf(path, room, "%s", asked);
    else if (cache && cache[0] == '/')
        length = snprintf(path, room, "%s/sgl", cache);
    else if (home && home[0] == '/')
        length = snprintf(path, room, "%s/.cache/sgl", home);
    return length > 0 && (size_t)length < room;
}

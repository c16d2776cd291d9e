/* status.c -- names and texts of the public tables: status codes, dtypes, the version.
 *
 * In: the X-macros of sgl.h, where each fact stands once. Out: their strings. A code from outside the table (an integer
 * cast by a host) is answered with a text, never with NULL. */
#include <string.h>

#include "core/core.h"

const char *sgl_status_name(sgl_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                                                 \
    case SGL_##name: return #name;
        SGL_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *sgl_status_text(sgl_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                                                 \
    case SGL_##name: return text;
        SGL_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "not a status code of this library";
}

const char *sgl_version(void) { return SGL_VERSION; }

static const char *const dtype_names[SGL_DTYPE_COUNT] = {
#define DTYPE_NAME(name, text, bits) [SGL_##name] = text,
    SGL_DTYPE_MAP(DTYPE_NAME)
#undef DTYPE_NAME
};

const char *sgl_dtype_name(sgl_dtype dtype)
{
    return (unsigned)dtype < SGL_DTYPE_COUNT ? dtype_names[dtype] : "unknown";
}

sgl_status sgl_dtype_from_name(const char *name, sgl_dtype *dtype)
{
    if (name == NULL || dtype == NULL) return SGL_INVALID_ARGUMENT;
    for (int i = 0; i < SGL_DTYPE_COUNT; i++) {
        if (strcmp(name, dtype_names[i]) == 0) {
            *dtype = (sgl_dtype)i;
            return SGL_OK;
        }
    }
    return SGL_NOT_FOUND;
}

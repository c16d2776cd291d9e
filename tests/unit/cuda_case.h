/* cuda_case.h -- a CUDA device over the driver of tests/cuda: memory is there, launches are held to what a GPU demands.
 *
 * In: words for that driver. Out: an open device. A test that needs the toolkit's libraries as well skips itself where NVRTC is missing.
 * Odd invariant: the driver is opened by its path once, and the backend finds it by its name. */
#ifndef CUDA_CASE_H
#define CUDA_CASE_H

#include "fault.h"

#include <dlfcn.h>
#include <stdio.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/nvrtc.h"

static inline void cuda_case_library(const char *name)
{
    char path[4096];
    const char *folder = getenv("DRIVER");
    assert_non_null(folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) fail_msg("%s", dlerror());
}

static inline void cuda_case_driver(const char *words)
{
    cuda_case_library("libcuda.so.1");
    setenv("SGL_TESTS_DRIVER", words, 1);
}

/* The cuBLASLt that belongs to that driver. */
static inline void cuda_case_blas(void) { cuda_case_library("libcublasLt.so.13"); }

static inline sglexec_device *cuda_case_open(sglcore_env *env, const char *words)
{
    sglexec_device *device = NULL;
    cuda_case_driver(words);
    if (sglcuda_ops.open(env, 2, &device) != SGL_OK) fail_msg("%s", env->message);
    return device;
}

static inline sglcore_env cuda_case_env(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    return env;
}

/* NVRTC is a library of its own, and a toolkit may lack it. */
static inline void cuda_case_needs_nvrtc(void)
{
    sglcore_env env = cuda_case_env();
    int major, minor;
    if (sglcuda_nvrtc_version(&env, &major, &minor) == SGL_OK) return;
    print_message("skipped: %s\n", env.message);
    skip();
}

#endif

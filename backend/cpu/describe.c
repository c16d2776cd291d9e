/* describe.c -- what this CPU is and how it is used, as text for `sgl doctor`.
 *
 * In: an open device. Out: lines: name, cores and threads, instruction sets (built and there, the one in use marked),
 * caches, memory, BLAS. Odd invariant: what the system does not tell is left out, never guessed. */
#include <string.h>
#include <unistd.h>

#include "backend/cpu/blas.h"
#include "backend/cpu/cpu.h"

#if defined(__x86_64__)
static void ask_cpu(unsigned leaf, unsigned words[4])
{
    __asm__("cpuid" : "=a"(words[0]), "=b"(words[1]), "=c"(words[2]), "=d"(words[3]) : "a"(leaf), "c"(0));
}

/* The brand string of the CPU, without the blanks around it. */
static void cpu_name(char name[49])
{
    unsigned words[12] = { 0 };
    name[0] = '\0';
    ask_cpu(0x80000000u, words);
    if (words[0] < 0x80000004u) return;
    for (unsigned leaf = 0; leaf < 3; leaf++) ask_cpu(0x80000002u + leaf, &words[4 * leaf]);
    const char *text = (const char *)words;
    size_t skip = strspn(text, " "), length = strnlen(text + skip, 48 - skip);
    while (length > 0 && text[skip + length - 1] == ' ') length--;
    memcpy(name, text + skip, length);
    name[length] = '\0';
}
#else
static void cpu_name(char name[49]) { name[0] = '\0'; }
#endif

static sgl_status add_size(sglcore_env *env, sglcore_text *text, const char *what, int key)
{
    long bytes = sysconf(key);
    return bytes <= 0 ? SGL_OK : sglcore_text_add(env, text, "  %s %ld KiB", what, bytes / 1024);
}

static sgl_status add_caches(sglcore_env *env, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "  caches:"));
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    SGLCORE_TRY(add_size(env, text, "L1", _SC_LEVEL1_DCACHE_SIZE));
    SGLCORE_TRY(add_size(env, text, "L2", _SC_LEVEL2_CACHE_SIZE));
    SGLCORE_TRY(add_size(env, text, "L3", _SC_LEVEL3_CACHE_SIZE));
#endif
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) {
        SGLCORE_TRY(sglcore_text_add(env, text, "  memory %.1f GiB", (double)pages * (double)page / 0x1p30));
    }
    return sglcore_text_add(env, text, "\n");
}

sgl_status sglcpu_describe(sglexec_device *device, sglcore_text *text)
{
    sglcore_env *env = device->env;
    char name[49];
    cpu_name(name);
    SGLCORE_TRY(sglcore_text_add(env, text, "cpu: %s%s%d cores, %d threads\n", name, name[0] != '\0' ? ", " : "",
                                 sglcpu_cores(), sglcpu_pool_threads(device->pool)));
    SGLCORE_TRY(sglcore_text_add(env, text, "  instruction sets:"));
    for (int i = 0; sglcpu_isa_at(i) != NULL; i++) {
        const sglcpu_isa *isa = sglcpu_isa_at(i);
        SGLCORE_TRY(sglcore_text_add(env, text, " %s%s", isa->name, isa == device->isa ? " (in use)" : ""));
    }
    SGLCORE_TRY(sglcore_text_add(env, text, "\n"));
    SGLCORE_TRY(add_caches(env, text));
    return sglcore_text_add(env, text, "  products: %s\n", sglcpu_blas_config());
}

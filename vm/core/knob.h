/* knob.h -- the one reader of SGL_* environment variables. The table below is what `sgl doctor` prints. */
#ifndef SGLCORE_KNOB_H
#define SGLCORE_KNOB_H

#include "core/core.h"

/* enum suffix, variable, default, what it does */
#define SGLCORE_KNOB_MAP(X)                                                                                            \
    X(VERIFY, "SGL_VERIFY", "0", "1 verifies the graph after every pass (always on in debug builds)")                  \
    X(DUMP, "SGL_DUMP", "", "'all' or names of passes: print the graph before and after them into SGL_DUMP_DIR")       \
    X(DUMP_DIR, "SGL_DUMP_DIR", "sgl-dump", "folder of the numbered dump files")                                       \
    X(DISABLE, "SGL_DISABLE", "", "names of optional passes to leave out, comma-separated")                            \
    X(THREADS, "SGL_THREADS", "0", "compute threads, 0: one per core this process may use")                            \
    X(ISA, "SGL_ISA", "", "CPU instruction set to use: base, avx2, avx512, neon; empty: the best there is")            \
    X(TRANSPORT, "SGL_TRANSPORT", "",                                                                                  \
      "of exchanges: self, mpi; empty: mpi where a launcher started the process, else self")                           \
    X(MODULES, "SGL_MODULES", "", "folder of modules such as libsgl_mpi.so; empty: beside the library")                \
    X(NET, "SGL_NET", "", "'latency_us=50,gbps=1': hold messages back as such a link would, to measure overlap")       \
    X(CUDA_DEVICE, "SGL_CUDA_DEVICE", "",                                                                              \
      "number of the GPU to use; empty: each rank of a machine takes the next one")                                    \
    X(CUDA_LIBRARIES, "SGL_CUDA_LIBRARIES", "", "folder of the CUDA toolkit's libraries such as libnvrtc.so.13")       \
    X(CUDA_GRAPH, "SGL_CUDA_GRAPH", "1", "0 launches kernels one by one, in place of rows of them as CUDA graphs")     \
    X(CUDA_CUDNN, "SGL_CUDA_CUDNN", "0", "1 lets cuDNN run attention where it takes the shape; its gradient is ours")  \
    X(CUDA_NCCL, "SGL_CUDA_NCCL", "2",                                                                                 \
      "exchanges of ranks: 0 through the host, 1 by NCCL or not at all, 2 by NCCL where each has a GPU of its own")    \
    X(CUDA_TUNE, "SGL_CUDA_TUNE", "1",                                                                                 \
      "0 takes of a library's algorithms the first, unmeasured; the bits are the same")                                \
    X(CUDA_WAIT, "SGL_CUDA_WAIT", "0", "1 waits after each instruction, so that an error of the GPU names its line")   \
    X(CACHE, "SGL_CACHE", "", "folder of compiled kernels, 'off': none; empty: sgl/ in XDG_CACHE_HOME or ~/.cache")    \
    X(LOG, "SGL_LOG", "info", "least level that the sgl command prints: error, warning, info (print of scripts), debug")

typedef enum sglcore_knob {
#define SGLCORE_KNOB_ENUM(name, variable, otherwise, text) SGLCORE_KNOB_##name,
    SGLCORE_KNOB_MAP(SGLCORE_KNOB_ENUM)
#undef SGLCORE_KNOB_ENUM
        SGLCORE_KNOB_COUNT
} sglcore_knob;

const char *sglcore_knob_text(sglcore_knob knob); /* never NULL */
/* Whole number value; a text that is not one counts as the default. */
int64_t sglcore_knob_int(sglcore_knob knob);
/* True when the comma-separated list that the knob holds names `word` (or is "all"). */
bool sglcore_knob_lists(sglcore_knob knob, const char *word);

/* The variable by which one sees that a launcher (mpirun, srun with PMIx, Hydra) made this process one of several; or NULL. */
const char *sglcore_launcher(void);
/* What that launcher says of this process: its rank, and how many there are (0: it does not say). 0 and 1 without one. */
void sglcore_launched(int64_t *rank, int64_t *ranks);
/* Which of the ranks of this machine it is; where the launcher does not say, its rank among all. */
int64_t sglcore_launched_here(void);

/* The folder of what may be thrown away at any time, by SGL_CACHE; false: there is none. It need not exist. */
bool sglcore_cache_folder(char *path, size_t room);

typedef struct sglcore_knob_row {
    const char *variable, *otherwise, *text;
} sglcore_knob_row;
extern const sglcore_knob_row sglcore_knob_rows[SGLCORE_KNOB_COUNT];

#endif

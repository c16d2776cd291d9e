/* graph.c -- rows of instructions as CUDA graphs: captured at their first run, launched as one from then on.
 *
 * In: where a row begins, the addresses of the spaces, and how to launch it. Out: the same launches, at the price of one. A row is captured
 * again when a space has moved. Odd invariant: the table is made when a program is prepared, so a replay allocates nothing
 * of ours; the driver takes its memory for a graph at the row's first run. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "core/knob.h"
#include "core/span.h"

typedef struct captured {
    CUgraphExec graph;          /* NULL: not yet */
    void *spaces[SGLIR_SPACES]; /* it was captured with */
} captured;

struct sglcuda_graphs {
    captured *rows; /* by the first instruction */
    int64_t count;
};

sgl_status sglcuda_new_graphs(sglcuda_prepare *p, struct sglcuda_graphs **graphs)
{
    *graphs = NULL;
    if (sglcore_knob_int(SGLCORE_KNOB_CUDA_GRAPH) == 0) return SGL_OK;
    struct sglcuda_graphs *made = sglcuda_plan_alloc(p, 1, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->count = p->program->instructions.count;
    made->rows = sglcuda_plan_alloc(p, made->count, sizeof *made->rows);
    if (!made->rows) return SGL_OUT_OF_MEMORY;
    *graphs = made;
    return SGL_OK;
}

void sglcuda_free_graphs(sglexec_device *device, struct sglcuda_graphs *graphs)
{
    for (int64_t n = 0; graphs && n < graphs->count; n++)
        if (graphs->rows[n].graph) (void)device->driver->cuGraphExecDestroy(graphs->rows[n].graph);
}

/* Ends the capture whatever came of the launches, since the stream is of no use before. */
static sgl_status capture(sglexec_device *device, sgl_status (*launch_all)(void *context), void *context,
                          CUgraph *graph)
{
    const sglcuda_driver *driver = device->driver;
    *graph = NULL;
    /* Relaxed: the libraries of the toolkit load kernels at their first call. */
    SGLCORE_TRY(sglcuda_check(device->env, driver,
                              driver->cuStreamBeginCapture(device->stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                              "beginning a CUDA graph"));
    const sgl_status launched = launch_all(context);
    const CUresult ended = driver->cuStreamEndCapture(device->stream, graph);
    return launched != SGL_OK ? launched : sglcuda_check(device->env, driver, ended, "ending a CUDA graph");
}

static sgl_status make(sglexec_device *device, captured *row, void *const spaces[SGLIR_SPACES],
                       sgl_status (*launch_all)(void *context), void *context)
{
    const sglcuda_driver *driver = device->driver;
    CUgraph graph;
    const int64_t begun = sglcore_now_ns();
    if (row->graph) (void)driver->cuGraphExecDestroy(row->graph);
    row->graph = NULL;
    sgl_status status = capture(device, launch_all, context, &graph);
    if (status == SGL_OK)
        status = sglcuda_check(device->env, driver, driver->cuGraphInstantiate(&row->graph, graph, 0),
                               "instantiating a CUDA graph");
    if (graph) (void)driver->cuGraphDestroy(graph);
    if (status == SGL_OK) memcpy(row->spaces, spaces, sizeof row->spaces);
    if (status == SGL_OK) sglcore_span(device->env, begun, "cuda: capturing a graph");
    return status;
}

sgl_status sglcuda_replay(sglexec_device *device, struct sglcuda_graphs *graphs, uint32_t first,
                          void *const spaces[SGLIR_SPACES], sgl_status (*launch_all)(void *context), void *context)
{
    if (!graphs) return launch_all(context);
    captured *row = &graphs->rows[first];
    if (!row->graph || memcmp(row->spaces, spaces, sizeof row->spaces) != 0)
        SGLCORE_TRY(make(device, row, spaces, launch_all, context));
    return sglcuda_check(device->env, device->driver, device->driver->cuGraphLaunch(row->graph, device->stream),
                         "launching a CUDA graph");
}

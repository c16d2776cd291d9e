/* session_case.h -- what tests of sessions and programs share: a VM over a heap that counts, one-result ops, reports as
 * text, and the programs of a small script.
 *
 * In: sgl.h alone. Out: failed assertions where a call that must work does not. */
#ifndef SESSION_CASE_H
#define SESSION_CASE_H

#include "fault.h"

static inline sgl_vm *open_vm(fault_heap *heap)
{
    sgl_vm *vm;
    const sgl_config config = { .alloc = fault_alloc, .alloc_user = heap, .threads = 1 };
    assert_int_equal(sgl_open(&config, &vm), SGL_OK);
    return vm;
}

static inline void close_vm(sgl_vm *vm, const fault_heap *heap)
{
    sgl_close(vm);
    assert_int_equal(heap->live_blocks, 0);
}

static inline sgl_value emit(sgl_graph *g, const char *op, const sgl_value *arguments, int count, const sgl_attr *attr)
{
    sgl_value made;
    int results;
    assert_int_equal(sgl_emit(g, op, arguments, count, attr, attr ? 1 : 0, &made, 1, &results), SGL_OK);
    assert_int_equal(results, 1);
    return made;
}

/* A text that a report is written into; freed with case_text_free. */
typedef struct case_text {
    char *data;
    size_t bytes;
} case_text;

static inline sgl_status case_text_write(void *user, const char *data, size_t bytes)
{
    case_text *text = user;
    text->data = realloc(text->data, text->bytes + bytes + 1);
    assert_non_null(text->data);
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = 0;
    return SGL_OK;
}

static inline void case_text_free(case_text *text)
{
    free(text->data);
    *text = (case_text){ 0 };
}

static inline case_text case_report(const sgl_program *program, const char *kind, const char *format)
{
    case_text text = { 0 };
    assert_int_equal(sgl_program_report(program, kind, format, case_text_write, &text), SGL_OK);
    return text;
}

/* A small Llama in two micro-batches: loops, sections, kernels, products, composites, script lines. */
static const char case_script[] =
    "local sgl = require 'sgl'\n"
    "local cfg = sgl.config { micro = 2 }\n"
    "local model = sgl.models.llama { vocab = 256, dim = 8, layers = 2, heads = 2, kv_heads = 1, ffn = 12 }\n"
    "return sgl.job { model = model, steps = 4,\n"
    "  loss = function(b) return sgl.nn.cross_entropy(model(b.tokens), b.targets) end,\n"
    "  data = sgl.data.text { path = 'text', seq = 4, batch = 2, held_out = 0.2 },\n"
    "  optim = sgl.optim.adamw { lr = 1e-2, clip = 1, weight_decay = 0.1 },\n"
    "  plan = sgl.plan { micro = cfg.micro } }\n";

static inline sgl_job *case_job(sgl_vm *vm, const char *micro)
{
    sgl_job *job = NULL;
    const sgl_setting setting = { "micro", micro };
    sgl_status status = sgl_load_text(vm, "case.lua", case_script, &setting, 1, &job);
    if (status != SGL_OK) print_error("%s\n", sgl_error_message(vm));
    assert_int_equal(status, SGL_OK);
    return job;
}

static inline sgl_program *case_program(sgl_vm *vm, sgl_job *job, sgl_session *session, const char *which)
{
    sgl_graph *graph = NULL;
    sgl_plan *plan = NULL;
    sgl_program *program = NULL;
    assert_int_equal(sgl_job_graph(job, which, &graph), SGL_OK);
    assert_int_equal(sgl_job_plan(job, &plan), SGL_OK);
    sgl_status status = sgl_freeze(session, graph, plan, &program);
    if (status != SGL_OK) print_error("%s\n", sgl_error_message(vm));
    assert_int_equal(status, SGL_OK);
    return program;
}

#endif

/* emit_pieces.c -- what is made of pieces: an argument that lies in many places, a number per stretch of the domain.
 *
 * In: steps of a 1-D domain. Out: tables of the device's constants, before all entries; where in them a block's elements begin and end, before its
 * loops; a run of eight. Odd invariant: the search for a run's piece is among its block's, which are one or a few, so that it costs next
 * to nothing however many pieces there are; pieces that begin alike share a table. */
#include "backend/cuda/emit_parts.h"

#include <string.h>

static bool has_pieces(const sglexec_step *step)
{
    return (step->kind == SGLEXEC_LOAD_PIECES || step->kind == SGLEXEC_SEGMENTS) && step->piece_count > 0;
}

static const sglexec_piece *pieces_of(const sglcuda_emitter *e, const sglexec_step *step)
{
    return &e->kernel->pieces.data[step->piece_first];
}

/* Number of the first step whose pieces begin where this one's do. */
static long long table_of(const sglcuda_emitter *e, const sglexec_step *step)
{
    const sglexec_step *steps = e->kernel->steps.data;
    for (const sglexec_step *other = steps; other < step; other++) {
        bool same = has_pieces(other) && other->piece_count == step->piece_count;
        for (uint32_t n = 0; same && n < step->piece_count; n++)
            same = pieces_of(e, other)[n].start == pieces_of(e, step)[n].start;
        if (same) return (long long)(other - steps);
    }
    return (long long)(step - steps);
}

/* Of a double, as tables of the device's constants take them. */
static void put_bits(sglcuda_emitter *e, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    sglcuda_put(e, " 0x%llxll,", (unsigned long long)bits);
}

void sglcuda_put_tables(sglcuda_emitter *e)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (!has_pieces(step)) continue;
        const sglexec_piece *pieces = pieces_of(e, step);
        const bool loads = step->kind == SGLEXEC_LOAD_PIECES;
        if (table_of(e, step) == i) {
            sglcuda_put(e, "__constant__ int64 firsts%lld[] = {", (long long)i);
            for (uint32_t n = 0; n < step->piece_count; n++) sglcuda_put(e, " %lldll,", (long long)pieces[n].start);
            sglcuda_put(e, " };\n");
        }
        sglcuda_put(e, "__constant__ %s%lld[] = {", loads ? "uint16 which" : "int64 numbers", (long long)i);
        for (uint32_t n = 0; n < step->piece_count; n++) {
            if (loads)
                sglcuda_put(e, " %u,", pieces[n].operand);
            else
                put_bits(e, e->kernel->numbers.data[pieces[n].operand]);
        }
        sglcuda_put(e, " };\n");
    }
}

void sglcuda_put_bounds(sglcuda_emitter *e, const sglcuda_scope *s, const char *first, const char *last)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        const long long n = (long long)i;
        if (!has_pieces(step) || table_of(e, step) != i) continue;
        bool used = false;
        for (int64_t other = i; other < e->kernel->steps.count; other++) {
            const sglexec_step *reader = &e->kernel->steps.data[other];
            used = used || (s->wanted[other] && has_pieces(reader) && table_of(e, reader) == i);
        }
        if (!used) continue;
        if (first == NULL) {
            sglcuda_put(e, "const int low%lld = 0, high%lld = %u;\n", n, n, step->piece_count - 1);
            continue;
        }
        sglcuda_put(e, "const int low%lld = sgl_piece(firsts%lld, 0, %u, %s);\n", n, n, step->piece_count - 1, first);
        sglcuda_put(e, "const int high%lld = sgl_piece(firsts%lld, low%lld, %u, %s);\n", n, n, n, step->piece_count - 1,
                    last);
    }
}

void sglcuda_put_pieces(sglcuda_emitter *e, const sglexec_step *step, const char *name, bool vector)
{
    const char *T = sglcuda_dtype(step->dtype);
    const long long number = (long long)(step - e->kernel->steps.data), table = table_of(e, step);
    const char *at = vector ? "(int64)col" : "0ll", *m = vector ? "m" : "1";
    if (!vector) sglcuda_put(e, "{ %s::held x[8]; ", T);
    if (step->kind == SGLEXEC_LOAD_PIECES)
        sglcuda_put(e, "sgl_take_pieces<%s>(a.p, which%lld, ", T, number);
    else
        sglcuda_put(e, "sgl_take_segments<%s>(numbers%lld, ", T, number);
    sglcuda_put(e, "firsts%lld, %u, sgl_piece(firsts%lld, low%lld, high%lld, %s), %s, %s, %s);", table,
                step->piece_count, table, table, table, at, at, m, vector ? name : "x");
    if (!vector) sglcuda_put(e, " %s = x[0]; }", name);
    sglcuda_put(e, "\n");
}

/* move.c -- bytes from place to place: copy, concat, pack, unpack, pad, slices and updates at a run-time position.
 *
 * In: instructions whose arguments and results are dense. Out: launches of the kernels of move.cu. Copies are runs of
 * bytes, evenly apart on either side; those that move in units of the same size go in one launch, as many as its
 * arguments hold. They are kernels even where a copy of the driver would do, because hundreds of small ones are one
 * launch so. Elements of 4 bits are counted first, and taken as bytes where every number is even. Odd invariant: source
 * and target are the same place or do not overlap; the first is no launch. */
#include <string.h>

#include "backend/cuda/kernels/move.h"
#include "backend/cuda/lines.h"

/* `runs` runs of `run`, pitches apart, all in bytes beside the places; halves: in elements of i4, beside the _shifts
 * too. */
typedef struct copy {
    sglcuda_place from, to;
    int64_t from_shift, to_shift; /* from the places */
    int64_t runs, run, from_pitch, to_pitch;
    int64_t target_elements; /* of i4 */
    bool halves;
} copy;

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* What runs and pitches count: bytes, of i4 elements. */
static int64_t unit_of(const sglexec_operand *o)
{
    return o->dtype == SGL_I4 ? 1 : sglcore_dtype_bits((sgl_dtype)o->dtype) / 8;
}

/* Elements of i4 as bytes, where they are whole ones; `step`: the least that a side is shifted by. */
static void join_halves(copy *c, int64_t step)
{
    int64_t odd = step | c->from_shift | c->to_shift | c->run;
    if (c->runs > 1) odd |= c->from_pitch | c->to_pitch;
    c->halves = odd % 2 != 0;
    if (c->halves) return;
    c->from_shift /= 2, c->to_shift /= 2, c->run /= 2;
    c->from_pitch /= 2, c->to_pitch /= 2;
}

static void settle_copy(copy *c, const sglexec_operand *to, int64_t step)
{
    c->target_elements = sglexec_elements(to);
    if (to->dtype == SGL_I4) join_halves(c, step);
    if (c->runs > 1 && c->run == c->from_pitch && c->run == c->to_pitch) {
        c->run *= c->runs;
        c->runs = 1;
    }
}

static int64_t bits_of_copy(const copy *c, int64_t step)
{
    if (c->halves) return 4;
    int64_t all = c->from.offset | c->to.offset | c->from_shift | c->to_shift | c->run | step;
    if (c->runs > 1) all |= c->from_pitch | c->to_pitch;
    return 8 * sglcuda_unit(all);
}

/* bits: of a unit. The spaces begin at whole pages, so that an offset has the alignment of the address. */
static sglcuda_move move_of(const copy *c, int64_t bits)
{
    int64_t per_byte = bits == 4 ? 2 : 1, unit = bits == 4 ? 1 : bits / 8;
    int64_t to = c->to.offset * per_byte;
    return (sglcuda_move){
        .from = (c->from.offset * per_byte + c->from_shift) / unit,
        .to = (to + c->to_shift) / unit,
        .run = c->run / unit,
        .runs = c->runs,
        .from_pitch = c->from_pitch / unit,
        .to_pitch = c->to_pitch / unit,
        .last = c->target_elements % 2 != 0 ? to + c->target_elements - 1 : -1,
        .from_space = (unsigned char)(c->from.space - SGLIR_SPACE_ARENA),
        .to_space = (unsigned char)(c->to.space - SGLIR_SPACE_ARENA),
    };
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static int64_t blocks_of(const sglcuda_move *m) { return sglcuda_ceil_div(m->run * m->runs, SGLCUDA_FILL_UNITS); }

static sgl_status add_batch(sglcuda_prepare *p, sglcuda_command *command, int64_t bits, const sglcuda_moves *moves,
                            int64_t blocks)
{
    const sglcuda_function *function;
    const sglcuda_place spaces[SGLCUDA_MOVE_SPACES] = { { .space = SGLIR_SPACE_ARENA }, { .space = SGLIR_SPACE_STATE },
                                                        { .space = SGLIR_SPACE_IO },    { .space = SGLIR_SPACE_CONST },
                                                        { .space = SGLIR_SPACE_HOST },  { .space = SGLIR_SPACE_AWAY } };
    SGLCORE_TRY(sglcuda_sized(p, "move", bits, &function));
    return sglcuda_add_step(p, command, function, sglcuda_grid_over(blocks, 1, SGLCUDA_FILL_THREADS), spaces,
                            SGLCUDA_MOVE_SPACES, moves, sizeof *moves);
}

static bool moves_nothing(const copy *c)
{
    return c->run == 0 || c->runs == 0 ||
           (c->from.space == c->to.space && c->from.offset == c->to.offset && c->from_shift == c->to_shift &&
            (c->runs == 1 || c->from_pitch == c->to_pitch));
}

static sgl_status add_moves_of(sglcuda_prepare *p, sglcuda_command *command, const copy *copies, int64_t count,
                               int64_t bits)
{
    sglcuda_moves batch = { 0 };
    int64_t blocks = 0;
    for (int64_t c = 0; c < count; c++) {
        if (moves_nothing(&copies[c]) || bits_of_copy(&copies[c], 0) != bits) continue;
        if (batch.count == SGLCUDA_MOVES) {
            SGLCORE_TRY(add_batch(p, command, bits, &batch, blocks));
            batch.count = blocks = 0;
        }
        sglcuda_move *m = &batch.moves[batch.count++];
        *m = move_of(&copies[c], bits);
        m->first_block = (unsigned)blocks;
        blocks += blocks_of(m);
    }
    return batch.count > 0 ? add_batch(p, command, bits, &batch, blocks) : SGL_OK;
}

static sgl_status add_moves(sglcuda_prepare *p, sglcuda_command *command, const copy *copies, int64_t count)
{
    SGLCORE_TRY(sglcuda_begin(p, command));
    for (int64_t bits = 128; bits >= 4; bits /= 2) SGLCORE_TRY(add_moves_of(p, command, copies, count, bits));
    return SGL_OK;
}

/* ---- whole arguments ------------------------------------------------------------------------------------------ */

static int64_t bytes_of(const sglexec_operand *o) { return sglexec_elements(o) * unit_of(o); }

/* Of all behind the axis. */
static int64_t inner_bytes_of(const sglexec_operand *o, int64_t axis)
{
    return sglcuda_lines_of(o, axis).inner * unit_of(o);
}

/* All of an operand, the half byte at its end with it: that is 0 in the source. */
static copy copy_of_all(const sglexec_operand *from, const sglexec_operand *to)
{
    return (copy){ .from = sglcuda_place_of(from), .to = sglcuda_place_of(to), .runs = 1, .run = sglcuda_bytes(to) };
}

sgl_status sglcuda_prepare_copy(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    copy c = copy_of_all(x, x + 1);
    return add_moves(p, command, &c, 1);
}

/* A list that ends with the preparation, but lies with what does not: there is no other. */
static copy *new_copies(sglcuda_prepare *p, int64_t count) { return sglcuda_plan_alloc(p, count, sizeof(copy)); }

sgl_status sglcuda_prepare_concat(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    copy *c = new_copies(p, i->arg_count);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    int64_t axis = sglexec_attr_int(p->program, i, "axis"), at = 0;
    const sglexec_operand *result = sglcuda_operand(p->program, i, i->arg_count);
    int64_t pitch = inner_bytes_of(result, axis) * result->dims[axis];
    for (uint32_t a = 0; a < i->arg_count; a++) {
        const sglexec_operand *x = sglcuda_operand(p->program, i, a);
        int64_t run = inner_bytes_of(x, axis) * x->dims[axis];
        c[a] = (copy){ .from = sglcuda_place_of(x),
                       .to = sglcuda_place_of(result),
                       .to_shift = at,
                       .runs = sglcuda_lines_of(x, axis).outer,
                       .run = run,
                       .from_pitch = run,
                       .to_pitch = pitch };
        settle_copy(&c[a], result, 0);
        at += run;
    }
    return add_moves(p, command, c, i->arg_count);
}

sgl_status sglcuda_prepare_pack(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    copy *c = new_copies(p, i->arg_count);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    const sglexec_operand *result = sglcuda_operand(p->program, i, i->arg_count);
    int64_t at = 0;
    for (uint32_t a = 0; a < i->arg_count; a++) {
        const sglexec_operand *x = sglcuda_operand(p->program, i, a);
        c[a] = (copy){
            .from = sglcuda_place_of(x), .to = sglcuda_place_of(result), .to_shift = at, .runs = 1, .run = bytes_of(x)
        };
        settle_copy(&c[a], result, 0);
        at += bytes_of(x);
    }
    return add_moves(p, command, c, i->arg_count);
}

sgl_status sglcuda_prepare_unpack(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    copy *c = new_copies(p, i->result_count);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    int64_t at = 0;
    for (uint32_t r = 0; r < i->result_count; r++) {
        const sglexec_operand *result = sglcuda_operand(p->program, i, 1 + r);
        c[r] = (copy){ .from = sglcuda_place_of(x),
                       .to = sglcuda_place_of(result),
                       .from_shift = at,
                       .runs = 1,
                       .run = bytes_of(result) };
        settle_copy(&c[r], result, 0);
        at += bytes_of(result);
    }
    return add_moves(p, command, c, i->result_count);
}

/* ---- at a run-time position ------------------------------------------------------------------------------------- */

static sgl_status add_move_at(sglcuda_prepare *p, sglcuda_command *command, copy *c, const sglexec_operand *start,
                              sglcuda_move_at *values)
{
    SGLCORE_TRY(sglcuda_begin(p, command));
    if (c->run == 0 || c->runs == 0) return SGL_OK;
    const int64_t bits = bits_of_copy(c, values->step), unit = bits == 4 ? 1 : bits / 8;
    const sglcuda_place places[] = { c->from, c->to, sglcuda_place_of(start) };
    const sglcuda_function *function;
    c->from.offset = c->to.offset = 0; /* the kernel's own pointers are there already */
    values->move = move_of(c, bits);
    values->step /= unit;
    SGLCORE_TRY(sglcuda_sized(p, "move_at", bits, &function));
    return sglcuda_add_step(p, command, function, sglcuda_grid_over(blocks_of(&values->move), 1, SGLCUDA_FILL_THREADS),
                            places, 3, values, sizeof *values);
}

sgl_status sglcuda_prepare_dynamic(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const bool is_update = i->op == SGLIR_OP_DYNAMIC_UPDATE;
    int64_t axis = sglexec_attr_int(p->program, i, "axis");
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    const sglexec_operand *result = sglcuda_operand(p->program, i, i->arg_count);
    const sglexec_operand *small = is_update ? x + 1 : result;
    sglcuda_move_at values = { .last_start = x->dims[axis] - small->dims[axis],
                               .step = inner_bytes_of(x, axis),
                               .shifts_target = is_update };
    int64_t run = values.step * small->dims[axis], pitch = values.step * x->dims[axis];
    if (is_update) {
        copy whole = copy_of_all(x, result);
        SGLCORE_TRY(add_moves(p, command, &whole, 1));
    }
    copy window = { .from = sglcuda_place_of(is_update ? small : x),
                    .to = sglcuda_place_of(result),
                    .runs = sglcuda_lines_of(x, axis).outer,
                    .run = run,
                    .from_pitch = is_update ? run : pitch,
                    .to_pitch = is_update ? pitch : run };
    settle_copy(&window, result, values.step);
    if (x->dtype == SGL_I4 && !window.halves) values.step /= 2;
    return add_move_at(p, command, &window, x + (is_update ? 2 : 1), &values);
}

/* ---- pad -------------------------------------------------------------------------------------------------------- */

sgl_status sglcuda_fill_value_of(sglcuda_prepare *p, sgl_dtype dtype, double value, bool halves,
                                 sglcuda_fill_value *result)
{
    char bytes[sizeof *result] = { 0 };
    SGLCORE_TRY(sglexec_put_number(p->env, dtype, value, bytes));
    if (!halves) {
        size_t size = sizeof bytes;
        if (dtype == SGL_I4)
            bytes[0] = (char)((bytes[0] & 15) * 17), size = 1;
        else
            size = (size_t)sglcore_dtype_bits(dtype) / 8;
        for (size_t at = size; at < sizeof bytes; at++) bytes[at] = bytes[at - size];
    }
    memcpy(result, bytes, sizeof bytes);
    return SGL_OK;
}

/* What the axis is made of in bytes (of i4: elements). Without gaps, elements before, within and behind x are runs,
 * whatever the extents, and a position is a unit of them; with gaps it is what stands behind the axis. */
static sglcuda_pad pad_of(const sglexec_operand *x, const sglexec_operand *result, int64_t axis, int64_t before,
                          int64_t between, int64_t *numbers)
{
    int64_t inner = inner_bytes_of(x, axis);
    sglcuda_pad v = { .total = bytes_of(result),
                      .inner = inner,
                      .before = before,
                      .extent = x->dims[axis],
                      .step = between + 1,
                      .padded = result->dims[axis] };
    if (v.extent <= 1) v.step = 1;
    *numbers = inner;
    if (v.step > 1) return v;
    v.before *= inner, v.extent *= inner, v.padded *= inner;
    v.inner = 1;
    *numbers = v.before | v.extent | v.padded;
    return v;
}

sgl_status sglcuda_prepare_pad(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    const sglcuda_place places[] = { sglcuda_place_of(x), sglcuda_place_of(x + 1) };
    int64_t numbers;
    sglcuda_pad v = pad_of(x, x + 1, sglexec_attr_int(p->program, i, "axis"), sglexec_attr_int(p->program, i, "before"),
                           sglexec_attr_int(p->program, i, "between"), &numbers);
    const bool halves = x->dtype == SGL_I4 && numbers % 2 != 0;
    const int64_t per_byte = x->dtype == SGL_I4 ? 2 : 1;
    const int64_t unit = halves ? 1 : sglcuda_unit(numbers / per_byte | places[0].offset | places[1].offset) * per_byte;
    const int64_t bits = halves ? 4 : unit / per_byte * 8;
    const sglcuda_function *function;
    SGLCORE_TRY(sglcuda_begin(p, command));
    if (v.total == 0) return SGL_OK;
    v.total /= unit;
    if (v.step > 1) {
        v.inner /= unit;
    } else {
        v.before /= unit, v.extent /= unit, v.padded /= unit;
    }
    SGLCORE_TRY(
        sglcuda_fill_value_of(p, (sgl_dtype)x->dtype, sglexec_attr_float(p->program, i, "value"), halves, &v.value));
    SGLCORE_TRY(sglcuda_sized(p, "pad", bits, &function));
    return sglcuda_add_step(p, command, function, sglcuda_fill_grid(v.total, bits), places, 2, &v, sizeof v);
}

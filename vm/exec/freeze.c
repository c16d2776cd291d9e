/* freeze.c -- from a placed graph to a program.
 *
 * Comes in: a graph in which every stored value has its place. Goes out: blocks of instructions. Views (reshape, unpack, after)
 * and inputs become nothing, constants become bytes, fused nodes become kernels (equal ones share one), and what the
 * graph leaves implicit becomes a COPY: a loop's first carries, a yield or an update that was not made in its place. Loops
 * and branches name blocks, one per region. */
#include <math.h>
#include <string.h>

#include "exec/program.h"
#include "plan/plan.h"

typedef struct freezer {
    sglcore_env *env;
    const sglir_graph *g;
    sglexec_program *p;
    uint32_t *origins;   /* of g to those of p, UINT32_MAX while not taken over */
    uint32_t *at;        /* per node of g that exchanges: its place among the instructions of its block */
    sglcore_map kernels; /* hash of a description to its number */
} freezer;

typedef SGLCORE_VEC(sglexec_instruction) instruction_list;

static sgl_status freeze_region(freezer *f, sglir_id region, uint32_t block);

static sgl_status take_string(freezer *f, uint32_t id, uint32_t *out)
{
    const char *text = sglcore_string(f->g->strings, id);
    return sglcore_intern(f->p->strings, text, strlen(text), out);
}

static sgl_status take_origin(freezer *f, uint32_t origin, uint32_t *out)
{
    if (f->origins[origin] == UINT32_MAX) {
        const sglir_origin *from = &f->g->origins.data[origin];
        sglir_origin to = { .line = from->line };
        SGLCORE_TRY(take_string(f, from->file, &to.file));
        SGLCORE_TRY(take_string(f, from->scope, &to.scope));
        SGLCORE_TRY(take_string(f, from->pass, &to.pass));
        SGLCORE_TRY(sglcore_vec_push(f->env, &f->p->origins, to));
        f->origins[origin] = (uint32_t)f->p->origins.count - 1;
    }
    *out = f->origins[origin];
    return SGL_OK;
}

static sglexec_operand operand_of(const sglir_graph *g, sglir_id value)
{
    const sglir_value *v = sglir_value_at(g, value);
    sglexec_operand operand = { .space = v->space, .dtype = v->type.dtype, .rank = v->type.rank, .offset = v->offset };
    memcpy(operand.dims, v->type.dims, sizeof operand.dims);
    return operand;
}

static bool same_place(const sglir_graph *g, sglir_id a, sglir_id b)
{
    const sglir_value *x = sglir_value_at(g, a), *y = sglir_value_at(g, b);
    return x->space == y->space && x->offset == y->offset;
}

static sgl_status push_operand(freezer *f, sglir_id value)
{
    if (sglir_value_at(f->g, value)->space == SGLIR_SPACE_NONE)
        return sglcore_fail(f->env, SGL_INTERNAL, "freeze: value %u has no place after the memory pass", value);
    return sglcore_vec_push(f->env, &f->p->operands, operand_of(f->g, value));
}

static sgl_status take_attrs(freezer *f, const sglir_node *node, sglexec_instruction *i)
{
    sglexec_program *p = f->p;
    i->attr_first = (uint32_t)p->attrs.count;
    i->attr_count = node->attr_count;
    for (uint32_t a = 0; a < node->attr_count; a++) {
        sglir_attr attr = f->g->attrs.data[node->attr_first + a];
        uint32_t first = attr.as.first;
        SGLCORE_TRY(take_string(f, attr.name, &attr.name));
        if (attr.kind == 's') SGLCORE_TRY(take_string(f, attr.as.string, &attr.as.string));
        if (attr.kind == 'I') {
            attr.as.first = (uint32_t)p->ints.count;
            for (uint32_t k = 0; k < attr.count; k++)
                SGLCORE_TRY(sglcore_vec_push(f->env, &p->ints, f->g->ints.data[first + k]));
        }
        if (attr.kind == 'F') {
            attr.as.first = (uint32_t)p->floats.count;
            for (uint32_t k = 0; k < attr.count; k++)
                SGLCORE_TRY(sglcore_vec_push(f->env, &p->floats, f->g->floats.data[first + k]));
        }
        SGLCORE_TRY(sglcore_vec_push(f->env, &p->attrs, attr));
    }
    return SGL_OK;
}

static sgl_status take_kernel(freezer *f, sglir_id node, uint32_t *out)
{
    sglexec_kernel kernel = { 0 };
    SGLCORE_TRY(sglexec_kernel_build(f->env, f->g, node, &kernel));
    uint64_t known = 0;
    if (sglcore_map_get(&f->kernels, kernel.hash, &known)) {
        sglexec_kernel_free(f->env, &kernel);
        *out = (uint32_t)known;
        return SGL_OK;
    }
    sgl_status status = sglcore_vec_push(f->env, &f->p->kernels, kernel);
    if (status != SGL_OK) {
        sglexec_kernel_free(f->env, &kernel);
        return status;
    }
    *out = (uint32_t)f->p->kernels.count - 1;
    return sglcore_map_put(f->env, &f->kernels, kernel.hash, *out);
}

static sgl_status push_copy(freezer *f, instruction_list *list, sglir_id from, sglir_id to, uint32_t origin)
{
    if (same_place(f->g, from, to)) return SGL_OK;
    sglexec_instruction copy = { .op = SGLIR_OP_COPY,
                                 .operand_first = (uint32_t)f->p->operands.count,
                                 .arg_count = 1,
                                 .result_count = 1,
                                 .bytes = 2.0 * (double)sglir_bytes(sglir_type_of(f->g, from)) };
    SGLCORE_TRY(push_operand(f, from));
    SGLCORE_TRY(push_operand(f, to));
    SGLCORE_TRY(take_origin(f, origin, &copy.origin));
    return sglcore_vec_push(f->env, list, copy);
}

/* The code of the nearest float of so many digits behind the point, ties to even; beyond the largest: `above`. */
static uint32_t narrow_code(double value, int digits, int bias, int bits, uint32_t above, uint32_t nan)
{
    int exponent = 0;
    if (isnan(value)) return nan;
    frexp(value, &exponent); /* value = m * 2^exponent, 0.5 <= |m| < 1 */
    if (value == 0 || exponent < 2 - bias) exponent = 2 - bias;
    double steps = nearbyint(ldexp(fabs(value), digits + 1 - exponent)) + ldexp(exponent + bias - 2, digits);
    uint32_t code = isfinite(value) && steps < above ? (uint32_t)steps : above;
    return code == nan ? nan : code | (signbit(value) ? 1u << (bits - 1) : 0);
}

sgl_status sglexec_put_number(sglcore_env *env, sgl_dtype dtype, double value, char *at)
{
    switch (dtype) {
    case SGL_F64: memcpy(at, &value, sizeof value); return SGL_OK;
    case SGL_F32: memcpy(at, &(float){ (float)value }, 4); return SGL_OK;
    case SGL_I64: memcpy(at, &(int64_t){ (int64_t)value }, 8); return SGL_OK;
    case SGL_I32:
    case SGL_U32: memcpy(at, &(int32_t){ (int32_t)(int64_t)value }, 4); return SGL_OK;
    case SGL_I16:
    case SGL_U16: memcpy(at, &(int16_t){ (int16_t)(int64_t)value }, 2); return SGL_OK;
    case SGL_I8:
    case SGL_U8: memcpy(at, &(int8_t){ (int8_t)(int64_t)value }, 1); return SGL_OK;
    case SGL_I4: *at = (char)((int64_t)value & 15); return SGL_OK;
    case SGL_BOOL: *at = value != 0; return SGL_OK;
    case SGL_BF16:
        memcpy(at, &(uint16_t){ (uint16_t)narrow_code(value, 7, 127, 16, 0x7f80, 0x7fc0) }, 2);
        return SGL_OK;
    case SGL_F16: memcpy(at, &(uint16_t){ (uint16_t)narrow_code(value, 10, 15, 16, 0x7c00, 0x7e00) }, 2); return SGL_OK;
    case SGL_F8E4M3: memcpy(at, &(uint8_t){ (uint8_t)narrow_code(value, 3, 7, 8, 0x7f, 0x7f) }, 1); return SGL_OK;
    case SGL_F8E5M2: memcpy(at, &(uint8_t){ (uint8_t)narrow_code(value, 2, 15, 8, 0x7c, 0x7e) }, 1); return SGL_OK;
    default: return sglcore_fail(env, SGL_INTERNAL, "freeze: a constant of dtype %d", (int)dtype);
    }
}

static sgl_status freeze_constant(freezer *f, const sglir_node *node)
{
    const sglir_value *v = sglir_value_at(f->g, node->out_first);
    if (v->space != SGLIR_SPACE_CONST) return SGL_OK;
    return sglexec_put_number(f->env, (sgl_dtype)v->type.dtype, sglir_attr_float(f->g, node, "value"),
                              f->p->constants.data + v->offset);
}

static sgl_status new_block(freezer *f, uint32_t *block)
{
    *block = (uint32_t)f->p->blocks.count;
    return sglcore_vec_push(f->env, &f->p->blocks, (sglexec_block){ 0 });
}

/* The loop's carries live in the places of its regions' parameters: first copied in, at the end of each turn replaced by
 * the yields, after the last one read as the results. */
static sgl_status freeze_loop(freezer *f, instruction_list *list, const sglir_node *node, sglexec_instruction *i)
{
    const sglir_region *body = &f->g->regions.data[sglir_body(node)];
    bool decides = node->op == SGLIR_OP_WHILE;
    for (uint32_t c = 0; c < node->arg_count; c++)
        SGLCORE_TRY(push_copy(f, list, sglir_arg(f->g, node, c), body->parameters.data[c + 1], node->origin));
    i->operand_first = (uint32_t)f->p->operands.count;
    i->arg_count = decides ? 2 : 1;
    SGLCORE_TRY(push_operand(f, body->parameters.data[0]));
    if (decides) SGLCORE_TRY(push_operand(f, f->g->regions.data[node->region_first].results.data[0]));
    i->steps = sglir_attr_int(f->g, node, decides ? "limit" : "steps");
    SGLCORE_TRY(new_block(f, &i->block));
    if (decides) SGLCORE_TRY(new_block(f, &i->other));
    SGLCORE_TRY(sglcore_vec_push(f->env, list, *i));
    for (uint32_t c = 0; c < node->out_count; c++)
        SGLCORE_TRY(push_copy(f, list, body->parameters.data[c + 1], node->out_first + c, node->origin));
    if (decides) SGLCORE_TRY(freeze_region(f, node->region_first, i->other));
    return freeze_region(f, sglir_body(node), i->block);
}

static sgl_status freeze_branch(freezer *f, instruction_list *list, const sglir_node *node, sglexec_instruction *i)
{
    i->operand_first = (uint32_t)f->p->operands.count;
    i->arg_count = 1;
    SGLCORE_TRY(push_operand(f, sglir_arg(f->g, node, 0)));
    SGLCORE_TRY(new_block(f, &i->block));
    SGLCORE_TRY(new_block(f, &i->other));
    SGLCORE_TRY(sglcore_vec_push(f->env, list, *i));
    SGLCORE_TRY(freeze_region(f, node->region_first, i->block));
    return freeze_region(f, node->region_first + 1, i->other);
}

static sgl_status freeze_node(freezer *f, instruction_list *list, sglir_id id)
{
    const sglir_node *node = sglir_node_at(f->g, id);
    if (node->op == SGLIR_OP_INPUT || (sglir_is_view(node) && !sglir_is_wait(node->op))) return SGL_OK;
    if (node->op == SGLIR_OP_CONSTANT) return freeze_constant(f, node);
    sglplan_cost cost = sglplan_cost_of(f->g, id);
    sglexec_instruction i = { .op = node->op,
                              .work_offset = node->work_offset,
                              .work_bytes = node->work_bytes,
                              .flops = cost.flops,
                              .bytes = cost.bytes };
    if (node->region == 0) { /* what stands in a loop counts as part of it */
        f->p->flops += cost.flops;
        f->p->bytes += cost.bytes;
    }
    SGLCORE_TRY(take_origin(f, node->origin, &i.origin));
    if (sglir_is_loop(node)) return freeze_loop(f, list, node, &i);
    if (node->op == SGLIR_OP_COND) return freeze_branch(f, list, node, &i);
    i.operand_first = (uint32_t)f->p->operands.count;
    i.arg_count = node->arg_count;
    i.result_count = node->out_count;
    for (uint32_t a = 0; a < node->arg_count; a++) SGLCORE_TRY(push_operand(f, sglir_arg(f->g, node, a)));
    for (uint32_t r = 0; r < node->out_count; r++) SGLCORE_TRY(push_operand(f, node->out_first + r));
    if (node->op == SGLIR_OP_FUSED) SGLCORE_TRY(take_kernel(f, id, &i.kernel));
    SGLCORE_TRY(take_attrs(f, node, &i));
    f->at[id] = (uint32_t)list->count;
    if (sglir_is_wait(node->op)) i.begun = f->at[sglir_value_at(f->g, sglir_arg(f->g, node, 0))->node];
    return sglcore_vec_push(f->env, list, i);
}

/* Copies that stand at the end of a region: yields into the places of carries or of a branch's results, updates into the
 * states' places. What decides about a loop's turns yields nothing that is kept. */
static sgl_status freeze_end(freezer *f, instruction_list *list, sglir_id region)
{
    const sglir_region *r = &f->g->regions.data[region];
    const sglir_node *holder = r->node == SGLIR_NONE ? NULL : sglir_node_at(f->g, r->node);
    for (int64_t c = 0; c < r->results.count; c++) {
        if (holder->op == SGLIR_OP_COND)
            SGLCORE_TRY(push_copy(f, list, r->results.data[c], holder->out_first + (sglir_id)c, holder->origin));
        else if (sglir_body(holder) == region)
            SGLCORE_TRY(push_copy(f, list, r->results.data[c], r->parameters.data[c + 1], 0));
    }
    if (region != 0) return SGL_OK;
    for (int64_t o = 0; o < f->g->outputs.count; o++) {
        const sglir_output *output = &f->g->outputs.data[o];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id state = sglir_input_find(f->g, sglcore_string(f->g->strings, output->name));
        SGLCORE_TRY(push_copy(f, list, output->value, state, sglir_maker(f->g, state)->origin));
    }
    return SGL_OK;
}

/* A block's instructions stand together in the program: they are gathered in a list of their own, since the blocks of
 * the loops inside are laid down meanwhile. */
static sgl_status freeze_region(freezer *f, sglir_id region, uint32_t block)
{
    instruction_list list = { 0 };
    sgl_status status = SGL_OK;
    const sglir_region *r = &f->g->regions.data[region];
    for (int64_t n = 0; n < r->nodes.count && status == SGL_OK; n++) status = freeze_node(f, &list, r->nodes.data[n]);
    if (status == SGL_OK) status = freeze_end(f, &list, region);
    const uint32_t first = (uint32_t)f->p->instructions.count;
    f->p->blocks.data[block] = (sglexec_block){ first, (uint32_t)list.count };
    for (int64_t i = 0; i < list.count && status == SGL_OK; i++) {
        if (sglir_is_wait(list.data[i].op)) list.data[i].begun += first;
        status = sglcore_vec_push(f->env, &f->p->instructions, list.data[i]);
    }
    sglcore_vec_free(f->env, &list);
    return status;
}

static sgl_status freeze_input(freezer *f, const sglir_node *node)
{
    const char *name = sglir_attr_string(f->g, node, "name");
    sglexec_port port = { .role = (uint8_t)sglir_attr_int(f->g, node, "role"),
                          .operand = operand_of(f->g, node->out_first) };
    SGLCORE_TRY(sglcore_intern(f->p->strings, name, strlen(name), &port.name));
    memcpy(port.whole, port.operand.dims, sizeof port.whole);
    if (port.role == SGL_FEED) return sglcore_vec_push(f->env, &f->p->feeds, port);
    bool is_section = false;
    for (int64_t m = 0; m < f->g->members.count; m++) {
        const sglir_member *member = &f->g->members.data[m];
        if (strcmp(sglcore_string(f->g->strings, member->section), name) != 0) continue;
        is_section = true;
        sglexec_port part = { .role = member->role, .operand = port.operand };
        part.operand.rank = member->type.rank;
        part.operand.dtype = member->type.dtype;
        part.operand.offset += sglcore_dtype_bytes((sgl_dtype)member->type.dtype, member->offset);
        memcpy(part.operand.dims, member->type.dims, sizeof part.operand.dims);
        memcpy(part.whole, member->type.dims, sizeof part.whole);
        SGLCORE_TRY(take_string(f, member->name, &part.name));
        SGLCORE_TRY(sglcore_vec_push(f->env, &f->p->states, part));
    }
    return is_section ? SGL_OK : sglcore_vec_push(f->env, &f->p->states, port);
}

static sgl_status freeze_ports(freezer *f)
{
    const sglir_region *top = &f->g->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(f->g, top->nodes.data[n]);
        if (node->op == SGLIR_OP_INPUT) SGLCORE_TRY(freeze_input(f, node));
    }
    for (int64_t o = 0; o < f->g->outputs.count; o++) {
        const sglir_output *output = &f->g->outputs.data[o];
        if (output->role != SGLIR_FETCH) continue;
        sglexec_port port = { .role = 255, .operand = operand_of(f->g, output->value) };
        memcpy(port.whole, port.operand.dims, sizeof port.whole);
        SGLCORE_TRY(take_string(f, output->name, &port.name));
        SGLCORE_TRY(sglcore_vec_push(f->env, &f->p->fetches, port));
    }
    return SGL_OK;
}

static sgl_status freeze_all(freezer *f)
{
    sglexec_program *p = f->p;
    SGLCORE_TRY(sglcore_strings_new(f->env, &p->strings));
    SGLCORE_TRY(take_string(f, f->g->name, &p->name));
    memcpy(p->space_bytes, f->g->space_bytes, sizeof p->space_bytes);
    p->arena_lower_bound = f->g->arena_lower_bound;
    int64_t constant_bytes = p->space_bytes[SGLIR_SPACE_CONST];
    SGLCORE_TRY(sglcore_vec_reserve(f->env, &p->constants, constant_bytes));
    if (constant_bytes) memset(p->constants.data, 0, (size_t)constant_bytes);
    p->constants.count = constant_bytes;
    SGLCORE_TRY(sglcore_vec_push(f->env, &p->blocks, (sglexec_block){ 0 }));
    SGLCORE_TRY(freeze_ports(f));
    return freeze_region(f, 0, 0);
}

sgl_status sglexec_freeze(sglcore_env *env, const sglir_graph *g, sglexec_program **program)
{
    *program = NULL;
    size_t origin_bytes = (size_t)g->origins.count * sizeof(uint32_t),
           node_bytes = (size_t)(g->nodes.count + 1) * sizeof(uint32_t);
    freezer f = { .env = env,
                  .g = g,
                  .p = sglcore_alloc_zero(env, sizeof *f.p),
                  .origins = sglcore_alloc(env, origin_bytes),
                  .at = sglcore_alloc_zero(env, node_bytes) };
    sgl_status status = f.p && f.origins && f.at ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        f.p->env = env;
        memset(f.origins, 0xff, origin_bytes);
        status = freeze_all(&f);
    }
    sglcore_map_free(env, &f.kernels);
    sglcore_free(env, f.origins, origin_bytes);
    sglcore_free(env, f.at, node_bytes);
    if (status != SGL_OK) {
        if (f.p && !f.p->env) f.p->env = env;
        sglexec_program_free(f.p);
        return status;
    }
    *program = f.p;
    return SGL_OK;
}

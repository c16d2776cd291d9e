/* shard_packs.c -- packs some of whose members are split are opened: the whole members stay one pack, each split one
 * goes its way in its own shape. Over stages of a pipeline each member does, since each may be of another stage.
 *
 * In: a graph in which optimizers work on packs of parameters, gradients and moments. Out: the same mathematics. What
 * is tied to a pack by elementwise ops (a domain) has its members; each value of a domain becomes a list of pieces, one
 * for all whole members together and one for each split member; elementwise ops and reductions are done piece by piece,
 * whatever else wants the value is given it packed. Odd invariant: all packs and unpacks of a domain must have the same
 * members; where they have not, the domain stays as it is. */
#include <string.h>

#include "core/broken.h"
#include "passes/shard_apart.h"

static const uint32_t NO_DOMAIN = UINT32_MAX;

typedef SGLCORE_VEC(int64_t) integers;
typedef SGLCORE_VEC(double) floats;

typedef struct domain {
    sglir_id pack; /* a PACK or UNPACK node that tells its members; SGLIR_NONE: none was met */
    uint32_t members;
    uint32_t split_first; /* opener->split: a flag per member */
    uint32_t pieces;      /* 0: it is not opened */
    bool differs;         /* two packs have other members */
} domain;

typedef struct opener {
    sglcore_env *env;
    const sglplan *plan;
    const sglir_graph *g;
    uint32_t *root;   /* per value, as in union-find; of values of region 0 that have one dimension */
    uint32_t *domain; /* per root: into domains, NO_DOMAIN */
    SGLCORE_VEC(domain) domains;
    SGLCORE_VEC(uint8_t) split;
    uint32_t *pieces;          /* per value of a domain that is opened: 1 + first in ids, 0: not made */
    SGLCORE_VEC(sglir_id) ids; /* of the new graph */
    sglir_rewrite *rewrite;
} opener;

static uint32_t root_of(opener *o, uint32_t value)
{
    while (o->root[value] != value) value = o->root[value] = o->root[o->root[value]];
    return value;
}

static bool is_line(const opener *o, sglir_id value)
{
    return sglir_type_of(o->g, value)->rank == 1 && sglir_value_at(o->g, value)->region == 0;
}

/* ---- domains ----------------------------------------------------------------------------------------------------- */

static void tie(opener *o, const sglir_node *node)
{
    if (!(sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) || node->out_count != 1 || !is_line(o, node->out_first))
        return;
    for (uint32_t i = 0; i < node->arg_count; i++)
        o->root[root_of(o, sglir_arg(o->g, node, i))] = root_of(o, node->out_first);
}

static uint32_t member_count(const sglir_node *pack)
{
    return pack->op == SGLIR_OP_PACK ? pack->arg_count : pack->out_count;
}
static sglir_id member_of(const opener *o, const sglir_node *pack, uint32_t i)
{
    return pack->op == SGLIR_OP_PACK ? sglir_arg(o->g, pack, i) : pack->out_first + i;
}
static sglir_id packed_of(const opener *o, const sglir_node *pack)
{
    return pack->op == SGLIR_OP_PACK ? pack->out_first : sglir_arg(o->g, pack, 0);
}

static bool same_members(const opener *o, const sglir_node *a, const sglir_node *b)
{
    if (member_count(a) != member_count(b)) return false;
    for (uint32_t i = 0; i < member_count(a); i++) {
        if (!sglir_same_shape(sglir_type_of(o->g, member_of(o, a, i)), sglir_type_of(o->g, member_of(o, b, i))))
            return false;
    }
    return true;
}

static bool is_split_member(const opener *o, sglir_id value)
{
    const sglir_node *maker = sglir_maker(o->g, value);
    int8_t at[SGLIR_AXIS_COUNT];
    uint64_t named;
    if (sglplan_is_staged(o->plan)) return true; /* a gradient, too, where it is unscaled */
    return maker && maker->op == SGLIR_OP_INPUT && sglpass_split_input(o->plan, o->g, maker, at, &named);
}

static sgl_status meet_pack(opener *o, sglir_id id)
{
    const sglir_node *node = sglir_node_at(o->g, id);
    if ((node->op != SGLIR_OP_PACK && node->op != SGLIR_OP_UNPACK) || node->region != 0) return SGL_OK;
    uint32_t *at = &o->domain[root_of(o, packed_of(o, node))];
    if (*at == NO_DOMAIN) {
        const domain made = { .pack = id, .members = member_count(node), .split_first = (uint32_t)o->split.count };
        *at = (uint32_t)o->domains.count;
        SGLCORE_TRY(sglcore_vec_push(o->env, &o->domains, made));
        for (uint32_t i = 0; i < made.members; i++) SGLCORE_TRY(sglcore_vec_push(o->env, &o->split, 0));
    }
    domain *d = &o->domains.data[*at];
    d->differs = d->differs || !same_members(o, sglir_node_at(o->g, d->pack), node);
    for (uint32_t i = 0; i < d->members && !d->differs && node->op == SGLIR_OP_PACK; i++) {
        if (is_split_member(o, member_of(o, node, i))) o->split.data[d->split_first + i] = 1;
    }
    return SGL_OK;
}

static sgl_status find_domains(opener *o, bool *any)
{
    for (int64_t v = 0; v < o->g->values.count; v++) {
        o->root[v] = (uint32_t)v;
        o->domain[v] = NO_DOMAIN;
    }
    for (int64_t n = 0; n < o->g->nodes.count; n++) tie(o, &o->g->nodes.data[n]);
    for (int64_t n = 0; n < o->g->nodes.count; n++) SGLCORE_TRY(meet_pack(o, (sglir_id)n));
    *any = false;
    for (int64_t i = 0; i < o->domains.count; i++) {
        domain *d = &o->domains.data[i];
        uint32_t split = 0;
        for (uint32_t m = 0; m < d->members; m++) split += o->split.data[d->split_first + m];
        d->pieces =
            d->differs || split == 0 ? 0 : split + 1; /* the first one holds all that is whole, if there is any */
        *any = *any || d->pieces > 0;
    }
    return SGL_OK;
}

/* NULL: the value is of no domain that is opened. */
static const domain *domain_of(opener *o, sglir_id value)
{
    if (!is_line(o, value)) return NULL;
    uint32_t at = o->domain[root_of(o, value)];
    return at == NO_DOMAIN || o->domains.data[at].pieces == 0 ? NULL : &o->domains.data[at];
}

static bool is_split(const opener *o, const domain *d, uint32_t member)
{
    return o->split.data[d->split_first + member] != 0;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static sglir_type member_type(const opener *o, const domain *d, uint32_t member, sgl_dtype dtype)
{
    const sglir_type *type = sglir_type_of(o->g, member_of(o, sglir_node_at(o->g, d->pack), member));
    return sglir_type_make(dtype, type->rank, type->dims);
}

/* The type of piece p; of the first one its length is that of all whole members. */
static sglir_type piece_type(const opener *o, const domain *d, uint32_t p, sgl_dtype dtype)
{
    int64_t length = 0;
    uint32_t piece = 0;
    for (uint32_t m = 0; m < d->members; m++) {
        const sglir_type type = member_type(o, d, m, dtype);
        if (!is_split(o, d, m)) length += sglir_elements(&type);
        if (is_split(o, d, m) && ++piece == p) return type;
    }
    return sglir_type_make(dtype, 1, &length);
}

static bool has_piece(const domain *d, uint32_t p) { return p > 0 || d->pieces <= d->members; }

static sgl_status put_pieces(opener *o, sglir_id value, const sglir_id *pieces, uint32_t count)
{
    o->pieces[value] = (uint32_t)o->ids.count + 1;
    for (uint32_t p = 0; p < count; p++) SGLCORE_TRY(sglcore_vec_push(o->env, &o->ids, pieces[p]));
    return SGL_OK;
}

static sglir_id piece(const opener *o, sglir_id value, uint32_t p) { return o->ids.data[o->pieces[value] - 1 + p]; }

/* Unpacks `packed`, whose members are those of the domain or, with whole_only, those that are whole; ids: one per
 * member. */
static void unpack(opener *o, const domain *d, sglir_id packed, bool whole_only, sglir_id *ids)
{
    sglir_graph *to = o->rewrite->to;
    integers ranks = { 0 }, dims = { 0 };
    sgl_status status = SGL_OK;
    uint32_t count = 0;
    for (uint32_t m = 0; m < d->members && status == SGL_OK; m++) {
        const sglir_type type = member_type(o, d, m, SGL_F32);
        if (whole_only && is_split(o, d, m)) continue;
        status = sglcore_vec_push(o->env, &ranks, (int64_t)type.rank);
        for (int i = 0; i < type.rank && status == SGL_OK; i++) status = sglcore_vec_push(o->env, &dims, type.dims[i]);
    }
    const sglir_named attrs[] = { SGLIR_INTS("ranks", ranks.count, ranks.data),
                                  SGLIR_INTS("dims", dims.count, dims.data) };
    sglir_id first = SGLIR_NONE;
    if (status != SGL_OK)
        sglir_stick(to, status);
    else if (ranks.count > 0)
        first = sglir_emit(to, SGLIR_OP_UNPACK, &packed, 1, attrs, 2, NULL);
    for (uint32_t m = 0; m < d->members; m++) {
        if (whole_only && is_split(o, d, m)) continue;
        ids[m] = first == SGLIR_NONE ? SGLIR_NONE : first + count++;
    }
    sglcore_vec_free(o->env, &ranks);
    sglcore_vec_free(o->env, &dims);
}

/* The pieces of members, of which there is one id each. */
static sgl_status put_members(opener *o, const domain *d, sglir_id value, const sglir_id *ids)
{
    SGLCORE_VEC(sglir_id) whole = { 0 }, made = { 0 };
    sgl_status status = sglcore_vec_push(o->env, &made, SGLIR_NONE);
    for (uint32_t m = 0; m < d->members && status == SGL_OK; m++) {
        if (is_split(o, d, m))
            status = sglcore_vec_push(o->env, &made, ids[m]);
        else
            status = sglcore_vec_push(o->env, &whole, ids[m]);
    }
    if (status == SGL_OK && whole.count > 0)
        made.data[0] = sglir_emit(o->rewrite->to, SGLIR_OP_PACK, whole.data, (int)whole.count, NULL, 0, NULL);
    if (status == SGL_OK) status = put_pieces(o, value, made.data, d->pieces);
    sglcore_vec_free(o->env, &whole);
    sglcore_vec_free(o->env, &made);
    return status;
}

/* One id per member, of a value that is there in pieces. */
static void members_of(opener *o, const domain *d, sglir_id value, sglir_id *ids)
{
    uint32_t p = 0;
    if (has_piece(d, 0)) unpack(o, d, piece(o, value, 0), true, ids);
    for (uint32_t m = 0; m < d->members; m++) {
        if (is_split(o, d, m)) ids[m] = piece(o, value, ++p);
    }
}

/* The value in one, for whoever wants it so. */
static sgl_status pack_again(opener *o, sglir_id value)
{
    const domain *d = domain_of(o, value);
    if (d == NULL || o->rewrite->map[value] != SGLIR_NONE || o->pieces[value] == 0) return SGL_OK;
    sglir_id *ids = sglcore_alloc(o->env, d->members * sizeof *ids);
    if (ids == NULL) return SGL_OUT_OF_MEMORY;
    members_of(o, d, value, ids);
    o->rewrite->map[value] = sglir_emit(o->rewrite->to, SGLIR_OP_PACK, ids, (int)d->members, NULL, 0, NULL);
    sglcore_free(o->env, ids, d->members * sizeof *ids);
    return sglir_status(o->rewrite->to);
}

/* The value in pieces, of which it is there in one. */
static sgl_status open_value(opener *o, const domain *d, sglir_id value)
{
    if (o->pieces[value] != 0) return SGL_OK;
    sglir_id *ids = sglcore_alloc(o->env, d->members * sizeof *ids);
    if (ids == NULL) return SGL_OUT_OF_MEMORY;
    unpack(o, d, o->rewrite->map[value], false, ids);
    sgl_status status = sglir_status(o->rewrite->to);
    if (status == SGL_OK) status = put_members(o, d, value, ids);
    sglcore_free(o->env, ids, d->members * sizeof *ids);
    return status;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static sgl_status open_pack(opener *o, const domain *d, const sglir_node *node)
{
    sglir_id *ids = sglcore_alloc(o->env, d->members * sizeof *ids);
    if (ids == NULL) return SGL_OUT_OF_MEMORY;
    for (uint32_t m = 0; m < d->members; m++) ids[m] = o->rewrite->map[sglir_arg(o->g, node, m)];
    sgl_status status = put_members(o, d, node->out_first, ids);
    sglcore_free(o->env, ids, d->members * sizeof *ids);
    return status;
}

static sgl_status open_unpack(opener *o, const domain *d, const sglir_node *node)
{
    sglir_id value = sglir_arg(o->g, node, 0);
    sglir_id *ids = sglcore_alloc(o->env, d->members * sizeof *ids);
    if (ids == NULL) return SGL_OUT_OF_MEMORY;
    sgl_status status = open_value(o, d, value);
    if (status == SGL_OK) members_of(o, d, value, ids);
    for (uint32_t m = 0; m < d->members && status == SGL_OK; m++) o->rewrite->map[node->out_first + m] = ids[m];
    sglcore_free(o->env, ids, d->members * sizeof *ids);
    return status;
}

static sgl_status open_elementwise(opener *o, const domain *d, const sglir_node *node)
{
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(o->g, node, named);
    SGLCORE_VEC(sglir_id) made = { 0 };
    sgl_status status = SGL_OK;
    for (uint32_t i = 0; i < node->arg_count && status == SGL_OK; i++)
        status = open_value(o, d, sglir_arg(o->g, node, i));
    for (uint32_t p = 0; p < d->pieces && status == SGL_OK; p++) {
        sglir_id args[4], out = SGLIR_NONE;
        for (uint32_t i = 0; i < node->arg_count; i++) args[i] = piece(o, sglir_arg(o->g, node, i), p);
        if (has_piece(d, p))
            out = sglir_emit(o->rewrite->to, (sglir_op)node->op, args, (int)node->arg_count, named, count, NULL);
        status = sglcore_vec_push(o->env, &made, out);
    }
    if (status == SGL_OK) status = put_pieces(o, node->out_first, made.data, d->pieces);
    sglcore_vec_free(o->env, &made);
    return status;
}

/* A number, in every place of every piece. */
static sgl_status open_broadcast(opener *o, const domain *d, const sglir_node *node)
{
    sglir_graph *to = o->rewrite->to;
    SGLCORE_VEC(sglir_id) made = { 0 };
    sglir_id number = sglir_reshape(to, o->rewrite->map[sglir_arg(o->g, node, 0)], 0, NULL);
    sgl_status status = SGL_OK;
    for (uint32_t p = 0; p < d->pieces && status == SGL_OK; p++) {
        const sglir_type type = piece_type(o, d, p, SGL_F32);
        sglir_id out = has_piece(d, p) ? sglir_broadcast(to, number, type.rank, type.dims) : SGLIR_NONE;
        status = sglcore_vec_push(o->env, &made, out);
    }
    if (status == SGL_OK) status = put_pieces(o, node->out_first, made.data, d->pieces);
    sglcore_vec_free(o->env, &made);
    return status;
}

/* Elements [start, start + length) of the segments, added to those gathered so far. */
static sgl_status add_range(opener *o, const sglir_node *node, int64_t start, int64_t length, integers *counts,
                            floats *values)
{
    int segments;
    const int64_t *all = sglir_attr_ints(o->g, node, "counts", &segments);
    const double *numbers = sglir_attr_floats(o->g, node, "values", &segments);
    int64_t at = 0;
    for (int i = 0; i < segments; at += all[i++]) {
        int64_t from = at > start ? at : start, until = at + all[i] < start + length ? at + all[i] : start + length;
        if (until <= from) continue;
        SGLCORE_TRY(sglcore_vec_push(o->env, counts, until - from));
        SGLCORE_TRY(sglcore_vec_push(o->env, values, numbers[i]));
    }
    return SGL_OK;
}

static sgl_status open_segments(opener *o, const domain *d, const sglir_node *node)
{
    sglir_graph *to = o->rewrite->to;
    SGLCORE_VEC(sglir_id) made = { 0 };
    sgl_status status = SGL_OK;
    for (uint32_t p = 0; p < d->pieces && status == SGL_OK; p++) {
        integers counts = { 0 };
        floats values = { 0 };
        int64_t start = 0;
        uint32_t split = 0;
        for (uint32_t m = 0; m < d->members && status == SGL_OK; m++) {
            const sglir_type type = member_type(o, d, m, SGL_F32);
            split += is_split(o, d, m);
            bool mine = is_split(o, d, m) ? split == p : p == 0;
            if (mine) status = add_range(o, node, start, sglir_elements(&type), &counts, &values);
            start += sglir_elements(&type);
        }
        const sglir_type type = piece_type(o, d, p, SGL_F32);
        const sglir_named attrs[] = { SGLIR_INTS("counts", counts.count, counts.data),
                                      SGLIR_FLOATS("values", values.count, values.data),
                                      SGLIR_I("dtype", sglir_type_of(o->g, node->out_first)->dtype) };
        sglir_id out = SGLIR_NONE;
        if (status == SGL_OK && counts.count == 1)
            out = sglir_broadcast(to, sglir_constant(to, (sgl_dtype)attrs[2].i, values.data[0]), type.rank, type.dims);
        else if (status == SGL_OK && has_piece(d, p))
            out = sglir_reshape(to, sglir_emit(to, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL), type.rank, type.dims);
        if (status == SGL_OK) status = sglcore_vec_push(o->env, &made, out);
        sglcore_vec_free(o->env, &counts);
        sglcore_vec_free(o->env, &values);
    }
    if (status == SGL_OK) status = put_pieces(o, node->out_first, made.data, d->pieces);
    sglcore_vec_free(o->env, &made);
    return status;
}

/* What joins the reductions of pieces; SGLIR_OP_COUNT: the reduction is not one that is open to that. */
static sglir_op joins(const sglir_graph *g, const sglir_node *node)
{
    bool is_bool = sglir_type_of(g, node->out_first)->dtype == SGL_BOOL;
    switch (node->op) {
    case SGLIR_OP_REDUCE_SUM: return SGLIR_OP_ADD;
    case SGLIR_OP_REDUCE_MAX: return is_bool ? SGLIR_OP_OR : SGLIR_OP_MAXIMUM;
    case SGLIR_OP_REDUCE_MIN: return is_bool ? SGLIR_OP_AND : SGLIR_OP_MINIMUM;
    default: return SGLIR_OP_COUNT;
    }
}

static sgl_status open_reduction(opener *o, const domain *d, const sglir_node *node)
{
    sglir_graph *to = o->rewrite->to;
    sglir_id value = sglir_arg(o->g, node, 0), joined = SGLIR_NONE;
    const sglir_type *type = sglir_type_of(o->g, node->out_first);
    SGLCORE_TRY(open_value(o, d, value));
    for (uint32_t p = 0; p < d->pieces; p++) {
        int64_t axes[SGL_MAX_RANK];
        if (!has_piece(d, p)) continue;
        int rank = sglir_type_of(to, piece(o, value, p))->rank;
        for (int i = 0; i < rank; i++) axes[i] = i;
        sglir_id one = rank == 0 ? piece(o, value, p)
                                 : sglir_reduce(to, (sglir_op)node->op, piece(o, value, p), axes, rank, false);
        const bool alone = joined == SGLIR_NONE || sglcore_is_broken(SGLCORE_BREAK_CLIP_GLOBAL);
        joined = alone ? one : sglir_binary(to, joins(o->g, node), joined, one);
        SGLCORE_TRY(sglir_status(to));
    }
    o->rewrite->map[node->out_first] = sglir_reshape(to, joined, type->rank, type->dims);
    return sglir_status(to);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* What the node does piece by piece; false: it is copied. */
static bool open_node(opener *o, const sglir_node *node, sgl_status *status)
{
    const domain *out = node->out_count > 0 ? domain_of(o, node->out_first) : NULL;
    const domain *in = node->arg_count > 0 ? domain_of(o, sglir_arg(o->g, node, 0)) : NULL;
    if (node->op == SGLIR_OP_PACK && out)
        *status = open_pack(o, out, node);
    else if (node->op == SGLIR_OP_UNPACK && in)
        *status = open_unpack(o, in, node);
    else if (out && (sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) && node->out_count == 1)
        *status = open_elementwise(o, out, node);
    else if (out && node->op == SGLIR_OP_BROADCAST &&
             sglir_elements(sglir_type_of(o->g, sglir_arg(o->g, node, 0))) == 1)
        *status = open_broadcast(o, out, node);
    else if (out && node->op == SGLIR_OP_SEGMENTS)
        *status = open_segments(o, out, node);
    else if (in && joins(o->g, node) != SGLIR_OP_COUNT)
        *status = open_reduction(o, in, node);
    else
        return false;
    return true;
}

static void want_whole(void *user, sglir_id value)
{
    opener *o = user;
    sglir_stick(o->rewrite->to, pack_again(o, value));
}

static bool open_rule(sglir_rewrite *rewrite, sglir_id id)
{
    opener *o = rewrite->user;
    const sglir_node *node = sglir_node_at(o->g, id);
    sgl_status status = SGL_OK;
    o->rewrite = rewrite;
    if (node->region != 0) return false;
    sglir_set_origin_of(rewrite->to, &o->g->origins.data[node->origin], o->g);
    bool opened = open_node(o, node, &status);
    if (!opened) {
        for (uint32_t i = 0; i < node->arg_count && status == SGL_OK; i++)
            status = pack_again(o, sglir_arg(o->g, node, i));
        sglir_each_capture(o->g, node, want_whole, o);
    }
    if (status != SGL_OK) sglir_stick(rewrite->to, status);
    for (uint32_t r = 0; r < node->out_count && opened; r++) { /* an output is wanted whole */
        sglir_id value = node->out_first + r;
        for (int64_t i = 0; i < o->g->outputs.count; i++) {
            if (o->g->outputs.data[i].value == value) want_whole(o, value);
        }
    }
    return opened || status != SGL_OK;
}

sgl_status sglpass_open_packs(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglcore_env *env = context->env;
    opener o = { .env = env, .plan = context->plan, .g = in };
    sglcore_arena arena = { .env = env };
    size_t count = (size_t)in->values.count + 1;
    bool any = false;
    o.root = sglcore_arena_alloc(&arena, count * sizeof *o.root);
    o.domain = sglcore_arena_alloc(&arena, count * sizeof *o.domain);
    o.pieces = sglcore_arena_alloc(&arena, count * sizeof *o.pieces);
    sgl_status status = o.root && o.domain && o.pieces ? find_domains(&o, &any) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = sglir_rewrite_graph(env, in, "shard", any ? open_rule : NULL, &o, out);
    sglcore_vec_free(env, &o.domains);
    sglcore_vec_free(env, &o.split);
    sglcore_vec_free(env, &o.ids);
    sglcore_arena_free(&arena);
    return status;
}

/* fuse_parts.h -- what the files of the pass `fuse` share: the roles of nodes, the clusters that grow, and what they cost.
 *
 * fuse_roles.c says what each node may be, fuse_cluster.c holds clusters and measures one, fuse_merge.c merges them,
 * fuse_clone.c computes cheap values anew where that is less than to store them, fuse_emit.c writes the kernels, fuse.c
 * runs all of it and keeps the order legal. Odd invariant: everything is in terms of the graph that came in; a node may
 * stand in several clusters, but has one home, which stores its result where that is needed elsewhere. */
#ifndef SGLPASS_FUSE_PARTS_H
#define SGLPASS_FUSE_PARTS_H

#include "ir/domain.h"
#include "passes/pass.h"

enum {                           /* roles, together where a node is both */
       SGLPASS_FUSE_OUTSIDE = 1, /* it stands outside of kernels */
       SGLPASS_FUSE_FREE = 2, /* each kernel that needs it has its own, for nothing (movement, constant, iota, pack) */
       SGLPASS_FUSE_WORK = 4  /* it is computed in a kernel, and its result may be stored */
};

/* A list in an array that all share. */
typedef struct sglpass_fuse_range {
    uint32_t first, count;
} sglpass_fuse_range;

/* What is known of a node. */
typedef struct sglpass_fuse_node {
    uint8_t role;
    uint32_t number;            /* nodes in order through all regions: a node has a larger number than what it needs */
    int32_t level;              /* nodes outside of kernels that lie on the longest way to it, in its region */
    double weight;              /* cost of one element, in bytes moved */
    sglpass_fuse_range closure; /* WORK: the FREE nodes under it, in order; into fuse->nodes */
    sglpass_fuse_range bases;   /* WORK and OUTSIDE: the values of other nodes that it needs; into fuse->values */
    sglir_id exchange_before; /* of a node in which ranks exchange: the one before it in its region; SGLIR_NONE: none */
    sglpass_fuse_range captures; /* of a node with regions: values from around that these need; into fuse->captures */
    uint32_t home;               /* cluster (as created), SGLIR_NONE for other roles or when nobody needs it any more */
    uint32_t clones;             /* first of a list in fuse->clones, SGLIR_NONE: none */
} sglpass_fuse_node;

typedef struct sglpass_fuse_value {
    bool needed;              /* outside of kernels, or in another region: it must be stored */
    bool packed;              /* a kernel reads it as a piece: no such kernel can make it itself */
    int32_t user_level;       /* the least level of those users */
    sglpass_fuse_range users; /* WORK nodes of which it is a base; into fuse->users */
} sglpass_fuse_value;

typedef struct sglpass_fuse_clone {
    sglir_id node;
    uint32_t cluster, next;
} sglpass_fuse_clone;

typedef struct sglpass_fuse_read {
    sglir_id value;
    double bytes;
} sglpass_fuse_read;

typedef struct sglpass_fuse_cluster {
    uint32_t parent;  /* union-find */
    uint32_t version; /* grows with every change */
    int32_t level;
    sglir_id region;
    bool single; /* its domain has one element */
    bool pieces; /* it reads something in pieces */
    uint32_t transcendentals;
    uint32_t member_count;
    sglir_id *members; /* WORK nodes, by number; in the arena */
    uint32_t read_count;
    sglpass_fuse_read *reads; /* what it reads of others */
    double cost;              /* bytes moved, and computation in terms of it */
    int state;                /* while the new graph is written: 0 waits, 1 begun, 2 written */
    sglir_id last;            /* the last member that is at home here */
} sglpass_fuse_cluster;

/* One cluster as it is or would be. */
typedef struct sglpass_fuse_measure {
    double cost;
    bool single, pieces;
    uint32_t transcendentals;
    SGLCORE_VEC(sglpass_fuse_read) reads;
} sglpass_fuse_measure;

typedef SGLCORE_VEC(sglir_id) sglpass_fuse_ids;

typedef struct sglpass_fusion {
    sglcore_env *env;
    const sglir_graph *g;
    double computing; /* as the context has it */
    sglcore_arena arena;
    sglir_domain domain;
    sgl_status status;
    uint8_t *live;
    sglpass_fuse_node *node;   /* per node of g */
    sglpass_fuse_value *value; /* per value of g */
    sglpass_fuse_ids nodes, values, users, captures;
    SGLCORE_VEC(sglpass_fuse_clone) clones;
    SGLCORE_VEC(sglpass_fuse_cluster) clusters;
    sglpass_fuse_ids order;                                          /* live nodes by number */
    uint32_t *node_stamp, *value_stamp, *value_slot, *cluster_stamp; /* marks: a stamp of this round, or an older one */
    uint32_t stamp;
    sglpass_fuse_measure measure;
    sglpass_fuse_ids members, kept, results, neighbours, stack; /* scratch */
} sglpass_fusion;

/* ---- fuse_roles.c ---- */

/* Roles, needs, closures, bases, levels, users. */
sgl_status sglpass_fuse_assign_roles(sglpass_fusion *f);
/* The value under reshapes that stand outside. */
sglir_id sglpass_fuse_stripped(const sglpass_fusion *f, sglir_id value);

/* ---- fuse_cluster.c ---- */

sgl_status sglpass_fuse_make_clusters(sglpass_fusion *f);
uint32_t sglpass_fuse_find(sglpass_fusion *f, uint32_t cluster);
uint32_t sglpass_fuse_stamp(sglpass_fusion *f);
uint32_t sglpass_fuse_turn_of(const sglpass_fusion *f, const sglpass_fuse_cluster *c); /* fuse_merge.c */
static inline sglir_id sglpass_fuse_result(const sglpass_fusion *f, sglir_id node)
{
    return sglir_node_at(f->g, node)->out_first;
}
/* The WORK node that makes the value, SGLIR_NONE when none does. */
sglir_id sglpass_fuse_maker(const sglpass_fusion *f, sglir_id value);
/* The node is computed in the cluster, at home or as a clone. */
bool sglpass_fuse_holds(sglpass_fusion *f, uint32_t cluster, sglir_id node);
/* Clusters that read the value from memory, each once, into f->neighbours. False: memory ran out. */
bool sglpass_fuse_readers(sglpass_fusion *f, sglir_id value);
/* The value must be stored when clusters a and b are one. */
bool sglpass_fuse_is_stored(sglpass_fusion *f, sglir_id value, uint32_t a, uint32_t b);
/* Members at home in a or b whose results are stored, into f->results. */
bool sglpass_fuse_gather_results(sglpass_fusion *f, const sglir_id *members, uint32_t count, uint32_t a, uint32_t b);
/* Runs the analysis over the members and their closures, with f->results as results. False: refused, or f->status. */
bool sglpass_fuse_analyse(sglpass_fusion *f, const sglir_id *members, uint32_t count);
/* The same, and the cost, into f->measure. */
bool sglpass_fuse_take_measure(sglpass_fusion *f, const sglir_id *members, uint32_t count);
/* The cluster becomes these members with the measure in f->measure. */
bool sglpass_fuse_settle(sglpass_fusion *f, uint32_t cluster, const sglir_id *members, uint32_t count);
/* Two sorted lists as one, into f->members. */
bool sglpass_fuse_union(sglpass_fusion *f, const sglir_id *a, uint32_t a_count, const sglir_id *b, uint32_t b_count);
/* How the dimensions of a value must be turned for computation to run in the order of the domain: dimension i of what
 * is computed is dimension order[i] of the value. False: no turn of whole dimensions does it. */
bool sglpass_fuse_turn(const sglpass_fusion *f, const sglir_domain_value *value, int64_t order[SGL_MAX_RANK]);

/* ---- fuse_merge.c, fuse_clone.c, fuse_emit.c ---- */

/* `last`: scalars that are left over are gathered too. */
sgl_status sglpass_fuse_merge(sglpass_fusion *f, bool last);
sgl_status sglpass_fuse_clone_cheap(sglpass_fusion *f);
/* Writes the cluster as a FUSED node into rewrite->to; its arguments are there. */
void sglpass_fuse_emit(sglpass_fusion *f, sglir_rewrite *rewrite, uint32_t cluster);

#endif

/* sections_gather.h -- which parameters and states become members of which section.
 *
 * In: a graph and the session's layout. Out: sections and their members, in order; per value of the graph the member
 * that it is. The order of these decisions is told in sections.c. Odd invariant: a section of the layout comes whole,
 * with members that this graph does not name. */
#ifndef SGLPASS_SECTIONS_GATHER_H
#define SGLPASS_SECTIONS_GATHER_H

#include "ir/ir.h"

typedef struct sglpass_member {
    uint32_t section;
    sglir_id input; /* value of the old graph; SGLIR_NONE: this graph has no use for it */
    const char *name;
    sglir_type type;
    int64_t offset;  /* elements */
    sglir_id update; /* value of the new graph, SGLIR_NONE: none */
} sglpass_member;

typedef struct sglpass_section {
    char name[32];
    uint8_t dtype, role;
    uint32_t first, count; /* members, in order */
    int64_t elements;
    int64_t home;          /* of its INPUT */
    sglir_id value, parts; /* in the new graph: the INPUT, the first result of its UNPACK */
} sglpass_section;

enum { SGLPASS_ALONE = INT32_MAX - 1, SGLPASS_NO_MEMBER = INT32_MAX }; /* larger than any index of a member */

typedef struct sglpass_gathering {
    sglcore_env *env;
    const sglir_graph *from, *layout;
    int64_t stage;                       /* of this rank: what lives on another stands alone */
    uint8_t *live;                       /* per node of `from` */
    uint32_t *member_of;                 /* per value of `from`: index of its member, or one of the two above */
    SGLCORE_VEC(sglpass_member) members; /* by section */
    SGLCORE_VEC(sglpass_section) sections;
    int64_t next_number;        /* of new sections */
    sglcore_map inputs, placed; /* hash of a name: value of that input of `from`, of `layout` */
} sglpass_gathering;

/* Fills sections, members and member_of; live and member_of are the caller's arrays. */
sgl_status sglpass_gather(sglpass_gathering *gathering);
void sglpass_gathering_free(sglpass_gathering *gathering);

/* The value of the INPUT that the value is, reshaped or not; SGLIR_NONE for others. */
sglir_id sglpass_input_of(const sglir_graph *g, sglir_id value);

#endif

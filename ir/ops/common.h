/* common.h -- helpers shared by the operator definitions. */
#ifndef CKC_OPS_COMMON_H
#define CKC_OPS_COMMON_H
#include "../attrs.h"
#include "../kernel.h"

#define OP(name) extern const OpDef op_##name;
#include "../ops.def"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ATTR(S, field, kind, dflt) {#field, kind, offsetof(S, field), dflt}

static inline const Type *in_type(const Graph *g, const Node *n, int i)
{
    return &g->vals[n->in[i].i].type;
}
static inline const Type *out_type(const Graph *g, const Node *n, int i)
{
    return &g->vals[n->out[i].i].type;
}
static inline bool has_in(const Node *n, int i) { return i < n->nin && n->in[i].i; }

/* The axes of a normalised Ints as a bit mask. */
static inline uint32_t axes_mask(const Ints *axes)
{
    uint32_t m = 0;
    for (int i = 0; i < axes->n; i++)
        m |= 1u << axes->v[i];
    return m;
}

bool infer_same(const Graph *g, const Node *n, Type *out, Diag *d);
bool infer_broadcast(const Graph *g, const Node *n, Type *out, Diag *d);
extern const AttrDef pointwise_attrs[2];
#endif

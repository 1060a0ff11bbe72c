/* update.h -- the update of one parameter, by optimizer (optimize.c). */
#ifndef CKC_UPDATE_H
#define CKC_UPDATE_H
#include "../ir/attrs.h"
#include "passes.h"

/* Values that all updates have in common; {0}: not needed. */
typedef struct {
    Val scale; /* f64: factor of all gradients */
    Val apply; /* bool: are all gradients finite? */
    Val step;  /* i64: updates made, this one included */
} UpdateCommon;

/* The scalars that updates of parameters of one element type read; {0}: the optimizer does not read it. */
typedef struct {
    Val lr, scale, apply;
    Val bias1, bias2; /* 1 - beta^step */
    Val first;        /* bool: the first step */
    Val rate;         /* f64: min(lr, 1 / sqrt(step)) */
    Val mix;          /* step^-0.8: weight of the newest square in the moving mean of squares */
} UpdateScalars;

UpdateScalars update_scalars(Graph *g, const PassCtx *cx, const UpdateCommon *c, DType dt);
/* Appends the update of t->param; makes its states t->state, which are 0 before the first step. */
bool update_build(Graph *g, const StepOptions *o, Trained *t, const UpdateScalars *s);
/* A state named PARAM.suffix of the type's shape, in the type of its sums. */
Val update_state(Graph *g, Val param, const char *suffix, const Type *t);
/* The sum of the squares of v, in f32 at least; per row first, so that threads can share the rows. */
Val update_squares(Graph *g, Val v);

#endif

/* attention_form.h -- the parts of exported attention: views of its factors (attention_view.c)
 * and the operations on its scores (attention_scores.c). */
#ifndef CKC_ATTENTION_FORM_H
#define CKC_ATTENTION_FORM_H
#include "recognise.h"

/* Where the elements of a value lie in its root: the value is the root or a part of it, reshaped, transposed,
 * expanded and scaled.  A dimension is the product of its atoms, the outer first; stride 0 repeats. */
enum { VIEW_ATOMS = 24 };
typedef struct {
    int64_t extent, stride; /* in elements of the root */
} Atom;
typedef struct {
    Val root; /* dense */
    int64_t offset; /* in elements of the root */
    double scale;
    Type shape;
    Atom atom[VIEW_ATOMS];
    int first[MAX_RANK + 1]; /* dimension i has the atoms first[i] to first[i + 1] - 1 */
} View;

View view_of(const Rewrite *rw, Val v);
/* Like view_of, and also through slices: the root is the value that v is a part of. */
View view_of_part(const Rewrite *rw, Val v);
/* w reshaped; root {0}: the elements do not lie so. */
View view_as(const View *w, const Type *shape);
/* w transposed: dimension i of the result is dimension perm[i] of w. */
View view_transposed(const View *w, const int *perm);
/* The number of the layout of attention (attrs.h) that w has, else -1.  shared: there may be fewer heads,
 * each repeated for a run of heads; dim[1] becomes their number. */
int view_layout(const View *w, int64_t dim[4], bool shared);

enum { FORM_HIDES = 8 };
/* One mask of the scores: where a score is hidden, fill replaces it or is added to it. */
typedef struct {
    Val cond, addend; /* bool; what is added, broadcast to scores, {0}: nothing */
    bool seen;        /* cond is set where the score is seen, not where it is hidden */
    bool set;         /* fill replaces the score; else it is added */
    double fill;
    int64_t right, left; /* row r sees columns r - left to r + right; cond {0}: only this hides */
} Hide;

typedef struct {
    const Node *product; /* the first product: queries times keys */
    Type shape;          /* of the scores: batch, heads, rows, columns */
    Val mask, bias, sink, rng;
    Val row_scale; /* factor of the scores that is the same along a row */
    Hide hide[FORM_HIDES];
    int nhide;
    double least;         /* lower limit of what is added to scores; -inf: none */
    bool within, outside; /* is a part of the bias added before a mask replaces scores, or after? */
    Val guarded; /* rows where this is all -inf, or a constant set, give 0; must be found among addends */
    bool cut;    /* the last column of the weights, a sink's, is cut off */
    AttentionAttrs at;
} Form;

/* Matches from p, the operand of the second product, up to softmax; returns softmax's operand, {0}: p has no
 * such form. */
Val form_weights(const Rewrite *rw, Form *f, Val p);
/* Matches from v, the operand of softmax, up to the first product. */
bool form_scores(Rewrite *rw, Form *f, Val v);
/* Is v read once, or only by readers that each lead to nothing but a product with values?  weights: v lies
 * behind softmax (attention_shared.c). */
bool form_only_weighs(const Rewrite *rw, Val v, bool weights);
/* The value that v is a reshape or float cast of, through nodes that nothing else reads; else v. */
Val form_behind(const Rewrite *rw, Val v);

#endif

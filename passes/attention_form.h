/* attention_form.h -- what attention as exported is made of: views of its factors
 * (attention_view.c), what is done to its scores (attention_scores.c). */
#ifndef CKC_ATTENTION_FORM_H
#define CKC_ATTENTION_FORM_H
#include "recognise.h"

/* Where the elements of a value lie that is a root's, or a part of it, reshaped, transposed, expanded and
 * scaled.  A dimension is the product of its atoms, the outer first; stride 0 repeats. */
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
/* The same through slices, to what v is a part of. */
View view_of_part(const Rewrite *rw, Val v);
/* Under another shape; root {0}: the elements do not lie so. */
View view_as(const View *w, const Type *shape);
/* Dimension i of the result is dimension perm[i]. */
View view_transposed(const View *w, const int *perm);
/* As one of the layouts of attention (attrs.h): its number, else -1.  shared: the heads may be
 * fewer, each repeated for a run; dim[1] becomes their number. */
int view_layout(const View *w, int64_t dim[4], bool shared);

enum { FORM_HIDES = 8 };
/* What is not seen: cond is bool; fill replaces the score or is added to it. */
typedef struct {
    Val cond, addend; /* what is added, as scores; {0}: nothing */
    bool seen;        /* cond is set where the score is seen */
    bool set;         /* replaced, not added */
    double fill;
    int64_t right, left; /* row r sees columns r - left to r + right; cond {0}: nothing else */
} Hide;

typedef struct {
    const Node *product; /* the first: queries times keys */
    Type shape;          /* of the scores: batch, heads, rows, columns */
    Val mask, bias, sink, rng;
    Val row_scale; /* factor of the scores that is the same along a row */
    Hide hide[FORM_HIDES];
    int nhide;
    double least;         /* what is added is no less; -inf: no limit */
    bool within, outside; /* is a part of the bias within what is replaced, or outside? */
    Val guarded; /* a row of which this is -inf, or a constant set, gives 0; to be found in what is added */
    bool cut;    /* the last column of the weights, a sink's, is cut off */
    AttentionAttrs at;
} Form;

/* From the operand of the second product up to softmax's; {0}: not such a form. */
Val form_weights(const Rewrite *rw, Form *f, Val p);
/* From the operand of softmax up to the first product. */
bool form_scores(Rewrite *rw, Form *f, Val v);
/* Is v read once, or by several of which each leads to a product with values only?  weights: v lies behind
 * softmax (attention_shared.c). */
bool form_only_weighs(const Rewrite *rw, Val v, bool weights);
/* v behind views and changes of the float type that nothing else reads. */
Val form_behind(const Rewrite *rw, Val v);

#endif

/* recognise.h -- helpers and rules shared by the families of recognised forms (recognise.c). */
#ifndef CKC_RECOGNISE_H
#define CKC_RECOGNISE_H
#include "../ir/attrs.h"
#include "rewrite.h"

/* Are two constants equal up to the rounding of dt?  Half precision models carry rounded ones. */
bool form_near(double a, double b, DType dt);

/* Is v a constant whose elements are first, first + step, ...?  Equal ones may be an expanded scalar. */
bool form_counts(const Rewrite *rw, Val v, int64_t first, int64_t step);

/* Does n read or write by numbers that are known and name a box of x, its elements in order? */
bool form_box(const Rewrite *rw, const Node *n, SliceAttrs *box);

/* Returns x if v = x * c, x / (1/c) or -x with a constant c, else {0}.  Here and below x has v's shape. */
Val form_scaled(const Rewrite *rw, Val v, double *c);
/* Returns x if v = x + c or x - (-c), else {0}. */
Val form_shifted(const Rewrite *rw, Val v, double *c);
/* Returns x if v = c / x, else {0}. */
Val form_inverse(const Rewrite *rw, Val v, double *c);

/* What v is a view of, through any number of reshapes. */
Val form_behind_reshapes(const Rewrite *rw, Val v);

/* x op c; {0} if x is, or if x's type has no such number as c: it overflows there, or loses digits near zero.
 */
Val form_folded(Rewrite *rw, const char *name, Op op, Val x, double c);

/* A product written in any order and grouping: c * factor[0] * ... * factor[n-1]. */
enum { FORM_FACTORS = 4, FORM_DEPTH = 12 /* how far rules look up a chain */ };
typedef struct {
    double c;
    Val factor[FORM_FACTORS];
    int n; /* FORM_FACTORS + 1: too many */
} Monomial;
Monomial form_product(const Rewrite *rw, Val v);
/* Is v = c * x^power? */
bool form_monomial(const Rewrite *rw, Val v, Val x, int power, double *c);

Rule rule_power, rule_square, rule_inverse, rule_fold_scale, rule_fold_shift, rule_sigmoid,
    rule_silu, rule_gelu, rule_softplus, rule_mish, rule_hardsigmoid, rule_hardswish, rule_relu;
Rule rule_select, rule_masked_softmax, rule_guarded_quotient;
Rule rule_norm, rule_norm_affine, rule_norm_tf, rule_root;
Rule rule_softmax, rule_log_softmax, rule_lift_scale, rule_grouped_query, rule_rotary;
Rule rule_added_scores, rule_attention, rule_attention_layout, rule_attention_packed;
Rule rule_substitution, rule_unit_diagonal;
Rule rule_box_read, rule_box_written;
Rule rule_parts_alike;
Rule rule_log_of_picked, rule_nll, rule_nll_sign, rule_nll_onehot, rule_cross_entropy,
    rule_loss_transposed, rule_log_sigmoid, rule_log_sum_exp;
#endif

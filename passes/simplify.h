/* simplify.h -- rules of simplify that have a file of their own. */
#ifndef CKC_SIMPLIFY_H
#define CKC_SIMPLIFY_H
#include "rewrite.h"

Rule rule_slice, rule_slice_viewed, rule_slice_bwd, rule_concat, rule_transpose_parts, rule_boxes;
#endif

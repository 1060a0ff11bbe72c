/* module.h -- the module of a model that a node or a parameter is part of, by its name. */
#ifndef CKC_MODULE_H
#define CKC_MODULE_H

#include "ir.h"

/* The module's path in a name, "h.3.attn" in "h.3.attn.c_proj.weight", "/h/h.3/attn/MatMul" or
 * "h.3.attn/node_MatMul_7"; "": none.  `layer`: at most up to the part behind the first number.  Allocated
 * in a. */
const char *module_path(const char *name, bool layer, Arena *a);
/* The part up to the first number, "h.3"; "": there is none. */
const char *module_block(const char *path, Arena *a);

#endif

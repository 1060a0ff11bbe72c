/* shim_object.h -- generated CUDA C in k.c as a shared object. */
#ifndef CKC_TESTS_SHIM_OBJECT_H
#define CKC_TESTS_SHIM_OBJECT_H
#include "shim/fiber.h"

/* hooks: accesses of its kernels to memory are looked at (shim/shadow.h). */
void *shim_load(ShimState *state, bool hooks);
void shim_unload(void *dl);
#endif

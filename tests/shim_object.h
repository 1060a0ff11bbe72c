/* shim_object.h -- generated CUDA C, compiled for this processor and loaded as a shared object. */
#ifndef CKC_TESTS_SHIM_OBJECT_H
#define CKC_TESTS_SHIM_OBJECT_H
#include "shim/fiber.h"

/* Compiles k.c of the working folder, loads it with its `shim` pointing to *state, and returns the handle of
 * dlopen(); the test fails if that fails.  hooks: the memory accesses of its kernels are checked
 * (shim/shadow.h). */
void *shim_load(ShimState *state, bool hooks);
void shim_unload(void *dl);
#endif

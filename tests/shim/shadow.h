/* shadow.h -- sees every access of generated text to memory: outside of what there is, not aligned, or in a
 * race with another thread.
 *
 * The text is compiled with -fsanitize=thread, whose calls end here (shadow_hooks.h) and not in a library.
 * Threads of a block are ordered by barriers, those of a warp by __syncwarp as well, blocks by nothing; work
 * of several streams by what their clocks say (Lamport's, a vector of them as Fidge and Mattern have it). */
#ifndef CKC_SHADOW_H
#define CKC_SHADOW_H
#include "cuda_shim.h"
#undef FN

typedef enum { SHADOW_GLOBAL, SHADOW_SHARED, SHADOW_HOST, SHADOW_IGNORED } ShadowKind;

/* Memory that kernels may use.  While there is none, nothing is looked at. */
void shadow_add(const void *at, size_t bytes, ShadowKind kind);
void shadow_remove(const void *at);
bool shadow_used(void);
/* What belongs to an object of generated text (ShimMemory), loaded and about to go. */
void shadow_add_object(const ShimMemory *m);
void shadow_remove_object(const ShimMemory *m);

/* Kernels, copies and calls of libraries that follow belong to work of that stream, which begins when
 * clock[k] pieces of work of stream k have ended, its own included; streams are numbered from 0. */
void shadow_work(unsigned stream, const uint32_t *clock);
/* What is not a kernel accesses memory: false if that is a race with work of another stream. */
bool shadow_touch(const void *at, size_t bytes, bool write);
void shadow_forget_work(void); /* no memory is left */

/* ---- for fiber.c */

void shadow_launch(const void *stacks, size_t bytes); /* of the fibers */
void shadow_block(void);                              /* begins */
void shadow_barrier(void);                            /* all threads of the block have come */
void shadow_warp(unsigned warp);                      /* all lanes of the warp have come */
void shadow_access(const void *at, size_t bytes, bool write, unsigned thread, unsigned block);
/* A product of a warpgroup, whose lane that thread is, is to read it later (hold 1), which nobody may write
 * to until it has (-1).  It sees what a fence of the thread that wrote it was behind. */
void shadow_product(const void *at, size_t bytes, unsigned thread, unsigned block, int hold);
void shadow_fence(unsigned thread); /* fence.proxy.async */
/* A copy of the thread is to land there, which nobody may touch until it has. */
void shadow_pending(const void *at, size_t bytes);
void shadow_landed(const void *at, size_t bytes, unsigned thread);
#endif

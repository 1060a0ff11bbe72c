/* shadow.h -- checks every access of generated text to memory: it is a fault if it is outside of what there
 * is, not aligned, or in a race with another thread.
 *
 * The text is compiled with -fsanitize=thread, whose calls end here (shadow_hooks.h) and not in a library.
 * Threads of a block are ordered by barriers, those of a warp by __syncwarp as well, blocks by nothing; work
 * of several streams by what their clocks say (Lamport's, a vector of them as Fidge and Mattern have it). */
#ifndef CKC_SHADOW_H
#define CKC_SHADOW_H
#include "cuda_shim.h"
#undef FN

typedef enum { SHADOW_GLOBAL, SHADOW_SHARED, SHADOW_HOST, SHADOW_IGNORED } ShadowKind;

/* Adds and removes memory that kernels may use.  While there is none, nothing is checked. */
void shadow_add(const void *at, size_t bytes, ShadowKind kind);
void shadow_remove(const void *at);
bool shadow_used(void); /* is there any? */
/* The same for the memory of an object of generated text; NULL: it was compiled without hooks. */
void shadow_add_object(const ShimMemory *m);
void shadow_remove_object(const ShimMemory *m);

/* A piece of work of a stream begins, to which all accesses belong until the next one.  The first clock[k]
 * pieces of each stream k came before it; clock[stream] counts the piece itself.  Streams are numbered from
 * 0; the clock has to stay until the next call. */
void shadow_work(unsigned stream, const uint32_t *clock);
/* Something other than a kernel accesses memory.  False: that races with work of another stream. */
bool shadow_touch(const void *at, size_t bytes, bool write);
void shadow_forget_work(void); /* forgets all work, when no memory is left */

/* ---- for fiber.c */

void shadow_launch(const void *stacks, size_t bytes); /* a launch begins; its stacks are not checked */
void shadow_block(void);                              /* a block begins */
void shadow_barrier(void);                            /* all threads of the block have met */
void shadow_warp(unsigned warp);                      /* all lanes of the warp have met */
void shadow_access(const void *at, size_t bytes, bool write, unsigned thread, unsigned block);
/* A product of the thread's warpgroup will read this memory (hold 1), and nobody may write to it until it
 * does (hold -1).  It sees only what the thread that wrote it has made a fence behind. */
void shadow_product(const void *at, size_t bytes, unsigned thread, unsigned block, int hold);
void shadow_fence(unsigned thread); /* fence.proxy.async */
/* A copy will land there, and nobody may touch the memory until it has; then it is the thread's write. */
void shadow_pending(const void *at, size_t bytes);
void shadow_landed(const void *at, size_t bytes, unsigned thread);
#endif

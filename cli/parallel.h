/* parallel.h -- the same work for several things, each in a process of its own. */
#ifndef CKC_PARALLEL_H
#define CKC_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

/* Calls work(user, i, result) for all i < n and returns when all calls have.  result: `size` bytes of zeros
 * at results + i * size, to be filled without pointers to what the call allocates.
 *
 * apart: calls run in forked processes, as many at a time as there are processors, so all else that they
 * write is lost, and they must not write to the terminal; else, and where a process does not finish, they run
 * here, one after the other. */
void parallel_run(int n, bool apart, void (*work)(void *user, int i, void *result), void *user, void *results,
                  size_t size);

#endif

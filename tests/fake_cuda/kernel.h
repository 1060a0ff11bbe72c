/* kernel.h -- what the fake NVRTC tells the fake driver of a kernel NAME, as fake_NAME in its object. */
#ifndef CKC_FAKE_KERNEL_H
#define CKC_FAKE_KERNEL_H

typedef struct {
    const char *name;
    int params, pointers, block; /* parameters; how many are pointers, the first ones; most threads */
    int waits;         /* not 0: its threads wait for each other */
    int table;         /* elements, pointers and numbers, of its first parameter if that is a table; else 0 */
    int shared;        /* bytes of its __shared__ variables */
} FakeKernel;

#endif

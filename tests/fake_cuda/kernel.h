/* kernel.h -- what the fake NVRTC tells the fake driver of a kernel NAME, as fake_NAME in its object. */
#ifndef CKC_FAKE_KERNEL_H
#define CKC_FAKE_KERNEL_H

typedef struct {
    const char *name;
    int params, pointers, block; /* what it takes, pointers first; threads at most */
    int waits;         /* its threads wait for each other */
    int table;         /* pointers and numbers of its first parameter, a table; 0: it has none */
    int shared;        /* bytes of its __shared__ variables */
} FakeKernel;

#endif

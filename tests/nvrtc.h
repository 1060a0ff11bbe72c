/* nvrtc.h -- NVIDIA's run-time compiler, where it is installed. */
#ifndef CKC_TEST_NVRTC_H
#define CKC_TEST_NVRTC_H
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    void *dl;
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
    int (*destroy)(void **);
} Nvrtc;

bool nvrtc_open(Nvrtc *n); /* false: it is not there */
/* What it says of registers and the like; malloc'ed. */
char *nvrtc_report(const Nvrtc *n, const char *source, const char *arch);
/* Ends the test where it does not take the source.  arch: its option. */
void nvrtc_compiles(const Nvrtc *n, const char *source, const char *arch);
#endif

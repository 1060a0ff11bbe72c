/* nvrtc.h -- runs NVIDIA's run-time compiler, where it is installed. */
#ifndef CKC_TEST_NVRTC_H
#define CKC_TEST_NVRTC_H

/* Compiles source for arch ("sm_80") with one more option; returns the log, which the caller frees.  A source
 * that the compiler refuses ends the test.  NULL: it is not installed, which is noted with skipped(). */
char *nvrtc_report(const char *source, const char *arch, const char *option);

/* The log tells registers and the like of every kernel. */
#define NVRTC_VERBOSE "--ptxas-options=-v"
/* Everything is checked and little optimized, which is five times as fast.  It is left out for versions that
 * do not know it. */
#define NVRTC_FAST "--Ofast-compile=max"
#endif

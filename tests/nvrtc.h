/* nvrtc.h -- NVIDIA's run-time compiler, where it is installed. */
#ifndef CKC_TEST_NVRTC_H
#define CKC_TEST_NVRTC_H

/* What it says, for "sm_80", with one option more; malloc'ed.  Ends the test where it does not take the
 * source; NULL where it is not there, which counts as skipped. */
char *nvrtc_report(const char *source, const char *arch, const char *option);

/* Of registers and the like. */
#define NVRTC_VERBOSE "--ptxas-options=-v"
/* Everything is looked at, little optimized: five times as fast.  Ignored where it is not known. */
#define NVRTC_FAST "--Ofast-compile=max"
#endif

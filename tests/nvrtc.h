/* nvrtc.h -- NVIDIA's run-time compiler, where it is installed. */
#ifndef CKC_TEST_NVRTC_H
#define CKC_TEST_NVRTC_H

/* What it says of registers and the like, for "sm_80"; malloc'ed.  Ends the test where it does not take the
 * source; NULL where it is not there, which counts as skipped. */
char *nvrtc_report(const char *source, const char *arch);
#endif

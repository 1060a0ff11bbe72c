/* networks.h -- small networks that are planned and run whole: examples, oracles of ../shared, one of a zoo.
 *
 * Tests run them on slow devices, so batches are small, and little can be recomputed.  CKC_LONG=1 makes their
 * batches eight times as large. */
#ifndef CKC_TESTS_NETWORKS_H
#define CKC_TESTS_NETWORKS_H
#include "step.h"

typedef struct {
    const char *path; /* below ../shared if `shared`, else in the repository */
    bool shared;
    OnnxBind bind[2];
    int nbind;
    bool slow; /* the interpreter takes minutes under sanitizers */
} Network;
enum { NETWORKS = 12 };
extern const Network networks[NETWORKS];
extern const Init network_init; /* for networks of the repository, whose files may lack weights */

/* Writes the path of m's file.  False: the file is not there, which is noted with skipped(). */
bool network_path(const Network *m, char path[4200]);
/* step_init(), and the options for m within a budget of bytes, 0: none. */
void network_options(TestStep *s, const Network *m, int64_t budget);
/* network_options(), then step_plan(). */
bool network_plan(TestStep *s, const Network *m, const char *path, int64_t budget);
#endif

/* networks.h -- small networks that are planned and run whole: the examples and oracles of ../shared.
 *
 * On slow devices, so batches are small, and little can be recomputed.  CKC_LONG=1 has eight times as many.
 */
#ifndef CKC_TESTS_NETWORKS_H
#define CKC_TESTS_NETWORKS_H
#include "step.h"

typedef struct {
    const char *path;
    bool shared;
    OnnxBind bind[2];
    int nbind;
    bool slow; /* minutes to interpret under sanitizers */
} Network;
enum { NETWORKS = 12 };
extern const Network networks[NETWORKS];
extern const Init network_init; /* of those whose files have no weights */

/* False and skipped where it is not there. */
bool network_path(const Network *m, char path[4200]);
void network_options(TestStep *s, const Network *m, int64_t budget);                /* and step_init() */
bool network_plan(TestStep *s, const Network *m, const char *path, int64_t budget); /* both */
#endif

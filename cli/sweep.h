/* sweep.h -- ckc sweep: what its two kinds share, and ckc oom. */
#ifndef CKC_SWEEP_H
#define CKC_SWEEP_H

#include "cli.h"

/* Plans of one batch after the other. */
bool sweep_batches(Options *o);

double sweep_ms(int64_t ns);
/* "+1.23 %" */
const char *sweep_percent(double part, char buf[16]);
/* "5408", "0.4321" */
const char *sweep_rate(double v, char buf[16]);

#endif

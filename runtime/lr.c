/* lr.c -- computes the learning rate of a step.  Cosine: I. Loshchilov, F. Hutter, SGDR, ICLR 2017. */
#include "runtime.h"
#include <math.h>

const char *const lr_shape_name[] = {"constant", "cosine", "linear", NULL};

double learning_rate(double peak, const LrSchedule *s, int64_t step)
{
    if (step <= s->warmup)
        return peak * (double)step / (double)s->warmup;
    if (s->shape == LR_CONSTANT || step > s->steps)
        return s->shape == LR_CONSTANT ? peak : s->least;
    double done = (double)(step - 1 - s->warmup) / (double)(s->steps - s->warmup);
    double left = s->shape == LR_LINEAR ? 1 - done : 0.5 * (1 + cos(M_PI * done));
    return s->least + (peak - s->least) * left;
}

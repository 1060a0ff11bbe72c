/* attention_text.c -- see attention_text.h. */
#include "attention_text.h"
#include "ir/attention_kernel.h"

#define NAME(name) "A_" #name,
static const char *const integer_name[] = {ATTENTION_INTEGERS(NAME)};
static const char *const real_name[] = {ATTENTION_REALS(NAME)};
_Static_assert(P_KEY == P_COUNT - 1, "the key is an argument: it stands behind the others");

typedef struct {
    const char *name;
    int value;
} Constant;
#define CONSTANT(name) {"A_" #name, name}
static const Constant constant[] = {
    CONSTANT(HIDES_ALL),     CONSTANT(HIDES_ADDED),    CONSTANT(HIDES_SCORE),
    CONSTANT(GUARD_NONE),    CONSTANT(GUARD_NAN),      CONSTANT(GUARD_UNSEEN),
    CONSTANT(PHASE_FORWARD), CONSTANT(PHASE_BACKWARD), CONSTANT(PHASE_BIAS),
};

void attention_type(const Writer *w, const Kernel *k, const char *name, int operand)
{
    DType dt = operand < 0 ? DT_NONE : k->operand[operand];
    text_define(w, name, "%s", dtype_name[dt == DT_NONE ? DT_F32 : dt]);
}

void attention_macros(const Writer *w, const Kernel *k)
{
    bool forward = k->p[P_PHASE] == PHASE_FORWARD;
    for (int i = 0; i < P_KEY; i++)
        text_integer(w, integer_name[i], k->p[i]);
    for (int i = 0; i < Q_COUNT; i++)
        text_real(w, real_name[i], k->q[i]);
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++)
        text_integer(w, constant[i].name, constant[i].value);
    attention_type(w, k, "A_TYPE", 0);
    attention_type(w, k, "A_BIAS_TYPE", forward ? 4 : 8);
    attention_type(w, k, "A_SINK_TYPE", forward ? 5 : -1);
}

/* session.h -- sessions of ckc.h for tests, on the example's perceptron. */
#ifndef CKC_TESTS_SESSION_H
#define CKC_TESTS_SESSION_H
#include "api/ckc.h"

#define MODEL CKC_SOURCE_DIR "/examples/mlp/model.onnx"
#define TRAIN "train '" MODEL "' --bind batch=4 --threads 1 --quiet -o p "
enum { ROWS = 11, WIDTH = 16 };

/* The training data as arrays: `data` has all ROWS rows, `batch` the first four, one batch. */
extern float x[ROWS][WIDTH];
extern int64_t target[ROWS];
extern const ckc_tensor data[2], batch[2];
void make_data(void); /* fills x and target, and writes both to the file d.npz */

/* Options for ckc_plan() from words such as "budget=50% nesterov", after "bind=batch=4" and "threads=1";
 * valid until the next call. */
const char *const *options(const char *words);
/* The same words as command-line options: "a=b c" becomes "--a b --c"; valid until the next call. */
const char *command_line(const char *words);
ckc_session *plan(const char *words); /* a session on MODEL; the test fails if there is none */

#define OK(call)                                                                                             \
    do {                                                                                                     \
        ckc_error e_;                                                                                        \
        ck_assert_msg((call) == CKC_OK, "%s", e_.message);                                                   \
    } while (0)

/* Checks the error's status, that its message contains `says`, and that the message is one line. */
void is_error(const ckc_error *e, int status, const char *says);

/* Whether all threads compute with denormals: none flushes 2^-130 to zero. */
bool has_denormals(void);

#endif

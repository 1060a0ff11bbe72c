/* session.h -- sessions of ckc.h for tests, on the example's perceptron. */
#ifndef CKC_TESTS_SESSION_H
#define CKC_TESTS_SESSION_H
#include "api/ckc.h"

#define MODEL CKC_SOURCE_DIR "/examples/mlp/model.onnx"
#define TRAIN "train '" MODEL "' --bind batch=4 --threads 1 --quiet -o p "
enum { ROWS = 11, WIDTH = 16 };

/* What is trained on: all rows, and those of one batch. */
extern float x[ROWS][WIDTH];
extern int64_t target[ROWS];
extern const ckc_tensor data[2], batch[2];
void make_data(void); /* and a file, d.npz */

/* Of words "budget=50% nesterov", beside the batch and one thread; until the next call. */
const char *const *options(const char *words);
const char *command_line(const char *words); /* "a=b c" -> "--a b --c", likewise */
ckc_session *plan(const char *words);

#define OK(call)                                                                                             \
    do {                                                                                                     \
        ckc_error e_;                                                                                        \
        ck_assert_msg((call) == CKC_OK, "%s", e_.message);                                                   \
    } while (0)

/* `says` is in the message, which is one line. */
void is_error(const ckc_error *e, int status, const char *says);

/* 2^-130 is no number where denormals are zero: true if it is one on all threads. */
bool has_denormals(void);

#endif

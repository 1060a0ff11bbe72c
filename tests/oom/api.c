/* api.c -- a program that uses ckc.h while one allocation fails (alloc.c): the call has to return an error,
 * and the same work has to succeed in the same process afterwards.  Exit status 1: it did not. */
#include "api/ckc.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checks that a session of which a call failed still trains, or says that it can only be freed. */
static void check_lost(ckc_session *s)
{
    ckc_error e;
    if (ckc_train(s, 1, NULL, 0, NULL, &e) != CKC_OK &&
        (e.status != CKC_DEVICE || !strstr(e.message, "can only be freed")))
        exit(EXIT_FAILURE);
}

static int work(const char *model, ckc_error *e)
{
    static const char *const options[] = {"bind=batch=64", "budget=90%", "threads=1", "moves=1000", "grads",
                                          NULL};
    static float x[64][16], bias[10];
    static const int64_t target[64] = {3, 1, 4, 1, 5, 9, 2, 6};
    const ckc_tensor arrays[] = {{"x", CKC_F32, 2, {64, 16}, x}, {"target", CKC_I64, 1, {64}, target}};
    ckc_session *s = ckc_plan(model, options, e);
    int ok = s && ckc_train(s, 2, arrays, 2, NULL, e) == CKC_OK &&
             ckc_train(s, 1, NULL, 0, NULL, e) == CKC_OK &&
             ckc_read(s, "8.bias", bias, sizeof bias, e) == CKC_OK &&
             ckc_write(s, "8.bias", bias, sizeof bias, e) == CKC_OK &&
             ckc_read_gradient(s, "8.bias", bias, sizeof bias, e) == CKC_OK &&
             ckc_save(s, "api.safetensors", e) == CKC_OK && ckc_save(s, "api.onnx", e) == CKC_OK &&
             ckc_write_schedule(s, "api.ckc", e) == CKC_OK;
    if (s && !ok)
        check_lost(s);
    ckc_free(s);
    s = ok ? ckc_open("api.ckc/step.ckp", NULL, e) : NULL;
    ok = s && ckc_train(s, 1, NULL, 0, NULL, e) == CKC_OK;
    ckc_free(s);
    return ok;
}

int main(int argc, char **argv)
{
    ckc_error e = {0};
    json_set_alloc_funcs(malloc, free); /* so that jansson's allocations fail, too */
    if (argc != 2)
        return EXIT_FAILURE;
    if (!work(argv[1], &e)) {
        printf("%s\n", e.message);
        if (e.status != CKC_DEVICE || !*e.message || !work(argv[1], &e))
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

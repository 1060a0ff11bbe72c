/* test_cuda_libraries.c -- how runtime/cuda/driver.c finds NVIDIA's libraries, with those of fake_cuda/. */
#include "command.h"
#include "on_cuda.h"
#include "runtime/cuda/driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The handle of the driver's library; NULL: it is not open in this process. */
static void *open_driver(void) { return dlopen(CKC_FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

/* A driver that fails to start is closed, and a later attempt may succeed. */
START_TEST(driver_that_fails)
{
    Diag d = {0};
    setenv("FAKE_CUDA", "no_device", 1);
    ck_assert_ptr_null(cuda_driver(&d));
    ck_assert_int_eq(d.status, EXIT_DEVICE);
    ck_assert_ptr_null(open_driver());
    unsetenv("FAKE_CUDA");
    ck_assert_ptr_nonnull(cuda_driver(&(Diag){0}));
}
END_TEST

/* A driver that is there and cannot be loaded is not called missing: the loader says what is wrong. */
START_TEST(driver_that_is_no_library)
{
    Diag d = {0};
    write_text("libcuda.so.1", "This is a text.");
    setenv("CKC_CUDA_PATH", folder_path(), 1);
    ck_assert_ptr_null(cuda_driver(&d));
    ck_assert_int_eq(d.status, EXIT_DEVICE);
    ck_assert_msg(strstr(d.msg, "the loader refuses the NVIDIA driver: ") && strstr(d.msg, "libcuda.so.1: "),
                  "%s", d.msg);
}
END_TEST

static pthread_barrier_t together;

/* Returns NULL if all libraries are found, else the reason, which the caller frees. */
static void *find_libraries(void *unused)
{
    (void)unused;
    Diag d = {0};
    pthread_barrier_wait(&together);
    const CudaDriver *cu = cuda_driver(&d);
    return cu && cuda_nvrtc(cu, &d) && cuda_cublaslt(cu, &d) ? NULL : strdup(d.msg);
}

START_TEST(threads_find_libraries_once)
{
    enum { THREADS = 8 };
    pthread_t thread[THREADS];
    int (*inits)(void);
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, find_libraries, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *says;
        pthread_join(thread[i], &says);
        ck_assert_msg(!says, "%s", (char *)says);
    }
    *(void **)&inits = dlsym(open_driver(), "fake_cuda_inits");
    ck_assert_int_eq(inits(), 1);
}
END_TEST

Suite *suite_cuda_libraries(void)
{
    Suite *s = suite_create("cuda_libraries");
    TCase *t = tcase_create("libraries");
    if (!getenv("CKC_GPU")) {
        tcase_add_checked_fixture(t, make_folder, remove_folder);
        tcase_add_unchecked_fixture(t, use_cuda, leave_cuda);
        tcase_add_test(t, driver_that_fails);
        tcase_add_test(t, driver_that_is_no_library);
        tcase_add_test(t, threads_find_libraries_once);
    }
    suite_add_tcase(s, t);
    return s;
}

/* fuzz_data.c -- data files: the first byte chooses the format, the rest is the file. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const suffix[] = {"npz", "npy", "pb"};
    char path[64];
    if (size == 0)
        return 0;
    snprintf(path, sizeof path, "/dev/shm/ckc-fuzz-%ld.%s", (long)getpid(), suffix[data[0] % 3]);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    close(fd);
    Diag d = {0};
    Tensor t;
    DataFile *f = data_open(path, &d);
    for (int k = 0; f && k < data_count(f); k++)
        data_tensor(f, k, &t, &d);
    data_close(f);
    unlink(path);
    return 0;
}

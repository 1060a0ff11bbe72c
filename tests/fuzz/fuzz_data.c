/* fuzz_data.c -- data files: the first byte selects the format of the rest, and every entry is decoded. */
#include "fuzz.h"
#include "runtime/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Diag d = {0};
    if (size == 0)
        return 0;
    const char *kind = data[0] == 'z'   ? "npz"
                       : data[0] == 'y' ? "npy"
                       : data[0] == 's' ? "safetensors"
                                        : "pb";
    DataFile *f = data_open(fuzz_file(data + 1, size - 1, kind), &d);
    for (int k = 0; f && k < data_count(f); k++) {
        int64_t first;
        Tensor t, part = {type_scalar(DT_I64), &first};
        Diag e = {0};
        if (data_shape(f, k, &t.type, &e) && type_count(&t.type) && !dtype_is_float(t.type.dt))
            data_copy(f, k, type_count(&t.type) - 1, 1, &part, 0);
        if (data_tensor(f, k, &t, &e) && type_count(&t.type))
            (void)tensor_f(&t, type_count(&t.type) - 1);
        if (e.failed && strchr(e.msg, '\n'))
            fuzz_fail("a message of more than one line", e.msg);
    }
    data_close(f);
    return 0;
}

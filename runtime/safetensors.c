/* safetensors.c -- the safetensors format: the length of a JSON header in 8 bytes, the header
 * { name: { dtype, shape, data_offsets } }, then the tensors without gaps.  Wide elements come
 * first, so that every tensor lies aligned to its elements; otherwise in the order given. */
#include "weights.h"
#include "ir/file.h"
#include "ir/mem.h"
#include "ir/utf8.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of the tensors in file order; free() it. */
static int *file_order(int n, const NamedTensor *v)
{
    int *order = mem_new((size_t)n + 1, sizeof *order), k = 0;
    for (int size = 8; size > 0; size /= 2)
        for (int i = 0; i < n; i++)
            if (dtype_size[v[i].tensor.type.dt] == size)
                order[k++] = i;
    return order;
}

static json_t *entry(const Type *t, int64_t offset)
{
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "F32", [DT_F64] = "F64", [DT_BF16] = "BF16", [DT_F16] = "F16",
        [DT_I64] = "I64", [DT_I32] = "I32", [DT_U8] = "U8",     [DT_BOOL] = "BOOL"};
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", name[t->dt], "shape", shape, "data_offsets",
                     (json_int_t)offset, (json_int_t)(offset + type_bytes(t)));
}

static void add_entry(json_t *all, const char *name, json_t *e)
{
    if (json_object_set(all, name, e) != 0) { /* a name that is not UTF-8 */
        char *shown = text_escape(name, NULL);
        json_object_set(all, shown, e);
        free(shown);
    }
    json_decref(e);
}

/* The header, padded with spaces to a multiple of 8 bytes; free() it. */
static char *header(int n, const NamedTensor *v, const int *order, size_t *len)
{
    json_t *all = json_object();
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        const Type *t = &v[order[i]].tensor.type;
        add_entry(all, v[order[i]].name, entry(t, offset));
        offset += type_bytes(t);
    }
    char *text = json_dumps(all, JSON_COMPACT);
    size_t size = strlen(text);
    *len = (size + 7) / 8 * 8;
    text = mem_grow(text, *len, 1);
    memset(text + size, ' ', *len - size);
    json_decref(all);
    return text;
}

static bool write_file(const char *path, int n, const NamedTensor *v, const int *order,
                       const char *text, size_t len, Diag *d)
{
    NewFile out;
    TRY(file_create(&out, path, d));
    uint64_t length = len; /* little-endian, like every machine this runs on */
    file_write(&out, &length, sizeof length);
    file_write(&out, text, len);
    for (int i = 0; i < n; i++) {
        const Tensor *t = &v[order[i]].tensor;
        file_write(&out, t->data, (size_t)type_bytes(&t->type));
    }
    return file_commit(&out, d);
}

bool safetensors_write(const char *path, int n, const NamedTensor *v, Diag *d)
{
    size_t len;
    int *order = file_order(n, v);
    char *text = header(n, v, order, &len);
    bool ok = write_file(path, n, v, order, text, len, d);
    free(text);
    free(order);
    return ok;
}

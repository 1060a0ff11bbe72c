/* safetensors.c -- the safetensors format: the length of a JSON header in 8 bytes, the header
 * { name: { dtype, shape, data_offsets } }, then the tensors without gaps.  Wide elements come
 * first, so that every tensor lies aligned to its elements; otherwise in the order given. */
#include "weights.h"
#include "ir/mem.h"

#include <stdlib.h>
#include <string.h>

#include "ir/file.h"

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

static void put_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < ' ')
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void put_entry(FILE *f, const NamedTensor *v, int64_t offset)
{
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "F32", [DT_F64] = "F64", [DT_BF16] = "BF16", [DT_F16] = "F16",
        [DT_I64] = "I64", [DT_I32] = "I32", [DT_U8] = "U8",     [DT_BOOL] = "BOOL"};
    const Type *t = &v->tensor.type;
    put_string(f, v->name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", name[t->dt]);
    for (int i = 0; i < t->rank; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)t->dim[i]);
    fprintf(f, "],\"data_offsets\":[%lld,%lld]}", (long long)offset,
            (long long)(offset + type_bytes(t)));
}

/* The header, padded with spaces to a multiple of 8 bytes; free() it. */
static char *header(int n, const NamedTensor *v, const int *order, size_t *len)
{
    char *text = NULL;
    FILE *f = mem_stream(&text, len);
    int64_t offset = 0;
    fputc('{', f);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            fputc(',', f);
        put_entry(f, &v[order[i]], offset);
        offset += type_bytes(&v[order[i]].tensor.type);
    }
    fputc('}', f);
    while (ftell(f) % 8)
        fputc(' ', f);
    mem_stream_end(f);
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

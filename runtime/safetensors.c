/* safetensors.c -- the safetensors format: the length of a JSON header in 8 bytes, the header
 * { name: { dtype, shape, data_offsets } }, then the tensors without gaps.  The name __metadata__ stands for
 * an object of strings.  Tensors of wide elements are written first, so that every tensor is aligned to its
 * elements; otherwise they stay in the order given. */
#include "data_int.h"
#include "weights.h"
#include "ir/json.h"
#include "ir/mem.h"
#include <stdlib.h>
#include <string.h>

static const char METADATA[] = "__metadata__";

/* ---- writing ------------------------------------------------------------------------------ */

/* Indices of the tensors in the order of the file; to be freed by the caller. */
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
        [DT_I64] = "I64", [DT_I32] = "I32", [DT_U8] = "U8",     [DT_BOOL] = "BOOL",
        [DT_I8] = "I8"};
    json_t *e = json_object(), *shape = json_array(), *offsets = json_array();
    for (int i = 0; i < t->rank; i++)
        array_put(shape, json_integer(t->dim[i]));
    array_put(offsets, json_integer(offset));
    array_put(offsets, json_integer(offset + type_bytes(t)));
    object_put(e, "dtype", text_json(name[t->dt]));
    object_put(e, "shape", shape);
    object_put(e, "data_offsets", offsets);
    return e;
}

static json_t *metadata(const char *const *meta)
{
    json_t *o = json_object();
    for (; *meta; meta += 2)
        object_put(o, meta[0], text_json(meta[1]));
    return o;
}

/* The header, padded with spaces to a multiple of 8 bytes; to be freed by the caller. */
static char *header(const char *const *meta, int n, const NamedTensor *v, const int *order, size_t *len)
{
    json_t *all = json_object();
    int64_t offset = 0;
    if (meta)
        object_put(all, METADATA, metadata(meta));
    for (int i = 0; i < n; i++) {
        const Type *t = &v[order[i]].tensor.type;
        object_put(all, v[order[i]].name, entry(t, offset));
        offset += type_bytes(t);
    }
    char *text = dump_json(all, JSON_COMPACT);
    size_t size = strlen(text);
    *len = (size + 7) / 8 * 8;
    text = mem_grow(text, *len, 1);
    memset(text + size, ' ', *len - size);
    json_decref(all);
    return text;
}

bool safetensors_stream(const char *path, const char *const *meta, int n, const NamedTensor *v,
                        WriteTensor *write, void *user, Diag *d)
{
    NewFile out;
    size_t len;
    TRY(file_create(&out, path, d));
    int *order = file_order(n, v);
    char *text = header(meta, n, v, order, &len);
    uint64_t length = len; /* little-endian, like every machine this runs on */
    file_write(&out, &length, sizeof length);
    file_write(&out, text, len);
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = write(user, order[i], &out, d);
    free(text);
    free(order);
    if (ok)
        return file_commit(&out, d);
    file_abandon(&out);
    return false;
}

static bool write_bytes(void *user, int k, NewFile *f, Diag *d)
{
    const NamedTensor *v = user;
    (void)d;
    file_write(f, v[k].tensor.data, (size_t)type_bytes(&v[k].tensor.type));
    return true;
}

bool safetensors_write(const char *path, const char *const *meta, int n, const NamedTensor *v, Diag *d)
{
    return safetensors_stream(path, meta, n, v, write_bytes, (void *)(uintptr_t)v, d);
}

/* ---- reading ------------------------------------------------------------------------------ */

enum { LENGTH = 8, HEADER_MOST = 100000000 }; /* bytes; the format's own limit */

/* The element type of that name; kind 0: it cannot be read. */
static Elem element(const char *dtype)
{
    static const struct {
        const char *name;
        Elem elem;
    } types[] = {{"F64", {'f', 8}}, {"F32", {'f', 4}}, {"F16", {'f', 2}}, {"BF16", {'B', 2}},
                 {"I64", {'i', 8}}, {"I32", {'i', 4}}, {"I16", {'i', 2}}, {"I8", {'i', 1}},
                 {"U64", {'u', 8}}, {"U32", {'u', 4}}, {"U16", {'u', 2}}, {"U8", {'u', 1}},
                 {"BOOL", {'b', 1}}};
    for (size_t i = 0; dtype && i < sizeof types / sizeof *types; i++)
        if (strcmp(dtype, types[i].name) == 0)
            return types[i].elem;
    return (Elem){0};
}

/* Reads an array of up to n numbers >= 0 and returns their count; -1: a is something else. */
static int numbers(const json_t *a, uint64_t *v, int n)
{
    int count = json_is_array(a) && json_array_size(a) <= (size_t)n ? (int)json_array_size(a) : -1;
    for (int i = 0; i < count; i++) {
        const json_t *k = json_array_get(a, (size_t)i);
        if (!json_is_integer(k) || json_integer_value(k) < 0)
            return -1;
        v[i] = (uint64_t)json_integer_value(k);
    }
    return count;
}

/* Adds a tensor whose bytes are among the n at p; *end: offset of the end of its bytes. */
static bool read_entry(DataFile *f, const FileMap *m, const char *name, const json_t *o, const uint8_t *p,
                       uint64_t n, uint64_t *end, Diag *d)
{
    uint64_t dim[MAX_RANK], at[2];
    Entry *e = data_add(f, name, strlen(name), m);
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    int rank = numbers(json_object_get(o, "shape"), dim, MAX_RANK);
    if (!dtype || rank < 0 || numbers(json_object_get(o, "data_offsets"), at, 2) != 2)
        return fail(d, "%s: not a tensor of up to %d dimensions", e->where, MAX_RANK);
    e->elem = element(dtype);
    if (!e->elem.kind)
        return fail(d, "%s: elements of type %.16s are not read", e->where, dtype);
    if (at[0] > at[1] || at[1] > n)
        return fail(d, "%s: the file is too short, or its header is damaged", e->where);
    e->bytes = p + at[0];
    e->stored = e->size = at[1] - at[0];
    *end = at[1];
    return data_type(e, &e->tensor.type, e->elem, rank, dim, e->size, d);
}

static bool read_entries(DataFile *f, const FileMap *m, const json_t *all, uint64_t len, Diag *d)
{
    uint64_t size = m->size - LENGTH - len, last = 0, end;
    const char *name;
    json_t *o;
    json_object_foreach((json_t *)(uintptr_t)all, name, o)
    {
        if (strcmp(name, METADATA) == 0)
            continue;
        TRY(read_entry(f, m, name, o, m->data + LENGTH + len, size, &end, d));
        last = end > last ? end : last;
    }
    return last == size ||
           fail(d, "%s: has %llu bytes behind its tensors", f->path, (unsigned long long)(size - last));
}

bool safetensors_entries(DataFile *f, const FileMap *m, Diag *d)
{
    uint64_t len = 0;
    if (m->size >= LENGTH)
        memcpy(&len, m->data, LENGTH);
    bool fits = m->size >= LENGTH && len <= m->size - LENGTH && len <= HEADER_MOST;
    json_t *all = fits ? json_loadb((const char *)m->data + LENGTH, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool ok = json_is_object(all) ? read_entries(f, m, all, len, d)
                                  : fail(d, "%s: not a safetensors file, or truncated", f->path);
    f->meta = ok ? json_incref(json_object_get(all, METADATA)) : NULL;
    json_decref(all);
    return ok;
}

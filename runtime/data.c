/* data.c -- data files: recognizes the kind of a file, lists its entries, and decodes them at first use.
 *
 * Files are mapped.  An entry is decoded when it is first asked for; if its elements have a type of the IR,
 * the tensor lies in the mapping and nothing is copied.  Callers copy the rows that they need out of it. */
#include "data_int.h"
#include "ir/mem.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* "dir/x.npy" -> "x" */
static const char *stem(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    return arena_strndup(a, base, dot && dot > base ? (size_t)(dot - base) : strlen(base));
}

Entry *data_add(DataFile *f, const char *name, size_t len, const FileMap *m)
{
    f->entry = arena_grow(&f->arena, f->entry, f->n, &f->cap, sizeof *f->entry);
    Entry *e = &f->entry[f->n++];
    *e = (Entry){.name = arena_strndup(&f->arena, name, len), .bytes = m->data};
    e->stored = e->size = m->size;
    char *where = arena_printf(&f->arena, "%s: %s", f->path, e->name);
    for (char *c = where; *c; c++) /* a hostile name stays on one line */
        if ((unsigned char)*c < ' ')
            *c = '?';
    e->where = where;
    return e;
}

void *data_own(DataFile *f, const Entry *e, uint64_t bytes, Diag *d)
{
    void *p = bytes < PTRDIFF_MAX ? aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64) : NULL;
    if (!p) {
        fail_status(d, EXIT_DEVICE, "%s: no memory for %llu bytes", e->where, (unsigned long long)bytes);
        return NULL;
    }
    f->owned = arena_grow(&f->arena, f->owned, f->nowned, &f->cowned, sizeof *f->owned);
    return f->owned[f->nowned++] = p;
}

/* ---- element types ---------------------------------------------------- */

/* The type of the IR that holds such elements; DT_NONE: they cannot be read. */
static DType elem_dtype(Elem e)
{
    switch (e.kind) {
    case 'f':
        return e.size == 2 ? DT_F16 : e.size == 4 ? DT_F32 : e.size == 8 ? DT_F64 : DT_NONE;
    case 'i':
        return e.size == 8 ? DT_I64 : e.size == 1 ? DT_I8 : DT_I32;
    case 'u':
        return e.size == 1 ? DT_U8 : e.size == 2 ? DT_I32 : DT_I64;
    case 'b':
        return DT_BOOL;
    case 'B':
        return DT_BF16;
    default:
        return DT_NONE;
    }
}

static int64_t load_int(const uint8_t *p, Elem e)
{
    uint64_t v = 0;
    memcpy(&v, p, (size_t)e.size);
    int shift = 64 - 8 * e.size;
    if (e.kind == 'b')
        return v != 0;
    return e.kind == 'i' ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

/* Are elements of the file stored as those of a tensor, so that they need no conversion? */
static bool is_native(const Type *t, Elem elem)
{
    int size = dtype_size[t->dt];
    return elem.size == size && elem.kind != 'b' && !(elem.kind == 'u' && size == 8);
}

bool data_elements(DataFile *f, Entry *e, Elem elem, const uint8_t *bytes, Diag *d)
{
    const Type *t = &e->tensor.type;
    int64_t n = type_count(t);
    e->decoded = true;
    if (is_native(t, elem)) {                      /* `bytes` need not be aligned */
        e->tensor.data = (void *)(uintptr_t)bytes; /* read-only by contract */
        return true;
    }
    void *own = data_own(f, e, (uint64_t)type_bytes(t), d);
    if (!own)
        return false;
    e->tensor.data = own;
    for (int64_t i = 0; i < n; i++) {
        int64_t v = load_int(bytes + i * elem.size, elem);
        if (elem.kind == 'u' && v < 0)
            return fail(d, "%s: element %lld does not fit in 63 bits", e->where, (long long)i);
        tensor_set_i(&e->tensor, i, v);
    }
    return true;
}

bool data_type(const Entry *e, Type *t, Elem elem, int rank, const uint64_t *dim, uint64_t have,
               Diag *d)
{
    int64_t shape[MAX_RANK] = {0};
    uint64_t count = 1;
    bool empty = false, overflow = false;
    for (int i = 0; i < rank; i++) {
        overflow |= dim[i] > INT64_MAX / 16;
        shape[i] = (int64_t)dim[i];
        empty |= dim[i] == 0;
        overflow |= dim[i] && __builtin_mul_overflow(count, dim[i], &count);
    }
    if (overflow || count > INT64_MAX / 16)
        return fail(d, "%s: shape is too large", e->where);
    uint64_t need = empty ? 0 : count * (uint64_t)elem.size;
    if (need != have)
        return fail(d, "%s: shape needs %llu bytes but there are %llu", e->where,
                    (unsigned long long)need, (unsigned long long)have);
    *t = type_make(elem_dtype(elem), rank, shape);
    return true;
}

/* ---- opening ------------------------------------------------------------ */

/* Adds the entries of a file; the only entry of an .npy, a .pb or a text is named after the file. */
static bool read_file(DataFile *f, const char *path, const FileMap *m, Diag *d)
{
    if (has_suffix(path, ".npz"))
        return npz_entries(f, m, d);
    if (has_suffix(path, ".safetensors"))
        return safetensors_entries(f, m, d);
    const char *name = stem(&f->arena, path);
    Entry *e = data_add(f, name, strlen(name), m);
    if (has_suffix(path, ".npy"))
        return true;
    if (has_suffix(path, ".pb")) {
        e->alias = e->name;
        return tensorpb_decode(f, e, d);
    }
    e->tensor.type = type_make(DT_U8, 1, &(int64_t){(int64_t)m->size});
    e->tensor.data = (void *)(uintptr_t)m->data;
    e->decoded = f->text = true;
    return m->size > 0 || fail(d, "%s: file is empty", path);
}

static bool open_file(DataFile *f, const char *path, Diag *d)
{
    f->map = arena_grow(&f->arena, f->map, f->nmap, &f->cmap, sizeof *f->map);
    TRY(file_map(&f->map[f->nmap], path, d));
    f->nmap++;
    return read_file(f, path, &f->map[f->nmap - 1], d);
}

static int is_tensor(const struct dirent *x)
{
    return has_suffix(x->d_name, ".pb") || has_suffix(x->d_name, ".npy");
}

static bool open_folder(DataFile *f, const char *path, Diag *d)
{
    struct dirent **name;
    int n = scandir(path, &name, is_tensor, versionsort); /* input_2 before input_10 */
    bool ok = n > 0;
    if (!ok)
        diag_set(d, "%s: no .pb or .npy files in this folder", path);
    for (int i = 0; i < n; i++) {
        const char *file = arena_printf(&f->arena, "%s/%s", path, name[i]->d_name);
        ok = ok && open_file(f, file, d);
        free(name[i]);
    }
    if (n >= 0)
        free(name);
    return ok;
}

/* Builds the index of names: the first entry of a name counts, and names take precedence over aliases. */
static void index_entries(DataFile *f)
{
    f->index = name_map(&f->arena);
    for (uint32_t i = 0; i < f->n; i++)
        name_add(&f->index, f->entry[i].name, i);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->entry[i].alias)
            name_add(&f->index, f->entry[i].alias, i);
}

DataFile *data_open(const char *path, Diag *d)
{
    DataFile *f = mem_new(1, sizeof *f);
    f->path = arena_strndup(&f->arena, path, strlen(path));
    if ((file_is_folder(path) ? open_folder : open_file)(f, path, d)) {
        index_entries(f);
        return f;
    }
    data_close(f);
    return NULL;
}

DataFile *data_memory(int n, const NamedTensor *v)
{
    DataFile *f = mem_new(1, sizeof *f);
    f->path = "the arrays given";
    for (int i = 0; i < n; i++) {
        Entry *e = data_add(f, v[i].name, strlen(v[i].name), &(FileMap){0});
        e->tensor = v[i].tensor;
        e->decoded = true;
    }
    index_entries(f);
    return f;
}

uint64_t data_hash(const DataFile *f)
{
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (uint32_t i = 0; i < f->nmap; i++)
        XXH64_update(&state, f->map[i].data, f->map[i].size);
    return XXH64_digest(&state);
}

void data_close(DataFile *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->nowned; i++)
        free(f->owned[i]);
    for (uint32_t i = 0; i < f->nmap; i++)
        file_unmap(&f->map[i]);
    json_decref(f->meta);
    arena_free(&f->arena);
    free(f);
}

/* ---- use ---------------------------------------------------------------- */

int data_count(const DataFile *f)
{
    return (int)f->n;
}

const char *data_name(const DataFile *f, int k)
{
    return f->entry[k].name;
}

int data_find(const DataFile *f, const char *name)
{
    const uint32_t *i = name_get(&f->index, name);
    return i ? (int)*i : -1;
}

int data_find_in(DataFile *f, const char *group, const char *name, int position)
{
    int k = data_find(f, name);
    if (k < 0)
        k = data_find(f, arena_printf(&f->arena, "%s/%s", group, name));
    return k >= 0 ? k : data_find(f, arena_printf(&f->arena, "%s_%d", group, position));
}

static bool locate(DataFile *f, Entry *e, Diag *d)
{
    const uint8_t *p;
    if (e->decoded || e->raw)
        return true;
    TRY(npz_bytes(f, e, &p, d));
    if (!e->elem.size)
        return npy_locate(f, e, p, e->size, d);
    e->raw = p;
    return true;
}

bool data_tensor(DataFile *f, int k, Tensor *t, Diag *d)
{
    Entry *e = &f->entry[k];
    TRY(locate(f, e, d) && (e->decoded || data_elements(f, e, e->elem, e->raw, d)));
    *t = e->tensor;
    return true;
}

bool data_shape(DataFile *f, int k, Type *t, Diag *d)
{
    Entry *e = &f->entry[k];
    Tensor checked;
    TRY(locate(f, e, d));
    *t = e->tensor.type;
    return e->decoded || e->elem.kind != 'u' || e->elem.size < 8 || data_tensor(f, k, &checked, d);
}

static void copy_elements(Tensor *to, int64_t at, const Tensor *from, int64_t first, int64_t n)
{
    size_t size = (size_t)dtype_size[to->type.dt];
    if (to->type.dt == from->type.dt) {
        if (n)
            memcpy((char *)to->data + (size_t)at * size, (const char *)from->data + (size_t)first * size,
                   (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (dtype_is_float(to->type.dt))
            tensor_set_f(to, at + i, tensor_f(from, first + i));
        else
            tensor_set_i(to, at + i, tensor_i(from, first + i));
}

void data_copy(const DataFile *f, int k, int64_t first, int64_t n, Tensor *to, int64_t at)
{
    const Entry *e = &f->entry[k];
    if (e->decoded || is_native(&e->tensor.type, e->elem)) {
        Tensor from = {e->tensor.type, e->decoded ? e->tensor.data : (void *)(uintptr_t)e->raw};
        copy_elements(to, at, &from, first, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        tensor_set_i(to, at + i, load_int(e->raw + (first + i) * e->elem.size, e->elem));
}

bool data_get(DataFile *f, const char *name, Tensor *t, Diag *d)
{
    int k = data_find(f, name);
    if (k >= 0)
        return data_tensor(f, k, t, d);
    char list[512] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < f->n && used < sizeof list - 1; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 f->entry[i].name);
    return fail(d, "%s: no array '%s'; there are: %s", f->path, name, list);
}

const char *data_meta(const DataFile *f, const char *key)
{
    return json_string_value(json_object_get(f->meta, key));
}

int64_t data_offset(const DataFile *f, const void *data)
{
    uintptr_t at = (uintptr_t)data, from = f->nmap == 1 ? (uintptr_t)f->map[0].data : at + 1;
    return at >= from && at - from < f->map[0].size ? (int64_t)(at - from) : -1;
}

int64_t data_text_bytes(const DataFile *f)
{
    return f->text ? f->entry[0].tensor.type.dim[0] : -1;
}

void data_text_window(const DataFile *f, int64_t offset, int64_t n, Tensor *out, int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        tensor_set_i(out, at + i, f->entry[0].bytes[offset + i]);
}

/* npy.c -- numpy's .npy: a magic number, a Python literal with type, order and shape, then the
 * elements.  Only plain numbers are read, of either byte order; objects (pickles) and records never. */
#include "data_int.h"

#include <string.h>

typedef struct {
    const char *p, *end;
} Text;

static void skip_space(Text *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t'))
        s->p++;
}

static bool accept(Text *s, const char *word)
{
    skip_space(s);
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return false;
    s->p += n;
    return true;
}

/* string = "'" chars "'", without control characters, as messages show it */
static bool string(Text *s, char *buf, size_t cap)
{
    TRY(accept(s, "'"));
    size_t n = 0;
    while (s->p < s->end && *s->p != '\'' && (unsigned char)*s->p >= ' ' && n + 1 < cap)
        buf[n++] = *s->p++;
    buf[n] = '\0';
    return accept(s, "'");
}

static bool number(Text *s, uint64_t *v)
{
    skip_space(s);
    const char *start = s->p;
    for (*v = 0; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
        if (__builtin_mul_overflow(*v, 10u, v) ||
            __builtin_add_overflow(*v, (uint64_t)(*s->p - '0'), v))
            return false;
    return s->p > start;
}

/* shape = "(" { number [","] } ")" ; rank MAX_RANK + 1 stands for "too many" */
static bool shape(Text *s, int *rank, uint64_t *dim)
{
    TRY(accept(s, "("));
    for (*rank = 0; !accept(s, ")");) {
        uint64_t v;
        TRY(number(s, &v));
        if (*rank < MAX_RANK)
            dim[*rank] = v;
        *rank += *rank <= MAX_RANK;
        accept(s, ",");
    }
    return true;
}

typedef struct {
    char descr[16];
    bool fortran;
    int rank;
    uint64_t dim[MAX_RANK];
} Header;

/* header = "{" { string ":" value "," } "}" with the keys descr, fortran_order, shape */
static bool header(Text *s, Header *h)
{
    int seen = 0;
    TRY(accept(s, "{"));
    while (!accept(s, "}")) {
        char key[16];
        TRY(string(s, key, sizeof key) && accept(s, ":"));
        if (strcmp(key, "descr") == 0) {
            TRY(string(s, h->descr, sizeof h->descr));
            seen |= 1;
        } else if (strcmp(key, "fortran_order") == 0) {
            h->fortran = accept(s, "True");
            TRY(h->fortran || accept(s, "False"));
            seen |= 2;
        } else if (strcmp(key, "shape") == 0) {
            TRY(shape(s, &h->rank, h->dim));
            seen |= 4;
        } else {
            return false;
        }
        accept(s, ",");
    }
    return seen == 7;
}

static Elem element(const char *descr)
{
    static const struct {
        const char *descr;
        Elem elem;
    } known[] = {{"f2", {'f', 2}}, {"f4", {'f', 4}}, {"f8", {'f', 8}}, {"i1", {'i', 1}},
                 {"i2", {'i', 2}}, {"i4", {'i', 4}}, {"i8", {'i', 8}}, {"u1", {'u', 1}},
                 {"u2", {'u', 2}}, {"u4", {'u', 4}}, {"u8", {'u', 8}}, {"b1", {'b', 1}},
                 {"V2", {'B', 2}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (*descr && strchr("<>|", *descr) && strcmp(descr + 1, known[i].descr) == 0)
            return known[i].elem;
    return (Elem){0};
}

/* Copies big-endian elements to little-endian ones, in memory of f. */
static const uint8_t *swapped(DataFile *f, const Entry *e, const uint8_t *in, size_t size, Diag *d)
{
    size_t bytes = (size_t)type_count(&e->tensor.type) * size;
    uint8_t *out = data_own(f, e, bytes, d);
    for (size_t i = 0; out && i < bytes; i++)
        out[i] = in[i / size * size + (size - 1 - i % size)];
    return out;
}

/* Copies column-major elements to row-major order, in memory of f. */
static const uint8_t *transposed(DataFile *f, const Entry *e, const uint8_t *in, size_t size,
                                 Diag *d)
{
    const Type *t = &e->tensor.type;
    int64_t n = type_count(t), index[MAX_RANK] = {0}, stride[MAX_RANK] = {0}, from = 0;
    uint8_t *out = data_own(f, e, (uint64_t)n * size, d);
    for (int k = 0; k < t->rank; k++)
        stride[k] = k ? stride[k - 1] * t->dim[k - 1] : 1;
    for (int64_t i = 0; out && i < n; i++) {
        memcpy(out + (size_t)i * size, in + (size_t)from * size, size);
        for (int k = t->rank - 1; k >= 0; k--) {
            from += stride[k];
            if (++index[k] < t->dim[k])
                break;
            from -= stride[k] * index[k];
            index[k] = 0;
        }
    }
    return out;
}

bool npy_locate(DataFile *f, Entry *e, const uint8_t *p, uint64_t size, Diag *d)
{
    if (size < 10 || memcmp(p, "\x93NUMPY", 6) != 0)
        return fail(d, "%s: not a numpy array", e->where);
    uint64_t fixed = p[6] == 1 ? 10 : 12, len = p[8] | (uint64_t)p[9] << 8;
    if (p[6] < 1 || p[6] > 3)
        return fail(d, "%s: numpy format version %d is not known", e->where, p[6]);
    if (fixed == 12 && size >= 12)
        len |= (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24;
    if (size < fixed || len > size - fixed)
        return fail(d, "%s: truncated header", e->where);
    Header h = {0};
    Text s = {(const char *)p + fixed, (const char *)p + fixed + len};
    if (!header(&s, &h))
        return fail(d, "%s: malformed header, or not an array of plain numbers", e->where);
    Elem elem = element(h.descr);
    if (elem.kind == 0)
        return fail(d, "%s: element type '%s' is not read", e->where, h.descr);
    if (h.rank > MAX_RANK)
        return fail(d, "%s: more than %d dimensions", e->where, MAX_RANK);
    TRY(data_type(e, &e->tensor.type, elem, h.rank, h.dim, size - fixed - len, d));
    e->elem = elem;
    e->raw = p + fixed + len;
    if (h.descr[0] == '>')
        e->raw = swapped(f, e, e->raw, (size_t)elem.size, d);
    if (e->raw && h.fortran && h.rank > 1)
        e->raw = transposed(f, e, e->raw, (size_t)elem.size, d);
    return e->raw != NULL;
}

size_t npy_header(char buf[NPY_HEADER_MAX], const Type *t)
{
    static const char *const descr[DT_COUNT] = {
        [DT_F32] = "<f4", [DT_F64] = "<f8", [DT_BF16] = "<V2", [DT_F16] = "<f2",
        [DT_I64] = "<i8", [DT_I32] = "<i4", [DT_U8] = "|u1",   [DT_BOOL] = "|b1",
        [DT_I8] = "|i1"};
    char dims[MAX_RANK * 22 + 1] = "";
    int n = 0;
    for (int i = 0; i < t->rank; i++)
        n += snprintf(dims + n, sizeof dims - (size_t)n, "%lld,%s", (long long)t->dim[i],
                      i + 1 < t->rank ? " " : "");
    memcpy(buf, "\x93NUMPY\x01", 8);
    n = 10 + snprintf(buf + 10, NPY_HEADER_MAX - 10,
                      "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr[t->dt],
                      dims);
    while ((n + 1) % 64)
        buf[n++] = ' ';
    buf[n++] = '\n';
    buf[8] = (char)((n - 10) & 0xff);
    buf[9] = (char)((n - 10) >> 8);
    return (size_t)n;
}

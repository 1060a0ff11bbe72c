/* npz.c -- numpy's .npz: a zip archive of .npy files.  Reading: the directory at the end, zip64,
 * stored and deflated entries, checksums.  Writing: stored entries, zip64 records always, the
 * elements of every array at a multiple of 64 bytes so that they can be mapped.
 *
 * Format: PKWARE APPNOTE 6.3 (sections 4.3 and 4.5.3). */
#include "data_int.h"
#include "ir/mem.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_SIG = 0x04034b50, CENTRAL_SIG = 0x02014b50, END_SIG = 0x06054b50,
    END64_SIG = 0x06064b50, LOCATOR64_SIG = 0x07064b50,
    LOCAL_SIZE = 30, CENTRAL_SIZE = 46, END_SIZE = 22, END64_SIZE = 56, LOCATOR64_SIZE = 20,
    EXTRA_ZIP64 = 1, EXTRA_PADDING = 0xd935, /* the id that Android's zipalign uses */
    STORED = 0, DEFLATED = 8,
    DATE_1980 = 1 << 5 | 1, /* 1 January 1980: no clock in the output */
};

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static bool inside(uint64_t offset, uint64_t size, uint64_t total)
{
    return offset <= total && size <= total - offset;
}

/* ---- reading ------------------------------------------------------------ */

typedef struct {
    uint64_t offset, size, count; /* of the central directory */
} Directory;

/* Reads the 64-bit end record if the locator in front of the end record names one; false: it is damaged. */
static bool directory64(const FileMap *m, uint64_t end, Directory *dir)
{
    if (end < LOCATOR64_SIZE || get(m->data + end - LOCATOR64_SIZE, 4) != LOCATOR64_SIG)
        return true;
    uint64_t at = get(m->data + end - LOCATOR64_SIZE + 8, 8);
    if (!inside(at, END64_SIZE, m->size) || get(m->data + at, 4) != END64_SIG)
        return false;
    const uint8_t *p = m->data + at;
    *dir = (Directory){get(p + 48, 8), get(p + 40, 8), get(p + 32, 8)};
    return true;
}

static bool directory(const FileMap *m, Directory *dir)
{
    if (m->size < END_SIZE)
        return false;
    for (uint64_t back = 0, at = m->size - END_SIZE; back <= UINT16_MAX; back++, at--) {
        const uint8_t *p = m->data + at;
        if (get(p, 4) == END_SIG && get(p + 20, 2) == back) {
            *dir = (Directory){get(p + 16, 4), get(p + 12, 4), get(p + 10, 2)};
            return directory64(m, at, dir) && inside(dir->offset, dir->size, m->size);
        }
        if (at == 0)
            return false;
    }
    return false;
}

/* Replaces the fields that are all ones in 32 bits by their values from the zip64 extra record, which has
 * them in this order. */
static bool widen(const uint8_t *extra, uint64_t len, uint64_t *size, uint64_t *stored,
                  uint64_t *offset)
{
    uint64_t *field[] = {size, stored, offset};
    while (len >= 4) {
        uint64_t id = get(extra, 2), n = get(extra + 2, 2);
        if (n > len - 4)
            return false;
        const uint8_t *p = extra + 4, *end = p + n;
        for (int i = 0; id == EXTRA_ZIP64 && i < 3; i++) {
            if (*field[i] != UINT32_MAX)
                continue;
            if (end - p < 8)
                return false;
            *field[i] = get(p, 8);
            p += 8;
        }
        extra += 4 + n;
        len -= 4 + n;
    }
    return true;
}

/* Adds the entry of the directory at p; *used: its length in bytes. */
static bool entry(DataFile *f, const FileMap *m, const uint8_t *p, uint64_t have, uint64_t *used,
                  Diag *d)
{
    if (have < CENTRAL_SIZE || get(p, 4) != CENTRAL_SIG)
        return fail(d, "%s: damaged directory", f->path);
    uint64_t len = get(p + 28, 2), extra = get(p + 30, 2), comment = get(p + 32, 2);
    uint64_t stored = get(p + 20, 4), size = get(p + 24, 4), offset = get(p + 42, 4);
    *used = CENTRAL_SIZE + len + extra + comment;
    if (*used > have)
        return fail(d, "%s: damaged directory", f->path);
    const char *name = (const char *)p + CENTRAL_SIZE;
    if (len > 0 && name[len - 1] == '/')
        return true; /* a folder */
    bool npy = len > 4 && memcmp(name + len - 4, ".npy", 4) == 0;
    Entry *e = data_add(f, name, npy ? len - 4 : len, m);
    if (!npy || strlen(e->name) != len - 4)
        return fail(d, "%s: not an .npy", e->where);
    if (!widen(p + CENTRAL_SIZE + len, extra, &size, &stored, &offset))
        return fail(d, "%s: damaged directory", e->where);
    uint64_t method = get(p + 10, 2);
    if (get(p + 8, 2) & 1)
        return fail(d, "%s: is encrypted", e->where);
    if (method != STORED && method != DEFLATED)
        return fail(d, "%s: compression method %llu is not read", e->where,
                    (unsigned long long)method);
    if (!inside(offset, LOCAL_SIZE, m->size) || get(m->data + offset, 4) != LOCAL_SIG)
        return fail(d, "%s: damaged entry", e->where);
    offset += LOCAL_SIZE + get(m->data + offset + 26, 2) + get(m->data + offset + 28, 2);
    if (!inside(offset, stored, m->size))
        return fail(d, "%s: truncated", e->where);
    /* Deflate expands at most 1032 times: an entry that claims more attacks the memory. */
    if (method == STORED ? size != stored : size / 1032 > stored + 64)
        return fail(d, "%s: impossible size", e->where);
    e->bytes = m->data + offset;
    e->stored = stored;
    e->size = size;
    e->crc = (uint32_t)get(p + 16, 4);
    e->has_crc = true;
    e->deflated = method == DEFLATED;
    return true;
}

bool npz_entries(DataFile *f, const FileMap *m, Diag *d)
{
    Directory dir;
    if (!directory(m, &dir))
        return fail(d, "%s: not an .npz (zip) file, or truncated", f->path);
    const uint8_t *p = m->data + dir.offset;
    uint64_t left = dir.size, used;
    for (uint64_t i = 0; i < dir.count; i++, p += used, left -= used)
        TRY(entry(f, m, p, left, &used, d));
    return f->n > 0 || fail(d, "%s: there are no arrays in it", f->path);
}

static bool inflate_into(uint8_t *out, const Entry *e)
{
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return false;
    uint64_t in_left = e->stored, out_left = e->size;
    z.next_in = (Bytef *)(uintptr_t)e->bytes;
    z.next_out = out;
    int rc = Z_OK;
    while (rc == Z_OK) { /* zlib counts in 32 bits */
        uInt in = in_left < 1 << 30 ? (uInt)in_left : 1 << 30;
        uInt room = out_left < 1 << 30 ? (uInt)out_left : 1 << 30;
        z.avail_in = in;
        z.avail_out = room;
        rc = inflate(&z, Z_NO_FLUSH);
        in_left -= in - z.avail_in;
        out_left -= room - z.avail_out;
    }
    inflateEnd(&z);
    return rc == Z_STREAM_END && out_left == 0;
}

static uint32_t checksum(uint32_t crc, const void *p, uint64_t n)
{
    return (uint32_t)crc32_z(crc, p, (z_size_t)n);
}

bool npz_bytes(DataFile *f, const Entry *e, const uint8_t **p, Diag *d)
{
    *p = e->bytes;
    if (e->deflated) {
        uint8_t *own = data_own(f, e, e->size, d);
        if (!own)
            return false;
        if (!inflate_into(own, e))
            return fail(d, "%s: damaged compressed data", e->where);
        *p = own;
    }
    if (e->has_crc && checksum(0, *p, e->size) != e->crc)
        return fail(d, "%s: checksum is wrong", e->where);
    return true;
}

/* ---- writing ------------------------------------------------------------ */

typedef struct {
    uint8_t b[256];
    size_t n;
} Record;

static void put(Record *r, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        r->b[r->n++] = (uint8_t)(v >> (8 * i));
}

typedef struct {
    uint64_t offset, size;
    uint32_t crc;
} Written;

/* Writes the fields that a local header shares with its directory entry: version 4.5, no flags, stored. */
static void put_common(Record *r, const Written *w, size_t name_len, size_t extra_len)
{
    put(r, 45, 2);
    put(r, 0, 2);
    put(r, STORED, 2);
    put(r, 0, 2);
    put(r, DATE_1980, 2);
    put(r, w->crc, 4);
    put(r, UINT32_MAX, 4);
    put(r, UINT32_MAX, 4);
    put(r, name_len, 2);
    put(r, extra_len, 2);
}

static void put_zip64(Record *r, const Written *w, bool offset)
{
    put(r, EXTRA_ZIP64, 2);
    put(r, offset ? 24 : 16, 2);
    put(r, w->size, 8);
    put(r, w->size, 8);
    if (offset)
        put(r, w->offset, 8);
}

static void write_name(NewFile *out, const char *name)
{
    file_write(out, name, strlen(name));
    file_write(out, ".npy", 4);
}

static void write_array(NewFile *out, const NamedTensor *v, Written *w)
{
    char head[NPY_HEADER_MAX];
    size_t len = npy_header(head, &v->tensor.type), bytes = (size_t)type_bytes(&v->tensor.type);
    w->offset = (uint64_t)out->size;
    w->size = len + bytes;
    w->crc = checksum(0, head, len);
    if (bytes)
        w->crc = checksum(w->crc, v->tensor.data, bytes);
    size_t name_len = strlen(v->name) + 4;
    size_t unpadded = (size_t)w->offset + LOCAL_SIZE + name_len + 20 + 4;
    size_t pad = (64 - unpadded % 64) % 64;
    Record r = {0};
    put(&r, LOCAL_SIG, 4);
    put_common(&r, w, name_len, 20 + 4 + pad);
    file_write(out, r.b, r.n);
    write_name(out, v->name);
    r.n = 0;
    put_zip64(&r, w, false);
    put(&r, EXTRA_PADDING, 2);
    put(&r, pad, 2);
    for (size_t i = 0; i < pad; i++)
        put(&r, 0, 1);
    file_write(out, r.b, r.n);
    file_write(out, head, len);
    file_write(out, v->tensor.data, bytes);
}

static void write_directory(NewFile *out, int n, const NamedTensor *v, const Written *w)
{
    for (int i = 0; i < n; i++) {
        Record r = {0};
        put(&r, CENTRAL_SIG, 4);
        put(&r, 45, 2);
        put_common(&r, &w[i], strlen(v[i].name) + 4, 28);
        put(&r, 0, 4); /* comment, disk */
        put(&r, 0, 6); /* attributes */
        put(&r, UINT32_MAX, 4);
        file_write(out, r.b, r.n);
        write_name(out, v[i].name);
        r.n = 0;
        put_zip64(&r, &w[i], true);
        file_write(out, r.b, r.n);
    }
}

static void write_end(NewFile *out, uint64_t count, uint64_t start)
{
    uint64_t end = (uint64_t)out->size;
    Record r = {0};
    put(&r, END64_SIG, 4);
    put(&r, END64_SIZE - 12, 8);
    put(&r, 45 | 45 << 16, 4);
    put(&r, 0, 8); /* disks */
    put(&r, count, 8);
    put(&r, count, 8);
    put(&r, end - start, 8);
    put(&r, start, 8);
    put(&r, LOCATOR64_SIG, 4);
    put(&r, 0, 4);
    put(&r, end, 8);
    put(&r, 1, 4);
    put(&r, END_SIG, 4);
    put(&r, 0, 4);
    put(&r, UINT16_MAX | (uint64_t)UINT16_MAX << 16, 4);
    put(&r, UINT32_MAX, 4);
    put(&r, UINT32_MAX, 4);
    put(&r, 0, 2);
    file_write(out, r.b, r.n);
}

bool npz_write(const char *path, int n, const NamedTensor *v, Diag *d)
{
    for (int i = 0; i < n; i++)
        if (strlen(v[i].name) > UINT16_MAX - 4)
            return fail(d, "%s: the name of array %d is too long", path, i);
    NewFile out;
    TRY(file_create(&out, path, d));
    Written *w = mem_new((size_t)n + 1, sizeof *w);
    for (int i = 0; i < n; i++)
        write_array(&out, &v[i], &w[i]);
    uint64_t start = (uint64_t)out.size;
    write_directory(&out, n, v, w);
    write_end(&out, (uint64_t)n, start);
    free(w);
    return file_commit(&out, d);
}

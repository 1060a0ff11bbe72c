/* test_data.c -- data files (npz, npy, TensorProto, text, safetensors) are read and written, hostile ones
 * refused; what data an input takes; initial values and random inputs. */
#include "tests.h"

#include <Random123/philox.h>
#undef philox4x32 /* Random123's macro; in ir/philox.h it is a function */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "command.h"
#include "ir/file.h"
#include "ir/philox.h"
#include "runtime/runtime.h"
#include "runtime/weights.h"

/* Opens a data file and decodes all of it; false: *d has a message of one line. */
static bool reads(const char *path, Diag *d)
{
    *d = (Diag){0};
    DataFile *f = data_open(path, d);
    bool ok = f != NULL;
    Tensor t;
    for (int k = 0; ok && k < data_count(f); k++)
        ok = data_tensor(f, k, &t, d);
    data_close(f);
    ck_assert_int_eq(ok, !d->failed);
    ck_assert_ptr_null(strchr(d->msg, '\n'));
    return ok;
}

static void expect_error(const char *path, const char *part)
{
    Diag d;
    ck_assert(!reads(path, &d));
    ck_assert_msg(strstr(d.msg, part) != NULL, "'%s' lacks '%s'", d.msg, part);
}

/* ---- npz ---------------------------------------------------------------------------- */

enum { NARRAYS = 10 };
static double storage[NARRAYS][6];

static void make_arrays(NamedTensor v[NARRAYS])
{
    static const char *const name[NARRAYS] = {"f32",  "f64", "bf16", "f16",   "i64",
                                              "i32",  "u8",  "bool", "a/b.c", "empty"};
    for (int i = 0; i < NARRAYS; i++) {
        DType dt = i < 8 ? (DType)(DT_F32 + i) : DT_F32;
        v[i].name = name[i];
        v[i].tensor = (Tensor){type_make(dt, i == 8 ? 0 : 2, (int64_t[]){2, i == 9 ? 0 : 3}),
                               storage[i]};
        for (int k = 0; k < 6; k++)
            tensor_set_f(&v[i].tensor, k, dt == DT_BOOL ? k & 1 : k + 1);
    }
}

static void expect_arrays(const char *path, const NamedTensor *v, int n)
{
    Diag d = {0};
    DataFile *f = data_open(path, &d);
    ck_assert_msg(f != NULL, "%s", d.msg);
    ck_assert_int_eq(data_count(f), n);
    for (int i = 0; i < n; i++) {
        Tensor t;
        ck_assert_msg(data_get(f, v[i].name, &t, &d), "%s", d.msg);
        ck_assert(type_equal(&t.type, &v[i].tensor.type));
        ck_assert_mem_eq(t.data, v[i].tensor.data, (size_t)type_bytes(&t.type));
    }
    Tensor t;
    ck_assert(!data_get(f, "none", &t, &d));
    ck_assert_ptr_nonnull(strstr(d.msg, "no array 'none'; there are: "));
    data_close(f);
}

START_TEST(npz_round_trip)
{
    NamedTensor v[NARRAYS];
    FileMap a, b;
    Diag d = {0};
    make_arrays(v);
    ck_assert(npz_write("a.npz", NARRAYS, v, &d));
    ck_assert(npz_write("b.npz", NARRAYS, v, &d));
    expect_arrays("a.npz", v, NARRAYS);
    ck_assert(file_map(&a, "a.npz", &d) && file_map(&b, "b.npz", &d));
    ck_assert_uint_eq(a.size, b.size);
    ck_assert_mem_eq(a.data, b.data, a.size);
    file_unmap(&a);
    file_unmap(&b);
}
END_TEST

START_TEST(npz_failed_write_leaves_nothing)
{
    NamedTensor v[NARRAYS];
    Diag d = {0};
    make_arrays(v);
    ck_assert(!npz_write("/no/such/a.npz", NARRAYS, v, &d));
    ck_assert_str_eq(d.msg, "/no/such/a.npz: the folder it would lie in is not there");
}
END_TEST

/* Reads prefixes of the file, which must all be refused, and copies with three damaged bytes, which may be
 * read or refused; reads() checks that each error is one line. */
static void hostile(const char *path)
{
    FileMap m;
    Diag d = {0};
    ck_assert(file_map(&m, path, &d));
    uint8_t *copy = malloc(m.size);
    memcpy(copy, m.data, m.size);
    size_t size = m.size;
    file_unmap(&m);
    for (size_t n = 0; n < size; n += n < 512 ? 1 : 37) {
        write_bytes(path, copy, n);
        ck_assert_msg(!reads(path, &d), "%s of %zu bytes", path, n);
    }
    uint32_t seed = 1;
    for (int round = 0; round < 600; round++) {
        size_t at[3];
        uint8_t was[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            at[k] = (seed >> 8) % size;
            was[k] = copy[at[k]];
            copy[at[k]] = (uint8_t)(round % 3 == 0 ? 0xff : seed >> 3);
        }
        write_bytes(path, copy, size);
        reads(path, &d);
        for (int k = 3; k-- > 0;)
            copy[at[k]] = was[k];
    }
    free(copy);
}

START_TEST(npz_hostile)
{
    NamedTensor v[NARRAYS];
    Diag d = {0};
    make_arrays(v);
    ck_assert(npz_write("a.npz", NARRAYS, v, &d));
    hostile("a.npz");
}
END_TEST

static size_t put(uint8_t *p, uint64_t v, size_t bytes)
{
    memcpy(p, &v, bytes);
    return bytes;
}

/* Writes a zip with 32-bit records and one deflated entry, x.npy.  claimed: the uncompressed size in them. */
static void write_deflated(const char *path, const uint8_t *npy, size_t size, uint64_t claimed)
{
    uint8_t z[1024], out[2048];
    z_stream s = {.next_in = (uint8_t *)(uintptr_t)npy, .avail_in = (uInt)size, .next_out = z,
                  .avail_out = sizeof z};
    ck_assert_int_eq(deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 8, 0), Z_OK);
    ck_assert_int_eq(deflate(&s, Z_FINISH), Z_STREAM_END);
    deflateEnd(&s);
    size_t n = 0, central;
    for (int round = 0; round < 2; round++) { /* local header, directory */
        central = n;
        n += put(out + n, round ? 0x02014b50 : 0x04034b50, 4);
        n += round ? put(out + n, 20, 2) : 0;
        n += put(out + n, 20, 2) + put(out + n + 2, 0, 2) + put(out + n + 4, 8, 2);
        n += put(out + n, 0, 4);
        n += put(out + n, crc32(0, npy, (uInt)size), 4);
        n += put(out + n, s.total_out, 4);
        n += put(out + n, claimed, 4);
        n += put(out + n, 5, 2) + put(out + n + 2, 0, 2);
        n += round ? put(out + n, 0, 8) + put(out + n + 8, 0, 6) : 0;
        memcpy(out + n, "x.npy", 5);
        n += 5;
        if (round == 0) {
            memcpy(out + n, z, s.total_out);
            n += s.total_out;
        }
    }
    size_t end = n;
    n += put(out + n, 0x06054b50, 4) + put(out + n + 4, 0, 4);
    n += put(out + n, 1, 2) + put(out + n + 2, 1, 2);
    n += put(out + n, end - central, 4) + put(out + n + 4, central, 4) + put(out + n + 8, 0, 2);
    write_bytes(path, out, n);
}

/* Makes an .npy of version 1 from a header's text and data; returns its size in bytes. */
static size_t make_npy(uint8_t *out, const char *text, const void *data, size_t size)
{
    size_t n = strlen(text);
    memcpy(out, "\x93NUMPY\x01", 8);
    put(out + 8, n, 2);
    memcpy(out + 10, text, n);
    memcpy(out + 10 + n, data, size);
    return 10 + n + size;
}

START_TEST(npz_deflated)
{
    uint8_t npy[256];
    float x[3] = {1, 2, 3};
    size_t n = make_npy(npy, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", x,
                        sizeof x);
    write_deflated("a.npz", npy, n, n);
    NamedTensor v = {"x", {type_make(DT_F32, 1, (int64_t[]){3}), x}};
    expect_arrays("a.npz", &v, 1);
    write_deflated("a.npz", npy, n, n + 1);
    expect_error("a.npz", "a.npz: x: damaged compressed data");
    write_deflated("a.npz", npy, n, 0x7fffffff);
    expect_error("a.npz", "a.npz: x: impossible size");
    write_deflated("a.npz", npy, n, n);
    hostile("a.npz");
}
END_TEST

/* ---- npy ------------------------------------------------------------------------------- */

static void expect_npy(const char *text, const void *data, size_t size, const Type *type,
                       const double *want)
{
    uint8_t npy[512];
    Diag d = {0};
    Tensor t;
    size_t n = make_npy(npy, text, data, size);
    write_bytes("a.npy", npy, n);
    DataFile *f = data_open("a.npy", &d);
    double room[6];
    Type shape;
    Tensor part = {type_make(dtype_is_float(type->dt) ? DT_F64 : DT_I64, 1, (int64_t[]){6}), room};
    ck_assert(f && data_shape(f, 0, &shape, &d) && type_equal(&shape, type));
    for (int64_t i = 0; i < type_count(type); i++) { /* one element at a time, in reverse order */
        data_copy(f, 0, i, 1, &part, 5 - i);
        ck_assert_double_eq(tensor_f(&part, 5 - i), want[i]);
    }
    ck_assert(data_get(f, "a", &t, &d));
    ck_assert(type_equal(&t.type, type));
    for (int64_t i = 0; i < type_count(type); i++)
        ck_assert_double_eq(tensor_f(&t, i), want[i]);
    data_close(f);
}

START_TEST(npy_orders_and_types)
{
    int32_t fortran[6] = {1, 4, 2, 5, 3, 6};
    Type t = type_make(DT_I32, 2, (int64_t[]){2, 3});
    expect_npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", fortran, 24, &t,
               (double[]){1, 2, 3, 4, 5, 6});
    t = type_make(DT_I8, 1, (int64_t[]){2});
    expect_npy("{'shape': (2,), 'fortran_order': False, 'descr': '|i1'}", "\xff\x05", 2, &t,
               (double[]){-1, 5});
    t = type_make(DT_I32, 1, (int64_t[]){2});
    expect_npy("{'shape': (2,), 'fortran_order': False, 'descr': '<u2'}", "\xff\xff\1", 4, &t,
               (double[]){65535, 1});
    t = type_make(DT_BOOL, 1, (int64_t[]){2});
    expect_npy("{'shape': (2,), 'fortran_order': False, 'descr': '|b1'}", "\x02", 2, &t,
               (double[]){1, 0});
    t = type_scalar(DT_BF16);
    expect_npy("{'shape': (), 'fortran_order': False, 'descr': '<V2'}", "\xc0\x3f", 2, &t,
               (double[]){1.5});
    t = type_make(DT_F32, 1, (int64_t[]){2});
    expect_npy("{'shape': (2,), 'fortran_order': False, 'descr': '>f4'}", "\x3f\xc0\0\0\xc0\0\0\0", 8, &t,
               (double[]){1.5, -2});
    t = type_make(DT_I32, 2, (int64_t[]){2, 2});
    expect_npy("{'shape': (2, 2), 'fortran_order': True, 'descr': '>i2'}", "\0\1\0\2\xff\xfd\1\0", 8, &t,
               (double[]){1, -3, 2, 256});
}
END_TEST

START_TEST(npy_refused)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "'|O' is not read"},
        {"{'descr': '=f4', 'fortran_order': False, 'shape': (1,), }", "'=f4' is not read"},
        {"{'descr': '\n|f4', 'fortran_order': False, 'shape': (1,), }", "malformed"},
        {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "needs 8 bytes but there are 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'shape': (0,), }",
         "needs 0 bytes but there are 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999), }", "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
         "more than 8 dimensions"},
        {"{'descr': '<f4', 'shape': (1,), }", "malformed"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t npy[512];
        size_t n = make_npy(npy, bad[i].text, "abcd", 4);
        write_bytes("a.npy", npy, n);
        expect_error("a.npy", bad[i].error);
    }
}
END_TEST

/* ---- TensorProto, folders, text --------------------------------------------------------- */

static void expect_pb(const char *bytes, size_t size, const char *name, const Type *type,
                      const double *want)
{
    Diag d = {0};
    Tensor t;
    write_bytes("a.pb", bytes, size);
    DataFile *f = data_open("a.pb", &d);
    ck_assert_msg(f != NULL, "%s", d.msg);
    ck_assert(data_get(f, name, &t, &d) && data_find(f, "a") == 0);
    ck_assert(type_equal(&t.type, type));
    for (int64_t i = 0; i < type_count(type); i++)
        ck_assert_double_eq(tensor_f(&t, i), want[i]);
    data_close(f);
    hostile("a.pb");
}

START_TEST(tensorproto)
{
    /* The fields: two as dims, single or packed; type; name "x"; elements raw, packed or one by one. */
    static const char raw[] = "\x08\x02\x10\x01\x42\x01x\x4a\x08\0\0\x80\x3f\0\0\0\x40";
    static const char ints[] = "\x0a\x01\x02\x10\x07\x3a\x03\x96\x01\x05";
    static const char floats[] = "\x08\x02\x10\x01\x25\0\0\x80\x3f\x25\0\0\0\x40";
    Type t = type_make(DT_F32, 1, (int64_t[]){2});
    expect_pb(raw, sizeof raw - 1, "x", &t, (double[]){1, 2});
    expect_pb(floats, sizeof floats - 1, "a", &t, (double[]){1, 2});
    t.dt = DT_I64;
    expect_pb(ints, sizeof ints - 1, "a", &t, (double[]){150, 5});
    /* Three elements of int4, in raw_data and in int32_data; three of uint4. */
    static const char packed[] = "\x08\x03\x10\x16\x4a\x02\x71\x08";
    static const char fields[] = "\x08\x03\x10\x16\x2a\x02\x71\x08";
    static const char whole[] = "\x08\x03\x10\x15\x4a\x02\x71\x08";
    t = type_make(DT_I8, 1, (int64_t[]){3});
    expect_pb(packed, sizeof packed - 1, "a", &t, (double[]){1, 7, -8});
    expect_pb(fields, sizeof fields - 1, "a", &t, (double[]){1, 7, -8});
    t.dt = DT_U8;
    expect_pb(whole, sizeof whole - 1, "a", &t, (double[]){1, 7, 8});
}
END_TEST

START_TEST(fixtures)
{
    Diag d = {0};
    const char *path = shared_path("fixtures/torch-oracle/gpt_tiny_tied/oracle.npz");
    if (!path)
        return;
    ck_assert_msg(reads(path, &d), "%s", d.msg);
    path = shared_path("fixtures/models/super_resolution_10/test_data_set_0");
    DataFile *f = data_open(path, &d);
    ck_assert_msg(f && data_count(f) == 2 && data_find(f, "output_0") == 1, "%s", d.msg);
    data_close(f);
    expect_error("/", "no .pb or .npy files");
    expect_error("/no/such", "/no/such: No such file");
}
END_TEST

START_TEST(text_windows)
{
    Diag d = {0};
    int64_t ids[8] = {0};
    Tensor out = {type_make(DT_I64, 2, (int64_t[]){2, 4}), ids};
    write_bytes("a.txt", "h\xe9llo there", 11);
    DataFile *f = data_open("a.txt", &d);
    ck_assert(f && data_text_bytes(f) == 11);
    data_text_window(f, 0, 4, &out, 0);
    data_text_window(f, 7, 4, &out, 4);
    ck_assert_int_eq(ids[1], 0xe9);
    ck_assert_int_eq(ids[7], 'e');
    data_close(f);
    write_bytes("a.txt", "", 0);
    expect_error("a.txt", "file is empty");
}
END_TEST

/* ---- what an input may be ------------------------------------------------------------ */

/* A column for each of two tables; the other way to each is through axes that were made one. */
START_TEST(columns_have_ranges_of_their_own)
{
    static const char *const columns[] = {
        "  %ia: i64[2,1] = slice %idx {start=[0,0], step=[1,1], size=[2,1]}\n"
        "  %ja: i64[2] = reshape %ia {shape=[2]}\n"
        "  %t: i64[2,2] = transpose %idx {perm=[1,0]}\n"
        "  %ib: i64[1,2] = slice %t {start=[1,1], step=[1,-1], size=[1,2]}\n",
        /* the batch's rows one behind the other, every second element */
        "  %f: i64[4] = reshape %idx {shape=[4]}\n"
        "  %ja: i64[2] = slice %f {start=[2], step=[-2], size=[2]}\n"
        "  %t: i64[2,2] = transpose %idx {perm=[1,0]}\n"
        "  %u: i64[1,2,2] = reshape %t {shape=[1,2,2]}\n"
        "  %sb: i64[1,1,2] = slice %u {start=[0,1,0], step=[1,1,1], size=[1,1,2]}\n"
        "  %ib: i64[1,2] = reshape %sb {shape=[1,2]}\n",
        /* two copies of each, of which one is taken */
        "  %r: i64[2,2,1] = reshape %idx {shape=[2,2,1]}\n"
        "  %e: i64[3,2,2,2] = expand %r {shape=[3,2,2,2]}\n"
        "  %f: i64[3,4,2] = reshape %e {shape=[3,4,2]}\n"
        "  %sa: i64[1,2,1] = slice %f {start=[2,0,1], step=[1,2,1], size=[1,2,1]}\n"
        "  %ja: i64[2] = reshape %sa {shape=[2]}\n"
        "  %sb: i64[1,2,1] = slice %f {start=[1,1,0], step=[1,2,1], size=[1,2,1]}\n"
        "  %ib: i64[1,2] = reshape %sb {shape=[1,2]}\n",
    };
    static const struct {
        int64_t idx[8];
        const char *want; /* the error; empty: the data is accepted */
    } cases[] = {
        {{2, 8, -3, -9, 0, 3, 1, 4}, ""},
        {{2, 8, 0, 0, 0, 3, 3, 4}, "idx: element 6 is 3, outside [-3, 3)"},
        {{2, 8, 0, 9, 0, 3, 1, 4}, "idx: element 3 is 9, outside [-9, 9)"},
    };
    Graph g;
    Arena arena = {0};
    Diag d = {0};
    graph_init(&g, &arena, &d);
    const char *text = arena_printf(&arena,
                                    "graph {\n"
                                    "  input %%idx: i64[2,2]\n"
                                    "  param %%a: f32[3,4]\n"
                                    "  param %%b: f32[9,4]\n"
                                    "%s"
                                    "  %%ea: f32[2,4] = gather %%a, %%ja {axis=0}\n"
                                    "  %%eb: f32[1,2,4] = gather %%b, %%ib {axis=0}\n"
                                    "  %%s: f32[1,2,4] = add %%ea, %%eb\n"
                                    "  output %%s\n"
                                    "}\n",
                                    columns[_i]);
    ck_assert_msg(graph_parse(&g, text, &d) && graph_verify(&g, &d), "%s", d.msg);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        NamedTensor v = {"idx", {type_make(DT_I64, 2, (int64_t[]){4, 2}), (void *)cases[i].idx}};
        ck_assert(npz_write("idx.npz", 1, &v, &d));
        DataFile *data = data_open("idx.npz", &d);
        Feed *feed = feed_open(&g, &(StepInputs){0}, data, FEED_FILE, 0, &d);
        ck_assert_str_eq(d.msg, cases[i].want);
        ck_assert((feed != NULL) == !cases[i].want[0]);
        feed_close(feed);
        data_close(data);
        d = (Diag){0};
    }
    arena_free(&arena);
}
END_TEST

START_TEST(integers_fit_in_the_input)
{
    static const struct {
        const char *type;
        int64_t least, most;
    } cases[] = {{"i32", INT32_MIN, INT32_MAX}, {"i8", INT8_MIN, INT8_MAX}, {"u8", 0, UINT8_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t x[] = {cases[i].least - 1, cases[i].least, cases[i].most, cases[i].most + 1};
        Graph g;
        Arena arena = {0};
        Diag d = {0};
        graph_init(&g, &arena, &d);
        char text[100];
        snprintf(text, sizeof text, "graph {\n  input %%x: %s[]\n  %%y: %s[] = copy %%x\n  output %%y\n}\n",
                 cases[i].type, cases[i].type);
        ck_assert_msg(graph_parse(&g, text, &d), "%s", d.msg);
        for (int k = 0; k < 4; k++) {
            NamedTensor v = {"x", {type_scalar(DT_I64), &x[k]}};
            DataFile *data = data_memory(1, &v);
            Feed *feed = feed_open(&g, &(StepInputs){0}, data, FEED_FILE, 0, &d);
            ck_assert_int_eq(feed != NULL, k == 1 || k == 2);
            ck_assert(feed || strstr(d.msg, format("x: element 0 is %lld, which does not fit in %s",
                                                   (long long)x[k], cases[i].type)));
            feed_close(feed);
            data_close(data);
            d = (Diag){0};
        }
        arena_free(&arena);
    }
}
END_TEST

/* ---- initial values, safetensors ----------------------------------------------------------- */

START_TEST(init_rules)
{
    static float a[100000], b[100000];
    Diag d = {0};
    Init init;
    Tensor t = {type_make(DT_F32, 4, (int64_t[]){100, 40, 5, 5}), a}, u = {t.type, b};
    ck_assert(init_parse("kaiming", &init, &d));
    init_fill(&t, &init, "conv.weight", false, 7);
    init_fill(&u, &init, "conv.weight", false, 7);
    ck_assert_mem_eq(a, b, sizeof a);
    double sum = 0, square = 0;
    for (int i = 0; i < 100000; i++) {
        sum += (double)a[i];
        square += (double)a[i] * (double)a[i];
    }
    ck_assert_double_lt(fabs(sum / 100000), 5 * sqrt(2.0 / 1000 / 100000));
    ck_assert_double_lt(fabs(square / 100000 / (2.0 / 1000) - 1), 0.03);
    init_fill(&u, &init, "conv2.weight", false, 7);
    ck_assert(memcmp(a, b, sizeof a) != 0);
    ck_assert(init_parse("xavier", &init, &d));
    init_fill(&t, &init, "conv.weight", true, 7);
    double limit = sqrt(6.0 / (40 * 25 + 100 * 25));
    for (int i = 0; i < 100000; i++)
        ck_assert_double_le(fabs((double)a[i]), limit);
    Tensor row = {type_make(DT_F32, 1, (int64_t[]){2}), a};
    init_fill(&row, &init, "norm.weight", false, 7);
    ck_assert_double_eq((double)a[0], 1);
    init_fill(&row, &init, "norm.bias", false, 7);
    ck_assert_double_eq((double)a[1], 0);
    static const char *const bad[] = {"normal:", "normal:0", "normal:x", "normal:1x", "he"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Diag e = {0};
        ck_assert(!init_parse(bad[i], &init, &e) && strstr(e.msg, bad[i]));
    }
}
END_TEST

START_TEST(random_inputs)
{
    int64_t ids[1000];
    Tensor t = {type_make(DT_I64, 1, (int64_t[]){1000}), ids};
    random_fill(&t, "ids", 61, 3, 0);
    int64_t low = 99, high = -1;
    for (int i = 0; i < 1000; i++) {
        low = ids[i] < low ? ids[i] : low;
        high = ids[i] > high ? ids[i] : high;
    }
    ck_assert(low == 0 && high == 60);
    float either[64]; /* binary targets */
    Tensor targets = {type_make(DT_F32, 1, (int64_t[]){64}), either};
    random_fill(&targets, "target", 2, 3, 0);
    double sum = 0;
    for (int i = 0; i < 64; i++) {
        ck_assert(either[i] == 0 || either[i] == 1);
        sum += either[i];
    }
    ck_assert(sum > 16 && sum < 48);
    float all[9], part[4]; /* a part equals the same elements of the whole */
    Tensor whole = {type_make(DT_F32, 1, (int64_t[]){9}), all};
    Tensor later = {type_make(DT_F32, 1, (int64_t[]){4}), part};
    random_fill(&whole, "x", 0, 3, 0);
    for (int first = 0; first <= 5; first++) {
        random_fill(&later, "x", 0, 3, first);
        ck_assert_mem_eq(part, all + first, sizeof part);
    }
}
END_TEST

START_TEST(philox_is_random123)
{
    for (uint32_t i = 0; i < 100; i++) {
        philox4x32_ctr_t c = {{i, i * 77u, i * i, ~i}};
        philox4x32_key_t k = {{i * 5u, 1234567u ^ i}};
        philox4x32_ctr_t want = philox4x32_R(10, c, k);
        PhiloxWords got = philox4x32(c.v[0], c.v[1], c.v[2], c.v[3], k.v[0], k.v[1]);
        ck_assert_uint_eq(got.w0, want.v[0]);
        ck_assert_uint_eq(got.w3, want.v[3]);
    }
}
END_TEST

START_TEST(safetensors_bytes)
{
    uint16_t h[2] = {1, 2};
    float x[1] = {1};
    NamedTensor v[2] = {{"h\"", {type_make(DT_BF16, 1, (int64_t[]){2}), h}},
                        {"x", {type_scalar(DT_F32), x}}};
    Diag d = {0};
    FileMap m;
    ck_assert(safetensors_write("a.st", NULL, 2, v, &d));
    ck_assert(file_map(&m, "a.st", &d));
    static const char header[] =
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"h\\\"\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]}}";
    uint64_t len;
    memcpy(&len, m.data, 8);
    ck_assert_uint_eq(len % 8, 0);
    ck_assert_uint_eq(m.size, 8 + len + 8);
    ck_assert_mem_eq(m.data + 8, header, sizeof header - 1);
    ck_assert_mem_eq(m.data + 8 + len, "\0\0\x80\x3f\1\0\2\0", 8);
    file_unmap(&m);
}
END_TEST

/* Names that are not UTF-8 are escaped in the header, since JSON is UTF-8. */
START_TEST(safetensors_names)
{
    float x[1] = {1};
    NamedTensor v = {"\xff\n", {type_scalar(DT_F32), x}};
    Diag d = {0};
    FileMap m;
    ck_assert(safetensors_write("a.st", (const char *const[]){"of", "\xfe", NULL}, 1, &v, &d));
    ck_assert(file_map(&m, "a.st", &d));
    static const char header[] = "{\"__metadata__\":{\"of\":\"\\\\xfe\"},\"\\\\xff\\\\x0a\":{";
    ck_assert_mem_eq(m.data + 8, header, sizeof header - 1);
    file_unmap(&m);
}
END_TEST

/* A safetensors file is read back with all its arrays and its metadata. */
START_TEST(safetensors_round_trip)
{
    NamedTensor v[NARRAYS];
    Diag d = {0};
    make_arrays(v);
    ck_assert(safetensors_write("a.safetensors", (const char *const[]){"step", "7", "of", "\"x\"", NULL},
                                NARRAYS, v, &d));
    expect_arrays("a.safetensors", v, NARRAYS);
    DataFile *f = data_open("a.safetensors", &d);
    ck_assert_str_eq(data_meta(f, "step"), "7");
    ck_assert_str_eq(data_meta(f, "of"), "\"x\"");
    ck_assert_ptr_null(data_meta(f, "none"));
    data_close(f);
}
END_TEST

static void write_safetensors(const char *path, const char *header, size_t bytes)
{
    char file[512] = {0};
    uint64_t n = strlen(header);
    memcpy(file, &n, sizeof n);
    memcpy(file + sizeof n, header, n);
    write_bytes(path, file, sizeof n + n + bytes);
}

START_TEST(safetensors_hostile)
{
    static const struct {
        const char *header;
        size_t bytes;
        const char *says;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "too short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "1 bytes behind"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "too short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "not a tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "shape needs 12 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}", 8,
         "too large"},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "F8_E4M3"},
        {"{\"a\":[1]}", 0, "not a tensor"},
        {"{\"a\":{\"dtype\":\"F32\"", 0, "not a safetensors file"},
        {"[]", 0, "not a safetensors file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_safetensors("h.safetensors", cases[i].header, cases[i].bytes);
        expect_error("h.safetensors", cases[i].says);
    }
    write_bytes("h.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_error("h.safetensors", "not a safetensors file");
    write_bytes("h.safetensors", "1234567", 7);
    expect_error("h.safetensors", "not a safetensors file");
}
END_TEST

Suite *suite_data(void)
{
    Suite *s = suite_create("data");
    TCase *tc = tcase_create("files");
    tcase_add_checked_fixture(tc, make_folder, remove_clean_folder);
    tcase_add_test(tc, npz_round_trip);
    tcase_add_test(tc, npz_failed_write_leaves_nothing);
    tcase_add_test(tc, npz_hostile);
    tcase_add_test(tc, npz_deflated);
    tcase_add_test(tc, npy_orders_and_types);
    tcase_add_test(tc, npy_refused);
    tcase_add_test(tc, tensorproto);
    tcase_add_test(tc, fixtures);
    tcase_add_test(tc, text_windows);
    tcase_add_loop_test(tc, columns_have_ranges_of_their_own, 0, 3);
    tcase_add_test(tc, integers_fit_in_the_input);
    tcase_add_test(tc, safetensors_bytes);
    tcase_add_test(tc, safetensors_names);
    tcase_add_test(tc, safetensors_round_trip);
    tcase_add_test(tc, safetensors_hostile);
    suite_add_tcase(s, tc);
    tc = tcase_create("values");
    tcase_add_test(tc, init_rules);
    tcase_add_test(tc, random_inputs);
    tcase_add_test(tc, philox_is_random123);
    suite_add_tcase(s, tc);
    return s;
}

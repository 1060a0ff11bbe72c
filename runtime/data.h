/* data.h -- tensors in files: reading training data by name, writing results as .npz.
 *
 *   x.npz       arrays by name, stored or deflated, zip64; never pickles
 *   x.npy       one array, named after the file
 *   x.pb        one ONNX TensorProto, under its own name or the file's
 *   x.safetensors  tensors by name, and strings as metadata
 *   folder/     ONNX's test_data_set layout: every .pb and .npy in it (input_0.pb, ...)
 *   other       bytes as tokens: one u8 tensor, the data of a byte-level language model
 *
 * Elements become the nearest type of the IR: i1, i2, u2 -> i32; u4, u8 -> i64; ml_dtypes'
 * bfloat16 (an opaque two-byte type in numpy) -> bf16.  Files may be hostile: every size is
 * checked, and a bad one is one line "file: entry: reason". */
#ifndef CKC_DATA_H
#define CKC_DATA_H

#include "ir/ir.h"

typedef struct DataFile DataFile;

DataFile *data_open(const char *path, Diag *d); /* NULL: failed */
/* A DataFile of arrays in memory; names are copied, elements stay the caller's and must outlive it. */
typedef struct {
    const char *name;
    Tensor tensor;
} NamedTensor;
DataFile *data_memory(int n, const NamedTensor *v);
void data_close(DataFile *f);                   /* frees the tensors it gave out, too; NULL is fine */

uint64_t data_hash(const DataFile *f); /* hash of the bytes of all files */
int data_count(const DataFile *f);
const char *data_name(const DataFile *f, int k);
/* Index of an entry by its name, or by its file's name in a folder ("input_0"); -1: none. */
int data_find(const DataFile *f, const char *name);
/* Finds an entry as data_find() does, else by its place in a group: "input/NAME", or "input_2" (position). */
int data_find_in(DataFile *f, const char *group, const char *name, int position);
/* Gives entry k, decoded at its first use.  The data is read-only, need not be aligned, and lives until
 * data_close(). */
bool data_tensor(DataFile *f, int k, Tensor *t, Diag *d);
/* The type of entry k, without decoding its elements (u64 elements are, as they may not fit). */
bool data_shape(DataFile *f, int k, Type *t, Diag *d);
/* Copies elements [first, first + n) of an entry whose shape is known to out[at..at+n), converted: floats to
 * floats, integers to integers. */
void data_copy(const DataFile *f, int k, int64_t first, int64_t n, Tensor *out, int64_t at);
/* data_find + data_tensor; the message lists the names that there are. */
bool data_get(DataFile *f, const char *name, Tensor *t, Diag *d);

/* A metadata string of a safetensors file; NULL: there is none with that key. */
const char *data_meta(const DataFile *f, const char *key);

/* Offset in bytes, in the only file, of data that data_tensor() gave; -1: there are more files, or a copy. */
int64_t data_offset(const DataFile *f, const void *data);

/* Language-model text: its length in bytes, -1 if the file is not text. */
int64_t data_text_bytes(const DataFile *f);
/* Copies bytes [offset, offset + n) as token ids to out[at..at+n), of any integer type. */
void data_text_window(const DataFile *f, int64_t offset, int64_t n, Tensor *out, int64_t at);

/* Writes arrays to an .npz, atomically: uncompressed and aligned to 64 bytes in the file, the same file for
 * the same arrays.  bf16 is written as ml_dtypes does: <V2. */
bool npz_write(const char *path, int n, const NamedTensor *v, Diag *d);

#endif

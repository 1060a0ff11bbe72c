/* data.h -- tensors in files: reading training data by name, writing results as .npz.
 *
 *   x.npz       arrays by name, stored or deflated, zip64; never pickles
 *   x.npy       one array, named after the file
 *   x.pb        one ONNX TensorProto, under its own name or the file's
 *   x.safetensors  tensors by name, and strings about them
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
/* Arrays in memory instead of a file; names and elements are the caller's and last as long. */
typedef struct {
    const char *name;
    Tensor tensor;
} NamedTensor;
DataFile *data_memory(int n, const NamedTensor *v);
void data_close(DataFile *f);                   /* and every tensor it gave out; NULL: nothing */

uint64_t data_hash(const DataFile *f); /* of the bytes of all files */
int data_count(const DataFile *f);
const char *data_name(const DataFile *f, int k);
/* Index of an entry by its name, or by its file's name in a folder ("input_0"); -1: none. */
int data_find(const DataFile *f, const char *name);
/* Likewise, or in a group of entries: "input/NAME", or "input_2" by its position. */
int data_find_in(DataFile *f, const char *group, const char *name, int position);
/* Entry k, decoded at its first use.  The data is read-only, need not be aligned, and lives until
 * data_close(). */
bool data_tensor(DataFile *f, int k, Tensor *t, Diag *d);
/* Of entry k, whose elements are not decoded for it. */
bool data_shape(DataFile *f, int k, Type *t, Diag *d);
/* Elements [first, first + n) of an entry whose shape is known into out[at..at+n), converted; floats to
 * floats, integers to integers. */
void data_copy(const DataFile *f, int k, int64_t first, int64_t n, Tensor *out, int64_t at);
/* data_find + data_tensor; the message lists what there is. */
bool data_get(DataFile *f, const char *name, Tensor *t, Diag *d);

/* Of the strings in a safetensors file; NULL: not there. */
const char *data_meta(const DataFile *f, const char *key);

/* Where in the only file data lie that data_tensor() gave; -1: they do not lie there as they are. */
int64_t data_offset(const DataFile *f, const void *data);

/* Language-model text: its length in bytes, -1 if the file is not text. */
int64_t data_text_bytes(const DataFile *f);
/* Bytes [offset, offset + n) as token ids into out[at..at+n), any integer type. */
void data_text_window(const DataFile *f, int64_t offset, int64_t n, Tensor *out, int64_t at);

/* Write arrays to an .npz, atomically: stored, aligned to 64 bytes in the file, the same bytes
 * for the same arrays.  bf16 is written as ml_dtypes does: <V2. */
bool npz_write(const char *path, int n, const NamedTensor *v, Diag *d);

#endif

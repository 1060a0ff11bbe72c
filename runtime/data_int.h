/* data_int.h -- shared by the readers of data files: data.c, npy.c, npz.c, safetensors.c, tensorpb.c. */
#ifndef CKC_DATA_INT_H
#define CKC_DATA_INT_H

#include "data.h"
#include "ir/file.h"
#include "ir/names.h"
#include <jansson.h>

/* Element type in a file: kind 'f', 'i', 'u', 'b' (bool) or 'B' (bfloat16), and size in bytes. */
typedef struct {
    char kind;
    int size;
} Elem;

typedef struct {
    const char *name, *alias; /* in the file's arena; alias may be NULL */
    const char *where;        /* "file: entry", for messages */
    const uint8_t *bytes;     /* the entry in the mapped file */
    uint64_t stored, size;    /* its bytes in the file, and after inflating */
    uint32_t crc;
    bool deflated, has_crc;
    const uint8_t *raw; /* elements of type elem as in the file; set once tensor.type is known */
    Elem elem;          /* size 0: not known yet */
    bool decoded;       /* tensor.data is set */
    Tensor tensor;
} Entry;

struct DataFile {
    Arena arena;
    const char *path;
    Entry *entry;
    uint32_t n, cap;
    FileMap *map; /* every mapped file */
    uint32_t nmap, cmap;
    void **owned; /* decoded elements */
    uint32_t nowned, cowned;
    bool text;
    json_t *meta; /* metadata strings of a safetensors file; NULL: none */
    NameMap index;
};

Entry *data_add(DataFile *f, const char *name, size_t len, const FileMap *m);
/* Allocates memory that lives as long as the file; NULL and a message on failure. */
void *data_own(DataFile *f, const Entry *e, uint64_t bytes, Diag *d);

/* Sets e->tensor.data to elements of the file's type: in place if the IR has that type, else converted. */
bool data_elements(DataFile *f, Entry *e, Elem elem, const uint8_t *bytes, Diag *d);
/* Makes the type of rank dimensions and checks it: count * elem.size must be the `have` bytes there are. */
bool data_type(const Entry *e, Type *t, Elem elem, int rank, const uint64_t *dim, uint64_t have,
               Diag *d);

/* Parses the header of an .npy: sets the type of e, and where its elements lie. */
bool npy_locate(DataFile *f, Entry *e, const uint8_t *p, uint64_t size, Diag *d);
/* Writes the header of an .npy of this type, padded to a multiple of 64 bytes; returns its length. */
enum { NPY_HEADER_MAX = 384 };
size_t npy_header(char buf[NPY_HEADER_MAX], const Type *t);
bool npz_entries(DataFile *f, const FileMap *m, Diag *d);
bool npz_bytes(DataFile *f, const Entry *e, const uint8_t **p, Diag *d);
bool safetensors_entries(DataFile *f, const FileMap *m, Diag *d);
bool tensorpb_decode(DataFile *f, Entry *e, Diag *d);

#endif

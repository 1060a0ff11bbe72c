/* data_int.h -- what the readers of data files share (data.c, npy.c, npz.c, safetensors.c,
 * tensorpb.c). */
#ifndef CKC_DATA_INT_H
#define CKC_DATA_INT_H

#include "data.h"
#include "ir/file.h"
#include "ir/names.h"
#include <jansson.h>

/* Element type in a file: kind 'f', 'i', 'u', 'b' (bool) or 'B' (bfloat16), bytes. */
typedef struct {
    char kind;
    int size;
} Elem;

typedef struct {
    const char *name, *alias; /* arena of the file; alias may be NULL */
    const char *where;        /* "file: entry", for messages */
    const uint8_t *bytes;     /* as in the file */
    uint64_t stored, size;    /* bytes in the file; inflated */
    uint32_t crc;
    bool deflated, has_crc;
    const uint8_t *raw; /* elements as the file has them, of type elem, once tensor.type is known */
    Elem elem;          /* size 0: not known yet */
    bool decoded;       /* tensor has its elements */
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
    json_t *meta; /* of safetensors; NULL: none */
    NameMap index;
};

Entry *data_add(DataFile *f, const char *name, size_t len, const FileMap *m);
/* Memory that lives as long as the file; NULL and a message when there is none. */
void *data_own(DataFile *f, const Entry *e, uint64_t bytes, Diag *d);

/* Elements of a type the file has: in place where the IR has it, else converted. */
bool data_elements(DataFile *f, Entry *e, Elem elem, const uint8_t *bytes, Diag *d);
/* dims -> type with a checked count; bytes = count * size of elem must equal `have`. */
bool data_type(const Entry *e, Type *t, Elem elem, int rank, const uint64_t *dim, uint64_t have,
               Diag *d);

/* Where the elements of an .npy lie, and of what type they are. */
bool npy_locate(DataFile *f, Entry *e, const uint8_t *p, uint64_t size, Diag *d);
/* Header of an .npy for this type, padded to a multiple of 64 bytes; returns its length. */
enum { NPY_HEADER_MAX = 384 };
size_t npy_header(char buf[NPY_HEADER_MAX], const Type *t);
bool npz_entries(DataFile *f, const FileMap *m, Diag *d);
bool npz_bytes(DataFile *f, const Entry *e, const uint8_t **p, Diag *d);
bool safetensors_entries(DataFile *f, const FileMap *m, Diag *d);
bool tensorpb_decode(DataFile *f, Entry *e, Diag *d);

#endif

/* file.h -- whole files: read-only mappings and atomic replacement. */
#ifndef CKC_FILE_H
#define CKC_FILE_H

#include "ir.h"

typedef struct {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;         /* bytes */
} FileMap;

/* Map a regular file for reading.  The mapping is private and lives until file_unmap(). */
bool file_map(FileMap *m, const char *path, Diag *d);
void file_unmap(FileMap *m);

/* A file under construction beside its final place.  Errors are remembered: write freely and
 * look at the result of file_commit(), which syncs and renames, or removes what was written.
 * Readers see the old file or the new one, never a part. */
typedef struct {
    FILE *f;
    char *path, *temp; /* owned */
    int error;         /* first errno; 0: none */
    int64_t size;      /* bytes written */
} NewFile;

bool file_create(NewFile *n, const char *path, Diag *d);
void file_write(NewFile *n, const void *data, size_t bytes);
void file_pad(NewFile *n, int64_t alignment); /* zeros up to a multiple */
bool file_commit(NewFile *n, Diag *d);
void file_abandon(NewFile *n); /* after a failure elsewhere: nothing is left behind */

#endif

/* file.h -- whole files: read-only mappings, and changes that are complete or have not happened.
 *
 * A file under construction lies beside its place as PLACE.NUMBER.tmp, locked (flock) while its
 * process lives.  It is removed when the process ends: by itself, or, if it was killed, by the next
 * one that writes to the same place. */
#ifndef CKC_FILE_H
#define CKC_FILE_H

#include "ir.h"
#include <sys/types.h>

typedef struct {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;         /* bytes */
} FileMap;

/* Map a regular file for reading.  The mapping is private and lives until file_unmap(). */
bool file_map(FileMap *m, const char *path, Diag *d);
/* Open for reading as a stream: a file, a pipe such as <(...) or a terminal.  NULL: *why is the reason. */
FILE *file_open_text(const char *path, const char **why);
size_t bom_bytes(const char *text); /* of the byte order mark that some editors put first, 0: none */
enum { TEXT_MOST = 1 << 30 }; /* most bytes read from a stream */
bool file_map_fd(FileMap *m, int fd, const char *path, Diag *d); /* closes fd, an open file */
void file_unmap(FileMap *m);

bool has_suffix(const char *path, const char *suffix); /* such as ".onnx" */

/* ---- temp.c: temporary files and folders ------------------------------- */

typedef struct {
    char *path; /* owned; NULL: there is none */
    int lock;   /* a descriptor of it; -1: none */
    int slot;   /* in the list of temp_remove_all(); -1: not in it */
} Temp;

/* Make the file or the folder `prefix`NUMBER.tmp, after removing those with this prefix that no
 * process holds any more.  0, or an errno.  In a folder there is a file TEMP_MARK, which says that
 * all files and such folders in it may be removed; it holds the folder's name. */
int temp_file(Temp *t, const char *prefix);
int temp_folder(Temp *t, const char *prefix, mode_t mode);
void temp_remove(Temp *t); /* with all files in it */
void temp_forget(Temp *t); /* frees t: the file is in its place now, and stays */
void temp_hide(Temp *t);   /* takes it out of the list: its path belongs to another now */
void temp_show(Temp *t);
/* Remove all temporary files and folders of this process.  For abnormal ends: async-signal-safe. */
void temp_remove_all(void);
#define TEMP_MARK ".ckc-temporary"

/* ---- file.c: one file --------------------------------------------------- */

/* A file under construction.  Errors are remembered: write freely and look at the result of
 * file_commit(), which syncs and renames, or removes what was written.  Readers see the old file
 * or the new one, never a part.  A symbolic link is followed; a stream (a device, a pipe, what
 * this process prints to) is written directly. */
typedef struct {
    FILE *f;
    char *path;  /* name for messages; owned */
    char *place; /* path that it is renamed to, NULL: it stays; owned */
    Temp temp;
    int error;    /* first errno; 0: none */
    int64_t size; /* bytes written with file_write */
} NewFile;

bool file_create(NewFile *n, const char *path, Diag *d);
/* Report why no file or folder could be made at path (error: an errno); returns false.  The status is
 * EXIT_DEVICE where whoever named the path is not at fault. */
bool file_not_made(const char *path, int error, Diag *d);
void file_write(NewFile *n, const void *data, size_t bytes);
void file_pad(NewFile *n, int64_t alignment); /* writes zeros up to a multiple */
bool file_commit(NewFile *n, Diag *d);        /* d->status is EXIT_DEVICE on failure */
void file_abandon(NewFile *n); /* after a failure elsewhere: nothing is left behind */
/* Could a file be made there?  Tries by making one beside it, so that nothing changes. */
bool file_try(const char *path, Diag *d);
/* The path without symbolic links; the file need not exist, but its folder must, else NULL.  The caller frees
 * it. */
char *file_real_path(const char *path);
/* Is `path` a stream, or a folder?  Links are followed. */
bool file_is_stream(const char *path);
bool file_is_folder(const char *path);
/* Open a log to write bit by bit: a stream, or a file, which begins anew unless it `goes_on`.  NULL: errno
 * says why, EWOULDBLOCK: another process has it open as a log. */
FILE *file_open_log(const char *path, bool goes_on);

/* ---- folder.c: files of one folder that change together ------------------ */

/* The folder's name stands for the old files or for the new ones at every instant, also if the
 * process is killed, where the file system can exchange two names (RENAME_EXCHANGE; otherwise one
 * file is renamed after the other).  The folder itself stays, and what else is in it. */
typedef struct {
    char *path;              /* without symbolic links; owned */
    const char *const *name; /* names of all files that belong together, NULL behind the last */
    Temp temp;               /* the new files */
} NewFolder;

/* `path` need not exist; its parent must. */
bool folder_create(NewFolder *n, const char *path, const char *const *name, Diag *d);
bool folder_file(NewFolder *n, const char *name, NewFile *f, Diag *d);
/* After file_commit() of all files.  Names without a new file are removed from the folder. */
bool folder_commit(NewFolder *n, Diag *d);
void folder_abandon(NewFolder *n);
bool folder_try(const char *path, const char *const *name, Diag *d);

/* ---- calls; 0 or an errno ------------------------------------------------- */

int file_rename(const char *from, const char *to, unsigned flags); /* as renameat2() */
int file_stream_error(FILE *f); /* writes out the buffer; the error of any write so far */
int file_sync_folder(const char *path);
int file_sync_parent(const char *path);

/* For tests: called before every change that others can see; the errno it returns is what the
 * change fails with, 0: it happens.  NULL: no faults. */
extern int (*file_fault)(const char *call);

#endif

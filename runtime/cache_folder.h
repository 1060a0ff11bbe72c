/* cache_folder.h -- a folder of files that only this user can have written, each whole.
 *
 * What is kept between runs is executed (compiled kernels) or believed (measured costs).  A
 * folder is used if it is the user's own, nobody else can write in it, and on the way to it
 * stands nothing that another user could put elsewhere; a folder that users share (the
 * temporary one) holds one folder for each.  Every file ends in a hash of what is before
 * it, and takes its name when it is whole: a torn or altered one is as good as none. */
#ifndef CKC_CACHE_FOLDER_H
#define CKC_CACHE_FOLDER_H

#include "ir/file.h"
#include <limits.h>
#include <sys/stat.h>

typedef struct {
    char path[PATH_MAX]; /* without symbolic links */
    bool temporary;      /* removed when closed */
    Temp temp;           /* then */
} CacheFolder;

/* The folder given, NULL: the user's ($XDG_CACHE_HOME/ckc, ~/.cache/ckc, else one in the
 * temporary folder), created.  If it cannot be used, a fresh one that lasts as long as it
 * is open: then `why` says the reason, otherwise it is "".  d->status is EXIT_DEVICE on
 * failure, here and below. */
bool cache_folder_open(CacheFolder *c, const char *given, char why[PATH_MAX + 128], Diag *d);
void cache_folder_close(CacheFolder *c);

/* A folder for a moment inside it, until temp_remove(). */
bool cache_folder_scratch(const CacheFolder *c, Temp *t, Diag *d);

typedef enum { CACHE_FOUND, CACHE_ABSENT, CACHE_DAMAGED } CacheState;

/* Is the file there, ours and whole?  text: NULL, or its contents are left there,
 * malloc'ed, with a zero behind them. */
CacheState cache_file_check(const CacheFolder *c, const char *name, char **text);
bool cache_file_write(const CacheFolder *c, const char *name, const char *text, Diag *d);
/* While one process reads a file and writes what becomes of it, others wait, for at most a second.  -1, which
 * unlock takes: a folder of this process alone, one without locks, or one that somebody keeps locked. */
int cache_folder_lock(const CacheFolder *c);
void cache_folder_unlock(int lock);
/* In a folder for a moment: a new file; makes one private, with its hash behind it, and syncs. */
bool cache_file_put(const char *path, const void *data, size_t n, Diag *d);
bool cache_file_seal(const char *path, Diag *d);

#endif

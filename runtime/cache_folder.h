/* cache_folder.h -- a folder of files that only this user can have written, each complete.
 *
 * Files kept between runs are executed (compiled kernels) or trusted (measured costs).  A folder is used if
 * the user owns it, nobody else can write in it, and no other user can rename a folder on the path to it; in
 * a shared folder (the temporary one) each user has a folder of their own.  Every file ends in a hash of the
 * bytes before it and gets its name when it is complete: a torn or altered file counts as absent. */
#ifndef CKC_CACHE_FOLDER_H
#define CKC_CACHE_FOLDER_H

#include "ir/file.h"
#include <limits.h>
#include <sys/stat.h>

typedef struct {
    char path[PATH_MAX]; /* without symbolic links */
    bool temporary;      /* the folder is removed when closed */
    Temp temp;           /* the folder, if temporary */
} CacheFolder;

/* Opens, and creates if need be, the folder given; NULL: the user's ($XDG_CACHE_HOME/ckc, ~/.cache/ckc, else
 * one in the temporary folder).  If it cannot be used, opens a fresh folder that is removed when closed, and
 * `why` says the reason; otherwise `why` is "".  d->status is EXIT_DEVICE on failure, here and below. */
bool cache_folder_open(CacheFolder *c, const char *given, char why[PATH_MAX + 128], Diag *d);
void cache_folder_close(CacheFolder *c);

/* Makes a scratch folder inside it, to be removed with temp_remove(). */
bool cache_folder_scratch(const CacheFolder *c, Temp *t, Diag *d);

typedef enum { CACHE_FOUND, CACHE_ABSENT, CACHE_DAMAGED } CacheState;

/* Is the file there, ours and complete?  text: NULL, or receives its contents, malloc'ed and zero-terminated
 * (NULL unless CACHE_FOUND). */
CacheState cache_file_check(const CacheFolder *c, const char *name, char **text);
bool cache_file_write(const CacheFolder *c, const char *name, const char *text, Diag *d);
/* Locks the folder, so that one process at a time reads a file and writes a new version; waits for at most a
 * second.  Returns -1, which unlock takes, if there is no lock: the folder is temporary, its file system has
 * no locks, or another process keeps it locked. */
int cache_folder_lock(const CacheFolder *c);
void cache_folder_unlock(int lock);
/* For files in a scratch folder: put writes a new one; seal makes one private, appends its hash and syncs. */
bool cache_file_put(const char *path, const void *data, size_t n, Diag *d);
bool cache_file_seal(const char *path, Diag *d);

#endif

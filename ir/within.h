/* within.h -- opening a file that another file names, only if it lies in certain folders.
 *
 * Who wrote a model or a schedule must not decide which of the reader's files are read.
 * What counts is where a name leads to: symbolic links and ".." are followed before it is
 * compared, and what was compared is what is opened. */
#ifndef CKC_WITHIN_H
#define CKC_WITHIN_H

#include "file.h"

/* Opens a regular file and returns its descriptor; -1: *why says the reason, and *outside whether
 * it is that the file lies in none of the n folders. */
int open_within(const char *path, const char *const *folder, int n, const char **why,
                bool *outside);
/* The folder of a file: "." without a slash. */
const char *folder_of_path(Arena *a, const char *path);
/* A path as the folder of `file` sees it; perhaps the path itself. */
const char *path_beside(Arena *a, const char *file, const char *path);

#endif

/* within.c -- files inside certain folders.  The path is resolved, then walked again from
 * the folder on without following links: what was exchanged in between is refused. */
#include "within.h"
#include "mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Open the regular file p below the directory at, which is closed. */
static int open_beneath(int at, const char *p)
{
    struct stat st;
    for (;;) {
        char part[256];
        size_t n = strcspn(p, "/");
        bool last = !p[n];
        int next = -1;
        errno = ENAMETOOLONG;
        if (n < sizeof part) {
            memcpy(part, p, n);
            part[n] = 0;
            bool odd = last && fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode);
            errno = EINVAL;
            if (!odd) /* opening a device could do something */
                next = openat(at, part,
                              O_NOFOLLOW | O_CLOEXEC | (last ? O_RDONLY | O_NONBLOCK : O_PATH | O_DIRECTORY));
        }
        int error = errno;
        close(at);
        errno = error;
        if (next < 0 || last)
            return next;
        at = next;
        p += n + 1;
    }
}

/* The part of a path behind a folder, both without links; NULL: the path is not inside. */
static const char *rest_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    n -= n > 0 && folder[n - 1] == '/'; /* only "/" itself */
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

int open_within(const char *path, const char *const *folder, int n, const char **why, bool *outside)
{
    char *real = mem_realpath(path);
    int fd = -1;
    *why = strerror(errno);
    *outside = real != NULL;
    for (int i = 0; i < n && *outside; i++) {
        char *in = mem_realpath(folder[i]);
        const char *rest = in ? rest_below(real, in) : NULL;
        if (rest) {
            *outside = false;
            int at = open(in, O_PATH | O_DIRECTORY | O_CLOEXEC);
            fd = at < 0 ? -1 : open_beneath(at, rest);
            *why = errno == EINVAL ? "not a regular file" : strerror(errno);
        }
        free(in);
    }
    free(real);
    return fd;
}

const char *folder_of_path(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : ".";
}

const char *path_beside(Arena *a, const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    if (*path == '/' || !slash)
        return path;
    return arena_printf(a, "%.*s/%s", (int)(slash - file), file, path);
}

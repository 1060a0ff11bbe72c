/* file.c -- mapping a file to read it, and replacing a file atomically: write beside it, sync,
 * rename.  A crash or a full disk leaves the old file as it was. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_map(FileMap *m, const char *path, Diag *d)
{
    *m = (FileMap){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0)
        return fail(d, "%s: %s", path, strerror(errno));
    struct stat st;
    bool ok = fstat(fd, &st) == 0;
    if (ok && !S_ISREG(st.st_mode)) {
        ok = false;
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    }
    if (ok && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        ok = p != MAP_FAILED;
        if (ok)
            *m = (FileMap){p, (size_t)st.st_size};
    }
    int error = errno;
    close(fd);
    return ok || fail(d, "%s: %s", path, strerror(error));
}

void file_unmap(FileMap *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    *m = (FileMap){0};
}

bool file_create(NewFile *n, const char *path, Diag *d)
{
    *n = (NewFile){.path = strdup(path)};
    if (!n->path || asprintf(&n->temp, "%s.%ld.tmp", path, (long)getpid()) < 0) {
        free(n->path);
        *n = (NewFile){0};
        return fail(d, "%s: out of memory", path);
    }
    int fd = open(n->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    n->f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (n->f)
        return true;
    diag_set(d, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    file_abandon(n);
    return false;
}

void file_write(NewFile *n, const void *data, size_t bytes)
{
    if (n->error || bytes == 0)
        return;
    if (fwrite(data, 1, bytes, n->f) != bytes)
        n->error = errno ? errno : EIO;
    n->size += (int64_t)bytes;
}

void file_pad(NewFile *n, int64_t alignment)
{
    while (!n->error && n->size % alignment)
        file_write(n, "", 1);
}

bool file_commit(NewFile *n, Diag *d)
{
    if (!n->error && (fflush(n->f) || fsync(fileno(n->f))))
        n->error = errno;
    if (fclose(n->f) && !n->error)
        n->error = errno;
    n->f = NULL;
    if (!n->error && rename(n->temp, n->path))
        n->error = errno;
    bool ok = !n->error;
    if (!ok)
        diag_set(d, "%s: %s", n->path, strerror(n->error));
    else
        n->temp[0] = '\0'; /* it is the file now: nothing to remove */
    file_abandon(n);
    return ok;
}

void file_abandon(NewFile *n)
{
    if (n->f)
        fclose(n->f);
    if (n->temp && n->temp[0])
        unlink(n->temp);
    free(n->temp);
    free(n->path);
    *n = (NewFile){0};
}

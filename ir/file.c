/* file.c -- mapping a file to read it, and replacing a file atomically: write beside it, sync,
 * rename, sync the folder.  A crash or a full disk leaves the old file as it was. */
#include "file.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_map_fd(FileMap *m, int fd, const char *path, Diag *d)
{
    *m = (FileMap){0};
    struct stat st;
    bool ok = fstat(fd, &st) == 0;
    if (ok && !S_ISREG(st.st_mode)) {
        ok = false;
        errno = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
    }
    if (ok && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        ok = p != MAP_FAILED;
        if (ok)
            *m = (FileMap){p, (size_t)st.st_size};
    }
    int error = errno;
    close(fd);
    return ok || fail_status(d, error == ENOMEM ? EXIT_DEVICE : EXIT_BAD_INPUT, "%s: %s", path,
                             error == ENXIO ? "not a regular file" : strerror(error));
}

bool file_map(FileMap *m, const char *path, Diag *d)
{
    *m = (FileMap){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    return fd < 0 ? fail(d, "%s: %s", path, strerror(errno)) : file_map_fd(m, fd, path, d);
}

FILE *file_open_text(const char *path, const char **why)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    *why = strerror(errno);
    if (!f || (fstat(fileno(f), &st) == 0 && !S_ISDIR(st.st_mode) && !S_ISBLK(st.st_mode) &&
               (!S_ISCHR(st.st_mode) || isatty(fileno(f)))))
        return f;
    fclose(f);
    *why = S_ISDIR(st.st_mode) ? strerror(EISDIR) : "not a regular file";
    return NULL;
}

size_t bom_bytes(const char *text) { return strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; }

bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), k = strlen(suffix);
    return n >= k && memcmp(path + n - k, suffix, k) == 0;
}

void file_unmap(FileMap *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    *m = (FileMap){0};
}

/* ---- one file ------------------------------------------------------------------------------------ */

int (*file_fault)(const char *call);

int file_rename(const char *from, const char *to, unsigned flags)
{
    int fault = file_fault ? file_fault(flags ? "exchange" : "rename") : 0;
    if (fault)
        return fault;
    int failed = flags ? renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) : rename(from, to);
    return failed ? errno : 0;
}

bool file_not_made(const char *path, int error, Diag *d)
{
    bool full = error == ENOSPC || error == EDQUOT || error == EIO;
    return fail_status(d, full ? EXIT_DEVICE : EXIT_BAD_INPUT, "%s: %s", path,
                       error == ENOENT ? "the folder it would lie in is not there" : strerror(error));
}

int file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || (fsync(fd) != 0 && errno != EINVAL) ? errno : 0; /* not all file systems can */
    if (fd >= 0)
        close(fd);
    return error;
}

int file_sync_parent(const char *path)
{
    char *copy = mem_strdup(path);
    int error = file_sync_folder(dirname(copy));
    free(copy);
    return error;
}

/* The stream, stdout or stderr, with which this process prints to that file; NULL: neither. */
static FILE *own_stream(const struct stat *st)
{
    FILE *const own[] = {stdout, stderr};
    for (int i = 0; i < 2; i++) {
        struct stat s;
        if (fstat(fileno(own[i]), &s) == 0 && s.st_ino == st->st_ino && s.st_dev == st->st_dev)
            return own[i];
    }
    return NULL;
}

static bool is_stream(const struct stat *st)
{
    return !S_ISDIR(st->st_mode) && (!S_ISREG(st->st_mode) || own_stream(st));
}

char *file_real_path(const char *path)
{
    char *real = mem_realpath(path);
    if (real || errno != ENOENT)
        return real;
    char *copy = mem_strdup(path), *name = mem_strdup(path), *parent = mem_realpath(dirname(copy));
    if (parent)
        real = mem_printf("%s/%s", strcmp(parent, "/") ? parent : "", basename(name));
    MEM_FREE(parent, name, copy);
    return real;
}

bool file_is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && is_stream(&st);
}

bool file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Opens a stream for writing.  A duplicate of this process's own goes on behind what was printed. */
static int open_stream(const char *path, const struct stat *st)
{
    FILE *own = own_stream(st);
    if (!own)
        return open(path, O_WRONLY | O_CLOEXEC);
    fflush(own);
    return fcntl(fileno(own), F_DUPFD_CLOEXEC, 0);
}

FILE *file_open_log(const char *path, bool goes_on)
{
    struct stat st;
    bool stream = stat(path, &st) == 0 && is_stream(&st);
    int fd = stream ? open_stream(path, &st)
                    : open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (goes_on ? O_APPEND : 0), 0666);
    bool taken = fd >= 0 && !stream && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    bool begun = fd >= 0 && !taken && (stream || goes_on || ftruncate(fd, 0) == 0 || errno == EINVAL);
    FILE *f = begun ? fdopen(fd, "w") : NULL;
    int error = taken ? EWOULDBLOCK : errno;
    if (fd >= 0 && !f)
        close(fd);
    errno = error;
    return f;
}

/* Makes the temporary file beside a regular file, or beside the place of a new one. */
static int create_beside(NewFile *n)
{
    n->place = mem_realpath(n->path);
    if (!n->place)
        n->place = mem_strdup(n->path);
    char *prefix = mem_printf("%s.", n->place);
    int error = temp_file(&n->temp, prefix);
    free(prefix);
    return error;
}

static int create(NewFile *n)
{
    struct stat st;
    bool exists = stat(n->path, &st) == 0;
    if (!exists && errno != ENOENT)
        return errno;
    if (exists && S_ISDIR(st.st_mode))
        return EISDIR;
    bool stream = exists && is_stream(&st);
    int error = stream ? 0 : create_beside(n);
    if (error)
        return error;
    int fd = stream ? open_stream(n->path, &st) : fcntl(n->temp.lock, F_DUPFD_CLOEXEC, 0);
    n->f = fd < 0 ? NULL : fdopen(fd, "wb");
    error = n->f ? 0 : errno;
    if (error && fd >= 0)
        close(fd);
    return error;
}

bool file_create(NewFile *n, const char *path, Diag *d)
{
    *n = (NewFile){.path = mem_strdup(path), .temp = {NULL, -1, -1}};
    int error = create(n);
    if (!error)
        return true;
    file_abandon(n);
    return file_not_made(path, error, d);
}

bool file_try(const char *path, Diag *d)
{
    NewFile n;
    if (file_is_stream(path)) /* who reads it would notice that it is opened */
        return access(path, W_OK) == 0 || fail(d, "%s: %s", path, strerror(errno));
    TRY(file_create(&n, path, d));
    file_abandon(&n);
    return true;
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

int file_stream_error(FILE *f)
{
    int error = fflush(f) ? errno : 0;
    if (ferror(f) && !error) /* its errno is lost: a further write fails, too */
        error = write(fileno(f), "\n", 1) < 0 ? errno : EIO;
    return error;
}

/* Writes everything out, syncs it if it is a file on a disk, and closes it; 0 or an errno. */
static int finish(NewFile *n)
{
    int error = n->error;
    if (!error)
        error = file_stream_error(n->f);
    if (!error && n->temp.path && fsync(fileno(n->f)) != 0)
        error = errno;
    if (fclose(n->f) != 0 && !error)
        error = errno;
    n->f = NULL;
    return error;
}

bool file_commit(NewFile *n, Diag *d)
{
    int error = finish(n);
    if (!error && n->place)
        error = file_rename(n->temp.path, n->place, 0);
    if (!error)
        temp_forget(&n->temp);
    if (!error && n->place)
        error = file_sync_parent(n->place);
    if (error)
        fail_status(d, EXIT_DEVICE, "%s: %s", n->path, strerror(error));
    file_abandon(n);
    return !error;
}

void file_abandon(NewFile *n)
{
    if (n->f)
        fclose(n->f);
    if (n->path)
        temp_remove(&n->temp);
    free(n->place);
    free(n->path);
    *n = (NewFile){.temp = {NULL, -1, -1}};
}

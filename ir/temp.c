/* temp.c -- temporary files and folders that do not stay behind: a lock on each tells those of
 * processes that live from those of the dead, and a list tells an abnormal end what to remove. */
#include "file.h"
#include "mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the list: fixed memory, so that a signal handler can read it at any moment --------------- */

enum { NSLOTS = 64, FREE = 0, CLAIMED, USED };

static struct {
    atomic_int state;
    char path[PATH_MAX];
} slots[NSLOTS];

/* Enters a path in the list.  -1: no room; after an abnormal end the next process removes the file. */
static int slot_enter(const char *path)
{
    if (strlen(path) >= PATH_MAX)
        return -1;
    for (int i = 0; i < NSLOTS; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &expected, CLAIMED))
            continue;
        strcpy(slots[i].path, path);
        atomic_store(&slots[i].state, USED);
        return i;
    }
    return -1;
}

static void slot_leave(int slot)
{
    if (slot >= 0)
        atomic_store(&slots[slot].state, FREE);
}

/* ---- removing ------------------------------------------------------------------------------------ */

static void remove_at(int at, const char *path);

static void remove_entries(int fd)
{
    _Alignas(struct dirent64) char buffer[4096];
    for (ssize_t got; (got = getdents64(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t k = 0; k < got;) {
            const struct dirent64 *e = (const void *)(buffer + k);
            if (strcmp(e->d_name, TEMP_MARK) != 0 && strcmp(e->d_name, ".") != 0 &&
                strcmp(e->d_name, "..") != 0)
                remove_at(fd, e->d_name);
            k += e->d_reclen;
        }
}

/* Removes a file, or a temporary folder with all files in it; async-signal-safe. */
static void remove_at(int at, const char *path)
{
    if (unlinkat(at, path, 0) == 0 || errno != EISDIR)
        return;
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool marked = fd >= 0 && faccessat(fd, TEMP_MARK, F_OK, 0) == 0;
    if (marked) {
        remove_entries(fd);
        unlinkat(fd, TEMP_MARK, 0);
    }
    if (unlinkat(at, path, AT_REMOVEDIR) != 0 && marked) /* so that the next process removes it */
        close(openat(fd, TEMP_MARK, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (fd >= 0)
        close(fd);
}

static void remove_path(const char *path) { remove_at(AT_FDCWD, path); }

void temp_remove_all(void)
{
    int error = errno;
    for (int i = NSLOTS; i-- > 0;) /* files before the folder that they are in */
        if (atomic_load(&slots[i].state) == USED)
            remove_path(slots[i].path);
    errno = error;
}

/* Is it `base`, digits, ".tmp"? */
static bool temp_name(const char *name, const char *base)
{
    size_t n = strlen(base);
    if (strncmp(name, base, n) != 0 || !isdigit((unsigned char)name[n]))
        return false;
    return strcmp(name + n + strspn(name + n, "0123456789"), ".tmp") == 0;
}

/* Removes a file of this user that nobody holds: its process is gone. */
static void remove_stale(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_path(path);
    close(fd);
}

static void sweep(const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *base = slash ? slash + 1 : prefix;
    char folder[PATH_MAX], path[PATH_MAX];
    int n = slash ? (int)(slash - prefix) + 1 : 2;
    if (snprintf(folder, sizeof folder, "%.*s", n, slash ? prefix : "./") >= PATH_MAX)
        return;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (temp_name(e->d_name, base) && snprintf(path, sizeof path, "%s%s", folder, e->d_name) < PATH_MAX)
            remove_stale(path);
    if (d)
        closedir(d);
}

/* ---- making ---------------------------------------------------------------------------------------- */

/* Locks a file or folder just made; false: another process that took it for stale has removed it. */
static bool hold(int fd, const char *path)
{
    struct stat mine, there;
    flock(fd, LOCK_SH); /* where there are no locks, nothing is taken for stale either */
    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

static int open_file(const char *path, mode_t mode)
{
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

static int open_folder(const char *path, mode_t mode)
{
    if (mkdir(path, mode) != 0)
        return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        errno = EEXIST; /* it was taken for stale: try the next number */
    return fd;
}

static bool mark(const Temp *t)
{
    const char *slash = strrchr(t->path, '/'), *name = slash ? slash + 1 : t->path;
    int fd = openat(t->lock, TEMP_MARK, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && write(fd, name, strlen(name)) == (ssize_t)strlen(name);
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    return ok;
}

static int make(Temp *t, const char *prefix, mode_t mode, int (*open_new)(const char *, mode_t))
{
    *t = (Temp){NULL, -1, -1};
    sweep(prefix);
    for (long number = (long)getpid();; number++) {
        t->path = mem_printf("%s%ld.tmp", prefix, number);
        t->lock = open_new(t->path, mode);
        int error = t->lock < 0 ? errno : 0;
        if (!error && hold(t->lock, t->path)) {
            t->slot = slot_enter(t->path);
            return 0;
        }
        temp_forget(t);
        if (error && error != EEXIST) /* that one is of a process in a namespace of its own */
            return error;
    }
}

int temp_file(Temp *t, const char *prefix) { return make(t, prefix, 0666, open_file); }

int temp_folder(Temp *t, const char *prefix, mode_t mode)
{
    int error = make(t, prefix, mode, open_folder);
    if (error || mark(t))
        return error;
    error = errno ? errno : EIO;
    temp_remove(t);
    return error;
}

void temp_forget(Temp *t)
{
    temp_hide(t);
    if (t->lock >= 0)
        close(t->lock);
    free(t->path);
    *t = (Temp){NULL, -1, -1};
}

void temp_hide(Temp *t)
{
    slot_leave(t->slot);
    t->slot = -1;
}

void temp_show(Temp *t)
{
    if (t->path)
        t->slot = slot_enter(t->path);
}

void temp_remove(Temp *t)
{
    if (t->path)
        remove_path(t->path);
    temp_forget(t);
}

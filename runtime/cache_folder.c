/* cache_folder.c -- finds a folder that can be trusted, and keeps files that are complete or absent.
 *
 * The path to a folder is checked from the root on, as sshd does with ~/.ssh: nobody but the user and root
 * may be able to rename a part of it.  Then the path keeps its meaning, so that a file can be named by it
 * between a check and the use of the file. */
#include "ir/mem.h"
#include "cache_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- whom we trust ---------------------------------------------------------------------- */

/* Is the owner the user, root, or the owner of "/" (which is root as a user namespace shows it)? */
static bool trusted_owner(uid_t owner)
{
    struct stat root;
    return owner == geteuid() || owner == 0 || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* Can somebody else rename our folders in this one?  The user's own group counts as the user. */
static bool may_be_moved(const struct stat *st)
{
    bool others = st->st_mode & S_IWOTH || (st->st_mode & S_IWGRP && st->st_gid != getegid());
    return !trusted_owner(st->st_uid) || (others && !(st->st_mode & S_ISVTX));
}

static bool ours_alone(const struct stat *st)
{
    return st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* ---- the way to a folder ---------------------------------------------------------------- */

/* Opens the folder `name` in the folder `at`, but not a link, and closes `at`.  -1: errno says why. */
static int step_down(int at, const char *name, struct stat *st)
{
    int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    close(at);
    if (next >= 0 && fstat(next, st) == 0)
        return next;
    if (next >= 0)
        close(next);
    errno = next < 0 ? error : errno;
    return -1;
}

/* Opens a path that has no links; -1 on failure, with EPERM if somebody could exchange a part of it. */
static int walk(const char *path, struct stat *st)
{
    char part[NAME_MAX + 1];
    int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || fstat(at, st) != 0)
        return at;
    for (const char *s = path; at >= 0 && *s;) {
        size_t n = strcspn(++s, "/");
        if (n == 0)
            break;
        if (n > NAME_MAX || may_be_moved(st)) {
            close(at);
            errno = n > NAME_MAX ? ENAMETOOLONG : EPERM;
            return -1;
        }
        memcpy(part, s, n);
        part[n] = '\0';
        at = step_down(at, part, st);
        s += n;
    }
    return at;
}

static bool make_dirs(char *path)
{
    for (char *s = path + (*path != '\0');; s++) {
        bool end = *s == '\0';
        if (*s != '/' && !end)
            continue;
        *s = '\0';
        bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        if (end || !ok)
            return ok;
        *s = '/';
    }
}

static int make_scratch(const CacheFolder *c, Temp *t)
{
    char prefix[PATH_MAX + 8];
    snprintf(prefix, sizeof prefix, "%s/tmp-", c->path);
    return temp_folder(t, prefix, 0700);
}

/* Can a scratch folder be made in it?  The file system may be read-only or full. */
static bool is_writable(const CacheFolder *c)
{
    Temp t;
    errno = make_scratch(c, &t);
    if (errno)
        return false;
    temp_remove(&t);
    return true;
}

/* Uses the folder itself or, if others can write in it, a folder in it for this user. */
static bool use_folder(CacheFolder *c, const char *path)
{
    struct stat st;
    char own[32] = "";
    int at = walk(path, &st);
    if (at >= 0 && !ours_alone(&st)) {
        snprintf(own, sizeof own, "/ckc-%lu", (unsigned long)geteuid());
        if (may_be_moved(&st)) {
            close(at);
            errno = EPERM;
            return false;
        }
        if (mkdirat(at, own + 1, 0700) != 0 && errno != EEXIST) {
            close(at);
            return false;
        }
        at = step_down(at, own + 1, &st);
    }
    if (at < 0)
        return false;
    close(at);
    errno = ours_alone(&st) ? ENAMETOOLONG : EPERM;
    return ours_alone(&st) && snprintf(c->path, sizeof c->path, "%s%s", path, own) < PATH_MAX &&
           is_writable(c);
}

/* $TMPDIR if nobody can exchange what we put there, else "/tmp". */
static const char *temporary_folder(void)
{
    struct stat st;
    const char *t = getenv("TMPDIR");
    char *real = t && t[0] == '/' ? mem_realpath(t) : NULL;
    int at = real ? walk(real, &st) : -1;
    free(real);
    if (at >= 0)
        close(at);
    return at >= 0 && !may_be_moved(&st) ? t : "/tmp";
}

static bool wanted_folder(const char *given, char out[PATH_MAX])
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (given)
        n = snprintf(out, PATH_MAX, "%s", given);
    else if (xdg && xdg[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/ckc", xdg);
    else if (home && home[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/.cache/ckc", home);
    else
        n = snprintf(out, PATH_MAX, "%s/ckc-%lu", temporary_folder(), (unsigned long)geteuid());
    errno = ENAMETOOLONG;
    return n < PATH_MAX;
}

bool cache_folder_open(CacheFolder *c, const char *given, char why[PATH_MAX + 128], Diag *d)
{
    char want[PATH_MAX];
    *c = (CacheFolder){.temporary = false};
    *why = '\0';
    char *real = wanted_folder(given, want) && make_dirs(want) ? mem_realpath(want) : NULL;
    bool ok = real && use_folder(c, real);
    int error = errno;
    free(real);
    if (ok)
        return true;
    snprintf(why, PATH_MAX + 128, "%s: %s", want,
             error == EPERM ? "other users can put files there" : strerror(error));
    snprintf(want, sizeof want, "%s/ckc-", temporary_folder());
    error = temp_folder(&c->temp, want, 0700);
    c->temporary = !error && snprintf(c->path, sizeof c->path, "%s", c->temp.path) < PATH_MAX;
    return c->temporary || fail_status(d, EXIT_DEVICE, "no folder for compiled kernels: %s; nor in %s: %s",
                                       why, temporary_folder(), strerror(error));
}

void cache_folder_close(CacheFolder *c)
{
    if (c->temporary)
        temp_remove(&c->temp);
    *c = (CacheFolder){.temporary = false};
}

bool cache_folder_scratch(const CacheFolder *c, Temp *t, Diag *d)
{
    int error = make_scratch(c, t);
    return !error || fail_status(d, EXIT_DEVICE, "cannot write in %s: %s", c->path, strerror(error));
}

/* ---- files ------------------------------------------------------------- */

enum { SEAL = 37 }; /* "ckc ", 32 digits, end of line */

static void seal_of(const char *data, size_t n, char seal[SEAL + 1])
{
    XXH128_hash_t h = XXH3_128bits(data, n);
    snprintf(seal, SEAL + 1, "ckc %016" PRIx64 "%016" PRIx64 "\n", (uint64_t)h.high64, (uint64_t)h.low64);
}

/* The contents of a regular file, malloc'ed and zero-terminated; NULL: it cannot be read. */
static char *read_all(int fd, const struct stat *st)
{
    size_t size = (size_t)st->st_size, n = 0;
    char *text = mem_new(size + 1, 1);
    ssize_t got = 1;
    while (n < size && (got = read(fd, text + n, size - n)) > 0)
        n += (size_t)got;
    if (n == size) {
        text[n] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

/* The contents of a file without their seal; NULL: the file is not ours or not complete. */
static char *read_sealed(int fd)
{
    struct stat st;
    char seal[SEAL + 1];
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !ours_alone(&st) || st.st_size < SEAL)
        return NULL;
    char *text = read_all(fd, &st);
    size_t n = (size_t)st.st_size - SEAL;
    if (text)
        seal_of(text, n, seal);
    if (text && memcmp(text + n, seal, SEAL) == 0) {
        text[n] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

static bool file_path(const CacheFolder *c, const char *name, char path[PATH_MAX])
{
    errno = ENAMETOOLONG;
    return snprintf(path, PATH_MAX, "%s/%s", c->path, name) < PATH_MAX;
}

static int open_file(const CacheFolder *c, const char *name)
{
    char path[PATH_MAX];
    bool fits = file_path(c, name, path);
    return fits ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
}

CacheState cache_file_check(const CacheFolder *c, const char *name, char **text)
{
    int fd = open_file(c, name);
    if (fd < 0)
        return errno == ENOENT ? CACHE_ABSENT : CACHE_DAMAGED;
    char *all = read_sealed(fd);
    close(fd);
    if (text)
        *text = all;
    else
        free(all);
    return all ? CACHE_FOUND : CACHE_DAMAGED;
}

static bool write_seal(int fd)
{
    struct stat st;
    char seal[SEAL + 1], *text = fstat(fd, &st) == 0 ? read_all(fd, &st) : NULL;
    if (!text)
        return false;
    seal_of(text, (size_t)st.st_size, seal);
    free(text);
    return fchmod(fd, 0600) == 0 && write(fd, seal, SEAL) == SEAL && fsync(fd) == 0;
}

bool cache_file_seal(const char *path, Diag *d)
{
    int fd = open(path, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0 && write_seal(fd);
    int error = errno;
    if (fd >= 0)
        close(fd);
    return ok || fail_status(d, EXIT_DEVICE, "cannot write %s: %s", path, strerror(error));
}

bool cache_file_put(const char *path, const void *data, size_t n, Diag *d)
{
    FILE *f = fopen(path, "wx");
    bool ok = f && fwrite(data, 1, n, f) == n;
    int error = errno;
    if (f && fclose(f) != 0 && ok) {
        ok = false;
        error = errno;
    }
    return ok || fail_status(d, EXIT_DEVICE, "cannot write %s: %s", path, strerror(error));
}

bool cache_file_write(const CacheFolder *c, const char *name, const char *text, Diag *d)
{
    char from[PATH_MAX + 32], to[PATH_MAX];
    Temp dir;
    TRY(cache_folder_scratch(c, &dir, d));
    snprintf(from, sizeof from, "%s/file", dir.path);
    bool ok = cache_file_put(from, text, strlen(text), d) && cache_file_seal(from, d);
    if (ok && (!file_path(c, name, to) || rename(from, to) != 0))
        ok = fail_status(d, EXIT_DEVICE, "cannot write %s/%s: %s", c->path, name, strerror(errno));
    temp_remove(&dir);
    return ok;
}

/* A temporary folder belongs to this process alone and needs no lock. */
int cache_folder_lock(const CacheFolder *c)
{
    enum { TRIES = 100 };
    const struct timespec pause = {.tv_nsec = 10000000};
    int fd = c->temporary ? -1 : open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (i == TRIES || errno != EWOULDBLOCK) {
            close(fd);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return fd;
}

void cache_folder_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

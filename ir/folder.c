/* folder.c -- files of one folder that change together.
 *
 * New files are written in a temporary folder beside it.  To change, the two folders exchange their
 * names, which is one step for everybody who looks; the folder of the user, now aside, receives the
 * new files under its files' names; then it takes its place again.  Meanwhile the temporary folder
 * stands in for it, with links to what else is in it.  A process killed in between leaves the mark
 * of a temporary folder in the place, and the next one brings the user's folder back. */
#include "file.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef char Path[PATH_MAX];

static int join(Path out, const char *folder, const char *name, const char *suffix)
{
    int n = snprintf(out, PATH_MAX, "%s/%s%s", folder, name, suffix);
    return n < PATH_MAX ? 0 : ENAMETOOLONG;
}

static bool has(const char *folder, const char *name)
{
    Path path;
    return join(path, folder, name, "") == 0 && access(path, F_OK) == 0;
}

/* ---- one at a time ----------------------------------------------------------------------------- */

/* Lock the folder that is at `path`, also if another takes the place meanwhile.  -1: there is none. */
static int lock_folder(const char *path)
{
    for (;;) {
        struct stat mine, there;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return -1;
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
            ;
        if (fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

/* ---- moving files --------------------------------------------------------------------------------- */

#define ARRIVED ".0.tmp" /* behind a name: the new file, before it takes its place */

static int make_link(const char *from, const char *to)
{
    int fault = file_fault ? file_fault("link") : 0;
    if (fault)
        return fault;
    return link(from, to) ? errno : 0;
}

static void send_back(const char *folder, const char *const *name)
{
    Path new;
    for (; *name; name++)
        if (join(new, folder, *name, ARRIVED) == 0)
            unlink(new);
}

/* Gives the new files temporary names in the folder that they are for; *linked: these are links, and
 * all files are still where they were, too. */
static int bring(const char *from, const char *to, const char *const *name, bool *linked)
{
    Path old, new;
    send_back(to, name);
    *linked = true;
    for (; *name; name++) {
        if (join(old, from, *name, "") || join(new, to, *name, ARRIVED))
            return ENAMETOOLONG;
        if (!has(from, *name))
            continue;
        int error = make_link(old, new);
        if (error) { /* this file system has no links */
            *linked = false;
            error = file_rename(old, new, 0);
        }
        if (error)
            return error;
    }
    return 0;
}

/* Moves the files of bring() to their places, and removes the files that have no new one. */
static int install(const char *folder, const char *const *name)
{
    Path new, place;
    for (; *name; name++) {
        if (join(new, folder, *name, ARRIVED) || join(place, folder, *name, ""))
            return ENAMETOOLONG;
        int error = file_rename(new, place, 0);
        if (error == ENOENT)
            error = unlink(place) == 0 || errno == ENOENT ? 0 : errno;
        if (error)
            return error;
    }
    return 0;
}

static bool listed(const char *const *names, const char *name)
{
    for (; *names; names++) {
        size_t n = strlen(*names);
        if (strncmp(name, *names, n) == 0 && (!name[n] || strcmp(name + n, ARRIVED) == 0))
            return true;
    }
    return false;
}

/* Links the files of `from` that are not among names into `to`; folders cannot be linked. */
static void link_others(const char *from, const char *to, const char *const *names)
{
    DIR *d = opendir(from);
    Path old, new;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (!listed(names, e->d_name) && !join(old, from, e->d_name, "") &&
            !join(new, to, e->d_name, "") && link(old, new) != 0)
            continue; /* absent for a moment */
    if (d)
        closedir(d);
}

/* ---- after a kill ------------------------------------------------------------------------------ */

/* The path of the user's folder, if a temporary one stands in its place; false: none does. */
static bool read_mark(const char *folder, Path aside)
{
    Path path, parent;
    char name[NAME_MAX + 1] = "";
    int fd = join(path, folder, TEMP_MARK, "") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, name, sizeof name - 1);
    close(fd);
    snprintf(parent, sizeof parent, "%s", folder);
    char *slash = strrchr(parent, '/');
    if (n <= 0 || strchr(name, '/') || !slash || strncmp(name, slash + 1, strlen(slash + 1)) != 0)
        return false;
    *slash = 0;
    return join(aside, parent, name, "") == 0;
}

static void unmark(const char *folder)
{
    Path mark;
    if (join(mark, folder, TEMP_MARK, "") == 0)
        unlink(mark);
}

/* Puts the user's folder back in its place, if a temporary one stands there.  That must be locked. */
static int recover(const char *folder, const char *const *names)
{
    Path aside;
    bool linked;
    if (!read_mark(folder, aside) || !has(aside, ".") || has(aside, TEMP_MARK)) {
        unmark(folder);
        return 0;
    }
    int error = bring(folder, aside, names, &linked);
    if (!error)
        error = install(aside, names);
    return error ? error : file_rename(aside, folder, RENAME_EXCHANGE);
}

/* ---- the change ----------------------------------------------------------------------------------- */

/* The folder receives its new files while the temporary one stands in.  After a failure halfway that
 * one stays in the place: it is complete. */
static int change(const char *folder, const char *temp, const char *const *name)
{
    bool linked;
    int error = bring(temp, folder, name, &linked);
    if (error) {
        send_back(folder, name);
        return error;
    }
    if (linked)
        link_others(folder, temp, name);
    bool aside = linked && file_rename(temp, folder, RENAME_EXCHANGE) == 0;
    error = install(aside ? temp : folder, name);
    return aside && !error ? file_rename(temp, folder, RENAME_EXCHANGE) : error;
}

/* Moves the temporary folder to a place where there was none. */
static int appear(NewFolder *n)
{
    int error = file_rename(n->temp.path, n->path, 0);
    if (error)
        return error;
    unmark(n->path);
    temp_forget(&n->temp);
    return 0;
}

/* Signals wait, and an abnormal end removes nothing, while names stand for other folders. */
static int change_alone(NewFolder *n)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    temp_hide(&n->temp);
    int error = change(n->path, n->temp.path, n->name);
    temp_show(&n->temp);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

static int commit(NewFolder *n)
{
    int error = file_sync_folder(n->temp.path);
    int lock = error ? -1 : lock_folder(n->path);
    if (error)
        return error;
    error = lock < 0 ? appear(n) : 0;
    if (error == ENOTEMPTY || error == EEXIST) /* another process was faster */
        lock = lock_folder(n->path);
    if (lock >= 0) {
        error = change_alone(n);
        fsync(lock);
        close(lock);
    }
    return error ? error : file_sync_parent(n->path);
}

/* ---- as seen from outside ------------------------------------------------------------------------- */

static int temp_behind(Temp *t, const char *path, const char *suffix)
{
    char *prefix = mem_printf("%s%s", path, suffix);
    int error = temp_folder(t, prefix, 0777);
    free(prefix);
    return error;
}

static int create(NewFolder *n)
{
    struct stat st;
    if (!n->path)
        return errno;
    bool exists = stat(n->path, &st) == 0;
    if (exists && !S_ISDIR(st.st_mode))
        return ENOTDIR;
    if (exists && access(n->path, R_OK | W_OK | X_OK) != 0)
        return errno;
    int lock = lock_folder(n->path), error = 0;
    if (lock >= 0) {
        error = recover(n->path, n->name);
        send_back(n->path, n->name);
        close(lock);
    }
    if (error)
        return error;
    error = temp_behind(&n->temp, n->path, ".");
    if (error && lock >= 0) /* the parent is closed to us */
        error = temp_behind(&n->temp, n->path, "/new.");
    return error;
}

bool folder_create(NewFolder *n, const char *path, const char *const *name, Diag *d)
{
    *n = (NewFolder){file_real_path(path), name, {NULL, -1, -1}};
    int error = create(n);
    if (!error)
        return true;
    folder_abandon(n);
    return file_not_made(path, error, d);
}

bool folder_file(NewFolder *n, const char *name, NewFile *f, Diag *d)
{
    *f = (NewFile){.path = mem_printf("%s/%s", n->path, name),
                   .temp = {mem_printf("%s/%s", n->temp.path, name), -1, -1}};
    f->f = fopen(f->temp.path, "wbxe");
    if (f->f)
        return true;
    fail_status(d, EXIT_DEVICE, "%s/%s: %s", n->path, name, strerror(errno));
    file_abandon(f);
    return false;
}

bool folder_commit(NewFolder *n, Diag *d)
{
    int error = commit(n);
    if (error)
        fail_status(d, EXIT_DEVICE, "%s: %s", n->path, strerror(error));
    folder_abandon(n);
    return !error;
}

void folder_abandon(NewFolder *n)
{
    if (n->path)
        temp_remove(&n->temp);
    free(n->path);
    *n = (NewFolder){.temp = {NULL, -1, -1}};
}

bool folder_try(const char *path, const char *const *name, Diag *d)
{
    NewFolder n;
    TRY(folder_create(&n, path, name, d));
    folder_abandon(&n);
    return true;
}

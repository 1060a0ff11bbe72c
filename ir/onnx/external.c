/* external.c -- external weight files, confined to the model's folder.
 *
 * A location is a relative path without "..".  It is opened one component at a time, never
 * through a symbolic link, so that a downloaded model cannot make us read (or, when weights
 * are saved, describe) anything outside its folder. */
#include "onnx_int.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool refuse_location(const char *location, const char *why, Diag *d)
{
    return fail(d, "external data '%s': %s", location, why);
}

/* Open location below the directory at; the descriptor or -1 with the reason. */
static int open_beneath(int at, const char *location, const char **why)
{
    const char *p = location;
    if (*p == '/' || !*p) {
        *why = "the location must be a relative path";
        close(at);
        return -1;
    }
    for (;;) {
        char part[256];
        size_t n = strcspn(p, "/");
        bool last = !p[n];
        int next = -1;
        *why = NULL;
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            *why = "the location leaves the model's folder";
        } else if (n >= sizeof part) {
            *why = "name too long";
        } else {
            memcpy(part, p, n);
            part[n] = 0;
            next = openat(at, n ? part : ".",
                          O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (last ? 0 : O_DIRECTORY));
            if (next < 0)
                *why = errno == ELOOP ? "symbolic links are not followed" : strerror(errno);
        }
        close(at);
        if (next < 0 || last)
            return next;
        at = next;
        p += n + 1;
    }
}

static bool map_fd(int fd, const char *location, FileMap *map, Diag *d)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return refuse_location(location, "not a regular file", d);
    *map = (FileMap){NULL, (size_t)st.st_size};
    if (!map->size)
        return true;
    void *p = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return refuse_location(location, strerror(errno), d);
    map->data = p;
    return true;
}

bool external_map(OnnxModel *m, const char *location, FileMap *map, Diag *d)
{
    for (External *e = m->external; e; e = e->next)
        if (strcmp(e->location, location) == 0) {
            *map = e->map;
            return true;
        }
    const char *slash = strrchr(m->path, '/'), *why = NULL;
    char *folder = slash ? arena_strndup(&m->arena, m->path, (size_t)(slash - m->path) + 1)
                         : arena_strndup(&m->arena, ".", 1);
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return refuse_location(location, strerror(errno), d);
    int fd = open_beneath(at, location, &why);
    if (fd < 0)
        return refuse_location(location, why, d);
    bool ok = map_fd(fd, location, map, d);
    close(fd);
    TRY(ok);
    External *e = NEW(&m->arena, External, 1);
    *e =
        (External){m->external, arena_strndup(&m->arena, location, strlen(location)), *map};
    m->external = e;
    return true;
}

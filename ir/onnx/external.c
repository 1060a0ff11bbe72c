/* external.c -- external weight files, confined to the model's folder.
 *
 * A model may have been downloaded: its external data lies in its folder, or in that of the
 * file its path leads to (a cache whose names are links into a folder of blobs), or in a
 * folder the user has allowed, links followed. */
#include "../within.h"
#include "../mem.h"
#include "onnx_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void onnx_allow(OnnxModel *m, const char *const *folder, int n)
{
    m->allow = folder;
    m->nallow = n;
}

static int open_external(OnnxModel *m, const char *path, const char **why, bool *outside)
{
    char *real = mem_realpath(m->path);
    const char *own[] = {folder_of_path(&m->arena, m->path),
                         folder_of_path(&m->arena, real ? real : m->path)};
    free(real);
    int fd = open_within(path, own, 2, why, outside);
    return fd < 0 && *outside ? open_within(path, m->allow, m->nallow, why, outside) : fd;
}

static bool is_there(const char *path) { return access(path, F_OK) == 0 || errno != ENOENT; }

const char *external_path(OnnxModel *m, const char *location)
{
    const char *path = path_beside(&m->arena, m->path, location);
    char *real = is_there(path) ? NULL : mem_realpath(m->path);
    const char *other = real ? path_beside(&m->arena, real, location) : path;
    free(real);
    return is_there(other) ? other : path;
}

bool external_is_there(OnnxModel *m, const char *location)
{
    for (External *e = m->external; e; e = e->next)
        if (strcmp(e->location, location) == 0)
            return true;
    return is_there(external_path(m, location));
}

bool external_map(OnnxModel *m, const char *location, FileMap *map, Diag *d)
{
    for (External *e = m->external; e; e = e->next)
        if (strcmp(e->location, location) == 0) {
            *map = e->map;
            return true;
        }
    const char *why = NULL, *path = external_path(m, location);
    bool outside;
    int fd = open_external(m, path, &why, &outside);
    if (fd < 0 && outside)
        return fail(d,
                    "external data '%s' lies outside the model's folder: --allow-path allows "
                    "another",
                    location);
    if (fd < 0)
        return fail(d, "external data '%s': %s", location, why);
    TRY(file_map_fd(map, fd, path, d));
    External *e = NEW(&m->arena, External, 1);
    *e = (External){m->external, arena_strndup(&m->arena, location, strlen(location)), *map};
    m->external = e;
    return true;
}

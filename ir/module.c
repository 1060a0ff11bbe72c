/* module.c -- paths of modules in the names that exporters give nodes and parameters. */
#include "module.h"
#include <string.h>

static bool is_number(const char *s, size_t n) { return n > 0 && strspn(s, "0123456789") >= n; }

/* Cuts a path behind the part that follows the first number. */
static void cut_layer(char *path)
{
    bool numbered = false;
    for (char *part = path; *part;) {
        size_t n = strcspn(part, ".");
        if (numbered)
            part[n] = 0;
        numbered |= is_number(part, n);
        part += n + (part[n] != 0);
    }
}

/* Joins the scopes between slashes; one that begins with the scope before it replaces that: "/h/h.3/attn". */
static void join_scopes(const char *name, const char *end, char *path)
{
    size_t at = 0, before = 0; /* where the scope before begins */
    while (name < end) {
        size_t n = strcspn(name, "/"), last = at - before;
        if (last && n > last && strncmp(name, path + before, last) == 0 && name[last] == '.')
            at = before;
        else if (at)
            path[at++] = '.';
        before = at;
        memcpy(path + at, name, n);
        at += n;
        name += n + 1;
    }
    path[at] = 0;
}

const char *module_path(const char *name, bool layer, Arena *a)
{
    const char *from = name + strspn(name, "/."), *slash = strrchr(from, '/'), *point = strrchr(from, '.');
    char *path = NEW(a, char, 2 * strlen(from) + 2);
    if (slash)
        join_scopes(from, slash, path);
    else if (point)
        memcpy(path, from, (size_t)(point - from));
    if (layer)
        cut_layer(path);
    return path;
}

const char *module_block(const char *path, Arena *a)
{
    for (size_t at = 0, n; path[at]; at += n + (path[at + n] != 0)) {
        n = strcspn(path + at, ".");
        if (is_number(path + at, n))
            return arena_strndup(a, path, at + n);
    }
    return "";
}

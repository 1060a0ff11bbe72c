/* kernel_cache.c -- compiled kernels on disk.
 *
 * An object is written in a private temporary folder inside the cache; rename() publishes it under its keys,
 * so that a reader sees a complete object or none. */
#include "kernel_cache.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

bool kernel_cache_open(KernelCache *c, const char *given, Diag *d)
{
    char why[PATH_MAX + 128];
    *c = (KernelCache){.note = ""};
    TRY(cache_folder_open(&c->folder, given, why, d));
    if (*why)
        snprintf(c->note, sizeof c->note, "compiled kernels and measured costs are not kept: %s", why);
    return true;
}

void kernel_cache_close(KernelCache *c) { cache_folder_close(&c->folder); }

KernelKey kernel_key(uint64_t compiler, const char *text)
{
    KernelKey key;
    XXH128_hash_t v = XXH3_128bits_withSeed(text, strlen(text), compiler);
    snprintf(key.hex, sizeof key.hex, "%016" PRIx64 "%016" PRIx64, (uint64_t)v.high64, (uint64_t)v.low64);
    return key;
}

enum { OBJECT_NAME = sizeof(KernelKey) + 8 };

static void object_name(const KernelKey *key, const char *suffix, char out[OBJECT_NAME])
{
    snprintf(out, OBJECT_NAME, "%s%s", key->hex, suffix);
}

/* Many keys may name one file, which is checked and opened only once. */
void *kernel_cache_object(const KernelCache *c, const KernelKey *key, const char *suffix, KernelObjects *o,
                          ObjectOpen *open, void *on)
{
    char name[OBJECT_NAME], path[PATH_MAX + OBJECT_NAME + 1];
    struct stat st;
    object_name(key, suffix, name);
    snprintf(path, sizeof path, "%s/%s", c->folder.path, name);
    if (lstat(path, &st) != 0)
        return NULL;
    for (int i = 0; i < o->n; i++)
        if (o->of[i].ino == st.st_ino && o->of[i].dev == st.st_dev)
            return o->of[i].handle;
    void *handle = open(on, &c->folder, name);
    if (handle)
        o->of[o->n++] = (KernelObject){st.st_dev, st.st_ino, handle};
    return handle;
}

/* Publishes the object under one more key, replacing any file of that name. */
static bool publish(const KernelCache *c, const char *object, const KernelKey *key, const char *suffix,
                    Diag *d)
{
    char name[OBJECT_NAME], to[PATH_MAX + OBJECT_NAME + 1], other[PATH_MAX + 64];
    object_name(key, suffix, name);
    snprintf(to, sizeof to, "%s/%s", c->folder.path, name);
    snprintf(other, sizeof other, "%s.link", object);
    bool ok = link(object, other) == 0 && rename(other, to) == 0;
    return ok || fail_status(d, EXIT_DEVICE, "cannot write %s: %s", to, strerror(errno));
}

bool kernel_cache_keep(const KernelCache *c, const char *object, const KernelKey *key, int n,
                       const char *suffix, Diag *d)
{
    bool ok = cache_file_seal(object, d);
    for (int i = 0; i < n && ok; i++)
        ok = publish(c, object, &key[i], suffix, d);
    return ok;
}

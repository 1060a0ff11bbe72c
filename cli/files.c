/* files.c -- the files a schedule refers to: constants, weights, data.
 *
 * The author of a schedule must not decide which of our files are read.  So a schedule records a hash
 * of every file it needs, and a file outside the schedule's folder is read only if it has that hash:
 * the author had its content already.  Without a hash it must lie inside, or be allowed by --allow-path.
 * A recorded file that has changed is an error wherever it lies. */
#include "cli.h"
#include "ir/within.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

static uint64_t hash_bytes(const FileMap *m)
{
    if (m->size)
        madvise((void *)(uintptr_t)m->data, m->size, MADV_SEQUENTIAL);
    uint64_t h = XXH64(m->data, m->size, 0);
    if (m->size)
        madvise((void *)(uintptr_t)m->data, m->size, MADV_NORMAL);
    return h;
}

bool hash_file(const char *path, uint64_t *hash, Diag *d)
{
    FileMap m;
    TRY(file_map(&m, path, d));
    *hash = hash_bytes(&m);
    file_unmap(&m);
    return true;
}

/* ---- writing a schedule ------------------------------------------------------------------- */

static bool recorded(const Plan *p, const char *path, uint64_t *hash)
{
    *hash = p->model_hash;
    if (p->model && strcmp(path, p->model) == 0)
        return true;
    for (uint32_t i = 0; i < p->nfile; i++)
        if (strcmp(p->file[i].path, path) == 0) {
            *hash = p->file[i].hash;
            return true;
        }
    return false;
}

void file_record(Job *j, Plan *p, const char *name, uint64_t hash)
{
    uint64_t known;
    if (recorded(p, name, &known))
        return;
    p->file = arena_grow(&j->arena, p->file, p->nfile, &p->cfile, sizeof *p->file);
    p->file[p->nfile++] = (PlanFile){name, hash};
}

bool files_hash(Job *j)
{
    Plan *p = j->plan;
    const Graph *g = p->g;
    uint64_t hash;
    for (uint32_t i = 1; i < g->nvals; i++) {
        const char *file = g->vals[i].file;
        if (!file || recorded(p, file, &hash))
            continue;
        TRY(hash_file(file, &hash, &j->o->diag));
        file_record(j, p, file, hash);
    }
    return true;
}

uint64_t file_hash(const Job *j, const char *path)
{
    uint64_t hash;
    recorded(j->plan, path, &hash);
    return hash;
}

/* ---- running it ------------------------------------------------------------------------------ */

/* A path relative to the schedule's folder as a path that can be opened. */
static const char *in_folder(Job *j, const char *path)
{
    return path_beside(&j->arena, j->o->path, path);
}

static bool changed(const char *path, const char *hint, Diag *d)
{
    return fail(d, "%s: is not the file the schedule was made with%s", path, hint);
}

static bool open_file(Job *j, const char *name, FileMap *m)
{
    const Options *o = j->o;
    Diag *d = &j->o->diag;
    const char *path = in_folder(j, name), *own = folder_of_path(&j->arena, o->path), *why;
    uint64_t hash;
    bool outside, known = recorded(j->plan, name, &hash);
    int fd = open_within(path, &own, 1, &why, &outside);
    if (fd < 0 && outside)
        fd = open_within(path, o->allow, o->nallow, &why, &outside);
    if (fd < 0 && outside && !known)
        return fail(d, "%s: lies outside the schedule's folder, and its hash is not recorded: "
                       "--allow-path FOLDER allows it", path);
    if (fd < 0 && !outside)
        return fail(d, "%s: %s", path, why);
    TRY(fd < 0 ? file_map(m, path, d) : file_map_fd(m, fd, path, d));
    if (!known || hash_bytes(m) == hash)
        return true;
    file_unmap(m);
    return changed(path, "", d);
}

/* The mapping of a file that the schedule names, which is opened and checked at its first use. */
static const FileMap *find_file(Job *j, const char *name)
{
    for (uint32_t i = 0; i < j->nfile; i++)
        if (strcmp(j->file[i].name, name) == 0)
            return &j->file[i].map;
    FileMap m;
    if (!open_file(j, name, &m))
        return NULL;
    j->file = arena_grow(&j->arena, j->file, j->nfile, &j->cfile, sizeof *j->file);
    j->file[j->nfile] = (JobFile){name, m};
    return &j->file[j->nfile++].map;
}

static bool open_values(Job *j)
{
    Graph *g = j->plan->g;
    for (uint32_t i = 1; i < g->nvals; i++) {
        Value *v = &g->vals[i];
        if (!v->file)
            continue;
        const FileMap *m = find_file(j, v->file);
        if (!m)
            return false;
        int64_t size = (int64_t)m->size;
        if (v->offset < 0 || v->offset > size || type_bytes(&v->type) > size - v->offset)
            return fail(&j->o->diag, "%s: too short for the bytes of %s", in_folder(j, v->file),
                        v->name);
        v->data = m->data ? (void *)(uintptr_t)(m->data + v->offset) : (void *)(uintptr_t) "";
        v->file = NULL;
    }
    return true;
}

static bool open_data(Job *j)
{
    Plan *p = j->plan;
    Diag *d = &j->o->diag;
    uint64_t hash = 0;
    bool said = j->o->data != NULL, known = p->run.data && recorded(p, p->run.data, &hash);
    p->run.data = said ? j->o->data : p->run.data ? in_folder(j, p->run.data) : NULL;
    if (!p->run.data)
        return true;
    if (!said && !known)
        return fail(d, "%s: the schedule has no hash of its data: --data %s uses it", p->run.data,
                    p->run.data);
    TRY((j->data = data_open(p->run.data, d)) != NULL);
    return said || data_hash(j->data) == hash || changed(p->run.data, ": --data FILE names another", d);
}

bool files_model(Job *j) { return !j->plan->model || find_file(j, j->plan->model); }

bool files_in_model(const Job *j, const void *data)
{
    const uint8_t *at = data;
    for (uint32_t i = 0; i < j->nfile; i++) {
        const FileMap *m = &j->file[i].map;
        if (j->plan->model && strcmp(j->file[i].name, j->plan->model) == 0)
            return at >= m->data && at < m->data + m->size;
    }
    return false;
}

bool files_open(Job *j)
{
    Plan *p = j->plan;
    j->model_path = p->model ? in_folder(j, p->model) : NULL;
    return (!saves(j->o, ".onnx") || files_model(j)) && open_values(j) && open_data(j);
}

void files_loaded(Job *j)
{
    for (uint32_t i = 0; i < j->nfile; i++)
        if (j->file[i].map.size)
            madvise((void *)(uintptr_t)j->file[i].map.data, j->file[i].map.size, MADV_DONTNEED);
}

void files_close(Job *j)
{
    for (uint32_t i = 0; i < j->nfile; i++)
        file_unmap(&j->file[i].map);
}

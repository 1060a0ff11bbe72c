/* checkpoint.c -- writes the state of a run to files and reads it back. */
#include "checkpoint.h"
#include "ir/file.h"
#include "ir/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { KEEP = 2 };
#define PREFIX "step-"
#define SUFFIX ".safetensors"

/* ---- the folder ------------------------------------------------------------------------------- */

bool checkpoints_open(Checkpoints *c, const char *folder, Diag *d)
{
    *c = (Checkpoints){.lock = -1};
    bool made = mkdir(folder, 0777) == 0;
    int fd = made || errno == EEXIST ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        return file_not_made(folder, errno, d);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) { /* other errors: no locks here */
        close(fd);
        return fail(d, "%s: another run writes its checkpoints there", folder);
    }
    *c = (Checkpoints){mem_strdup(folder), fd, made, 0};
    return true;
}

void checkpoints_close(Checkpoints *c)
{
    if (!c->folder)
        return;
    if (c->made)
        rmdir(c->folder); /* fails if it has a file */
    close(c->lock);
    free(c->folder);
    *c = (Checkpoints){0};
}

static bool give_name(const Checkpoints *c, const char *from, const char *to, Diag *d)
{
    int error = file_rename(from, to, 0);
    if (!error)
        error = file_sync_folder(c->folder);
    return !error || fail_status(d, EXIT_DEVICE, "%s: %s", to, strerror(error));
}

static const char *file_of(const Checkpoints *c, int64_t step, Arena *a)
{
    return arena_printf(a, "%s/" PREFIX "%" PRId64 SUFFIX, c->folder, step);
}

/* The step in the name of a checkpoint; 0: the file is not a checkpoint. */
static int64_t step_of(const char *name)
{
    size_t n = strlen(PREFIX), digits = strspn(name + (strncmp(name, PREFIX, n) == 0 ? n : 0), "0123456789");
    if (strncmp(name, PREFIX, n) != 0 || digits == 0 || digits > 18 || name[n] == '0' ||
        strcmp(name + n + digits, SUFFIX) != 0)
        return 0;
    return strtoll(name + n, NULL, 10);
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The steps of all checkpoints in the folder, the newest first, then a 0.  Allocated in a. */
static const int64_t *list(const Checkpoints *c, Arena *a)
{
    int64_t *step = NULL;
    uint32_t n = 0, cap = 0;
    DIR *dir = opendir(c->folder);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        step = arena_grow(a, step, n, &cap, sizeof *step);
        step[n] = step_of(e->d_name);
        n += step[n] > 0;
    }
    if (dir)
        closedir(dir);
    step = arena_grow(a, step, n, &cap, sizeof *step);
    step[n] = 0;
    qsort(step, n, sizeof *step, newest_first);
    return step;
}

int64_t checkpoints_newest(const Checkpoints *c)
{
    Arena a = {0};
    int64_t step = list(c, &a)[0];
    arena_free(&a);
    return step;
}

/* Removes all but the KEEP newest intact checkpoints up to `step`, which has just been written; if that
 * fails, the next call tries again.  Those between the last intact one and `step` were found damaged. */
static void remove_old(const Checkpoints *c, int64_t step, Arena *a)
{
    int kept = 0;
    for (const int64_t *s = list(c, a); *s; s++) {
        bool damaged = *s > c->intact && *s < step;
        if (*s <= step && (damaged || kept++ >= KEEP))
            unlink(file_of(c, *s, a));
    }
}

/* ---- state ------------------------------------------------------------------------------------ */

typedef struct {
    Val v;
    const char *name;
} State;

/* Per value: is it a sum over micro-batches?  The first micro-batch of a step overwrites it. */
static const bool *find_sums(const Graph *g, Arena *a)
{
    bool *summed = NEW(a, bool, g->nvals), *sum = NEW(a, bool, g->nvals);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        if (n->op == OP_accumulated)
            summed[graph_root(g, n->in[0]).i] = true;
    }
    for (uint32_t i = 0; i < g->nupdate; i++)
        sum[g->update[i].state.i] = summed[graph_root(g, g->update[i].value).i];
    return sum;
}

/* The values that a step passes to the next one, without sums over micro-batches.  Allocated in a. */
static const State *find_state(const Graph *g, uint32_t *n, Arena *a)
{
    State *s = NEW(a, State, g->nupdate + 1);
    const bool *sum = find_sums(g, a);
    *n = 0;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Val v = g->update[i].state;
        if (!sum[v.i])
            s[(*n)++] = (State){v, graph_model_name(g, v)};
    }
    return s;
}

static uint64_t hash_text(const char *text, uint64_t seed) { return XXH64(text, strlen(text), seed); }

static uint64_t hash_tensor(const char *name, const Tensor *t)
{
    char type[160];
    uint64_t seed = hash_text(type_str(&t->type, type), hash_text(name, 0));
    return XXH64(t->data, (size_t)type_bytes(&t->type), seed);
}

/* The hash of all tensors, a sum that does not depend on their order, as the text in the metadata. */
static const char *hash_shown(uint64_t sum, Arena *a) { return arena_printf(a, "%016" PRIx64, sum); }

/* ---- writing ------------------------------------------------------------------------------------ */

static const char *const *strings_of(RunKeys keys, int64_t step, uint64_t hash, Arena *a)
{
    int n = 0;
    while (keys[n].name)
        n++;
    const char **all = NEW(a, const char *, 2 * n + 5);
    const char *const own[] = {"step", arena_printf(a, "%" PRId64, step), "hash", hash_shown(hash, a)};
    memcpy(all, own, sizeof own);
    for (int i = 0; i < n; i++) {
        all[4 + 2 * i] = keys[i].name;
        all[5 + 2 * i] = keys[i].value;
    }
    return all;
}

typedef struct {
    Executor *x;
    const State *s;
} Source;

static bool write_tensor(void *user, int k, NewFile *f, Diag *d)
{
    const Source *from = user;
    Val v = from->s[k].v;
    TRY(exec_read(from->x, v, d));
    Tensor t = exec_tensor(from->x, v);
    file_write(f, t.data, (size_t)type_bytes(&t.type));
    exec_drop(from->x, v);
    return true;
}

/* Values that the host has to copy are read twice, as the hash stands in front of them: one copy at a time.
 */
static bool write_state(Checkpoints *c, Executor *x, int64_t step, RunKeys keys, Arena *a, Diag *d)
{
    uint32_t n;
    uint64_t hash = 0;
    const State *s = find_state(exec_plan(x)->g, &n, a);
    NamedTensor *t = NEW(a, NamedTensor, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        TRY(exec_read(x, s[i].v, d));
        t[i] = (NamedTensor){s[i].name, exec_tensor(x, s[i].v)};
        hash += hash_tensor(t[i].name, &t[i].tensor);
        exec_drop(x, s[i].v);
    }
    /* One name for all steps: the next checkpoint overwrites what a killed process left. */
    const char *new = arena_printf(a, "%s/new" SUFFIX, c->folder);
    TRY(safetensors_stream(new, strings_of(keys, step, hash, a), (int)n, t, write_tensor, &(Source){x, s},
                           d));
    TRY(give_name(c, new, file_of(c, step, a), d));
    remove_old(c, step, a);
    c->intact = step;
    return true;
}

bool checkpoint_write(Checkpoints *c, Executor *x, int64_t step, RunKeys keys, Diag *d)
{
    Arena a = {0};
    bool ok = write_state(c, x, step, keys, &a, d);
    arena_free(&a);
    return ok;
}

/* ---- reading ------------------------------------------------------------------------------------- */

/* Do the tensors have the bytes that were written? */
static bool check_hash(const char *path, DataFile *f, Arena *a, Diag *d)
{
    const char *was = data_meta(f, "hash");
    uint64_t sum = 0;
    Tensor t;
    for (int k = 0; k < data_count(f); k++) {
        TRY(data_tensor(f, k, &t, d));
        sum += hash_tensor(data_name(f, k), &t);
    }
    return !was || strcmp(was, hash_shown(sum, a)) == 0 ||
           fail(d, "%s: has other bytes than were written", path);
}

static bool check_keys(const char *path, const DataFile *f, RunKeys k, const char **changed, Arena *a,
                       Diag *d)
{
    *changed = NULL;
    for (; k->name; k++) {
        const char *was = data_meta(f, k->name);
        bool equal = was && strcmp(was, k->value) == 0;
        if (!was && !k->may_change)
            return fail(d, "%s: is no checkpoint: it does not say its %s", path, k->name);
        if (was && !equal && !k->may_change)
            return fail(d, "%s: was made with %s %s, this run has %s", path, k->name, was, k->value);
        if (was && !equal)
            *changed = arena_printf(a, "%s%s%s %s (now %s)", *changed ? *changed : "", *changed ? ", " : "",
                                    k->name, was, k->value);
    }
    return true;
}

static bool known(const State *s, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(s[i].name, name) == 0)
            return true;
    return false;
}

static bool check_shapes(const char *path, DataFile *f, const Graph *g, const State *s, uint32_t n, Diag *d)
{
    char was[160], now[160];
    Tensor t;
    for (uint32_t i = 0; i < n; i++) {
        int k = data_find(f, s[i].name);
        if (k < 0)
            return fail(d, "%s: is of another model or optimizer: it has no '%s'", path, s[i].name);
        TRY(data_tensor(f, k, &t, d));
        if (!type_equal(&t.type, val_type(g, s[i].v)))
            return fail(d, "%s: '%s' is %s there, %s in this model", path, s[i].name, type_str(&t.type, was),
                        type_str(val_type(g, s[i].v), now));
    }
    for (int k = 0; k < data_count(f); k++)
        if (!known(s, n, data_name(f, k)))
            return fail(d, "%s: is of another model or optimizer: it has '%s', this run does not", path,
                        data_name(f, k));
    return true;
}

static bool load_state(DataFile *f, Executor *x, const State *s, uint32_t n, Diag *d)
{
    for (uint32_t i = 0; i < n; i++) {
        Tensor from, to = exec_tensor(x, s[i].v);
        TRY(data_tensor(f, data_find(f, s[i].name), &from, d));
        if (to.data)
            memcpy(to.data, from.data, (size_t)type_bytes(&to.type));
        TRY(exec_write(x, s[i].v, d));
        exec_drop(x, s[i].v);
    }
    return true;
}

/* Reads the state from f; everything is checked before the first value changes. */
static bool read_state(const char *path, DataFile *f, Executor *x, RunKeys keys, const char **changed,
                       Arena *a, Diag *d)
{
    uint32_t n;
    const Graph *g = exec_plan(x)->g;
    const State *s = find_state(g, &n, a);
    return check_shapes(path, f, g, s, n, d) && check_keys(path, f, keys, changed, a, d) &&
           load_state(f, x, s, n, d);
}

bool checkpoint_read(Checkpoints *c, Executor *x, RunKeys keys, int64_t *step, const char **damaged,
                     const char **changed, Arena *a, Diag *d)
{
    Diag first = {0};
    *damaged = *changed = NULL;
    for (const int64_t *s = list(c, a); (*step = *s) != 0; s++) {
        Diag why = {0};
        const char *path = file_of(c, *s, a);
        DataFile *f = data_open(path, &why);
        bool whole = f && check_hash(path, f, a, &why);
        bool ok = whole && read_state(path, f, x, keys, changed, a, d);
        data_close(f);
        if (whole) {
            c->intact = *s;
            return ok;
        }
        if (!*damaged)
            first = why;
        *damaged = *damaged ? *damaged : path;
    }
    return !*damaged || fail_status(d, first.status, "%s", first.msg);
}

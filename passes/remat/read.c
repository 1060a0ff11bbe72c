/* read.c -- reading .dag files: the text form of an instance (grammar in remat.h).
 *
 * Lines become records with the file's ids; the records are then sorted by id, ids are
 * resolved, and the operators are numbered in topological order, smallest id first, which
 * is the order of the ids whenever that is possible. Every fault names its line. */
#include "heap.h"
#include "ir/file.h"
#include "remat_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t id;
    int32_t output;
    int32_t taker; /* in-place: the output that takes over */
} Ref;

typedef struct {
    int64_t id, cost;
    int64_t ws, layer; /* -1: not given */
    int32_t line;
    bool once;
    Ref *in, *inplace, *before;
    int64_t *out; /* bytes */
    int32_t *keep; /* outputs */
    RematAlt *alt;
    int32_t nin, ninplace, nbefore, nout, nalt, nkeep;
} Record;

typedef struct {
    int64_t id, cost, link; /* id: of the operator, later the number of its record */
    int32_t line;
} Fetch;

typedef struct {
    Record *rec;
    int32_t n;
    Fetch *fetch;
    int32_t nfetch;
    int64_t persistent, whole, link, host, loss; /* -1: not given; loss: id, later the record's number */
    int32_t loss_line;
    int64_t cost_sum, byte_sum;
    int32_t line;
    const char *at; /* the rest of the line */
    char *err;
} Reader;

#define reader_fail(r, ln, fmt, ...) rm_fail((r)->err, "line %d: " fmt, ln, __VA_ARGS__)

static const char blanks[] = " \t\r\f\v";

static void skip_blanks(Reader *r) { r->at += strspn(r->at, blanks); }

static bool at_end(const Reader *r)
{
    return *r->at == 0 || *r->at == '\n' || *r->at == '#';
}

/* May a number or a word end in front of this character? */
static bool ends(char c) { return !c || strchr(" \t\r\f\v\n#;=.:,", c); }

static bool read_number(Reader *r, const char *what, int64_t *x)
{
    char *end;
    skip_blanks(r);
    errno = 0;
    if (at_end(r))
        return reader_fail(r, r->line, "%s is missing", what);
    *x = strtoll(r->at, &end, 10);
    if (end == r->at || !ends(*end))
        return reader_fail(r, r->line, "%s: '%.*s' is no number", what, (int)strcspn(r->at, " \t\r\f\v\n"),
                           r->at);
    if (errno == ERANGE)
        return reader_fail(r, r->line, "%s does not fit 64 bits", what);
    if (*x < 0)
        return reader_fail(r, r->line, "%s is negative: %lld", what, (long long) *x);
    r->at = end;
    return true;
}

/* Reads the number of something that may be given once; *x < 0: it was not. */
static bool read_only(Reader *r, const char *what, int64_t *x)
{
    return *x < 0 ? read_number(r, what, x) : reader_fail(r, r->line, "%s: given twice", what);
}

static bool read_output(Reader *r, int32_t *output)
{
    int64_t k = 0;
    if (!read_number(r, "output number", &k))
        return false;
    if (k > INT32_MAX)
        return reader_fail(r, r->line, "output number %lld is unknown", (long long) k);
    *output = (int32_t)k;
    return true;
}

static bool read_ref(Reader *r, const char *what, Ref *ref)
{
    *ref = (Ref){0};
    if (!read_number(r, what, &ref->id))
        return false;
    if (*r->at != '.')
        return true;
    r->at++;
    return read_output(r, &ref->output);
}

/* inplace=ID[.K][:J] */
static bool read_inplace(Reader *r, Record *rec)
{
    Ref ref;
    if (!read_ref(r, "in-place input", &ref))
        return false;
    if (*r->at == ':') {
        r->at++;
        if (!read_output(r, &ref.taker))
            return false;
    }
    rec->inplace = rm_append(rec->inplace, &rec->ninplace, sizeof ref);
    rec->inplace[rec->ninplace - 1] = ref;
    return true;
}

/* keep[=K] */
static bool read_keep(Reader *r, Record *rec)
{
    int32_t k = 0;
    if (*r->at == '=') {
        r->at++;
        if (!read_output(r, &k))
            return false;
    }
    rec->keep = rm_append(rec->keep, &rec->nkeep, sizeof k);
    rec->keep[rec->nkeep - 1] = k;
    return true;
}

static bool read_alt(Reader *r, Record *rec)
{
    RematAlt a;
    if (!read_number(r, "cost of a kernel choice", &a.cost))
        return false;
    if (*r->at++ != ',')
        return reader_fail(r, r->line, "%s", "a kernel choice is alt=COST,WORKSPACE");
    if (!read_number(r, "workspace of a kernel choice", &a.workspace))
        return false;
    rec->alt = rm_append(rec->alt, &rec->nalt, sizeof *rec->alt);
    rec->alt[rec->nalt - 1] = a;
    return true;
}

static bool take_word(Reader *r, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(r->at, word, n) || (word[n - 1] != '=' && !ends(r->at[n])))
        return false;
    r->at += n;
    return true;
}

static bool read_field(Reader *r, Record *rec)
{
    Ref ref;
    int64_t x;
    if (take_word(r, "ws="))
        return read_only(r, "workspace", &rec->ws);
    if (take_word(r, "keep"))
        return read_keep(r, rec);
    if (take_word(r, "once"))
        return rec->once = true;
    if (take_word(r, "layer="))
        return read_only(r, "layer", &rec->layer) &&
               (rec->layer <= INT32_MAX || reader_fail(r, r->line, "%s", "a layer has a smaller number"));
    if (take_word(r, "alt="))
        return read_alt(r, rec);
    if (take_word(r, "out=")) {
        if (!read_number(r, "bytes", &x))
            return false;
        rec->out = rm_append(rec->out, &rec->nout, sizeof *rec->out);
        rec->out[rec->nout - 1] = x;
        return true;
    }
    if (take_word(r, "inplace="))
        return read_inplace(r, rec);
    if (take_word(r, "before=")) {
        if (!read_ref(r, "barrier", &ref))
            return false;
        rec->before = rm_append(rec->before, &rec->nbefore, sizeof ref);
        rec->before[rec->nbefore - 1] = ref;
        return true;
    }
    return reader_fail(r, r->line, "unknown field '%.*s'", (int)strcspn(r->at, " \t\r\f\v\n=;"), r->at);
}

static Record *new_record(Reader *r)
{
    r->rec = rm_append(r->rec, &r->n, sizeof *r->rec);
    Record *rec = &r->rec[r->n - 1];
    *rec = (Record){.line = r->line, .ws = -1, .layer = -1};
    return rec;
}

/* Checks the limits of remat_check here as well, for a message that names the line. */
static bool add_sums(Reader *r, const Record *rec)
{
    int64_t cost = rec->cost;
    for (int32_t k = 0; k < rec->nalt; k++)
        cost = rec->alt[k].cost > cost ? rec->alt[k].cost : cost;
    if (cost >= RM_COSTS || (r->cost_sum += cost) >= RM_COSTS)
        return reader_fail(r, r->line, "%s", "the sum of the costs does not fit 52 bits: take a larger unit");
    for (int32_t k = 0; k < rec->nout; k++)
        if (rec->out[k] >= RM_SUM || (r->byte_sum += rec->out[k]) >= RM_SUM)
            return reader_fail(r, r->line, "%s",
                               "the sum of the bytes does not fit 62 bits");
    return true;
}

static bool read_operator(Reader *r)
{
    Record *rec = new_record(r);
    int64_t bytes;
    if (!read_number(r, "id", &rec->id) || !read_number(r, "cost", &rec->cost) ||
        !read_number(r, "bytes", &bytes))
        return false;
    rec->out = rm_append(rec->out, &rec->nout, sizeof *rec->out);
    rec->out[0] = bytes;
    for (skip_blanks(r); !at_end(r) && *r->at != ';'; skip_blanks(r)) {
        Ref ref;
        if (!read_ref(r, "input", &ref))
            return false;
        rec->in = rm_append(rec->in, &rec->nin, sizeof ref);
        rec->in[rec->nin - 1] = ref;
    }
    for (skip_blanks(r); !at_end(r); skip_blanks(r)) {
        if (*r->at == ';')
            r->at++;
        else if (!read_field(r, rec))
            return false;
    }
    return add_sums(r, rec);
}

/* Reads the last number of a line. */
static bool read_last(Reader *r, const char *what, int64_t *x)
{
    if (!read_only(r, what, x))
        return false;
    skip_blanks(r);
    return at_end(r) || reader_fail(r, r->line, "text behind the %s", what);
}

/* fetch ID COST LINK */
static bool read_fetch(Reader *r)
{
    Fetch f = {.line = r->line, .link = -1};
    if (!read_number(r, "id", &f.id) || !read_number(r, "cost", &f.cost) || !read_last(r, "link", &f.link))
        return false;
    if (r->nfetch == 1 << 28)
        return reader_fail(r, r->line, "%s", "too many fetches");
    r->fetch = rm_append(r->fetch, &r->nfetch, sizeof f);
    r->fetch[r->nfetch - 1] = f;
    return true;
}

static bool read_line(Reader *r)
{
    skip_blanks(r);
    if (take_word(r, "fetch"))
        return read_fetch(r);
    if (take_word(r, "link"))
        return read_last(r, "link", &r->link);
    if (take_word(r, "host"))
        return read_last(r, "bytes of the host", &r->host);
    if (take_word(r, "persistent"))
        return read_last(r, "persistent bytes", &r->persistent);
    if (take_word(r, "whole"))
        return read_last(r, "bytes of the whole", &r->whole);
    if (take_word(r, "loss")) {
        r->loss_line = r->line;
        return read_last(r, "loss", &r->loss);
    }
    return at_end(r) || read_operator(r);
}

static bool read_lines(Reader *r, const char *text)
{
    r->persistent = r->whole = r->link = r->host = r->loss = -1;
    for (r->at = text + bom_bytes(text); *r->at; r->at += *r->at == '\n') {
        r->line++;
        if (!read_line(r))
            return false;
        r->at += strcspn(r->at, "\n");
    }
    return true;
}

/* ---- resolving ----------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const Record *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->line - y->line;
}

static int32_t find(const Reader *r, int64_t id)
{
    int32_t lo = 0, hi = r->n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (r->rec[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->n && r->rec[lo].id == id ? lo : -1;
}

static int by_ref(const void *a, const void *b)
{
    const Ref *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->output != y->output ? (x->output < y->output ? -1 : 1) : x->taker - y->taker;
}

/* The id of a reference that is listed twice; -1: there is none. */
static int64_t listed_twice(const Ref *list, int32_t n)
{
    Ref *sorted = RM_NEW(Ref, n);
    int64_t id = -1;
    if (n)
        memcpy(sorted, list, sizeof *list * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_ref);
    for (int32_t k = 1; k < n && id < 0; k++)
        if (by_ref(&sorted[k - 1], &sorted[k]) == 0)
            id = sorted[k].id;
    free(sorted);
    return id;
}

/* Replaces the ids of a list by record numbers. */
static bool resolve(Reader *r, const Record *rec, Ref *list, int32_t n, const char *what)
{
    for (int32_t k = 0; k < n; k++) {
        int32_t to = find(r, list[k].id);
        if (to < 0)
            return reader_fail(r, rec->line, "%s %lld is unknown", what,
                               (long long) list[k].id);
        if (list[k].output >= r->rec[to].nout)
            return reader_fail(r, rec->line, "%s %lld.%d is unknown", what,
                               (long long) list[k].id, list[k].output);
        list[k].id = to;
    }
    int64_t twice = listed_twice(list, n);
    return twice < 0 || reader_fail(r, rec->line, "%s %lld is listed twice", what,
                                    (long long) r->rec[twice].id);
}

static bool resolve_all(Reader *r)
{
    if (r->n > 0)
        qsort(r->rec, (size_t)r->n, sizeof *r->rec, by_id);
    for (int32_t i = 0; i + 1 < r->n; i++)
        if (r->rec[i].id == r->rec[i + 1].id)
            return reader_fail(r, r->rec[i + 1].line, "id %lld is used twice",
                               (long long) r->rec[i].id);
    for (int32_t i = 0; i < r->n; i++) {
        Record *rec = &r->rec[i];
        if (!resolve(r, rec, rec->in, rec->nin, "input") ||
            !resolve(r, rec, rec->inplace, rec->ninplace, "in-place input") ||
            !resolve(r, rec, rec->before, rec->nbefore, "barrier"))
            return false;
        for (int32_t k = 0; k < rec->nkeep; k++)
            if (rec->keep[k] >= rec->nout)
                return reader_fail(r, rec->line, "output number %d is unknown",
                                   rec->keep[k]);
    }
    for (int32_t k = 0; k < r->nfetch; k++) {
        int32_t of = find(r, r->fetch[k].id);
        if (of < 0)
            return reader_fail(r, r->fetch[k].line, "operator %lld is unknown", (long long) r->fetch[k].id);
        r->fetch[k].id = of;
    }
    if (r->loss < 0)
        return true;
    int32_t loss = find(r, r->loss);
    if (loss < 0)
        return reader_fail(r, r->loss_line, "loss %lld is unknown", (long long) r->loss);
    r->loss = loss;
    return true;
}

/* ---- numbering in topological order -------------------------------------------------- */

typedef struct {
    int32_t *first, *to; /* record -> records that must follow it */
    int32_t *waits;      /* unfinished predecessors */
} After;

/* rec must follow its inputs and the operators it bars. */
static void count_or_fill(const Reader *r, After *a, int32_t *fill)
{
    for (int32_t i = 0; i < r->n; i++) {
        const Record *rec = &r->rec[i];
        for (int32_t k = 0; k < rec->nin + rec->nbefore; k++) {
            int64_t u = k < rec->nin ? rec->in[k].id : rec->before[k - rec->nin].id;
            if (fill) {
                a->to[fill[u]++] = i;
                a->waits[i]++;
            } else {
                a->first[u + 1]++;
            }
        }
    }
}

/* number[record] = operator; false on a cycle. */
static bool number_records(Reader *r, int32_t *number)
{
    After a = {RM_NEW(int32_t, r->n + 1), NULL, RM_NEW(int32_t, r->n)};
    count_or_fill(r, &a, NULL);
    for (int32_t i = 0; i < r->n; i++)
        a.first[i + 1] += a.first[i];
    a.to = RM_NEW(int32_t, a.first[r->n]);
    int32_t *fill = RM_NEW(int32_t, r->n);
    memcpy(fill, a.first, sizeof *fill * (size_t)r->n);
    count_or_fill(r, &a, fill);
    int32_t done = 0;
    Heap ready = {0}; /* by number */
    for (int32_t i = 0; i < r->n; i++)
        if (a.waits[i] == 0)
            heap_push(&ready, (HeapItem){.id = i});
    while (ready.n > 0) {
        int32_t i = heap_pop(&ready).id;
        number[i] = done++;
        for (int32_t k = a.first[i]; k < a.first[i + 1]; k++)
            if (--a.waits[a.to[k]] == 0)
                heap_push(&ready, (HeapItem){.id = a.to[k]});
    }
    bool ok = true;
    for (int32_t i = 0; i < r->n && ok; i++)
        if (a.waits[i] > 0)
            ok = reader_fail(r, r->rec[i].line,
                             "operator %lld is part of a cycle or follows one",
                             (long long) r->rec[i].id);
    MEM_FREE(a.first, a.to, a.waits, fill, ready.item);
    return ok;
}

/* ---- building the instance ----------------------------------------------------------- */

/* Storage behind an instance: one block for each kind of array. */
typedef struct {
    RematOp *ops;
    RematValue *values;
    int32_t *ints;
    RematInPlace *inplace;
    RematAlt *alts;
    int64_t *ids;
} Storage;

static Storage *storage_new(const Reader *r)
{
    size_t ints = 0, inplace = 0, alts = 0, values = 0;
    for (int32_t i = 0; i < r->n; i++) {
        const Record *rec = &r->rec[i];
        ints += (size_t)rec->nin + (size_t)rec->nout + (size_t)rec->nbefore;
        inplace += (size_t)rec->ninplace;
        alts += (size_t)rec->nalt;
        values += (size_t)rec->nout;
    }
    Storage *s = RM_NEW(Storage, 1);
    size_t all = (size_t)r->n + (size_t)r->nfetch;
    *s = (Storage){RM_NEW(RematOp, all),   RM_NEW(RematValue, values),
                   RM_NEW(int32_t, ints),  RM_NEW(RematInPlace, inplace),
                   RM_NEW(RematAlt, alts), RM_NEW(int64_t, all)};
    return s;
}

static bool build_inplace(Reader *r, const Record *rec, RematInPlace *to)
{
    for (int32_t k = 0; k < rec->ninplace; k++) {
        int32_t j = 0;
        while (j < rec->nin && (rec->in[j].id != rec->inplace[k].id ||
                                rec->in[j].output != rec->inplace[k].output))
            j++;
        if (j == rec->nin)
            return reader_fail(r, rec->line, "in-place over %lld, which is no input",
                               (long long) r->rec[rec->inplace[k].id].id);
        if (rec->inplace[k].taker >= rec->nout)
            return reader_fail(r, rec->line, "output number %d is unknown",
                               rec->inplace[k].taker);
        to[k] = (RematInPlace){rec->inplace[k].taker, j};
    }
    return true;
}

static int64_t given(int64_t x) { return x < 0 ? 0 : x; }

static void build_fetches(const Reader *r, const int32_t *number, RematInstance *inst, Storage *s)
{
    inst->nfetch = r->nfetch;
    inst->link = given(r->link);
    inst->host = given(r->host);
    for (int32_t k = 0; k < r->nfetch; k++) {
        const Fetch *f = &r->fetch[k];
        const RematOp *of = &s->ops[number[f->id]];
        s->ids[r->n + k] = s->ids[number[f->id]];
        s->ops[r->n + k] = (RematOp){.cost = f->cost, .nout = of->nout, .out = of->out,
                                     .fetch_of = number[f->id], .link = f->link};
    }
}

static bool build_instance(Reader *r, const int32_t *number, RematInstance *inst,
                           const int64_t **ids)
{
    Storage *s = storage_new(r);
    int32_t loss = r->loss < 0 ? -1 : number[r->loss];
    *inst = (RematInstance){.nops = r->n,
                            .ops = s->ops,
                            .values = s->values,
                            .persistent = given(r->persistent),
                            .loss = loss,
                            .memory = s,
                            .whole = given(r->whole)};
    int32_t *ints = s->ints, *value = RM_NEW(int32_t, r->n);
    RematInPlace *inplace = s->inplace;
    RematAlt *alts = s->alts;
    bool ok = true;
    for (int32_t i = 0; i < r->n; i++) {
        value[i] = inst->nvalues;
        for (int32_t k = 0; k < r->rec[i].nout; k++)
            s->values[inst->nvalues++].bytes = r->rec[i].out[k];
        for (int32_t k = 0; k < r->rec[i].nkeep; k++)
            s->values[value[i] + r->rec[i].keep[k]].keep_to_end = true;
    }
    for (int32_t i = 0; i < r->n && ok; i++) {
        const Record *rec = &r->rec[i];
        int32_t *in = ints, *out = in + rec->nin, *barrier = out + rec->nout;
        ints = barrier + rec->nbefore;
        for (int32_t k = 0; k < rec->nin; k++)
            in[k] = value[rec->in[k].id] + rec->in[k].output;
        for (int32_t k = 0; k < rec->nout; k++)
            out[k] = value[i] + k;
        for (int32_t k = 0; k < rec->nbefore; k++)
            barrier[k] = number[rec->before[k].id];
        ok = build_inplace(r, rec, inplace);
        if (rec->nalt)
            memcpy(alts, rec->alt, sizeof *alts * (size_t)rec->nalt);
        s->ops[number[i]] = (RematOp){.cost = rec->cost,
                                      .workspace = given(rec->ws),
                                      .nin = rec->nin,
                                      .nout = rec->nout,
                                      .in = in,
                                      .out = out,
                                      .once = rec->once,
                                      .layer = (int32_t)given(rec->layer),
                                      .ninplace = rec->ninplace,
                                      .inplace = inplace,
                                      .nalt = rec->nalt,
                                      .alt = alts,
                                      .nbarrier = rec->nbefore,
                                      .barrier = barrier};
        s->ids[number[i]] = rec->id;
        inplace += rec->ninplace;
        alts += rec->nalt;
    }
    free(value);
    build_fetches(r, number, inst, s);
    if (ids)
        *ids = s->ids;
    return ok;
}

void remat_free(RematInstance *inst)
{
    Storage *s = inst->memory;
    if (s)
        MEM_FREE(s->ops, s->values, s->ints, s->inplace, s->alts, s->ids, s);
    *inst = (RematInstance){.loss = -1};
}

static void reader_free(Reader *r)
{
    for (int32_t i = 0; i < r->n; i++) {
        Record *rec = &r->rec[i];
        MEM_FREE(rec->in, rec->inplace, rec->before, rec->out, rec->keep, rec->alt);
    }
    free(r->rec);
    free(r->fetch);
}

bool remat_parse(const char *text, RematInstance *inst, const int64_t **ids,
                 char err[REMAT_ERR])
{
    Reader r = {.err = err};
    *inst = (RematInstance){.loss = -1};
    bool ok = read_lines(&r, text) && resolve_all(&r);
    int32_t *number = RM_NEW(int32_t, r.n);
    ok = ok && number_records(&r, number) && build_instance(&r, number, inst, ids) &&
         remat_check(inst, err);
    free(number);
    reader_free(&r);
    if (!ok)
        remat_free(inst);
    return ok;
}

bool remat_read(const char *path, RematInstance *inst, const int64_t **ids,
                char err[REMAT_ERR])
{
    const char *closed;
    FILE *f = file_open_text(path, &closed);
    *inst = (RematInstance){.loss = -1};
    if (!f)
        return rm_fail(err, "%.150s: %s", path, closed);
    char *text = NULL;
    size_t n = 0, cap = 0, got = 1;
    while (got > 0 && n < TEXT_MOST) {
        if (cap - n < 65536)
            text = mem_grow(text, cap = 2 * cap + 65537, 1);
        got = fread(text + n, 1, cap - n - 1, f);
        n += got;
    }
    text[n] = 0;
    fclose(f);
    if (n >= TEXT_MOST) {
        free(text);
        return rm_fail(err, "%.150s: more than %d bytes", path, TEXT_MOST);
    }
    char why[REMAT_ERR] = "";
    size_t end = strlen(text), line = 1;
    for (size_t i = 0; i < end; i++)
        line += text[i] == '\n';
    bool ok = (end == n || rm_fail(why, "line %zu: a NUL byte", line)) && remat_parse(text, inst, ids, why);
    ok = ok || rm_fail(err, "%.100s: %.150s", path, why);
    free(text);
    return ok;
}

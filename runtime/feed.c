/* feed.c -- the inputs of a step: from files, from text, or random in valid ranges.
 *
 * An integer input that reaches operands which select (gather indices, class targets), through views, slices
 * and conversions, gets their ranges: each element of the data is checked against the ranges of the operands
 * that read it (columns may have tables of their own); random data is drawn from the intersection of all. */
#include "runtime_int.h"
#include "ir/philox.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef enum { FEED_RANDOM, FEED_ROWS, FEED_TEXT } FeedKind;

/* Elements of an input that reach an operand, and the range that this allows. */
typedef struct Region {
    struct Region *next;
    IndexRange range;
    InputView view;
    bool *has; /* per element of a row: the view has it */
} Region;

typedef struct {
    Val v;
    int position;     /* index among the model's inputs */
    IndexRange range; /* intersection over all regions */
    Region *region;
    FeedKind kind;
    int entry; /* FEED_ROWS: index of the array; `type` is its type */
    Type type;
    int64_t rows,
        period;    /* number of rows of a batch and of the array; if equal, every batch has all */
    int64_t row;   /* FEED_ROWS: elements of a row, which may have any place in a batch */
    int64_t shift; /* FEED_TEXT, in bytes: 0 for tokens, 1 for targets */
} Input;

struct Feed {
    Arena arena;
    const Graph *g;
    DataFile *data;
    FeedOrder order;
    int64_t seed;
    Input *input;
    int n;
    Val batch;                 /* the input whose first dimension is the batch */
    int64_t window, text_rows; /* FEED_TEXT: tokens per row, rows per batch */
};

/* Number of windows that fit into the text one after the other. */
static int64_t text_windows(const Feed *f)
{
    return f->window ? (data_text_bytes(f->data) - 1) / f->window : 1;
}

/* ---- what the graph expects -------------------------------------------- */

static void add_region(Feed *f, Input *in, IndexRange range, const InputView *view)
{
    Region *r = NEW(&f->arena, Region, 1);
    *r = (Region){in->region, range, *view, NULL};
    in->region = r;
    in->range = range_of_both(in->range, range);
}

/* Marks what each region has of a row. */
static void mark_regions(Feed *f, Input *in, const Type *own)
{
    int64_t count = type_count(own);
    in->row = in->rows > 1 ? count / in->rows : count;
    for (Region *r = in->region; r; r = r->next) {
        r->has = NEW(&f->arena, bool, in->row + 1);
        view_mark(&r->view, in->row, r->has);
    }
}

/* Finds the ranges of each integer input.  Float targets of a loss are 0 or 1, which every such loss takes,
 * whatever the passes have made of it. */
static void find_ranges(Feed *f)
{
    typedef struct {
        Input *in;
        InputView view;
    } Source;
    const Graph *g = f->g;
    Arena tmp = {0};
    Source *from = NEW(&tmp, Source, g->nvals);
    for (int i = 0; i < f->n; i++) {
        Input *in = &f->input[i];
        const Type *t = val_type(g, in->v);
        if (!dtype_is_float(t->dt))
            from[in->v.i] = (Source){in, view_whole(t)};
        else if (strcmp(g->vals[in->v.i].name, "target") == 0)
            in->range.limit = 2;
    }
    for (uint32_t i = 0; i < g->norder; i++) {
        const Node *n = &g->nodes[g->order[i].i];
        for (int k = 0; k < n->nin; k++) {
            Source s = from[n->in[k].i];
            IndexRange range = s.in ? index_range(g, n, k) : (IndexRange){0};
            if (range.limit)
                add_region(f, s.in, range, &s.view);
            if (s.in && keeps_indices(g, n) && view_follow(&s.view, g, n))
                from[n->out[0].i] = s;
        }
    }
    arena_free(&tmp);
}

/* Per value: is it read by a node, or an output?  Allocated in a. */
static bool *values_read(const Graph *g, Arena *a)
{
    bool *read = NEW(a, bool, g->nvals);
    for (uint32_t i = 0; i < g->norder; i++) {
        const Node *n = &g->nodes[g->order[i].i];
        for (int k = 0; k < n->nin; k++)
            read[n->in[k].i] = true;
    }
    for (uint32_t k = 0; k < g->nout; k++)
        read[g->out[k].i] = true;
    return read;
}

/* ---- matching arrays --------------------------------------------------- */

/* Do x from dimension a on and y from dimension b on have the same dimensions? */
static bool same_tail(const Type *x, int a, const Type *y, int b)
{
    if (x->rank - a != y->rank - b)
        return false;
    for (int i = 0; a + i < x->rank; i++)
        if (x->dim[a + i] != y->dim[b + i])
            return false;
    return true;
}

/* Number of dimensions without those of extent 1 at the end. */
static int significant(const Type *t)
{
    int n = t->rank;
    while (n > 1 && t->dim[n - 1] == 1)
        n--;
    return n;
}

/* Do rows of x have the shape of rows of y?  [N] and [N, 1] are the same. */
static bool same_row(const Type *x, const Type *y)
{
    int n = significant(x);
    if (n != significant(y))
        return false;
    for (int i = 1; i < n; i++)
        if (x->dim[i] != y->dim[i])
            return false;
    return true;
}

/* Does the array suit the input?  Sets in->rows and in->period.  few: fewer rows than a batch has suffice. */
static bool matches(Input *in, const Type *want, bool few)
{
    const Type *t = &in->type;
    in->rows = in->period = 1;
    if (dtype_is_float(t->dt) != dtype_is_float(want->dt))
        return false;
    if (type_same_shape(t, want))
        return true;
    in->period = 0;
    if (t->rank == want->rank + 1 && same_tail(t, 1, want, 0)) {
        in->period = t->dim[0];
    } else if (t->rank == want->rank + 1 && want->rank > 0 && want->dim[0] > 0 &&
               same_tail(t, 2, want, 1) && t->dim[1] % want->dim[0] == 0) {
        in->rows = want->dim[0]; /* each entry is several micro-batches */
        in->period = t->dim[0] * t->dim[1];
    } else if (t->rank > 0 && want->rank > 0 && want->dim[0] > 0 && same_row(t, want)) {
        in->rows = want->dim[0];
        in->period = t->dim[0];
    }
    return in->period >= (few ? 1 : in->rows);
}

/* The range of element i of the array. */
static IndexRange range_at(const Input *in, int64_t i)
{
    IndexRange range = {0};
    for (const Region *r = in->region; r; r = r->next)
        if (r->has[i % in->row])
            range = range_of_both(range, r->range);
    return range;
}

static bool in_range(const IndexRange *r, int64_t v)
{
    return !r->limit || (v >= (r->negative ? -r->limit : 0) && v < r->limit) ||
           (r->has_ignore && v == r->ignore);
}

static bool fits(DType t, int64_t v)
{
    switch (t) {
    case DT_I32:
        return v >= INT32_MIN && v <= INT32_MAX;
    case DT_I8:
        return v >= INT8_MIN && v <= INT8_MAX;
    case DT_U8:
        return v >= 0 && v <= UINT8_MAX;
    default:
        return true;
    }
}

static bool check_value(const Input *in, const Type *own, const char *name, const Tensor *t, int64_t k,
                        int64_t i, Diag *d)
{
    if (dtype_is_float(t->type.dt))
        return !isnan(tensor_f(t, k)) || fail(d, "%s: element %" PRId64 " is NaN", name, i);
    int64_t v = tensor_i(t, k);
    if (!fits(own->dt, v))
        return fail(d, "%s: element %" PRId64 " is %" PRId64 ", which does not fit in %s", name, i, v,
                    dtype_name[own->dt]);
    if (in_range(&in->range, v)) /* all regions take it */
        return true;
    IndexRange r = range_at(in, i);
    return in_range(&r, v) ||
           fail(d, "%s: element %" PRId64 " is %" PRId64 ", outside [%" PRId64 ", %" PRId64 ")", name, i, v,
                r.negative ? -r.limit : 0, r.limit);
}

static bool check_values(const Feed *f, const Input *in, const char *name, Diag *d)
{
    enum { BLOCK = 1024 };
    double room[BLOCK];
    const int64_t size = BLOCK, n = type_count(&in->type);
    const Type *own = val_type(f->g, in->v);
    Tensor block = {type_make(dtype_is_float(in->type.dt) ? DT_F64 : DT_I64, 1, &size), room};
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;
        data_copy(f->data, in->entry, at, m, &block, 0);
        for (int64_t k = 0; k < m; k++)
            TRY(check_value(in, own, name, &block, k, at + k, d));
    }
    return true;
}

/* Why an array of this type does not suit the input, where a word helps. */
static const char *mismatch(const Type *is, const Type *want)
{
    if (dtype_is_float(is->dt) != dtype_is_float(want->dt))
        return dtype_is_float(want->dt) ? ": its elements have to be floats"
                                        : ": its elements have to be whole numbers";
    bool few = is->rank > 0 && want->rank > 0 && same_row(is, want) && is->dim[0] < want->dim[0];
    return few ? ": it has fewer rows than a batch" : "";
}

static bool bind_array(Feed *f, int k, Diag *d)
{
    Input *in = &f->input[k];
    const char *name = graph_model_name(f->g, in->v);
    const Type *want = val_type(f->g, in->v);
    char is[160], model[160];
    Tensor none;
    in->entry = data_find_in(f->data, "input", name, in->position);
    if (in->entry < 0)
        return data_get(f->data, name, &none, d); /* its message lists the names */
    in->kind = FEED_ROWS;
    TRY(data_shape(f->data, in->entry, &in->type, d));
    if (!matches(in, want, f->order == FEED_ONCE))
        return fail(d, "%s: the data is %s, the model wants %s%s", name, type_str(&in->type, is),
                    type_str(want, model), mismatch(&in->type, want));
    mark_regions(f, in, want);
    return check_values(f, in, name, d);
}

static bool is_cut(const Input *in) { return in->kind == FEED_ROWS && in->period != in->rows; }

/* The first input whose array is cut into batches; NULL: there is none. */
static const Input *first_cut(const Feed *f)
{
    for (int k = 0; k < f->n; k++)
        if (is_cut(&f->input[k]))
            return &f->input[k];
    return NULL;
}

/* In any order but the file's, rows of different arrays belong together if they have the same number: then
 * all arrays must have equally many rows in a batch. */
static bool check_order(const Feed *f, Diag *d)
{
    const Input *first = first_cut(f);
    if (f->order == FEED_SHUFFLED && !first)
        return fail(d, "--shuffle: %s",
                    f->text_rows ? "windows of a text are drawn at random without it"
                                 : "there is no more data than one batch");
    for (int k = 0; k < f->n && f->order != FEED_FILE; k++)
        if (is_cut(&f->input[k]) && f->input[k].rows != first->rows)
            return fail(
                d, "%s has %" PRId64 " rows in a batch, %s %" PRId64 ": they come in the file's order only",
                f->g->vals[first->v.i].name, first->rows, f->g->vals[f->input[k].v.i].name, f->input[k].rows);
    return true;
}

static bool is_target(const Feed *f, const Input *in)
{
    return in->range.target || strcmp(f->g->vals[in->v.i].name, "target") == 0;
}

/* Number of rows of a batch; 0: the input is a scalar. */
static int64_t leading_extent(const Feed *f, const Input *in) { return val_type(f->g, in->v)->dim[0]; }

static int64_t all_rows(const Feed *f, const Input *in)
{
    int64_t n = leading_extent(f, in);
    return in->period * (n ? n : 1) / in->rows;
}

/* Has each row of one its own rows of the other? */
static bool rows_pair(const Feed *f, const Input *x, const Input *y)
{
    int64_t m = leading_extent(f, x), n = leading_extent(f, y);
    return m && n && (m % n == 0 || n % m == 0);
}

/* Arrays that are cut into batches must have equally many batches.  An input of a single batch is a constant
 * beside them, but a target is not, nor is an input if only targets are cut. */
static bool check_rows(const Feed *f, Diag *d)
{
    const Input *first = first_cut(f);
    bool inputs_cut = false;
    for (int k = 0; k < f->n; k++)
        inputs_cut |= is_cut(&f->input[k]) && !is_target(f, &f->input[k]);
    for (int k = 0; first && k < f->n; k++) {
        const Input *in = &f->input[k];
        bool counts = is_cut(in) || (is_target(f, in) == inputs_cut && rows_pair(f, first, in));
        if (counts && in->period * first->rows != first->period * in->rows)
            return fail(d, "%s has %" PRId64 " rows and %s %" PRId64, f->g->vals[first->v.i].name,
                        all_rows(f, first), f->g->vals[in->v.i].name, all_rows(f, in));
    }
    return check_order(f, d);
}

Val feed_input(const Feed *f, int k) { return k >= 0 && k < f->n ? f->input[k].v : (Val){0}; }

void feed_size(const Feed *f, int64_t *rows, int64_t *batch)
{
    const Input *cut = first_cut(f);
    *rows = *batch = 1;
    if (cut) {
        *rows = cut->period;
        *batch = cut->rows;
    } else if (f->text_rows) {
        *rows = text_windows(f);
        *batch = f->text_rows;
    }
}

/* The rows of the data that a batch consists of, each repeated equally often. */
typedef struct {
    int64_t first, count;
} Part;

static int64_t largest_divisor(int64_t n, int64_t most)
{
    int64_t d = most < n ? most : n;
    while (d > 0 && n % d)
        d--;
    return d;
}

/* The rows of a step of FEED_ONCE: whole batches, then the rows left over, in numbers that divide a batch. */
static Part part_of(const Feed *f, int64_t step)
{
    int64_t rows, batch, k = step - 1;
    feed_size(f, &rows, &batch);
    int64_t whole = rows / batch;
    if (k < whole)
        return (Part){k * batch, batch};
    Part p = {whole * batch, largest_divisor(batch, rows % batch)};
    for (; k > whole && p.count; k--) {
        p.first += p.count;
        p.count = largest_divisor(batch, rows - p.first);
    }
    return p;
}

int64_t feed_count(const Feed *f, int64_t step) { return part_of(f, step).count; }

int64_t feed_weight(const Feed *f, int64_t step)
{
    Part part = part_of(f, step);
    const Input *in = f->input, *end = in + f->n;
    while (in < end && !(is_cut(in) && in->range.target && in->range.has_ignore))
        in++;
    if (in == end)
        return part.count;
    int64_t each = type_count(&in->type) / in->period, n = 0, target;
    Tensor one = {type_scalar(DT_I64), &target};
    for (int64_t i = part.first * each; i < (part.first + part.count) * each; i++) {
        data_copy(f->data, in->entry, i, 1, &one, 0);
        n += target != in->range.ignore;
    }
    return n;
}

/* ---- text -------------------------------------------------------------- */

static bool bind_text(Feed *f, Diag *d)
{
    const Type *t = NULL;
    for (int k = 0; k < f->n; k++) {
        Input *in = &f->input[k];
        const Type *own = val_type(f->g, in->v);
        if (!in->range.limit || dtype_is_float(own->dt))
            return fail(d,
                        "%s: what is no .npz, .npy, .pb or .safetensors is read as text, which gives tokens "
                        "and targets only",
                        f->g->vals[in->v.i].name);
        in->kind = FEED_TEXT;
        in->shift = in->range.target;
        if (!t || !in->range.target)
            t = own;
    }
    if (!t)
        return true;
    for (int k = 0; k < f->n; k++)
        if (type_count(val_type(f->g, f->input[k].v)) != type_count(t))
            return fail(d, "%s: as many targets as tokens are expected",
                        f->g->vals[f->input[k].v.i].name);
    f->window = t->rank ? t->dim[t->rank - 1] : 1;
    f->text_rows = f->window ? type_count(t) / f->window : 0;
    if (data_text_bytes(f->data) <= f->window)
        return fail(d, "the text has %" PRId64 " bytes, a row takes %" PRId64,
                    data_text_bytes(f->data), f->window + 1);
    return true;
}

static bool check_text(const Feed *f, Diag *d)
{
    uint8_t seen[256] = {0}, byte;
    Tensor one = {type_make(DT_U8, 1, (int64_t[]){1}), &byte};
    for (int64_t i = 0; i < data_text_bytes(f->data); i++) {
        data_text_window(f->data, i, 1, &one, 0);
        seen[byte] = 1;
    }
    for (int k = 0; k < f->n; k++)
        for (int64_t b = f->input[k].range.limit; b < 256; b++)
            if (seen[b])
                return fail(d,
                            "%s: byte %" PRId64 " of the text is outside [0, %" PRId64 ")",
                            f->g->vals[f->input[k].v.i].name, b, f->input[k].range.limit);
    return true;
}

/* Offset in the text of row `row` of a step, in bytes: a pure function of (seed, step, row). */
static int64_t text_offset(const Feed *f, int64_t step, int64_t row)
{
    if (f->order == FEED_ONCE) {
        Part p = part_of(f, step);
        return (p.first + row % p.count) * f->window;
    }
    PhiloxWords w = philox_draw(f->seed, 0x7465787473, step, row);
    uint64_t places = (uint64_t)(data_text_bytes(f->data) - f->window);
    return (int64_t)(((uint64_t)w.w0 << 32 | w.w1) % places);
}

/* ---- the interface ----------------------------------------------------- */

static bool is_fed(const Graph *g, const StepInputs *own, uint32_t v)
{
    return g->vals[v].kind == VAL_INPUT && v != own->lr.i && v != own->step.i && v != own->rng.i &&
           v != own->micro.i;
}

Val feed_batch(const Graph *g, const StepInputs *own)
{
    Arena tmp = {0};
    const bool *read = values_read(g, &tmp);
    Val found = {0};
    for (uint32_t v = 1; v < g->nvals; v++)
        if (is_fed(g, own, v) && read[v] && (!found.i || g->vals[v].batch))
            found = (Val){v};
    arena_free(&tmp);
    return found;
}

Feed *feed_open(const Graph *g, const StepInputs *own, DataFile *data, FeedOrder order, int64_t seed, Diag *d)
{
    Arena arena = {0};
    Feed *f = NEW(&arena, Feed, 1);
    *f = (Feed){
        .arena = arena, .g = g, .data = data, .order = order, .seed = seed, .batch = feed_batch(g, own)};
    f->input = NEW(&f->arena, Input, g->nvals);
    const bool *read = values_read(g, &f->arena);
    int place = 0;
    for (uint32_t v = 1; v < g->nvals; v++) {
        if (!is_fed(g, own, v))
            continue;
        place = g->vals[v].place ? (int)g->vals[v].place : place + 1;
        if (read[v])
            f->input[f->n++] = (Input){.v = {v}, .position = place - 1};
    }
    find_ranges(f);
    bool ok = true;
    if (data && data_text_bytes(data) >= 0)
        ok = bind_text(f, d) && check_text(f, d);
    else
        for (int k = 0; data && ok && k < f->n; k++)
            ok = bind_array(f, k, d);
    if (ok && check_rows(f, d))
        return f;
    feed_close(f);
    return NULL;
}

void feed_close(Feed *f)
{
    if (!f)
        return;
    Arena arena = f->arena; /* f lies in it */
    arena_free(&arena);
}

/* Elements of a row of an input's array. */
static int64_t row_elements(const Input *in) { return type_count(&in->type) / (in->period ? in->period : 1); }

/* The row of the array that is row i of batch number `batch` (from 1).  Batches follow each other through the
 * array, which starts again at its end, also within a batch. */
static int64_t data_row(const Feed *f, const Input *in, int64_t batch, int64_t i)
{
    int64_t first = (batch - 1) % in->period * in->rows, before = (batch - 1) / in->period * in->rows;
    int64_t row = (first + i) % in->period, epoch = before + (first + i) / in->period;
    if (f->order == FEED_SHUFFLED && is_cut(in))
        return shuffled(f->seed, epoch, in->period, row);
    if (f->order == FEED_ONCE && is_cut(in)) {
        Part part = part_of(f, batch);
        return part.first + i % part.count;
    }
    return row;
}

static void feed_rows(const Feed *f, const Input *in, Tensor *t, int64_t batch)
{
    int64_t each = row_elements(in);
    for (int64_t i = 0; i < in->rows; i++)
        data_copy(f->data, in->entry, data_row(f, in, batch, i) * each, each, t, i * each);
}

/* The first element of a row that is infinite or NaN in the type that the step has; -1: there is none. */
static int64_t infinite_in(const Feed *f, const Input *in, int64_t row)
{
    int64_t each = row_elements(in), room;
    Tensor one = {type_scalar(val_type(f->g, in->v)->dt), &room};
    for (int64_t i = row * each; i < (row + 1) * each; i++) {
        data_copy(f->data, in->entry, i, 1, &one, 0);
        if (!isfinite(tensor_f(&one, 0)))
            return i;
    }
    return -1;
}

const char *feed_infinite(const Feed *f, int64_t step, int64_t of, char text[FEED_TEXT_MAX])
{
    for (int k = 0; k < f->n; k++) {
        const Input *in = &f->input[k];
        bool real = in->kind == FEED_ROWS && dtype_is_float(val_type(f->g, in->v)->dt);
        for (int64_t i = 0; real && i < of * in->rows; i++) {
            int64_t batch = (step - 1) * of + i / in->rows + 1;
            int64_t at = infinite_in(f, in, data_row(f, in, batch, i % in->rows));
            if (at >= 0) {
                int64_t each = in->type.rank ? type_count(&in->type) / in->type.dim[0] : 1;
                snprintf(text, FEED_TEXT_MAX, "%.150s[%" PRId64 "] of the data is not finite; ",
                         graph_model_name(f->g, in->v), at / each);
                return text;
            }
        }
    }
    return "";
}

/* Index of the first of an input's random elements that a micro-batch has: inputs with as many rows as
 * the batch are cut into micro-batches, the others are the same in all. */
static int64_t random_first(const Feed *f, int k, int64_t micro)
{
    const Type *batch = val_type(f->g, f->batch), *t = val_type(f->g, f->input[k].v);
    bool cut = batch->rank > 0 && t->rank > 0 && t->dim[0] == batch->dim[0];
    return cut ? micro * type_count(t) : 0;
}

bool feed_step(Feed *f, Executor *x, int64_t step, Diag *d)
{
    return feed_micro(f, x, step, 0, 1, d);
}

bool feed_micro(Feed *f, Executor *x, int64_t step, int64_t micro, int64_t of, Diag *d)
{
    for (int k = 0; k < f->n; k++) {
        const Input *in = &f->input[k];
        Tensor t = exec_tensor(x, in->v);
        if (!t.data)
            continue;
        if (in->kind == FEED_ROWS)
            feed_rows(f, in, &t, (step - 1) * of + micro + 1);
        else if (in->kind == FEED_TEXT)
            for (int64_t r = 0; r < f->text_rows; r++)
                data_text_window(f->data, text_offset(f, step, micro * f->text_rows + r) + in->shift,
                                 f->window, &t, r * f->window);
        else
            random_fill(&t, f->g->vals[in->v.i].name, in->range.limit, f->seed, random_first(f, k, micro));
        TRY(exec_write(x, in->v, d));
    }
    return true;
}

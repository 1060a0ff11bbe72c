/* ckc.c -- the functions of ckc.h, built from the same parts as the commands (cli/).
 *
 * Everything that may fail is a Work, which call() runs in the way a library must: in the C locale, with a
 * failed allocation reported as an error, and with the caller's thread settings restored. */
#include "ckc.h"
#include "cli/option.h"
#include "ir/mem.h"
#include "ir/names.h"
#include <inttypes.h>
#include <locale.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define SAME(ours, its) _Static_assert((int)(ours) == (int)(its), #ours)
SAME(CKC_F32, DT_F32);
SAME(CKC_F64, DT_F64);
SAME(CKC_BF16, DT_BF16);
SAME(CKC_F16, DT_F16);
SAME(CKC_I64, DT_I64);
SAME(CKC_I32, DT_I32);
SAME(CKC_U8, DT_U8);
SAME(CKC_BOOL, DT_BOOL);
SAME(CKC_I8, DT_I8);
SAME(CKC_I8, DT_COUNT - 1);
SAME(CKC_MAX_RANK, MAX_RANK);
SAME(CKC_OK, EXIT_OK);
SAME(CKC_BAD_INPUT, EXIT_BAD_INPUT);
SAME(CKC_UNSUPPORTED, EXIT_UNSUPPORTED);
SAME(CKC_INFEASIBLE, EXIT_INFEASIBLE);
SAME(CKC_DEVICE, EXIT_DEVICE);

/* A value listed under one of its names. */
typedef struct {
    ckc_tensor tensor;
    Val of;
    const ModelName *name; /* a weight's or gradient's; NULL: the tensor is the value */
} Named;

typedef struct {
    const char *what;
    Named *named;
    uint32_t n, cap;
    NameMap at;
} List;

struct ckc_session {
    Options o;
    Arena arena; /* memory of the fields below, except the job */
    Job *job;
    bool planned, open;
    bool made; /* a step has been made: its results can be read */
    bool lost; /* memory ran out in the middle of a call: the session can only be freed */
    ckc_info info;
    Val *input;
    int ninput;
    List weight, output, gradient;
    const char **note; /* escaped */
    uint32_t nnote, cnote;
    ckc_step_fn *on_step;
    void *user;
    locale_t locale; /* the caller's */
    int threads;     /* the caller's number of OpenMP threads */
};

static const Subcommand plan_options = {
    .name = "ckc_plan",
    .groups = OPTIONS_MODEL | OPTIONS_STEP | OPTIONS_BUDGET | OPTIONS_SEARCH | OPTIONS_DATA | OPTIONS_LIBRARY,
};
static const Subcommand open_options = {.name = "ckc_open", .groups = OPTIONS_DATA | OPTIONS_LIBRARY};

/* ---- calls ----------------------------------------------------------------------------------------- */

typedef bool Work(ckc_session *s, void *given);

/* Copies the job's remarks since the last call to s->note. */
static void take_notes(ckc_session *s)
{
    for (; s->job && s->nnote < s->job->nremark; s->nnote++) {
        char *shown = text_escape(s->job->remark[s->nnote], NULL);
        s->note = arena_grow(&s->arena, s->note, s->nnote, &s->cnote, sizeof *s->note);
        s->note[s->nnote] = arena_strndup(&s->arena, shown, strlen(shown));
        free(shown);
    }
}

typedef struct {
    ckc_session *s;
    Work *work;
    void *given;
    bool ok;
} Call;

static void run_call(void *arg)
{
    Call *c = arg;
    c->ok = c->work(c->s, c->given);
    take_notes(c->s);
}

/* Runs work; false if it failed or ran out of memory, which makes the session lost. */
static bool guarded(Work *work, ckc_session *s, void *given)
{
    Call c = {s, work, given, false};
    s->lost |= !mem_try(run_call, &c);
    return c.ok && !s->lost;
}

/* Smallest feasible budget in bytes after one was refused; 0: not known. */
static int64_t least_bytes(const ckc_session *s)
{
    if (s->o.diag.status != EXIT_INFEASIBLE || !s->job || s->o.accumulate_auto)
        return 0;
    int64_t arena = s->job->info.plan.min_feasible_bytes;
    return arena > 0 ? arena + step_device(&s->o.step)->reserved : 0;
}

static bool describe(ckc_session *s, void *error)
{
    ckc_error *e = error;
    char *line = error_line(&s->o.diag, s->job ? s->job->blame : NULL);
    snprintf(e->message, sizeof e->message, "%s", line);
    free(line);
    e->status = s->o.diag.status ? s->o.diag.status : EXIT_BAD_INPUT;
    e->least_bytes = least_bytes(s);
    return true;
}

static const ckc_error no_memory = {.status = CKC_DEVICE, .message = "out of memory"};
static const ckc_error unusable = {
    .status = CKC_DEVICE,
    .message = "there was no memory in the middle of an earlier call: the session can only be freed"};

/* Runs work in the C locale, so that numbers in files and options have a decimal point. */
static ckc_error run_in_c_locale(ckc_session *s, Work *work, void *given)
{
    ckc_error e = {.status = CKC_OK};
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    s->locale = uselocale(c);
    if (!guarded(work, s, given) && (s->lost || !guarded(describe, s, &e)))
        e = no_memory;
    uselocale(s->locale);
    if (c)
        freelocale(c);
    return e;
}

/* Restores the caller's floating-point mode and number of threads. */
static void leave_threads(const ckc_session *s)
{
    fp_leave();
    omp_set_num_threads(s->threads);
}

static int call(ckc_session *s, Work *work, void *given, ckc_error *error)
{
    s->threads = omp_get_max_threads();
    s->o.diag = (Diag){0};
    if (s->job)
        s->job->blame = NULL;
    ckc_error e = s->lost ? unusable : run_in_c_locale(s, work, given);
    leave_threads(s);
    if (error)
        *error = e;
    return e.status;
}

/* ---- sessions -------------------------------------------------------------------------------------- */

const char *ckc_version(void) { return CKC_VERSION; }

typedef struct {
    const char *path;
    const char *const *options;
    const Subcommand *takes;
    bool is_schedule;
} Source;

static bool take_options(Options *o, const Source *from)
{
    options_init(o, from->takes);
    o->quiet = true;
    if (!from->path)
        return fail(&o->diag, "%s: no file is named", o->command->name);
    o->path = arena_strndup(&o->arena, from->path, strlen(from->path));
    for (const char *const *text = from->options; text && *text; text++)
        if (!from->is_schedule && strcmp(*text, "grads") == 0)
            o->step.keep_grads = true; /* the command's option names a file */
        else if (!from->is_schedule && strncmp(*text, "grads=", 6) == 0)
            return fail(&o->diag, "grads takes no value here: ckc_read_gradient() reads what it keeps");
        else
            TRY(options_set(o, arena_strndup(&o->arena, *text, strlen(*text))));
    return true;
}

/* A learning-rate schedule that falls needs a known number of steps. */
static bool check_length(const Job *j)
{
    const Options *o = j->o;
    bool falls = j->plan->run.schedule && strcmp(j->plan->run.schedule, lr_shape_name[LR_CONSTANT]) != 0;
    return !falls || o->steps >= 0 || o->epochs ||
           fail(&j->o->diag, "--schedule %s needs --steps or --epochs", j->plan->run.schedule);
}

static ckc_tensor describe_type(const Type *t, const char *name)
{
    ckc_tensor out = {.name = name, .type = (int)t->dt, .rank = t->rank};
    memcpy(out.dim, t->dim, (size_t)t->rank * sizeof *t->dim);
    return out;
}

static ckc_tensor describe_value(const Graph *g, Val v, const char *name)
{
    return describe_type(val_type(g, v), name);
}

/* Adds a value under a name, unless an earlier one has that name.  of: the name's entry; NULL: none. */
static void list_add(ckc_session *s, List *l, Val v, const char *name, const ModelName *of)
{
    if (!name_add(&l->at, name, l->n))
        return;
    Tensor t = {.type = *val_type(s->job->plan->g, v)};
    if (of)
        t = tensor_of_name(of, t, &s->arena);
    l->named = arena_grow(&s->arena, l->named, l->n, &l->cap, sizeof *l->named);
    l->named[l->n++] = (Named){describe_type(&t.type, name), v, of};
}

static int list_get(const List *l, int k, ckc_tensor *t)
{
    if (k < 0 || (uint32_t)k >= l->n)
        return 0;
    *t = l->named[k].tensor;
    return 1;
}

/* Lists weights by their names in modules. */
static void list_weights(ckc_session *s)
{
    const Graph *g = s->job->plan->g;
    s->weight = (List){.what = "weight", .at = name_map(&s->arena)};
    for (uint32_t i = 1; i < g->nvals; i++)
        for (const ModelName *m = value_is_weight(&g->vals[i]) ? g->vals[i].in_model : NULL; m; m = m->next)
            if (m->of != NAME_OF_FILE)
                list_add(s, &s->weight, (Val){i}, m->name, m);
}

/* Lists the outputs and gradients that the plan keeps to the end of a step. */
static void list_results(ckc_session *s)
{
    const Graph *g = s->job->plan->g;
    Results r = output_results(s->job);
    s->output = (List){.what = "output", .at = name_map(&s->arena)};
    s->gradient = (List){.what = "gradient", .at = name_map(&s->arena)};
    for (uint32_t i = r.loss; i < g->nout; i++) {
        list_add(s, i < r.gradients ? &s->output : &s->gradient, g->out[i], r.name[i], NULL);
        for (const ModelName *m = r.module[i]; m; m = next_module_name(m->next))
            list_add(s, &s->gradient, g->out[i], m->name, m);
    }
}

static void list_inputs(ckc_session *s)
{
    uint32_t cap = 0;
    for (Val v; (v = feed_input(s->job->feed, s->ninput)).i; s->ninput++) {
        s->input = arena_grow(&s->arena, s->input, (uint32_t)s->ninput, &cap, sizeof *s->input);
        s->input[s->ninput] = v;
    }
}

static double seconds(int64_t ns) { return ns > 0 ? 1e-9 * (double)ns : 0; }

/* Number of steps of the plan that are recomputations. */
static int64_t count_recomputed(const Plan *p, Arena *a)
{
    const uint32_t *original = plan_originals(p, a);
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nstep; i++)
        n += original[i] != i;
    return n;
}

static void set_info(ckc_session *s)
{
    const Plan *p = s->job->plan;
    s->info = (ckc_info){
        .arena_bytes = p->arena_bytes,
        .host_bytes = p->host_bytes,
        .budget_bytes = p->budget,
        .keep_all_bytes = p->keep_all_bytes,
        .least_bytes = p->min_feasible_bytes,
        .seconds = seconds(p->predicted_ns),
        .base_seconds = seconds(p->base_ns),
        .bound_seconds = seconds(p->bound_ns),
        .kernels = p->nstep,
        .recomputed = count_recomputed(p, &s->arena),
        .micro_batches = plan_batches(p),
        .steps = s->job->steps,
    };
}

static bool open_once(ckc_session *s)
{
    Job *j = s->job;
    if (s->open)
        return true;
    if (s->o.steps == 0)
        return fail(&s->o.diag, "was planned with --steps 0: nothing can be run");
    s->open = job_begin(j);
    if (!s->open) {
        exec_close(j->exec);
        j->exec = NULL;
        checkpoints_close(&j->checkpoints);
    }
    return s->open;
}

static bool make_job(ckc_session *s, bool is_schedule)
{
    Options *o = &s->o;
    PassRun how = {0};
    Job *j = s->job = job_new(o);
    j->in_schedule = is_schedule;
    TRY((is_schedule || step_check(o)) && training_check(j));
    return is_schedule ? job_read(j) : job_plan_best(&s->job, &how);
}

static bool make_session(ckc_session *s, void *given)
{
    const Source *from = given;
    TRY(take_options(&s->o, from) && make_job(s, from->is_schedule));
    TRY(check_length(s->job) && job_feed(s->job) && job_count(s->job));
    s->planned = true;
    list_inputs(s);
    list_weights(s);
    list_results(s);
    set_info(s);
    return !s->o.checkpoint || open_once(s);
}

static ckc_session *new_session(Source *from, ckc_error *e)
{
    ckc_session *s = calloc(1, sizeof *s);
    if (!s) {
        if (e)
            *e = no_memory;
        return NULL;
    }
    if (call(s, make_session, from, e) == CKC_OK)
        return s;
    ckc_free(s);
    return NULL;
}

ckc_session *ckc_plan(const char *model, const char *const *options, ckc_error *e)
{
    return new_session(&(Source){model, options, &plan_options, false}, e);
}

ckc_session *ckc_open(const char *schedule, const char *const *options, ckc_error *e)
{
    return new_session(&(Source){schedule, options, &open_options, true}, e);
}

/* If memory ran out in the middle of planning, the job may be inconsistent, so it is leaked. */
void ckc_free(ckc_session *s)
{
    if (!s)
        return;
    if (s->planned || !s->lost)
        job_free(s->job);
    arena_free(&s->arena);
    options_free(&s->o);
    free(s);
}

/* ---- what was planned ------------------------------------------------------------------------------ */

const ckc_info *ckc_get_info(const ckc_session *s) { return &s->info; }

const char *ckc_note(const ckc_session *s, int k)
{
    return k >= 0 && (uint32_t)k < s->nnote ? s->note[k] : NULL;
}

static bool write_schedule(ckc_session *s, void *folder)
{
    Job *j = s->job;
    if (j->in_schedule)
        return fail_status(&s->o.diag, EXIT_UNSUPPORTED, "is a schedule already: it is not written again");
    if (!*(const char *)folder)
        return fail(&s->o.diag, "the name of the schedule's folder is empty");
    s->o.output = arena_strndup(&s->o.arena, folder, strlen(folder));
    json_t *report = report_json(j);
    bool ok = output_folder(j, report);
    json_decref(report);
    return ok;
}

int ckc_write_schedule(ckc_session *s, const char *folder, ckc_error *e)
{
    return call(s, write_schedule, (void *)(uintptr_t)folder, e);
}

/* ---- tensors --------------------------------------------------------------------------------------- */

int ckc_input(const ckc_session *s, int k, ckc_tensor *t)
{
    const Graph *g = s->job->plan->g;
    if (k < 0 || k >= s->ninput)
        return 0;
    *t = describe_value(g, s->input[k], graph_model_name(g, s->input[k]));
    return 1;
}

int ckc_weight(const ckc_session *s, int k, ckc_tensor *t) { return list_get(&s->weight, k, t); }
int ckc_output(const ckc_session *s, int k, ckc_tensor *t) { return list_get(&s->output, k, t); }
int ckc_gradient(const ckc_session *s, int k, ckc_tensor *t) { return list_get(&s->gradient, k, t); }

/* The type of an array; false if element type, rank or shape is not a valid one. */
static bool type_of(const ckc_tensor *t, Type *type)
{
    int64_t count = 1;
    bool ok = t->type > DT_NONE && t->type < DT_COUNT && t->rank >= 0 && t->rank <= MAX_RANK;
    for (int i = 0; ok && i < t->rank; i++)
        ok = t->dim[i] >= 0 && !__builtin_mul_overflow(count, t->dim[i] ? t->dim[i] : 1, &count) &&
             count <= MAX_ELEMENTS;
    if (ok)
        *type = type_make((DType)t->type, t->rank, t->dim);
    return ok;
}

size_t ckc_tensor_bytes(const ckc_tensor *t)
{
    Type type;
    return type_of(t, &type) ? (size_t)type_bytes(&type) : 0;
}

/* ---- training -------------------------------------------------------------------------------------- */

typedef struct {
    ckc_session *s;
    int64_t steps, made;
    const ckc_tensor *arrays;
    int n;
    double *loss;
    volatile sig_atomic_t stop;
} Training;

/* Calls on_step with the caller's locale and thread settings; true if it asks to stop. */
static bool tell_step(ckc_session *s, int64_t step, double loss, double time)
{
    leave_threads(s);
    locale_t c = uselocale(s->locale);
    bool stop = s->on_step(s->user, step, loss, time) != 0;
    uselocale(c);
    return stop;
}

static void each_step(void *user, int64_t step, double loss, double time)
{
    Training *t = user;
    if (t->loss)
        t->loss[t->made] = loss;
    t->made++;
    if (t->s->on_step && tell_step(t->s, step, loss, time))
        t->stop = 1;
}

void ckc_on_step(ckc_session *s, ckc_step_fn *f, void *user)
{
    s->on_step = f;
    s->user = user;
}

static bool check_array(const ckc_tensor *a, int k, Tensor *t, Diag *d)
{
    if (!a->name)
        return fail(d, "array %d has no name", k);
    if (!type_of(a, &t->type))
        return fail(d, "%s: the array has no type, rank and shape that there are", a->name);
    t->data = (void *)(uintptr_t)a->data;
    return t->data || type_count(&t->type) == 0 || fail(d, "%s: the array has no data", a->name);
}

/* A feed that reads the given arrays instead of a file; *data is to be closed after it. */
static Feed *open_arrays(ckc_session *s, const Training *t, DataFile **data)
{
    const Plan *p = s->job->plan;
    Diag *d = &s->o.diag;
    StepInputs own = step_inputs(p->g);
    NamedTensor *v = mem_new((size_t)t->n, sizeof *v);
    bool ok = true;
    for (int k = 0; k < t->n && ok; k++) {
        v[k].name = t->arrays[k].name;
        ok = check_array(&t->arrays[k], k, &v[k].tensor, d);
    }
    *data = ok ? data_memory(t->n, v) : NULL;
    free(v);
    return ok ? feed_open(p->g, &own, *data, FEED_FILE, p->run.seed, d) : NULL;
}

static bool run_steps(ckc_session *s, Training *t, Feed *feed)
{
    Job *j = s->job;
    TrainOptions to = job_options(j, t->steps);
    to.feed = feed;
    to.finite = true;
    to.each = each_step;
    to.user = t;
    to.stop = &t->stop;
    train_result_free(&j->result);
    bool ok = train_run(j->exec, &to, &j->result, &s->o.diag);
    j->done += t->made;
    s->made |= t->made > 0;
    return ok;
}

static bool train(ckc_session *s, void *given)
{
    Training *t = given;
    DataFile *data = NULL;
    if (t->steps < 0 || t->n < 0 || (t->n && !t->arrays))
        return fail(&s->o.diag, "ckc_train: %" PRId64 " steps, %d arrays", t->steps, t->n);
    Feed *given_feed = t->n ? open_arrays(s, t, &data) : NULL;
    bool ok = (given_feed || !t->n) && open_once(s) &&
              (t->steps == 0 || run_steps(s, t, given_feed ? given_feed : s->job->feed));
    feed_close(given_feed);
    data_close(data);
    return ok;
}

int ckc_train(ckc_session *s, int64_t steps, const ckc_tensor *arrays, int n, double *loss, ckc_error *e)
{
    return call(s, train, &(Training){.s = s, .steps = steps, .arrays = arrays, .n = n, .loss = loss}, e);
}

int64_t ckc_steps(const ckc_session *s) { return s->job->done; }

/* ---- weights and results --------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    void *to;
    const void *from;
    size_t bytes;
} Elements;

/* The entry of that name and size; NULL with a message if there is none. */
static const Named *find(ckc_session *s, const List *l, const Elements *x)
{
    char hint[NEAREST_HINT];
    Nearest near;
    const uint32_t *k = name_get(&l->at, x->name);
    if (!k) {
        nearest_init(&near, x->name);
        for (uint32_t i = 0; i < l->n; i++)
            nearest_try(&near, l->named[i].tensor.name);
        diag_set(&s->o.diag, "the %s has no %s '%s'%s", l == &s->weight ? "model" : "step", l->what,
                 x->name, nearest_hint(&near, hint));
        return NULL;
    }
    const Named *named = &l->named[*k];
    size_t bytes = ckc_tensor_bytes(&named->tensor);
    if (x->bytes == bytes)
        return named;
    diag_set(&s->o.diag, "%s has %zu bytes, the caller says %zu", x->name, bytes, x->bytes);
    return NULL;
}

static void copy_out(ckc_session *s, const Elements *x, const Named *named, Tensor t)
{
    if (named->name)
        t = tensor_of_name(named->name, t, &s->job->tmp);
    memcpy(x->to, t.data, x->bytes);
    arena_free(&s->job->tmp);
}

static bool read_weight(ckc_session *s, void *given)
{
    const Elements *x = given;
    const Named *weight = find(s, &s->weight, x);
    Tensor t;
    TRY(weight && open_once(s) && output_weight(s->job, weight->of, &t));
    copy_out(s, x, weight, t);
    return true;
}

static bool read_result(ckc_session *s, const List *l, const Elements *x)
{
    if (!s->o.step.keep_grads && l->n == 0)
        return fail(&s->o.diag, "the session keeps no %s: it was planned without the option grads", l->what);
    const Named *result = find(s, l, x);
    TRY(result);
    if (!s->made)
        return fail(&s->o.diag, "%s: no step has been made", x->name);
    TRY(exec_read(s->job->exec, result->of, &s->o.diag));
    copy_out(s, x, result, exec_tensor(s->job->exec, result->of));
    return true;
}

static bool read_output(ckc_session *s, void *given) { return read_result(s, &s->output, given); }
static bool read_gradient(ckc_session *s, void *given) { return read_result(s, &s->gradient, given); }

static bool write_weight(ckc_session *s, void *given)
{
    const Elements *x = given;
    const Graph *g = s->job->plan->g;
    const Named *weight = find(s, &s->weight, x);
    TRY(weight && open_once(s));
    if (g->vals[weight->of.i].kind == VAL_CONST)
        return fail(&s->o.diag, "%s is a constant of the step: --train '%s' makes it a weight", x->name,
                    x->name);
    Tensor from = {*val_type(g, weight->of), (void *)(uintptr_t)x->from};
    if (weight->name->transposed) {
        from.type = type_make(from.type.dt, 2, (int64_t[]){from.type.dim[1], from.type.dim[0]});
        from = tensor_transposed(&from, &s->job->tmp);
    }
    bool ok = exec_replace(s->job->exec, weight->of, from.data, &s->o.diag);
    arena_free(&s->job->tmp);
    return ok;
}

int ckc_read(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *e)
{
    return call(s, read_weight, &(Elements){.name = name, .to = to, .bytes = bytes}, e);
}

int ckc_read_output(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *e)
{
    return call(s, read_output, &(Elements){.name = name, .to = to, .bytes = bytes}, e);
}

int ckc_read_gradient(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *e)
{
    return call(s, read_gradient, &(Elements){.name = name, .to = to, .bytes = bytes}, e);
}

int ckc_write(ckc_session *s, const char *name, const void *from, size_t bytes, ckc_error *e)
{
    return call(s, write_weight, &(Elements){.name = name, .from = from, .bytes = bytes}, e);
}

static bool save(ckc_session *s, void *path)
{
    Options *o = &s->o;
    o->nsave = 0;
    bool ok = parse_save(o, path) && open_once(s) && output_finite(s->job, s->job->done) &&
              output_weights(s->job);
    o->nsave = 0;
    return ok;
}

int ckc_save(ckc_session *s, const char *path, ckc_error *e)
{
    return call(s, save, (void *)(uintptr_t)path, e);
}

static bool write_checkpoint(ckc_session *s, void *unused)
{
    (void)unused;
    if (!s->o.checkpoint)
        return fail(&s->o.diag, "the session has no --checkpoint");
    TRY(open_once(s));
    return s->job->done ? job_checkpoint(s->job, s->job->done, &s->o.diag)
                        : fail(&s->o.diag, "%s: no step has been made", s->o.checkpoint);
}

int ckc_checkpoint(ckc_session *s, ckc_error *e) { return call(s, write_checkpoint, NULL, e); }

/* output.c -- the files of a run: the folder MODEL.ckc, trained weights, gradients.
 *
 * All files of the folder are complete under temporary names before the first gets its name.  The
 * schedule refers to weights in the files they are in, by paths relative to the folder; values that are in no
 * file go to consts.bin. */
#include "page.h"
#include "codegen/codegen.h"
#include "ir/file.h"
#include "ir/mem.h"
#include "ir/onnx/save.h"
#include "ir/program.h"
#include "ir/within.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INLINE_MAX = 64 }; /* larger constants are not part of the text (print.c) */

/* ---- paths --------------------------------------------------------------------------------- */

static const char *folder_of(Job *j)
{
    const char *path = j->o->path;
    if (j->o->output)
        return j->o->output;
    size_t n = strlen(path) - (has_suffix(path, ".onnx") ? strlen(".onnx") : 0);
    return arena_printf(&j->arena, "%.*s.ckc", (int)n, path);
}

/* `path` relative to the folder `from`, which is a real path; `path` itself if there is no such file. */
static const char *relative_path(Arena *a, const char *from, const char *path)
{
    char *to = file_real_path(path);
    const char *rel = path;
    if (to) {
        size_t common = 0;
        for (size_t i = 0; from[i] && from[i] == to[i]; i++)
            if (to[i + 1] == '/' && (from[i + 1] == '/' || !from[i + 1]))
                common = i + 1;
        rel = "";
        for (const char *s = from + common; (s = strchr(s, '/')) != NULL; s++)
            rel = arena_printf(a, "../%s", rel);
        rel = arena_printf(a, "%s%s", rel, to + common + 1);
    }
    free(to);
    return rel;
}

enum { CONSTS, SCHEDULE, KERNELS, REPORT, PAGE, CUDA, WEIGHTS, DATA, ONNX, ONNX_DATA, TORCH, NFILES };
static const char *const file_name[NFILES + 1] = {
    "consts.bin",  "step.ckp", "kernels.c", "report.json",    "report.html", "kernels.cu",
    "weights.bin", "data.bin", "step.onnx", "step.onnx.data", "policy.py",   NULL};

typedef struct {
    const char *option, *path; /* path NULL: the option is not given */
} Named;

/* Would writing one overwrite the other?  Not folders, whose contents stay, nor streams. */
static bool same_place(const char *x, const char *y)
{
    if (!x || !y || file_is_stream(x) || file_is_folder(x))
        return false;
    char *to_x = file_real_path(x), *to_y = file_real_path(y);
    bool same = to_x && to_y && strcmp(to_x, to_y) == 0;
    free(to_x);
    free(to_y);
    return same;
}

enum { WEIGHTS_END = 2, INPUTS_END = 5, SAVE = 11, ALL = SAVE + sizeof((Options *)0)->save / sizeof(char *) };

/* The files that options name, inputs first. */
static void find_named(const Options *o, Named f[ALL])
{
    const Named fixed[SAVE] = {{"the file", o->path},   {"--weights", o->weights},
                               {"--data", o->data},     {"--val", o->val},
                               {"--expect", o->expect}, {"--metrics", o->metrics},
                               {"--grads", o->grads},   {"--plot", o->plot},
                               {"--trace", o->trace},   {"--instance", o->step.instance},
                               {"--output", o->output}};
    memcpy(f, fixed, sizeof fixed);
    for (int i = SAVE; i < ALL; i++)
        f[i] = (Named){"--save", i - SAVE < o->nsave ? o->save[i - SAVE] : NULL};
}

bool outputs_apart(Options *o)
{
    Named f[ALL];
    find_named(o, f);
    for (int i = INPUTS_END; i < ALL; i++)
        for (int k = i < SAVE ? 0 : WEIGHTS_END; k < i; k++)
            if (same_place(f[i].path, f[k].path))
                return fail(&o->diag, "%s: is %s and %s: one would overwrite the other", f[i].path,
                            f[k].option, f[i].option);
    return true;
}

/* Is no named file one of the folder's, all of which are replaced or removed? */
static bool folder_apart(Job *j)
{
    Named f[ALL];
    find_named(j->o, f);
    for (int k = 0; k < NFILES; k++) {
        const char *path = arena_printf(&j->arena, "%s/%s", folder_of(j), file_name[k]);
        for (int i = 0; i < ALL; i++)
            if (same_place(f[i].path, path))
                return fail(&j->o->diag,
                            "%s: is %s and a file of the folder %s: one would overwrite the other", f[i].path,
                            f[i].option, folder_of(j));
    }
    return true;
}

bool saves(const Options *o, const char *suffix)
{
    for (int i = 0; i < o->nsave; i++)
        if (has_suffix(o->save[i], suffix))
            return true;
    return false;
}

/* The folder is ours to name where no option does; it cannot be made beside a model that is not there. */
static bool try_folder(Job *j)
{
    Options *o = j->o;
    Diag d = {0};
    TRY(folder_apart(j));
    if (folder_try(folder_of(j), file_name, &d))
        return true;
    if (!o->output && access(o->path, F_OK) != 0)
        return fail(&o->diag, "%s: %s", o->path, strerror(errno));
    return fail_status(&o->diag, d.status, "%.3000s%s", d.msg,
                       o->output ? "" : "; --output DIR names another folder");
}

bool output_check(Job *j)
{
    Options *o = j->o;
    TRY(training_check(j));
    if (o->save_trained && !saves(o, ".safetensors"))
        return fail(&o->diag, "--save-trained needs --save FILE.safetensors");
    TRY(j->in_schedule || try_folder(j));
    for (int i = 0; i < o->nsave; i++)
        TRY(file_try(o->save[i], &o->diag));
    return (!o->grads || file_try(o->grads, &o->diag)) && (!o->plot || file_try(o->plot, &o->diag)) &&
           (!o->trace || file_try(o->trace, &o->diag)) &&
           (!o->step.instance || file_try(o->step.instance, &o->diag));
}

/* ---- constants: bytes that lie in no file ---------------------------------------------------- */

typedef struct {
    Value *v;
    int64_t bytes;
} Loose;

static int larger_first(const void *a, const void *b)
{
    const Loose *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->v < y->v ? -1 : 1;
}

static bool uniform(const Loose *l)
{
    size_t size = (size_t)dtype_size[l->v->type.dt];
    const char *p = l->v->data;
    return memcmp(p, p + size, (size_t)l->bytes - size) == 0;
}

/* Writes each value to a place of its own; tensors filled with the same number share that of the largest. */
static void write_constants(Job *j, Graph *g, NewFile *f)
{
    bool *source = graph_sources(g, &j->tmp);
    uint32_t n = 0, nshared = 0;
    Loose *l = NEW(&j->tmp, Loose, g->nvals), *shared = NEW(&j->tmp, Loose, g->nvals);
    for (uint32_t i = 1; i < g->nvals; i++) {
        Value *v = &g->vals[i];
        if (v->data && !v->file && source[i] && type_count(&v->type) > INLINE_MAX)
            l[n++] = (Loose){v, type_bytes(&v->type)};
    }
    qsort(l, n, sizeof *l, larger_first);
    for (uint32_t i = 0; i < n; i++) {
        Value *v = l[i].v;
        bool same = uniform(&l[i]);
        uint32_t k = same ? 0 : nshared;
        while (k < nshared && (shared[k].v->type.dt != v->type.dt ||
                               memcmp(shared[k].v->data, v->data, (size_t)dtype_size[v->type.dt])))
            k++;
        v->file = "consts.bin";
        if (same && k < nshared) {
            v->offset = shared[k].v->offset;
            continue;
        }
        file_pad(f, ARENA_ALIGN);
        v->offset = f->size;
        file_write(f, v->data, (size_t)l[i].bytes);
        if (same)
            shared[nshared++] = l[i];
    }
    arena_free(&j->tmp);
}

/* Makes the paths of values' files relative to the schedule's folder, and records the files' hashes. */
static void relate_paths(Job *j, Plan *p, const char *folder)
{
    Graph *g = p->g;
    const char *last = NULL, *rel = NULL;
    for (uint32_t i = 1; i < g->nvals; i++) {
        Value *v = &g->vals[i];
        if (!v->file)
            continue;
        if (!last || strcmp(last, v->file) != 0) {
            last = v->file;
            rel = relative_path(&j->arena, folder, last);
            file_record(j, p, rel, file_hash(j, last));
        }
        v->file = rel;
    }
}

/* ---- kernels ---------------------------------------------------------------------------------- */

/* Writes every kernel of the schedule that has a text, then which step runs which kernel. */
static bool write_kernels(Job *j, NewFile *f)
{
    const Plan *p = j->plan;
    Arena a = {0};
    Program pr;
    bool ok = program_make(&pr, p, &a, &j->o->diag);
    int *func = NEW(&a, int, ok ? pr.l.nkernel + 1 : 1);
    if (ok) {
        codegen_c(f->f, pr.l.kernel, (int)pr.l.nkernel, func);
        fprintf(f->f, "\n/* Schedule: step: kernel. */\n");
    }
    for (uint32_t s = 0, k = 0; ok && s < p->nstep; s++) /* kernels come in the order of steps */
        for (uint32_t i = pr.first[s]; i < pr.first[s + 1]; i++)
            for (; !pr.l.launch[i].copy && k <= pr.l.launch[i].kernel; k++)
                fprintf(f->f, "/* %" PRIu32 ": ck_%d */\n", s, func[k]);
    arena_free(&a);
    return ok;
}

/* ---- the folder ---------------------------------------------------------------------------------- */

static bool first_value(void *user, Val v, Tensor *t, Diag *d)
{
    const Job *j = user;
    const RunDefaults *run = &j->plan->run;
    ExecOptions o = {.init = run->init ? &j->o->init : NULL, .seed = run->seed};
    return initial_value(j->plan->g, v, &o, t, d);
}

static bool write_onnx(Job *j, NewFile *model, NewFile *data)
{
    Results r = output_results(j);
    for (uint32_t i = r.gradients; i < j->plan->g->nout; i++)
        r.name[i] = arena_printf(&j->arena, "%s.grad", r.name[i]);
    OnnxStep how = {.output = r.name,
                    .noutputs = r.gradients,
                    .value = data ? first_value : NULL,
                    .user = j,
                    .data = data,
                    .data_name = file_name[ONNX_DATA]};
    return codegen_onnx(model ? model->f : NULL, j->plan, &how, &j->o->diag);
}

bool output_translates(Job *j) { return !j->o->onnx || write_onnx(j, NULL, NULL); }

/* Is file_name[i] among the files that are written? */
static bool is_wanted(const Options *o, int i)
{
    return i == TORCH                    ? o->torch
           : i == ONNX || i == ONNX_DATA ? o->onnx
           : i == WEIGHTS || i == DATA   ? o->cuda && o->record
                                         : i != CUDA || o->cuda;
}

static bool write_files(Job *j, const NewFolder *folder, const json_t *report, NewFile *f)
{
    uint64_t hash;
    TRY(files_hash(j));
    Plan p = *j->plan;
    Graph g = *p.g; /* a copy, whose values get other files */
    p.file = NULL;
    p.nfile = p.cfile = 0;
    g.vals = memcpy(NEW(&j->arena, Value, g.nvals), g.vals, g.nvals * sizeof *g.vals);
    p.g = &g;
    TRY(!f[WEIGHTS].f || job_record(j, &f[WEIGHTS], &f[DATA]));
    TRY(!f[ONNX].f || write_onnx(j, &f[ONNX], &f[ONNX_DATA]));
    p.model = p.model ? relative_path(&j->arena, folder->path, p.model) : NULL;
    p.run.data = p.run.data ? relative_path(&j->arena, folder->path, p.run.data) : NULL;
    relate_paths(j, &p, folder->path);
    write_constants(j, &g, &f[CONSTS]);
    if (f[CONSTS].size && fflush(f[CONSTS].f) == 0) {
        TRY(hash_file(f[CONSTS].temp.path, &hash, &j->o->diag));
        file_record(j, &p, "consts.bin", hash);
    }
    if (p.run.data)
        file_record(j, &p, p.run.data, data_hash(j->data));
    plan_print(&p, f[SCHEDULE].f);
    TRY(write_kernels(j, &f[KERNELS]));
    if (f[TORCH].f)
        codegen_torch(f[TORCH].f, j->plan, job_results(j));
    if (f[CUDA].f)
        TRY(codegen_cuda_schedule(f[CUDA].f, j->plan, &j->o->diag));
    report_write(report, f[REPORT].f);
    page_write(j, report, f[PAGE].f);
    return true;
}

bool output_folder(Job *j, const json_t *report)
{
    Diag *d = &j->o->diag;
    NewFile f[NFILES] = {{0}};
    NewFolder folder;
    j->folder = folder_of(j);
    TRY(folder_create(&folder, j->folder, file_name, d));
    bool ok = true;
    for (int i = 0; i < NFILES && ok; i++)
        ok = !is_wanted(j->o, i) || folder_file(&folder, file_name[i], &f[i], d);
    ok = ok && write_files(j, &folder, report, f);
    for (int i = 0; i < NFILES; i++)
        if (ok && f[i].f && (i == CONSTS || i == ONNX_DATA) && f[i].size == 0)
            file_abandon(&f[i]);
    for (int i = 0; i < NFILES; i++)
        if (ok && f[i].f)
            ok = file_commit(&f[i], d);
        else
            file_abandon(&f[i]);
    if (ok)
        return folder_commit(&folder, d);
    folder_abandon(&folder);
    return false;
}

/* ---- weights and gradients ---------------------------------------------------------------------- */

/* Weights are parameters, running statistics and frozen values. */
bool value_is_weight(const Value *v) { return v->in_model && v->kind != VAL_INPUT && v->kind != VAL_TEMP; }

/* Constants that nothing reads, and values of which only a cast is loaded, have no memory in the run. */
bool output_weight(Job *j, Val v, Tensor *t)
{
    *t = exec_tensor(j->exec, v);
    if (t->data)
        return exec_read(j->exec, v, &j->o->diag);
    t->data = graph_tensor(j->plan->g, v).data;
    if (t->data)
        return true;
    t->data = arena_alloc(&j->tmp, (size_t)type_bytes(&t->type) + 1, 1);
    return first_value(j, v, t, &j->o->diag);
}

void output_weight_end(Job *j, Val v)
{
    exec_drop(j->exec, v);
    arena_free(&j->tmp);
}

/* Is a weight that the step does not change what it is in the model's file? */
static bool is_of_file(const Job *j, const Value *v)
{
    return j->in_schedule ? files_in_model(j, v->data) : v->data && !j->o->weights;
}

/* Is a weight written into a copy of the model? */
static bool is_copied(const Value *v) { return value_is_weight(v) && v->kind != VAL_CONST; }

typedef struct {
    Val v;
    const ModelName *name;
} Weight;

/* Lists the weights under each of their names, for a copy of the model, with frozen ones, or for the modules
 * that it was made from, with --save-trained only the trained ones. */
static Weight *list_weights(const Job *j, bool copy, int *n, Arena *a)
{
    const Graph *g = j->plan->g;
    const bool *changes = graph_updated(g, a);
    Weight *w = NULL;
    uint32_t count = 0, cap = 0;
    for (uint32_t i = 1; i < g->nvals; i++) {
        const Value *v = &g->vals[i];
        if (!(copy ? is_copied(v) : value_is_weight(v) && (changes[i] || !j->o->save_trained)))
            continue;
        for (const ModelName *m = v->in_model; m; m = m->next)
            if (m->of != (copy ? NAME_OF_MODULE : NAME_OF_FILE)) {
                w = arena_grow(a, w, count, &cap, sizeof *w);
                w[count++] = (Weight){{i}, m};
            }
    }
    *n = (int)count;
    return w;
}

static bool all_finite(const Tensor *t)
{
    int64_t n = type_count(&t->type), bad = 0;
    const float *f = t->type.dt == DT_F32 ? t->data : NULL;
    for (int64_t i = 0; i < n && dtype_is_float(t->type.dt); i++)
        bad += !isfinite(f ? (double)f[i] : tensor_f(t, i));
    return !bad;
}

/* Only tensors that the step changes are checked, as a frozen one may hold anything. */
bool output_finite(Job *j, int64_t step)
{
    const Graph *g = j->plan->g;
    bool kept = j->o->nsave || j->o->checkpoint;
    for (uint32_t i = 0; i < g->nupdate && kept && j->exec; i++) {
        Val v = g->update[i].state;
        if (!value_is_weight(&g->vals[v.i]))
            continue;
        TRY(exec_read(j->exec, v, &j->o->diag));
        Tensor t = exec_tensor(j->exec, v);
        bool finite = all_finite(&t);
        exec_drop(j->exec, v);
        if (!finite)
            return fail_status(&j->o->diag, EXIT_DEVICE,
                               "'%s' is not finite after step %lld: nothing is written; try a smaller --lr, "
                               "or --clip-norm",
                               g->vals[v.i].name, (long long)step);
    }
    return true;
}

/* Opens the model that a copy is made of. */
static bool open_model(Job *j)
{
    TRY(!j->in_schedule || files_model(j));
    if (!j->model && !(j->model = onnx_open(j->model_path ? j->model_path : "", &j->o->diag)))
        return false;
    onnx_allow(j->model, j->o->allow, j->o->nallow);
    return true;
}

bool output_fits_model(Job *j)
{
    const Graph *g = j->plan->g;
    const char **name = NEW(&j->arena, const char *, g->nvals);
    bool *changes = graph_updated(g, &j->arena);
    int n = 0;
    if (!saves(j->o, ".onnx"))
        return true;
    for (uint32_t i = 1; i < g->nvals; i++)
        if (is_copied(&g->vals[i]) && g->vals[i].in_model->of != NAME_OF_MODULE &&
            (changes[i] || !is_of_file(j, &g->vals[i])))
            name[n++] = g->vals[i].in_model->name;
    j->blame = j->model_path;
    TRY(open_model(j) && onnx_save_check(j->model, n, name, &j->o->diag));
    j->blame = NULL;
    return true;
}

static bool save_onnx(Job *j, const char *path)
{
    const Graph *g = j->plan->g;
    const bool *changes = graph_updated(g, &j->tmp);
    Tensor t = {.data = NULL};
    int n;
    const Weight *w = list_weights(j, true, &n, &j->tmp);
    SaveValue *s = NEW(&j->tmp, SaveValue, n + 1);
    for (int k = 0; k < n; k++) {
        const Value *v = &g->vals[w[k].v.i];
        TRY((k && w[k - 1].v.i == w[k].v.i) || output_weight(j, w[k].v, &t));
        s[k] = (SaveValue){.name = w[k].name->name,
                           .tensor = tensor_of_name(w[k].name, t, &j->tmp),
                           .alias = w[k].name != v->in_model,
                           .same = !changes[w[k].v.i] && is_of_file(j, v)};
    }
    return open_model(j) && onnx_save(j->model, path, n, s, !j->o->training, &j->o->diag);
}

typedef struct {
    Job *j;
    const Weight *w;
} Weights;

static bool write_weight(void *user, int k, NewFile *f, Diag *d)
{
    const Weights *from = user;
    const Weight *w = &from->w[k];
    Job *j = from->j;
    Tensor t;
    (void)d;
    TRY(output_weight(j, w->v, &t));
    t = tensor_of_name(w->name, t, &j->tmp);
    file_write(f, t.data, (size_t)type_bytes(&t.type));
    output_weight_end(j, w->v);
    return true;
}

/* One weight at a time, as there may be no room for copies of all. */
static bool save_safetensors(Job *j, const char *path)
{
    Arena a = {0};
    int n;
    const Weight *w = list_weights(j, false, &n, &a);
    NamedTensor *v = NEW(&a, NamedTensor, n + 1);
    for (int k = 0; k < n; k++) {
        Tensor t = {.type = *val_type(j->plan->g, w[k].v)};
        v[k] = (NamedTensor){w[k].name->name, tensor_of_name(w[k].name, t, &a)};
    }
    bool ok = safetensors_stream(path, NULL, n, v, write_weight, &(Weights){j, w}, &j->o->diag);
    arena_free(&a);
    return ok;
}

bool output_weights(Job *j)
{
    TRY(j->in_schedule || j->o->nsave == 0 || files_hash(j));
    for (int i = 0; i < j->o->nsave; i++) {
        const char *path = j->o->save[i];
        bool ok = has_suffix(path, ".onnx") ? save_onnx(j, path) : save_safetensors(j, path);
        arena_free(&j->tmp);
        TRY(ok);
    }
    return true;
}

/* The model's outputs follow the loss, except the one that is the loss.  A schedule has its own names. */
Results output_results(Job *j)
{
    const Graph *g = j->plan->g;
    Results r = {.name = NEW(&j->arena, const char *, g->nout + 1),
                 .module = NEW(&j->arena, const ModelName *, g->nout + 1),
                 .gradients = job_results(j)};
    r.loss = j->info.loss.i || (j->in_schedule && graph_has_loss(g));
    uint32_t n = r.loss;
    if (r.loss)
        r.name[0] = "loss";
    for (uint32_t i = 0; i < j->noutput && n < r.gradients; i++)
        if (i + 1 != j->info.given)
            r.name[n++] = j->output[i];
    for (; n < r.gradients; n++)
        r.name[n] = graph_model_name(g, g->out[n]);
    for (; n < g->nout; n++) {
        Val param = j->info.trained[n - r.gradients].param;
        r.name[n] = graph_model_name(g, param);
        r.module[n] = graph_module_name(g, param);
    }
    return r;
}

/* Is it the name of a gradient, or of a result before the i-th? */
static bool is_taken(const Results *r, uint32_t nresult, uint32_t i, const char *name)
{
    bool taken = false;
    for (uint32_t k = 0; k < nresult; k++) {
        if (k >= i && k < r->gradients)
            continue;
        taken |= strcmp(r->name[k], name) == 0;
        for (const ModelName *m = r->module[k]; m; m = next_module_name(m->next))
            taken |= strcmp(m->name, name) == 0;
    }
    return taken;
}

static void add_result(Job *j, NamedTensor **v, uint32_t *n, uint32_t *cap, const char *name, Tensor t)
{
    *v = arena_grow(&j->arena, *v, *n, cap, sizeof **v);
    (*v)[(*n)++] = (NamedTensor){name, t};
}

/* Writes gradients under their parameters' names, in the file and in modules; other results whose names these
 * are become output/NAME.  The loss is the step's, which is the mean over its micro-batches. */
bool output_grads(Job *j)
{
    const Graph *g = j->plan->g;
    uint32_t n = 0, cap = 0;
    if (!j->o->grads)
        return true;
    Results r = output_results(j);
    NamedTensor *v = NULL;
    for (uint32_t i = 0; i < g->nout; i++) {
        TRY(exec_read(j->exec, g->out[i], &j->o->diag));
        Tensor t = exec_tensor(j->exec, g->out[i]);
        if (i < r.loss)
            tensor_set_f(&t, 0, j->result.loss[j->result.steps - 1]);
        while (i < r.gradients && is_taken(&r, g->nout, i, r.name[i]))
            r.name[i] = arena_printf(&j->arena, "output/%s", r.name[i]);
        add_result(j, &v, &n, &cap, r.name[i], t);
        for (const ModelName *m = r.module[i]; m; m = next_module_name(m->next))
            add_result(j, &v, &n, &cap, m->name, tensor_of_name(m, t, &j->arena));
    }
    return npz_write(j->o->grads, (int)n, v, &j->o->diag);
}

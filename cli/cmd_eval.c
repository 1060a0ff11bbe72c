/* cmd_eval.c -- `ckc eval MODEL.onnx --data IN --expect OUT`: the forward graph alone, run and
 * compared; `--suite FOLDER` does so for every folder of ONNX's test layout below FOLDER.
 *
 * A model is evaluated in its inference form unless --training is given; a suite's models are evaluated as
 * they are written, because they test operators. */
#include "cli.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 8 };

static double rtol(const Options *o) { return isnan(o->rtol) ? 1e-3 : o->rtol; }
/* Operators are tested as strictly as ONNX does; a network gets more, as its sums may be in another order. */
static double atol_of(const Options *o)
{
    return !isnan(o->atol) ? o->atol : o->suite ? 1e-7 : 1e-5;
}

/* ---- one model -------------------------------------------------------------------------- */

/* Gives the importer the data file's tensors, whose shapes bind the symbols of the inputs. */
static bool feed_import(Job *j)
{
    Options *o = j->o;
    if (!o->data)
        return true;
    TRY((j->data = data_open(o->data, &o->diag)) != NULL);
    TRY((j->model = onnx_open(o->path, &o->diag)) != NULL);
    int n = 0;
    OnnxFeed *feed = NEW(&j->arena, OnnxFeed, data_count(j->data) + 1);
    const char *name;
    for (uint32_t k = 0; (name = onnx_input_name(j->model, k)) != NULL; k++) {
        int at = data_find_in(j->data, "input", name, (int)k);
        if (at < 0 || n == data_count(j->data))
            continue;
        feed[n].name = name;
        TRY(data_tensor(j->data, at, &feed[n++].t, &o->diag));
    }
    o->step.import.feed = feed;
    o->step.import.nfeed = n;
    return true;
}

static bool find_expected(Job *j, DataFile *f, uint32_t k, Tensor *t)
{
    const char *name = onnx_output_name(j->model, k);
    int at = data_find_in(f, "output", name, (int)onnx_output_index(j->model, k));
    if (at < 0) /* fails with a message that lists the names */
        return data_get(f, name, t, &j->o->diag);
    return data_tensor(f, at, t, &j->o->diag);
}

static bool compare_all(Job *j, const Tensor *out)
{
    if (!j->o->expect)
        return true;
    DataFile *f = data_open(j->o->expect, &j->o->diag);
    bool ok = f != NULL;
    for (uint32_t k = 0; k < j->plan->g->nout && ok; k++) {
        Tensor want;
        ok = find_expected(j, f, k, &want) &&
             onnx_compare(onnx_output_name(j->model, k), &out[k], &want, rtol(j->o), atol_of(j->o),
                          &j->o->diag);
    }
    data_close(f);
    return ok;
}

/* An output as JSON; prints it as text as well if `print` is set. */
static json_t *output_json(const char *name, const Tensor *t, bool print)
{
    char type[160];
    double low = INFINITY, high = -INFINITY, sum = 0;
    int64_t n = type_count(&t->type);
    for (int64_t i = 0; i < n; i++) {
        double v = tensor_f(t, i);
        low = v < low ? v : low;
        high = v > high ? v : high;
        sum += v;
    }
    sum = plain_nan(sum);
    if (print && !n)
        print_line(stdout, "%-18s %-14s no elements", name, type_str(&t->type, type));
    else if (print)
        print_line(stdout, "%-18s %-14s min %-9.4g mean %-9.4g max %.4g", name,
                   type_str(&t->type, type), low, sum / (double)n, high);
    json_t *o = json_pack("{s:o, s:s}", "name", text_json(name), "type", type_str(&t->type, type));
    if (n && isfinite(sum)) {
        json_object_set_new(o, "min", json_real(low));
        json_object_set_new(o, "mean", json_real(sum / (double)n));
        json_object_set_new(o, "max", json_real(high));
    }
    return o;
}

static void show_outputs(const Job *j, const Tensor *out)
{
    json_t *all = json_array();
    bool print = !j->o->json && !j->o->quiet;
    uint32_t nnote;
    const OnnxNote *note = onnx_notes(j->model, &nnote);
    progress_end();
    for (uint32_t i = 0; i < nnote && print; i++)
        if (note[i].kind == ONNX_REMARK)
            print_line(stdout, "note: %s: %s", note[i].name, note[i].text);
    for (uint32_t i = 0; i < j->nremark && print; i++)
        print_line(stdout, "note: %s", j->remark[i]);
    for (uint32_t k = 0; k < j->plan->g->nout; k++)
        json_array_append_new(all, output_json(onnx_output_name(j->model, k), &out[k], print));
    json_t *o = json_pack("{s:o, s:o, s:b}", "model", text_json(j->o->path), "outputs", all, "compared",
                          j->o->expect != NULL);
    if (j->o->json)
        json_print(o, 17);
    else if (print && j->o->expect)
        puts("as expected");
    json_decref(o);
}

/* Evaluates the graph by interpretation: slow, exact to rounding, without passes or generated kernels. */
static bool evaluate_reference(Job *j, Tensor *out)
{
    const Graph *g = j->plan->g;
    StepInputs own = step_inputs(g);
    int64_t rng[2] = {j->plan->run.seed, 1};
    void **data = NEW(&j->arena, void *, g->nvals);
    TRY(job_open(j)); /* for weights and inputs as the first step has them */
    Feed *f = feed_open(g, &own, j->data, FEED_FILE, j->plan->run.seed, &j->o->diag);
    if (!f)
        return false;
    bool fed = feed_step(f, j->exec, 1, &j->o->diag);
    feed_close(f);
    TRY(fed);
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind != VAL_TEMP)
            data[i] = exec_tensor(j->exec, (Val){i}).data;
    if (own.rng.i)
        data[own.rng.i] = rng;
    TRY(graph_eval(g, data, &j->arena, &j->o->diag));
    for (uint32_t k = 0; k < g->nout; k++)
        out[k] = (Tensor){*val_type(g, g->out[k]), data[g->out[k].i]};
    return true;
}

/* Says which inputs have random values.  Without parameters some may be weights that the model was exported
 * without. */
static void mention_random(Job *j)
{
    const Graph *g = j->plan->g;
    const char *names = "";
    uint32_t n = 0, parameters = 0;
    for (uint32_t i = 1; i < g->nvals && !j->o->data; i++) {
        parameters += g->vals[i].kind == VAL_PARAM;
        if (g->vals[i].kind == VAL_INPUT && g->vals[i].in_model && n++ < 3)
            names =
                arena_printf(&j->arena, "%s%s%s", names, n > 1 ? ", " : "", graph_model_name(g, (Val){i}));
    }
    if (n > 3)
        names = arena_printf(&j->arena, "%s and %u more", names, n - 3);
    if (n)
        job_remark(j, arena_printf(&j->arena, "%s: random inputs in valid ranges; --data FILE gives others%s",
                                   names, parameters ? "" : ", --weights FILE or --init those of weights"));
}

static bool evaluate(Job *j)
{
    Options *o = j->o;
    const char *without = "loss,autodiff,optimize,remat";
    PassRun how = {.disable = o->disable ? arena_printf(&j->arena, "%s,%s", without, o->disable) : without,
                   .dump = o->dump, .time = o->time_passes};
    o->step.import.forward_only = true;
    o->step.import.inference = !o->training;
    o->step.import.weights = o->weights != NULL;
    o->step.loss = LOSS_NONE;
    o->step.optim = OPTIM_NONE;
    TRY(feed_import(j) && job_plan(j, &how));
    mention_random(j);
    const Graph *g = j->plan->g;
    Tensor *out = NEW(&j->arena, Tensor, g->nout + 1);
    if (o->reference) {
        TRY(evaluate_reference(j, out));
    } else {
        TRY(job_train(j));
        for (uint32_t k = 0; k < g->nout; k++) {
            TRY(exec_read(j->exec, g->out[k], &o->diag));
            out[k] = exec_tensor(j->exec, g->out[k]);
        }
    }
    j->blame = o->path;
    TRY(compare_all(j, out));
    show_outputs(j, out);
    return true;
}

/* ---- a suite -------------------------------------------------------------------------------- */

typedef struct {
    const Options *o;
    json_t *models;
    int count[3]; /* by OnnxVerdict */
} Suite;

static const char *const verdict_name[] = {"passed", "refused", "failed"};

static void check_folder(Suite *s, const char *folder)
{
    Diag why = {0};
    OnnxVerdict v = onnx_check_folder(folder, rtol(s->o), atol_of(s->o), &why);
    why.msg[strcspn(why.msg, "\n")] = 0;
    s->count[v]++;
    if (!s->o->json && !s->o->quiet && v != ONNX_PASSED)
        print_line(stdout, "%-8s %s: %s", verdict_name[v], folder, why.msg);
    json_array_append_new(s->models, json_pack("{s:o, s:s, s:o}", "folder", text_json(folder), "verdict",
                                               verdict_name[v], "reason", text_json(why.msg)));
}

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

static bool is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool walk(Suite *s, const char *folder, int depth, Diag *d)
{
    struct dirent **entry;
    Arena a = {0};
    if (access(arena_printf(&a, "%s/model.onnx", folder), R_OK) == 0) {
        check_folder(s, folder);
        arena_free(&a);
        return true;
    }
    int n = depth < MAX_DEPTH ? scandir(folder, &entry, visible, alphasort) : 0;
    bool ok = n >= 0 || fail(d, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *path = arena_printf(&a, "%s/%s", folder, entry[i]->d_name);
        ok = ok && (!is_folder(path) || walk(s, path, depth + 1, d));
        free(entry[i]);
    }
    if (n >= 0 && depth < MAX_DEPTH)
        free(entry);
    arena_free(&a);
    return ok;
}

static bool run_suite(Options *o)
{
    Suite s = {.o = o, .models = json_array()};
    bool ok = walk(&s, o->path, 0, &o->diag) &&
              (json_array_size(s.models) ||
               fail(&o->diag, "%s: no model.onnx in it, nor in a folder below it", o->path));
    json_t *all = json_pack("{s:i, s:i, s:i, s:O}", "passed", s.count[0], "refused", s.count[1],
                            "failed", s.count[2], "models", s.models);
    if (ok && o->json)
        json_print(all, 17);
    else if (ok && !o->quiet)
        printf("%d passed, %d refused, %d failed\n", s.count[0], s.count[1], s.count[2]);
    json_decref(all);
    json_decref(s.models);
    if (ok && s.count[ONNX_FAILED])
        o->diag = (Diag){.failed = true}; /* the reasons have been printed */
    return ok && !s.count[ONNX_FAILED];
}

int cmd_eval(Options *o)
{
    Job *j = job_new(o);
    bool unused = !o->suite && !o->expect && !(isnan(o->rtol) && isnan(o->atol));
    bool ok = (o->path || fail(&o->diag, "no model given")) &&
              (!unused || fail(&o->diag, "--rtol and --atol need --expect or --suite")) &&
              (o->suite ? run_suite(o) : evaluate(j));
    int status = job_status(j, ok);
    job_free(j);
    return status;
}

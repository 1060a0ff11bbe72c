/* report.c -- the report of a run: a summary to read, and JSON with stable keys (docs/formats.md). */
#include "plot.h"
#include "ir/mem.h"
#include "ir/uses.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 6 };

/* Bytes of the process's largest resident set, with the arena; 0: unknown. */
static int64_t resident_bytes(void)
{
    char line[128];
    int64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %" SCNd64, &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

/* ---- what is recomputed: steps that run again, by kernel ---------------------------------------- */

typedef struct {
    char label[80]; /* the operators of the kernel */
    int64_t bytes, ns;
    uint32_t times;
} Repeat;

static int64_t bytes_of(const Plan *p, uint32_t s)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < p->step[s].count; k++) {
        const Node *n = &p->g->nodes[p->g->order[p->step[s].first + k].i];
        for (int i = 0; i < n->nout; i++)
            if (p->offset[n->out[i].i] >= 0)
                bytes += type_bytes(val_type(p->g, n->out[i]));
    }
    return bytes;
}

static int longest_first(const void *a, const void *b)
{
    const Repeat *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? 1 : -1;
    return strcmp(x->label, y->label);
}

/* Recomputations by kernel, sorted by time; *steps: their number in all.  The caller frees the result. */
static Repeat *find_repeats(const Plan *p, uint32_t *n, uint32_t *steps)
{
    Repeat *r = mem_new(p->nstep + 1, sizeof *r);
    Arena a = {0};
    const uint32_t *original = plan_originals(p, &a);
    *n = *steps = 0;
    for (uint32_t s = 0; s < p->nstep; s++) {
        char label[80];
        if (original[s] == s || step_copies(p, s))
            continue;
        step_label(p, s, label, sizeof label);
        uint32_t k = 0;
        while (k < *n && strcmp(r[k].label, label) != 0)
            k++;
        if (k == *n)
            memcpy(r[(*n)++].label, label, sizeof label);
        r[k].bytes += bytes_of(p, s);
        r[k].ns += p->step[s].cost_ns;
        r[k].times++;
        ++*steps;
    }
    arena_free(&a);
    qsort(r, *n, sizeof *r, longest_first);
    return r;
}

/* ---- slowest steps, when they were timed ----------------------------------------------------------- */

typedef struct {
    uint32_t step;
    double seconds;
} Timed;

static int slowest_first(const void *a, const void *b)
{
    const Timed *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static Timed *sort_steps(const Job *j)
{
    const Plan *p = j->plan;
    Timed *t = mem_new(p->nstep + 1, sizeof *t);
    for (uint32_t s = 0; s < p->nstep; s++)
        t[s] = (Timed){s, j->result.seconds[s]};
    qsort(t, p->nstep, sizeof *t, slowest_first);
    return t;
}

/* ---- the summary ------------------------------------------------------------------------------------ */

static void print_memory(const Plan *p, FILE *f)
{
    char a[32], b[32];
    fprintf(f, "memory      %s with everything stored, %s planned", bytes_str(p->keep_all_bytes, a),
            bytes_str(p->arena_bytes, b));
    if (p->budget)
        fprintf(f, ", budget %s", bytes_str(p->budget, a));
    if (p->budget && p->reserved)
        fprintf(f, " with %s for driver and libraries", bytes_str(p->reserved, a));
    fputs("\nat the peak       stored     planned\n", f);
    for (int k = 0; k < MEM_KINDS; k++)
        if (p->mem[k] || p->keep_all_mem[k])
            fprintf(f, "  %-12s %11s %11s\n", mem_kind_name[k], bytes_str(p->keep_all_mem[k], a),
                    bytes_str(p->mem[k], b));
}

/* Copies of values that are moved to the host's memory. */
typedef struct {
    uint32_t out, in; /* copies there and back */
    int64_t fetched;  /* bytes that come back */
} Copies;

static Copies count_copies(const Plan *p)
{
    Copies c = {0};
    for (uint32_t s = 0; s < p->nstep; s++) {
        bool fetch = step_copies(p, s) && p->g->nodes[p->g->order[p->step[s].first].i].op == OP_fetch;
        c.out += step_copies(p, s) && !fetch;
        c.in += fetch;
        c.fetched += fetch ? bytes_of(p, s) : 0;
    }
    return c;
}

static void print_copies(const Plan *p, FILE *f)
{
    char fetched[32], host[32];
    Copies c = count_copies(p);
    if (c.out)
        fprintf(f, "offloaded   %u values, fetched %u times, %s; %s of host memory\n", c.out, c.in,
                bytes_str(c.fetched, fetched), bytes_str(p->host_bytes, host));
}

static void print_repeats(const Plan *p, FILE *f)
{
    char buf[32];
    uint32_t n, steps;
    Repeat *r = find_repeats(p, &n, &steps);
    uint32_t copies = 0;
    for (uint32_t s = 0; s < p->nstep; s++)
        copies += step_copies(p, s);
    fprintf(f, "recomputed  %u of %u kernels%s\n", steps, p->nstep - steps - copies,
            steps ? "; most time in" : "");
    for (uint32_t i = 0; i < n && i < TOP; i++)
        fprintf(f, "  %4u x %-44s %9.2f ms %11s\n", r[i].times, r[i].label, ns_ms(r[i].ns),
                bytes_str(r[i].bytes, buf));
    free(r);
}

static void print_time(const Job *j, FILE *f)
{
    const Plan *p = j->plan;
    char ms[32];
    fprintf(f, "time        predicted %s, %+.2f %% for recomputation%s (lower bound %+.2f %%)",
            ms_str(p->predicted_ns, ms), 100 * part_over(p->predicted_ns, p->base_ns),
            p->host_bytes ? " and copies" : "", 100 * part_over(p->bound_ns, p->base_ns));
    if (j->result.steps)
        fprintf(f, "; measured %s%s", ms_str(llround(1e9 * j->result.median), ms),
                j->result.steps == 1 ? " (one step, cold)" : "");
    fputc('\n', f);
    if (!j->o->profile || !j->result.seconds)
        return;
    Timed *t = sort_steps(j);
    for (uint32_t i = 0; i < p->nstep && i < 2 * TOP; i++) {
        char label[80];
        step_label(p, t[i].step, label, sizeof label);
        fprintf(f, "  step %-6u %-44s %9.3f ms, predicted %9.3f ms\n", t[i].step, label, 1e3 * t[i].seconds,
                ns_ms(p->step[t[i].step].cost_ns));
    }
    free(t);
}

/* Prints remarks, with those of the same text as one line. */
static void print_notes(const OnnxNote *note, uint32_t n, FILE *f)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = 0, same = 0;
        if (note[i].kind != ONNX_REMARK)
            continue;
        while (note[first].kind != ONNX_REMARK || strcmp(note[first].text, note[i].text) != 0)
            first++;
        if (first < i)
            continue;
        for (uint32_t k = i + 1; k < n; k++)
            same += note[k].kind == ONNX_REMARK && strcmp(note[k].text, note[i].text) == 0;
        char more[32] = "";
        if (same)
            snprintf(more, sizeof more, " and %u more", same);
        print_line(f, "note        %s%s: %s", note[i].name, more, note[i].text);
    }
}

/* Writes the names of types, "f32" or "bf16+f32". */
static void name_types(const bool has[DT_COUNT], char buf[32])
{
    size_t n = 0;
    *buf = 0;
    for (int dt = DT_COUNT - 1; dt > DT_NONE; dt--)
        if (has[dt] && n < 32)
            n += (size_t)snprintf(buf + n, 32 - n, "%s%s", n ? "+" : "", dtype_name[dt]);
}

const char *precision_of(const Graph *g, char buf[64])
{
    bool reads[DT_COUNT] = {0}, holds[DT_COUNT] = {0}, any = false;
    char products[32], weights[32];
    bool tf32 = false;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        if (node_def(n)->in == IN_HALF)
            any = reads[val_type(g, n->in[0])->dt] = true;
        const int64_t *rounds = node_whole(n, "tf32");
        tf32 |= rounds && *rounds;
    }
    for (uint32_t i = 1; i < g->nvals; i++)
        if (g->vals[i].kind == VAL_PARAM && !g->vals[i].cast_of.i)
            holds[g->vals[i].type.dt] = true;
    if (!any && g->nout)
        reads[val_type(g, g->out[0])->dt] = true;
    name_types(reads, products);
    name_types(holds, weights);
    bool same = !*weights || strcmp(products, weights) == 0;
    snprintf(buf, 64, same ? "%s%s" : "%s%s (weights %s)", tf32 ? "t" : "", products, weights);
    return buf;
}

static const char *device_of(const Plan *p) { return p->device ? p->device : devices_here[0]->name; }

/* The share of the predicted time that was measured; -1: not known. */
static double measured_share(const Plan *p)
{
    if (p->measured_ns < 0)
        return -1;
    return p->predicted_ns > 0 ? (double)p->measured_ns / (double)p->predicted_ns : 0;
}

static void print_device(const Plan *p, FILE *f)
{
    char precision[64], threads[32] = "", times[64] = "";
    double share = measured_share(p);
    if (p->threads)
        snprintf(threads, sizeof threads, ", %u threads", p->threads);
    if (share == 0)
        snprintf(times, sizeof times, "; times estimated");
    else if (share > 0)
        snprintf(times, sizeof times,
                 share >= 0.995 ? "; times measured" : "; times %.0f %% measured, else estimated",
                 100 * share);
    print_line(f, "device      %s%s, %s%s", device_of(p), threads, precision_of(p->g, precision),
               times);
}

static const char *data_used(const char *data)
{
    return data ? data : "none given, random inputs in valid ranges";
}

static void print_schedule(const Job *j, FILE *f)
{
    const RunDefaults *r = &j->plan->run;
    print_line(f, "schedule    %s, from %s", j->o->path, j->model_path ? j->model_path : "a graph");
    print_line(f, "step        lr %g, seed %lld; data: %s", r->lr, (long long)r->seed,
               data_used(r->data));
}

/* The fastest trial of micro-batches without recomputation; NULL: none.  Trial 0 is one batch. */
static const Trial *find_alone(const Job *j)
{
    const Trial *best = NULL;
    for (uint32_t i = 1; i < j->ntrial; i++) {
        const Trial *t = &j->trial[i];
        if (!t->why && !t->recomputed && (!best || t->ns < best->ns))
            best = t;
    }
    return best;
}

static void print_alone(const Trial *t, FILE *f)
{
    char ms[32];
    if (t && !t->why)
        fprintf(f, "predicted %s", ms_str(t->ns, ms));
    else
        fputs("over the budget", f);
}

static void print_trials(const Job *j, FILE *f)
{
    const Trial *t = find_alone(j);
    fputs("            one batch with recomputation: ", f);
    print_alone(&j->trial[0], f);
    if (t)
        fprintf(f, "; %" PRId64 " micro-batches without: ", t->k);
    else
        fputs("; micro-batches without: ", f);
    print_alone(t, f);
    fputc('\n', f);
}

/* The name of the loss: with LOSS_AUTO the one that was found, "of the model" if the model has it. */
const char *loss_used(const Job *j)
{
    LossKind kind = j->o->step.loss;
    if (kind == LOSS_AUTO && j->info.target.i)
        kind = j->info.appended;
    return kind == LOSS_AUTO ? "of the model" : loss_name[kind];
}

/* The names of the first trained parameters: three at most, and as many as a line has room for. */
static const char *trained_names(const Job *j, Arena *a)
{
    enum { FIRST = 3, ROOM = 60 };
    const char *names = "";
    uint32_t n = j->info.ntrained, i = 0;
    for (; i < n && i < FIRST; i++) {
        const char *name = j->plan->g->vals[j->info.trained[i].param.i].name;
        if (i && strlen(names) + strlen(name) > ROOM)
            break;
        names = arena_printf(a, "%s%s%s", names, i ? ", " : ": ", name);
    }
    return i < n ? arena_printf(a, "%s, ...", names) : names;
}

static void print_model(const Job *j, FILE *f)
{
    const StepOptions *o = &j->o->step;
    Arena a = {0};
    int64_t elements = 0;
    uint32_t nnotes = 0, frozen = 0;
    const OnnxNote *note = j->model ? onnx_notes(j->model, &nnotes) : NULL;
    for (uint32_t i = 0; i < j->info.ntrained; i++)
        elements += type_count(val_type(j->plan->g, j->info.trained[i].param));
    for (uint32_t i = 0; i < nnotes; i++)
        frozen += note[i].kind == ONNX_FROZEN;
    print_line(f, "model       %s", j->model_path);
    print_line(f, "trains      %u tensors, %" PRId64 " elements%s; %u frozen", j->info.ntrained, elements,
               trained_names(j, &a), frozen);
    arena_free(&a);
    print_line(f, "step        loss %s, %s, lr %g; data: %s", loss_used(j), optim_name[o->optim],
               j->plan->run.lr, data_used(j->o->data));
    if (j->plan->accumulate > 1)
        fprintf(f, "            %" PRId64 " micro-batches a step: gradients are added up, the loss is "
                "their mean\n", j->plan->accumulate);
    if (j->ntrial > 1)
        print_trials(j, f);
    print_notes(note, nnotes, f);
}

static void print_losses(const TrainResult *r, FILE *f)
{
    if (r->scale > 0)
        fprintf(f, "loss scale  %g; %" PRId64 " of %" PRId64 " steps skipped, whose gradients overflowed\n",
                r->scale, r->skipped, r->steps);
    if (!r->steps || isnan(r->loss[0]))
        return;
    if (r->steps == 1)
        fprintf(f, "loss        %.9g\n", r->loss[0]);
    else
        fprintf(f, "loss        %.6g at step %" PRId64 ", %.6g at step %" PRId64 "\n", r->loss[0],
                r->first + 1, r->loss[r->steps - 1], r->first + r->steps);
}

static void print_validation(const Job *j, FILE *f)
{
    char bytes[32];
    if (!j->val)
        return;
    const Job *v = validation_job(j->val);
    for (uint32_t i = 0; i < v->nremark; i++)
        print_line(f, "note        %s", v->remark[i]);
    fprintf(f, "validation  %s beside the step", bytes_str(v->plan->arena_bytes, bytes));
    if (j->nval)
        fprintf(f, "; loss %.6g after step %" PRId64, j->val_loss[j->nval - 1], j->val_step[j->nval - 1]);
    fputc('\n', f);
}

static void print_summary(const Job *j, FILE *f)
{
    if (j->in_schedule)
        print_schedule(j, f);
    else
        print_model(j, f);
    for (uint32_t i = 0; i < j->nremark; i++)
        print_line(f, "note        %s", j->remark[i]);
    print_device(j->plan, f);
    print_memory(j->plan, f);
    if (j->o->memory && !j->in_schedule)
        memory_print(j, f);
    print_time(j, f);
    print_repeats(j->plan, f);
    print_copies(j->plan, f);
    print_losses(&j->result, f);
    print_validation(j, f);
    if (j->folder)
        print_line(f, "wrote       %s/, with report.html to look at", j->folder);
}

void report_print(const Job *j, FILE *f)
{
    enum { LABEL = 12 };
    char *summary;
    size_t size;
    FILE *m = mem_stream(&summary, &size);
    print_summary(j, m);
    mem_stream_end(m);
    progress_end();
    print_lines(f, summary, LABEL);
    free(summary);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static json_t *text(const char *s) { return s ? text_json(s) : json_null(); }

static json_t *kinds_json(const int64_t *mem)
{
    json_t *o = json_object();
    for (int k = 0; k < MEM_KINDS; k++)
        object_put(o, mem_kind_name[k], json_integer(mem[k]));
    return o;
}

static json_t *shape_json(const Type *t)
{
    json_t *a = json_array();
    for (int i = 0; i < t->rank; i++)
        array_put(a, json_integer(t->dim[i]));
    return a;
}

static json_t *trainable_json(const Job *j)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < j->info.ntrained; i++) {
        Val v = j->info.trained[i].param;
        const Type *t = val_type(j->plan->g, v);
        json_t *o = json_object();
        const ModelName *module = graph_module_name(j->plan->g, v);
        object_put(o, "name", text_json(graph_model_name(j->plan->g, v)));
        if (module)
            object_put(o, module->transposed ? "transpose_of" : "parameter", text_json(module->name));
        object_put(o, "dtype", json_string(dtype_name[t->dt]));
        object_put(o, "shape", shape_json(t));
        array_put(a, o);
    }
    return a;
}

static json_t *notes_json(const Job *j, bool frozen)
{
    json_t *a = json_array();
    uint32_t n = 0;
    const OnnxNote *note = j->model ? onnx_notes(j->model, &n) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (note[i].kind == ONNX_TRAINED || (note[i].kind == ONNX_FROZEN) != frozen)
            continue;
        json_t *o = json_object();
        object_put(o, "name", text(note[i].name));
        object_put(o, "reason", text(note[i].text));
        array_put(a, o);
    }
    for (uint32_t i = 0; i < j->nremark && !frozen; i++) {
        json_t *o = json_object();
        object_put(o, "name", json_null());
        object_put(o, "reason", text(j->remark[i]));
        array_put(a, o);
    }
    return a;
}

static void set_repeats(json_t *o, const Plan *p)
{
    uint32_t n, steps;
    Repeat *r = find_repeats(p, &n, &steps);
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *e = json_object();
        object_put(e, "kernel", text_json(r[i].label));
        object_put(e, "times", json_integer(r[i].times));
        object_put(e, "predicted_ms", real_json(ns_ms(r[i].ns)));
        object_put(e, "bytes", json_integer(r[i].bytes));
        array_put(a, e);
    }
    free(r);
    object_put(o, "steps", json_integer(p->nstep));
    object_put(o, "recomputed_steps", json_integer(steps));
    object_put(o, "recomputed", a);
}

static void set_copies(json_t *o, const Plan *p)
{
    Copies c = count_copies(p);
    object_put(o, "offloaded", json_integer(c.out));
    object_put(o, "fetched", json_integer(c.in));
    object_put(o, "fetched_bytes", json_integer(c.fetched));
    object_put(o, "host_bytes", json_integer(p->host_bytes));
}

static json_t *losses_json(const TrainResult *r)
{
    json_t *a = json_array();
    for (int64_t i = 0; i < r->steps; i++)
        array_put(a, real_json(r->loss[i]));
    return a;
}

static json_t *validation_json(const Job *j)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < j->nval; i++)
        array_put(a, json_pack("{s:I, s:o}", "step", (json_int_t)j->val_step[i], "loss",
                               real_json(j->val_loss[i])));
    return a;
}

static json_t *profile_json(const Job *j)
{
    const Plan *p = j->plan;
    json_t *a = json_array();
    for (uint32_t s = 0; s < p->nstep && j->result.seconds; s++) {
        char label[80];
        step_label(p, s, label, sizeof label);
        json_t *o = json_object();
        object_put(o, "kernel", text_json(label));
        object_put(o, "predicted_ms", real_json(ns_ms(p->step[s].cost_ns)));
        object_put(o, "measured_ms", real_json(1e3 * j->result.seconds[s]));
        array_put(a, o);
    }
    return a;
}

static json_t *trials_json(const Job *j)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < j->ntrial; i++) {
        const Trial *t = &j->trial[i];
        json_t *o = json_object();
        object_put(o, "accumulate", json_integer(t->k));
        object_put(o, "predicted_ms", t->why ? json_null() : real_json(ns_ms(t->ns)));
        object_put(o, "arena_bytes", t->why ? json_null() : json_integer(t->bytes));
        object_put(o, "recomputed_steps", t->why ? json_null() : json_integer(t->recomputed));
        object_put(o, "reason", text(t->why));
        array_put(a, o);
    }
    return a;
}

static void set_plan(json_t *o, const Job *j)
{
    char hash[20];
    const Plan *p = j->plan;
    snprintf(hash, sizeof hash, "%016" PRIx64, p->model_hash);
    object_put(o, "model", text(j->model_path));
    object_put(o, "model_hash", json_string(hash));
    object_put(o, "reserved_bytes", json_integer(p->reserved));
    object_put(o, "budget_bytes", p->budget ? json_integer(p->budget) : json_null());
    object_put(o, "arena_bytes", json_integer(p->arena_bytes));
    object_put(o, "live_bytes", json_integer(p->live_bytes));
    object_put(o, "keep_all_bytes", json_integer(p->keep_all_bytes));
    object_put(o, "min_feasible_bytes",
               p->min_feasible_bytes ? json_integer(p->min_feasible_bytes) : json_null());
    object_put(o, "memory", kinds_json(p->mem));
    object_put(o, "keep_all_memory", kinds_json(p->keep_all_mem));
    object_put(o, "predicted_ms", real_json(ns_ms(p->predicted_ns)));
    object_put(o, "keep_all_ms", real_json(ns_ms(p->base_ns)));
    object_put(o, "bound_ms", real_json(ns_ms(p->bound_ns)));
    object_put(o, "overhead", real_json(part_over(p->predicted_ns, p->base_ns)));
    object_put(o, "lower_bound", real_json(part_over(p->bound_ns, p->base_ns)));
    set_repeats(o, p);
    set_copies(o, p);
    object_put(o, "accumulate", json_integer(plan_batches(p)));
    double share = measured_share(p);
    char precision[64];
    object_put(o, "device", text(device_of(p)));
    object_put(o, "precision", text(precision_of(p->g, precision)));
    object_put(o, "measured_share", share >= 0 ? json_real(share) : json_null());
    object_put(o, "threads", p->threads ? json_integer(p->threads) : json_null());
    object_put(o, "lr", real_json(p->run.lr));
    object_put(o, "seed", json_integer(p->run.seed));
    object_put(o, "init", text(p->run.init));
    object_put(o, "data", text(p->run.data));
}

json_t *report_json(const Job *j)
{
    json_t *o = json_object();
    const TrainResult *r = &j->result;
    object_put(o, "version", json_string(CKC_VERSION));
    set_plan(o, j);
    if (!j->in_schedule) {
        object_put(o, "loss", json_string(loss_used(j)));
        object_put(o, "optimizer", json_string(optim_name[j->o->step.optim]));
        double clip = j->o->step.clip_norm;
        object_put(o, "clip_norm", clip > 0 ? json_real(clip) : json_null());
        object_put(o, "accumulate_tried", j->ntrial ? trials_json(j) : json_null());
        object_put(o, "trainable", trainable_json(j));
        object_put(o, "frozen", notes_json(j, true));
        memory_json(j, o);
        object_put(o, "plan_seconds", real_json(j->plan_seconds));
        object_put(o, "solve_seconds", real_json(j->info.solve_seconds));
    }
    object_put(o, "notes", notes_json(j, false));
    object_put(o, "resident_bytes", json_integer(resident_bytes()));
    object_put(o, "resumed", j->o->resume ? json_integer(r->first) : json_null());
    object_put(o, "losses", losses_json(r));
    object_put(o, "val_losses", validation_json(j));
    object_put(o, "val_bytes",
               j->val ? json_integer(validation_job(j->val)->plan->arena_bytes) : json_null());
    object_put(o, "loss_scale", r->scale > 0 ? json_real(r->scale) : json_null());
    object_put(o, "skipped_steps", json_integer(r->skipped));
    object_put(o, "measured_ms", r->steps ? real_json(1e3 * j->result.median) : json_null());
    if (j->o->profile && r->seconds)
        object_put(o, "profile", profile_json(j));
    object_put(o, "sweep", j->sweep ? json_incref(j->sweep->json) : json_null());
    return o;
}

void report_write(const json_t *report, FILE *f)
{
    char *text = dump_json(report, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fprintf(f, "%s\n", text);
    free(text);
}

/* golden.c -- checks golden files of passes: the text of the result, and its values against those before. */
#include "tests.h"
#include "golden.h"
#include "ir/program.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char begin_mark[] = "# >>> ", end_mark[] = "# <<<\n";

char *golden_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s cannot be opened", path);
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    ck_assert_msg(n > 0, "%s is empty", path);
    return text;
}

bool golden_parse(Golden *s, const char *text, bool wide)
{
    memset(s, 0, sizeof *s);
    s->opt = (StepOptions){.number = optim_unsaid, .threads = 1, .max_moves = 2000};
    s->opt.number.lr = 0.01;
    const char *end = strstr(text, begin_mark);
    ck_assert_msg(end != NULL, "a line '%s' is missing", begin_mark);
    char *own = arena_strndup(&s->arena, text, (size_t)(end - text));
    for (char *p = own; wide && (p = strstr(p, "f32")) != NULL;)
        memcpy(p, "f64", 3);
    graph_init(&s->g, &s->arena, &s->diag);
    return graph_parse(&s->g, own, &s->diag) && graph_verify(&s->g, &s->diag);
}

void golden_free(Golden *s)
{
    arena_free(&s->tmp);
    arena_free(&s->arena);
}

static int row_of(const char *const *names, const char *value)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], value) == 0)
            return i;
    ck_abort_msg("unknown value '%s'", value);
}

static void set_option(Golden *s, char *option)
{
    char *value = strchr(option, '=');
    ck_assert_msg(value != NULL, "option '%s' has no value", option);
    *value++ = 0;
    if (strcmp(option, "loss") == 0)
        s->opt.loss = (LossKind)row_of(loss_name, value);
    else if (strcmp(option, "loss_output") == 0)
        s->opt.loss_output = value;
    else if (strcmp(option, "optim") == 0)
        s->opt.optim = (OptimKind)row_of(optim_name, value);
    else if (strcmp(option, "precision") == 0)
        s->opt.precision = (PrecisionKind)row_of(precision_name, value);
    else if (strcmp(option, "channels_last") == 0)
        s->opt.channels_last = atoi(value);
    else if (strcmp(option, "either_order") == 0)
        s->opt.either_order = true;
    else if (strcmp(option, "budget") == 0)
        s->opt.budget = atoll(value);
    else if (strcmp(option, "grads") == 0)
        s->opt.keep_grads = true;
    else if (strcmp(option, "head") == 0)
        s->opt.head_rows = atoll(value);
    else if (strcmp(option, "update") == 0)
        s->opt.update_bytes = atoll(value);
    else if (strcmp(option, "factor") == 0)
        s->opt.factor_bytes = atoll(value);
    else if (strcmp(option, "epilogues") == 0)
        s->device = device_cpu, s->device.epilogues = atoll(value), s->opt.device = &s->device;
    else if (strcmp(option, "panel_columns") == 0)
        s->device = device_cpu, s->device.panel_columns = atoll(value), s->opt.device = &s->device;
    else if (strcmp(option, "capability") == 0)
        s->device = device_cpu, s->device.capability = atoll(value), s->opt.device = &s->device;
    else if (strcmp(option, "bits") == 0)
        s->bits = true;
    else if (strcmp(option, "train") == 0)
        s->train = value, s->opt.train = &s->train, s->opt.ntrain = 1;
    else if (strcmp(option, "freeze") == 0)
        s->freeze = value, s->opt.freeze = &s->freeze, s->opt.nfreeze = 1;
    else
        ck_abort_msg("unknown option '%s'", option);
}

bool golden_run(Golden *s, const char *text, bool wide)
{
    const char *line = strstr(text, begin_mark) + strlen(begin_mark);
    char *words = arena_strndup(&s->arena, line, strcspn(line, "\n")), *save = NULL;
    char *passes = strtok_r(words, " ", &save);
    for (char *o = strtok_r(NULL, " ", &save); o; o = strtok_r(NULL, " ", &save))
        set_option(s, o);
    s->opt.budget *= wide ? 2 : 1;
    PassCtx cx = {.diag = &s->diag, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    return passes_run(&s->g, &cx, &(PassRun){.only = passes});
}

static void print_places(const Golden *s, FILE *f)
{
    const Plan *p = &s->info.plan;
    for (uint32_t i = 1; i < s->g.nvals; i++)
        if (p->offset[i] >= 0)
            fprintf(f, "%%%s @%lld +%lld\n", s->g.vals[i].name, (long long)p->offset[i],
                    (long long)type_bytes(&s->g.vals[i].type));
    fprintf(f, "arena %lld, without recomputation %lld, steps again %u\n",
            (long long)p->arena_bytes, (long long)p->keep_all_bytes, s->info.nrecomputed);
}

char *golden_result(const Golden *s)
{
    char *plain = NULL, *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&plain, &n);
    graph_print(&s->g, f);
    if (s->info.plan.step)
        print_places(s, f);
    fclose(f);
    f = open_memstream(&text, &n);
    for (char *p = plain, *e; *p; p = e + 1) {
        e = strchr(p, '\n');
        fprintf(f, "# %.*s\n", (int)(e - p), p);
    }
    fclose(f);
    free(plain);
    return text;
}

/* ---- values -------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 33);
}

static void *source_data(const Value *v, Arena *a)
{
    uint64_t seed = 7;
    for (const char *c = v->name; *c; c++)
        seed = mix(seed ^ (uint64_t)*c);
    Tensor t = {v->type, NEW(a, char, type_bytes(&v->type) + 8)};
    for (int64_t i = 0; i < type_count(&v->type); i++) {
        uint64_t h = mix(seed + (uint64_t)i);
        if (strcmp(v->name, "step") == 0)
            tensor_set_i(&t, i, 3);
        else if (dtype_is_float(v->type.dt)) /* multiples of 2^-20: the same in f32 and f64 */
            tensor_set_f(&t, i, (double)(int64_t)(h >> 42) / (1 << 20) - 2);
        else
            tensor_set_i(&t, i, (int64_t)(h % 2));
    }
    return t.data;
}

void **golden_data(const Graph *g, Arena *a)
{
    void **data = NEW(a, void *, g->nvals);
    for (uint32_t i = 1; i < g->nvals; i++) {
        const Value *v = &g->vals[i];
        bool zero = v->kind == VAL_STATE; /* optimizer state begins at 0 */
        if (v->kind == VAL_INPUT || (v->kind == VAL_PARAM && !v->data))
            data[i] = source_data(v, a);
        else if (zero && !v->data)
            data[i] = NEW(a, char, type_bytes(&v->type) + 1);
    }
    return data;
}

static void check_equal(const char *path, Tensor a, Tensor b, double tolerance)
{
    for (int64_t i = 0; i < type_count(&a.type); i++) {
        double x = tensor_f(&a, i), y = tensor_f(&b, i);
        bool ok = x == y || (isnan(x) && isnan(y)) ||
                  fabs(x - y) <= tolerance * (1 + fabs(x) + fabs(y));
        ck_assert_msg(ok, "%s: element %lld was %.12g, is %.12g", path, (long long)i, x, y);
    }
}

/* Checks that both graphs compute equal outputs, if they have as many, and equal updates of the states that
 * both have. */
static void compare_values(const char *path, const Graph *before, const Graph *after, double tolerance)
{
    Arena a = {0};
    Diag d = {0};
    void **x = golden_data(before, &a), **y = golden_data(after, &a);
    ck_assert_msg(graph_eval(before, x, &a, &d) && graph_eval(after, y, &a, &d), "%s: %s", path,
                  d.msg);
    for (uint32_t i = 0; i < before->nout && i < after->nout && before->nout == after->nout; i++) {
        Val v = before->out[i], w = after->out[i];
        if (type_equal(val_type(before, v), val_type(after, w)))
            check_equal(path, (Tensor){*val_type(before, v), x[v.i]},
                        (Tensor){*val_type(after, w), y[w.i]}, tolerance);
    }
    for (uint32_t i = 0; i < before->nupdate; i++)
        for (uint32_t k = 0; k < after->nupdate; k++) {
            Val v = before->update[i].value, w = after->update[k].value;
            if (strcmp(before->vals[before->update[i].state.i].name,
                       after->vals[after->update[k].state.i].name) == 0)
                check_equal(path, (Tensor){*val_type(before, v), x[v.i]},
                            (Tensor){*val_type(after, w), y[w.i]}, tolerance);
        }
    arena_free(&a);
}

void command_interpret(const Command *c, Tensor *t)
{
    Arena a = {0};
    Launches l = {.arena = &a};
    command_launches(c, &l);
    char *workspace = NEW(&a, char, command_workspace_bytes(c) + 1);
    for (uint32_t i = 0; i < l.n; i++) {
        const Launch *launch = &l.launch[i];
        const Kernel *k = launch->copy ? NULL : l.kernel[launch->kernel];
        Tensor *op = NEW(&a, Tensor, launch->nop + 1);
        for (int o = 0; o < launch->nop; o++) {
            const Slice *s = &launch->op[o];
            if (s->base < 0)
                continue;
            char *base = s->base == c->nread + c->nwrite ? workspace : t[s->base].data;
            op[o] = (Tensor){type_scalar(k ? k->operand[o] : DT_NONE), base + s->at};
        }
        launch_run_ref(launch, k, op);
    }
    arena_free(&a);
}

/* Checks that the kernels of every step, merged from groups of nodes, compute what the nodes compute one by
 * one. */
static void check_kernels(const char *path, Graph *g, double tolerance)
{
    Arena a = {0};
    Diag d = {0};
    Plan p = {.g = g};
    void **want = golden_data(g, &a), **got = golden_data(g, &a);
    plan_cut(&p, &a);
    const Command *c = plan_commands(&p, &a, &d);
    ck_assert_msg(c != NULL, "%s: %s", path, d.msg);
    ck_assert_msg(graph_eval(g, want, &a, &d), "%s: %s", path, d.msg);
    for (uint32_t i = 1; i < g->nvals; i++)
        if (!got[i] && g->vals[i].data)
            got[i] = graph_tensor(g, (Val){i}).data;
    for (uint32_t s = 0; s < p.nstep; s++) {
        int n = c[s].nread + c[s].nwrite;
        Tensor *t = NEW(&a, Tensor, n + 1);
        for (int i = 0; i < n; i++) {
            t[i].type = *val_type(g, c[s].vals[i]);
            if (i >= c[s].nread)
                got[c[s].vals[i].i] = NEW(&a, char, type_bytes(&t[i].type) + 1);
            t[i].data = got[c[s].vals[i].i];
        }
        command_interpret(&c[s], t);
        for (int i = c[s].nread; i < n; i++)
            check_equal(path, (Tensor){t[i].type, want[c[s].vals[i].i]}, t[i], tolerance);
    }
    arena_free(&a);
}

/* ---- one file ------------------------------------------------------------------------ */

static void check_round_trip(const char *path, const Graph *g)
{
    Arena a = {0};
    Diag d = {0};
    Graph again;
    char *first = NULL, *second = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&first, &n);
    graph_print(g, f);
    fclose(f);
    graph_init(&again, &a, &d);
    ck_assert_msg(graph_parse(&again, first, &d), "%s: its result is no graph: %s", path, d.msg);
    f = open_memstream(&second, &n);
    graph_print(&again, f);
    fclose(f);
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
    arena_free(&a);
}

static void rewrite_file(const char *path, const char *text, const char *result)
{
    const char *end = strchr(strstr(text, begin_mark), '\n') + 1;
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "%s cannot be written", path);
    fwrite(text, 1, (size_t)(end - text), f);
    fputs(result, f);
    fputs(end_mark, f);
    fclose(f);
}

static void check_text(const char *path, const char *text, const Golden *s)
{
    char *result = golden_result(s);
    const char *want = strchr(strstr(text, begin_mark), '\n') + 1;
    const char *end = strstr(want, end_mark);
    if (getenv("CKC_UPDATE"))
        rewrite_file(path, text, result);
    else
        ck_assert_msg(end && strlen(result) == (size_t)(end - want) &&
                          memcmp(result, want, strlen(result)) == 0,
                      "%s: the result differs (CKC_UPDATE=1 accepts it):\n%s", path, result);
    free(result);
}

void golden_check(const char *path)
{
    char *text = golden_read(path);
    for (int wide = 0; wide < 2; wide++) {
        Golden before, after;
        ck_assert_msg(golden_parse(&before, text, wide), "%s: %s", path, before.diag.msg);
        ck_assert_msg(golden_parse(&after, text, wide), "%s: %s", path, after.diag.msg);
        ck_assert_msg(golden_run(&after, text, wide), "%s: %s", path, after.diag.msg);
        if (!wide)
            check_text(path, text, &after);
        check_round_trip(path, &after.g);
        double tolerance = wide ? 1e-12 : after.opt.precision ? 4e-2 : 2e-5; /* 16 bits round more */
        compare_values(path, &before.g, &after.g, after.bits ? 0 : tolerance);
        check_kernels(path, &after.g, tolerance);
        golden_free(&before);
        golden_free(&after);
    }
    free(text);
}

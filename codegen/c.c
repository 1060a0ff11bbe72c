/* c.c -- kernel descriptions printed as C for the CPU.
 *
 * Loops (schedule.h has the terms):
 *
 *   items (omp parallel for)            rows, blocks of columns, blocks of a flat range
 *     pass 0 .. last
 *       outer reduced dimensions        row kernels with several reduced dimensions; columns;
 *                                       or the tile of a pointwise kernel that transposes
 *         vector loop                   ROW_LANES accumulators along a row | one per column
 *       results of the pass             tree over the lanes | the columns' accumulators
 *     reduced stores
 *
 * Vector loops never carry a dependence: accumulators are arrays, one element per lane or column,
 * so compilers vectorise them under strict IEEE rules, and the order of every sum is fixed by the
 * shape alone.  Where there are few items and long reductions, the reduced range is cut into a
 * fixed number of chunks with partial results; their number depends on the shape, not on threads.
 *
 * A store in a vector loop follows the loads of its own element, so an output may lie on an input
 * read at the same positions (kernel_inplace); `omp simd` states that other elements differ. */
#include "c_int.h"
#include "codegen.h"
#include "shared.h"
#include <inttypes.h>
#include <string.h>

/* ---- the whole kernel ------------------------------------------------------------------------------ */

static void row_buffers(Printer *pr)
{
    for (uint32_t i = 0; i < pr->s->n; i++)
        if (pr->s->saved[i])
            LINE("%s b%u[%" PRId64 "];", text_type(&pr->s->ins[i]), i, pr->s->nred);
}

/* Prints the loop over the items, in which one thread computes an item from start to end. */
static void whole_items(Printer *pr)
{
    const Sched *s = pr->s;
    if (pr->parallel && pr->items > 1)
        LINE("#pragma omp parallel for schedule(static)");
    OPEN("for (int64_t item = 0; item < %" PRId64 "; item++)", pr->items);
    c_item_indices(pr);
    row_buffers(pr);
    c_stage_tiles(pr);
    c_item_values(pr, 0);
    c_draw_bulk(pr);
    for (int pass = 0; pass <= s->last; pass++) {
        c_run_pass(pr, pass);
        for (uint32_t i = 0; i < s->n && s->kind == SCHED_ROW; i++)
            if (sched_reduces_at(s, i, pass))
                LINE("const %s v%u = a%u[0];", text_type(&s->ins[i]), i, i);
        c_item_values(pr, pass + 1);
        if (s->kind == SCHED_COLUMN)
            c_column_values(pr, pass + 1);
    }
    c_item_stores(pr);
    CLOSE();
}

/* Prints the results of the passes before `pass`, taken from r<i>, and the values that follow from them. */
static void known_results(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    c_item_values(pr, 0);
    for (int level = 1; level <= pass; level++) {
        for (uint32_t i = 0; i < s->n; i++) {
            if (!sched_reduces_at(s, i, level - 1))
                continue;
            const char *type = text_type(&s->ins[i]);
            if (s->kind == SCHED_ROW)
                LINE("const %s v%u = r%u[item];", type, i, i);
            else
                LINE("const %s *a%u = r%u + item * %" PRId64 ";", type, i, i, pr->width);
        }
        c_item_values(pr, level);
        if (s->kind == SCHED_COLUMN)
            c_column_values(pr, level);
    }
}

static void open_work(Printer *pr, const char *what, int64_t n)
{
    if (pr->parallel)
        LINE("#pragma omp for schedule(static)");
    OPEN("for (int64_t %s = 0; %s < %" PRId64 "; %s++)", what, what, n, what);
}

/* Prints the loop that joins the partial results s<i> of all chunks, in order, in r<i>. */
static void join_chunks(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    open_work(pr, "item", pr->items);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_reduces_at(s, i, pass))
            continue;
        char acc[NAME_LEN], part[NAME_LEN];
        snprintf(acc, sizeof acc, "r%u[item * %" PRId64 " + c]", i, pr->width);
        snprintf(part, sizeof part, "s%u[(item * %" PRId64 " + k) * %" PRId64 " + c]", i,
                 pr->chunks, pr->width);
        LINE("for (int c = 0; c < %" PRId64 "; c++)", pr->width);
        LINE("    %s = %s;", acc, text_start(&s->ins[i]));
        LINE("for (int k = 0; k < %" PRId64 "; k++)", pr->chunks);
        LINE("    for (int c = 0; c < %" PRId64 "; c++)", pr->width);
        pr->w.indent += 2;
        text_accumulate(&pr->w, &s->ins[i], acc, part);
        pr->w.indent -= 2;
    }
    CLOSE();
}

static void chunk_pass(Printer *pr, int pass)
{
    const Sched *s = pr->s;
    int64_t n = s->extent[pr->cut];
    bool reduces = false;
    open_work(pr, "work", pr->items * pr->chunks);
    LINE("const int64_t item = work / %" PRId64 ", begin = work %% %" PRId64 " * %" PRId64 ";",
         pr->chunks, pr->chunks, pr->chunk);
    LINE("const int64_t end = begin + %" PRId64 " < %" PRId64 " ? begin + %" PRId64
         " : %" PRId64 ";", pr->chunk, n, pr->chunk, n);
    c_item_indices(pr);
    known_results(pr, pass);
    c_run_pass(pr, pass);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!sched_reduces_at(s, i, pass))
            continue;
        LINE("for (int c = 0; c < %" PRId64 "; c++)", pr->width);
        LINE("    s%u[work * %" PRId64 " + c] = a%u[c];", i, pr->width, i);
        reduces = true;
    }
    CLOSE();
    if (reduces)
        join_chunks(pr, pass);
}

static void chunked_items(Printer *pr)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && k_reduces(&s->ins[i]))
            LINE("%s s%u[%" PRId64 "], r%u[%" PRId64 "];", text_type(&s->ins[i]), i,
                 pr->items * pr->chunks * pr->width, i, pr->items * pr->width);
    if (pr->parallel)
        LINE("#pragma omp parallel");
    text_block(&pr->w);
    for (int pass = 0; pass <= s->last; pass++)
        chunk_pass(pr, pass);
    bool stores = false;
    for (uint32_t i = 0; i < s->n; i++)
        stores |= sched_is_reduced_store(s, i);
    if (stores) {
        open_work(pr, "item", pr->items);
        c_item_indices(pr);
        known_results(pr, s->last + 1);
        c_item_stores(pr);
        CLOSE();
    }
    CLOSE();
}

static void operands(Printer *pr, const Kernel *k, Arena *a)
{
    bool *used = NEW(a, bool, k->noperands + 1), *stored = NEW(a, bool, k->noperands + 1);
    for (uint32_t i = 0; i < pr->s->n; i++) {
        const KInst *in = &pr->s->ins[i];
        if (pr->s->live[i] && (in->kind == K_LOAD || in->kind == K_STORE))
            used[in->operand] = true;
        if (in->kind == K_STORE)
            stored[in->operand] = true;
    }
    for (int i = 0; i < k->noperands; i++)
        if (used[i])
            LINE("%s%s *const p%d = op[%d];", stored[i] ? "" : "const ",
                 text_element(k->operand[i]), i, i);
}

/* Prints the keys as constants of the function, so that the compiler knows that no store changes them. */
static void local_keys(Printer *pr)
{
    for (uint32_t i = 0; i < pr->s->n; i++) {
        char key[NAME_LEN];
        if (!text_is_draw(&pr->s->ins[i]))
            continue;
        text_key(&pr->w, pr->s->ins, (int)i, key);
        LINE("const int64_t %s = key[%s];", key, key + strlen("key"));
    }
}

/* Prints void NAME(operands), or NAME(operands, keys) where keys are not literals. */
static void print_one(Printer *pr, const Kernel *k)
{
    Arena a = {0};
    Sched s;
    sched_make(&s, kernel_without_deviations(k, &a), ROW_BUFFER, &a);
    pr->s = &s;
    pr->mark = NEW(&a, bool, s.n + 1);
    c_choose_loops(pr);
    text_real_type(&pr->w, k);
    if (!pr->w.keys)
        LINE("void %s(void *const *op);", pr->name);
    LINE("void %s(void *const *op%s)", pr->name, pr->w.keys ? ", const int64_t *key" : "");
    text_block(&pr->w);
    if (pr->w.keys)
        local_keys(pr);
    operands(pr, k, &a);
    if (pr->chunks)
        chunked_items(pr);
    else
        whole_items(pr);
    CLOSE();
    arena_free(&a);
}

/* Prints a kernel that reduces both rows and columns as a function for each part and one that calls them. */
static void print_dag(Printer *pr, const Kernel *k)
{
    Arena a = {0};
    Kernel part[KERNEL_PARTS];
    int n = kernel_split_columns(k, part, &a);
    const char *keys = pr->w.keys ? ", const int64_t *key" : "";
    for (int i = 0; i < n; i++) {
        Printer one = {.w = pr->w, .name = n > 1 ? arena_printf(&a, "%s_%d", pr->name, i) : pr->name};
        if (n > 1 && pr->w.keys)
            LINE("void %s(void *const *op%s);", one.name, keys);
        print_one(&one, &part[i]);
    }
    if (n > 1) {
        LINE("void %s(void *const *op%s);", pr->name, keys);
        LINE("void %s(void *const *op%s)", pr->name, keys);
        text_block(&pr->w);
        for (int i = 0; i < n; i++)
            LINE("%s_%d(op%s);", pr->name, i, pr->w.keys ? ", key" : "");
        CLOSE();
    }
    arena_free(&a);
}

static void print_body(Printer *pr, const Kernel *k)
{
    text_real_type(&pr->w, k);
    text_body(&pr->w, k, pr->name);
    LINE("void %s(void *const *op);", pr->name);
    LINE("void %s(void *const *op)", pr->name);
    text_block(&pr->w);
    if (k->items > 1024 || (k->items > 1 && k->flops >= PARALLEL_WORK))
        LINE("#pragma omp parallel for schedule(static)");
    LINE("for (int64_t i = 0; i < %" PRId64 "; i++)", k->items);
    text_body_call(&pr->w, k, pr->name, "op[", "]", "i");
    CLOSE();
}

static void print_keyed(Writer *w, const Kernel *k, const char *name)
{
    Printer pr = {.w = *w, .name = name};
    if (native_has(k))
        native_print(w, k, name);
    else
        print_dag(&pr, k);
}

void kernel_print_c(const Kernel *k, const char *name, FILE *f)
{
    Printer pr = {.w = {.f = f, .index = "int64_t"}, .name = name};
    fprintf(f, "\n/* kernel %s */\n", name); /* runtime/cpu/compile.c cuts here */
    if (shared_has(k))
        shared_print_call(&pr.w, k, name, print_keyed);
    else if (k->body)
        print_body(&pr, k);
    else
        print_dag(&pr, k);
}

void kernel_print_keyless_c(const Kernel *k, const char *name, FILE *f)
{
    Writer w = {.f = f, .index = "int64_t", .keys = true};
    if (shared_has(k))
        print_keyed(&w, k, name);
    else
        kernel_print_c(k, name, f);
}

void codegen_prelude_c(FILE *f)
{
    text_prelude(f, prelude_c);
    text_prelude(f, prelude_philox);
    text_prelude(f, prelude_math);
}

void codegen_shared_c(FILE *f, const Kernel *const *k, int n)
{
    codegen_prelude_c(f);
    shared_print(f, k, n, print_keyed);
}

int codegen_c(FILE *f, const Kernel *const *k, int n, int *func_of_kernel)
{
    codegen_shared_c(f, k, n);
    return text_distinct(f, k, n, func_of_kernel, kernel_print_c);
}

/* shared.c -- functions that several kernels call, see shared.h. */
#include "shared.h"
#include "attention_text.h"
#include "ir/attention_kernel.h"
#include "ir/mem.h"
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- hand-written texts ----------------------------------------------------------------- */

/* Gradients are accumulated in the operands themselves, which must not be 16-bit therefore. */
bool native_has(const Kernel *k)
{
    return k->native == NATIVE_ATTENTION &&
           (k->p[P_PHASE] == PHASE_FORWARD || !dtype_is_half(k->operand[k->noperands - 1]));
}

void native_print(Writer *w, const Kernel *k, const char *name)
{
    text_real_type(w, k);
    attention_macros(w, k);
    text_define(w, "AT(name)", "%s_##name", name);
    text_line(w, "#if BF16_TILES");
    text_prelude(w->f, prelude_tiles);
    text_line(w, "#endif");
    text_prelude(w->f, prelude_attention_product);
    text_prelude(w->f, prelude_attention);
    text_line(w, "void %s(void *const *op, const int64_t *key) { AT(run)(op, *key); }", name);
}

/* ---- keys --------------------------------------------------------------------------------- */

bool shared_has(const Kernel *k)
{
    bool has = native_has(k);
    for (uint32_t i = 0; i < k->nins && !has; i++)
        has = text_is_draw(&k->ins[i]);
    return has;
}

static uint64_t text_hash(const Kernel *k, PrintFn *print)
{
    char *text = NULL;
    size_t size = 0;
    Writer w = {.f = mem_stream(&text, &size), .index = "int64_t", .keys = true};
    print(&w, k, "F");
    mem_stream_end(w.f);
    uint64_t h = XXH64(text, size, 0);
    free(text);
    return h;
}

static void print_function(FILE *f, const Kernel *k, uint64_t hash, PrintFn *print)
{
    Writer w = {.f = f, .index = "int64_t", .keys = true};
    char name[NAME_LEN];
    snprintf(name, sizeof name, "shared_%016" PRIx64, hash);
    fprintf(f, "\n/* kernel %s */\n", name); /* runtime/cpu/compile.c cuts here */
    text_line(&w, "void %s(void *const *op, const int64_t *key);", name);
    print(&w, k, name);
}

void shared_print(FILE *f, const Kernel *const *k, int n, PrintFn *print)
{
    uint64_t *seen = mem_new((size_t)n + 1, sizeof *seen);
    int nseen = 0;
    for (int i = 0; i < n; i++) {
        if (!shared_has(k[i]))
            continue;
        int at = 0;
        seen[nseen] = text_hash(k[i], print);
        while (seen[at] != seen[nseen])
            at++;
        if (at == nseen)
            print_function(f, k[i], seen[nseen++], print);
    }
    free(seen);
}

static void print_key(const Writer *w, int64_t key)
{
    text_line(w, "        INT64_C(%" PRId64 "),", key);
}

void shared_print_call(const Writer *w, const Kernel *k, const char *name, PrintFn *print)
{
    uint64_t hash = text_hash(k, print);
    text_line(w, "void shared_%016" PRIx64 "(void *const *op, const int64_t *key);", hash);
    text_line(w, "void %s(void *const *op);", name);
    text_line(w, "void %s(void *const *op)", name);
    text_line(w, "{");
    text_line(w, "    static const int64_t key[] = {");
    if (native_has(k))
        print_key(w, k->p[P_KEY]);
    for (uint32_t i = 0; i < k->nins && !native_has(k); i++)
        if (text_is_draw(&k->ins[i]))
            print_key(w, (int64_t)k->ins[i].al);
    text_line(w, "    };");
    text_line(w, "    shared_%016" PRIx64 "(op, key);", hash);
    text_line(w, "}");
}

/* native.c -- hand-written C for the vectors of a CPU in place of a kernel's body.
 *
 * A text (codegen/prelude) is a function native_HASH(operands, key), where HASH is that of the text
 * and its parameters: kernels of several layers call one function, whose source they do not hold. */
#include "native.h"
#include "codegen.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static bool is_f64(const Kernel *k) { return k->operand[0] == DT_F64; }

bool native_has(const Kernel *k)
{
    return k->native == NATIVE_ATTENTION && (is_f64(k) || k->operand[0] == DT_F32);
}

static uint64_t native_hash(const Kernel *k)
{
    uint64_t h = XXH64(k->p, (size_t)(k->np - 1) * sizeof *k->p, is_f64(k));
    h = XXH64(k->q, sizeof k->q, h);
    for (const char *const *line = prelude_attention; *line; line++)
        h = XXH64(*line, strlen(*line), h);
    return h;
}

static void print_text(FILE *f, const Kernel *k, uint64_t hash)
{
    Writer w = {f, 0, "int64_t"};
    /* runtime/kernel_cache.c cuts here */
    fprintf(f, "\n/* kernel native_%016" PRIx64 " */\n", hash);
    text_line(&w, "#undef REAL");
    text_line(&w, "#define REAL %s", is_f64(k) ? "double" : "float");
    text_parameters(&w, k, k->np - 1);
    text_line(&w, "#undef AT");
    text_line(&w, "#define AT(name) native_%016" PRIx64 "_##name", hash);
    text_prelude(f, prelude_attention);
    text_line(&w, "void native_%016" PRIx64 "(void *const *op, int64_t key);", hash);
    text_line(&w, "void native_%016" PRIx64 "(void *const *op, int64_t key) { AT(run)(op, key); }",
              hash);
}

void native_print_texts(FILE *f, Kernel *const *k, int n)
{
    uint64_t *seen = calloc((size_t)n + 1, sizeof *seen);
    int nseen = 0;
    for (int i = 0; seen && i < n; i++) {
        if (!native_has(k[i]))
            continue;
        int at = 0;
        seen[nseen] = native_hash(k[i]);
        while (seen[at] != seen[nseen])
            at++;
        if (at == nseen)
            print_text(f, k[i], seen[nseen++]);
    }
    free(seen);
}

void native_print_call(const Writer *w, const Kernel *k, const char *name)
{
    uint64_t hash = native_hash(k);
    text_line(w, "void native_%016" PRIx64 "(void *const *op, int64_t key);", hash);
    text_line(w, "void %s(void *const *op);", name);
    text_line(w, "void %s(void *const *op)", name);
    text_line(w, "{");
    text_line(w, "    native_%016" PRIx64 "(op, INT64_C(%" PRId64 "));", hash, k->p[k->np - 1]);
    text_line(w, "}");
}

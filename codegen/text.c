/* text.c -- pieces of kernel text that are the same in C and CUDA C: names, literals, addresses,
 * operator expressions with their operands substituted, body functions. */
#include "text.h"
#include "ir/mem.h"
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines -------------------------------------------------------------------------- */

static void indent(const Writer *w)
{
    for (int i = 0; i < w->indent; i++)
        fputs("    ", w->f);
}

void text_line(const Writer *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (fmt[0] != '#')
        indent(w);
    vfprintf(w->f, fmt, ap);
    fputc('\n', w->f);
    va_end(ap);
}

void text_open(Writer *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    indent(w);
    vfprintf(w->f, fmt, ap);
    fputs(" {\n", w->f);
    w->indent++;
    va_end(ap);
}

void text_block(Writer *w)
{
    text_line(w, "{");
    w->indent++;
}

void text_close(Writer *w)
{
    w->indent--;
    text_line(w, "}");
}

void text_prelude(FILE *f, const char *const *lines)
{
    for (; *lines; lines++)
        fputs(*lines, f);
}

void text_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++)
        if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
            fprintf(f, "\\%03o", (unsigned)*s);
        else
            fputc(*s, f);
    fputc('"', f);
}

/* ---- names and literals ----------------------------------------------------------------- */

const char *text_type(const KInst *in) { return in->type == KT_REAL ? "REAL" : "int64_t"; }

const char *text_element(DType t)
{
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "float",    [DT_F64] = "double",  [DT_BF16] = "uint16_t",
        [DT_F16] = "uint16_t", [DT_I64] = "int64_t", [DT_I32] = "int32_t",
        [DT_U8] = "uint8_t",   [DT_BOOL] = "uint8_t", [DT_I8] = "int8_t"};
    return name[t];
}

static void integer(int64_t v, char buf[NAME_LEN])
{
    if (v == INT64_MIN)
        snprintf(buf, NAME_LEN, "INT64_MIN");
    else
        snprintf(buf, NAME_LEN, v < 0 ? "(INT64_C(%" PRId64 "))" : "INT64_C(%" PRId64 ")", v);
}

static void real(double v, char buf[NAME_LEN])
{
    if (isnan(v))
        snprintf(buf, NAME_LEN, "NAN_");
    else if (isinf(v))
        snprintf(buf, NAME_LEN, v > 0 ? "INF_" : "(-INF_)");
    else
        snprintf(buf, NAME_LEN, "R(%.17g)", v);
}

static void literal(KType t, double v, char buf[NAME_LEN])
{
    if (t == KT_INT)
        integer(int_of(v), buf);
    else
        real(v, buf);
}

void text_const(const KInst *in, char buf[NAME_LEN]) { literal(in->type, in->imm, buf); }

const char *text_start(const KInst *in)
{
    bool r = in->type == KT_REAL;
    switch (in->kind) {
    case K_MAX: return r ? "-INF_" : "INT64_MIN";
    case K_MIN: return r ? "INF_" : "INT64_MAX";
    case K_PROD: return "1";
    default: return "0";
    }
}

void text_accumulate(const Writer *w, const KInst *in, const char *acc, const char *v)
{
    switch (in->kind) {
    case K_MAX: text_line(w, "%s = FMAX(%s, %s);", acc, v, acc); break;
    case K_MIN: text_line(w, "%s = FMIN(%s, %s);", acc, v, acc); break;
    case K_PROD: text_line(w, "%s = %s * %s;", acc, acc, v); break;
    default: text_line(w, "%s = %s + %s;", acc, acc, v); break;
    }
}

/* ---- loads, stores, expressions ------------------------------------------------------------ */

void text_address_at(const Sched *s, const KInst *in, const char *vec, char *buf, size_t size)
{
    char name[NAME_LEN];
    size_t n = 0;
    if (in->offset)
        n += (size_t)snprintf(buf, size, "%" PRId64, in->offset);
    for (int d = 0; d < s->rank && n < size; d++) {
        int64_t st = in->stride[d];
        if (st == 0)
            continue;
        snprintf(name, sizeof name, "i%d", d);
        n += (size_t)snprintf(buf + n, size - n, n ? " + " : "");
        n += (size_t)snprintf(buf + n, size - n, st == 1 ? "%s" : "%s * %" PRId64,
                              vec && d == s->vec ? vec : name, st);
    }
    if (n == 0)
        snprintf(buf, size, "0");
}

void text_address(const Sched *s, const KInst *in, char *buf, size_t size)
{
    text_address_at(s, in, NULL, buf, size);
}

bool text_is_draw(const KInst *in)
{
    return in->kind == K_EXPR && in->expr->cost >= EXPR_UNIFORM;
}

void text_key(const Writer *w, const KInst *ins, int i, char buf[NAME_LEN])
{
    int n = 0;
    for (int j = 0; j < i; j++)
        n += text_is_draw(&ins[j]);
    if (w->keys)
        snprintf(buf, NAME_LEN, "key%d", n);
    else
        integer((int64_t)ins[i].al, buf);
}

/* Prints the text of an operator with a, b, c, al, be replaced; other identifiers are unchanged. */
static void expression(const Writer *w, const Sched *s, int i, NameFn *name, const void *ctx)
{
    const KInst *in = &s->ins[i];
    char sub[5][NAME_LEN] = {"0", "0", "0"};
    KType t = in->type;
    FILE *f = w->f;
    for (int a = 0; a < in->expr->nin; a++) {
        name(ctx, in->arg[a], sub[a]);
        if (s->ins[in->arg[a]].type == KT_REAL)
            t = KT_REAL;
    }
    if (text_is_draw(in))
        text_key(w, s->ins, i, sub[3]);
    else
        literal(t, in->al, sub[3]);
    literal(t, in->be, sub[4]);
    static const char *const word[5] = {"a", "b", "c", "al", "be"};
    bool truncate = t == KT_REAL && in->type == KT_INT;
    if (truncate)
        fputs("INT_OF(", f);
    for (const char *p = in->expr->text; *p;) {
        if (!isalnum((unsigned char)*p) && *p != '_') {
            fputc(*p++, f);
            continue;
        }
        size_t len = 0;
        while (isalnum((unsigned char)p[len]) || p[len] == '_')
            len++;
        const char *out = NULL;
        for (int k = 0; k < 5; k++)
            if (strlen(word[k]) == len && memcmp(word[k], p, len) == 0)
                out = sub[k];
        if (out)
            fputs(out, f);
        else
            fwrite(p, 1, len, f);
        p += len;
    }
    if (truncate)
        fputc(')', f);
}

void text_value(const Writer *w, const Sched *s, int i, NameFn *name, const void *ctx)
{
    const KInst *in = &s->ins[i];
    char at[512];
    if (in->kind == K_CONST)
        return; /* printed where it is used */
    indent(w);
    fprintf(w->f, "const %s v%d = ", text_type(in), i);
    if (in->kind == K_EXPR) {
        expression(w, s, i, name, ctx);
    } else {
        text_address(s, in, at, sizeof at);
        if (in->kind == K_LOAD)
            fprintf(w->f, "LD_%s(p%d, %s)", dtype_name[s->k->operand[in->operand]], in->operand,
                    at);
        else
            fputs(at, w->f);
    }
    fputs(";\n", w->f);
}

void text_store(const Writer *w, const Sched *s, int i, NameFn *name, const void *ctx)
{
    const KInst *in = &s->ins[i];
    char at[512], v[NAME_LEN];
    text_address(s, in, at, sizeof at);
    name(ctx, in->arg[0], v);
    text_line(w, "ST_%s(p%d, %s, %s);", dtype_name[s->k->operand[in->operand]], in->operand, at,
              v);
}

void text_unpack(const Writer *w, const Sched *s, const char *index, uint32_t mask)
{
    int64_t below = 1;
    for (int d = s->rank; d-- > 0;) {
        if (!(mask >> d & 1))
            continue;
        bool top = (mask & ((1u << d) - 1)) == 0;
        char q[NAME_LEN];
        snprintf(q, sizeof q, below == 1 ? "%s" : "%s / %" PRId64, index, below);
        if (top)
            text_line(w, "const %s i%d = %s;", w->index, d, q);
        else
            text_line(w, "const %s i%d = %s %% %" PRId64 ";", w->index, d, q, s->extent[d]);
        below *= s->extent[d] ? s->extent[d] : 1;
    }
}

/* ---- bodies ----------------------------------------------------------------------------------- */

/* Prints a body's text with one statement per line, otherwise unchanged. */
static void statements(Writer *w, const char *text)
{
    int paren = 0;
    bool fresh = true;
    for (const char *p = text; *p; p++) {
        if (fresh && *p == ' ')
            continue;
        if (*p == '}' && paren == 0) {
            w->indent -= w->indent > 0;
            if (!fresh)
                fputc('\n', w->f);
            fresh = true;
        }
        if (fresh)
            indent(w);
        fresh = false;
        fputc(*p, w->f);
        paren += (*p == '(') - (*p == ')');
        if (paren == 0 && (*p == ';' || *p == '{' || *p == '}')) {
            w->indent += *p == '{';
            fputc('\n', w->f);
            fresh = true;
        }
    }
    if (!fresh)
        fputc('\n', w->f);
}

enum { BODY_OPERANDS = 13 }; /* operands that a body's text may name, present or not: attention's gradients */

/* Defines F, I, SETF and SETI, which paste the operand's number k to LD<k> or ST<k>, and those macros. */
static void accessors(Writer *w, const Kernel *k)
{
    text_define(w, "F(k, j)", "((REAL)LD##k(j))");
    text_define(w, "I(k, j)", "((int64_t)LD##k(j))");
    text_define(w, "SETF(k, j, v)", "ST##k(j, (REAL)(v))");
    text_define(w, "SETI(k, j, v)", "ST##k(j, INT_OF(v))");
    for (int i = 0; i < k->noperands || i < BODY_OPERANDS; i++) {
        text_line(w, "#undef LD%d", i);
        text_line(w, "#undef ST%d", i);
        if (i >= k->noperands || k->operand[i] == DT_NONE) { /* the text tests p before it accesses one */
            text_line(w, "#define LD%d(j) 0", i);
            text_line(w, "#define ST%d(j, v) (void)0", i);
            continue;
        }
        text_line(w, "#define LD%d(j) LD_%s(x%d_, j)", i, dtype_name[k->operand[i]], i);
        text_line(w, "#define ST%d(j, v) ST_%s(x%d_, j, v)", i, dtype_name[k->operand[i]], i);
    }
}

/* May the operand of a body share its memory with another one? */
static bool overlaps(const Kernel *k, int operand)
{
    int result = k->noperands - 1;
    bool any = false;
    for (int i = 0; i < result; i++)
        any |= (i == operand || operand == result) && kernel_inplace(k, i, result);
    return any;
}

static void parameters(const Writer *w, const Kernel *k)
{
    for (int i = 0; i < k->noperands; i++)
        if (k->operand[i] != DT_NONE)
            fprintf(w->f, "%s *%sx%d_, ", text_element(k->operand[i]),
                    overlaps(k, i) ? "" : "__restrict__ ", i);
}

void text_body_call(const Writer *w, const Kernel *k, const char *name, const char *before,
                    const char *after, const char *item)
{
    indent(w);
    fprintf(w->f, "%s_item(", name);
    for (int i = 0; i < k->noperands; i++)
        if (k->operand[i] != DT_NONE)
            fprintf(w->f, "(%s *)%s%d%s, ", text_element(k->operand[i]), before, i, after);
    fprintf(w->f, "%s);\n", item);
}

void text_body(Writer *w, const Kernel *k, const char *name)
{
    char q[NAME_LEN];
    accessors(w, k);
    fprintf(w->f, "FN void %s_item(", name);
    parameters(w, k);
    fputs("int64_t i)\n", w->f);
    text_block(w);
    text_line(w, "static const int64_t p[] = {");
    for (int i = 0; i < k->np || i == 0; i++) {
        integer(k->p[i], q);
        text_line(w, "    %s,", q);
    }
    text_line(w, "};");
    text_line(w, "const REAL q[] = {");
    for (int i = 0; i < (int)(sizeof k->q / sizeof *k->q); i++) {
        real(k->q[i], q);
        text_line(w, "    %s,", q);
    }
    text_line(w, "};");
    text_line(w, "(void)i, (void)p, (void)q;");
    statements(w, k->body->text);
    text_close(w);
}

/* ---- macros ----------------------------------------------------------------------------------- */

void text_define(const Writer *w, const char *macro, const char *fmt, ...)
{
    va_list ap;
    text_line(w, "#undef %.*s", (int)strcspn(macro, "("), macro);
    fprintf(w->f, "#define %s ", macro);
    va_start(ap, fmt);
    vfprintf(w->f, fmt, ap);
    va_end(ap);
    fputc('\n', w->f);
}

void text_integer(const Writer *w, const char *name, int64_t v)
{
    char value[NAME_LEN];
    integer(v, value);
    text_define(w, name, "%s", value);
}

void text_int(const Writer *w, const char *name, int64_t v)
{
    text_define(w, name, v < 0 ? "(%" PRId64 ")" : "%" PRId64, v);
}

void text_real(const Writer *w, const char *name, double v)
{
    char value[NAME_LEN];
    real(v, value);
    text_define(w, name, "%s", value);
}

void text_real_type(const Writer *w, const Kernel *k)
{
    text_define(w, "REAL", kernel_is_f64(k) ? "double" : "float");
}

void text_parameters(const Writer *w, const Kernel *k)
{
    char name[NAME_LEN];
    for (int i = 0; i < k->np; i++) {
        snprintf(name, sizeof name, "P%d", i);
        text_integer(w, name, k->p[i]);
    }
    for (int i = 0; i < (int)(sizeof k->q / sizeof *k->q); i++) {
        snprintf(name, sizeof name, "Q%d", i);
        text_real(w, name, k->q[i]);
    }
}

/* ---- lists --------------------------------------------------------------------------------------- */

char *kernel_print_text(KernelPrint *print, const Kernel *k)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    print(k, "K", f);
    mem_stream_end(f);
    return text;
}

/* Kernels are equal if they print alike under one name.  Quadratic in the number of distinct kernels. */
int text_distinct(FILE *f, const Kernel *const *k, int n, int *func_of_kernel, KernelPrint *print)
{
    char **seen = mem_new((size_t)n + 1, sizeof *seen), name[NAME_LEN];
    int count = 0;
    for (int i = 0; i < n; i++) {
        char *text = kernel_print_text(print, k[i]);
        int at = 0;
        while (at < count && strcmp(seen[at], text) != 0)
            at++;
        func_of_kernel[i] = at;
        if (at < count) {
            free(text);
            continue;
        }
        seen[count] = text;
        snprintf(name, sizeof name, "ck_%d", count++);
        print(k[i], name, f);
    }
    for (int i = 0; i < count; i++)
        free(seen[i]);
    free(seen);
    return count;
}

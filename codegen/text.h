/* text.h -- pieces of kernel text that are the same in C and CUDA C. */
#ifndef CKC_TEXT_H
#define CKC_TEXT_H

#include "codegen.h"
#include "ir/integer.h"
#include "schedule.h"

/* Writer with indentation; a file error stays in the FILE. */
typedef struct {
    FILE *f;
    int indent;
    const char *index; /* C type of the dimensions' indices */
    bool keys;         /* keys of random draws are variables key0.. (text_key), not literals */
} Writer;
void text_line(const Writer *w, const char *fmt, ...) PRINTF(2, 3);
void text_open(Writer *w, const char *fmt, ...) PRINTF(2, 3); /* line + " {" */
void text_block(Writer *w);                                   /* "{" */
void text_close(Writer *w);
/* The same for functions that have a Printer *pr, which has a Writer. */
#define LINE(...) text_line(&pr->w, __VA_ARGS__)
#define OPEN(...) text_open(&pr->w, __VA_ARGS__)
#define CLOSE() text_close(&pr->w)

enum { NAME_LEN = 64 };
/* Writes the name or literal of a value, as an instruction uses it, to buf. */
typedef void NameFn(const void *ctx, int value, char buf[NAME_LEN]);

const char *text_type(const KInst *in);            /* "REAL" or "int64_t" */
const char *text_element(DType t);                 /* C type of an element in memory */
void text_const(const KInst *in, char buf[NAME_LEN]);
/* Writes "i0 * 768 + i1", the position of a load, store or index; the dimensions' indices are named i<d>. */
void text_address(const Sched *s, const KInst *in, char *buf, size_t size);
/* The same with `vec` as the name of the index of the innermost dimension. */
void text_address_at(const Sched *s, const KInst *in, const char *vec, char *buf, size_t size);
/* Prints "const REAL v3 = ...;" for K_LOAD, K_INDEX and K_EXPR, nothing for K_CONST. */
void text_value(const Writer *w, const Sched *s, int i, NameFn *name, const void *ctx);
void text_store(const Writer *w, const Sched *s, int i, NameFn *name, const void *ctx);
/* Prints acc = acc (+) v for a reduction; text_start is the value that acc starts with. */
void text_accumulate(const Writer *w, const KInst *in, const char *acc, const char *v);
const char *text_start(const KInst *in);
/* Is the instruction a random draw, whose key is its al? */
bool text_is_draw(const KInst *in);
/* Writes the key of draw i, a literal or the name of a variable, to buf. */
void text_key(const Writer *w, const KInst *ins, int i, char buf[NAME_LEN]);
/* Prints statements that unpack a linear index into i<d> for the dimensions in mask. */
void text_unpack(const Writer *w, const Sched *s, const char *index, uint32_t mask);

/* Prints the accessors and the item function NAME_item of a body kernel. */
void text_body(Writer *w, const Kernel *k, const char *name);
/* Prints a call of NAME_item; the text of operand i is `before`, i, `after`: "op[", "]". */
void text_body_call(const Writer *w, const Kernel *k, const char *name, const char *before,
                    const char *after, const char *item);
/* Defines a macro, "NAME" or "NAME(parameters)", in place of an earlier one of that name. */
void text_define(const Writer *w, const char *macro, const char *fmt, ...) PRINTF(3, 4);
void text_integer(const Writer *w, const char *name, int64_t v); /* as a literal of 64 bits */
void text_int(const Writer *w, const char *name, int64_t v);     /* as a literal without a suffix */
void text_real(const Writer *w, const char *name, double v);
void text_real_type(const Writer *w, const Kernel *k); /* defines REAL, the type the kernel computes in */
/* Defines the integer parameters of a body kernel as macros P0.. and its reals as Q0.. */
void text_parameters(const Writer *w, const Kernel *k);
/* Prints any bytes as a string of C or Python, without hexadecimal escapes, as those have no end in C. */
void text_string(FILE *f, const char *s);
void text_prelude(FILE *f, const char *const *lines);
/* Prints the distinct kernels with `print`, like codegen_c. */
int text_distinct(FILE *f, const Kernel *const *k, int n, int *func_of_kernel, KernelPrint *print);

#endif

/* nodes_expr.c -- the text of a pointwise expression as nodes of standard operators.
 *
 * The texts are C (ops/unary.def), of which this reads what they use:
 *   choice = or ["?" choice ":" choice]     or = and {("||"|"|") and}      and = equal {("&&"|"&") equal}
 *   equal = order {("=="|"!=") order}       order = sum {("<"|">"|"<="|">=") sum}
 *   sum = product {("+"|"-") product}       product = unary {("*"|"/") unary}
 *   unary = ["-"] primary                   primary = number | name | NAME "(" choice {"," choice} ")"
 *                                                   | "(" choice ")"
 * Numbers are folded and have no type until they meet an operand that has one. */
#include "nodes_int.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    OnnxNodes *o;
    const char *p;
    const ExprValue *arg;
    double al, be;
    DType real;
    bool bad;
} Reader;

static ExprValue number(double c)
{
    return (ExprValue){.class = c == floor(c) ? X_INT : X_REAL, .constant = true, .c = c};
}

static ExprValue tensor(OnnxVal v, ExprClass class) { return (ExprValue){.v = v, .class = class}; }

static DType class_type(ExprClass class, DType real)
{
    return class == X_BOOL ? DT_BOOL : class == X_INT ? DT_I64 : real;
}

OnnxVal expr_tensor(OnnxNodes *o, ExprValue x, ExprClass class, DType real)
{
    DType dt = class_type(class, real);
    return x.constant ? onnx_scalar(o, dt, x.c) : onnx_cast(o, x.v, dt);
}

static OnnxVal as(Reader *r, ExprValue x, ExprClass class) { return expr_tensor(r->o, x, class, r->real); }

static ExprClass wider(ExprValue x, ExprValue y)
{
    ExprClass c = x.class > y.class ? x.class : y.class;
    return c == X_BOOL ? X_INT : c;
}

/* ---- arithmetic --------------------------------------------------------------------------------- */

static double folded(char op, double x, double y)
{
    return op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
}

static ExprValue arithmetic(Reader *r, char op, ExprValue x, ExprValue y)
{
    static const char *const name[] = {['+'] = "Add", ['-'] = "Sub", ['*'] = "Mul", ['/'] = "Div"};
    ExprClass c = wider(x, y);
    if (x.constant && y.constant && (op != '/' || c == X_REAL || fmod(x.c, y.c) == 0)) {
        ExprValue v = number(folded(op, x.c, y.c));
        v.class = c;
        return v;
    }
    return tensor(onnx_op2(r->o, name[(int)op], as(r, x, c), as(r, y, c)), c);
}

static ExprValue compared(Reader *r, const char *op, ExprValue x, ExprValue y)
{
    ExprClass c = x.class == X_BOOL && y.class == X_BOOL ? X_INT : wider(x, y);
    OnnxVal in[] = {as(r, x, c), as(r, y, c)};
    return tensor(onnx_op(r->o, op, DT_BOOL, 2, in), X_BOOL);
}

static ExprValue truth(Reader *r, ExprValue x)
{
    return x.class == X_BOOL && !x.constant ? x : tensor(as(r, x, X_BOOL), X_BOOL);
}

static ExprValue logical(Reader *r, const char *op, ExprValue x, ExprValue y)
{
    OnnxVal in[] = {truth(r, x).v, truth(r, y).v};
    return tensor(onnx_op(r->o, op, DT_BOOL, 2, in), X_BOOL);
}

static ExprValue negated(Reader *r, ExprValue x)
{
    ExprClass c = wider(x, x);
    if (!x.constant)
        return tensor(onnx_op1(r->o, "Neg", as(r, x, c)), c);
    x.c = -x.c;
    return x;
}

/* NaN is true in C, as everything but zero. */
static ExprValue chosen(Reader *r, ExprValue condition, ExprValue x, ExprValue y)
{
    ExprClass c = wider(x, y);
    OnnxVal in[] = {truth(r, condition).v, as(r, x, c), as(r, y, c)};
    return tensor(onnx_op(r->o, "Where", class_type(c, r->real), 3, in), c);
}

/* ---- functions ----------------------------------------------------------------------------------- */

static const struct {
    const char *name, *op;
} real_function[] = {{"EXP", "Exp"},     {"LOG", "Log"},     {"TANH", "Tanh"},   {"SQRT", "Sqrt"},
                     {"ERF", "Erf"},     {"SIN", "Sin"},     {"COS", "Cos"},     {"TAN", "Tan"},
                     {"ASIN", "Asin"},   {"ACOS", "Acos"},   {"ATAN", "Atan"},   {"SINH", "Sinh"},
                     {"COSH", "Cosh"},   {"ASINH", "Asinh"}, {"ACOSH", "Acosh"}, {"ATANH", "Atanh"},
                     {"FLOOR", "Floor"}, {"CEIL", "Ceil"},   {"RINT", "Round"},  {"FABS", "Abs"}};

/* Functions that cast to an element type and back, as a store to memory does. */
static const char *const narrowed[DT_COUNT] = {
    [DT_F32] = "F32", [DT_BF16] = "BF16", [DT_F16] = "F16",
    [DT_I32] = "I32", [DT_I8] = "I8",     [DT_U8] = "U8"};

static ExprValue real_op(Reader *r, const char *op, ExprValue x)
{
    return tensor(onnx_op1(r->o, op, as(r, x, X_REAL)), X_REAL);
}

static ExprValue truncated(Reader *r, ExprValue x)
{
    ExprValue below = compared(r, "Less", x, number(0));
    return chosen(r, below, real_op(r, "Ceil", x), real_op(r, "Floor", x));
}

/* x - y * floor(x / y) of reals if floored, else the operator Mod, which truncates for `fmod`. */
static ExprValue remainder_of(Reader *r, bool floored, ExprValue x, ExprValue y)
{
    ExprClass c = wider(x, y);
    if (c == X_REAL && floored) {
        ExprValue q = real_op(r, "Floor", arithmetic(r, '/', x, y));
        return arithmetic(r, '-', x, arithmetic(r, '*', y, q));
    }
    ExprValue v = tensor(onnx_op2(r->o, "Mod", as(r, x, c), as(r, y, c)), c);
    onnx_attr(r->o, "fmod", !floored);
    return v;
}

static ExprValue binary_function(Reader *r, const char *name, ExprValue x, ExprValue y)
{
    ExprClass c = wider(x, y);
    if (strcmp(name, "FMAX") == 0 || strcmp(name, "FMIN") == 0)
        return tensor(onnx_op2(r->o, name[2] == 'A' ? "Max" : "Min", as(r, x, c), as(r, y, c)), c);
    if (strcmp(name, "POW") == 0)
        return tensor(onnx_op2(r->o, "Pow", as(r, x, X_REAL), as(r, y, X_REAL)), X_REAL);
    if (strcmp(name, "DIV") == 0)
        return arithmetic(r, '/', x, y);
    if (strcmp(name, "REM") == 0 || strcmp(name, "MOD") == 0)
        return remainder_of(r, *name == 'M', x, y);
    r->bad = true;
    return x;
}

static ExprValue unary_function(Reader *r, const char *name, ExprValue x)
{
    for (size_t i = 0; i < sizeof real_function / sizeof *real_function; i++)
        if (strcmp(name, real_function[i].name) == 0)
            return real_op(r, real_function[i].op, x);
    if (strcmp(name, "R") == 0 && x.constant) {
        x.class = X_REAL;
        return x;
    }
    if (strcmp(name, "R") == 0)
        return tensor(as(r, x, X_REAL), X_REAL);
    if (strcmp(name, "INT_OF") == 0)
        return tensor(as(r, x, X_INT), X_INT);
    for (DType dt = DT_NONE; dt < DT_COUNT; dt++)
        if (strcmp(name, narrowed[dt] ? narrowed[dt] : "") == 0) {
            ExprClass c = dtype_is_float(dt) ? X_REAL : X_INT;
            return tensor(onnx_cast(r->o, onnx_cast(r->o, as(r, x, c), dt), class_type(c, r->real)), c);
        }
    if (strcmp(name, "EXPM1") == 0)
        return arithmetic(r, '-', real_op(r, "Exp", x), number(1));
    if (strcmp(name, "LOG1P") == 0)
        return real_op(r, "Log", arithmetic(r, '+', number(1), x));
    if (strcmp(name, "TRUNC") == 0)
        return truncated(r, x);
    if (strcmp(name, "ISNAN") == 0 || strcmp(name, "ISINF") == 0) {
        OnnxVal v = as(r, x, X_REAL);
        return tensor(onnx_op(r->o, name[2] == 'N' ? "IsNaN" : "IsInf", DT_BOOL, 1, &v), X_BOOL);
    }
    r->bad = true;
    return x;
}

/* ---- reading --------------------------------------------------------------------------------------- */

static ExprValue choice(Reader *r);

static void blanks(Reader *r) { r->p += strspn(r->p, " \n"); }

static bool accept(Reader *r, const char *token)
{
    blanks(r);
    size_t n = strlen(token);
    if (strncmp(r->p, token, n) != 0)
        return false;
    r->p += n;
    return true;
}

static void expect(Reader *r, const char *token) { r->bad |= !accept(r, token); }

/* BITOP(a, op, b) */
static ExprValue bit_operation(Reader *r)
{
    ExprValue x = choice(r);
    expect(r, ",");
    const char *op = accept(r, "&")   ? "BitwiseAnd"
                     : accept(r, "|") ? "BitwiseOr"
                     : accept(r, "^") ? "BitwiseXor"
                                      : NULL;
    expect(r, ",");
    ExprValue y = choice(r);
    r->bad |= !op;
    return tensor(onnx_op2(r->o, op ? op : "", as(r, x, X_INT), as(r, y, X_INT)), X_INT);
}

/* PHILOX_UNIFORM(seed, key, step, index), or PHILOX_NORMAL of the same. */
static ExprValue draw(Reader *r, bool normal)
{
    ExprValue x[4];
    for (int i = 0; i < 4; i++) {
        x[i] = choice(r);
        if (i < 3)
            expect(r, ",");
    }
    OnnxVal seed = as(r, x[0], X_INT), step = as(r, x[2], X_INT), index = as(r, x[3], X_INT);
    int64_t key = int_of(x[1].c);
    return tensor((normal ? onnx_normal : onnx_uniform)(r->o, seed, key, step, index, r->real), X_REAL);
}

/* PICK(condition, x, y) */
static ExprValue picked(Reader *r)
{
    ExprValue condition = choice(r);
    expect(r, ",");
    ExprValue x = choice(r);
    expect(r, ",");
    return chosen(r, condition, x, choice(r));
}

static ExprValue named(Reader *r)
{
    char name[32] = "";
    size_t n = 0;
    while (isalnum((unsigned char)r->p[n]) || r->p[n] == '_')
        n++;
    memcpy(name, r->p, n < sizeof name ? n : sizeof name - 1);
    r->p += n;
    if (accept(r, "(")) {
        bool bits = strcmp(name, "BITOP") == 0, draws = strncmp(name, "PHILOX_", 7) == 0;
        bool picks = strcmp(name, "PICK") == 0;
        ExprValue x = bits    ? bit_operation(r)
                      : draws ? draw(r, name[7] == 'N')
                      : picks ? picked(r)
                              : choice(r);
        if (!bits && !draws && !picks)
            x = accept(r, ",") ? binary_function(r, name, x, choice(r)) : unary_function(r, name, x);
        expect(r, ")");
        return x;
    }
    if (n == 1 && *name >= 'a' && *name <= 'c')
        return r->arg[*name - 'a'];
    r->bad |= strcmp(name, "al") != 0 && strcmp(name, "be") != 0;
    return number(*name == 'a' ? r->al : r->be);
}

static ExprValue primary(Reader *r)
{
    blanks(r);
    if (accept(r, "(")) {
        ExprValue x = choice(r);
        expect(r, ")");
        return x;
    }
    if (isdigit((unsigned char)*r->p)) {
        char *end;
        double v = strtod(r->p, &end);
        r->p = end;
        return number(v);
    }
    if (isalpha((unsigned char)*r->p))
        return named(r);
    r->bad = true;
    return number(0);
}

static ExprValue unary(Reader *r) { return accept(r, "-") ? negated(r, primary(r)) : primary(r); }

static ExprValue product(Reader *r)
{
    ExprValue x = unary(r);
    for (;;)
        if (accept(r, "*"))
            x = arithmetic(r, '*', x, unary(r));
        else if (accept(r, "/"))
            x = arithmetic(r, '/', x, unary(r));
        else
            return x;
}

static ExprValue sum(Reader *r)
{
    ExprValue x = product(r);
    for (;;)
        if (accept(r, "+"))
            x = arithmetic(r, '+', x, product(r));
        else if (accept(r, "-"))
            x = arithmetic(r, '-', x, product(r));
        else
            return x;
}

static ExprValue order(Reader *r)
{
    ExprValue x = sum(r);
    for (;;)
        if (accept(r, "<="))
            x = compared(r, "LessOrEqual", x, sum(r));
        else if (accept(r, ">="))
            x = compared(r, "GreaterOrEqual", x, sum(r));
        else if (accept(r, "<"))
            x = compared(r, "Less", x, sum(r));
        else if (accept(r, ">"))
            x = compared(r, "Greater", x, sum(r));
        else
            return x;
}

static ExprValue equal(Reader *r)
{
    ExprValue x = order(r);
    for (;;)
        if (accept(r, "==")) {
            x = compared(r, "Equal", x, order(r));
        } else if (accept(r, "!=")) {
            ExprValue same = compared(r, "Equal", x, order(r));
            x = tensor(onnx_op1(r->o, "Not", same.v), X_BOOL);
        } else {
            return x;
        }
}

static ExprValue and (Reader * r)
{
    ExprValue x = equal(r);
    while (accept(r, "&&") || accept(r, "&")) /* the same for conditions */
        x = logical(r, "And", x, equal(r));
    return x;
}

static ExprValue or (Reader * r)
{
    ExprValue x = and(r);
    while (accept(r, "||") || accept(r, "|"))
        x = logical(r, "Or", x, and(r));
    return x;
}

static ExprValue choice(Reader *r)
{
    ExprValue condition = or (r);
    if (r->bad || !accept(r, "?"))
        return condition;
    ExprValue x = choice(r);
    expect(r, ":");
    return chosen(r, condition, x, choice(r));
}

bool expr_translate(OnnxNodes *o, const Expr *e, const ExprValue *arg, double al, double be, DType real,
                    ExprValue *out)
{
    Reader r = {o, e->text, arg, al, be, real, false};
    *out = choice(&r);
    blanks(&r);
    return !r.bad && !*r.p;
}

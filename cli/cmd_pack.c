/* cmd_pack.c -- `ckc pack FILE.csv`: static memory allocation on instance files.
 *
 * The file has a header naming its columns, in any order: lower, upper (a buffer is live in [lower, upper)),
 * size in bytes, and optionally id and offset (a fixed place; empty or -1: free).  Other columns are ignored.
 * Steps may be any 64-bit integers, clock readings for instance: only their order matters, so they are
 * replaced by their ranks. */
#include "cli.h"
#include "ir/file.h"
#include "ir/mem.h"
#include "passes/plan/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 64, MAX_ROWS = 1 << 29 };

typedef struct {
    int64_t lower, upper; /* as in the file */
    char *id;
} Row;

typedef struct {
    PackBuffer *buffer;
    Row *row;
    int32_t n, room;
} Table;

static bool read_int(const char *text, int64_t low, int64_t *x)
{
    char *end;
    errno = 0;
    *x = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0 && *x >= low;
}

/* ---- reading ----------------------------------------------------------------------- */

enum { LOWER, UPPER, SIZE, ID, OFFSET, KNOWN };
static const char *const column_names[KNOWN] = {"lower", "upper", "size", "id", "offset"};

typedef struct {
    const char *path;
    Diag *diag;
    int64_t line;
    int columns;
    int at[KNOWN]; /* position of a known column, -1: absent */
} Reader;

static bool bad_line(const Reader *r, const char *format, ...) PRINTF(2, 3);

static bool bad_line(const Reader *r, const char *format, ...)
{
    char reason[256];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return fail(r->diag, "%s:%" PRId64 ": %s", r->path, r->line, reason);
}

/* Cuts a line into fields, without the blanks around them. */
static int split_fields(char *line, char *field[MAX_COLUMNS])
{
    int n = 0;
    for (char *next = line; next && n < MAX_COLUMNS; n++) {
        char *start = strsep(&next, ",");
        start += strspn(start, " \t");
        char *end = start + strlen(start);
        while (end > start && strchr(" \t\r\n", end[-1]))
            *--end = 0;
        field[n] = start;
        if (n + 1 == MAX_COLUMNS && next)
            return MAX_COLUMNS + 1;
    }
    return n;
}

static bool read_header(Reader *r, char *line)
{
    char *field[MAX_COLUMNS];
    r->columns = split_fields(line, field);
    if (r->columns > MAX_COLUMNS)
        return bad_line(r, "more than %d columns", MAX_COLUMNS);
    for (int k = 0; k < KNOWN; k++) {
        r->at[k] = -1;
        for (int c = 0; c < r->columns; c++) {
            if (strcmp(field[c], column_names[k]) != 0)
                continue;
            if (r->at[k] >= 0)
                return bad_line(r, "two columns named %s", column_names[k]);
            r->at[k] = c;
        }
        if (r->at[k] < 0 && k <= SIZE)
            return bad_line(r, "no column named %s", column_names[k]);
    }
    return true;
}

static bool read_field(const Reader *r, char **field, int column, int64_t low, int64_t *x)
{
    const char *text = field[r->at[column]];
    return read_int(text, low, x) ||
           bad_line(r, "%s '%.40s' is not a number%s", column_names[column], text,
                    low == 0 ? " from 0" : "");
}

static void grow(Table *t)
{
    if (t->n < t->room)
        return;
    t->room = t->room ? 2 * t->room : 1024;
    t->buffer = mem_grow(t->buffer, (size_t)t->room, sizeof *t->buffer);
    t->row = mem_grow(t->row, (size_t)t->room, sizeof *t->row);
}

static bool read_row(Reader *r, char *line, Table *t)
{
    char *field[MAX_COLUMNS];
    Row row = {0};
    PackBuffer b = {.offset = -1};
    if (t->n == MAX_ROWS)
        return bad_line(r, "more than %d rows", MAX_ROWS);
    int columns = split_fields(line, field);
    if (columns != r->columns)
        return bad_line(r, "%d columns expected", r->columns);
    if (!read_field(r, field, LOWER, INT64_MIN, &row.lower) ||
        !read_field(r, field, UPPER, INT64_MIN, &row.upper) ||
        !read_field(r, field, SIZE, 0, &b.size))
        return false;
    if (row.lower >= row.upper)
        return bad_line(r, "lower %" PRId64 " is not below upper %" PRId64, row.lower,
                        row.upper);
    if (r->at[OFFSET] >= 0 && field[r->at[OFFSET]][0] &&
        !read_field(r, field, OFFSET, -1, &b.offset))
        return false;
    char number[16];
    snprintf(number, sizeof number, "%" PRId32, t->n);
    grow(t);
    row.id = mem_strdup(r->at[ID] < 0 ? number : field[r->at[ID]]);
    t->buffer[t->n] = b;
    t->row[t->n++] = row;
    return true;
}

static int compare_steps(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

static int32_t rank_of(const int64_t *step, int32_t n, int64_t value)
{
    const int64_t *at = bsearch(&value, step, (size_t)n, sizeof *step, compare_steps);
    return (int32_t)(at - step);
}

/* Replaces the steps of the file by their ranks. */
static void number_steps(Table *t)
{
    int64_t *step = mem_new(2 * (size_t)t->n, sizeof *step);
    for (int32_t i = 0; i < t->n; i++) {
        step[2 * i] = t->row[i].lower;
        step[2 * i + 1] = t->row[i].upper;
    }
    qsort(step, 2 * (size_t)t->n, sizeof *step, compare_steps);
    int32_t distinct = 0;
    for (int32_t k = 0; k < 2 * t->n; k++)
        if (distinct == 0 || step[distinct - 1] != step[k])
            step[distinct++] = step[k];
    for (int32_t i = 0; i < t->n; i++) {
        t->buffer[i].lower = rank_of(step, distinct, t->row[i].lower);
        t->buffer[i].upper = rank_of(step, distinct, t->row[i].upper);
    }
    free(step);
}

static bool read_lines(Reader *r, FILE *f, Table *t)
{
    char *line = NULL;
    size_t room = 0;
    bool ok = true;
    for (ssize_t length; ok && (length = getline(&line, &room, f)) >= 0;) {
        r->line++;
        if (strlen(line) != (size_t)length)
            ok = bad_line(r, "a NUL byte");
        else if (r->line == 1)
            ok = read_header(r, line + bom_bytes(line));
        else if (line[strspn(line, " \t\r\n")])
            ok = read_row(r, line, t);
    }
    free(line);
    return ok;
}

static bool read_table(const char *path, Table *t, Diag *d)
{
    Reader r = {.path = path, .diag = d};
    const char *why;
    FILE *f = file_open_text(path, &why);
    if (!f)
        return fail(d, "%s: %s", path, why);
    errno = 0;
    bool ok = read_lines(&r, f, t);
    if (ok && ferror(f))
        ok = fail(d, "%s: %s", path, strerror(errno ? errno : EIO));
    fclose(f);
    if (ok && r.line == 0)
        ok = fail(d, "%s:1: empty file", path);
    if (ok)
        number_steps(t);
    return ok;
}

static void free_table(Table *t)
{
    for (int32_t i = 0; i < t->n; i++)
        free(t->row[i].id);
    free(t->row);
    free(t->buffer);
}

/* ---- writing ----------------------------------------------------------------------- */

static bool write_table(const Table *t, const char *path, Diag *d)
{
    NewFile out;
    if (!file_create(&out, path, d))
        return false;
    fprintf(out.f, "id,lower,upper,size,offset\n");
    for (int32_t i = 0; i < t->n; i++)
        fprintf(out.f, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", t->row[i].id,
                t->row[i].lower, t->row[i].upper, t->buffer[i].size, t->buffer[i].offset);
    return file_commit(&out, d);
}

static double percent_over(int64_t arena, int64_t load)
{
    return load > 0 ? 100 * ((double)arena / (double)load - 1) : 0;
}

static void print_text(const Options *o, const Table *t, const PackResult *r)
{
    printf("arena %" PRId64 " bytes, maximum load %" PRId64 " bytes (+%.3f %%), %" PRId32
           " buffers, %.3f s\n",
           r->arena, r->max_load, percent_over(r->arena, r->max_load), t->n, r->seconds);
    if (!r->fits)
        printf("does not fit %" PRId64 " bytes%s\n", o->capacity,
               r->bound > o->capacity ? ": nothing does" : "");
}

static void print_json(const Options *o, const Table *t, const PackResult *r)
{
    json_t *j = json_pack(
        "{s:o, s:i, s:I, s:I, s:I, s:f, s:I, s:b, s:I, s:f}", "file", text_json(o->path), "buffers",
        (int)t->n, "arena", (json_int_t)r->arena, "max_load", (json_int_t)r->max_load,
        "bound", (json_int_t)r->bound, "over_max_load_percent",
        percent_over(r->arena, r->max_load), "capacity", (json_int_t)o->capacity,
        "fits", (int)r->fits, "steps", (json_int_t)r->steps, "seconds", r->seconds);
    json_print(j, 9);
    json_decref(j);
}

static bool pack(Options *o, Table *t, PackResult *r)
{
    char err[PACK_ERR_SIZE];
    Diag *d = &o->diag;
    PackOptions p = {.capacity = o->capacity, .align = o->align, .max_steps = o->max_steps,
                     .time_limit_s = o->step.time_limit, .seed = o->seed_given ? o->step.seed : 0};
    if ((o->output && !file_try(o->output, d)) || !read_table(o->path, t, d))
        return false;
    if (!pack_solve(t->buffer, t->n, &p, r, err) || !pack_verify(t->buffer, t->n, r->arena, err))
        return fail(d, "%s: %s", o->path, err);
    return !o->output || !r->fits || write_table(t, o->output, d);
}

int cmd_pack(Options *o)
{
    Table table = {0};
    PackResult result = {0};
    bool ok = (o->path || fail(&o->diag, "no file given")) && pack(o, &table, &result);
    int status = result.fits ? EXIT_OK : EXIT_INFEASIBLE;
    if (!ok)
        status = report_error(&o->diag, NULL);
    else if (o->json)
        print_json(o, &table, &result);
    else
        print_text(o, &table, &result);
    free_table(&table);
    return status;
}

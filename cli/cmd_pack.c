/*
 * cmd_pack.c -- `ckc pack FILE.csv`: static memory allocation on instance files.
 *
 * The file has a header naming its columns, in any order: lower, upper (a buffer is live in
 * [lower, upper)), size in bytes, and optionally id and offset (a fixed place; empty or -1:
 * free). Other columns are ignored. Steps may be any 64-bit integers, clock readings for
 * instance: only their order matters, so they are replaced by their ranks.
 */
#include "message.h"
#include "ir/file.h"
#include "ir/mem.h"
#include "passes/plan/pack.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_pack(int argc, char **argv);

enum { KEY_ALIGN = 256, KEY_JSON, KEY_SEED, KEY_STEPS, MAX_COLUMNS = 64, MAX_ROWS = 1 << 29 };

typedef struct {
    const char *path, *output;
    PackOptions options;
    bool json;
} Args;

typedef struct {
    int64_t lower, upper; /* as in the file */
    char *id;
} Row;

typedef struct {
    PackBuffer *buffer;
    Row *row;
    int32_t n, room;
} Table;

/* ---- options ----------------------------------------------------------------------- */

static const struct argp_option option_table[] = {
    {"capacity", 'c', "BYTES", 0, "Stop when it fits; exit status 3 when it does not", 0},
    {"output", 'o', "FILE", 0, "Write the rows with an offset column", 0},
    {"time", 't', "SECONDS", 0, "Time limit of the search", 0},
    {"steps", KEY_STEPS, "N", 0, "Step limit of the search (about 1e9 a second)", 0},
    {"align", KEY_ALIGN, "BYTES", 0, "Alignment of every offset (default 1)", 0},
    {"seed", KEY_SEED, "N", 0, "Random seed of the search (default 0)", 0},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 0},
    {0},
};

static bool read_int(const char *text, int64_t low, int64_t *x)
{
    char *end;
    errno = 0;
    *x = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0 && *x >= low;
}

static bool read_seconds(const char *text, double *x)
{
    char *end;
    *x = strtod(text, &end);
    return end != text && *end == 0 && *x > 0 && *x <= 1e9;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    int64_t seed;
    bool ok = true;
    switch (key) {
    case 'c':
        ok = read_int(arg, 1, &a->options.capacity);
        break;
    case 'o':
        a->output = arg;
        break;
    case 't':
        ok = read_seconds(arg, &a->options.time_limit_s);
        break;
    case KEY_STEPS:
        ok = read_int(arg, 1, &a->options.max_steps);
        break;
    case KEY_ALIGN:
        ok = read_int(arg, 1, &a->options.align);
        break;
    case KEY_SEED:
        ok = read_int(arg, 0, &seed);
        a->options.seed = ok ? (uint64_t)seed : 0;
        break;
    case KEY_JSON:
        a->json = true;
        break;
    case ARGP_KEY_INIT:
        state->err_stream = NULL; /* no second line */
        break;
    case ARGP_KEY_ARG:
        if (a->path)
            usage_error("one file at a time");
        a->path = arg;
        break;
    case ARGP_KEY_END:
        if (!a->path)
            usage_error("no file given");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        usage_error("bad number '%s'", arg);
    return 0;
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

/* Steps of the file to their ranks. */
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
            ok = read_header(r, line);
        else if (line[strspn(line, " \t\r\n")])
            ok = read_row(r, line, t);
    }
    free(line);
    return ok;
}

static bool read_table(const char *path, Table *t, Diag *d)
{
    Reader r = {.path = path, .diag = d};
    FILE *f = file_open_text(path);
    if (!f)
        return fail(d, "%s: %s", path, strerror(errno));
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

static void print_text(const Args *a, const Table *t, const PackResult *r)
{
    printf("arena %" PRId64 " bytes, maximum load %" PRId64 " bytes (+%.3f %%), %" PRId32
           " buffers, %.3f s\n",
           r->arena, r->max_load, percent_over(r->arena, r->max_load), t->n, r->seconds);
    if (!r->fits)
        printf("does not fit %" PRId64 " bytes%s\n", a->options.capacity,
               r->bound > a->options.capacity ? ": nothing does" : "");
}

static void print_json(const Args *a, const Table *t, const PackResult *r)
{
    json_t *j = json_pack(
        "{s:o, s:i, s:I, s:I, s:I, s:f, s:I, s:b, s:I, s:f}", "file", json_text(a->path), "buffers",
        (int)t->n, "arena", (json_int_t)r->arena, "max_load", (json_int_t)r->max_load,
        "bound", (json_int_t)r->bound, "over_max_load_percent",
        percent_over(r->arena, r->max_load), "capacity", (json_int_t)a->options.capacity,
        "fits", (int)r->fits, "steps", (json_int_t)r->steps, "seconds", r->seconds);
    json_print(j, 9);
    json_decref(j);
}

static bool pack(const Args *a, Table *t, PackResult *r, Diag *d)
{
    char err[PACK_ERR_SIZE];
    if ((a->output && !file_try(a->output, d)) || !read_table(a->path, t, d))
        return false;
    if (!pack_solve(t->buffer, t->n, &a->options, r, err) ||
        !pack_verify(t->buffer, t->n, r->arena, err))
        return fail(d, "%s: %s", a->path, err);
    return !a->output || !r->fits || write_table(t, a->output, d);
}

int cmd_pack(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "FILE.csv",
        "Place buffers with known lifetimes in one arena, as small as can be.",
        NULL,
        NULL,
        NULL};
    Args args = {0};
    Table table = {0};
    PackResult result = {0};
    Diag diag = {0};
    argp_err_exit_status = EXIT_BAD_INPUT;
    if (argp_parse(&argp, argc, argv, 0, NULL, &args))
        return EXIT_BAD_INPUT;
    bool ok = pack(&args, &table, &result, &diag);
    int status = result.fits ? EXIT_OK : EXIT_INFEASIBLE;
    if (!ok)
        status = report_error(&diag, NULL);
    else if (args.json)
        print_json(&args, &table, &result);
    else
        print_text(&args, &table, &result);
    free_table(&table);
    return status;
}

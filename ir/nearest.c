/* nearest.c -- finds the name that was probably meant. */
#include "ir.h"
#include "mem.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 64 };

static int least(int a, int b) { return a < b ? a : b; }

/* Number of insertions, deletions, replacements and exchanges of neighbours between the first LONGEST bytes
 * of a and b. */
static int distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1], n = (int)strnlen(b, LONGEST), m = (int)strnlen(a, LONGEST);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

/* The longest part of a pattern without wildcards. */
static char *plain_part(const char *glob)
{
    const char *best = glob;
    size_t n = 0;
    for (const char *s = glob; *s;) {
        size_t len = strcspn(s, "*?[]");
        if (len > n) {
            best = s;
            n = len;
        }
        s += len + (s[len] != 0);
    }
    return mem_printf("%.*s", (int)n, best);
}

void nearest_init(Nearest *near, const char *typed)
{
    *near = (Nearest){.typed = typed, .part = plain_part(typed)};
}

/* Has the name what was typed in it?  Of a word without wildcards it is to be more than a third. */
static bool within(const Nearest *near, const char *name)
{
    size_t n = strlen(near->part);
    return n > 2 && strstr(name, near->part) && (n < strlen(near->typed) || 3 * n > strlen(name));
}

/* A name is near if at most a third of its letters, or of those typed, are others. */
void nearest_try(Nearest *near, const char *name)
{
    int d = within(near, name) ? 0 : distance(near->typed, name);
    int typed = (int)strnlen(near->typed, LONGEST), own = (int)strnlen(name, LONGEST);
    if (3 * d > (typed > own ? typed : own) || (near->name && d >= near->distance) || !own)
        return;
    near->name = name;
    near->distance = d;
}

const char *nearest_hint(Nearest *near, char buf[NEAREST_HINT])
{
    buf[0] = 0;
    if (near->name)
        snprintf(buf, NEAREST_HINT, "; did you mean '%.200s'?", near->name);
    free(near->part);
    return buf;
}

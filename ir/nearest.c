/* nearest.c -- finds the name that was probably meant. */
#include "ir.h"
#include "mem.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 64 };

static int least(int a, int b) { return a < b ? a : b; }

/* Number of insertions, deletions and replacements between the first LONGEST bytes of a and b. */
static int distance(const char *a, const char *b)
{
    int row[LONGEST + 1], n = (int)strnlen(b, LONGEST), m = (int)strnlen(a, LONGEST);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; i <= m; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int d = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            row[j] = least(d, 1 + least(row[j], row[j - 1]));
        }
    }
    return row[n];
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
    *near = (Nearest){.typed = typed, .part = plain_part(typed), .distance = 1 + (int)strlen(typed) / 3};
}

void nearest_try(Nearest *near, const char *name)
{
    bool within = strlen(near->part) > 2 && strstr(name, near->part);
    int d = within ? 0 : distance(near->typed, name);
    if (!name[0] || d >= near->distance + !near->name)
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

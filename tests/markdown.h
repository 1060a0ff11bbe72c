/* markdown.h -- what a Markdown file says of other things, looked up: links and their anchors, ckc's commands
 * and options, files of the repository; and its tables' columns. */
#ifndef CKC_TESTS_MARKDOWN_H
#define CKC_TESTS_MARKDOWN_H
#include "ir/ir.h"

typedef struct {
    const char *root; /* folder of the repository */
    Arena arena;      /* the caller's, like what is in it */
    const char **file;
    uint32_t nfile, cap;                /* paths of its files below root, "ir/ir.h" */
    FILE *faults;                       /* a line for each, "docs/guide.md:12: ..." */
    int nfault, links, commands, names; /* faults found; things looked up */
    const char *path;                   /* of the file that is read, and the line in it */
    int line;
} Markdown;

/* Lists the files below m->root. */
void markdown_begin(Markdown *m);
/* Looks up what the file at root/path says. */
void markdown_check(Markdown *m, const char *path);
#endif

/* markdown.h -- checks what a Markdown file says of other things: links and their anchors, ckc's commands and
 * options, files of the repository; and that lines of a table have equally many columns. */
#ifndef CKC_TESTS_MARKDOWN_H
#define CKC_TESTS_MARKDOWN_H
#include "ir/ir.h"

typedef struct {
    const char *root; /* folder of the repository */
    Arena arena;      /* the caller frees it */
    const char **file; /* paths of files and folders below root, "ir/ir.h" */
    uint32_t nfile, cap;                /* their number, and the room for them */
    FILE *faults;                       /* gets a line for each fault, "docs/guide.md:12: ..." */
    int nfault, links, commands, names; /* numbers of faults found, and of things looked up */
    const char *path;                   /* the file that is read */
    int line;                           /* the line in it */
} Markdown;

/* Lists the files below m->root, without hidden folders and build; comes before all checks. */
void markdown_begin(Markdown *m);
/* Checks the file at root/path; adds to m's faults and numbers. */
void markdown_check(Markdown *m, const char *path);
#endif

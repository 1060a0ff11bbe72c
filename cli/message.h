/* message.h -- what the commands of ckc say: messages, escapes, progress. */
#ifndef CKC_MESSAGE_H
#define CKC_MESSAGE_H

#include "ir/ir.h"
#include "ir/progress.h"
#include "ir/utf8.h"
#include <jansson.h>
#include <stdio.h>

/* ---- progress.c --------------------------------------------------------------------------- */

/* A line on standard error about what is being done, if that is a terminal and not quiet; the one that is
 * there goes on. */
Progress progress_begin(bool quiet);
void progress_end(void);   /* and it is gone; nothing may be printed before */
int terminal_width(void);  /* of standard error; 0: it is no terminal */

/* ---- message.c: text for people, with nothing raw in it that came from a file ------------------- */

json_t *json_text(const char *text); /* escaped where it is not UTF-8 */
/* A message: one line, or wrapped at the width with its table's rows on lines of their own. */
void message_print(FILE *f, const char *text, int width);
/* A message on standard error, with the file's name unless NULL; the exit status d stands for. */
int report_error(const Diag *d, const char *file);
/* One line of a summary, escaped. */
void print_line(FILE *f, const char *fmt, ...) PRINTF(2, 3);
void json_print(const json_t *o, size_t digits); /* on standard output */

#endif

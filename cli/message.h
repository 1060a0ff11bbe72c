/* message.h -- what the commands of ckc say: messages, escapes, progress. */
#ifndef CKC_MESSAGE_H
#define CKC_MESSAGE_H

#include "ir/ir.h"
#include "ir/json.h"
#include "ir/progress.h"
#include "ir/utf8.h"
#include <stdio.h>

/* ---- progress.c --------------------------------------------------------------------------- */

/* A line on standard error about what is being done, if that is a terminal and not quiet; the one that is
 * there goes on. */
Progress progress_begin(bool quiet);
/* On standard output, while the line goes on. */
void progress_print(const char *fmt, ...) PRINTF(1, 2);
int progress_room(void);   /* columns of its text */
void progress_end(void);   /* and it is gone; nothing else may be printed before */
int stream_width(FILE *f); /* columns; 0: it is no terminal */

/* ---- message.c: text for people, with nothing raw in it that came from a file ------------------- */

/* Words from column `at` on, wrapped at the width; further lines are indented. */
void print_words(FILE *f, const char *s, size_t n, int at, int width, int indent);
/* A message: one line, or wrapped at the width with its table's rows on lines of their own. */
void message_print(FILE *f, const char *text, int width);
/* The message of an error, with the file's name unless NULL: one line, escaped.  malloc'ed. */
char *error_line(const Diag *d, const char *file);
/* A message on standard error, with the file's name unless NULL; the exit status d stands for. */
int report_error(const Diag *d, const char *file);
/* From now on errors are an object on standard output as well, so that it always holds one JSON text. */
void report_errors_as_json(void);
/* Lines as they are; on a terminal those that are wider are wrapped, what follows is indented. */
void print_lines(FILE *f, const char *text, int indent);
/* One line of a summary, escaped. */
void print_line(FILE *f, const char *fmt, ...) PRINTF(2, 3);
void json_print(const json_t *o, size_t digits); /* on standard output */

#endif

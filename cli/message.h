/* message.h -- what the commands of ckc print: messages, escaped text, progress. */
#ifndef CKC_MESSAGE_H
#define CKC_MESSAGE_H

#include "ir/ir.h"
#include "ir/json.h"
#include "ir/progress.h"
#include "ir/utf8.h"
#include <stdio.h>

/* ---- progress.c --------------------------------------------------------------------------- */

/* Begins a line on standard error about what is being done, if that is a terminal and not quiet; a line that
 * is shown already continues. */
Progress progress_begin(bool quiet);
/* Prints to standard output while the line continues. */
void progress_print(const char *fmt, ...) PRINTF(1, 2);
int progress_room(void);   /* columns that its text may have */
void progress_end(void);   /* erases the line; other text may be printed only after this */
/* In a forked process, which lacks the line's thread: nothing is shown from now on. */
void progress_mute(void);
int stream_width(FILE *f); /* columns; 0: f is not a terminal */

/* ---- message.c: text for people, with nothing raw in it that came from a file ------------------- */

/* Prints n bytes of words from column `at` on, wrapped at the width; further lines are indented. */
void print_words(FILE *f, const char *s, size_t n, int at, int width, int indent);
/* Prints a message: width 0: as one line, else wrapped, with its table's rows on lines of their own. */
void message_print(FILE *f, const char *text, int width);
/* The message of an error as one escaped line, with the file's name unless it is NULL.  malloc'ed. */
char *error_line(const Diag *d, const char *file);
/* Prints the message on standard error, with the file's name unless it is NULL; returns d's exit status. */
int report_error(const Diag *d, const char *file);
/* From now on errors are also JSON objects on standard output, so that it always holds one JSON text. */
void report_errors_as_json(void);
/* Prints lines unchanged; on a terminal wraps those that are wider, with their further lines indented. */
void print_lines(FILE *f, const char *text, int indent);
/* Prints one line of a summary, escaped. */
void print_line(FILE *f, const char *fmt, ...) PRINTF(2, 3);
void json_print(const json_t *o, size_t digits); /* on standard output */

#endif

/* progress.h -- the progress line shown to the user.
 *
 * Each line replaces the one before; whoever shows it decides how often.  Nothing may depend on it. */
#ifndef CKC_PROGRESS_H
#define CKC_PROGRESS_H

typedef struct {
    void (*say)(void *user, const char *text); /* NULL: nobody waits */
    void *user;
} Progress;

/* p may be NULL. */
void progress(const Progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

double clock_seconds(void); /* a clock for differences */

#endif

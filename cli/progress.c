/* progress.c -- one line on the terminal about what is being done, rewritten in place.
 *
 * A thread of its own shows the last text and for how long the work has lasted, so that the line changes
 * while a pass works.  The line appears after half a second, leaves nothing behind, and is shown only if
 * standard error is a terminal. */
#include "message.h"
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MS = 500, EVERY_MS = 200 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    bool runs, stop, shown, mute;
    char text[160];
    double start;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

int stream_width(FILE *f)
{
    struct winsize w;
    if (!isatty(fileno(f)))
        return 0;
    return ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : 80;
}

static const char prefix[] = "ckc: ";

int progress_room(void) { return stream_width(stderr) - (int)sizeof prefix; }

/* Shows the line, with the time that has passed if there is room for it. */
static void show(void)
{
    char text[256], since[32];
    int width = stream_width(stderr) - 1;
    int n = snprintf(text, sizeof text, "%s%s", prefix, line.text);
    int m = snprintf(since, sizeof since, " (%.0f s)", clock_seconds() - line.start);
    fprintf(stderr, "\r%.*s%s\033[K", width, text, n + m <= width ? since : "");
    fflush(stderr);
    line.shown = true;
}

static void erase(void)
{
    if (line.shown)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    line.shown = false;
}

/* The time in so many ms, by the clock that pthread_cond_timedwait uses. */
static struct timespec in_ms(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    ms += t.tv_nsec / 1000000;
    return (struct timespec){t.tv_sec + ms / 1000, ms % 1000 * 1000000};
}

static void *show_lines(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&line.lock);
    for (int64_t wait = FIRST_MS; !line.stop; wait = EVERY_MS) {
        struct timespec until = in_ms(wait);
        pthread_cond_timedwait(&line.ended, &line.lock, &until);
        if (!line.stop)
            show();
    }
    erase();
    pthread_mutex_unlock(&line.lock);
    return NULL;
}

static void say(void *user, const char *text)
{
    (void)user;
    if (line.mute)
        return;
    pthread_mutex_lock(&line.lock);
    snprintf(line.text, sizeof line.text, "%s", text);
    pthread_mutex_unlock(&line.lock);
}

/* Starts the thread with all signals blocked, so that the working thread gets them. */
static bool start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(&line.thread, NULL, show_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

void progress_print(const char *fmt, ...)
{
    va_list ap;
    pthread_mutex_lock(&line.lock);
    erase();
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    fflush(stdout);
    pthread_mutex_unlock(&line.lock);
}

/* Is standard error a terminal on which a line can be rewritten? */
static bool is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && (!term || strcmp(term, "dumb") != 0);
}

Progress progress_begin(bool quiet)
{
    if (quiet || line.mute || !is_terminal())
        return (Progress){0};
    if (!line.runs) {
        line.stop = false;
        line.start = clock_seconds();
        strcpy(line.text, "starting");
        line.runs = start_thread();
    }
    return (Progress){line.runs ? say : NULL, NULL};
}

void progress_mute(void) { line.mute = true; }

void progress_end(void)
{
    if (!line.runs)
        return;
    pthread_mutex_lock(&line.lock);
    line.stop = true;
    pthread_cond_signal(&line.ended);
    pthread_mutex_unlock(&line.lock);
    pthread_join(line.thread, NULL);
    line.runs = false;
}

/* process.c -- signals and standard streams.
 *
 * SIGINT, SIGTERM and SIGHUP end the process at once, with one line and without temporary files, until a run
 * begins that may have something to save: then the first is remembered and the second ends the process. */
#include "cli.h"
#include "ir/file.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t signal_caught;
static volatile sig_atomic_t deferred;
static void (*on_pipe)(int) = SIG_IGN; /* what SIGPIPE did before a run */
static pthread_t main_thread;

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
enum { NCAUGHT = sizeof caught / sizeof *caught };

/* ---- signals: async-signal-safe ------------------------------------------------------------- */

const char *signal_name(int sig)
{
    return sig == SIGINT ? "SIGINT" : sig == SIGTERM ? "SIGTERM" : "SIGHUP";
}

static void put(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* there is nobody to tell */
}

static void on_signal(int sig)
{
    int error = errno;
    if (!pthread_equal(pthread_self(), main_thread)) { /* which holds what has to be removed */
        pthread_kill(main_thread, sig);
        errno = error;
        return;
    }
    if (deferred && !signal_caught) {
        signal_caught = sig;
        return;
    }
    temp_remove_all();
    if (isatty(STDERR_FILENO))
        put("\r\033[K"); /* a line of progress, or ^C */
    put("ckc: ended by ");
    put(signal_name(sig));
    put(signal_caught ? ", the second signal: what is not yet written is lost\n"
                      : ": nothing was written\n");
    _exit(128 + sig);
}

void signals_defer(void)
{
    if (!deferred) /* trained weights must not be lost because a pipe's reader is gone */
        on_pipe = signal(SIGPIPE, SIG_IGN);
    deferred = true;
}

void signals_default(void)
{
    for (int i = 0; i < NCAUGHT; i++)
        signal(caught[i], SIG_DFL);
}

static void catch_signals(void)
{
    struct sigaction now, then = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    main_thread = pthread_self();
    sigfillset(&then.sa_mask);
    for (int i = 0; i < NCAUGHT; i++)
        if (sigaction(caught[i], NULL, &now) == 0 &&
            (caught[i] != SIGHUP || now.sa_handler != SIG_IGN)) /* nohup */
            sigaction(caught[i], &then, NULL);
    signal(SIGXFSZ, SIG_IGN); /* write() then fails, which is reported */
}

/* ---- standard streams ---------------------------------------------------------------------------- */

/* Opens standard streams that are closed, so that none of our files gets their numbers. */
static void open_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_DEVICE);
}

/* Fails if standard output could not be written, as printed text is a result, too. */
static void close_output(void)
{
    int error = file_stream_error(stdout);
    if (!error)
        return;
    if (error == EPIPE) { /* now SIGPIPE may end the process */
        signal(SIGPIPE, on_pipe);
        raise(SIGPIPE);
    }
    fprintf(stderr, "ckc: standard output: %s\n", strerror(error));
    _exit(EXIT_DEVICE);
}

void process_begin(void)
{
    open_streams();
    catch_signals();
    atexit(close_output);
}

/* parallel.c -- see parallel.h.  Results lie in memory that is shared with the processes. */
#include "parallel.h"
#include "cli.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    void (*work)(void *user, int i, void *result);
    void *user;
    char *result; /* shared: of every call, `stride` bytes apart, and behind each whether the call returned */
    size_t size, stride;
} Calls;

static char *result_of(const Calls *c, int i) { return c->result + (size_t)i * c->stride; }

/* Starts a process that makes call i and ends with its parent; false: there is none. */
static bool start(const Calls *c, int i)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid > 0;
    signals_default();
    progress_mute();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    c->work(c->user, i, result_of(c, i));
    result_of(c, i)[c->size] = true;
    _exit(EXIT_SUCCESS);
}

static void wait_for_one(int *running)
{
    pid_t pid;
    while ((pid = wait(NULL)) < 0 && errno == EINTR)
        ;
    *running -= 1;
}

static void run_apart(const Calls *c, int n)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int running = 0;
    for (int i = 0; i < n && start(c, i); i++)
        if (++running >= processors)
            wait_for_one(&running);
    while (running > 0)
        wait_for_one(&running);
}

void parallel_run(int n, bool apart, void (*work)(void *user, int i, void *result), void *user, void *results,
                  size_t size)
{
    enum { ALIGN = 64 };
    Calls c = {work, user, MAP_FAILED, size, (size + ALIGN) / ALIGN * ALIGN};
    size_t bytes = (size_t)n * c.stride;
    memset(results, 0, (size_t)n * size);
    if (apart && n > 1)
        c.result = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c.result != MAP_FAILED)
        run_apart(&c, n);
    for (int i = 0; i < n; i++) {
        char *out = (char *)results + (size_t)i * size;
        if (c.result != MAP_FAILED && result_of(&c, i)[size])
            memcpy(out, result_of(&c, i), size);
        else
            work(user, i, out);
    }
    if (c.result != MAP_FAILED)
        munmap(c.result, bytes);
}

/* main.c -- ckc: runs a command.  Without a command's name that is the main job, train: plan and run
 * training steps of a model. */
#include "cli.h"
#include "ir/mem.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *new_bytes(size_t n) { return mem_new(n, 1); }
static void no_memory(void) { out_of_memory(0); }

/* Lack of memory in libraries also ends the program with a message: jansson allocates by our functions, and
 * C++'s operator new (oneDNN) calls our handler instead of throwing, which C cannot catch. */
static void set_up_memory(void)
{
    typedef void (*Handler)(void);
    Handler (*set_handler)(Handler) = NULL;
    *(void **)&set_handler = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
    if (set_handler)
        set_handler(no_memory);
    json_set_alloc_funcs(new_bytes, free);
}

/* Is the argument neither an option nor a file, nor does it look like a path?  Then a command was meant. */
static bool is_word(const char *arg) { return *arg != '-' && !strpbrk(arg, "./") && access(arg, F_OK) != 0; }

/* Is --json given?  As for getopt, the beginning of an option is enough. */
static bool says_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--json", strlen(argv[i])) == 0 && strlen(argv[i]) > 2)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    spin_bounded(argv);
    process_begin();
    set_up_memory();
    if (says_json(argc, argv))
        report_errors_as_json();
    const Subcommand *c = argc > 1 ? command_find(argv[1]) : NULL;
    if (c)
        return command_run(c, argc - 1, argv + 1);
    Diag d = {0};
    if (argc > 1 && is_word(argv[1]) && !command_unknown(argv[1], &d))
        return report_error(&d, NULL);
    return command_run(command_find("train"), argc, argv);
}

/* main.c -- ckc: which command runs.  Without a command's name it is the main job: plan and run a
 * training step of a model. */
#include "cli.h"
#include "ir/mem.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *new_bytes(size_t n) { return mem_new(n, 1); }
static void no_memory(void) { out_of_memory(0); }

/* What libraries allocate ends the program in order, too: jansson's memory is ours, and C++'s operator
 * new (oneDNN) calls a handler instead of throwing what C cannot catch. */
static void set_up_memory(void)
{
    typedef void (*Handler)(void);
    Handler (*set_handler)(Handler) = NULL;
    *(void **)&set_handler = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
    if (set_handler)
        set_handler(no_memory);
    json_set_alloc_funcs(new_bytes, free);
}

/* An argument that is no file cannot have been meant as one, unless it looks like one. */
static bool is_word(const char *arg) { return *arg != '-' && !strpbrk(arg, "./") && access(arg, F_OK) != 0; }

/* As getopt takes it, which the beginning of an option is enough for. */
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

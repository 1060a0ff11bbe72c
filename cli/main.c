/* main.c -- ckc: which command runs.  Without a command's name it is the main job: plan and run a
 * training step of a model. */
#include "cli.h"
#include "ir/mem.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", cmd_run},     /* execute a saved schedule */
    {"eval", cmd_eval},   /* forward only: compare with expected outputs */
    {"opt", cmd_opt},     /* run passes on the text form of a graph */
    {"solve", cmd_solve}, /* rematerialization on instance files */
    {"pack", cmd_pack},   /* memory allocation on instance files */
    {"devices", cmd_devices}, /* that plans can be made for */
};

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

int main(int argc, char **argv)
{
    static char name[32] = "ckc";
    spin_bounded(argv);
    process_begin();
    set_up_memory();
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            snprintf(name, sizeof name, "ckc %s", commands[i].name);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    if (argc > 0)
        argv[0] = name; /* in front of getopt's messages */
    return cmd_train(argc, argv);
}

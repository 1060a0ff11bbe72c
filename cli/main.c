/* main.c -- ckc: which command runs.  Without a command's name it is the main job: plan and run a
 * training step of a model. */
#include "cli.h"
#include <stdio.h>
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
};

int main(int argc, char **argv)
{
    static char name[32] = "ckc";
    spin_bounded(argv);
    process_begin();
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

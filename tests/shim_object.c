/* shim_object.c -- see shim_object.h. */
#include "shim_object.h"
#include "tests.h"
#include "command.h"
#include "shim/shadow.h"
#include <dlfcn.h>
#include <stdlib.h>

void *shim_load(ShimState *state, bool hooks)
{
    char command[512];
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -w -ffp-contract=off -march=native -fPIC %s -I'%s/tests/shim' -c k.c -o k.o "
             "&& cc -shared k.o -o k.so -lm", hooks ? "-fsanitize=thread" : "", CKC_SOURCE_DIR);
    ck_assert_int_eq(shell(command), 0);
    void *dl = dlopen("./k.so", RTLD_NOW);
    ck_assert_msg(dl != NULL, "%s", dlerror());
    ShimState **slot = dlsym(dl, "shim");
    ck_assert_ptr_nonnull(slot);
    *slot = state;
    shadow_add_object(dlsym(dl, "shim_memory"));
    return dl;
}

void shim_unload(void *dl)
{
    shadow_remove_object(dlsym(dl, "shim_memory"));
    dlclose(dl);
}

/* loading MODULE: a library that is loaded later, and whose constructor waits for a thread. */
#include "common.h"

#include <dlfcn.h>

int main(int count, char **arguments)
{
    const char *said = dlerror();
    printf("before anything was looked for: %s\n", said ? said : "no error");
    void *module = dlopen(arguments[count - 1], RTLD_NOW | RTLD_LOCAL);
    if (module == NULL)
        fail("%s", dlerror());
    const char *(*what)(void) = (const char *(*)(void))dlsym(module, "what_its_thread_did");
    printf("the thread that the constructor waited for: %s\n", what());
    return 0;
}

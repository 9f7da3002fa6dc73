/* modules MODULE: libraries that are loaded later, and whose symbols the program does not see. */
#include "common.h"

#include <dlfcn.h>

int main(int count, char **arguments)
{
    void *module = dlopen(arguments[count - 1], RTLD_NOW | RTLD_LOCAL);
    if (module == NULL)
        fail("%s", dlerror());
    int (*ring)(void *) = (int (*)(void *))dlsym(module, "ring_of_module");
    for (int i = 0; i < 2; i++)
        printf("the module's own io_uring: %d\n", ring(&i));
    return 0;
}

/* opened LIBRARY: a library that is opened with dlopen(3), after libc, so that no call of the
 * program reaches it, does nothing. */
#include "common.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("FAIL %s\n", dlerror());
        return 1;
    }
    /* Its first word is a mark that is set when the library begins to work. */
    const unsigned long long *published = dlsym(library, "uncork_published");
    printf("%s\n", published == NULL ? "not ours" : *published == 0 ? "idle" : "at work");
    return 0;
}

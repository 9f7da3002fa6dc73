/* A malloc(3) that reports calls where none is allowed: by code in a handler that has interrupted it. */
#ifndef UNCORK_E2E_HEAP_H
#define UNCORK_E2E_HEAP_H
#include "common.h"

#include <sys/syscall.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

/* Set where malloc is treated as interrupted. */
static __thread volatile sig_atomic_t heap_is_interrupted;

static void heap_enter(void)
{
    static const char text[] = "FAIL malloc(3) was entered again\n";
    if (heap_is_interrupted)
        syscall(SYS_write, 1, text, sizeof text - 1);
}

void *malloc(size_t size)
{
    heap_enter();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    heap_enter();
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    heap_enter();
    return __libc_realloc(old, size);
}

void free(void *given)
{
    heap_enter();
    __libc_free(given);
}
#endif

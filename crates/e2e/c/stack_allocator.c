/* An allocator with a lock, and a thread of its own that waits under that lock, as jemalloc's background threads do: a
 * wait for a condition begins with the lock held, so nothing in it may wait for a thread that allocates. */
#include "far.h"

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t nothing = PTHREAD_COND_INITIALIZER;

#define LOCKED(type, call)                                                                                             \
    pthread_mutex_lock(&heap);                                                                                         \
    type given = call;                                                                                                 \
    pthread_mutex_unlock(&heap);                                                                                       \
    return given

void *malloc(size_t size) { LOCKED(void *, __libc_malloc(size)); }
void *calloc(size_t count, size_t size) { LOCKED(void *, __libc_calloc(count, size)); }
void *realloc(void *old, size_t size) { LOCKED(void *, __libc_realloc(old, size)); }

void free(void *given)
{
    pthread_mutex_lock(&heap);
    __libc_free(given);
    pthread_mutex_unlock(&heap);
}

/* Waits of 0.02 ms, with the lock held between them. */
static void *tidies(void *unused UNUSED)
{
    pthread_mutex_lock(&heap);
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 20000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&nothing, &heap, &until);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    pthread_t thread;
    pthread_create(&thread, NULL, tidies, NULL);
    int right = 0;
    for (int round = 0; round < 100; round++) {
        int fd = round % 2 ? near_connected(0) : near_accepted(0);
        far_ok(far("put 0 x"));
        char byte = 0;
        right += read(fd, &byte, 1) == 1 && byte == 'x';
        far("close 0");
        close(fd);
    }
    printf("with an allocator that waits under its lock: %d of 100\n", right);
    return 0;
}

/* A module that contains liburing, and exports its functions like a library that was linked with it. */
#include <stddef.h>

static int made;

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    return made += ring != NULL && entries == 4 && flags == 0;
}

int io_uring_submit(void *ring) { return ring != NULL ? made : -1; }

int ring_of_module(void *ring)
{
    int result = io_uring_queue_init(4, ring, 0);
    return result * 10 + io_uring_submit(ring);
}

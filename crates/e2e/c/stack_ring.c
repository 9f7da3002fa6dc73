/* An event loop that registers descriptors by an io_uring where it can have one, like libuv's (Node, uvloop). */
#include "far.h"
#include <linux/io_uring.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int ring = -1;
static struct io_uring_params about;
static struct io_uring_sqe *entries;
static char *places;

static void begin(void)
{
    ring = (int)syscall(SYS_io_uring_setup, 8, &about);
    if (ring < 0)
        return;
    size_t length = about.sq_off.array + about.sq_entries * sizeof(unsigned);
    size_t completed = about.cq_off.cqes + about.cq_entries * sizeof(struct io_uring_cqe);
    length = completed > length ? completed : length;
    places = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    entries = mmap(NULL, about.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                   IORING_OFF_SQES);
    if (places == MAP_FAILED || entries == MAP_FAILED || !(about.features & IORING_FEAT_SINGLE_MMAP))
        fail("io_uring's memory");
}

static void watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (ring < 0) {
        if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
            fail("epoll_ctl");
        return;
    }
    unsigned *tail = (unsigned *)(places + about.sq_off.tail);
    unsigned *mask = (unsigned *)(places + about.sq_off.ring_mask), at = *tail & *mask;
    memset(&entries[at], 0, sizeof entries[at]);
    entries[at].opcode = IORING_OP_EPOLL_CTL;
    entries[at].fd = set;
    entries[at].len = EPOLL_CTL_ADD;
    entries[at].off = (unsigned long long)fd;
    entries[at].addr = (unsigned long long)(size_t)&event;
    ((unsigned *)(places + about.sq_off.array))[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        fail("io_uring_enter");
}

int main(int count, char **arguments)
{
    struct epoll_event event;
    char bytes[8];
    int port, set = epoll_create1(0);
    far_begin(count, arguments);
    begin();
    int listener = near_listener(near_address, &port);
    watch(set, listener);
    for (int at = 0; at < 3; at++) {
        int far_end = atoi(far("connect %d %s %d", at, near_address, port));
        printf("who comes is told of: %d", epoll_wait(set, &event, 1, 2000));
        int fd = accept(listener, NULL, NULL);
        far_count(far_end);
        watch(set, fd);
        far_ok(far("put %d abc", at));
        printf(", and what comes: %d", epoll_wait(set, &event, 1, 2000));
        printf(", of whom: %s", yes(event.data.fd == fd));
        printf(", %s\n", result(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)));
        close(fd);
    }
    return 0;
}

/* A module whose constructor waits for a thread that makes the process's first calls: while it does, no other thread
 * gets through dlsym(3). */
#include "common.h"

#include <sys/epoll.h>
#include <sys/uio.h>

static const char *volatile last = "nothing";

#define CALL(does)                                                                                 \
    do {                                                                                           \
        last = #does;                                                                              \
        does;                                                                                      \
    } while (0)

static void *calls(void *unused)
{
    int ends[2];
    char octets[64];
    struct iovec one = {octets, 4};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CALL(write(ends[0], "four", 4));
    CALL(writev(ends[0], &one, 1));
    CALL(send(ends[0], "four", 4, 0));
    CALL(sendmsg(ends[0], &message, 0));
    CALL(dprintf(ends[0], "%d", 4444));
    struct pollfd wanted = {ends[1], POLLIN, 0};
    CALL(poll(&wanted, 1, 1000));
    CALL(read(ends[1], octets, 4));
    CALL(recv(ends[1], octets, 4, 0));
    CALL(recvmsg(ends[1], &message, 0));
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CALL(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event));
    CALL(epoll_wait(set, &event, 1, 1000));
    CALL(shutdown(ends[0], SHUT_WR));
    CALL(dup2(ends[0], set));
    CALL(signal(SIGUSR2, SIG_IGN));
    CALL(raise(SIGUSR2));
    CALL(close(ends[0]));
    last = "all of it";
    return unused;
}

__attribute__((constructor)) static void waits(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, calls, NULL);
    struct timespec patience;
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec += 3;
    /* Abandoned if it does not finish. */
    pthread_timedjoin_np(thread, NULL, &patience);
}

const char *what_its_thread_did(void) { return (const char *)last; }

/* Async-signal-safe functions (signal-safety(7)) may be called by a handler that has interrupted malloc(3). */
#include "far.h"
#include "heap.h"

#include <sys/epoll.h>

#define ROUNDS 40

#define QUIETLY(call)                                                                                                  \
    ({                                                                                                                 \
        heap_is_interrupted = 1;                                                                                       \
        __typeof__(call) given_ = (call);                                                                              \
        heap_is_interrupted = 0;                                                                                       \
        given_;                                                                                                        \
    })

/* A connection of each kind is opened, used and closed. */
static long one_round(int listener, int port)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, far_address, atoi(far("listen 1 %s", far_address)));
    char bytes[20000];
    long right = 0;
    int far_end = atoi(far("connect 0 %s %d", near_address, port));
    struct pollfd wanted = {listener, POLLIN, 0};
    QUIETLY(poll(&wanted, 1, 2000));
    int accepted = QUIETLY(accept(listener, NULL, NULL));
    int connected = QUIETLY(socket(name.ss_family, SOCK_STREAM, 0));
    right += QUIETLY(connect(connected, (struct sockaddr *)&name, length)) == 0;
    far_ok(far("accept 1 1"));
    far_count(far_end);
    far_count(far_port(&name));
    int fds[] = {accepted, connected};
    for (int at = 0; at < 2; at++) {
        memset(bytes, 'x', sizeof bytes);
        right += QUIETLY(send(fds[at], bytes, sizeof bytes, 0)) == sizeof bytes;
        right += QUIETLY(write(fds[at], bytes, 10)) == 10;
        far_ok(far("put %d hello", at));
        wanted = (struct pollfd){fds[at], POLLIN, 0};
        right += QUIETLY(poll(&wanted, 1, 2000)) == 1;
        right += QUIETLY(read(fds[at], bytes, 5)) == 5;
        int copy = QUIETLY(dup(fds[at]));
        struct sockaddr_storage other;
        socklen_t room = sizeof other;
        right += QUIETLY(getpeername(copy, (struct sockaddr *)&other, &room)) == 0;
        right += QUIETLY(getsockname(copy, (struct sockaddr *)&other, &room)) == 0;
        int on = 1;
        right += QUIETLY(setsockopt(copy, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) == 0;
        right += QUIETLY(fcntl(copy, F_SETFL, O_NONBLOCK)) == 0;
        right += QUIETLY(recv(copy, bytes, sizeof bytes, 0)) == -1;
        right += QUIETLY(close(copy)) == 0;
        right += QUIETLY(shutdown(fds[at], SHUT_WR)) == 0;
        right += QUIETLY(close(fds[at])) == 0;
        far("close %d", at);
    }
    return right;
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    int port, listener = near_listener(near_address, &port);
    long right = 0;
    /* At a thread's first wait libc allocates memory by malloc to note what is to be done when the thread ends. */
    poll(&(struct pollfd){listener, POLLIN, 0}, 1, 1);
    for (int round = 0; round < ROUNDS; round++)
        right += one_round(listener, port);
    printf("%ld calls of %d as they should be\n", right, ROUNDS * 25);
    return 0;
}

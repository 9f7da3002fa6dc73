/* TCP_DEFER_ACCEPT: when a connection is accepted, what becomes of one that sends nothing, ends or is reset
 * meanwhile, and what is read back. */
#include "far.h"
#include <sys/epoll.h>

/* That many seconds have passed since then, with a margin. */
static const char *after(double begin, int seconds)
{
    double ms = now_ms() - begin;
    return yes(ms >= seconds * 1000 - 100 && ms < seconds * 1000 + 900);
}

static int deferred(int seconds, int *port)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&name, &length))
        fail("listener");
    *port = far_port(&name);
    /* From now on it is on the stack. */
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
    return fd;
}

static int told(int fd)
{
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &value, &length);
    return value;
}

/* Waits some time for a connection that can be accepted. */
static int ready(int fd, int limit_ms)
{
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, limit_ms);
}

static int accepted(int listener)
{
    ready(listener, 8000);
    return accept(listener, NULL, NULL);
}

static void read_back(void)
{
    static const int seconds[] = {-5, 0, 1, 2, 3, 4, 30, 31, 32, 120, 128, 400};
    int port, fd = deferred(0, &port);
    printf("read back:");
    for (size_t at = 0; at < sizeof seconds / sizeof *seconds; at++) {
        int set = setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds[at], sizeof seconds[at]);
        printf(" %s %d", result(set), told(fd));
    }
    printf(", too short %s", result(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &port, 2)));
    printf(" %d\n", told(fd));
    close(fd);
}

static void data(void)
{
    char bytes[8] = "";
    int port, listener = deferred(30, &port);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    int there = atoi(far("connect 0 %s %d", near_address, port));
    printf("before its data: poll %d", ready(listener, 300));
    printf(" epoll %d", epoll_wait(set, &event, 1, 0));
    printf(" accept %s\n", result(accept(listener, NULL, NULL)));
    double begin = now_ms();
    far_ok(far("put 0 hello"));
    printf("with its data: epoll %d", epoll_wait(set, &event, 1, 5000));
    printf(" at once %s", after(begin, 0));
    int fd = accept(listener, NULL, NULL);
    far_count(there);
    printf(" recv %s", result(recv(fd, bytes, sizeof bytes - 1, MSG_DONTWAIT)));
    printf(" %s, it has %d", bytes, told(fd));
    printf(" set %s", result(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){7}, 4)));
    printf(" then %d, the listener %d\n", told(fd), told(listener));
    printf("answer %s", result(send(fd, "answer", 6, 0)));
    close(fd);
    printf(" and there %s\n", far("end 0"));
    close(set);
    close(listener);
}

/* Time is measured in timeouts of a SYN-ACK: one, three, seven seconds. */
static void silence(void)
{
    char byte;
    int port, listener = deferred(2, &port);
    double begin = now_ms();
    int there = atoi(far("connect 0 %s %d", near_address, port));
    int fd = accepted(listener);
    printf("says nothing: accept %s after three %s", fd >= 0 ? "yes" : result(fd), after(begin, 3));
    far_count(there);
    printf(" recv %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    far_ok(far("put 0 x"));
    printf(" later %s\n", result(recv(fd, &byte, 1, 0)));
    close(fd);
    far_ok(far("close 0"));
    close(listener);
}

static void ends(void)
{
    char byte;
    int port, listener = deferred(30, &port);
    far("connect 0 %s %d", near_address, port);
    far("connect 1 %s %d", near_address, port);
    far("connect 2 %s %d", near_address, port);
    printf("three say nothing: poll %d", ready(listener, 200));
    far_ok(far("reset 0"));
    printf(", one is reset %d", ready(listener, 200));
    far_ok(far("shut 1 1"));
    int fd = accepted(listener);
    printf(", one ends: recv %s", result(recv(fd, &byte, 1, 0)));
    close(fd);
    close(listener);
    printf(", one writes to nobody: %s", far("put 2 x"));
    printf(" %s\n", far("end 2"));
    far_ok(far("close 1"));
    far_ok(far("close 2"));
}

/* Many wait at once, and those that send data are accepted, whichever came first. */
static void many(void)
{
    char byte;
    int port, listener = deferred(30, &port);
    for (int at = 0; at < 20; at++)
        far("connect %d %s %d", at, near_address, port);
    for (int at = 19; at >= 0; at -= 2)
        far_ok(far("put %d %c", at, 'a' + at));
    sleep_ms(100);
    printf("of twenty:");
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd))
        printf(" %c", recv(fd, &byte, 1, MSG_DONTWAIT) == 1 ? byte : '?');
    printf("\n");
    for (int at = 0; at < 20; at++)
        far_ok(far("reset %d", at));
    close(listener);
}

/* It applies to those that already wait. */
static void taken_back(void)
{
    int port, listener = deferred(60, &port);
    double begin = now_ms();
    far("connect 0 %s %d", near_address, port);
    sleep_ms(100);
    setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){0}, 4);
    printf("taken back: poll %d", ready(listener, 4000));
    printf(" after one %s\n", after(begin, 1));
    close(listener);
    far_ok(far("close 0"));
}

/* A client with the option leaves the last ACK of the handshake to its first data, for a fifth of a second. */
static void client(void)
{
    struct sockaddr_storage name;
    int port = atoi(far("listen 0 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    for (int speaks = 0; speaks < 2; speaks++) {
        int fd = far_socket(0);
        setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){1}, 4);
        double begin = now_ms();
        printf("connects: %s", result(connect(fd, (struct sockaddr *)&name, length)));
        if (speaks) {
            begin = now_ms();
            printf(" %s", result(send(fd, "x", 1, 0)));
        }
        far_ok(far("accept 1 0"));
        double ms = now_ms() - begin;
        printf(", there %s\n", speaks ? yes(ms < 150) : yes(ms > 150));
        far_count(port);
        printf("has %d\n", told(fd));
        close(fd);
        far_ok(far("close 1"));
    }
    far_ok(far("close 0"));
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    read_back();
    data();
    silence();
    ends();
    many();
    taken_back();
    client();
    return 0;
}

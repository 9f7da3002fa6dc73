/* Addresses that are not mapped in any program: what the kernel returns for them, and that nothing is lost. */
#include "far.h"
#include <limits.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { BADS = 5 };
static void *bads[BADS];

static void quiet(int signal UNUSED) {}

/* Each way of reading, with its octets going to `bad`. */
static void reads(const char *what, int fd, void *bad)
{
    struct iovec one = {bad, 4}, two[2] = {{&(char[2]){0}, 2}, {bad, 2}}, none = {bad, 0};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    printf("%s: read %s", what, result(read(fd, bad, 4)));
    printf(" of none %s", result(recv(fd, bad, 0, MSG_DONTWAIT)));
    printf(", recv %s", result(recv(fd, bad, 4, 0)));
    printf(" with a look %s", result(recv(fd, bad, 4, MSG_PEEK)));
    printf(" all of it %s", result(recv(fd, bad, 4, MSG_WAITALL)));
    printf(", recvfrom %s", result(recvfrom(fd, bad, 4, 0, NULL, NULL)));
    printf(", readv %s", result(readv(fd, &one, 1)));
    printf(" of two %s", result(readv(fd, two, 2)));
    printf(" of none %s", result(readv(fd, &none, 1)));
    printf(" at it %s", result(readv(fd, bad, 1)));
    printf(", recvmsg %s", result(recvmsg(fd, &message, 0)));
    printf(" at it %s", result(recvmsg(fd, bad, 0)));
    message.msg_iov = bad;
    printf(" with vectors there %s", result(recvmsg(fd, &message, 0)));
    printf(", recvmmsg %s", result(recvmmsg(fd, messages, 2, 0, NULL)));
    printf(" at it %s", result(recvmmsg(fd, bad, 2, 0, NULL)));
    printf("\n");
}

static void writes(const char *what, int fd, void *bad)
{
    struct iovec one = {bad, 4}, two[2] = {{"ab", 2}, {bad, 2}}, none = {bad, 0};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    printf("%s: write %s", what, result(write(fd, bad, 4)));
    printf(" of none %s", result(write(fd, bad, 0)));
    printf(", send %s", result(send(fd, bad, 4, 0)));
    printf(", sendto %s", result(sendto(fd, bad, 4, 0, NULL, 0)));
    printf(", writev %s", result(writev(fd, &one, 1)));
    printf(" of two %s", result(writev(fd, two, 2)));
    printf(" of none %s", result(writev(fd, &none, 1)));
    printf(" at it %s", result(writev(fd, bad, 1)));
    printf(", sendmsg %s", result(sendmsg(fd, &message, 0)));
    printf(" at it %s", result(sendmsg(fd, bad, 0)));
    message.msg_iov = bad;
    printf(" with vectors there %s", result(sendmsg(fd, &message, 0)));
    message.msg_iov = &(struct iovec){"x", 0};
    message.msg_control = bad;
    message.msg_controllen = 32;
    printf(" with control there %s", result(sendmsg(fd, &message, 0)));
    printf(", sendmmsg %s", result(sendmmsg(fd, messages, 2, 0)));
    printf(" at it %s", result(sendmmsg(fd, bad, 2, 0)));
    printf("\n");
}

static void asks(const char *what, int fd, void *bad)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    int value = 0, set = epoll_create1(0);
    printf("%s: getsockopt %s", what, result(getsockopt(fd, SOL_SOCKET, SO_ERROR, bad, &length)));
    printf(" %s", result(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, bad)));
    length = sizeof value;
    printf(" %s", result(getsockopt(fd, SOL_TCP, TCP_NODELAY, bad, &length)));
    printf(" %s", result(getsockopt(fd, SOL_TCP, TCP_NODELAY, &value, bad)));
    printf(" %s", result(getsockopt(fd, SOL_TCP, TCP_INFO, &(struct tcp_info){0}, bad)));
    printf(", setsockopt %s", result(setsockopt(fd, SOL_TCP, TCP_NODELAY, bad, 4)));
    printf(" %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, bad, 16)));
    length = sizeof name;
    printf(", getsockname %s", result(getsockname(fd, bad, &length)));
    printf(" %s", result(getsockname(fd, (struct sockaddr *)&name, bad)));
    length = sizeof name;
    printf(", getpeername %s", result(getpeername(fd, bad, &length)));
    printf(" %s", result(getpeername(fd, (struct sockaddr *)&name, bad)));
    printf(", ioctl %s", result(ioctl(fd, FIONREAD, bad)));
    printf(" %s", result(ioctl(fd, FIONBIO, bad)));
    printf(", connect %s", result(connect(fd, bad, 16)));
    printf(", epoll_ctl %s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, bad)));
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLOUT, {.u64 = 1}});
    printf(" %s", result(epoll_ctl(set, EPOLL_CTL_MOD, fd, bad)));
    printf(", epoll_wait %s", result(epoll_wait(set, bad, 1, 0)));
    printf(" %s", result(epoll_wait(set, &(struct epoll_event){0}, 1, 0)));
    printf(", poll %s", result(poll(bad, 1, 0)));
    if (bad)
        printf(", select %s", result(select(fd + 1, bad, NULL, NULL, &(struct timeval){0, 0})));
    printf("\n");
    close(set);
}

static void name_of_a_sender(int fd, void *bad)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name, negative = (socklen_t)-1;
    char bytes[8];
    far_ok(far("put 0 abcdef"));
    sleep_ms(10);
    printf("of whom: %s", result(recvfrom(fd, bytes, 1, 0, bad, &length)));
    printf(" %d", (int)length);
    printf(", %s", result(recvfrom(fd, bytes, 1, 0, (struct sockaddr *)&name, bad)));
    printf(", %s", result(recvfrom(fd, bytes, 1, 0, (struct sockaddr *)&name, &negative)));
    printf(" %d", (int)negative);
    printf(", then %s", result(read(fd, bytes, 8)));
    printf(" %c\n", bytes[0]);
}

static void files(int fd, void *bad)
{
    FILE *file = tmpfile();
    fputs("of a file", file);
    fflush(file);
    lseek(fileno(file), 0, SEEK_SET);
    printf("sendfile at it: %s", bad ? result(sendfile(fd, fileno(file), bad, 4)) : "");
    printf(", then %s", result(sendfile(fd, fileno(file), NULL, 4)));
    printf("\n");
    fclose(file);
}

/* Accepts with an invalid address for the peer's name. */
static void accepts(void *bad)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name, negative = (socklen_t)-1;
    int port, listener = near_listener(near_address, &port);
    set_nonblocking(listener, true);
    printf("accept of nobody: %s", result(accept(listener, bad, &length)));
    printf(" %s", result(accept(listener, (struct sockaddr *)&name, bad)));
    for (int way = 0; way < 4; way++) {
        far_count(atoi(far("connect %d %s %d", 10 + way, near_address, port)));
        poll(&(struct pollfd){listener, POLLIN, 0}, 1, 1000);
        int fd = way == 0   ? accept(listener, bad, &length)
                 : way == 1 ? accept4(listener, (struct sockaddr *)&name, bad, SOCK_NONBLOCK)
                 : way == 2 ? accept(listener, (struct sockaddr *)&name, &negative)
                            : accept(listener, NULL, bad);
        printf(", way %d %s", way, fd < 0 ? strerrorname_np(errno) : "somebody");
        printf(", there is %s", result(accept(listener, NULL, NULL)));
        printf(", it has %s", far("end %d 100", 10 + way));
        if (fd >= 0)
            close(fd);
        far("close %d", 10 + way);
    }
    printf("\n");
    close(listener);
}

/* Lengths that no call can move. */
static void lengths(void)
{
    static char room[64];
    /* Unknown to the compiler, which would otherwise warn or optimise. */
    char *volatile into = room;
    volatile size_t all[] = {SIZE_MAX, (size_t)SSIZE_MAX, 0x7fffffff, 0x7ffff001};
    int fd = near_accepted(0);
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        size_t length = all[at];
        struct iovec one = {into, length}, two[2] = {{into, 2}, {into + 2, length}};
        struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
        printf("length %zx:", length);
        for (int way = 0; way < 6; way++) {
            far_ok(far("put 0 abcdef"));
            sleep_ms(5);
            printf(" %s", result(way == 0   ? read(fd, into, length)
                                 : way == 1 ? recv(fd, into, length, 0)
                                 : way == 2 ? readv(fd, &one, 1)
                                 : way == 3 ? readv(fd, two, 2)
                                 : way == 4 ? recvmsg(fd, &message, 0)
                                            : recv(fd, into, length, MSG_PEEK)));
            printf(" %d,", (int)recv(fd, room, sizeof room, MSG_DONTWAIT));
        }
        printf("\n");
    }
    close(fd);
    far("close 0");
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    signal(SIGPIPE, quiet);
    void *all[BADS] = {NULL, (void *)1, (void *)4095, (void *)-1L, (void *)(1UL << 63)};
    memcpy(bads, all, sizeof all);
    lengths();
    for (int at = 0; at < BADS; at++) {
        char bytes[16] = "";
        void *bad = bads[at];
        printf("at %p\n", bad);
        int fd = near_accepted(0);
        set_nonblocking(fd, true);
        reads("nothing there", fd, bad);
        far_ok(far("put 0 abcdef"));
        sleep_ms(10);
        reads("something there", fd, bad);
        printf("  then %s", result(read(fd, bytes, 16)));
        printf(" %s\n", bytes);
        writes("open", fd, bad);
        asks("open", fd, bad);
        if (bad)
            name_of_a_sender(fd, bad);
        files(fd, bad);
        far_ok(far("shut 0 1"));
        sleep_ms(10);
        reads("the peer has shut", fd, bad);
        shutdown(fd, SHUT_WR);
        writes("shut", fd, bad);
        printf("it has %s\n", far("end 0"));
        close(fd);
        far("close 0");
        fd = near_connected(1);
        set_nonblocking(fd, true);
        far_ok(far("reset 1"));
        sleep_ms(10);
        writes("reset", fd, bad);
        reads("reset", fd, bad);
        close(fd);
        accepts(bad);
        /* A socket that is not connected. */
        fd = far_socket(0);
        printf("connect: %s\n", result(connect(fd, bad, 16)));
        close(fd);
    }
    return 0;
}

/* Several descriptors, or processes, that shared one socket before it was connected or listened. */
#include "far.h"
#include <sys/epoll.h>

static struct sockaddr_storage there;
static socklen_t there_length;
static int there_port;

/* The next connection goes to this listener, number 0. */
static void far_listens(void)
{
    there_port = atoi(far("listen 0 %s", far_address));
    there_length = far_name(&there, far_address, there_port);
}

static int connects(int fd) { return connect(fd, (struct sockaddr *)&there, there_length); }

static int made(int flags) { return far_socket(flags); }

static int copied(int fd, int way)
{
    switch (way) {
    case 0: return dup(fd);
    case 1: return dup2(fd, 90);
    case 2: return fcntl(fd, F_DUPFD, 100);
    default: return dup3(fd, 91, O_CLOEXEC);
    }
}

static const char *named(int fd, bool peer)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    if ((peer ? getpeername : getsockname)(fd, (struct sockaddr *)&name, &length))
        return strerrorname_np(errno);
    return peer ? far_port(&name) == there_port ? "the other" : "another" : far_port(&name) ? "some" : "none";
}

static void polled(const char *what, int fd, short events)
{
    struct pollfd one = {fd, events, 0};
    printf(", %s %d", what, poll(&one, 1, 500));
    printf(" %x", one.revents);
}

/* What is written through either is one stream, and so is what is read. */
static void talks(int one, int other)
{
    char bytes[8] = "";
    printf(", peer %s", named(one, true));
    printf(" %s", named(other, true));
    printf(", write %s", result(write(one, "ab", 2)));
    printf(" %s", result(write(other, "cd", 2)));
    far_ok(far("put 1 wxyz"));
    sleep_ms(10);
    polled("poll", other, POLLIN | POLLOUT);
    printf(", read %s", result(read(other, bytes, 2)));
    printf(" %s", result(read(one, bytes + 2, 2)));
    printf(" %s", bytes);
    set_nonblocking(other, true);
    printf(", flags %x", fcntl(one, F_GETFL));
    printf(", read %s", result(read(one, bytes, 2)));
    set_nonblocking(one, false);
}

static void ways(void)
{
    for (int way = 0; way < 4; way++)
        for (int by = 0; by < 2; by++) {
            far_listens();
            int fd = made(0), copy = copied(fd, way), ends[2] = {fd, copy};
            printf("copied, way %d, by %d: connect %s", way, by, result(connects(ends[by])));
            far_ok(far("accept 1 0"));
            far_count(there_port);
            printf(", again %s", result(connects(ends[!by])));
            talks(ends[by], ends[!by]);
            close(ends[by]);
            printf(", the other writes %s", result(write(ends[!by], "e", 1)));
            printf(", peer %s", named(ends[!by], true));
            printf(", it has %s", far("end 1 50"));
            close(ends[!by]);
            printf(" %s\n", far("end 1"));
            far("close 1");
            far("close 0");
        }
}

static void moved(void)
{
    far_listens();
    int low = made(0), high = fcntl(low, F_DUPFD, 120), copy = dup(high);
    close(low);
    printf("moved: connect %s", result(connects(high)));
    far_ok(far("accept 1 0"));
    far_count(there_port);
    talks(copy, high);
    printf(", shutdown %s", result(shutdown(copy, SHUT_WR)));
    printf(", write %s", result(send(high, "x", 1, MSG_NOSIGNAL)));
    printf(", it has %s\n", far("end 1"));
    close(copy);
    close(high);
    far("close 1");
    far("close 0");
}

static void not_blocking(void)
{
    far_listens();
    int fd = made(SOCK_NONBLOCK), copy = dup(fd), error = -1, set = epoll_create1(0);
    socklen_t length = sizeof error;
    struct epoll_event event = {EPOLLOUT, {.u64 = 1}}, events[4];
    printf("not blocking: in a set %s", result(epoll_ctl(set, EPOLL_CTL_ADD, copy, &event)));
    event = (struct epoll_event){EPOLLIN | EPOLLOUT | EPOLLET, {.u64 = 2}};
    printf(" %s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)));
    printf(", connect %s", result(connects(fd)));
    polled("poll of the copy", copy, POLLOUT);
    printf(", SO_ERROR %s", result(getsockopt(copy, SOL_SOCKET, SO_ERROR, &error, &length)));
    printf(" %d", error);
    printf(", connect by the copy %s", result(connects(copy)));
    printf(", again %s", result(connects(fd)));
    far_ok(far("accept 1 0"));
    far_count(there_port);
    unsigned told = 0;
    int count = epoll_wait(set, events, 4, 500);
    for (int at = 0; at < count; at++)
        told |= events[at].events << (events[at].data.u64 == 2 ? 8 : 0);
    printf(", told %d %x", count, told);
    printf(", deleted %s", result(epoll_ctl(set, EPOLL_CTL_DEL, copy, NULL)));
    printf(" %s", result(epoll_ctl(set, EPOLL_CTL_DEL, copy, NULL)));
    far_ok(far("put 1 x"));
    count = epoll_wait(set, events, 4, 500);
    printf(", told %d %x %d\n", count, events[0].events, (int)events[0].data.u64);
    close(copy);
    close(fd);
    close(set);
    far("close 1");
    far("close 0");
}

static void refused(void)
{
    far_listens();
    far("close 0");
    int fd = made(0), copy = dup(fd), error = -1;
    socklen_t length = sizeof error;
    printf("refused: connect %s", result(connects(fd)));
    printf(", SO_ERROR %s", result(getsockopt(copy, SOL_SOCKET, SO_ERROR, &error, &length)));
    printf(" %d", error);
    printf(", peer %s %s", named(fd, true), named(copy, true));
    printf(", read %s", result(read(copy, &(char){0}, 1)));
    printf(", by the copy %s", result(connects(copy)));
    far("listen 0 %s %d", far_address, there_port);
    /* An instance reports the end of the first connection by itself. */
    sleep_ms(20);
    printf(", then %s", result(connects(copy)));
    far_ok(far("accept 1 0"));
    far_count(there_port);
    talks(fd, copy);
    printf("\n");
    close(copy);
    close(fd);
    far("close 1");
    far("close 0");
}

static void dissolved(void)
{
    struct sockaddr nobody = {AF_UNSPEC, {0}};
    far_listens();
    int fd = made(0), copy = dup(fd);
    printf("dissolved: connect %s", result(connects(fd)));
    far_ok(far("accept 1 0"));
    far_count(there_port);
    printf(", nobody %s", result(connect(copy, &nobody, sizeof nobody)));
    printf(", peer %s %s", named(fd, true), named(copy, true));
    printf(", it has %s", far("end 1 1000"));
    far("close 1");
    /* Not counted: an instance may not be done with the first one, and the kernel creates the second. */
    printf(", again %s", result(connects(copy)));
    far_ok(far("accept 1 0"));
    talks(fd, copy);
    printf("\n");
    close(copy);
    close(fd);
    far("close 1");
    far("close 0");
}

/* A listener that was duplicated before it listened: either accepts a client. */
static void listener(void)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM, 0), copy = dup(fd), set = epoll_create1(0);
    bind(fd, (struct sockaddr *)&name, length);
    printf("listener: listen %s", result(listen(fd, 8)));
    getsockname(copy, (struct sockaddr *)&name, &length);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, copy, &event);
    for (int way = 0; way < 3; way++) {
        poll(&(struct pollfd){way ? copy : fd, POLLIN, 0}, 1, 0);
        int far_end = atoi(far("connect 1 %s %d", near_address, far_port(&name)));
        printf(", somebody comes %s", yes(far_end > 0));
        if (way == 0) {
            printf(", told %d", epoll_wait(set, &event, 1, 500));
            printf(" %x", event.events);
        }
        polled("poll", way == 1 ? fd : copy, POLLIN);
        int one = way == 1 ? accept(fd, NULL, NULL) : accept(copy, NULL, NULL);
        far_count(far_end);
        printf(", accept %s", yes(one >= 0));
        far_ok(far("put 1 x"));
        printf(", read %s", result(read(one, &(char){0}, 1)));
        close(one);
        far("close 1");
        if (way == 1)
            close(fd);
    }
    printf("\n");
    close(copy);
    close(set);
}

/* Parent and child share it since before it is connected. It is the kernel's, so it is not counted. */
static void forked(void)
{
    char byte, bytes[8] = "";
    for (int by = 0; by < 2; by++) {
        int go[2], back[2];
        far_listens();
        pipe(go);
        pipe(back);
        int fd = made(0), set = epoll_create1(0);
        struct epoll_event event = {EPOLLIN, {.u64 = 3}};
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            if (by == 1)
                connects(fd);
            else
                read(go[0], &byte, 1);
            bool has = !strcmp(named(fd, true), "the other") && write(fd, "child", 5) == 5;
            int told = epoll_wait(set, &event, 1, 2000);
            has = has && told == 1 && event.events == EPOLLIN && event.data.u64 == 3;
            write(back[1], "x", 1);
            _exit(has && read(fd, bytes, 1) == 1 ? 7 : 8);
        }
        if (by == 0)
            printf("forked, connect %s", result(connects(fd)));
        far_ok(far("accept 1 0"));
        far_ok(far("put 1 abc"));
        write(go[1], "x", 1);
        read(back[0], &byte, 1);
        reap(child, by ? "forked, the child has connected" : ", the child");
        printf("  peer %s", named(fd, true));
        printf(", read %s", result(read(fd, bytes, 2)));
        printf(" %.2s", bytes);
        printf(", write %s", result(write(fd, "parent", 6)));
        printf(", told %d", epoll_wait(set, &event, 1, 0));
        close(fd);
        printf(", it has %s\n", far("end 1"));
        far("close 1");
        far("close 0");
        close(set);
        for (int at = 0; at < 2; at++) {
            close(go[at]);
            close(back[at]);
        }
    }
}

/* A descriptor that stdio writes to is the kernel's: not counted. */
static void standard(void)
{
    far_listens();
    int kept = dup(0), fd = made(0);
    dup2(fd, 0);
    printf("standard input: connect %s", result(connects(fd)));
    far_ok(far("accept 1 0"));
    far_ok(far("put 1 xyz"));
    far_ok(far("shut 1 1"));
    int first = getchar(), second = getchar();
    printf(", %c%c", first, second);
    printf(" %c", getchar());
    printf(" %d", getchar());
    printf(", write %s", result(write(fd, "ab", 2)));
    close(fd);
    dup2(kept, 0);
    printf(", it has %s\n", far("end 1"));
    far("close 1");
    far("close 0");
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    ways();
    moved();
    not_blocking();
    refused();
    dissolved();
    listener();
    standard();
    forked();
    return 0;
}

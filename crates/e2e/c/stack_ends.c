/* How connections end: half-closed, reset, lingering, by signals. */
#include "far.h"

static volatile sig_atomic_t pipes_broken;
static void broken(int signal UNUSED) { pipes_broken++; }

static int error_of(int fd)
{
    int error = -1;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) ? -errno : error;
}

static int state_of(int fd)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    return getsockopt(fd, SOL_TCP, TCP_INFO, &info, &length) ? -errno : info.tcpi_state;
}

/* Waits until what was sent is acknowledged: the state is no longer FIN-WAIT-1, LAST-ACK or CLOSING. */
static int settled(int fd)
{
    for (int tries = 0; tries < 1000; tries++) {
        int state = state_of(fd);
        if (state != 4 && state != 9 && state != 11)
            return state;
        sleep_ms(2);
    }
    return state_of(fd);
}

static void writes(int fd)
{
    pipes_broken = 0;
    printf(" write %s", result(write(fd, "x", 1)));
    printf(" signals %d,", (int)pipes_broken);
    printf(" send without %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    printf(" signals %d,", (int)pipes_broken);
    struct msghdr message = {.msg_iov = &(struct iovec){"x", 1}, .msg_iovlen = 1};
    printf(" sendmsg %s", result(sendmsg(fd, &message, 0)));
    printf(" signals %d", (int)pipes_broken);
}

static void far_shuts(int fd, int at)
{
    char bytes[8];
    far_ok(far("put %d abc", at));
    far_ok(far("shut %d 1", at));
    printf("the peer has shut: read %s", result(read(fd, bytes, 8)));
    printf(", %s", result(read(fd, bytes, 8)));
    printf(", state %d", state_of(fd));
    printf(", write %s", result(write(fd, "answer", 6)));
    printf(", shutdown %s", result(shutdown(fd, SHUT_WR)));
    printf(", write %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    printf(", it has %s", far("end %d", at));
    printf(", state %d", settled(fd));
    printf(", shutdown again %s", result(shutdown(fd, SHUT_WR)));
    printf(", read %s", result(read(fd, bytes, 8)));
    printf(", SO_ERROR %d\n", error_of(fd));
    close(fd);
    far("close %d", at);
}

static void near_shuts(int fd, int at)
{
    char bytes[8];
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    printf("we have shut: %s", result(shutdown(fd, SHUT_WR)));
    printf(", again %s", result(shutdown(fd, SHUT_WR)));
    printf(", badly %s", result(shutdown(fd, 7)));
    printf(", it has %s", far("end %d", at));
    printf(", state %d", settled(fd));
    far_ok(far("put %d abc", at));
    printf(", read %s", result(read(fd, bytes, 8)));
    writes(fd);
    far_ok(far("close %d", at));
    printf(", read %s", result(read(fd, bytes, 8)));
    printf(", shutdown %s", result(shutdown(fd, SHUT_RDWR)));
    printf(", SO_ERROR %d, state %d", error_of(fd), state_of(fd));
    printf(", getpeername %s\n", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    close(fd);
}

static void shut_to_read(int fd, int at)
{
    char bytes[8];
    far_ok(far("put %d abc", at));
    recv(fd, bytes, 3, MSG_PEEK | MSG_WAITALL);
    printf("shut to read: %s", result(shutdown(fd, SHUT_RD)));
    printf(", read %s", result(read(fd, bytes, 2)));
    printf(", read %s", result(read(fd, bytes, 8)));
    printf(", read %s", result(read(fd, bytes, 8)));
    far_ok(far("put %d def", at));
    ssize_t later = 0;
    for (int times = 0; times < 400 && later == 0; times++) {
        sleep_ms(5);
        later = recv(fd, bytes, 8, MSG_DONTWAIT);
    }
    printf(", then %s", result(later));
    printf(", write %s", result(write(fd, "x", 1)));
    printf(", shut both %s", result(shutdown(fd, SHUT_RDWR)));
    printf(", it has %s\n", far("end %d", at));
    close(fd);
    far("close %d", at);
}

static void reset_by_peer(int fd, int at, int order)
{
    char bytes[8];
    printf("reset, order %d:", order);
    far_ok(far("put %d abc", at));
    far_ok(far("reset %d", at));
    sleep_ms(10);
    if (order == 0) {
        printf(" read %s", result(read(fd, bytes, 8)));
        printf(" %s", result(read(fd, bytes, 8)));
        printf(" %s,", result(read(fd, bytes, 8)));
        writes(fd);
    } else if (order == 1) {
        writes(fd);
        printf(", read %s", result(read(fd, bytes, 8)));
        printf(" %s", result(read(fd, bytes, 8)));
    } else {
        printf(" SO_ERROR %d", error_of(fd));
        printf(", again %d", error_of(fd));
        printf(", read %s,", result(read(fd, bytes, 8)));
        writes(fd);
    }
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    printf(", state %d", state_of(fd));
    printf(", getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &length)));
    printf(", shutdown %s", result(shutdown(fd, SHUT_RDWR)));
    printf(", ioctl %s", result(ioctl(fd, FIONREAD, &(int){0})));
    printf(", SO_ERROR %d", error_of(fd));
    printf(", close %s\n", result(close(fd)));
}

/* A reset after the peer's end, by itself or caused by later data: the connection is broken, not reset. */
static void reset_behind_its_end(int fd, int at, int order)
{
    char bytes[8];
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    printf("reset behind the end, order %d:", order);
    far_ok(far("put %d abc", at));
    far_ok(far("shut %d 1", at));
    sleep_ms(10);
    if (order < 3) {
        far_ok(far("reset %d", at));
    } else {
        far_ok(far("close %d", at));
        printf(" write %s,", result(write(fd, "x", 1)));
        /* An instance sends asynchronously. */
        sleep_ms(10);
    }
    sleep_ms(10);
    printf(" poll %d", poll(&one, 1, 1000));
    printf(" %x,", one.revents);
    switch (order % 3) {
    case 0:
        printf(" read %s", result(read(fd, bytes, 8)));
        printf(" %s", result(read(fd, bytes, 8)));
        printf(" %s,", result(read(fd, bytes, 8)));
        writes(fd);
        break;
    case 1:
        writes(fd);
        printf(", read %s", result(read(fd, bytes, 8)));
        printf(" %s", result(read(fd, bytes, 8)));
        break;
    default:
        printf(" SO_ERROR %d", error_of(fd));
        printf(", again %d,", error_of(fd));
        writes(fd);
    }
    printf(", poll %d", poll(&one, 1, 1000));
    printf(" %x", one.revents);
    printf(", state %d", state_of(fd));
    printf(", shutdown %s", result(shutdown(fd, SHUT_RDWR)));
    printf(", SO_ERROR %d\n", error_of(fd));
    close(fd);
    far("close %d", at);
}

/* An error comes when recvmmsg has something to return already, or is there when it begins. */
static void many_messages(int (*pair)(int), int at)
{
    char bytes[3][8];
    struct mmsghdr messages[3];
    struct iovec vectors[3];
    for (int way = 0; way < 4; way++) {
        int fd = pair(at);
        for (int i = 0; i < 3; i++) {
            vectors[i] = (struct iovec){bytes[i], way == 3 ? 2 : 3};
            messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1}};
        }
        far_ok(far("put %d abc", at));
        far_ok(far(way < 2 ? "later 60 reset %d" : "reset %d", at));
        sleep_ms(way < 2 ? 5 : 20);
        printf("recvmmsg, way %d: %s", way, result(recvmmsg(fd, messages, 3, 0, NULL)));
        sleep_ms(way < 2 ? 80 : 0);
        if (way == 0)
            printf(", SO_ERROR %d", error_of(fd));
        printf(", then %s", result(recvmmsg(fd, messages, 3, 0, NULL)));
        printf(", read %s", result(read(fd, bytes[0], 8)));
        printf(" %s\n", result(read(fd, bytes[0], 8)));
        close(fd);
    }
}

/* Unread data that is discarded is reported to the peer by a reset. */
static void closed_unread(int fd, int at)
{
    far_ok(far("put %d abc", at));
    sleep_ms(10);
    printf("closed with something unread: %s", result(close(fd)));
    printf(", it has %s\n", far("end %d", at));
    far("close %d", at);
}

static void closed_then_written_to(int fd, int at)
{
    write(fd, "bye", 3);
    close(fd);
    printf("closed: it has %s", far("end %d", at));
    far_ok(far("put %d abc", at));
    sleep_ms(10);
    printf(", what it writes gets it %s\n", far("put %d def", at));
    far("close %d", at);
}

static void lingers(int (*pair)(int), int at)
{
    struct linger none = {1, 0}, some = {1, 5}, read_back = {7, 7};
    socklen_t length = sizeof read_back;
    int fd = pair(at);
    write(fd, "lost", 4);
    printf("linger 0: %s", result(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none)));
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &read_back, &length);
    printf(" %d %d %d", read_back.l_onoff, read_back.l_linger, (int)length);
    printf(", close %s", result(close(fd)));
    sleep_ms(10);
    const char *end = far("end %d", at);
    printf(", reset %s\n", yes(strstr(end, "ECONNRESET") != NULL));
    far("close %d", at);
    fd = pair(at);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &some, sizeof some);
    write(fd, "kept", 4);
    double begun = now_ms();
    printf("linger 5 with a peer that listens: close %s", result(close(fd)));
    printf(", at once %s", yes(now_ms() - begun < 500));
    printf(", it has %s\n", far("end %d", at));
    far("close %d", at);
    if (pair == near_connected)
        return;
    /* A peer that does not read, so it takes long. */
    static char much[1 << 20];
    fd = pair(at);
    some.l_linger = 1;
    set_nonblocking(fd, true);
    for (int full = 0; full < 30; sleep_ms(2))
        full = write(fd, much, sizeof much) > 0 ? 0 : full + 1;
    set_nonblocking(fd, false);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &some, sizeof some);
    begun = now_ms();
    close(fd);
    double took = now_ms() - begun;
    printf("linger 1 with a peer that does not read: a second %s\n", yes(took > 900 && took < 3000));
    far("close %d", at);
}

/* The signal of a write ends a process that does not handle it. */
static void killed_by_the_signal(int (*pair)(int), int at)
{
    fflush(stdout);
    int fd = pair(at);
    far_ok(far("reset %d", at));
    sleep_ms(10);
    char byte;
    read(fd, &byte, 1);
    signal(SIGPIPE, SIG_DFL);
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    printf("write with the signal blocked: %s", result(write(fd, "x", 1)));
    sigpending(&pending);
    printf(", pending %d", sigismember(&pending, SIGPIPE));
    sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_UNBLOCK, &pipe, NULL);
    signal(SIGPIPE, SIG_IGN);
    printf(", ignored: %s\n", result(write(fd, "x", 1)));
    close(fd);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    signal(SIGPIPE, broken);
    for (int at = 0; at < 2; at++) {
        int (*pair)(int) = at ? near_connected : near_accepted;
        signal(SIGPIPE, broken);
        far_shuts(pair(at), at);
        near_shuts(pair(at), at);
        shut_to_read(pair(at), at);
        for (int order = 0; order < 3; order++)
            reset_by_peer(pair(at), at, order);
        for (int order = 0; order < 6; order++)
            reset_behind_its_end(pair(at), at, order);
        many_messages(pair, at);
        closed_unread(pair(at), at);
        closed_then_written_to(pair(at), at);
        lingers(pair, at);
        killed_by_the_signal(pair, at);
    }
    return 0;
}

/* A peer that is gone, a full buffer and a send timeout are reported as TCP reports them. */
#include "common.h"
#include <sys/uio.h>

static volatile sig_atomic_t pipes;
static void on_pipe(int signal UNUSED) { pipes++; }

/* Writes with pauses until the first error: how many writes succeed before that is up to TCP. */
static void until_error(const char *what, int fd, int flags)
{
    for (int i = 0; i < 10; i++) {
        pipes = 0;
        ssize_t sent = flags < 0 ? write(fd, "x", 1) : send(fd, "x", 1, flags);
        if (sent < 0) {
            printf("%s: %s, SIGPIPE %d\n", what, result(sent), (int)pipes);
            return;
        }
        sleep_ms(10);
    }
    printf("%s: no error in 10 writes\n", what);
}

static void closed_peer(void)
{
    int fds[2];
    tcp_pair(fds);
    close(fds[1]);
    sleep_ms(5);
    until_error("write to a closed peer", fds[0], -1);
    until_error("again", fds[0], -1);
    until_error("send with MSG_NOSIGNAL", fds[0], MSG_NOSIGNAL);
    printf("read of it: %s\n", result(read(fds[0], &(char){0}, 1)));
    close(fds[0]);
}

static void reset_peer(void)
{
    int fds[2];
    tcp_pair(fds);
    put(fds[0], "never read");
    sleep_ms(20);
    close(fds[1]);
    sleep_ms(5);
    until_error("write to a peer that reset", fds[0], -1);
    until_error("again", fds[0], -1);
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fds[0], SOL_SOCKET, SO_ERROR, &error, &length);
    printf("SO_ERROR %d, read %s\n", error, result(read(fds[0], &(char){0}, 1)));
    close(fds[0]);
}

/* The error that came too late for its write is returned by the next call, once. */
static void late_error(void)
{
    int fds[2];
    tcp_pair(fds);
    put(fds[0], "never read");
    sleep_ms(20);
    struct linger now = {1, 0};
    setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fds[1]);
    sleep_ms(5);
    ssize_t got = read(fds[0], &(char){0}, 1);
    printf("read after a reset: %s\n", result(got));
    until_error("then a write", fds[0], -1);
    struct pollfd wait = {fds[0], POLLIN | POLLOUT, 0};
    printf("poll %d:", poll(&wait, 1, 1000));
    printf("%s%s%s%s\n", wait.revents & POLLIN ? " IN" : "", wait.revents & POLLOUT ? " OUT" : "",
           wait.revents & POLLERR ? " ERR" : "", wait.revents & POLLHUP ? " HUP" : "");
    close(fds[0]);
}

static void wrong_calls(void)
{
    int fds[2], fresh = socket(AF_INET, SOCK_STREAM, 0);
    tcp_pair(fds);
    printf("write of a bad address: %s\n", result(write(fds[0], (void *)8, 10)));
    printf("write of a closed fd: %s\n", result(write(999, "x", 1)));
    printf("write of nothing: %s\n", result(write(fds[0], "x", 0)));
    pipes = 0;
    printf("write before connect: %s\n", result(write(fresh, "x", 1)));
    shutdown(fds[0], SHUT_WR);
    printf("write after shutdown: %s\n", result(write(fds[0], "x", 1)));
    printf("SIGPIPE %d\n", (int)pipes);
    printf("second shutdown: %s\n", result(shutdown(fds[0], SHUT_WR)));
    printf("recv with a bad flag for TCP: %s\n", result(recv(fds[0], &(char){0}, 1, MSG_OOB)));
    struct msghdr none = {0};
    printf("sendmsg of nothing: %s\n", result(sendmsg(fds[1], &none, 0)));
    struct iovec hole[2] = {{"ab", 2}, {(void *)8, 5}};
    printf("writev with a hole: %s\n", result(writev(fds[1], hole, 2)));
    printf("writev of too many: %s\n", result(writev(fds[1], hole, 2000)));
    close(fds[1]);
    show_stream("what came", fds[0]);
    close(fresh);
}

static void full_buffer(void)
{
    int fds[2], small = 4608;
    char chunk[100];
    tcp_pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    set_nonblocking(fds[0], true);
    memset(chunk, 'c', sizeof chunk);
    size_t accepted = 0;
    int refused = 0;
    while (refused < 3) {
        ssize_t sent = write(fds[0], chunk, sizeof chunk);
        if (sent > 0)
            accepted += (size_t)sent;
        else if (errno == EAGAIN)
            refused++, sleep_ms(5);
        else
            fail("write to a full buffer");
    }
    struct pollfd wait = {fds[0], POLLOUT, 0};
    printf("EAGAIN three times; poll says writable: %d\n", poll(&wait, 1, 0));
    printf("a large write: %s\n", result(write(fds[0], calloc(1, 1 << 20), 1 << 20)));
    char *all = malloc(1 << 22);
    size_t have = 0;
    while (have < accepted) {
        struct pollfd readable = {fds[1], POLLIN, 0};
        if (poll(&readable, 1, 1000) != 1)
            break;
        have += (size_t)read(fds[1], all + have, (1 << 22) - have);
    }
    printf("accepted bytes that did not arrive: %zd\n", (ssize_t)(accepted - have));
    printf("then writable: %d\n", poll(&wait, 1, 1000));
    ssize_t sent = write(fds[0], all, 1 << 21);
    printf("a write larger than the buffer is partial: %s\n", yes(sent > 0 && sent < 1 << 21));
    set_nonblocking(fds[0], false);
    close(fds[0]);
    printf("the rest that did not arrive: %zd\n", sent - (ssize_t)take(fds[1], all, 1 << 22));
}

static void send_timeout(void)
{
    int fds[2], small = 65536;
    struct timeval limit = {0, 100000};
    tcp_pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    char *much = calloc(1, 16 << 20);
    put(fds[0], "first");
    double start = now_ms();
    ssize_t sent = write(fds[0], much, 16 << 20), more;
    double took = now_ms() - start;
    printf("SO_SNDTIMEO: partial %s, after 100 ms %s\n", yes(sent > 0 && sent < 16 << 20),
           yes(took > 95 && took < 400));
    /* The last segment may have room for a few more bytes. */
    do {
        start = now_ms();
        if ((more = write(fds[0], much, 1000)) > 0)
            sent += more;
    } while (more > 0);
    printf("then: %s", result(more));
    took = now_ms() - start;
    printf(", after 100 ms %s\n", yes(took > 95 && took < 400));
    close(fds[0]);
    size_t came = 0, got;
    while ((got = take(fds[1], much, 16 << 20)) > 0)
        came += got;
    printf("bytes not accounted for: %zd\n", (ssize_t)came - sent - 5);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &action, NULL);
    closed_peer();
    reset_peer();
    late_error();
    wrong_calls();
    full_buffer();
    send_timeout();
    return 0;
}

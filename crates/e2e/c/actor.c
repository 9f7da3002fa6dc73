/* One end of the property test: carries out a script of writes, reads, waits, forks, copies and
 * closes on several connections.
 *
 *   actor listen SCRIPT            prints its ports, then accepts the connections
 *   actor connect SCRIPT PORT PORT
 *   actor child SCRIPT FIRST COUNT SIDE FD...   part of a script, after fork and exec
 *
 * The content of each stream is a function of the connection, the direction and the offset, and a
 * script names offsets, so every byte is checked where it is read: a byte lost, doubled or out of
 * place shows at once. The last lines tell how much arrived on each connection. */
#include "common.h"
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { MAX_CONNECTIONS = 4, MAX_STEPS = 4096, MAX_BYTES = 65536 };

struct step {
    char what;
    long connection, offset, length, variant;
};

static struct step steps[MAX_STEPS];
static long step_count, connections, finish;
static int fds[MAX_CONNECTIONS], side;
static long came[MAX_CONNECTIONS];
static const char *script;
static char self[4096];
extern char **environ;

static char content(int from, long connection, long offset)
{
    uint32_t mixed = (uint32_t)(offset + 1) * 2654435761u ^ (uint32_t)(connection * 4 + from) * 40503u;
    return (char)(mixed >> 15);
}

static void fill(char *into, long connection, long offset, long length)
{
    for (long i = 0; i < length; i++)
        into[i] = content(side, connection, offset + i);
}

/* Sends all of it through a call that may send less. */
typedef ssize_t one_send(int fd, const char *bytes, size_t length);

static void send_all(int fd, const char *bytes, long length, one_send *call)
{
    while (length > 0) {
        ssize_t sent = call(fd, bytes, (size_t)length);
        if (sent < 0 && errno == EAGAIN)
            poll(&(struct pollfd){fd, POLLOUT, 0}, 1, -1);
        else if (sent < 0 && errno != EINTR)
            fail("send of %ld bytes", length);
        else if (sent > 0)
            bytes += sent, length -= sent;
    }
}

static ssize_t s_write(int fd, const char *b, size_t n) { return write(fd, b, n); }
static ssize_t s_send(int fd, const char *b, size_t n) { return send(fd, b, n, 0); }
static ssize_t s_more(int fd, const char *b, size_t n) { return send(fd, b, n, MSG_MORE); }
static ssize_t s_nowait(int fd, const char *b, size_t n) { return send(fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL); }
static ssize_t s_sendto(int fd, const char *b, size_t n) { return sendto(fd, b, n, 0, NULL, 0); }
static ssize_t s_raw(int fd, const char *b, size_t n) { return syscall(SYS_write, fd, b, n); }
static ssize_t s_pieces(int fd, const char *b, size_t n) { return write(fd, b, n > 3 ? 3 : n); }
static ssize_t s_writev(int fd, const char *b, size_t n)
{
    size_t third = n / 3;
    struct iovec parts[3] = {{(void *)b, third}, {(void *)(b + third), third},
                             {(void *)(b + 2 * third), n - 2 * third}};
    return writev(fd, parts, 3);
}
static ssize_t s_sendmsg(int fd, const char *b, size_t n)
{
    struct iovec parts[2] = {{(void *)b, n / 2}, {(void *)(b + n / 2), n - n / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(fd, &message, 0);
}
static ssize_t s_sendmmsg(int fd, const char *b, size_t n)
{
    struct iovec parts[2] = {{(void *)b, n / 2}, {(void *)(b + n / 2), n - n / 2}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
    int sent = sendmmsg(fd, messages, 2, 0);
    if (sent == 2 && messages[0].msg_len == n / 2)
        return (ssize_t)(messages[0].msg_len + messages[1].msg_len);
    return sent > 0 ? (ssize_t)messages[0].msg_len : sent;
}
static ssize_t s_sendfile(int fd, const char *b, size_t n)
{
    char path[] = "/tmp/uncork-e2e-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    off_t offset = 0;
    if (write(file, b, n) != (ssize_t)n)
        fail("file");
    ssize_t sent = sendfile(fd, file, &offset, n);
    int error = errno;
    close(file);
    errno = error;
    return sent;
}
static ssize_t s_splice(int fd, const char *b, size_t n)
{
    int ends[2];
    size_t part = n > 4096 ? 4096 : n;
    if (pipe(ends) || write(ends[1], b, part) != (ssize_t)part)
        fail("pipe");
    for (size_t left = part; left > 0;) {
        ssize_t sent = splice(ends[0], NULL, fd, NULL, left, 0);
        if (sent < 0 && errno == EAGAIN)
            poll(&(struct pollfd){fd, POLLOUT, 0}, 1, -1);
        else if (sent <= 0)
            fail("splice");
        else
            left -= (size_t)sent;
    }
    close(ends[0]);
    close(ends[1]);
    return (ssize_t)part;
}
static ssize_t s_stdio(int fd, const char *b, size_t n)
{
    int flags = fcntl(fd, F_GETFL); /* stdio gives up at EAGAIN */
    set_nonblocking(fd, false);
    FILE *stream = fdopen(dup(fd), "w");
    size_t sent = fwrite(b, 1, n, stream);
    fclose(stream);
    fcntl(fd, F_SETFL, flags);
    return (ssize_t)sent;
}
static ssize_t s_corked(int fd, const char *b, size_t n)
{
    int on = 1, off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    ssize_t sent = write(fd, b, n);
    int error = errno;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    errno = error;
    return sent;
}

struct job {
    int fd;
    const char *bytes;
    long length;
};
static void *in_thread(void *argument)
{
    struct job *job = argument;
    send_all(job->fd, job->bytes, job->length, s_write);
    return NULL;
}

static one_send *const sends[] = {s_write,   s_send,     s_writev, s_sendmsg, s_sendmmsg,
                                  s_nowait,  s_sendto,   s_raw,    s_pieces,  s_sendfile,
                                  s_splice,  s_stdio,    s_corked, s_more};

static void do_write(const struct step *step)
{
    static char bytes[MAX_BYTES];
    int fd = fds[step->connection];
    size_t way = (size_t)step->variant % (sizeof sends / sizeof *sends + 1);
    fill(bytes, step->connection, step->offset, step->length);
    if (way < sizeof sends / sizeof *sends) {
        send_all(fd, bytes, step->length, sends[way]);
        return;
    }
    pthread_t thread;
    struct job job = {fd, bytes, step->length};
    pthread_create(&thread, NULL, in_thread, &job);
    pthread_join(thread, NULL);
}

static ssize_t r_waited(int fd, char *into, size_t length, int how)
{
    struct epoll_event event = {.events = EPOLLIN};
    fd_set set;
    int poller;
    switch (how) {
    case 0:
        poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1);
        break;
    case 1:
        poller = epoll_create1(0);
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
        epoll_wait(poller, &event, 1, -1);
        close(poller);
        break;
    default:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        select(fd + 1, &set, NULL, NULL, NULL);
    }
    return recv(fd, into, length, MSG_DONTWAIT);
}

static ssize_t r_once(int fd, char *into, size_t length, long variant)
{
    struct iovec parts[2] = {{into, length / 2}, {into + length / 2, length - length / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    struct mmsghdr several = {.msg_hdr = message};
    int waiting = 0;
    switch (variant % 11) {
    case 1:
        return recv(fd, into, length, 0);
    case 2:
        return recvmsg(fd, &message, 0);
    case 3:
        return readv(fd, parts, 2);
    case 4:
        return recv(fd, into, length, MSG_PEEK) < 0 ? -1 : read(fd, into, length);
    case 5:
        return recv(fd, into, length, MSG_WAITALL);
    case 6:
    case 7:
    case 8:
        return r_waited(fd, into, length, (int)(variant % 11 - 6));
    case 9:
        return recvmmsg(fd, &several, 1, 0, NULL) == 1 ? (ssize_t)several.msg_len : -1;
    case 10:
        ioctl(fd, FIONREAD, &waiting);
        return recvfrom(fd, into, length, 0, NULL, NULL);
    default:
        return read(fd, into, length);
    }
}

/* Reads and checks `length` bytes, or with -1 all up to the end of the stream. */
static void do_read(const struct step *step)
{
    static char bytes[MAX_BYTES];
    int fd = fds[step->connection];
    long have = 0, wanted = step->length < 0 ? MAX_BYTES : step->length;
    while (have < wanted) {
        ssize_t got = r_once(fd, bytes, (size_t)(wanted - have), step->variant);
        if (got < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1);
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail("read on connection %ld at %ld", step->connection, step->offset + have);
        if (got == 0)
            break;
        for (ssize_t i = 0; i < got; i++)
            if (bytes[i] != content(!side, step->connection, step->offset + have + i))
                fail("wrong byte on connection %ld at %ld", step->connection,
                     step->offset + have + (long)i);
        have += got;
    }
    if (step->length >= 0 && have != step->length)
        fail("end of connection %ld at %ld", step->connection, step->offset + have);
    came[step->connection] = step->offset + have;
}

static void do_wait(const struct step *step)
{
    long us = step->length;
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    double start = now_ms();
    switch (step->variant % 6) {
    case 0:
        usleep((useconds_t)us);
        break;
    case 1:
        nanosleep(&time, NULL);
        break;
    case 2:
        poll(NULL, 0, (int)(us / 1000));
        break;
    case 3:
        select(0, NULL, NULL, NULL, &(struct timeval){0, us});
        break;
    case 4:
        sched_yield();
        break;
    default:
        while ((now_ms() - start) * 1000 < (double)us)
            ;
    }
}

static int by_rights(int fd)
{
    int ends[2], got = -1;
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'f';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || sendmsg(ends[0], &message, 0) != 1 ||
        recvmsg(ends[1], &message, 0) != 1)
        fail("descriptor passing");
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    close(ends[0]);
    close(ends[1]);
    return got;
}

static void do_copy(const struct step *step)
{
    int fd = fds[step->connection], copy;
    switch (step->variant % 4) {
    case 0:
        copy = dup(fd);
        break;
    case 1:
        copy = dup2(fd, 100 + (int)step->connection * 10 + (fd + 1) % 10);
        break;
    case 2:
        copy = fcntl(fd, F_DUPFD, 200);
        break;
    default:
        copy = by_rights(fd);
    }
    if (copy < 0)
        fail("copy of %d", fd);
    if (copy != fd)
        close(fd);
    fds[step->connection] = copy;
}

static void do_option(const struct step *step)
{
    int fd = fds[step->connection], value = (int)step->length & 1;
    if (step->variant % 3 == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value);
    else if (step->variant % 3 == 1)
        set_nonblocking(fd, value);
    else
        setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &value, sizeof value);
}

static void run(long first, long count);

/* Runs the next steps in a child; the parent waits, so the order of the bytes stays defined. */
static void do_fork(long at)
{
    const struct step *step = &steps[at];
    char words[5 + MAX_CONNECTIONS][24], *arguments[8 + MAX_CONNECTIONS] = {self, "child", (char *)script};
    long numbers[4 + MAX_CONNECTIONS] = {at + 1, step->length, side};
    int status, count = 3, way = (int)(step->variant % 5);
    pid_t child = -1;
    for (int i = 0; i < connections; i++)
        numbers[3 + i] = fds[i];
    for (int i = 0; i < 3 + connections; i++) {
        snprintf(words[i], sizeof words[i], "%ld", numbers[i]);
        arguments[count++] = words[i];
    }
    fflush(stdout);
    if (way == 4) {
        if (posix_spawn(&child, self, NULL, NULL, arguments, environ))
            fail("posix_spawn");
    } else if ((child = way == 3 ? vfork() : fork()) == 0) {
        if (way >= 2) {
            execv(self, arguments);
            _exit(99);
        }
        run(at + 1, step->length);
        way ? _exit(0) : exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("child ended with %x", status);
}

static void run(long first, long count)
{
    for (long at = first; at < first + count; at++) {
        const struct step *step = &steps[at];
        switch (step->what) {
        case 'W':
            do_write(step);
            break;
        case 'R':
            do_read(step);
            break;
        case 'Z':
            do_wait(step);
            break;
        case 'D':
            do_copy(step);
            break;
        case 'O':
            do_option(step);
            break;
        case 'S':
            shutdown(fds[step->connection], SHUT_WR);
            break;
        case 'C':
            close(fds[step->connection]);
            fds[step->connection] = -1;
            break;
        case 'F':
            do_fork(at);
            at += step->length;
            break;
        default:
            fail("step %c", step->what);
        }
    }
}

/* The first line gives the number of connections and the way in which the process ends. */
static void read_script(const char *path)
{
    FILE *file = fopen(path, "r");
    struct step step;
    script = path;
    if (!file || fscanf(file, "%ld %ld", &connections, &finish) != 2)
        fail("script %s", path);
    while (fscanf(file, " %c %ld %ld %ld %ld", &step.what, &step.connection, &step.offset,
                  &step.length, &step.variant) == 5 && step_count < MAX_STEPS)
        steps[step_count++] = step;
    fclose(file);
}

/* Every second connection uses IPv6, where available. */
static socklen_t loopback(int family, uint16_t port, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof *address);
    if (family == AF_INET) {
        struct sockaddr_in v4 = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
        memcpy(address, &v4, sizeof v4);
        return sizeof v4;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    memcpy(address, &v6, sizeof v6);
    return sizeof v6;
}

static int listener_of(int family, int *port)
{
    struct sockaddr_storage address;
    socklen_t length = loopback(family, 0, &address);
    int fd = socket(family, SOCK_STREAM, 0);
    *port = 0;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)&address, &length)) {
        close(fd);
        return -1;
    }
    *port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                    : ((struct sockaddr_in6 *)&address)->sin6_port);
    return fd;
}

static void accept_all(void)
{
    int ports[2], listeners[2] = {listener_of(AF_INET, &ports[0]), listener_of(AF_INET6, &ports[1])};
    if (listeners[0] < 0)
        fail("listener");
    printf("%d %d\n", ports[0], ports[1]);
    for (int i = 0; i < connections; i++)
        if ((fds[i] = accept(listeners[i & 1 && ports[1]], NULL, NULL)) < 0)
            fail("accept");
    close(listeners[0]);
    close(listeners[1]);
}

static void connect_all(const int ports[2])
{
    struct sockaddr_storage address;
    for (int i = 0; i < connections; i++) {
        int second = i & 1 && ports[1], family = second ? AF_INET6 : AF_INET;
        socklen_t length = loopback(family, (uint16_t)ports[second], &address);
        fds[i] = socket(family, SOCK_STREAM, 0);
        if (connect(fds[i], (struct sockaddr *)&address, length))
            fail("connect");
    }
}

int main(int count, char **arguments)
{
    if (count < 3 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        fail("usage: actor listen|connect|child SCRIPT ...");
    read_script(arguments[2]);
    if (!strcmp(arguments[1], "child")) {
        side = atoi(arguments[5]);
        for (int i = 0; i < connections && 6 + i < count; i++)
            fds[i] = atoi(arguments[6 + i]);
        run(atol(arguments[3]), atol(arguments[4]));
        return 0;
    }
    side = !strcmp(arguments[1], "connect");
    if (!side)
        accept_all();
    else if (count == 5)
        connect_all((int[]){atoi(arguments[3]), atoi(arguments[4])});
    else
        fail("two ports wanted");
    run(0, step_count);
    for (int i = 0; i < connections; i++)
        printf("connection %d: %ld bytes came\n", i, came[i]);
    switch (finish % 4) {
    case 1:
        _exit(0);
    case 2:
        quick_exit(0);
    case 3:
        pthread_exit(NULL);
    default:
        return 0;
    }
}

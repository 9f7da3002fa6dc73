/* Options set before there is a connection, or on a listener, apply to the connection. */
#include "far.h"
#include <linux/filter.h>
#include <sys/uio.h>

static struct sock_filter none_passes[] = {{BPF_RET | BPF_K, 0, 0, 0}};
static const struct sock_fprog filter = {1, none_passes};

static const struct choice {
    const char *what;
    int level, name;
    const void *value;
    socklen_t length;
    bool reads; /* What is read back is the same on all kernels. */
} choices[] = {
    {"nothing", 0, 0, NULL, 0, false},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, &(int){20000}, 4, true},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, &(int){20000}, 4, true},
    {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, &(int){600}, 4, true},
    {"TCP_CONGESTION", IPPROTO_TCP, TCP_CONGESTION, "reno", 4, true},
    {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, &(int){0}, 4, false},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, &(int){2}, 4, true},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, &(int){77}, 4, true},
    {"IP_TOS", IPPROTO_IP, IP_TOS, &(int){0x20}, 4, true},
    {"IPV6_TCLASS", IPPROTO_IPV6, IPV6_TCLASS, &(int){0x20}, 4, true},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, &(int){3}, 4, true},
    {"SO_MARK", SOL_SOCKET, SO_MARK, &(int){7}, 4, true},
    {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, &(int){1}, 4, true},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, &(int){1}, 4, true},
    {"IP_TTL", IPPROTO_IP, IP_TTL, &(int){33}, 4, true},
    {"TCP_INQ", IPPROTO_TCP, TCP_INQ, &(int){1}, 4, true},
    {"SO_ZEROCOPY", SOL_SOCKET, SO_ZEROCOPY, &(int){1}, 4, true},
    {"IP_RECVERR", IPPROTO_IP, IP_RECVERR, &(int){1}, 4, true},
    {"IPV6_RECVERR", IPPROTO_IPV6, IPV6_RECVERR, &(int){1}, 4, true},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, &(int){5}, 4, true},
    {"SO_BINDTODEVICE", SOL_SOCKET, SO_BINDTODEVICE, "lo", 3, true},
    {"SO_ATTACH_FILTER", SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter, false},
};

static void set(int fd, const struct choice *choice)
{
    if (choice->value)
        printf(" %s", result(setsockopt(fd, choice->level, choice->name, choice->value, choice->length)));
}

/* Prints what is read back, the control octets that come with the peer's data, and whether that arrives. */
static void use(int fd, int at, const struct choice *choice)
{
    unsigned char value[64] = {0};
    socklen_t length = sizeof value;
    if (choice->reads && getsockopt(fd, choice->level, choice->name, value, &length) == 0)
        for (socklen_t each = 0; each < length && each < 8; each++)
            printf("%s%02x", each ? "" : ", then ", value[each]);
    char bytes[16], control[256];
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    far_ok(far("put %d abc", at));
    printf(", %s", poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000) == 1 ? "comes" : "does not come");
    printf(" %s", result(recvmsg(fd, &message, MSG_DONTWAIT)));
    /* Timestamps only come some time after they have first been requested. */
    if (choice->name != SO_TIMESTAMP || choice->level != SOL_SOCKET)
        printf(" with %d", (int)message.msg_controllen);
}

/* Where the other end cannot be reached there is no answer, which is not waited for. */
static void connects(const struct choice *choice)
{
    struct sockaddr_storage name;
    int port = atoi(far("listen 0 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    int fd = far_socket(SOCK_NONBLOCK);
    printf("%s, then connect:", choice->what);
    set(fd, choice);
    int begun = connect(fd, (struct sockaddr *)&name, length);
    if (begun && errno != EINPROGRESS) {
        printf(", connect %s\n", result(begun));
        close(fd);
        return;
    }
    bool is_cut_off = choice->level == SOL_SOCKET && (choice->name == SO_BINDTODEVICE || choice->name == SO_ATTACH_FILTER);
    int ready = poll(&(struct pollfd){fd, POLLOUT, 0}, 1, is_cut_off ? 300 : 5000);
    printf(", %s", ready == 1 ? "connected" : "nobody answers");
    if (ready == 1) {
        far_ok(far("accept 0 0"));
        use(fd, 0, choice);
    }
    printf("\n");
    close(fd);
}

static void accepts(const struct choice *choice, bool before)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM, 0);
    printf("%s, %s listen:", choice->what, before ? "then" : "behind");
    if (before)
        set(fd, choice);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, 8) || getsockname(fd, (struct sockaddr *)&name, &length))
        fail("listen");
    struct pollfd ready = {fd, POLLIN, 0};
    poll(&ready, 1, 0);
    if (!before)
        set(fd, choice);
    /* A filter that drops everything would make the other host wait for a minute. */
    if (choice->name != SO_ATTACH_FILTER || choice->level != SOL_SOCKET) {
        const char *answer = far("connect 0 %s %d", near_address, far_port(&name));
        if (!atoi(answer)) {
            printf(", the other end: %s\n", answer);
            close(fd);
            return;
        }
        int own = accept(fd, NULL, NULL);
        printf(", accept %s", own < 0 ? result(own) : "ok");
        use(own, 0, choice);
        close(own);
    }
    printf("\n");
    close(fd);
}

/* An unknown option changes nothing. */
static void unknown(void)
{
    int fd = near_connected(0);
    printf("unknown ones: %s", result(setsockopt(fd, IPPROTO_TCP, 777, &(int){1}, 4)));
    printf(" %s\n", result(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nothing", 7)));
    close(fd);
}

/* libc's second names, and flags of recv(2) and preadv2(2) for other purposes. */
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t), __send(int, const void *, size_t, int);
extern int __connect(int, const struct sockaddr *, socklen_t), __close(int), __fcntl(int, int, ...);
extern int __poll(struct pollfd *, nfds_t, int);

static void names(void)
{
    struct sockaddr_storage name;
    char bytes[8];
    struct iovec into = {bytes, 1};
    int port = atoi(far("listen 0 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    int fd = far_socket(0);
    printf("second names: connect %s", result(__connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 0 0"));
    far_count(port);
    far_ok(far("put 0 abcdefg"));
    struct pollfd ready = {fd, POLLIN, 0};
    printf(", poll %d", __poll(&ready, 1, 1000));
    printf(", read %s", result(__read(fd, bytes, 1)));
    printf(" %c, flags %x", bytes[0], (unsigned)__fcntl(fd, F_GETFL));
    const int flags[] = {MSG_MORE, MSG_CONFIRM, MSG_EOR, MSG_FASTOPEN};
    for (int at = 0; at < 4; at++)
        printf(", recv %s", result(recv(fd, bytes, 1, flags[at])));
    printf(", preadv2 %s", result(preadv2(fd, &into, 1, -1, RWF_NOWAIT)));
    printf(" %s", result(preadv2(fd, &into, 1, -1, RWF_HIPRI)));
    printf(" and none %s", result(preadv2(fd, &into, 1, -1, RWF_NOWAIT)));
    printf(", write %s", result(__write(fd, "a", 1)));
    printf(", send %s\n", result(__send(fd, "b", 1, 0)));
    __close(fd);
    /* The descriptor's number is now a file's. */
    FILE *file = tmpfile();
    printf("a file: %s", result(write(fileno(file), "file", 4)));
    fseek(file, 0, SEEK_END);
    printf(" of %ld\n", ftell(file));
    fclose(file);
}

/* Options of the other version of IP do not apply. */
static void versions(void)
{
    int fd = near_connected(0);
    if (!strchr(far_address, ':'))
        printf("IPV6_TCLASS by IPv4: %s\n", result(setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &(int){32}, 4)));
    close(fd);
}

/* Options with unchanged values, and those about names and ports only, change nothing about a connection. */
static void in_force(void)
{
    static const int options[][3] = {
        {SOL_SOCKET, SO_PRIORITY, 0}, {SOL_SOCKET, SO_TIMESTAMP, 0}, {SOL_SOCKET, SO_REUSEADDR, 1},
        {SOL_SOCKET, SO_BUSY_POLL, 0}, {SOL_SOCKET, SO_RCVLOWAT, 1}, {IPPROTO_TCP, TCP_LINGER2, 0},
        {IPPROTO_IP, IP_TOS, 0}, {IPPROTO_IP, IP_RECVTTL, 0}, {IPPROTO_IP, IP_RECVTOS, 0},
    };
    int fd = near_accepted(0), other = near_accepted(1);
    for (size_t at = 0; at < sizeof options / sizeof *options; at++) {
        const int *option = options[at];
        int value = -1;
        printf("%d, %d set to %d: %s", option[0], option[1], option[2],
               result(setsockopt(fd, option[0], option[1], &option[2], sizeof value)));
        getsockopt(fd, option[0], option[1], &value, &(socklen_t){sizeof value});
        printf(" %d", value);
        getsockopt(other, option[0], option[1], &value, &(socklen_t){sizeof value});
        printf(", of another %d\n", value);
    }
    struct sockaddr_storage there;
    getpeername(fd, (struct sockaddr *)&there, &(socklen_t){sizeof there});
    far_count(far_port(&there));
    /* An option that makes a socket the kernel's is read from the kernel as well. */
    int priority = 3;
    setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
    getsockopt(other, SOL_SOCKET, SO_PRIORITY, &priority, &(socklen_t){sizeof priority});
    printf("SO_PRIORITY of another: %d\n", priority);
    close(fd);
    close(other);
}

/* After a refused connection the options of the socket apply to its next one. */
static void once_more(const struct choice *choice)
{
    unsigned char value[64] = {0};
    struct sockaddr_storage name;
    int fd = far_socket(0), port = atoi(far("listen 0 %s", far_address));
    printf("%s, then refused:", choice->what);
    set(fd, choice);
    far_ok(far("close 0"));
    socklen_t length = far_name(&name, far_address, port), room = sizeof value;
    printf(", connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    port = atoi(far("listen 0 %s", far_address));
    far_name(&name, far_address, port);
    printf(", connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 1 0"));
    far_count(port);
    getsockopt(fd, choice->level, choice->name, value, &room);
    for (socklen_t each = 0; each < room && each < 8; each++)
        printf("%s%02x", each ? "" : ", then ", value[each]);
    printf("\n");
    close(fd);
    far_ok(far("close 0"));
    far_ok(far("close 1"));
}

/* A negative backlog is as long as any (php-fpm's is). */
static void crowd(void)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, -1) || getsockname(fd, (struct sockaddr *)&name, &length))
        fail("listen");
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
    double begun = now_ms();
    for (int at = 0; at < 8; at++)
        if (!atoi(far("connect %d %s %d", at, near_address, far_port(&name))))
            fail("connect %d", at);
    /* A SYN for which there is no room is retransmitted after a second. */
    printf("a backlog of -1: %s\n", now_ms() - begun < 900 ? "at once" : "late");
    close(fd);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    for (size_t at = 0; at < sizeof choices / sizeof *choices; at++) {
        connects(&choices[at]);
        accepts(&choices[at], true);
        accepts(&choices[at], false);
    }
    for (size_t at = 1; at <= 7; at++)
        if (choices[at].reads)
            once_more(&choices[at]);
    unknown();
    names();
    versions();
    in_force();
    crowd();
    return 0;
}

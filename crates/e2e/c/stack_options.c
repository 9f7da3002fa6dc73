/* Options and flags of connections: what is read back, and obeyed. */
#include "far.h"
#include <sys/epoll.h>
#include <sys/stat.h>

/* Options of connections that are equal on both stacks. Those that count or measure are left out. */
static void options(int fd, const char *what)
{
    const struct {
        int level, name;
    } all[] = {
#define S(name) {SOL_SOCKET, name}
        S(SO_DEBUG), S(SO_REUSEADDR), S(SO_TYPE), S(SO_ERROR), S(SO_DONTROUTE), S(SO_BROADCAST),
        S(SO_KEEPALIVE), S(SO_OOBINLINE), S(SO_NO_CHECK), S(SO_PRIORITY), S(SO_LINGER), S(SO_REUSEPORT),
        S(SO_PASSCRED), S(SO_RCVLOWAT), S(SO_SNDLOWAT), S(SO_RCVTIMEO), S(SO_SNDTIMEO), S(SO_BINDTODEVICE),
        S(SO_TIMESTAMP), S(SO_ACCEPTCONN), S(SO_PEERSEC), S(SO_MARK), S(SO_RXQ_OVFL), S(SO_PEEK_OFF), S(SO_NOFCS),
        S(SO_SELECT_ERR_QUEUE), S(SO_BUSY_POLL), S(SO_MAX_PACING_RATE), S(SO_INCOMING_NAPI_ID),
        S(SO_ZEROCOPY), S(SO_TXTIME), S(SO_PROTOCOL), S(SO_DOMAIN), S(SO_PEERCRED), S(SO_TIMESTAMPING),
        S(999),
#define T(name) {IPPROTO_TCP, name}
        T(TCP_NODELAY), T(TCP_CORK), T(TCP_KEEPIDLE), T(TCP_KEEPINTVL), T(TCP_KEEPCNT), T(TCP_SYNCNT),
        T(TCP_LINGER2), T(TCP_DEFER_ACCEPT), T(TCP_QUICKACK), T(TCP_MD5SIG), T(TCP_THIN_LINEAR_TIMEOUTS),
        T(TCP_THIN_DUPACK), T(TCP_USER_TIMEOUT), T(TCP_REPAIR), T(TCP_FASTOPEN), T(TCP_TIMESTAMP), T(TCP_NOTSENT_LOWAT),
        T(TCP_SAVE_SYN), T(TCP_SAVED_SYN), T(TCP_FASTOPEN_CONNECT), T(TCP_FASTOPEN_NO_COOKIE),
        T(TCP_ULP), T(TCP_INQ), T(TCP_TX_DELAY), T(TCP_MAXSEG), T(TCP_WINDOW_CLAMP), T(777),
#define I(name) {IPPROTO_IP, name}
        I(IP_TOS), I(IP_TTL), I(IP_MTU), I(IP_MTU_DISCOVER), I(IP_RECVERR), I(IP_FREEBIND), I(IP_TRANSPARENT), I(IP_BIND_ADDRESS_NO_PORT), I(IP_OPTIONS),
#define V(name) {IPPROTO_IPV6, name}
        V(IPV6_V6ONLY), V(IPV6_TCLASS), V(IPV6_UNICAST_HOPS), V(IPV6_MTU), {IPPROTO_UDP, 1}, {55, 1}};
    printf("options of %s:\n", what);
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        unsigned char value[128] = {0};
        socklen_t length = sizeof value;
        int got = getsockopt(fd, all[at].level, all[at].name, value, &length);
        printf("  %d/%d: %s", all[at].level, all[at].name, result(got));
        /* Clocks, and values that change by themselves. */
        bool counts = all[at].level == IPPROTO_TCP && (all[at].name == TCP_TIMESTAMP || all[at].name == TCP_WINDOW_CLAMP || all[at].name == TCP_QUICKACK);
        if (got == 0 && all[at].level == SOL_SOCKET && all[at].name == SO_INCOMING_NAPI_ID)
            counts = true;
        for (socklen_t each = 0; got == 0 && !counts && each < length && each < 24; each++)
            printf("%s%02x", each % 4 ? "" : " ", value[each]);
        printf("\n");
    }
    unsigned char cut[8] = {9, 9, 9, 9};
    socklen_t length = 1;
    printf("cut: %s", result(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, cut, &length)));
    printf(" of %d, %d %d", (int)length, cut[0], cut[1]);
    length = (socklen_t)-1;
    printf(", negative %s", result(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, cut, &length)));
    length = 4;
    printf(", nowhere %s", result(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, &length)));
    printf(", no length %s", result(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, cut, NULL)));
    struct tcp_info info = {0};
    length = sizeof info;
    printf(", TCP_INFO %s", result(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length)));
    printf(" of at least 232 %s, state %d options %x scales %s rto %s mss %u/%u advmss %u pmtu %u\n",
           yes(length >= 232), info.tcpi_state, info.tcpi_options, yes(info.tcpi_rcv_wscale || 1),
           yes(info.tcpi_rto >= 200000 && info.tcpi_rto < 300000), info.tcpi_snd_mss, 0, info.tcpi_advmss,
           info.tcpi_pmtu);
}

static void try(int fd, int level, int name, const void *value, socklen_t length)
{
    unsigned char back[32] = {0};
    socklen_t room = sizeof back;
    printf("  set %d/%d: %s", level, name, result(setsockopt(fd, level, name, value, length)));
    if (getsockopt(fd, level, name, back, &room) == 0) {
        printf(", then");
        for (socklen_t at = 0; at < room && at < 20; at++)
            printf("%s%02x", at % 4 ? "" : " ", back[at]);
    }
    printf("\n");
}

static void sets(int fd, const char *what)
{
    printf("setting on %s:\n", what);
    const int values[] = {-1, 0, 1, 7, 100, 70000};
    const int names[][2] = {{SOL_SOCKET, SO_ZEROCOPY}, {IPPROTO_TCP, TCP_INQ}, {IPPROTO_IP, IP_RECVERR},
        {IPPROTO_IPV6, IPV6_RECVERR}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_CORK}, {IPPROTO_TCP, TCP_KEEPIDLE},
        {IPPROTO_TCP, TCP_KEEPINTVL}, {IPPROTO_TCP, TCP_KEEPCNT}, {IPPROTO_TCP, TCP_SYNCNT}, {IPPROTO_TCP, TCP_LINGER2},
        {IPPROTO_TCP, TCP_USER_TIMEOUT}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT}, {IPPROTO_TCP, 777},
        {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_SNDBUF}, {SOL_SOCKET, SO_RCVBUF}, {SOL_SOCKET, SO_RCVLOWAT},
        {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_PRIORITY}, {SOL_SOCKET, SO_MARK}, {SOL_SOCKET, SO_OOBINLINE},
        {SOL_SOCKET, SO_BUSY_POLL}, {SOL_SOCKET, SO_TYPE}, {SOL_SOCKET, 999}, {IPPROTO_IP, IP_TOS}, {IPPROTO_IP, IP_TTL},
        {IPPROTO_IP, IP_MTU_DISCOVER}, {77, 1}};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        for (int each = 0; each < 6; each++)
            try(fd, names[at][0], names[at][1], &values[each], 4);
    try(fd, IPPROTO_TCP, TCP_NODELAY, &values[2], 1);
    try(fd, IPPROTO_TCP, TCP_NODELAY, NULL, 4);
    try(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    try(fd, IPPROTO_TCP, TCP_CONGESTION, "nothing", 7);
    try(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){1, 500000}, 16);
    try(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 1000000}, 16);
    try(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){-1, 0}, 16);
    try(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 0}, 8);
    try(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 3}, 8);
    try(fd, SOL_SOCKET, SO_LINGER, &(struct linger){0, 9}, 8);
    try(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 3}, 4);
    try(fd, IPPROTO_IP, IP_TOS, &(char){0x10}, 1);
}

static void flags(int fd)
{
    struct stat about;
    int on = 1, off = 0;
    printf("F_GETFL %x", fcntl(fd, F_GETFL));
    printf(", F_SETFL %s", result(fcntl(fd, F_SETFL, O_NONBLOCK)));
    printf(" %x", fcntl(fd, F_GETFL));
    printf(", FIONBIO %s", result(ioctl(fd, FIONBIO, &off)));
    printf(" %x", fcntl(fd, F_GETFL));
    printf(", on %s", result(ioctl(fd, FIONBIO, &on)));
    printf(" %x", fcntl(fd, F_GETFL));
    printf(", read %s", result(read(fd, &(char){0}, 1)));
    printf(", F_SETFL 0 %s", result(fcntl(fd, F_SETFL, 0)));
    printf(" %x", fcntl(fd, F_GETFL));
    printf(", F_GETFD %d", fcntl(fd, F_GETFD));
    printf(", F_SETFD %s", result(fcntl(fd, F_SETFD, FD_CLOEXEC)));
    printf(" %d", fcntl(fd, F_GETFD));
    printf(", FIONCLEX %s", result(ioctl(fd, FIONCLEX)));
    printf(" %d", fcntl(fd, F_GETFD));
    printf(", fstat %s", result(fstat(fd, &about)));
    printf(" %o", about.st_mode);
    printf(", F_GETOWN %d", fcntl(fd, F_GETOWN));
    printf(", isatty %d", isatty(fd));
    printf(", unknown ioctl %s", result(ioctl(fd, 0x1234567, &on)));
    printf(", unknown fcntl %s\n", result(fcntl(fd, 99999, 1)));
}

/* A reader that waits for so many octets is not woken for fewer, but for the end. */
static void low_water(int fd, int at)
{
    char bytes[16];
    struct pollfd one = {fd, POLLIN, 0};
    printf("SO_RCVLOWAT: %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){5}, 4)));
    far_ok(far("put %d abc", at));
    printf(", poll %d", poll(&one, 1, 30));
    printf(", not waiting %s", result(recv(fd, bytes, 2, MSG_DONTWAIT)));
    far_ok(far("put %d defg", at));
    printf(", poll %d", poll(&one, 1, 1000));
    far_ok(far("later 30 put %d hij", at));
    printf(", read %s", result(recv(fd, bytes, 16, 0)));
    far_ok(far("put %d k", at));
    sleep_ms(40);
    far_ok(far("shut %d 1", at));
    printf(", poll %d", poll(&one, 1, 1000));
    printf(", read %s or more", yes(recv(fd, bytes, 16, 0) > 0));
    printf("\n");
}

/* An epoll set reports a socket that becomes ready by a change of a low-water mark, or of a buffer. */
static void marks_are_moved(int (*pair)(int), int at)
{
    int fd = pair(at), set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    printf("few: %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){5}, 4)));
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    far_ok(far("put %d abc", at));
    printf(", told %d", epoll_wait(set, &event, 1, 50));
    printf(", enough: %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, 4)));
    printf(", told %d\n", epoll_wait(set, &event, 1, 1000));
    close(fd);
    fd = pair(at);
    /* More than there is room for, unless room is made. */
    printf("many: %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){100000}, 4)));
    event = (struct epoll_event){EPOLLIN, {.u64 = 2}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    far_ok(far("later 0 send %d 120000", at));
    printf(", told %d", epoll_wait(set, &event, 1, 5000));
    static char octets[200000];
    printf(", as many as that: %s\n", yes(recv(fd, octets, sizeof octets, 0) >= 100000));
    close(fd);
    close(set);
}

/* recvmsg(2) returns how much is left, if there is room for that control message. */
static void left(int fd, int at)
{
    char bytes[4];
    struct iovec iov = {bytes, 2};
    printf("TCP_INQ: %s", result(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){1}, 4)));
    far_ok(far("put %d abcdefgh", at));
    while (recv(fd, bytes, 4, MSG_PEEK | MSG_WAITALL) < 4)
        sleep_ms(1);
    const size_t rooms[] = {256, CMSG_LEN(4), CMSG_LEN(4) - 1, CMSG_LEN(0) - 1, 256};
    for (int each = 0; each < 5; each++) {
        union {
            struct cmsghdr first;
            char room[256];
        } control = {0};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = rooms[each]};
        if (each == 4) {
            far_ok(far("shut %d 1", at));
            sleep_ms(50);
        }
        printf("; read %s", result(recvmsg(fd, &message, 0)));
        printf(" with %d, %x", (int)message.msg_controllen, message.msg_flags);
        const struct cmsghdr *told = CMSG_FIRSTHDR(&message);
        if (told)
            printf(", %d %d/%d: %d", (int)told->cmsg_len, told->cmsg_level, told->cmsg_type, *(const unsigned char *)CMSG_DATA(told));
    }
    printf("\n");
}

static uint64_t cookie(int fd)
{
    uint64_t value = 0;
    socklen_t length = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &value, &length))
        fail("SO_COOKIE");
    return value;
}

/* Each socket has a number of its own, and keeps it. */
static void cookies(int (*pair)(int))
{
    int one = pair(10), other = pair(11), copy = dup(one);
    uint64_t first = cookie(one);
    printf("SO_COOKIE: some %s, another %s", yes(first), yes(cookie(other) != first));
    printf(", it stays %s, its copy has it %s", yes(cookie(one) == first), yes(cookie(copy) == first));
    printf(", no room %s", result(getsockopt(other, SOL_SOCKET, SO_COOKIE, &(int){0}, &(socklen_t){4})));
    printf(", to set it %s", result(setsockopt(other, SOL_SOCKET, SO_COOKIE, &first, sizeof first)));
    printf(", read %s", result(recv(copy, &(char){0}, 1, MSG_DONTWAIT)));
    printf(", SO_PRIORITY %s", result(setsockopt(one, SOL_SOCKET, SO_PRIORITY, &(int){1}, 4)));
    printf(", it stays %s %s\n", yes(cookie(one) == first), yes(cookie(copy) == first));
    close(one);
    close(copy);
    close(other);
}

/* SK_MEMINFO_… of linux/sock_diag.h. */
enum { UNREAD, RECEIVE_BUFFER, IN_DEVICE, SEND_BUFFER, AHEAD, QUEUED, OPTIONS, BACKLOG, DROPS, WORDS };

static unsigned memory_of(int fd, int what)
{
    unsigned words[WORDS] = {0};
    socklen_t length = sizeof words;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, words, &length) || length != sizeof words)
        fail("SO_MEMINFO");
    return words[what];
}

static bool is_buffer(int fd, int what, int option)
{
    unsigned bytes = 0;
    getsockopt(fd, SOL_SOCKET, option, &bytes, &(socklen_t){4});
    return bytes > 0 && memory_of(fd, what) == bytes;
}

/* The memory charged to a connection: as much as is in its queues. */
static void memory(int fd, int at)
{
    static char bytes[100000];
    printf("SO_MEMINFO: unread %u, queued %u", memory_of(fd, UNREAD), memory_of(fd, QUEUED));
    far_ok(far("send %d 10000", at));
    for (int left = 0, tries = 0; left < 10000 && tries < 200; tries++) {
        sleep_ms(5);
        ioctl(fd, FIONREAD, &left);
    }
    printf(", something is unread %s", yes(memory_of(fd, UNREAD) >= 10000));
    printf(", buffers %s", yes(is_buffer(fd, RECEIVE_BUFFER, SO_RCVBUF)));
    printf(" %s", yes(is_buffer(fd, SEND_BUFFER, SO_SNDBUF)));
    printf(", read %s", near_takes(fd, 0, 10000));
    printf(", unread %u", memory_of(fd, UNREAD));
    size_t sent = 0;
    ssize_t taken;
    set_nonblocking(fd, true);
    /* Until the other end takes no more either: a buffer that is full for the first time has room again when that end has. */
    for (int full = 0; full < 3;) {
        far_pattern(bytes, sent, sizeof bytes);
        taken = write(fd, bytes, sizeof bytes);
        sent += taken > 0 ? (size_t)taken : 0;
        full = taken > 0 ? 0 : full + 1;
        if (taken <= 0)
            sleep_ms(10);
    }
    printf(", something is queued %s", yes(memory_of(fd, QUEUED) > 10000));
    far_ok(far("take %d %zu", at, sent));
    for (int tries = 0; memory_of(fd, QUEUED) && tries < 200; tries++)
        sleep_ms(5);
    printf(", then %u", memory_of(fd, QUEUED));
    printf(", dropped %u %u", memory_of(fd, BACKLOG), memory_of(fd, DROPS));
    unsigned char cut[8];
    socklen_t length = sizeof cut;
    printf(", cut %s", result(getsockopt(fd, SOL_SOCKET, SO_MEMINFO, cut, &length)));
    printf(" of %d\n", (int)length);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    for (int at = 0; at < 2; at++) {
        int (*pair)(int) = at ? near_connected : near_accepted;
        int fd = pair(at);
        options(fd, at ? "a connected one" : "an accepted one");
        sets(fd, at ? "a connected one" : "an accepted one");
        flags(fd);
        close(fd);
        fd = pair(at);
        low_water(fd, at);
        close(fd);
        marks_are_moved(pair, at);
        fd = pair(at);
        left(fd, at);
        close(fd);
        cookies(pair);
        fd = pair(at);
        memory(fd, at);
        close(fd);
    }
    return 0;
}

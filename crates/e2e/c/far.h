/* Common to the test programs of the user-space stack. Each is run twice, plain and on the stack, on one of two
 * hosts; far.c runs on the other one and does what it is told (`far`). What a program prints must be the same both
 * times. Arguments: the path of far.c's socket, and the two hosts' addresses. */
#ifndef UNCORK_E2E_FAR_H
#define UNCORK_E2E_FAR_H
#include "common.h"
#include <sys/un.h>

/* Octets from `from` on of the stream that the tests send: if one is lost or doubled anywhere, the next octets differ
 * from what they should be. */
UNUSED static void far_pattern(char *into, size_t from, size_t count)
{
    for (size_t at = from; at < from + count; at++)
        *into++ = (char)(at * 7 + at / 251 + at / 65521);
}

UNUSED static socklen_t far_name(struct sockaddr_storage *name, const char *address, int port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)name;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)name;
    memset(name, 0, sizeof *name);
    if (strchr(address, ':')) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        inet_pton(AF_INET6, address, &v6->sin6_addr);
        return sizeof *v6;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, address, &v4->sin_addr);
    return sizeof *v4;
}

/* The port is in the same place for both families. */
UNUSED static int far_port(const struct sockaddr_storage *name)
{
    return ntohs(((const struct sockaddr_in *)name)->sin_port);
}

/* Like far_name, with other last digits: a neighbouring address, which no host has. */
UNUSED static socklen_t far_beside(struct sockaddr_storage *name, const char *address, int port)
{
    char beside[64];
    snprintf(beside, sizeof beside, "%.*s70", (int)strlen(address) - 1, address);
    return far_name(name, beside, port);
}

static int far_fd = -1;
static FILE *far_in;
static const char *near_address, *far_address;
/* Connections that were looked for among the kernel's, and those found there. */
static int pairs_made, pairs_of_kernel;

/* A program that hangs is compared up to there: so many seconds after its last request to the other host. 0 where
 * this signal is the test's own. */
static unsigned far_patience = 20;

/* Sends a command to the other host, and returns its answer. */
UNUSED __attribute__((format(printf, 1, 2))) static const char *far(const char *format, ...)
{
    static __thread char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    if (write(far_fd, line, (size_t)length) != length || !fgets(line, sizeof line, far_in))
        fail("the other host is gone");
    line[strcspn(line, "\n")] = 0;
    if (far_patience)
        alarm(far_patience);
    return line;
}

UNUSED static void far_ok(const char *answer)
{
    if (strcmp(answer, "ok"))
        fail("the other host: %s", answer);
}

/* Prints where the connections were, for the user: on standard error, as it differs between the runs. */
static void far_where(void)
{
    fprintf(stderr, "connections: %d, of the kernel: %d\n", pairs_made, pairs_of_kernel);
}

/* Creates a socket for the family of the addresses that this is run with. */
UNUSED static int far_socket(int flags)
{
    return socket(strchr(far_address, ':') ? AF_INET6 : AF_INET, SOCK_STREAM | flags, 0);
}

UNUSED static void far_begin(int count, char **arguments)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (count < 4)
        fail("%s PATH NEAR FAR", arguments[0]);
    strncpy(name.sun_path, arguments[1], sizeof name.sun_path - 1);
    near_address = arguments[2];
    far_address = arguments[3];
    far_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int tries = 0; connect(far_fd, (struct sockaddr *)&name, sizeof name); tries++) {
        if (tries == 500)
            fail("%s", name.sun_path);
        sleep_ms(10);
    }
    far_in = fdopen(far_fd, "r");
    alarm(far_patience);
    atexit(far_where);
}

/* Returns whether the kernel has a connection with this port at its other end. Closed ones are left out: they may be
 * from the run before. */
static bool far_is_kernels(int port)
{
    char line[256], wanted[8];
    bool found = false;
    snprintf(wanted, sizeof wanted, ":%04X", port);
    const char *tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    for (int at = 0; at < 2; at++) {
        FILE *table = fopen(tables[at], "r");
        char remote[64];
        unsigned state;
        while (table && fgets(line, sizeof line, table))
            if (sscanf(line, " %*s %*s %63s %x", remote, &state) == 2 && state == 1 &&
                strstr(remote, wanted))
                found = true;
        if (table)
            fclose(table);
    }
    return found;
}

static void far_count(int port)
{
    pairs_made++;
    pairs_of_kernel += far_is_kernels(port);
}

/* Returns a listener on a port that the kernel chooses, which is on the stack from now on if possible. */
UNUSED static int near_listener(const char *address, int *port)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&name, &length))
        fail("listener at %s", address);
    *port = far_port(&name);
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
    return fd;
}

/* Returns a connection that the other host has opened, where it is number `at`. */
UNUSED static int near_accepted(int at)
{
    int port, listener = near_listener(near_address, &port);
    int far_end = atoi(far("connect %d %s %d", at, near_address, port));
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || !far_end)
        fail("accept");
    far_count(far_end);
    close(listener);
    return fd;
}

/* Returns a connection to the other host, where it is number `at`. */
UNUSED static int near_connected(int at)
{
    struct sockaddr_storage name;
    int port = atoi(far("listen %d %s", at, far_address));
    socklen_t length = far_name(&name, far_address, port);
    int fd = socket(name.ss_family, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&name, length))
        fail("connect");
    far_ok(far("accept %d %d", at, at));
    far_count(port);
    return fd;
}

/* What a thread says right before a call in which it is to sleep, for near_asleep. */
static volatile pid_t near_sleeper;

UNUSED static void near_sleeps(void) { near_sleeper = gettid(); }

/* Waits until that thread sleeps, which on a busy machine may take long. */
UNUSED static void near_asleep(void)
{
    char path[64], state = 0;
    while (!near_sleeper)
        sleep_ms(1);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", near_sleeper);
    near_sleeper = 0;
    for (int tries = 0; tries < 5000 && state != 'S'; tries++) {
        sleep_ms(1);
        FILE *stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            fail("%s", path);
        fclose(stat);
    }
    sleep_ms(10);
}

/* Sets what this host permits of TCP Fast Open. Programs on the stack notice a change within a second. */
UNUSED static void near_allows(int fast_open)
{
    FILE *setting = fopen("/proc/sys/net/ipv4/tcp_fastopen", "w");
    if (!setting || fprintf(setting, "%d\n", fast_open) < 0 || fclose(setting))
        fail("net.ipv4.tcp_fastopen");
}

/* Returns whether data sent or received with a SYN was taken. */
UNUSED static const char *near_fast(int fd)
{
    struct tcp_info info = {0};
    socklen_t room = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &room);
    return info.tcpi_options & TCPI_OPT_SYN_DATA ? "fast" : "slow";
}

/* Reads that many octets of the pattern that begins at `from`, and says whether they are right. */
UNUSED static const char *near_takes(int fd, size_t from, size_t count)
{
    static char bytes[1 << 20], expected[1 << 20];
    size_t have = take(fd, bytes, count);
    far_pattern(expected, from, count);
    if (have < count)
        return "too few";
    return memcmp(bytes, expected, count) ? "wrong" : "right";
}
#endif

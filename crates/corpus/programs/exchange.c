/* The same exchange as exchange.py, for a static binary: no library can be preloaded into it. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PIECES = 4096, MOST_REQUESTS = 100000 };

static struct {
    const char *host, *port;
    size_t read_bytes, pieces[MOST_PIECES];
    int n_pieces, count, sndbuf;
    double gap, think;
    int nodelay, cork, uncork, more;
} options = { .count = 20 };

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void rest(double ms)
{
    struct timespec t = { (time_t)(ms / 1e3), (long)((ms - 1e3 * (long)(ms / 1e3)) * 1e6) };
    if (ms > 0)
        nanosleep(&t, NULL);
}

static void set(int fd, int option, int value)
{
    if (setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value))
        die("setsockopt");
}

static int receive(int fd, size_t wanted)
{
    static char buffer[1 << 18];
    while (wanted) {
        ssize_t n = read(fd, buffer, wanted < sizeof buffer ? wanted : sizeof buffer);
        if (n == 0)
            return 0;
        if (n < 0)
            return 0;
        wanted -= (size_t)n;
    }
    return 1;
}

static void send_message(int fd)
{
    static char data[1 << 20];
    if (options.cork)
        set(fd, TCP_CORK, 1);
    for (int i = 0; i < options.n_pieces; i++) {
        size_t left = options.pieces[i];
        while (left) {
            ssize_t n = send(fd, data, left < sizeof data ? left : sizeof data,
                             options.more ? MSG_MORE : 0);
            if (n < 0)
                die("send");
            left -= (size_t)n;
        }
    }
    if (options.uncork)
        set(fd, TCP_CORK, 0);
}

static void serve(int fd)
{
    if (options.nodelay)
        set(fd, TCP_NODELAY, 1);
    while (receive(fd, options.read_bytes)) {
        rest(options.think);
        send_message(fd);
    }
    exit(0);
}

static struct addrinfo *address(int passive)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
                              .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | passive };
    struct addrinfo *found;
    if (getaddrinfo(options.host, options.port, &hints, &found)) {
        fprintf(stderr, "not an address: %s\n", options.host);
        exit(1);
    }
    return found;
}

static void server(void)
{
    struct addrinfo *a = address(AI_PASSIVE);
    int on = 1, listener = socket(a->ai_family, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, a->ai_addr, a->ai_addrlen) || listen(listener, 64))
        die("listen");
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        if (fork() == 0)
            serve(fd);
        close(fd);
    }
}

static void client(void)
{
    static double each[MOST_REQUESTS];
    struct addrinfo *a = address(0);
    int fd = socket(a->ai_family, SOCK_STREAM, 0);
    if (options.sndbuf)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options.sndbuf, sizeof options.sndbuf);
    if (connect(fd, a->ai_addr, a->ai_addrlen))
        die("connect");
    if (options.nodelay)
        set(fd, TCP_NODELAY, 1);
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &length);
    for (int i = 0; i < options.count; i++) {
        double began = now_ms();
        send_message(fd);
        if (!receive(fd, options.read_bytes)) {
            fprintf(stderr, "the server closed the connection\n");
            exit(1);
        }
        each[i] = now_ms() - began;
        rest(options.gap);
    }
    /* The port is at the same place for both families. */
    printf("{\"ports\": [%d], \"each_ms\": [", ntohs(((struct sockaddr_in *)&own)->sin_port));
    for (int i = 0; i < options.count; i++)
        printf("%s%.3f", i ? ", " : "", each[i]);
    printf("]}\n");
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        { "host", 1, 0, 'h' },    { "port", 1, 0, 'p' },  { "read", 1, 0, 'r' },
        { "write", 1, 0, 'w' },   { "count", 1, 0, 'n' }, { "gap", 1, 0, 'g' },
        { "think", 1, 0, 't' },   { "nodelay", 0, 0, 'd' }, { "cork", 0, 0, 'c' },
        { "uncork", 0, 0, 'u' },  { "more", 0, 0, 'm' },  { "sndbuf", 1, 0, 's' }, { 0 },
    };
    if (argc < 2)
        return 2;
    int which;
    optind = 2;
    while ((which = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (which) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = optarg; break;
        case 'r': options.read_bytes = strtoul(optarg, NULL, 10); break;
        case 'w':
            for (char *p = strtok(optarg, ","); p && options.n_pieces < MOST_PIECES;
                 p = strtok(NULL, ","))
                options.pieces[options.n_pieces++] = strtoul(p, NULL, 10);
            break;
        case 'n': options.count = atoi(optarg); break;
        case 'g': options.gap = atof(optarg); break;
        case 't': options.think = atof(optarg); break;
        case 's': options.sndbuf = atoi(optarg); break;
        case 'd': options.nodelay = 1; break;
        case 'c': options.cork = 1; break;
        case 'u': options.uncork = 1; break;
        case 'm': options.more = 1; break;
        default: return 2;
        }
    }
    if (!options.host || !options.port || options.count > MOST_REQUESTS)
        return 2;
    if (strcmp(argv[1], "server") == 0)
        server();
    else
        client();
    return 0;
}

/* Common to the programs of the API tests. Each prints facts, one a line; they must be the same
 * without and with the library. A line that starts with FAIL is a failure in any case. */
#ifndef UNCORK_E2E_COMMON_H
#define UNCORK_E2E_COMMON_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

UNUSED __attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    printf("FAIL ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(" (%s)\n", strerrorname_np(error));
    exit(1);
}

/* A line must be out before the program dies or hangs, and must not be written twice by fork. */
__attribute__((constructor)) static void line_buffered(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
}

UNUSED static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

UNUSED static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

UNUSED static const char *yes(bool fact) { return fact ? "yes" : "no"; }

/* Returns the result of a call: its value, or the name of the error. */
UNUSED static const char *result(long value)
{
    static __thread char text[32];
    if (value < 0)
        return strerrorname_np(errno);
    snprintf(text, sizeof text, "%ld", value);
    return text;
}

UNUSED static int tcp_listener(struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, length) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)address, &length))
        fail("listener");
    return fd;
}

/* fds[0] is the connected end, fds[1] the accepted one. */
UNUSED static void tcp_pair(int fds[2])
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fds[0], (struct sockaddr *)&address, sizeof address))
        fail("connect");
    fds[1] = accept(listener, NULL, NULL);
    if (fds[1] < 0)
        fail("accept");
    close(listener);
}

UNUSED static void put(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fail("write of %s", text);
}

UNUSED static void set_nonblocking(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK))
        fail("fcntl");
}

/* Reads text to the end of the stream, or to `length` bytes. */
UNUSED static size_t take(int fd, char *into, size_t length)
{
    size_t have = 0;
    while (have < length) {
        ssize_t got = read(fd, into + have, length - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    return have;
}

/* Prints the whole stream up to its end, as text on one line of the report; a long run of one
 * character is shown by its length. */
UNUSED static void show_stream(const char *what, int fd)
{
    static char text[65536];
    size_t length = take(fd, text, sizeof text);
    printf("%s: ", what);
    for (size_t i = 0, run; i < length; i += run) {
        for (run = 1; i + run < length && text[i + run] == text[i];)
            run++;
        char shown = text[i] == '\n' ? '/' : text[i];
        if (run > 20)
            printf("%c*%zu", shown, run);
        else
            for (size_t k = 0; k < run; k++)
                putchar(shown);
    }
    printf("\n");
}

UNUSED static void reap(pid_t child, const char *what)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        fail("waitpid for %s", what);
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", what, WTERMSIG(status));
    else
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
}
#endif

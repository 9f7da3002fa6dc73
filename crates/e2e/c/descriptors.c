/* Sockets keep their behaviour under every number and name: dup and the like, close and the like,
 * and numbers up to the limit on descriptors, which the argument gives. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>

static void copies(void)
{
    int fds[2], spare[2];
    tcp_pair(fds);
    tcp_pair(spare);
    put(fds[0], "a");
    int copy = dup(fds[0]);
    put(copy, "b");
    put(fds[0], "c");
    int third = fcntl(copy, F_DUPFD_CLOEXEC, 50);
    put(third, "d");
    close(copy);
    put(fds[0], "e");
    put(spare[0], "spare");
    printf("dup2 onto another connection: %s\n", yes(dup2(third, spare[0]) == spare[0]));
    put(spare[0], "f");
    put(third, "g");
    close(third);
    printf("dup3: %s\n", yes(dup3(fds[0], 60, O_CLOEXEC) == 60));
    printf("dup2 onto itself: %s\n", yes(dup2(60, 60) == 60));
    put(60, "h");
    close(fds[0]);
    put(60, "i");
    close(60);
    put(spare[0], "j");
    close(spare[0]);
    show_stream("through five numbers", fds[1]);
    show_stream("the connection that dup2 closed", spare[1]);
    printf("dup3 onto itself: %s\n", result(dup3(1, 1, 0)));
    printf("dup2 of a closed one: %s\n", result(dup2(999, 60)));
    close(fds[1]);
    close(spare[1]);
}

static void ranges(void)
{
    int first[2], second[2];
    tcp_pair(first);
    tcp_pair(second);
    dup2(first[0], 200);
    dup2(second[0], 201);
    close(first[0]);
    close(second[0]);
    put(200, "one");
    put(201, "two");
    printf("close_range with CLOEXEC: %d", close_range(200, 300, CLOSE_RANGE_CLOEXEC));
    printf(", flags %d %d\n", fcntl(200, F_GETFD), fcntl(201, F_GETFD));
    put(200, "-more");
    printf("close_range: %d\n", close_range(200, 200, 0));
    show_stream("first", first[1]);
    put(201, "-more");
    closefrom(100);
    show_stream("second", second[1]);
    printf("write after closefrom: %s\n", result(write(201, "x", 1)));
    close(first[1]);
    close(second[1]);
}

/* Reuses the number of a helped socket for something else, and back. */
static void numbers_again(void)
{
    for (int round = 0; round < 3; round++) {
        int fds[2], ends[2];
        char text[8] = {0};
        tcp_pair(fds);
        int number = fds[0];
        put(number, "tcp");
        close(number);
        if (pipe(ends))
            fail("pipe");
        int moved = ends[1] == number ? number : dup2(ends[1], number);
        put(moved, "pipe");
        printf("pipe under the number of a socket: %zd", read(ends[0], text, 7));
        printf(" %s\n", text);
        show_stream("the socket", fds[1]);
        close(moved);
        close(ends[0]);
        if (ends[1] != moved)
            close(ends[1]);
        close(fds[1]);
    }
}

/* Closes a connection as libraries do that make their system calls themselves. Its number is the lowest that is free then. */
static int closed_unseen(int fds[2])
{
    long result;
    int spare;
    tcp_pair(fds);
    put(fds[0], "tcp");
    while ((spare = dup(STDERR_FILENO)) < fds[0])
        ;
    close(spare);
    __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_close), "D"((long)fds[0]) : "rcx", "r11", "memory");
    if (result)
        fail("close");
    return fds[0];
}

static void show_datagrams(const char *what, int fd)
{
    char text[64];
    sleep_ms(20);
    printf("%s:", what);
    for (ssize_t got; (got = recv(fd, text, sizeof text, MSG_DONTWAIT)) >= 0;)
        printf(" %zd", got);
    printf("\n");
}

/* What gets the number of a connection that was closed unseen is no connection. */
static void numbers_of_unseen(void)
{
    int fds[2], udp = socket(AF_INET, SOCK_DGRAM, 0), ends[2];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(udp, (struct sockaddr *)&address, length) || getsockname(udp, (struct sockaddr *)&address, &length))
        fail("bind");
    int number = closed_unseen(fds), other = socket(AF_INET, SOCK_DGRAM, 0);
    printf("the same number for datagrams: %s\n", yes(other == number));
    if (connect(other, (struct sockaddr *)&address, length))
        fail("connect");
    for (int i = 0; i < 3; i++)
        put(other, "hello");
    show_datagrams("datagrams", udp);
    show_stream("the connection that had it", fds[1]);
    close(fds[1]);
    close(other);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
        fail("socketpair");
    number = closed_unseen(fds);
    int copy = dup(ends[0]);
    printf("the same number for a copy: %s\n", yes(copy == number));
    for (int i = 0; i < 3; i++)
        put(copy, "hello");
    show_datagrams("datagrams by the copy", ends[1]);
    close(copy);
    close(fds[1]);
    close(ends[0]);
    close(ends[1]);
    close(udp);
}

/* Closing twice, and closing what was never open, return the right results. */
static void wrong_closes(void)
{
    int fds[2];
    tcp_pair(fds);
    put(fds[0], "x");
    printf("close %s", result(close(fds[0])));
    printf(", again %s", result(close(fds[0])));
    printf(", -1 %s\n", result(close(-1)));
    show_stream("then", fds[1]);
    close(fds[1]);
}

static void high_number(int number)
{
    int fds[2], set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = number};
    tcp_pair(fds);
    if (dup2(fds[0], number) != number)
        fail("dup2 to %d", number);
    close(fds[0]);
    put(number, "a");
    put(number, "b");
    epoll_ctl(set, EPOLL_CTL_ADD, number, &event);
    put(fds[1], "answer");
    int ready = epoll_wait(set, &event, 1, 1000);
    printf("fd %d: epoll %d", number, ready);
    printf(", poll %d", poll(&(struct pollfd){number, POLLIN, 0}, 1, 1000));
    char text[8] = {0};
    printf(", recv %zd", recv(number, text, 7, 0));
    printf(" %s\n", text);
    put(number, "c");
    close(number);
    show_stream("  written", fds[1]);
    close(fds[1]);
    close(set);
}

int main(int count, char **arguments)
{
    unsigned limit_of_fds = count > 1 ? (unsigned)atoi(arguments[1]) : 4096;
    struct rlimit limit = {limit_of_fds, limit_of_fds};
    int numbers[] = {1023, 1024, 1500, 4095, 16384, 65535, 65536, 100001, 199999};
    copies();
    ranges();
    numbers_again();
    wrong_closes();
    numbers_of_unseen();
    if (setrlimit(RLIMIT_NOFILE, &limit))
        fail("setrlimit");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((unsigned)numbers[i] < limit_of_fds)
            high_number(numbers[i]);
    return 0;
}

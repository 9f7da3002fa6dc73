/* Handlers that write interrupt a program that is writing or waiting, at any moment: they end the
 * process, close, wait for an answer, jump away, or interrupt malloc. Where it cannot be prevented
 * that the copy of a small write is interrupted, few failures are good enough: if signals were not
 * blocked during system calls, half of all tries would fail. */
#include "common.h"
#include <setjmp.h>
#include <sys/time.h>

static int first, second;
static volatile sig_atomic_t caught;
static sigjmp_buf back;

static void take_all(int fd, size_t bytes)
{
    char text[64];
    if (take(fd, text, bytes) != bytes)
        _exit(9);
}
static void then_exit(int signal UNUSED)
{
    put(second, "bye");
    _exit(0);
}
static void then_close(int signal UNUSED)
{
    put(second, "bye");
    close(second);
    caught = 1;
}
static void then_wait(int signal UNUSED)
{
    put(second, "bye");
    take_all(second, 3);
    _exit(0);
}
static void to_the_same(int signal UNUSED)
{
    put(first, "bye");
    _exit(0);
}
static void jump(int signal UNUSED) { siglongjmp(back, 1); }
static void in_malloc(int signal UNUSED)
{
    put(first, "b");
    put(first, "ye");
    caught = 1;
}

struct way {
    const char *name;
    void (*handler)(int);
    bool on_first;
};

static void arm(struct way *way, int timer, int signo, long us)
{
    struct itimerval in = {{0, 0}, {0, us}};
    signal(signo, way->handler);
    setitimer(timer, &in, NULL);
}

static void *idle(void *nothing)
{
    pause();
    return nothing;
}

/* Runs in a process of its own, on sockets that no other process has. */
static void work(struct way *way, struct sockaddr_in *address, int try)
{
    first = socket(AF_INET, SOCK_STREAM, 0);
    second = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(first, (struct sockaddr *)address, sizeof *address) ||
        connect(second, (struct sockaddr *)address, sizeof *address))
        _exit(8);
    put(first, "1");
    if (way->handler != in_malloc) {
        take_all(first, 1);
        put(second, "1");
        take_all(second, 1);
    }
    alarm(5);
    if (way->handler == in_malloc) {
        pthread_t thread;
        pthread_create(&thread, NULL, idle, NULL);
        arm(way, ITIMER_VIRTUAL, SIGVTALRM, 500 + try * 7);
        while (!caught)
            for (size_t i = 0; i < 100; i++) {
                volatile char *block = malloc(2000 + i * 16);
                *block = 1;
                free((void *)block);
            }
        _exit(0);
    }
    if (sigsetjmp(back, 1) == 0) {
        arm(way, ITIMER_PROF, SIGPROF, 1000 + try % 97 * 13);
        for (int i = 0; !caught; i++) {
            put(first, "ab");
            put(first, i % 3 ? "cd" : "c");
            take_all(first, i % 3 ? 4 : 3);
        }
    } else {
        put(second, "b");
        put(second, "ye");
    }
    _exit(0);
}

/* Echoes until both ends are closed; returns whether "bye" came last. */
static bool said_bye(struct way *way, int listener)
{
    static char text[1 << 16];
    char last[3] = "";
    struct pollfd ends[2];
    int open = 2;
    for (int i = 0; i < 2; i++)
        ends[i] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
    while (open && poll(ends, 2, 5000) > 0)
        for (int i = 0; i < 2; i++) {
            if (ends[i].fd < 0 || !ends[i].revents)
                continue;
            ssize_t got = read(ends[i].fd, text, sizeof text);
            if (got <= 0) {
                close(ends[i].fd);
                ends[i].fd = -1;
                open--;
                continue;
            }
            if (way->handler != in_malloc)
                (void)!send(ends[i].fd, text, (size_t)got, MSG_NOSIGNAL);
            for (ssize_t at = 0; at < got && i == !way->on_first; at++) {
                memmove(last, last + 1, 2);
                last[2] = text[at];
            }
        }
    for (int i = 0; i < 2; i++)
        if (ends[i].fd >= 0)
            close(ends[i].fd);
    return open == 0 && !memcmp(last, "bye", 3);
}

int main(int count, char **arguments)
{
    /* First: a process that has written before has memory at hand, and so have its children. */
    struct way ways[] = {{"comes upon malloc", in_malloc, true},
                         {"writes and exits", then_exit, false},
                         {"writes and closes", then_close, false},
                         {"writes and waits for the answer", then_wait, false},
                         {"writes to the same socket", to_the_same, true},
                         {"jumps away", jump, false}};
    int tries = count > 1 ? atoi(arguments[1]) : 100;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int bad = 0;
        /* A try that hangs takes its time. */
        for (int try = 0; try < tries && bad <= tries / 10; try++) {
            struct sockaddr_in address;
            int status, listener = tcp_listener(&address);
            pid_t child = fork();
            if (child == 0)
                work(&ways[i], &address, try);
            bad += !said_bye(&ways[i], listener);
            close(listener);
            if (waitpid(child, &status, 0) != child)
                fail("waitpid");
        }
        fprintf(stderr, "%s: %d of %d\n", ways[i].name, bad, tries);
        printf("a handler %s: few wrong %s\n", ways[i].name, yes(bad <= tries / 10));
    }
    return 0;
}

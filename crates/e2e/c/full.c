/* A connection that takes no more: its peer does not read. What has gathered in the process (--hold user) then waits there,
 * and calls on the socket wait behind it as they would for the kernel's buffer. */
#include "common.h"

static int fds[2];
static char much[1 << 16];

/* SO_RCVBUF of the peer; SO_SNDBUF: that, or more than the kernel allows, which cannot grow. */
enum { SMALL = 4096, LARGEST = 1 << 22 };
static const int small = SMALL;
static int send_bytes = SMALL;

static int listens(struct sockaddr_in *address)
{
    int listener = tcp_listener(address);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    return listener;
}

/* Makes a connection with small buffers and fills it, last by small writes. Returns how many bytes it took. */
static long fill(struct sockaddr_in *address)
{
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    if (connect(fds[0], (struct sockaddr *)address, sizeof *address))
        fail("connect");
    memset(much, 'P', sizeof much);
    /* The first one teaches the rhythm. */
    long taken = write(fds[0], much, 100);
    sleep_ms(5);
    set_nonblocking(fds[0], true);
    const size_t sizes[] = {sizeof much, 200, 200, 200};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        for (ssize_t sent; (sent = write(fds[0], much, sizes[at])) > 0;)
            taken += sent;
        sleep_ms(5);
    }
    set_nonblocking(fds[0], false);
    return taken;
}

static long full(void)
{
    struct sockaddr_in address;
    int listener = listens(&address);
    long taken = fill(&address);
    fds[1] = accept(listener, NULL, NULL);
    close(listener);
    return taken;
}

static void close_both(void)
{
    close(fds[0]);
    close(fds[1]);
}

static volatile sig_atomic_t handled;
static void on_signal(int signal UNUSED) { handled++; }

static void *writes(void *unused UNUSED)
{
    while (write(fds[0], much, 200) > 0)
        ;
    return (void *)strerrorname_np(errno);
}

/* Returns whether a thread ends within some seconds. */
static bool joins(pthread_t thread, void **end)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return !pthread_timedjoin_np(thread, end, &until);
}

static void *reads_all(void *taken)
{
    char bytes[4096];
    ssize_t got;
    sleep_ms(400);
    while ((got = read(fds[1], bytes, sizeof bytes)) > 0)
        *(long *)taken += got;
    return NULL;
}

/* Handlers that restart calls do not end a write, and others do. */
static void interrupted(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigset_t set;
    pthread_t thread;
    long taken = 0, sent = full();
    sigaction(SIGALRM, &action, NULL);
    /* The writer's own. */
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_create(&thread, NULL, reads_all, &taken);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    handled = 0;
    ualarm(100000, 0);
    ssize_t got;
    for (int times = 0; times < 2000 && (got = write(fds[0], much, 200)) > 0; times++)
        sent += got;
    printf("%s: write %s, handlers %d", flags ? "SA_RESTART" : "no SA_RESTART", got > 0 ? "goes on" : result(got),
           (int)handled);
    close(fds[0]);
    pthread_join(thread, NULL);
    close(fds[1]);
    printf(", all has come: %s\n", yes(taken == sent));
}

/* With SO_SNDTIMEO it waits for so long, and every handler ends it. */
static void limited(void)
{
    struct timeval limit = {0, 200000};
    full();
    setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    double begun = now_ms();
    ssize_t sent;
    while ((sent = write(fds[0], much, 200)) > 0)
        ;
    double took = now_ms() - begun;
    printf("SO_SNDTIMEO: write %s %s\n", result(sent), took > 190 && took < 2000 ? "in time" : "at another time");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    limit.tv_sec = 5;
    setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ualarm(100000, 0);
    while ((sent = write(fds[0], much, 200)) > 0)
        ;
    printf("SO_SNDTIMEO and SA_RESTART: write %s\n", result(sent));
    close_both();
}

static void cancelled(void)
{
    pthread_t thread;
    void *end = NULL;
    full();
    pthread_create(&thread, NULL, writes, NULL);
    sleep_ms(200);
    pthread_cancel(thread);
    bool joined = joins(thread, &end);
    printf("cancelled in write: %s\n", yes(joined && end == PTHREAD_CANCELED));
    close_both();
}

/* As a watchdog does with a peer that is dead. */
static void shut_down(int how)
{
    pthread_t thread;
    void *end = "?";
    full();
    pthread_create(&thread, NULL, writes, NULL);
    sleep_ms(200);
    printf("shutdown(%d): %s", how, result(shutdown(fds[0], how)));
    printf(", the writer ends: %s", joins(thread, &end) ? (char *)end : "no");
    printf(", another write: %s\n", result(write(fds[0], "x", 1)));
    close_both();
}

/* Whoever closes without lingering (SO_LINGER of 0) resets the connection. */
static void discarded(void)
{
    struct linger linger = {1, 0};
    full();
    setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fds[0]);
    sleep_ms(100);
    ssize_t got;
    while ((got = read(fds[1], much, sizeof much)) > 0)
        ;
    printf("closed with SO_LINGER of 0: the peer reads %s\n", result(got));
    close(fds[1]);
}

/* What a child writes comes behind what its parent has written. */
static void forked(void)
{
    struct sockaddr_in address;
    int listener = listens(&address), pipes[2];
    if (pipe(pipes))
        fail("pipe");
    /* The peer is another process, and reads some time after the fork has begun. */
    pid_t peer = fork();
    if (!peer) {
        long sent = 0, taken = 0, last = -1, first = -1;
        fds[1] = accept(listener, NULL, NULL);
        (void)!read(pipes[0], &sent, sizeof sent);
        sleep_ms(100);
        for (ssize_t got; (got = read(fds[1], much, sizeof much)) > 0; taken += got)
            for (ssize_t at = 0; at < got; at++) {
                if (much[at] == 'P')
                    last = taken + at;
                else if (first < 0)
                    first = taken + at;
            }
        printf("forked: the peer has all: %s, in order: %s\n", yes(taken == sent + 20 * 200), yes(first > last));
        exit(0);
    }
    close(listener);
    long sent = fill(&address);
    (void)!write(pipes[1], &sent, sizeof sent);
    pid_t child = fork();
    if (!child) {
        memset(much, 'C', sizeof much);
        for (int times = 0; times < 20; times++)
            if (write(fds[0], much, 200) != 200)
                fail("write of a child");
        _exit(0);
    }
    reap(child, "child");
    close(fds[0]);
    reap(peer, "peer");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    interrupted(SA_RESTART);
    interrupted(0);
    limited();
    cancelled();
    forked();
    send_bytes = LARGEST;
    shut_down(SHUT_WR);
    shut_down(SHUT_RDWR);
    discarded();
    return 0;
}

/* Waits time out punctually, also when they spin before they sleep. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

static int pair[2], set;

static long do_poll(long us) { return poll(&(struct pollfd){pair[0], POLLIN, 0}, 1, (int)(us / 1000)); }
static long do_ppoll(long us)
{
    struct timespec limit = {us / 1000000, us % 1000000 * 1000}, before = limit;
    long got = ppoll(&(struct pollfd){pair[0], POLLIN, 0}, 1, &limit, NULL);
    if (memcmp(&limit, &before, sizeof limit))
        printf("FAIL ppoll changed its timeout\n");
    return got;
}
static long do_select(long us)
{
    struct timeval limit = {us / 1000000, us % 1000000};
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(pair[0], &wanted);
    long got = select(pair[0] + 1, &wanted, NULL, NULL, &limit);
    if (FD_ISSET(pair[0], &wanted) != (got == 1))
        printf("FAIL select left the wrong set\n");
    if (got == 0 && (limit.tv_sec || limit.tv_usec))
        printf("FAIL select timed out with time left\n");
    return got;
}
static long do_pselect(long us)
{
    struct timespec limit = {us / 1000000, us % 1000000 * 1000};
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(pair[0], &wanted);
    return pselect(pair[0] + 1, &wanted, NULL, NULL, &limit, NULL);
}
static long do_epoll(long us)
{
    struct epoll_event event;
    return epoll_wait(set, &event, 1, (int)(us / 1000));
}
static long do_epoll_pwait2(long us)
{
    struct epoll_event event;
    struct timespec limit = {us / 1000000, us % 1000000 * 1000};
    return epoll_pwait2(set, &event, 1, &limit, NULL);
}
static long do_receive(long us)
{
    struct timeval limit = {us / 1000000, us % 1000000};
    if (us == 0)
        return recv(pair[0], &(char){0}, 1, MSG_DONTWAIT);
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(pair[0], &(char){0}, 1, 0);
}
static long do_accept(long us)
{
    struct sockaddr_in address;
    struct timeval limit = {us / 1000000, us % 1000000};
    int listener = tcp_listener(&address);
    if (us == 0)
        set_nonblocking(listener, true);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    long got = accept(listener, NULL, NULL);
    int error = errno;
    close(listener);
    errno = error;
    return got;
}

struct call {
    const char *name;
    long (*body)(long);
};

/* The best of five, because a busy machine may be late but no machine may be early. */
static void timed(struct call *call, long us)
{
    double best = 1e9;
    bool early = false;
    char got[32];
    for (int i = 0; i < 5; i++) {
        double start = now_ms();
        strcpy(got, result(call->body(us)));
        double took = now_ms() - start;
        /* The kernel's clock for poll and epoll may be early by a tick of its timer slack. */
        early |= took < (double)us / 1e3 - 0.2;
        best = took < best ? took : best;
    }
    /* SO_RCVTIMEO counts in the kernel's ticks: up to two of 10 ms. */
    bool late = best > (double)us / 1e3 + 25;
    printf("%s of %ld us: %s, early %s, late %s\n", call->name, us, got, yes(early), yes(late));
    if (late)
        fprintf(stderr, "%s of %ld us took %.2f ms\n", call->name, us, best);
}

static void *late_writer(void *unused UNUSED)
{
    sleep_ms(20);
    put(pair[1], "x");
    return NULL;
}

/* A byte that comes during the wait ends it. */
static void woken(struct call *call)
{
    pthread_t thread;
    pthread_create(&thread, NULL, late_writer, NULL);
    double start = now_ms();
    printf("%s woken:", call->name);
    printf(" %s,", result(call->body(3000000)));
    double took = now_ms() - start;
    printf(" in time %s\n", yes(took > 15 && took < 500));
    pthread_join(thread, NULL);
    recv(pair[0], &(char){0}, 1, MSG_DONTWAIT);
}

int main(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    tcp_pair(pair);
    set = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event);
    struct call calls[] = {{"poll", do_poll},           {"ppoll", do_ppoll},
                           {"select", do_select},       {"pselect", do_pselect},
                           {"epoll_wait", do_epoll},    {"epoll_pwait2", do_epoll_pwait2},
                           {"SO_RCVTIMEO", do_receive}, {"accept", do_accept}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        timed(&calls[i], 0);
        timed(&calls[i], 2000);
        timed(&calls[i], 30000);
        if (calls[i].body != do_accept)
            woken(&calls[i]);
    }
    struct timeval none = {0, 0};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    printf("bad timeouts: select %s\n",
           result(select(0, NULL, NULL, NULL, &(struct timeval){-1, 0})));
    printf("ppoll %s\n", result(ppoll(NULL, 0, &(struct timespec){0, 2000000000}, NULL)));
    printf("epoll_wait for no events %s\n", result(epoll_wait(set, &event, 0, 0)));
    printf("epoll_wait of a socket %s\n", result(epoll_wait(pair[0], &event, 1, 0)));
    printf("poll of a closed fd %d\n", poll(&(struct pollfd){999, POLLIN, 0}, 1, 1000));
    return 0;
}

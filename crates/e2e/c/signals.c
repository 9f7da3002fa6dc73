/* Signals interrupt the calls that they should, and SA_RESTART restarts the calls that it should,
 * whether the call spins or sleeps when they come. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

static int pair[2];
static volatile sig_atomic_t caught;
static bool answer;

static void on_alarm(int signal UNUSED)
{
    int error = errno;
    caught++;
    if (answer && caught == 2)
        (void)!write(pair[1], "z", 1);
    errno = error;
}

/* The first signal comes after `first_ms`; with `answer`, a second one 40 ms later writes a byte.
 * Without, a second one frees a call that missed the first. */
static void arm(int flags, long first_ms)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval timer = {{0, answer ? 40000 : 500000}, {0, first_ms * 1000}};
    caught = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void disarm(void)
{
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
}

static long do_read(void) { return read(pair[0], &(char){0}, 1); }
static long do_recv(void) { return recv(pair[0], &(char){0}, 1, 0); }
static long do_recvfrom(void) { return recvfrom(pair[0], &(char){0}, 1, 0, NULL, NULL); }
static long do_accept(void)
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address);
    long got = accept(listener, NULL, NULL);
    int error = errno;
    close(listener);
    errno = error;
    return got;
}
static long do_poll(void) { return poll(&(struct pollfd){pair[0], POLLIN, 0}, 1, 2000); }
static long do_ppoll(void)
{
    struct timespec limit = {2, 0};
    return ppoll(&(struct pollfd){pair[0], POLLIN, 0}, 1, &limit, NULL);
}
static long do_select(void)
{
    fd_set set;
    struct timeval limit = {2, 0};
    FD_ZERO(&set);
    FD_SET(pair[0], &set);
    return select(pair[0] + 1, &set, NULL, NULL, &limit);
}
static long do_epoll(void)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event);
    long got = epoll_wait(set, &event, 1, 2000);
    int error = errno;
    close(set);
    errno = error;
    return got;
}
static long do_usleep(void) { return usleep(500000); }

struct call {
    const char *name;
    long (*body)(void);
    bool restarts;
};

/* On a busy machine the signal may come before the call has begun: three tries. */
static void interrupted(struct call *call, long first_ms, bool after_write)
{
    char got[32] = "";
    for (int try = 0, in_time = 0; try < 3 && !in_time; try++) {
        tcp_pair(pair);
        answer = false;
        if (after_write)
            put(pair[0], "held?");
        arm(0, first_ms);
        double start = now_ms();
        strcpy(got, result(call->body()));
        double took = now_ms() - start;
        in_time = caught == 1 && took > (double)first_ms - 1 && took < (double)first_ms + 300;
        disarm();
        close(pair[0]);
        if (in_time) {
            printf("%s, signal after %ld ms: %s in time\n", call->name, first_ms, got);
            show_stream("  written", pair[1]);
        }
        close(pair[1]);
        if (!in_time)
            fprintf(stderr, "%s: %s after %.1f ms, signals %d\n", call->name, got, took, (int)caught);
    }
}

static void restarted(struct call *call, long first_ms)
{
    tcp_pair(pair);
    answer = true;
    arm(SA_RESTART, first_ms);
    const char *got = result(call->body());
    printf("%s with SA_RESTART, signal after %ld ms: %s, signals %d\n", call->name, first_ms, got,
           (int)caught);
    disarm();
    close(pair[0]);
    close(pair[1]);
}

/* A mask that ppoll, pselect and epoll_pwait install is in force exactly during the wait. */
static void masks(void)
{
    sigset_t alarm_only, before, now;
    tcp_pair(pair);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_only, &before);
    answer = false;
    arm(0, 5);
    sleep_ms(20);
    printf("blocked: signals %d\n", (int)caught);
    struct timespec limit = {1, 0};
    long got = ppoll(&(struct pollfd){pair[0], POLLIN, 0}, 1, &limit, &before);
    printf("ppoll that unblocks a pending signal: %s", result(got));
    sigprocmask(SIG_SETMASK, NULL, &now);
    printf(", signals %d, blocked again %d\n", (int)caught, sigismember(&now, SIGALRM));
    arm(0, 5);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event);
    got = epoll_pwait(set, &event, 1, 1000, &before);
    printf("epoll_pwait: %s, signals %d\n", result(got), (int)caught);
    arm(0, 5);
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(pair[0], &readable);
    got = pselect(pair[0] + 1, &readable, NULL, NULL, &limit, &before);
    printf("pselect: %s, signals %d\n", result(got), (int)caught);
    /* The other way round: a blocked signal interrupts nothing, and is delivered after the wait. */
    sigprocmask(SIG_SETMASK, &before, NULL);
    struct timespec shorter = {0, 60 * 1000 * 1000};
    arm(0, 5);
    got = ppoll(&(struct pollfd){pair[0], POLLIN, 0}, 1, &shorter, &alarm_only);
    printf("ppoll that keeps one out: %s, signals %d\n", result(got), (int)caught);
    arm(0, 5);
    got = epoll_pwait(set, &event, 1, 60, &alarm_only);
    printf("epoll_pwait that keeps one out: %s, signals %d\n", result(got), (int)caught);
    disarm();
}

int main(void)
{
    struct call calls[] = {{"read", do_read, true},         {"recv", do_recv, true},
                           {"recvfrom", do_recvfrom, true}, {"accept", do_accept, false},
                           {"poll", do_poll, false},        {"ppoll", do_ppoll, false},
                           {"select", do_select, false},    {"epoll_wait", do_epoll, false},
                           {"usleep", do_usleep, false}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        interrupted(&calls[i], 20, false);
        interrupted(&calls[i], 20, true);
        interrupted(&calls[i], 1, false);
        if (calls[i].restarts)
            restarted(&calls[i], 20);
        else if (calls[i].body != do_accept && calls[i].body != do_usleep)
            restarted(&calls[i], 20); /* never restarted: EINTR after one signal */
    }
    masks();
    return 0;
}

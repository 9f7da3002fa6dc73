/* What pushes: after each of these calls a held byte must be at the other end long before the longest bound (200 ms) releases it.
 * Run with UNCORK_BOUND=200ms. With the argument "control" it shows the opposite: that a byte is held while nothing pushes it. */
#include "common.h"
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <sys/uio.h>

static int out, idle_pipe[2], other[2], epoll_set;
static const long LONG_MS = 120;
static struct timespec span = {0, 120000000};

static struct timespec deadline(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += LONG_MS * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void limit_receive(int fd)
{
    struct timeval limit = {0, LONG_MS * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static char buffer[16];
static struct iovec part = {buffer, 1};
static struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

static void spin(void) { for (double s = now_ms(); now_ms() - s < (double)LONG_MS;); }

static void p_read(void) { limit_receive(out); (void)!read(out, buffer, 1); }
static void p_readv(void) { limit_receive(out); (void)!readv(out, &part, 1); }
static void p_recv(void) { limit_receive(out); recv(out, buffer, 1, 0); }
static void p_recv_nowait(void) { recv(out, buffer, 1, MSG_DONTWAIT); for (double s = now_ms(); now_ms() - s < (double)LONG_MS;); }
static void p_recvfrom(void) { limit_receive(out); recvfrom(out, buffer, 1, 0, NULL, NULL); }
static void p_recvmsg(void) { limit_receive(out); recvmsg(out, &message, 0); }
static void p_recvmmsg(void) { limit_receive(out); struct mmsghdr m = {.msg_hdr = message}; recvmmsg(out, &m, 1, 0, NULL); }
static void p_read_other(void) { limit_receive(other[0]); (void)!read(other[0], buffer, 1); }
static void p_poll(void) { poll(&(struct pollfd){out, POLLIN, 0}, 1, (int)LONG_MS); }
static void p_poll_other(void) { poll(&(struct pollfd){idle_pipe[0], POLLIN, 0}, 1, (int)LONG_MS); }
static void p_ppoll(void) { ppoll(&(struct pollfd){out, POLLIN, 0}, 1, &span, NULL); }
static void p_select(void) { select(0, NULL, NULL, NULL, &(struct timeval){0, LONG_MS * 1000}); }
static void p_pselect(void) { pselect(0, NULL, NULL, NULL, &span, NULL); }
static void p_epoll_wait(void) { struct epoll_event e; epoll_wait(epoll_set, &e, 1, (int)LONG_MS); }
static void p_epoll_pwait(void) { struct epoll_event e; epoll_pwait(epoll_set, &e, 1, (int)LONG_MS, NULL); }
static void p_epoll_pwait2(void) { struct epoll_event e; epoll_pwait2(epoll_set, &e, 1, &span, NULL); }
/* By their numbers, as libraries call them that bypass libc. */
static void p_ppoll_number(void) { syscall(SYS_ppoll, &(struct pollfd){out, POLLIN, 0}, 1, &(struct timespec){0, LONG_MS * 1000000}, NULL, 8L); }
static void p_select_number(void) { syscall(SYS_select, 0, NULL, NULL, NULL, &(struct timeval){0, LONG_MS * 1000}); }
static void p_pselect_number(void) { syscall(SYS_pselect6, 0, NULL, NULL, NULL, &(struct timespec){0, LONG_MS * 1000000}, NULL); }
static void p_epoll_pwait_number(void) { struct epoll_event e; syscall(SYS_epoll_pwait, epoll_set, &e, 1, LONG_MS, NULL, 8L); }
static void p_epoll_pwait2_number(void) { struct epoll_event e; syscall(SYS_epoll_pwait2, epoll_set, &e, 1, &span, NULL, 8L); }
static void p_usleep(void) { usleep((useconds_t)LONG_MS * 1000); }
static void p_nanosleep(void) { nanosleep(&span, NULL); }
static void p_clock_nanosleep(void) { clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL); }
static void p_thrd_sleep(void) { thrd_sleep(&span, NULL); }
static void p_sleep(void) { sleep(1); }
static void p_accept(void)
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address);
    limit_receive(listener);
    accept(listener, NULL, NULL);
    close(listener);
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static void p_cond_timedwait(void)
{
    struct timespec at = deadline();
    pthread_mutex_lock(&lock);
    pthread_cond_timedwait(&condition, &lock, &at);
    pthread_mutex_unlock(&lock);
}
static void *signal_later(void *unused UNUSED)
{
    usleep((useconds_t)LONG_MS * 1000);
    pthread_cond_signal(&condition);
    return NULL;
}
static void p_cond_wait(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, signal_later, NULL);
    put(out, "x"); /* after the other thread's start: only the wait can push it */
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&condition, &lock);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}
static void p_sem_timedwait(void)
{
    sem_t semaphore;
    struct timespec at = deadline();
    sem_init(&semaphore, 0, 0);
    sem_timedwait(&semaphore, &at);
}
static void p_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigtimedwait(&set, NULL, &span);
}
static void p_join(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, signal_later, NULL);
    put(out, "x");
    pthread_join(thread, NULL);
}
static void *wait_in_set(void *unused UNUSED)
{
    sleep_ms(20);
    p_epoll_wait();
    return NULL;
}
/* Waits for the answer to what another thread writes. */
static void p_epoll_wait_elsewhere(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t thread;
    epoll_ctl(epoll_set, EPOLL_CTL_ADD, out, &event);
    pthread_create(&thread, NULL, wait_in_set, NULL);
    put(out, "x");
    spin();
    pthread_join(thread, NULL);
}
static void p_waitpid(void)
{
    pid_t child = fork();
    if (child == 0) {
        close(out);
        sleep_ms(LONG_MS);
        _exit(0);
    }
    put(out, "x");
    waitpid(child, NULL, 0);
}
static void p_pipe_read(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec once = {{0, 0}, span};
    timerfd_settime(fd, 0, &once, NULL);
    (void)!read(fd, buffer, 8);
    close(fd);
}
/* Another thread has to write into the pipe first. */
static void *fill_pipe_later(void *pipe)
{
    usleep((useconds_t)LONG_MS * 1000);
    (void)!write(*(int *)pipe, "p", 1);
    return NULL;
}
static void p_splice(void)
{
    int ends[2];
    pthread_t thread;
    if (pipe(ends))
        fail("pipe");
    pthread_create(&thread, NULL, fill_pipe_later, &ends[1]);
    put(out, "x");
    splice(ends[0], NULL, out, NULL, 1, 0);
    pthread_join(thread, NULL);
    close(ends[0]);
    close(ends[1]);
}
static void p_turn(void) { put(other[0], "y"); spin(); }
static void p_close(void) { close(out); spin(); }
static void p_shutdown(void) { shutdown(out, SHUT_WR); spin(); }
static void p_dup2_onto(void) { dup2(idle_pipe[0], out); spin(); }
static void p_close_range(void) { close_range((unsigned)out, (unsigned)out, 0); spin(); }
static void p_fork(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    spin();
    waitpid(child, NULL, 0);
}
static void p_connect(void)
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    connect(client, (struct sockaddr *)&address, sizeof address);
    spin();
    close(listener);
    close(client);
}
static void p_full_segment(void)
{
    static char much[100000];
    (void)!write(out, much, sizeof much);
    spin();
}

struct call {
    const char *name;
    void (*body)(void);
    bool writes_itself;
};

/* The receiver, in a process of its own, reports when the first byte came after the go-ahead. */
static void receiver(int in, int report, double *written_at)
{
    char byte;
    ssize_t got = read(in, &byte, 1);
    double took = got == 1 ? now_ms() - *(volatile double *)written_at : 1e9;
    if (write(report, &took, sizeof took) != sizeof took)
        _exit(1);
    _exit(0);
}

static double once(struct call *call, double *written_at)
{
    int fds[2], report[2], on = 1;
    double took = 1e9;
    tcp_pair(fds);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (pipe(report))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        receiver(fds[1], report[1], written_at);
    }
    close(fds[1]);
    out = fds[0];
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll_set, EPOLL_CTL_ADD, idle_pipe[0], &event);
    sleep_ms(5);
    *(volatile double *)written_at = now_ms();
    if (!call->writes_itself)
        put(out, "x");
    call->body();
    if (read(report[0], &took, sizeof took) != sizeof took)
        fail("report");
    close(report[0]);
    close(report[1]);
    if (fcntl(fds[0], F_GETFD) >= 0)
        close(fds[0]);
    waitpid(child, NULL, 0);
    return took;
}

int main(int count, char **arguments UNUSED)
{
    struct call control = {"busy loop", spin, false};
    struct call calls[] = {
        {"read", p_read, false}, {"readv", p_readv, false}, {"recv", p_recv, false},
        {"recv MSG_DONTWAIT", p_recv_nowait, false}, {"recvfrom", p_recvfrom, false},
        {"recvmsg", p_recvmsg, false}, {"recvmmsg", p_recvmmsg, false},
        {"read of another", p_read_other, false}, {"poll", p_poll, false},
        {"poll of another", p_poll_other, false}, {"ppoll", p_ppoll, false},
        {"select", p_select, false}, {"pselect", p_pselect, false},
        {"epoll_wait", p_epoll_wait, false}, {"epoll_pwait", p_epoll_pwait, false},
        {"epoll_pwait2", p_epoll_pwait2, false}, {"usleep", p_usleep, false},
        {"ppoll by its number", p_ppoll_number, false}, {"select by its number", p_select_number, false},
        {"pselect by its number", p_pselect_number, false},
        {"epoll_pwait by its number", p_epoll_pwait_number, false},
        {"epoll_pwait2 by its number", p_epoll_pwait2_number, false},
        {"nanosleep", p_nanosleep, false}, {"clock_nanosleep", p_clock_nanosleep, false},
        {"thrd_sleep", p_thrd_sleep, false}, {"sleep", p_sleep, false},
        {"accept", p_accept, false}, {"pthread_cond_timedwait", p_cond_timedwait, false},
        {"pthread_cond_wait", p_cond_wait, true}, {"sem_timedwait", p_sem_timedwait, false},
        {"sigtimedwait", p_sigtimedwait, false}, {"pthread_join", p_join, true},
        {"epoll_wait of another thread", p_epoll_wait_elsewhere, true}, {"waitpid", p_waitpid, true}, {"read of a timerfd", p_pipe_read, false},
        {"splice of an empty pipe", p_splice, true},
        {"turn to another socket", p_turn, false}, {"close", p_close, false},
        {"shutdown", p_shutdown, false}, {"dup2 onto it", p_dup2_onto, false},
        {"close_range", p_close_range, false}, {"fork", p_fork, false},
        {"connect of another", p_connect, false}, {"a full segment", p_full_segment, false}};
    double *written_at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    epoll_set = epoll_create1(0);
    if (pipe(idle_pipe))
        fail("pipe");
    tcp_pair(other);
    if (count > 1) {
        printf("held while nothing pushes: %s\n", yes(once(&control, written_at) > 60));
        return 0;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        double took = once(&calls[i], written_at);
        for (int again = 0; took > 60 && again < 2; again++)
            took = once(&calls[i], written_at);
        printf("%s pushes: %s\n", calls[i].name, yes(took <= 60));
        if (took > 60)
            fprintf(stderr, "%s: the byte came after %.1f ms\n", calls[i].name, took);
    }
    return 0;
}

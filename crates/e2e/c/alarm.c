/* alarm: the signal that wakes the timer's thread must not be visible to the program, whatever it
 * does with signals of that number; and libc's own use of the signal goes on. */
#include "common.h"
#include <dirent.h>
#include <sys/syscall.h>

/* glibc hides it from programs: only system calls can use it. */
enum { SIGNAL = 32 };

static int fds[2];
static volatile int handled;

static void handler(int number UNUSED) { handled++; }

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static void set(void (*what)(int))
{
    struct action action = {what, 0, NULL, 0};
    if (syscall(SYS_rt_sigaction, SIGNAL, &action, NULL, 8))
        fail("rt_sigaction");
}

static void block(int how)
{
    unsigned long set = 1ul << (SIGNAL - 1);
    if (syscall(SYS_rt_sigprocmask, how, &set, NULL, 8))
        fail("rt_sigprocmask");
}

/* Two messages before busy loops, of different lengths, so that their ends are not predicted. No
 * call in between ends a burst; whether they come in time is tested by timer.c. */
static bool pushed(void)
{
    char text[8];
    for (int pieces = 2; pieces <= 5; pieces += 3) {
        int come = 0;
        for (int i = 0; i < pieces; i++)
            put(fds[0], "x");
        for (double begin = now_ms(); come < pieces && now_ms() - begin < 10000;)
            syscall(SYS_ioctl, fds[1], FIONREAD, &come);
        if (recv(fds[1], text, sizeof text, MSG_DONTWAIT) != pieces)
            return false;
    }
    return true;
}

/* Returns whether a signal of the number is pending for a thread of the program, or the process. */
static bool waits(void)
{
    DIR *threads = opendir("/proc/self/task");
    bool any = false;
    for (struct dirent *entry; (entry = readdir(threads));) {
        char path[300], line[200], name[100] = "";
        unsigned long set;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %99s", name);
            bool own = strcmp(name, "uncork-keeper") != 0;
            if ((own && sscanf(line, "SigPnd: %lx", &set) == 1) ||
                sscanf(line, "ShdPnd: %lx", &set) == 1)
                any |= set >> (SIGNAL - 1) & 1;
        }
        if (status)
            fclose(status);
    }
    closedir(threads);
    return any;
}

/* Asks the kernel directly, where no libc filters the signal. */
static bool comes(void)
{
    unsigned long set = 1ul << (SIGNAL - 1);
    struct timespec limit = {0, 20000000};
    return syscall(SYS_rt_sigtimedwait, &set, NULL, &limit, 8) >= 0;
}

static void *wait_for_it(void *came)
{
    block(SIG_BLOCK);
    for (int i = 0; i < 5; i++)
        *(bool *)came |= comes();
    return NULL;
}

static volatile int ticks;
static void tick(union sigval value UNUSED) { __atomic_fetch_add(&ticks, 1, __ATOMIC_SEQ_CST); }

/* Tests POSIX timers on libc's own thread, which is woken by a signal of the same number. */
static bool timers_of_libc_work(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick};
    struct itimerspec period = {{0, 5000000}, {0, 5000000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &period, NULL))
        fail("timer_create");
    for (double begin = now_ms(); ticks < 3 && now_ms() - begin < 10000;)
        pushed();
    timer_delete(timer);
    return ticks >= 3;
}

int main(void)
{
    bool came = false;
    int on = 1;
    pthread_t waiter;
    tcp_pair(fds);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    printf("by default: pushed %s, pending %s\n", yes(pushed()), yes(waits()));
    set(SIG_IGN);
    printf("ignored: pushed %s, pending %s\n", yes(pushed()), yes(waits()));
    set(SIG_DFL);
    block(SIG_BLOCK);
    printf("blocked: pushed %s, pending %s, comes %s\n", yes(pushed()), yes(waits()), yes(comes()));
    pthread_create(&waiter, NULL, wait_for_it, &came);
    printf("waited for: pushed %s\n", yes(pushed()));
    pthread_join(waiter, NULL);
    printf("a thread that waits for it gets it: %s\n", yes(came));
    block(SIG_UNBLOCK);
    set(handler);
    printf("handled: pushed %s, handled %d\n", yes(pushed()), handled);
    set(SIG_DFL);
    printf("timers of libc's thread work: %s\n", yes(timers_of_libc_work()));
    return 0;
}

/* Waiting for many descriptors at once: poll, select and epoll(7) in all their ways. */
#include "far.h"
#include <sys/epoll.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/timerfd.h>

static const char *names(uint32_t events)
{
    static char text[128];
    const struct {
        uint32_t bit;
        const char *name;
    } all[] = {{EPOLLIN, "IN"},         {EPOLLOUT, "OUT"}, {EPOLLRDHUP, "RDHUP"}, {EPOLLHUP, "HUP"},
               {EPOLLERR, "ERR"},       {EPOLLPRI, "PRI"}, {POLLNVAL, "NVAL"},    {EPOLLRDNORM, "RDNORM"},
               {EPOLLWRNORM, "WRNORM"}};
    text[0] = 0;
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        if (events & all[at].bit)
            strcat(strcat(text, *text ? "+" : ""), all[at].name);
    return *text ? text : "nothing";
}

static int add(int set, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int change(int set, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
}

static void show_set(const char *what, int set, int limit)
{
    struct epoll_event events[16];
    int count = epoll_wait(set, events, 16, limit);
    printf("%s: %s", what, result(count));
    for (int at = 0; at < count; at++)
        printf(" %llu:%s", (unsigned long long)events[at].data.u64, names(events[at].events));
    printf("\n");
}

/* Returns whether a wait took about as long as it should, on a busy machine. */
static const char *about(double begun, double ms)
{
    double took = now_ms() - begun;
    return took >= ms - 1 && took < ms + 1000 ? "in time" : took < ms ? "too early" : "too late";
}

static void timeouts(void)
{
    int fd = near_accepted(0), set = epoll_create1(EPOLL_CLOEXEC);
    add(set, fd, EPOLLIN, 1);
    const int limits[] = {0, 1, 150};
    for (int at = 0; at < 3; at++) {
        struct epoll_event event;
        double begun = now_ms();
        printf("epoll_wait for %d ms: %d", limits[at], epoll_wait(set, &event, 1, limits[at]));
        printf(" %s", about(begun, limits[at]));
        begun = now_ms();
        printf(", poll: %d", poll(&(struct pollfd){fd, POLLIN, 0}, 1, limits[at]));
        printf(" %s", about(begun, limits[at]));
        fd_set readable;
        struct timeval time = {0, limits[at] * 1000};
        FD_ZERO(&readable);
        FD_SET(fd, &readable);
        begun = now_ms();
        printf(", select: %d", select(fd + 1, &readable, NULL, NULL, &time));
        printf(" %s, left %ld, in the set %d\n", about(begun, limits[at]), time.tv_usec,
               FD_ISSET(fd, &readable));
    }
    const struct timespec exact[] = {{0, 0}, {0, 300000}, {0, 150000000}};
    struct epoll_event event;
    for (int at = 0; at < 3; at++) {
        double begun = now_ms();
        printf("epoll_pwait2 for %ld ns: %d", exact[at].tv_nsec, epoll_pwait2(set, &event, 1, &exact[at], NULL));
        printf(" %s\n", about(begun, (double)exact[at].tv_nsec / 1e6));
    }
    printf("epoll_pwait2 of no time: %s", result(epoll_pwait2(set, &event, 1, &(struct timespec){0, 1000000000}, NULL)));
    printf(" %s", result(epoll_pwait2(set, &event, 1, &(struct timespec){-1, 0}, NULL)));
    printf(" %s", result(epoll_pwait2(set, &event, 1, &(struct timespec){0, -1}, NULL)));
    printf(", most 0 %s", result(epoll_pwait2(set, &event, 0, NULL, NULL)));
    printf(", of what is no set %s\n", result(epoll_pwait2(fd, &event, 1, NULL, NULL)));
    far_ok(far("later 60 put 0 x"));
    double begun = now_ms();
    printf("epoll_pwait2 for ever: %d", epoll_pwait2(set, &event, 1, NULL, NULL));
    printf(" %s %s\n", names(event.events), about(begun, 50));
    read(fd, &(char){0}, 1);
    begun = now_ms();
    far_ok(far("later 60 put 0 x"));
    int came = epoll_wait(set, &event, 1, -1);
    printf("epoll_wait for ever: %d %s\n", came, about(begun, 60));
    printf("epoll_wait for -7: %d\n", epoll_wait(set, &event, 1, -7));
    printf("most 0: %s", result(epoll_wait(set, &event, 0, 0)));
    printf(", most -1: %s", result(epoll_wait(set, &event, -1, 0)));
    printf(", too many: %s", result(epoll_wait(set, &event, INT_MAX / (int)sizeof event + 1, 0)));
    printf(", no memory: %s\n", result(epoll_wait(set, NULL, 1, 0)));
    close(fd);
    close(set);
}

static void polls(int fd, int at)
{
    const short asked[] = {POLLIN,       POLLOUT,    POLLIN | POLLOUT,      POLLPRI,
                           POLLRDHUP, POLLRDNORM, POLLIN | POLLRDHUP, 0};
    for (int round = 0; round < 3; round++) {
        printf("poll, round %d:", round);
        for (size_t each = 0; each < sizeof asked / sizeof *asked; each++) {
            struct pollfd one = {fd, asked[each], -1};
            int count = poll(&one, 1, 20);
            printf(" %d %s,", count, names((uint32_t)one.revents));
        }
        printf("\n");
        if (round == 0)
            far_ok(far("put %d abc", at));
        else
            far_ok(far("shut %d 1", at));
        sleep_ms(5);
    }
    struct pollfd many[] = {{fd, POLLIN, 0}, {-1, POLLIN, 7}, {fd, POLLOUT, 0}, {1000, POLLIN, 0}};
    int count = poll(many, 4, 100);
    printf("poll of four: %d", count);
    for (int each = 0; each < 4; each++)
        printf(" %s", names((uint32_t)many[each].revents));
    printf("\n");
    close(fd);
    struct pollfd one = {fd, POLLIN, 0};
    count = poll(&one, 1, 0);
    printf("poll of a closed one: %d %s\n", count, names((uint32_t)one.revents));
}

/* Of more than FD_SETSIZE descriptors, and of as many as fit in a set that ends earlier. */
static void larger_sets(int fd)
{
    union {
        fd_set set;
        unsigned long words[4096 / (8 * sizeof(unsigned long))];
    } large;
    const size_t bits = 8 * sizeof(unsigned long);
    struct rlimit limits;
    char bytes[8];
    getrlimit(RLIMIT_NOFILE, &limits);
    limits.rlim_cur = limits.rlim_max < 4096 ? limits.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limits);
    read(fd, bytes, sizeof bytes);
    int high = fcntl(fd, F_DUPFD, 2000);
    for (int round = 0; round < 2; round++) {
        memset(&large, 0, sizeof large);
        FD_SET(fd, &large.set);
        large.words[(size_t)high / bits] |= 1UL << ((size_t)high % bits);
        printf("of 4096: %d", select(4096, &large.set, NULL, NULL, &(struct timeval){0, 30000}));
        printf(" %d", FD_ISSET(fd, &large.set) != 0);
        printf(" %d", (large.words[(size_t)high / bits] >> ((size_t)high % bits) & 1) != 0);
        large.words[(size_t)high / bits] = 1UL << ((size_t)high % bits);
        printf(", of %d: %d\n", high + 1,
               pselect(high + 1, &large.set, NULL, NULL, &(struct timespec){0, 30000000}, NULL));
        far_ok(far("put 0 x"));
        sleep_ms(5);
    }
    close(high);
    memset(&large, 0, sizeof large);
    FD_SET(fd, &large.set);
    printf("of all: %d", select(INT_MAX, &large.set, NULL, NULL, &(struct timeval){1, 0}));
    large.words[(size_t)high / bits] = 1UL << ((size_t)high % bits);
    printf(", closed: %s\n", result(select(4096, &large.set, NULL, NULL, NULL)));
}

static void selects(void)
{
    int fd = near_connected(0), pipes[2];
    fd_set sets[3];
    pipe(pipes);
    for (int round = 0; round < 3; round++) {
        for (int at = 0; at < 3; at++) {
            FD_ZERO(&sets[at]);
            FD_SET(fd, &sets[at]);
            FD_SET(pipes[0], &sets[at]);
        }
        int count = select((fd > pipes[0] ? fd : pipes[0]) + 1, &sets[0], &sets[1], &sets[2],
                           &(struct timeval){1, 0});
        printf("select, round %d: %d:", round, count);
        for (int at = 0; at < 3; at++)
            printf(" %d%d", FD_ISSET(fd, &sets[at]) != 0, FD_ISSET(pipes[0], &sets[at]) != 0);
        printf("\n");
        if (round == 0)
            write(pipes[1], "x", 1);
        if (round == 1)
            far_ok(far("put 0 x"));
        sleep_ms(5);
    }
    FD_ZERO(&sets[0]);
    FD_SET(fd, &sets[0]);
    printf("select of none of them: %d", select(0, &sets[0], NULL, NULL, &(struct timeval){0, 0}));
    printf(", with a negative time: %s",
           result(select(fd + 1, &sets[0], NULL, NULL, &(struct timeval){-1, 0})));
    printf(", still in the set %d", FD_ISSET(fd, &sets[0]) != 0);
    int high = fcntl(fd, F_DUPFD, 900);
    FD_ZERO(&sets[0]);
    FD_SET(high, &sets[0]);
    printf(", descriptor %d: %d", high, select(high + 1, &sets[0], NULL, NULL, NULL));
    close(high);
    printf(", closed: %s\n", result(select(high + 1, &sets[0], NULL, NULL, NULL)));
    larger_sets(fd);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

static void edges(void)
{
    int fd = near_accepted(0), set = epoll_create1(0);
    char bytes[16];
    set_nonblocking(fd, true);
    add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
    show_set("edge, at first", set, 100);
    show_set("edge, again", set, 20);
    far_ok(far("put 0 ab"));
    show_set("edge, octets", set, 1000);
    show_set("edge, not read", set, 20);
    read(fd, bytes, 1);
    show_set("edge, read in part", set, 20);
    far_ok(far("put 0 c"));
    show_set("edge, more", set, 1000);
    change(set, fd, EPOLLIN | EPOLLET, 2);
    show_set("edge, changed", set, 1000);
    show_set("edge, changed, again", set, 20);
    printf("read %zd", read(fd, bytes, 16));
    printf(" %s\n", result(read(fd, bytes, 16)));
    change(set, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 3);
    show_set("edge, nothing", set, 20);
    far_ok(far("shut 0 1"));
    show_set("edge, end", set, 1000);
    show_set("edge, end again", set, 20);
    close(fd);
    show_set("edge, closed", set, 20);
    close(set);
}

/* Reported once, and the kernel's by the time that its peer resets it, because of MSG_OOB. */
static void one_shot_of_the_kernels(void)
{
    for (int deletes = 0; deletes < 2; deletes++) {
        int fd = near_connected(0), set = epoll_create1(0);
        add(set, fd, EPOLLIN | EPOLLONESHOT, 1);
        far_ok(far("put 0 ab"));
        show_set("one shot", set, 1000);
        printf("urgent: %s\n", result(send(fd, "u", 1, MSG_OOB)));
        show_set("disarmed", set, 20);
        far_ok(far("reset 0"));
        show_set("disarmed, reset", set, 100);
        if (deletes)
            printf("deleted %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
        printf("changed %s", result(change(set, fd, EPOLLIN | EPOLLONESHOT, 2)));
        printf(" %s\n", result(change(set, fd, EPOLLIN | EPOLLONESHOT, 2)));
        show_set("armed, reset", set, 1000);
        show_set("again", set, 20);
        close(fd);
        close(set);
    }
}

/* Closed while disarmed: the next socket with its number is armed like any other. */
static void one_shot_closed_while_disarmed(void)
{
    int set = epoll_create1(0);
    for (int arms = 0; arms < 2; arms++) {
        int fd = near_connected(0);
        add(set, fd, EPOLLIN | EPOLLONESHOT, 1);
        far_ok(far("put 0 ab"));
        show_set("one shot", set, 1000);
        setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &(int){5}, sizeof(int));
        if (arms) {
            printf("armed with a number that is used again: %s\n", result(change(set, fd, EPOLLIN | EPOLLONESHOT, 2)));
            show_set("armed", set, 1000);
        }
        close(fd);
    }
    close(set);
}

static void one_shot(void)
{
    int fd = near_connected(0), set = epoll_create1(0), other = epoll_create1(0);
    add(set, fd, EPOLLIN | EPOLLONESHOT, 1);
    add(other, fd, EPOLLIN, 5);
    far_ok(far("put 0 ab"));
    show_set("one shot", set, 1000);
    show_set("one shot, again", set, 20);
    show_set("the same in another set", other, 1000);
    show_set("and again", other, 1000);
    far_ok(far("put 0 cd"));
    show_set("one shot, more", set, 20);
    change(set, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 2);
    show_set("one shot, armed", set, 1000);
    show_set("one shot, armed, again", set, 20);
    printf("entered again: %s", result(add(set, fd, EPOLLIN, 1)));
    printf(", deleted %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
    printf(", again %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
    printf(", changed %s", result(change(set, fd, EPOLLIN, 1)));
    printf(", itself %s", result(add(set, set, EPOLLIN, 1)));
    printf(", no event %s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, NULL)));
    printf(", bad operation %s", result(epoll_ctl(set, 77, fd, &(struct epoll_event){0})));
    printf(", not a set %s", result(add(fd, set, EPOLLIN, 1)));
    printf(", no set %s", result(add(999, fd, EPOLLIN, 1)));
    printf(", no descriptor %s\n", result(add(set, 998, EPOLLIN, 1)));
    printf("exclusive: %s", result(add(set, fd, EPOLLIN | EPOLLEXCLUSIVE, 9)));
    printf(", changed %s", result(change(set, fd, EPOLLIN, 1)));
    epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
    printf(", with one shot %s",
           result(add(set, fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 9)));
    printf(", changed to it %s\n", result(change(other, fd, EPOLLIN | EPOLLEXCLUSIVE, 9)));
    int copy = dup(fd);
    printf("a copy: %s\n", result(add(other, copy, EPOLLIN, 6)));
    show_set("both", other, 1000);
    close(copy);
    epoll_ctl(other, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
    show_set("closed", other, 20);
    close(set);
    close(other);
}

static void hang_ups(void)
{
    const char *ends[] = {"shut 0 1", "close 0", "reset 0"};
    for (int at = 0; at < 3; at++) {
        int fd = near_accepted(0), set = epoll_create1(0);
        add(set, fd, EPOLLIN | EPOLLRDHUP, 1);
        far_ok(far("%s", ends[at]));
        printf("%s, ", ends[at]);
        show_set("level", set, 1000);
        change(set, fd, 0, 2);
        show_set("  asked for nothing", set, 20);
        shutdown(fd, SHUT_WR);
        show_set("  shut here, too", set, 20);
        change(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 3);
        show_set("  all", set, 20);
        close(fd);
        close(set);
    }
    int fd = near_connected(0), set = epoll_create1(0);
    add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1);
    shutdown(fd, SHUT_RD);
    show_set("shut to read here", set, 20);
    shutdown(fd, SHUT_WR);
    show_set("and to write", set, 20);
    close(fd);
    close(set);
}

static void nested(void)
{
    int fd = near_accepted(0), inner = epoll_create1(0), outer = epoll_create1(0);
    int outermost = epoll_create1(0);
    char bytes[16];
    /* A member before the set is nested, and one after that. */
    add(inner, fd, EPOLLIN, 1);
    printf("nested: %s", result(add(outer, inner, EPOLLIN, 2)));
    printf(", %s", result(add(outermost, outer, EPOLLIN, 3)));
    printf(", in a circle: %s\n", result(add(inner, outer, EPOLLIN, 2)));
    int second = near_connected(1);
    add(inner, second, EPOLLIN, 11);
    show_set("nothing yet", outermost, 20);
    double begun = now_ms();
    far_ok(far("later 40 put 0 ab"));
    show_set("outermost", outermost, 2000);
    printf("%s\n", about(begun, 40));
    show_set("outer", outer, 1000);
    printf("poll of the inner: %d", poll(&(struct pollfd){inner, POLLIN, 0}, 1, 1000));
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(outer, &readable);
    printf(", select of the outer: %d\n", select(outer + 1, &readable, NULL, NULL, NULL));
    show_set("inner", inner, 1000);
    read(fd, bytes, 16);
    show_set("outermost, read", outermost, 20);
    show_set("inner, read", inner, 20);
    printf("poll of the inner: %d\n", poll(&(struct pollfd){inner, POLLIN, 0}, 1, 20));
    begun = now_ms();
    far_ok(far("later 40 put 1 ab"));
    printf("poll of the outer: %d", poll(&(struct pollfd){outer, POLLIN, 0}, 1, 2000));
    printf(" %s\n", about(begun, 40));
    read(second, bytes, 16);
    /* Edge-triggered. */
    epoll_ctl(outer, EPOLL_CTL_MOD, inner, &(struct epoll_event){EPOLLIN | EPOLLET, {.u64 = 4}});
    show_set("outer by edges, nothing", outer, 20);
    far_ok(far("put 0 a"));
    show_set("outer by edges", outer, 1000);
    show_set("outer by edges, again", outer, 20);
    far_ok(far("put 1 a"));
    show_set("outer by edges, another", outer, 1000);
    printf("taken out: %s\n", result(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL)));
    show_set("outer without the inner", outer, 20);
    /* Empty when it is nested; a member is added later. */
    int late = epoll_create1(0);
    add(outer, late, EPOLLIN, 7);
    show_set("outer with an empty one", outer, 20);
    add(late, fd, EPOLLIN, 8);
    show_set("outer with one that has a member now", outer, 1000);
    show_set("late", late, 1000);
    close(late);
    show_set("outer, that one closed", outer, 20);
    close(fd);
    close(second);
    close(inner);
    close(outer);
    close(outermost);
}

/* Pipe, eventfd, timerfd and a UNIX socket beside a busy and a quiet connection: all are reported. */
static void mixed(void)
{
    int busy = near_accepted(0), quiet = near_accepted(1), set = epoll_create1(0), pipes[2], ends[2];
    int event = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    const int fds[] = {busy, quiet, pipes[0], event, timer, ends[0]};
    for (int at = 0; at < 6; at++)
        add(set, fds[at], EPOLLIN, (uint64_t)at);
    far_ok(far("put 0 busy"));
    far_ok(far("put 1 quiet"));
    write(pipes[1], "x", 1);
    write(ends[1], "x", 1);
    write(event, &(uint64_t){1}, 8);
    timerfd_settime(timer, 0, &(struct itimerspec){{0, 1}, {0, 1}}, NULL);
    /* What an instance receives comes asynchronously, perhaps after all rounds. */
    sleep_ms(20);
    /* One at a time, without reading: each has its turn. */
    for (int most = 1; most <= 16; most *= 16) {
        int seen[6] = {0};
        for (int round = 0; round < 200; round++) {
            struct epoll_event events[16];
            int count = epoll_wait(set, events, most, 100);
            for (int at = 0; at < count; at++)
                seen[events[at].data.u64]++;
        }
        printf("up to %d at a time:", most);
        for (int at = 0; at < 6; at++)
            printf(" %s", seen[at] >= 10 ? "often" : seen[at] ? "seldom" : "never");
        printf("\n");
    }
    close(busy);
    close(quiet);
    /* Events of the kernel's end a wait in which the stack has none, and at once. */
    read(pipes[0], &(char){0}, 1);
    read(event, &(uint64_t){0}, 8);
    read(ends[0], &(char){0}, 1);
    double begun = now_ms();
    timerfd_settime(timer, 0, &(struct itimerspec){{0, 0}, {0, 50000000}}, NULL);
    quiet = near_connected(1);
    add(set, quiet, EPOLLIN, 7);
    show_set("the timer", set, 1000);
    printf("%s\n", about(begun, 50));
    begun = now_ms();
    struct pollfd both[] = {{quiet, POLLIN, 0}, {timer, POLLIN, 0}};
    printf("poll: %d", poll(both, 2, 1000));
    printf(" %s\n", about(begun, 0));
    for (int at = 2; at < 6; at++)
        close(fds[at]);
    close(quiet);
    close(set);
}

static void listeners(void)
{
    int port, listener = near_listener(near_address, &port), set = epoll_create1(0);
    add(set, listener, EPOLLIN, 1);
    show_set("listener", set, 20);
    printf("%d\n", atoi(far("connect 0 %s %d", near_address, port)) > 0);
    show_set("listener, somebody came", set, 1000);
    show_set("listener, again", set, 1000);
    struct pollfd one = {listener, POLLIN | POLLOUT, 0};
    printf("poll: %d", poll(&one, 1, 1000));
    printf(" %s\n", names((uint32_t)one.revents));
    close(accept(listener, NULL, NULL));
    show_set("listener, accepted", set, 20);
    change(set, listener, EPOLLIN | EPOLLET, 2);
    printf("%d\n", atoi(far("connect 1 %s %d", near_address, port)) > 0);
    show_set("listener by edges", set, 1000);
    show_set("listener by edges, again", set, 20);
    close(listener);
    show_set("listener closed", set, 20);
    close(set);
}

/* A successful call leaves errno alone. Perl's IO::Socket sets it to 0, selects, and then takes its value for the reason why
 * nothing has come. */
static void errno_is_left_alone(int fd, int at)
{
    char later[32], octets[64];
    int set = epoll_create1(EPOLL_CLOEXEC);
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    add(set, fd, EPOLLIN, 1);
    errno = 0;
    int got = select(fd + 1, &readable, NULL, NULL, &(struct timeval){0, 30000});
    printf("select: %d, errno %d", got, errno);
    got = poll(&(struct pollfd){fd, POLLIN, 0}, 1, 30);
    printf("; poll: %d, errno %d", got, errno);
    got = epoll_wait(set, &(struct epoll_event){0}, 1, 30);
    printf("; epoll_wait: %d, errno %d", got, errno);
    snprintf(later, sizeof later, "later 60 put %d x", at);
    far_ok(far(later));
    errno = 0;
    got = (int)recv(fd, octets, sizeof octets, 0);
    printf("; recv: %d, errno %d", got, errno);
    got = (int)send(fd, octets, sizeof octets, 0);
    printf("; send: %d, errno %d", got, errno);
    got = usleep(1000);
    printf("; usleep: %d, errno %d", got, errno);
    close(set);
    got = close(fd);
    printf("; close: %d, errno %d\n", got, errno);
}

/* The same for a wait until it is connected, to an address that no host has. It is the first wait of this process. */
static void errno_is_left_alone_by_a_connection_that_is_begun(void)
{
    struct sockaddr_storage name;
    socklen_t length = far_beside(&name, far_address, 1);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    fd_set writable;
    FD_ZERO(&writable);
    FD_SET(fd, &writable);
    printf("connect: %s", result(connect(fd, (struct sockaddr *)&name, length)));
    for (int round = 0; round < 3; round++) {
        errno = 0;
        int got = select(fd + 1, NULL, &writable, NULL, &(struct timeval){0, 30000});
        printf("; select: %d, errno %d", got, errno);
        FD_SET(fd, &writable);
    }
    close(fd);
    printf("\n");
}

static void *receives(void *fd)
{
    char octet;
    recv((int)(intptr_t)fd, &octet, 1, 0);
    return NULL;
}

/* Who asks for POLLRDNORM alone, or EPOLLRDNORM, hears of a connection as with POLLIN, although two other threads watch for what
 * comes. */
static void input_by_its_other_name(void)
{
    int port, listener = near_listener(near_address, &port), set = epoll_create1(0);
    int fds[2] = {near_connected(2), near_connected(3)};
    pthread_t threads[2];
    char later[96];
    for (int by_set = 0; by_set < 2; by_set++) {
        /* Before the two begin to watch: the exchange has this thread look at what comes, too. */
        snprintf(later, sizeof later, "later 400 connect %d %s %d", by_set, near_address, port);
        far_ok(far(later));
        for (int at = 0; at < 2; at++) {
            pthread_create(&threads[at], NULL, receives, (void *)(intptr_t)fds[at]);
            sleep_ms(30);
        }
        /* Who is not woken finds it all the same when time is up. */
        double begun = now_ms();
        if (by_set) {
            add(set, listener, EPOLLRDNORM, 1);
            show_set("the set has", set, 5000);
        } else {
            struct pollfd one = {listener, POLLRDNORM, 0};
            printf("poll: %d", poll(&one, 1, 5000));
            printf(" %s\n", names((uint32_t)one.revents));
        }
        printf("woken: %s\n", yes(now_ms() - begun < 3000));
        close(accept(listener, NULL, NULL));
        for (int at = 0; at < 2; at++)
            far_ok(far("put %d x", 2 + at));
        for (int at = 0; at < 2; at++)
            pthread_join(threads[at], NULL);
    }
    close(set);
    close(listener);
    close(fds[0]);
    close(fds[1]);
}

/* SO_RCVTIMEO of less than nothing does not wait. */
static void less_than_no_time(void)
{
    int fd = near_accepted(0);
    char octet;
    for (int micros = 0; micros < 2; micros++) {
        struct timeval time = {-1, micros}, read = {7, 7};
        socklen_t length = sizeof read;
        printf("SO_RCVTIMEO: %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time)));
        getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &read, &length);
        double begun = now_ms();
        printf(", is %ld.%06ld, recv: %s", read.tv_sec, read.tv_usec, result((int)recv(fd, &octet, 1, 0)));
        printf(" %s\n", about(begun, 0));
    }
    close(fd);
}

static void *waits_for_the_first_time(void *fds)
{
    char octet;
    int fd = *(int *)fds, set = ((int *)fds)[1];
    printf("recv: %s", result((int)recv(fd, &octet, 1, 0)));
    struct pollfd one = {fd, POLLIN, 0};
    double begun = now_ms();
    printf(", poll: %s", result(poll(&one, 1, 50)));
    printf(" %s", about(begun, 50));
    begun = now_ms();
    printf(", epoll_wait: %s", result(epoll_wait(set, &(struct epoll_event){0}, 1, 50)));
    printf(" %s\n", about(begun, 50));
    return NULL;
}

/* A thread that has never waited does so where the process has no descriptor left. */
static void no_descriptor_left(void)
{
    int fds[2] = {near_accepted(0), epoll_create1(0)};
    struct rlimit before, limit;
    pthread_t thread;
    add(fds[1], fds[0], EPOLLIN, 1);
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = 3;
    far_ok(far("later 100 put 0 x"));
    setrlimit(RLIMIT_NOFILE, &limit);
    pthread_create(&thread, NULL, waits_for_the_first_time, fds);
    pthread_join(thread, NULL);
    setrlimit(RLIMIT_NOFILE, &before);
    close(fds[1]);
    close(fds[0]);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    errno_is_left_alone_by_a_connection_that_is_begun();
    errno_is_left_alone(near_accepted(0), 0);
    errno_is_left_alone(near_connected(1), 1);
    timeouts();
    polls(near_accepted(0), 0);
    polls(near_connected(1), 1);
    selects();
    edges();
    one_shot();
    one_shot_of_the_kernels();
    one_shot_closed_while_disarmed();
    hang_ups();
    nested();
    mixed();
    listeners();
    input_by_its_other_name();
    less_than_no_time();
    no_descriptor_left();
    return 0;
}

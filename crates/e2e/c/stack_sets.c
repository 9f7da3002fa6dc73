/* Epoll sets to which a socket is added before it is connected or listens. */
#include "far.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

static struct sockaddr_storage there;
static socklen_t there_length;
static char said[64];

static void far_listens(void)
{
    there_length = far_name(&there, far_address, atoi(far("listen 0 %s", far_address)));
}

static int connects(int fd)
{
    int result = connect(fd, (struct sockaddr *)&there, there_length);
    far_ok(far("accept 1 0"));
    far_count(far_port(&there));
    return result;
}

static void over(int fd)
{
    close(fd);
    far("close 1");
    far("close 0");
}

static int made(void) { return far_socket(SOCK_NONBLOCK); }

static const char *enters(int set, int fd, unsigned events, int data)
{
    struct epoll_event event = {events, {.u64 = (uint64_t)data}};
    return result(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static const char *told(int set, int ms)
{
    static __thread char text[2][64];
    static __thread int turn;
    char *into = text[turn ^= 1];
    struct epoll_event event = {0, {.u64 = 0}};
    int count = epoll_wait(set, &event, 1, ms);
    snprintf(into, sizeof text[0], "%d %x %d", count, event.events, (int)event.data.u64);
    return into;
}

static void *waits(void *set)
{
    snprintf(said, sizeof said, "%s", told((int)(long)set, 2000));
    return NULL;
}

static void *polls(void *set)
{
    struct pollfd one = {(int)(long)set, POLLIN, 0};
    int count = poll(&one, 1, 2000);
    snprintf(said, sizeof said, "%d %x", count, one.revents);
    return NULL;
}

static void *selects(void *set)
{
    fd_set read;
    FD_ZERO(&read);
    FD_SET((int)(long)set, &read);
    int count = select((int)(long)set + 1, &read, NULL, NULL, &(struct timeval){2, 0});
    snprintf(said, sizeof said, "%d %d", count, FD_ISSET((int)(long)set, &read));
    return NULL;
}

static pthread_t start(void *(*body)(void *), int set)
{
    pthread_t thread;
    pthread_create(&thread, NULL, body, (void *)(long)set);
    sleep_ms(30);
    return thread;
}

/* One thread sleeps; another connects a socket that is already in the set. */
static void asleep(const char *what, int set, void *(*body)(void *), int waited)
{
    far_listens();
    int fd = made();
    printf("%s: entered %s", what, enters(set, fd, EPOLLIN | EPOLLOUT | EPOLLET, 4));
    printf(", told %s", told(waited, 100));
    printf(", no more %s", told(waited, 0));
    pthread_t thread = start(body, waited);
    printf(", connect %s", result(connects(fd)));
    pthread_join(thread, NULL);
    printf(", told %s", said);
    told(waited, 10);
    told(set, 10);
    thread = start(body, waited);
    far_ok(far("put 1 x"));
    pthread_join(thread, NULL);
    printf(", told %s\n", said);
    over(fd);
}

static void nested(void)
{
    for (int way = 0; way < 5; way++) {
        int inner = epoll_create1(0), middle = epoll_create1(0), outer = epoll_create1(0);
        printf("in others %s", enters(outer, middle, EPOLLIN, 1));
        printf(" %s: ", enters(middle, inner, EPOLLIN, 2));
        int waited[] = {inner, middle, outer, inner, outer};
        asleep(result(way), inner, way == 3 ? polls : way == 4 ? selects : waits, waited[way]);
        close(inner);
        close(middle);
        close(outer);
    }
}

static void nested_by_turns(void)
{
    int inner = epoll_create1(0), outer = epoll_create1(0);
    far_listens();
    int fd = made();
    printf("one after the other: %s", enters(inner, fd, EPOLLIN | EPOLLOUT | EPOLLET, 5));
    printf(" %s", enters(outer, inner, EPOLLIN, 6));
    printf(", told %s", told(outer, 100));
    printf(" %s", told(inner, 100));
    printf(", connect %s", result(connects(fd)));
    struct pollfd one = {inner, POLLIN, 0};
    printf(", poll %d", poll(&one, 1, 500));
    printf(", told %s", told(outer, 500));
    printf(" %s", told(inner, 500));
    printf(" %s", told(inner, 0));
    far_ok(far("put 1 x"));
    printf(", told %s", told(outer, 500));
    printf(" %s", told(inner, 500));
    printf(" %s\n", told(outer, 0));
    over(fd);
    close(inner);
    close(outer);
}

static volatile double woken;

static void *waits_and_looks_at_the_clock(void *set)
{
    waits(set);
    woken = now_ms();
    return NULL;
}

/* A thread that sleeps on a set is woken by a change in a nested one, although the thread that made it calls nothing more. */
static void changed_within(void)
{
    for (int change = 0; change < 2; change++) {
        int inner = epoll_create1(0), outer = epoll_create1(0), fd = near_accepted(0), other = near_accepted(1);
        printf("changed within: %s", enters(inner, fd, EPOLLIN, 7));
        printf(" %s", enters(outer, inner, EPOLLIN | EPOLLET, 8));
        printf(", told %s", told(outer, 20));
        pthread_t thread = start(waits_and_looks_at_the_clock, outer);
        struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u64 = 9}};
        double begun = now_ms();
        woken = 0;
        int done = epoll_ctl(inner, change ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, change ? fd : other, &event);
        while (now_ms() - begun < 400)
            ;
        bool at_once = woken && woken - begun < 350;
        pthread_join(thread, NULL);
        printf(", done %s, told %s, at once %s\n", result(done), said, yes(at_once));
        int all[] = {inner, outer, fd, other};
        for (int at = 0; at < 4; at++)
            close(all[at]);
    }
}

/* A member of several sets. */
static void several(void)
{
    int sets[3];
    far_listens();
    int fd = made();
    printf("in several:");
    for (int at = 0; at < 3; at++) {
        sets[at] = epoll_create1(0);
        printf(" %s", enters(sets[at], fd, at == 1 ? EPOLLIN : EPOLLOUT, at));
    }
    printf(", connect %s", result(connects(fd)));
    far_ok(far("put 1 x"));
    for (int at = 0; at < 3; at++)
        printf(", told %s", told(sets[at], 500));
    printf(", deleted %s", result(epoll_ctl(sets[0], EPOLL_CTL_DEL, fd, NULL)));
    printf(" %s", result(epoll_ctl(sets[0], EPOLL_CTL_DEL, fd, NULL)));
    for (int at = 0; at < 3; at++) {
        printf(", told %s", told(sets[at], 10));
        close(sets[at]);
    }
    printf("\n");
    over(fd);
}

static void listens(void)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM, 0), set = epoll_create1(0);
    bind(fd, (struct sockaddr *)&name, length);
    printf("listens: %s", enters(set, fd, EPOLLIN | EPOLLET, 9));
    printf(", told %s", told(set, 10));
    printf(", listen %s", result(listen(fd, 4)));
    getsockname(fd, (struct sockaddr *)&name, &length);
    printf(", told %s", told(set, 10));
    for (int at = 0; at < 2; at++) {
        int far_end = atoi(far("connect 1 %s %d", near_address, far_port(&name)));
        printf(", told %s", told(set, 500));
        int one = accept(fd, NULL, NULL);
        far_count(far_end);
        printf(", accept %s", yes(one >= 0));
        close(one);
        far("close 1");
    }
    printf(", deleted %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
    printf(" %s\n", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
    close(fd);
    close(set);
}

/* Returns a connection to a listener here, which comes to it by way of the kernel. */
static int comes_by_loopback(int port)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, port);
    int fd = far_socket(0);
    if (connect(fd, (struct sockaddr *)&name, length))
        fail("connect");
    return fd;
}

static const char *many_told(int set, int ms)
{
    static char text[64];
    struct epoll_event events[8];
    int count = epoll_wait(set, events, 8, ms);
    snprintf(text, sizeof text, "%d", count);
    for (int at = 0; at < count; at++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ":%x:%d", events[at].events, (int)events[at].data.u64);
    return text;
}

/* To a listener connections come by two ways, over the wire and by loopback. In a set it is one member all the same. */
static void one_listener_by_two_ways(void)
{
    struct {
        const char *name;
        unsigned events;
    } kinds[] = {{"by levels", EPOLLIN}, {"by edges", EPOLLIN | EPOLLET}, {"once", EPOLLIN | EPOLLONESHOT}, {"once by edges", EPOLLIN | EPOLLONESHOT | EPOLLET}};
    for (int kind = 0; kind < 4; kind++) {
        int port, set = epoll_create1(0), listener = near_listener(near_address, &port);
        set_nonblocking(listener, true);
        printf("a listener %s: %s", kinds[kind].name, enters(set, listener, kinds[kind].events, 3));
        for (int ways = 1; ways < 4; ways++) {
            int here = -1, accepted = 0;
            if (ways & 1)
                far_count(atoi(far("connect 6 %s %d", near_address, port)));
            if (ways & 2)
                here = comes_by_loopback(port);
            sleep_ms(50);
            printf(", ways %d:", ways);
            for (int at = 0; at < 4; at++)
                printf(" %s", many_told(set, at ? 10 : 1000));
            for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; accepted++)
                close(fd);
            printf(" accepted %d, then %s", accepted, many_told(set, 10));
            /* What comes to one that was told and is not armed is told when it is. */
            int later = comes_by_loopback(port);
            sleep_ms(20);
            printf(" %s", kind > 1 ? many_told(set, 0) : "");
            struct epoll_event event = {kinds[kind].events, {.u64 = (uint64_t)(4 + ways)}};
            printf(", armed %s", result(epoll_ctl(set, EPOLL_CTL_MOD, listener, &event)));
            printf(" %s", many_told(set, 1000));
            close(accept(listener, NULL, NULL));
            epoll_ctl(set, EPOLL_CTL_MOD, listener, &event);
            close(later);
            close(here);
            if (ways & 1)
                far("close 6");
        }
        printf(", deleted %s", result(epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL)));
        int here = comes_by_loopback(port);
        printf(" %s\n", many_told(set, 20));
        close(here);
        close(listener);
        close(set);
    }
}

/* The set is older than the child, whose socket is its own. */
static void forked(void)
{
    int set = epoll_create1(0);
    far_listens();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        int fd = made();
        bool right = !strcmp(enters(set, fd, EPOLLIN | EPOLLOUT, 8), "0");
        connect(fd, (struct sockaddr *)&there, there_length);
        for (int at = 0; at < 100 && right; at++) {
            const char *now = told(set, 2000);
            if (!strcmp(now, "1 5 8"))
                break;
            right = !strcmp(now, "1 4 8") || !strncmp(now, "1 14", 4);
            sleep_ms(5);
        }
        _exit(right && read(fd, &(char){0}, 1) == 1 ? 7 : 8);
    }
    far_ok(far("accept 1 0"));
    far_count(far_port(&there));
    far_ok(far("put 1 x"));
    reap(child, "in a set of its parent's");
    far("close 1");
    far("close 0");
    close(set);
}

/* A server adds its listener, and then becomes a daemon: its child accepts by its parent's set, and the parent is gone. */
static void forked_behind(void)
{
    for (int edge = 0; edge < 2; edge++) {
        int port, set = epoll_create1(0), listener = near_listener(near_address, &port);
        set_nonblocking(listener, true);
        enters(set, listener, edge ? EPOLLIN | EPOLLET : EPOLLIN, 3);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            for (int served = 0; served < 4;) {
                told(set, 5000);
                for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; served++) {
                    write(fd, "c", 1);
                    close(fd);
                }
            }
            _exit(7);
        }
        close(listener);
        close(set);
        for (int at = 0; at < 4; at++) {
            printf("%d", atoi(far("connect 5 %s %d", near_address, port)) > 0);
            printf(" %s, ", far("end 5 4000"));
            far("close 5");
        }
        reap(child, "served by a set of its parent's");
    }
}

static void *waits_often(void *set)
{
    for (int at = 0; at < 40; at++)
        told((int)(long)set, 2);
    told((int)(long)set, 5000);
    return NULL;
}

/* A thread sleeps on a set as it often has; another closes the set, and then rings. What the sleeper gets is not compared. */
static void closed_while_somebody_sleeps(void)
{
    int set = epoll_create1(0), bell = eventfd(0, EFD_NONBLOCK);
    far_listens();
    int fd = made();
    printf("closed: entered %s", enters(set, fd, EPOLLIN, 4));
    printf(" %s, connect %s", enters(set, bell, EPOLLIN, 5), result(connects(fd)));
    pthread_t thread = start(waits_often, set);
    sleep_ms(300);
    close(set);
    eventfd_write(bell, 1);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    /* Before anything else wakes it, half a second later. */
    until.tv_nsec += 300000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int late = pthread_timedjoin_np(thread, NULL, &until);
    printf(", woken %s\n", late ? "never" : "at once");
    if (late)
        pthread_join(thread, NULL);
    close(bell);
    over(fd);
}

static int found_late;

static void *waits_late(void *set)
{
    struct epoll_event event;
    near_sleeps();
    found_late = epoll_wait((int)(long)set, &event, 1, -1);
    return NULL;
}

/* A thread sleeps on a set, with a member on the stack or without; another closes it, and makes one that gets its number, where
 * something happens. On Linux the thread goes on sleeping; what it hears is not compared. */
static void number_of_a_set_that_is_closed(void)
{
    enum { OFTEN = 20 };
    for (int on_stack = 0; on_stack < 2; on_stack++) {
        int taken = 0, missed = 0, others = 0, fd = near_accepted(0);
        for (int at = 0; at < OFTEN; at++) {
            int set = epoll_create1(0), bell = eventfd(0, EFD_NONBLOCK), silent = eventfd(0, EFD_NONBLOCK);
            enters(set, on_stack ? fd : silent, EPOLLIN, 1);
            pthread_t thread;
            found_late = -1;
            pthread_create(&thread, NULL, waits_late, (void *)(long)set);
            near_asleep();
            close(set);
            int next = epoll_create1(0);
            others += next != set;
            /* Frames wake the thread as well. */
            if (!on_stack)
                far_ok(far("put 0 x"));
            sleep_ms(10);
            enters(next, bell, EPOLLIN | EPOLLONESHOT, 2);
            eventfd_write(bell, 1);
            sleep_ms(10);
            missed += strcmp(told(next, 100), "1 1 2") != 0;
            taken += found_late > 0;
            close(next);
            close(bell);
            close(silent);
        }
        printf("another set in the place of one where a thread sleeps: taken %d, missed %d, others %d\n", taken, missed, others);
        close(fd);
        far("close 0");
    }
}

/* Through several descriptors: tokio registers by one what it waits for by another. */
static void duplicated(void)
{
    int port, set = epoll_create1(EPOLL_CLOEXEC), other = fcntl(set, F_DUPFD_CLOEXEC, 3);
    int listener = near_listener(near_address, &port);
    set_nonblocking(listener, true);
    printf("by another number: %s", enters(other, listener, EPOLLIN | EPOLLET, 7));
    printf(", once more by the first: %s\n", enters(set, listener, EPOLLIN, 8));
    printf("%d", atoi(far("connect 0 %s %d", near_address, port)) > 0);
    printf(", told %s", told(set, 2000));
    int fd = accept(listener, NULL, NULL);
    printf(", accepted %s", enters(other, fd, EPOLLIN | EPOLLET, 9));
    far_ok(far("put 0 x"));
    printf(", told %s", told(set, 2000));
    printf(", by the other %s\n", told(other, 20));
    pthread_t thread;
    pthread_create(&thread, NULL, waits, (void *)(long)set);
    sleep_ms(50);
    int late = near_accepted(1);
    printf("later: %s", enters(other, late, EPOLLIN, 11));
    far_ok(far("put 1 z"));
    pthread_join(thread, NULL);
    struct pollfd one = {other, POLLIN, 0};
    printf(", told %s, poll %d %x\n", said, poll(&one, 1, 1000), one.revents);
    read(late, &(char){0}, 1);
    /* The first one is closed; and the second. */
    int third = dup(other);
    int closed[] = {set, other};
    for (int at = 0; at < 2; at++) {
        close(closed[at]);
        far_ok(far("put 0 y"));
        printf("closed: %s", told(third, 2000));
        far_ok(far("put 1 y"));
        printf(" %s", told(third, 2000));
        read(late, &(char){0}, 1);
        printf(", by the closed one %s %s\n", told(closed[at], 0), result(epoll_ctl(closed[at], EPOLL_CTL_DEL, fd, NULL)));
    }
    printf("left: %s", result(epoll_ctl(third, EPOLL_CTL_DEL, fd, NULL)));
    far_ok(far("put 0 y"));
    printf(" %s\n", told(third, 20));
    close(third);
    /* Its number is reused, for another set. */
    set = epoll_create1(EPOLL_CLOEXEC), other = epoll_create1(EPOLL_CLOEXEC);
    printf("anew: %s", enters(set, late, EPOLLIN, 1));
    far_ok(far("put 1 y"));
    printf(", %s", told(set, 2000));
    printf(", %s\n", told(other, 20));
    int all[] = {set, other, late, fd, listener};
    for (int at = 0; at < 5; at++)
        close(all[at]);
}

/* Duplicates that are closed, or whose original is, before anything was added. */
static void duplicated_before(void)
{
    int low = epoll_create1(0), set = fcntl(low, F_DUPFD, 40), fd = near_accepted(0);
    close(low);
    printf("moved: %s", told(set, 20));
    printf(", entered %s", enters(set, fd, EPOLLIN, 5));
    far_ok(far("put 0 x"));
    printf(", told %s\n", told(set, 2000));
    close(set);
    int first = epoll_create1(0), second = dup(first);
    close(second);
    /* The same number again. */
    int next = epoll_create1(0), its = dup(next);
    printf("anew: %s", enters(its, fd, EPOLLIN, 6));
    printf(", told %s", told(next, 2000));
    printf(", the first %s\n", told(first, 20));
    int all[] = {first, next, its, fd};
    for (int at = 0; at < 4; at++)
        close(all[at]);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    int set = epoll_create1(0);
    asleep("one", set, waits, set);
    close(set);
    nested();
    nested_by_turns();
    changed_within();
    several();
    listens();
    one_listener_by_two_ways();
    forked();
    forked_behind();
    closed_while_somebody_sleeps();
    number_of_a_set_that_is_closed();
    duplicated();
    duplicated_before();
    return 0;
}

/* Descriptors that one thread has created and another one uses, waits for, duplicates and closes. With a stack for each
 * thread (UNCORK_STACK_THREADS) these are on several stacks. */
#include "far.h"
#include <stdatomic.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static int made[4];
static char said[64];

static void *makes_accepted(void *at)
{
    made[(long)at] = near_accepted((int)(long)at);
    return NULL;
}

static void *makes_connected(void *at)
{
    made[(long)at] = near_connected((int)(long)at);
    return NULL;
}

/* Returns connection number `at` of the other host, created by a thread that has ended since. */
static int by_another(void *(*makes)(void *), int at)
{
    pthread_t thread;
    pthread_create(&thread, NULL, makes, (void *)(long)at);
    pthread_join(thread, NULL);
    return made[at];
}

/* Calls `makes` with a number, in a thread that goes on until it is told to end. */
static atomic_int ends;
static sem_t there;
static void *(*makes_what)(void *);

static void *stays(void *at)
{
    makes_what(at);
    sem_post(&there);
    while (!atomic_load(&ends))
        sleep_ms(1);
    return NULL;
}

static pthread_t stay(void *(*makes)(void *), int at)
{
    pthread_t thread;
    makes_what = makes;
    pthread_create(&thread, NULL, stays, (void *)(long)at);
    sem_wait(&there);
    return thread;
}

/* Three threads, each with a connection, that run meanwhile. */
static pthread_t three[3];

static void begin_three(void)
{
    atomic_store(&ends, 0);
    for (int at = 0; at < 3; at++)
        three[at] = stay(at == 1 ? makes_connected : makes_accepted, at);
}

static void end_three(void)
{
    atomic_store(&ends, 1);
    for (int at = 0; at < 3; at++)
        pthread_join(three[at], NULL);
}

static void used_by_another(void)
{
    void *(*makers[])(void *) = {makes_accepted, makes_connected};
    for (int at = 0; at < 2; at++) {
        int fd = by_another(makers[at], 0), queued = -1;
        char bytes[8];
        far_ok(far("put 0 x"));
        printf("of a thread that has ended: read %s", result(read(fd, bytes, sizeof bytes)));
        printf(", written %s", result(write(fd, "yes", 3)));
        set_nonblocking(fd, true);
        printf(", not blocking %s", result(read(fd, bytes, 1)));
        printf(", option %s", result(setsockopt(fd, SOL_TCP, TCP_NODELAY, &(int){1}, sizeof(int))));
        ioctl(fd, FIONREAD, &queued);
        printf(", queued %d, shut %s", queued, result(shutdown(fd, SHUT_WR)));
        close(fd);
        printf(", it has %s\n", far("end 0"));
    }
}

static void waited_for_together(void)
{
    struct epoll_event events[4];
    struct pollfd fds[4];
    int set = epoll_create1(0), ends_of[2];
    begin_three();
    pipe(ends_of);
    made[3] = ends_of[0];
    for (int at = 0; at < 4; at++) {
        struct epoll_event event = {EPOLLIN, {.u64 = (uint64_t)at}};
        if (epoll_ctl(set, EPOLL_CTL_ADD, made[at], &event))
            fail("epoll_ctl");
        fds[at] = (struct pollfd){made[at], POLLIN, 0};
    }
    printf("of several threads: nothing %d %d", epoll_wait(set, events, 4, 0), poll(fds, 4, 0));
    for (int at = 0; at < 3; at++) {
        far_ok(far("later 20 put %d x", at));
        printf(", %d:", at);
        printf(" %d", epoll_wait(set, events, 4, 2000));
        printf(" %d", (int)events[0].data.u64);
        printf(" %d %d", poll(fds, 4, 2000), fds[at].revents);
        read(made[at], &(char){0}, 1);
        far_ok(far("later 20 put %d x", at));
        printf(" %d %d", poll(fds, 4, 2000), fds[at].revents);
        read(made[at], &(char){0}, 1);
    }
    /* One at a time, and each is reported. */
    for (int at = 0; at < 3; at++)
        far_ok(far("put %d x", at));
    write(ends_of[1], "x", 1);
    sleep_ms(30);
    int heard[4] = {0};
    for (int round = 0; round < 100; round++)
        if (epoll_wait(set, events, 1, 0) == 1)
            heard[events[0].data.u64]++;
    printf(", one at a time:");
    for (int at = 0; at < 4; at++)
        printf(" %s", yes(heard[at] > 0));
    printf(", all %d %d\n", epoll_wait(set, events, 4, 0) >= 3, poll(fds, 4, 0));
    end_three();
    for (int at = 0; at < 4; at++)
        close(made[at]);
    close(ends_of[1]);
    close(set);
}

static void *waits(void *set)
{
    struct epoll_event event = {0};
    int count = epoll_wait((int)(long)set, &event, 1, 2000);
    snprintf(said, sizeof said, "%d %x", count, event.events);
    return NULL;
}

static void *polls(void *set)
{
    struct pollfd one = {(int)(long)set, POLLIN, 0};
    int count = poll(&one, 1, 2000);
    snprintf(said, sizeof said, "%d %x", count, one.revents);
    return NULL;
}

/* A thread already waits when another thread's descriptor is added, to the set or to a nested one. */
static void entered_while_waiting(void)
{
    for (int way = 0; way < 3; way++) {
        int inner = epoll_create1(0), outer = epoll_create1(0);
        struct epoll_event event = {EPOLLIN, {.u64 = 7}};
        pthread_t thread;
        begin_three();
        epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
        said[0] = 0;
        pthread_create(&thread, NULL, way == 2 ? polls : waits, (void *)(long)(way ? outer : inner));
        sleep_ms(30);
        epoll_ctl(inner, EPOLL_CTL_ADD, made[0], &event);
        epoll_ctl(inner, EPOLL_CTL_ADD, made[1], &event);
        sleep_ms(30);
        printf("entered while another waits: still waits %s", yes(!*said));
        far_ok(far("put 1 x"));
        pthread_join(thread, NULL);
        printf(", then %s\n", said);
        end_three();
        for (int at = 0; at < 3; at++)
            close(made[at]);
        close(inner);
        close(outer);
    }
}

static void copied_and_closed(void)
{
    char bytes[8];
    begin_three();
    int copy = dup(made[0]);
    close(made[0]);
    far_ok(far("put 0 x"));
    printf("copied by another: %s", result(read(copy, bytes, sizeof bytes)));
    write(copy, "still", 5);
    close(copy);
    printf(", it has %s", far("end 0"));
    /* Onto one of another thread's. */
    printf(", onto another %s", yes(dup2(made[1], made[2]) == made[2]));
    printf(", which has %s", far("end 2"));
    close(made[1]);
    write(made[2], "x", 1);
    close(made[2]);
    printf(", and the one %s\n", far("end 1"));
    end_three();
}

static int listener, port;

static void *listens(void *unused UNUSED)
{
    listener = near_listener(near_address, &port);
    return NULL;
}

static void *accepts(void *unused UNUSED)
{
    made[0] = accept(listener, NULL, NULL);
    return NULL;
}

/* A listener of a thread that has ended, from which others accept. */
static void listener_of_another(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, listens, NULL);
    pthread_join(thread, NULL);
    for (int round = 0; round < 3; round++) {
        pthread_create(&thread, NULL, accepts, NULL);
        sleep_ms(10);
        far("connect 0 %s %d", near_address, port);
        pthread_join(thread, NULL);
        write(made[0], "x", 1);
        close(made[0]);
        printf("accepted by another: %s, ", far("end 0"));
        far("close 0");
    }
    close(listener);
    printf("closed %s\n", yes(atoi(far("connect 0 %s %d", near_address, port)) <= 0));
}

/* Descriptors of threads belong to their process, and to its child. */
static void forked(void)
{
    char byte;
    begin_three();
    pid_t child = fork();
    if (child == 0) {
        for (int at = 0; at < 2; at++)
            if (write(made[at], "c", 1) != 1)
                _exit(1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("forked: %d", status);
    for (int at = 0; at < 3; at++) {
        far_ok(far("put %d x", at));
        printf(", read %s", result(read(made[at], &byte, 1)));
        write(made[at], "p", 1);
        close(made[at]);
        printf(" it has %s", far("end %d", at));
    }
    printf("\n");
    end_three();
    /* The child's threads have stacks of their own again. */
    child = fork();
    if (child == 0) {
        int fd = by_another(makes_connected, 0);
        write(fd, "child", 5);
        close(fd);
        _exit(strcmp(far("end 0"), "\"child\" and the end"));
    }
    waitpid(child, &status, 0);
    printf("a thread of a child: %d\n", status);
}

static void *talks(void *at)
{
    int fd = made[(long)at], right = 0;
    char byte;
    while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1)
        right++;
    close(fd);
    return (void *)(long)right;
}

/* Threads that end leave behind only what is open: there are more of them than stacks (64, parts.rs). */
static void many_threads(void)
{
    int right = 0;
    for (int round = 0; round < 70; round++) {
        int fd = by_another(makes_connected, 0);
        right += write(fd, "x", 1) == 1;
        close(fd);
        right += !strcmp(far("end 0"), "\"x\" and the end");
        far("close 0");
    }
    printf("one thread after the other: %d\n", right);
    pthread_t threads[3];
    begin_three();
    for (int at = 0; at < 3; at++)
        pthread_create(&threads[at], NULL, talks, (void *)(long)((at + 1) % 3));
    for (int round = 0; round < 20; round++)
        for (int at = 0; at < 3; at++)
            far_ok(far("put %d x", at));
    for (int at = 0; at < 3; at++) {
        void *count;
        far_ok(far("shut %d 1", at));
        pthread_join(threads[(at + 2) % 3], &count);
        printf("echoed %ld: %s ", (long)count, far("end %d", at));
    }
    printf("\n");
    end_three();
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    sem_init(&there, 0, 0);
    used_by_another();
    waited_for_together();
    entered_while_waiting();
    copied_and_closed();
    listener_of_another();
    forked();
    many_threads();
    return 0;
}

/* Threads that are cancelled in the middle of a call end as cancelled threads should, and leave no
 * lock held. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>

static int pair[2], listener, cleaned;
static char much[1 << 20];

static void cleanup(void *unused UNUSED) { cleaned++; }

static void in_read(void) { (void)!read(pair[0], much, 1); }
static void in_recv(void) { recv(pair[0], much, 1, 0); }
static void in_recvmsg(void)
{
    struct iovec part = {much, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    recvmsg(pair[0], &message, 0);
}
static void in_write(void)
{
    for (;;)
        (void)!write(pair[0], much, sizeof much);
}
static void in_send(void)
{
    for (;;)
        send(pair[0], much, sizeof much, 0);
}
static void in_accept(void) { accept(listener, NULL, NULL); }
static void in_poll(void) { poll(&(struct pollfd){pair[0], POLLIN, 0}, 1, -1); }
static void in_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair[0], &set);
    select(pair[0] + 1, &set, NULL, NULL, NULL);
}
static void in_epoll(void)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event);
    epoll_wait(set, &event, 1, -1);
}
static void in_sleep(void) { sleep(100); }
static void after_write(void)
{
    put(pair[0], "held?");
    (void)!read(pair[0], much, 1);
}

struct call {
    const char *name;
    void (*body)(void);
};

static void *run(void *argument)
{
    struct call *call = argument;
    pthread_cleanup_push(cleanup, NULL);
    call->body();
    pthread_cleanup_pop(0);
    return NULL;
}

static void *usable(void *unused UNUSED)
{
    char byte = 0;
    put(pair[1], "q");
    ssize_t got = recv(pair[0], &byte, 1, 0);
    printf("  the socket is usable after: %s\n", yes(got == 1 && byte == 'q'));
    return NULL;
}

static void cancel(struct call *call, long delay_ms, bool writes)
{
    pthread_t thread, other;
    void *end = NULL;
    tcp_pair(pair);
    cleaned = 0;
    pthread_create(&thread, NULL, run, call);
    sleep_ms(delay_ms);
    pthread_cancel(thread);
    pthread_join(thread, &end);
    printf("%s after %ld ms: cancelled %s, clean-up handlers run %d\n", call->name, delay_ms,
           yes(end == PTHREAD_CANCELED), cleaned);
    if (!writes) {
        pthread_create(&other, NULL, usable, NULL);
        pthread_join(other, NULL);
    }
    close(pair[0]);
    if (call->body == after_write)
        show_stream("  what was written", pair[1]);
    close(pair[1]);
}

static void *deferred(void *unused UNUSED)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    for (int i = 0; i < 20; i++) {
        put(pair[0], "a");
        sleep_ms(1);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    for (;;)
        sleep_ms(1000);
    return NULL;
}

static void not_cancelled_while_disabled(void)
{
    pthread_t thread;
    void *end = NULL;
    tcp_pair(pair);
    pthread_create(&thread, NULL, deferred, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &end);
    close(pair[0]);
    printf("cancelled %s\n", yes(end == PTHREAD_CANCELED));
    show_stream("all writes made while cancellation was off", pair[1]);
}

int main(void)
{
    struct sockaddr_in address;
    listener = tcp_listener(&address);
    struct call calls[] = {{"read", in_read},     {"recv", in_recv},     {"recvmsg", in_recvmsg},
                           {"accept", in_accept}, {"poll", in_poll},     {"select", in_select},
                           {"epoll", in_epoll},   {"sleep", in_sleep},   {"write, read", after_write},
                           {"write", in_write},   {"send", in_send}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool writes = calls[i].body == in_write || calls[i].body == in_send;
        cancel(&calls[i], 20, writes);
        /* Pending before the call begins; the write before the read would be cancelled too. */
        if (calls[i].body != after_write)
            cancel(&calls[i], 0, writes);
    }
    not_cancelled_while_disabled();
    return 0;
}

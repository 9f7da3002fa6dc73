/* What is read back from a socket is the same as without the library. */
#include "common.h"
#include <linux/sockios.h>

static int option(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    if (getsockopt(fd, IPPROTO_TCP, name, &value, &length) || length != sizeof value)
        fail("getsockopt %d", name);
    return value;
}

static void set(int fd, int name, int value)
{
    if (setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value))
        fail("setsockopt %d", name);
}

static void nodelay_and_cork(void)
{
    int fds[2];
    tcp_pair(fds);
    for (int step = 0; step < 8; step++) {
        int name = step & 1 ? TCP_CORK : TCP_NODELAY;
        set(fds[0], name, step < 2 || (step & 4));
        put(fds[0], "abc");
        printf("step %d: NODELAY %d CORK %d, at the other end %d %d\n", step,
               option(fds[0], TCP_NODELAY), option(fds[0], TCP_CORK),
               option(fds[1], TCP_NODELAY), option(fds[1], TCP_CORK));
    }
    close(fds[0]);
    show_stream("all that was written", fds[1]);
}

static void inherited(void)
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    set(listener, TCP_NODELAY, 1);
    if (connect(client, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    put(server, "hello");
    printf("accepted: NODELAY %d CORK %d, close-on-exec %d, non-blocking %s\n",
           option(server, TCP_NODELAY), option(server, TCP_CORK), fcntl(server, F_GETFD),
           yes(fcntl(server, F_GETFL) & O_NONBLOCK));
}

/* As programs do that move a socket to another number before they use it. */
static void moved(void)
{
    struct sockaddr_in address;
    int first = tcp_listener(&address);
    close(first);
    int made = socket(AF_INET, SOCK_STREAM, 0), listener = fcntl(made, F_DUPFD_CLOEXEC, 20), on = 1;
    close(made);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 5))
        fail("listener");
    int client = socket(AF_INET, SOCK_STREAM, 0), copy = dup(client);
    if (connect(client, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    int server = accept(listener, NULL, NULL);
    printf("moved before it listens: NODELAY %d, accepted %d", option(listener, TCP_NODELAY), option(server, TCP_NODELAY));
    for (int i = 0; i < 3; i++) {
        put(client, "hello");
        put(server, "hello");
    }
    printf(", after writes %d\n", option(server, TCP_NODELAY));
    printf("copied before it is connected: NODELAY %d, of the copy %d\n", option(client, TCP_NODELAY), option(copy, TCP_NODELAY));
    set(copy, TCP_NODELAY, 1);
    printf("set by the copy: NODELAY %d, of the copy %d\n", option(client, TCP_NODELAY), option(copy, TCP_NODELAY));
    close(copy);
    close(client);
    close(server);
    close(listener);
}

static void queues(void)
{
    int fds[2], mine = -1, other = -1;
    char bytes[100];
    tcp_pair(fds);
    memset(bytes, 'x', sizeof bytes);
    if (write(fds[0], bytes, 60) != 60 || write(fds[0], bytes, 40) != 40)
        fail("write");
    /* Once the output queue is reported empty, the other end has received everything. */
    double start = now_ms();
    do {
        if (ioctl(fds[0], SIOCOUTQ, &mine))
            fail("SIOCOUTQ");
        if (mine < 0 || mine > 100)
            printf("FAIL SIOCOUTQ of 100 written bytes is %d\n", mine);
    } while (mine && now_ms() - start < 1000);
    if (ioctl(fds[1], FIONREAD, &other))
        fail("FIONREAD");
    printf("output queue %d, then FIONREAD at the other end %d\n", mine, other);
    int unsent = -1;
    put(fds[0], "y");
    ioctl(fds[0], SIOCOUTQNSD, &unsent);
    sleep_ms(20);
    ioctl(fds[0], SIOCOUTQNSD, &unsent);
    ioctl(fds[1], FIONREAD, &other);
    printf("20 ms later: not sent %d, FIONREAD %d\n", unsent, other);
    ioctl(fds[0], FIONREAD, &mine);
    printf("FIONREAD of the writer's own end: %d\n", mine);
    put(fds[1], "back");
    sleep_ms(20);
    ioctl(fds[0], FIONREAD, &mine);
    printf("after an answer: %d\n", mine);
}

static void information(void)
{
    int fds[2];
    struct tcp_info info;
    socklen_t length = sizeof info;
    tcp_pair(fds);
    for (int i = 0; i < 10; i++)
        put(fds[0], "0123456789");
    sleep_ms(60);
    if (getsockopt(fds[0], IPPROTO_TCP, TCP_INFO, &info, &length))
        fail("TCP_INFO");
    printf("TCP_INFO: state %d, unacked %u, length %s\n", info.tcpi_state, info.tcpi_unacked,
           yes(length >= 104));
    /* Right after a write it counts what was written, wherever that is held. */
    struct {
        struct tcp_info info;
        char more[256];
    } big;
    put(fds[0], "z");
    length = sizeof big;
    memset(&big, 0, sizeof big);
    if (getsockopt(fds[0], IPPROTO_TCP, TCP_INFO, &big, &length))
        fail("TCP_INFO");
    printf("TCP_INFO after a write: state %d, MSS %s\n", big.info.tcpi_state,
           yes(big.info.tcpi_snd_mss > 500));
}

int main(void)
{
    nodelay_and_cork();
    inherited();
    moved();
    queues();
    information();
    return 0;
}

/* Signals about a socket (O_ASYNC, F_SETOWN). Only the kernel sends them, so it has those sockets: they are not counted. */
#include "far.h"

static volatile sig_atomic_t told_of_any, told_of_urgent;
static void on_any(int signal UNUSED) { told_of_any++; }
static void on_urgent(int signal UNUSED) { told_of_urgent++; }

/* They may come a little later than their cause. */
static const char *is_told(volatile sig_atomic_t *told)
{
    for (int tries = 0; !*told && tries < 200; tries++)
        sleep_ms(5);
    const char *is = yes(*told);
    *told = 0;
    return is;
}

/* Prints which signals a socket may send, and to which process. */
static void show(const char *what, int fd)
{
    int owner = fcntl(fd, F_GETOWN);
    printf(", %s %s", what, fcntl(fd, F_GETFL) & O_ASYNC ? "by signals" : "without");
    printf(" to %s", owner == getpid() ? "this one" : owner ? "another one" : "nobody");
}

static int on(int fd, int way)
{
    switch (way) {
    case 0: return fcntl(fd, F_SETFL, O_ASYNC);
    case 1: return ioctl(fd, FIOASYNC, &(int){1});
    default: return 0;
    }
}

/* By O_ASYNC, FIOASYNC, or with an owner alone. */
static void before_connect(int way)
{
    struct sockaddr_storage name;
    int port = atoi(far("listen 0 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    int fd = far_socket(0);
    printf("before connect, way %d: owner %s", way, result(fcntl(fd, F_SETOWN, getpid())));
    printf(", on %s", result(on(fd, way)));
    printf(", connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 0 0"));
    sleep_ms(20);
    told_of_any = told_of_urgent = 0;
    far_ok(far("put 0 x"));
    if (way < 2)
        printf(", told of something %s", is_told(&told_of_any));
    printf(", read %s", result(read(fd, &(char){0}, 1)));
    far_ok(far("urgent 0"));
    printf(", told of something urgent %s", is_told(&told_of_urgent));
    show("it is", fd);
    printf("\n");
    close(fd);
    far("close 0");
}

static void before_listen(int way)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = far_socket(0);
    bind(fd, (struct sockaddr *)&name, length);
    printf("before listen, way %d: owner %s", way, result(fcntl(fd, F_SETOWN, getpid())));
    printf(", on %s", result(on(fd, way)));
    printf(", listen %s", result(listen(fd, 8)));
    getsockname(fd, (struct sockaddr *)&name, &length);
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
    told_of_any = 0;
    int port = far_port(&name), far_end = atoi(far("connect 0 %s %d", near_address, port));
    if (way < 2)
        printf(", told of somebody %s", is_told(&told_of_any));
    int one = accept(fd, NULL, NULL);
    show("it is", fd);
    show("and its connection", one);
    if (way == 2)
        far_count(far_end);
    told_of_any = 0;
    far_ok(far("put 0 x"));
    printf(", read %s", result(read(one, &(char){0}, 1)));
    sleep_ms(20);
    printf(", told of that %d\n", (int)told_of_any);
    close(one);
    close(fd);
    far("close 0");
}

static int far_end_of(int fd)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    getpeername(fd, (struct sockaddr *)&name, &length);
    return far_port(&name);
}

/* A connection moves to the kernel when it gets an owner, and not before. */
static void behind(int by_accept, int way)
{
    struct {
        int type;
        pid_t pid;
    } owner = {1, getpid()}, wrong = {77, 1};
    int fd = by_accept ? near_accepted(0) : near_connected(0), other = near_accepted(1), own = getpid();
    printf("behind %s, way %d:", by_accept ? "accept" : "connect", way);
    printf(" off %s", result(ioctl(fd, FIOASYNC, &(int){0})));
    printf(", nobody %s", result(fcntl(fd, F_SETOWN, 0)));
    printf(", no signal of its own %s", result(fcntl(fd, F_SETSIG, 0)));
    printf(", a signal that there is not %s", result(fcntl(fd, F_SETSIG, 99)));
    printf(", no such kind %s", result(fcntl(fd, F_SETOWN_EX, &wrong)));
    printf(", nowhere %s", result(fcntl(fd, F_SETOWN_EX, NULL)));
    printf(" %s", result(ioctl(fd, FIOSETOWN, NULL)));
    show("it is", fd);
    far_count(far_end_of(fd));
    long set = way == 0 ? fcntl(fd, F_SETOWN, own) : way == 1 ? fcntl(fd, F_SETOWN_EX, &owner) : ioctl(fd, FIOSETOWN, &own);
    printf(", owner %s", result(set));
    show("it is", fd);
    show("another one", other);
    told_of_urgent = 0;
    far_ok(far("urgent 0"));
    printf(", told of something urgent %s", is_told(&told_of_urgent));
    far_ok(far("put 0 x"));
    printf(", read %s", result(read(fd, &(char){0}, 1)));
    printf(", write %s", result(write(fd, "ab", 2)));
    printf(", by signals %s", result(fcntl(fd, F_SETFL, O_ASYNC)));
    sleep_ms(20);
    told_of_any = 0;
    far_ok(far("put 0 y"));
    printf(", told of something %s", is_told(&told_of_any));
    far_ok(far("put 1 z"));
    printf(", another reads %s", result(read(other, &(char){0}, 1)));
    far_count(far_end_of(other));
    close(fd);
    close(other);
    printf("\n");
    far("close 0");
    far("close 1");
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    sigaction(SIGIO, &(struct sigaction){.sa_handler = on_any, .sa_flags = SA_RESTART}, NULL);
    sigaction(SIGURG, &(struct sigaction){.sa_handler = on_urgent, .sa_flags = SA_RESTART}, NULL);
    for (int way = 0; way < 3; way++) {
        before_connect(way);
        before_listen(way);
        behind(way != 1, way);
    }
    return 0;
}

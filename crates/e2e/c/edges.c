/* Readiness: level- and edge-triggered, one-shot, nested and shared epoll sets, and connect. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int wait_for(int set, struct epoll_event *event, int ms)
{
    int got;
    do
        got = epoll_wait(set, event, 1, ms);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Starts a peer in another process, which sends `messages` messages of several writes 5 ms apart.
   */
static pid_t talker(int fds[2], int messages)
{
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        for (int i = 0; i < messages; i++) {
            put(fds[1], "m");
            sleep_ms(5);
        }
        char byte;
        (void)!read(fds[1], &byte, 1);
        _exit(0);
    }
    close(fds[1]);
    return child;
}

/* Each arrival is reported once. */
static void edge_triggered(void)
{
    int fds[2], set = epoll_create1(0), reports = 0;
    char bytes[64];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    ssize_t total = 0;
    tcp_pair(fds);
    set_nonblocking(fds[0], true);
    pid_t child = talker(fds, 10);
    epoll_ctl(set, EPOLL_CTL_ADD, fds[0], &event);
    while (total < 10 && wait_for(set, &event, 1000) == 1) {
        reports++;
        for (ssize_t got; (got = read(fds[0], bytes, sizeof bytes)) > 0;)
            total += got;
    }
    int more = wait_for(set, &event, 30);
    printf("edge-triggered: bytes %zd, reports at most one a message %s, then %d\n", total,
           yes(reports <= 10), more);
    close(fds[0]);
    waitpid(child, NULL, 0);
    close(set);
}

/* After EAGAIN the socket is reported writable again, once the other end has made room. */
static void writable_edge(void)
{
    int fds[2], set = epoll_create1(0), small = 16384;
    static char bytes[1000], sink[1 << 20];
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    tcp_pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    set_nonblocking(fds[0], true);
    set_nonblocking(fds[1], true);
    epoll_ctl(set, EPOLL_CTL_ADD, fds[0], &event);
    printf("writable at first: %d", wait_for(set, &event, 100));
    printf(", again: %d\n", wait_for(set, &event, 10));
    ssize_t written = 0, read_back = 0;
    for (int round = 0; round < 5; round++) {
        for (ssize_t sent; (sent = write(fds[0], bytes, sizeof bytes)) > 0;)
            written += sent;
        /* The kernel may still move bytes from one buffer to the other. */
        while (wait_for(set, &event, 20) == 1)
            for (ssize_t sent; (sent = write(fds[0], bytes, sizeof bytes)) > 0;)
                written += sent;
        for (ssize_t got; (got = read(fds[1], sink, sizeof sink)) > 0;)
            read_back += got;
        printf("round %d: writable after the other end has read: %d\n", round,
               wait_for(set, &event, 1000));
    }
    close(fds[0]);
    set_nonblocking(fds[1], false);
    read_back += (ssize_t)take(fds[1], sink, sizeof sink);
    printf("bytes lost or made up: %zd\n", written - read_back);
    close(fds[1]);
    close(set);
}

/* A non-blocking echo by one edge-triggered loop; a request in pieces, an answer in pieces. */
static void request_and_answer(void)
{
    int fds[2], set = epoll_create1(0), answers = 0, on = 1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP};
    char bytes[64];
    tcp_pair(fds);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        for (int i = 0; i < 50; i++) {
            put(fds[1], "req");
            put(fds[1], "uest");
            if (take(fds[1], bytes, 6) != 6 || memcmp(bytes, "answer", 6))
                _exit(1);
        }
        _exit(0);
    }
    close(fds[1]);
    set_nonblocking(fds[0], true);
    epoll_ctl(set, EPOLL_CTL_ADD, fds[0], &event);
    ssize_t have = 0;
    double start = now_ms();
    bool closed = false;
    while (!closed && wait_for(set, &event, 3000) == 1) {
        for (ssize_t got; (got = recv(fds[0], bytes, sizeof bytes, 0)) >= 0;) {
            if ((closed = got == 0))
                break;
            for (have += got; have >= 7; have -= 7, answers++) {
                put(fds[0], "ans");
                put(fds[0], "wer");
            }
        }
    }
    printf("answers %d, closed %s, stuck %s\n", answers, yes(closed),
           yes(now_ms() - start > 2900));
    reap(child, "client");
    close(fds[0]);
    close(set);
}

static void shared_sets(void)
{
    int fds[2], inner = epoll_create1(0), outer = epoll_create1(0), second = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    tcp_pair(fds);
    epoll_ctl(inner, EPOLL_CTL_ADD, fds[0], &event);
    event.events = EPOLLIN;
    epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
    epoll_ctl(second, EPOLL_CTL_ADD, fds[0], &event);
    put(fds[1], "x");
    printf("outer set %d", wait_for(outer, &event, 1000));
    printf(", second set %d", wait_for(second, &event, 1000));
    printf(", inner set %d", wait_for(inner, &event, 1000));
    printf(", inner again (one-shot) %d", wait_for(inner, &event, 10));
    printf(", second again (level) %d\n", wait_for(second, &event, 10));
    printf("adding twice: %s\n", result(epoll_ctl(second, EPOLL_CTL_ADD, fds[0], &event)));
    close(fds[0]);
    printf("after close: %d\n", wait_for(second, &event, 10));
    close(fds[1]);
    close(inner);
    close(outer);
    close(second);
}

static void connecting(void)
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address), client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int error = -1;
    socklen_t length = sizeof error;
    printf("connect: %s", result(connect(client, (struct sockaddr *)&address, sizeof address)));
    struct pollfd wait = {client, POLLOUT, 0};
    printf(", poll %d", poll(&wait, 1, 1000));
    getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length);
    printf(", SO_ERROR %d", error);
    printf(", again %s\n", result(connect(client, (struct sockaddr *)&address, sizeof address)));
    put(client, "hi");
    printf("read with nothing there: %s\n", result(read(client, &(char){0}, 1)));
    close(client);
    int server = accept(listener, NULL, NULL);
    show_stream("accepted later", server);
    close(server);
    close(listener);
    client = socket(AF_INET, SOCK_STREAM, 0);
    printf("connect to nobody: %s\n",
           result(connect(client, (struct sockaddr *)&address, sizeof address)));
    close(client);
    /* There is no answer while a connection already waits to be accepted. */
    listener = tcp_listener(&address);
    listen(listener, 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    connect(client, (struct sockaddr *)&address, sizeof address);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(late, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 100000}, sizeof(struct timeval));
    for (int round = 0; round < 2; round++) {
        double begun = now_ms();
        printf("connect with a time: %s",
               result(connect(late, (struct sockaddr *)&address, sizeof address)));
        printf(", waited %s\n", yes(now_ms() - begun > 80));
    }
    close(late);
    close(client);
    close(listener);
}

/* Descriptors that are not TCP sockets are left alone. */
static void others(void)
{
    int ends[2], datagrams[2], event = eventfd(0, 0);
    uint64_t value = 3;
    char text[8] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams))
        fail("socketpair");
    put(ends[0], "a");
    put(ends[0], "b");
    printf("unix stream: %zd at once\n", recv(ends[1], text, 8, MSG_DONTWAIT));
    put(datagrams[0], "a");
    put(datagrams[0], "bc");
    printf("datagrams: %zd", recv(datagrams[1], text, 8, MSG_DONTWAIT));
    printf(" %zd\n", recv(datagrams[1], text, 8, MSG_DONTWAIT));
    printf("eventfd: %zd", write(event, &value, 8));
    printf(" %zd\n", read(event, &value, 8));
    int udp = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    bind(udp, (struct sockaddr *)&address, length);
    getsockname(udp, (struct sockaddr *)&address, &length);
    connect(other, (struct sockaddr *)&address, length);
    put(other, "one");
    put(other, "three");
    printf("UDP: %zd", recv(udp, text, 8, MSG_DONTWAIT));
    printf(" %zd\n", recv(udp, text, 8, MSG_DONTWAIT));
}

/* Control data whose header says more or less than there is: the kernel's to refuse. */
static void control_data(void)
{
    const size_t lengths[] = {0, 1, sizeof(struct cmsghdr) - 1, CMSG_LEN(64), 0x10000000, (size_t)-1};
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
        fail("socketpair");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec octet = {"x", 1};
        struct msghdr message = {.msg_iov = &octet, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        *(struct cmsghdr *)control =
            (struct cmsghdr){.cmsg_len = lengths[i], .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        printf("control data of %zx: %s\n", lengths[i], result(sendmsg(ends[0], &message, 0)));
    }
    close(ends[0]);
    close(ends[1]);
}

/* Receives with a low-water mark of 100, while another process writes 10 octets, 10 more and then 150. */
static void receive_many(const char *what, int fds[2], int in)
{
    char bytes[200];
    pid_t child = fork();
    if (child == 0) {
        static char many[150];
        close(fds[0]);
        put(fds[1], "0123456789");
        sleep_ms(40);
        put(fds[1], "0123456789");
        sleep_ms(20);
        (void)!write(fds[1], many, sizeof many);
        (void)!read(fds[1], bytes, 1);
        _exit(0);
    }
    close(fds[1]);
    ssize_t first;
    while ((first = recv(in, bytes, 5, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
        sleep_ms(1);
    printf("%s: told not to wait %zd", what, first);
    printf(", then %zd\n", recv(in, bytes, sizeof bytes, 0));
    shutdown(in, SHUT_RDWR);
    waitpid(child, NULL, 0);
}

static void set_low_water(int fd, int mark)
{
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark))
        fail("SO_RCVLOWAT");
}

/* Passes a descriptor to this process itself. */
static int passed(int fd)
{
    int ends[2], got = -1;
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || sendmsg(ends[0], &message, 0) != 1 || recvmsg(ends[1], &message, 0) != 1)
        fail("SCM_RIGHTS");
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    close(ends[0]);
    close(ends[1]);
    return got;
}

/* recv waits for the low-water mark, or its time. */
static void low_water(void)
{
    struct sockaddr_in address;
    int fds[2], listener = tcp_listener(&address);
    tcp_pair(fds);
    set_low_water(fds[0], 100);
    receive_many("low-water mark", fds, fds[0]);
    close(fds[0]);
    tcp_pair(fds);
    int copy = dup(fds[0]);
    set_low_water(copy, 100);
    receive_many("of a duplicate", fds, fds[0]);
    close(copy);
    close(fds[0]);
    tcp_pair(fds);
    set_low_water(fds[0], 100);
    int received = passed(fds[0]);
    receive_many("of what was passed", fds, received);
    close(received);
    close(fds[0]);
    set_low_water(listener, 100);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fds[1], (struct sockaddr *)&address, sizeof address) || (fds[0] = accept(listener, NULL, NULL)) < 0)
        fail("connect");
    receive_many("of the listener", fds, fds[0]);
    close(fds[0]);
    close(listener);
    for (int ms = 1; ms <= 50; ms += 49) {
        char bytes[200];
        tcp_pair(fds);
        set_low_water(fds[0], 100);
        setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, ms * 1000}, sizeof(struct timeval));
        put(fds[1], "0123456789");
        poll(NULL, 0, 20);
        double begun = now_ms();
        printf("in %d ms: %s", ms, result(recv(fds[0], bytes, sizeof bytes, 0)));
        printf(", waited %s", yes(now_ms() - begun > ms * 0.9));
        printf(", then %s\n", result(recv(fds[0], bytes, sizeof bytes, 0)));
        close(fds[0]);
        close(fds[1]);
    }
}

static void urgent(void)
{
    int fds[2], mark = -1;
    char text[8] = {0};
    tcp_pair(fds);
    put(fds[0], "ab");
    if (send(fds[0], "!", 1, MSG_OOB) != 1)
        fail("MSG_OOB");
    put(fds[0], "cd");
    sleep_ms(20);
    printf("urgent: read %zd", read(fds[1], text, 8));
    ioctl(fds[1], SIOCATMARK, &mark);
    printf(", at mark %d", mark);
    printf(", urgent byte %zd", recv(fds[1], text, 1, MSG_OOB));
    printf(" %c", text[0]);
    printf(", rest %zd\n", read(fds[1], text, 8));
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    edge_triggered();
    writable_edge();
    request_and_answer();
    shared_sets();
    connecting();
    others();
    control_data();
    low_water();
    urgent();
    return 0;
}

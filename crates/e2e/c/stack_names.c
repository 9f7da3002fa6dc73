/* Names of sockets, and the ways in which connections and listeners are created. */
#include "far.h"
#include <sys/epoll.h>

static int near_port;

static const char *name_of(int fd, bool peer, socklen_t room)
{
    static char text[2][160];
    static int turn;
    char *into = text[turn ^= 1], address[64] = "?";
    struct sockaddr_storage name;
    socklen_t length = room;
    memset(&name, 0x55, sizeof name);
    int (*ask)(int, struct sockaddr *, socklen_t *) = peer ? getpeername : getsockname;
    if (ask(fd, (struct sockaddr *)&name, &length))
        return strerrorname_np(errno);
    if (room < 16) {
        snprintf(into, sizeof text[0], "cut of %d, next octet %x", (int)length, ((unsigned char *)&name)[room]);
        return into;
    }
    if (name.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&name)->sin_addr, address, sizeof address);
    if (name.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&name)->sin6_addr, address, sizeof address);
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&name;
    snprintf(into, sizeof text[0], "family %d %s of %d, port %s, flow %d scope %d", name.ss_family, address,
             (int)length, far_port(&name) == near_port ? "the listener's" : far_port(&name) ? "some" : "none",
             name.ss_family == AF_INET6 ? v6->sin6_flowinfo : 0, name.ss_family == AF_INET6 ? v6->sin6_scope_id : 0);
    return into;
}

static void names(const char *what, const char *bound, const char *to, bool only_v6)
{
    struct sockaddr_storage name, from;
    socklen_t length = far_name(&name, bound, 0), from_length = sizeof from;
    int fd = socket(name.ss_family, SOCK_STREAM, 0), flag = only_v6;
    if (name.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &flag, sizeof flag);
    printf("%s: bind %s", what, result(bind(fd, (struct sockaddr *)&name, length)));
    printf(", listen %s", result(listen(fd, 8)));
    getsockname(fd, (struct sockaddr *)&name, &length);
    near_port = far_port(&name);
    printf(", name %s", name_of(fd, false, 128));
    printf(", peer %s\n", name_of(fd, true, 128));
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
    int far_end = atoi(far("connect 9 %s %d", to, near_port));
    printf("  %s", yes(far_end > 0));
    if (far_end > 0) {
        int one = accept4(fd, (struct sockaddr *)&from, &from_length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        far_count(far_end);
        printf(", accept of %d family %d port %s", (int)from_length, from.ss_family,
               yes(far_port(&from) == far_end));
        printf(", name %s", name_of(one, false, 128));
        printf(", peer %s", name_of(one, true, 128));
        printf(", %s", name_of(one, true, 5));
        printf(", of -1 %s", name_of(one, true, (socklen_t)-1));
        close(one);
        far("close 9");
    }
    printf("\n");
    close(fd);
}

/* For a socket that was disconnected, and was not bound, the kernel returns the port that it had, which any may have. */
static const char *own_name(int fd, bool whole)
{
    static char text[160];
    snprintf(text, sizeof text, "%s", name_of(fd, false, 128));
    char *port = strstr(text, ", port ");
    if (!whole && port)
        *port = 0;
    return text;
}

/* The names of a socket before, while and after it is connected, or has failed to connect. */
static void names_of_failures(void)
{
    struct sockaddr_storage name, own;
    int port = atoi(far("listen 20 %s", far_address)), error;
    socklen_t length = far_name(&name, far_address, port), error_length = sizeof error;
    struct sockaddr nobody = {AF_UNSPEC, {0}};
    far("close 20");
    near_port = -1;
    for (int way = 0; way < 6; way++) {
        bool bound = way & 1, waits = way < 2;
        int fd = far_socket(waits ? 0 : SOCK_NONBLOCK);
        if (bound) {
            far_name(&own, near_address, 0);
            bind(fd, (struct sockaddr *)&own, length);
        }
        printf("failing, way %d: name %s", way, name_of(fd, false, 128));
        if (way > 3) {
            far_beside(&own, far_address, 7);
            printf(", connect %s", result(connect(fd, (struct sockaddr *)&own, length)));
            printf(", name %s, peer %s", name_of(fd, false, 128), name_of(fd, true, 128));
            printf(", nobody %s", result(connect(fd, &nobody, sizeof nobody)));
        } else {
            printf(", connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
            struct pollfd one = {fd, POLLOUT, 0};
            printf(", poll %d", poll(&one, 1, 1000));
            printf(" %x", one.revents);
            printf(", name %s, peer %s", own_name(fd, bound || !waits), name_of(fd, true, 128));
            if (!waits) {
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
                printf(", SO_ERROR %d", error);
                printf(", name %s", name_of(fd, false, 128));
                printf(", again %s", result(connect(fd, (struct sockaddr *)&name, length)));
            }
        }
        printf(", name %s, peer %s", own_name(fd, bound), name_of(fd, true, 128));
        set_nonblocking(fd, false);
        far("listen 20 %s %d", far_address, port);
        /* An instance reports the end of the first connection by itself. */
        sleep_ms(20);
        printf(", then %s", result(connect(fd, (struct sockaddr *)&name, length)));
        far_ok(far("accept 21 20"));
        far_count(port);
        far("close 20");
        printf(", name %s", name_of(fd, false, 128));
        printf(", nobody %s", result(connect(fd, &nobody, sizeof nobody)));
        printf(", name %s, peer %s", own_name(fd, bound), name_of(fd, true, 128));
        printf(", bind %s", result(bind(fd, (struct sockaddr *)&name, 3)));
        close(fd);
        printf(", it has %s\n", far("end 21 1000"));
        far("close 21");
    }
}

/* From a socket of one family to an address of another, unbound or bound to one, and other invalid addresses. */
static void families(void)
{
    const char *to[] = {"10.95.0.2", "fd95::2", "::ffff:10.95.0.2", "0.0.0.0", "::", "255.255.255.255", "10.95.0.255",
                        "224.0.0.1", "ff02::1", "10.95.0.1", "::1", "fe80::1", "::ffff:0.0.0.0"};
    const char *bound[] = {"", "10.95.0.1", "fd95::1", "::ffff:10.95.0.1", "::", "only v6", "0.0.0.0"};
    int ports[2] = {atoi(far("listen 40 0.0.0.0")), 0}, on = 1;
    char text[16];
    snprintf(text, sizeof text, "%d", ports[0]);
    ports[1] = atoi(far("listen 41 fd95::2 %s", text));
    printf("families: the same port %s\n", yes(ports[0] == ports[1]));
    for (int family = 0; family < 2; family++)
        for (size_t at = 0; at < sizeof bound / sizeof *bound; at++) {
            printf("family %d, bound %s:", family, bound[at]);
            for (size_t goal = 0; goal < sizeof to / sizeof *to; goal++) {
                struct sockaddr_storage name;
                int fd = socket(family ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
                setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 30000}, sizeof(struct timeval));
                if (!strcmp(bound[at], "only v6"))
                    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
                else if (*bound[at]) {
                    socklen_t length = far_name(&name, bound[at], 0);
                    if (bind(fd, (struct sockaddr *)&name, length)) {
                        printf(" %s", strerrorname_np(errno));
                        close(fd);
                        continue;
                    }
                    getsockname(fd, (struct sockaddr *)&name, &length);
                    if (far_port(&name) == ports[0]) {
                        /* The same by chance: at an address of this host it would connect to itself. */
                        close(fd);
                        goal--;
                        continue;
                    }
                }
                socklen_t length = far_name(&name, to[goal], ports[0]);
                long connected = connect(fd, (struct sockaddr *)&name, length);
                printf(" %s", result(connected));
                if (!connected) {
                    struct sockaddr_storage own;
                    length = sizeof own;
                    getsockname(fd, (struct sockaddr *)&own, &length);
                    char address[64] = "?";
                    void *where = own.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&own)->sin6_addr
                                                            : (void *)&((struct sockaddr_in *)&own)->sin_addr;
                    inet_ntop(own.ss_family, where, address, sizeof address);
                    printf(" %s", address);
                    length = sizeof own;
                    getpeername(fd, (struct sockaddr *)&own, &length);
                    where = own.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&own)->sin6_addr
                                                      : (void *)&((struct sockaddr_in *)&own)->sin_addr;
                    inet_ntop(own.ss_family, where, address, sizeof address);
                    printf(" %s", address);
                }
                printf(",");
                close(fd);
            }
            printf("\n");
        }
    far("close 40");
    far("close 41");
}

/* A connection is dissolved, and another one opened. */
static void disconnects(void)
{
    struct sockaddr_storage name;
    struct sockaddr nobody = {AF_UNSPEC, {0}};
    int set = epoll_create1(0);
    for (int way = 0; way < 2; way++) {
        socklen_t length = far_name(&name, far_address, atoi(far("listen 30 %s", far_address)));
        int fd, port;
        if (way == 0) {
            fd = far_socket(0);
            printf("dissolved: %s", result(connect(fd, (struct sockaddr *)&name, length)));
            far_ok(far("accept 31 30"));
        } else {
            int listener = near_listener(near_address, &port);
            far_count(atoi(far("connect 31 %s %d", near_address, port)));
            fd = accept(listener, NULL, NULL);
            printf("dissolved, accepted: listens no more %s",
                   result(connect(listener, &nobody, sizeof nobody)));
            printf(" %s", far("connect 32 %s %d", near_address, port));
            close(listener);
        }
        int copy = dup(fd);
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.u64 = 7}});
        write(fd, "x", 1);
        /* An instance sends asynchronously. */
        sleep_ms(20);
        printf(", no name %s", result(connect(fd, NULL, length)));
        printf(", none of 0 %s", result(connect(fd, NULL, 0)));
        printf(", of too many %s", result(connect(fd, (struct sockaddr *)&name, 200)));
        printf(", nobody %s", result(connect(fd, &nobody, sizeof nobody)));
        printf(", it has %s", far("end 31 1000"));
        far("close 31");
        printf(", peer %s", name_of(fd, true, 128));
        printf(", %s", name_of(copy, true, 128));
        close(copy);
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &(int){0}, &(socklen_t){sizeof(int)});
        printf(", read %s", result(read(fd, &(char){0}, 1)));
        printf(", again %s", result(connect(fd, (struct sockaddr *)&name, length)));
        far_ok(far("accept 31 30"));
        far_ok(far("put 31 y"));
        struct epoll_event event = {0, {.u64 = 0}};
        printf(", told %d", epoll_wait(set, &event, 1, 1000));
        printf(" %x %d", event.events, (int)event.data.u64);
        printf(", read %s", result(read(fd, &(char){0}, 1)));
        close(fd);
        printf(", it has %s\n", far("end 31 1000"));
        far("close 31");
        far("close 30");
    }
    close(set);
}

static void connects(void)
{
    struct sockaddr_storage name, other;
    int port = atoi(far("listen 20 %s", far_address)), error;
    socklen_t length = far_name(&name, far_address, port), error_length = sizeof error;
    /* Non-blocking. */
    int fd = far_socket(SOCK_NONBLOCK), set = epoll_create1(0);
    printf("not blocking: %s", result(connect(fd, (struct sockaddr *)&name, length)));
    struct pollfd one = {fd, POLLOUT, 0};
    printf(", poll %d", poll(&one, 1, 1000));
    printf(" %x", one.revents);
    error = -1;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
    printf(", SO_ERROR %d", error);
    printf(", again %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(", and again %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(", bind %s", result(bind(fd, (struct sockaddr *)&name, length)));
    printf(", listen %s", result(listen(fd, 1)));
    printf(", accept %s\n", result(accept(fd, NULL, NULL)));
    far_ok(far("accept 21 20"));
    close(fd);
    /* No listener. */
    far("close 20");
    fd = far_socket(0);
    printf("refused: %s", result(connect(fd, (struct sockaddr *)&name, length)));
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
    printf(", SO_ERROR %d", error);
    printf(", peer %s", name_of(fd, true, 128));
    printf(", write %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    printf(", read %s", result(read(fd, &(char){0}, 1)));
    port = atoi(far("listen 20 %s %d", far_address, port));
    printf(", to somebody now %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 21 20"));
    printf(", write %s\n", result(write(fd, "x", 1)));
    close(fd);
    far("close 20");
    fd = far_socket(SOCK_NONBLOCK);
    printf("refused, not blocking: %s", result(connect(fd, (struct sockaddr *)&name, length)));
    one = (struct pollfd){fd, POLLIN | POLLOUT, 0};
    printf(", poll %d", poll(&one, 1, 1000));
    printf(" %x", one.revents);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
    printf(", SO_ERROR %d", error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
    printf(", then %d", error);
    printf(", again %s", result(connect(fd, (struct sockaddr *)&name, length)));
    poll(&one, 1, 1000);
    printf(", and again %s\n", result(connect(fd, (struct sockaddr *)&name, length)));
    close(fd);
    /* In progress: there is no answer from an address that no host has. */
    far_beside(&other, far_address, 7);
    fd = far_socket(SOCK_NONBLOCK);
    printf("in progress: %s", result(connect(fd, (struct sockaddr *)&other, length)));
    printf(", again %s", result(connect(fd, (struct sockaddr *)&other, length)));
    one = (struct pollfd){fd, POLLIN | POLLOUT, 0};
    printf(", poll %d", poll(&one, 1, 30));
    printf(", write %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    printf(", read %s", result(read(fd, &(char){0}, 1)));
    printf(", peer %s", name_of(fd, true, 128));
    printf(", name %s", name_of(fd, false, 128));
    printf(", shutdown %s", result(shutdown(fd, SHUT_WR)));
    printf(", close %s\n", result(close(fd)));
    /* A caller that waits for the connection is told that it will not be established. */
    for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
        int error = 0;
        socklen_t octets = sizeof error;
        fd = far_socket(SOCK_NONBLOCK);
        connect(fd, (struct sockaddr *)&other, length);
        printf("given up %d: %s", how, result(shutdown(fd, how)));
        one = (struct pollfd){fd, POLLOUT, 0};
        printf(", poll %d", poll(&one, 1, 1000));
        printf(" %x", one.revents & (POLLERR | POLLHUP));
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &octets);
        printf(", SO_ERROR %s\n", strerror(error));
        close(fd);
    }
    fd = far_socket(0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 60000}, sizeof(struct timeval));
    double begun = now_ms();
    printf("with a time: %s", result(connect(fd, (struct sockaddr *)&other, length)));
    printf(", in time %s", yes(now_ms() - begun > 55 && now_ms() - begun < 300));
    printf(", again %s\n", result(connect(fd, (struct sockaddr *)&other, length)));
    close(fd);
    /* Added to an epoll set before it is connected. */
    port = atoi(far("listen 20 %s %d", far_address, 0));
    far_name(&name, far_address, port);
    fd = far_socket(SOCK_NONBLOCK);
    struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u64 = 5}};
    printf("in a set before: %s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)));
    connect(fd, (struct sockaddr *)&name, length);
    far_ok(far("accept 21 20"));
    printf(", told %d", epoll_wait(set, &event, 1, 1000));
    printf(" %x", event.events);
    event = (struct epoll_event){EPOLLIN, {.u64 = 6}};
    printf(", changed %s", result(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)));
    printf(", quiet %d", epoll_wait(set, &event, 1, 20));
    far_ok(far("put 21 x"));
    printf(", told %d", epoll_wait(set, &event, 1, 1000));
    printf(" %x %d", event.events, (int)event.data.u64);
    printf(", deleted %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, &event)));
    printf(", quiet %d\n", epoll_wait(set, &event, 1, 20));
    close(fd);
    close(set);
    /* From a bound port. */
    fd = far_socket(0);
    far_name(&other, near_address, 0);
    printf("bound: %s", result(bind(fd, (struct sockaddr *)&other, length)));
    getsockname(fd, (struct sockaddr *)&other, &length);
    near_port = far_port(&other);
    printf(", connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 21 20"));
    printf(", %s", name_of(fd, false, 128));
    printf(", %s\n", name_of(fd, true, 128));
    close(fd);
    far("close 20");
    /* Twice between the same ends. */
    int fds[2], on = 1;
    far_name(&other, near_address, 0);
    for (int at = 0; at < 2; at++) {
        fds[at] = far_socket(0);
        setsockopt(fds[at], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        printf("%s %s", at ? ", bind again" : "bind",
               result(bind(fds[at], (struct sockaddr *)&other, length)));
        getsockname(fds[at], (struct sockaddr *)&other, &length);
    }
    far_name(&name, far_address, atoi(far("listen 20 %s", far_address)));
    printf(", connect %s", result(connect(fds[0], (struct sockaddr *)&name, length)));
    printf(", once more %s", result(connect(fds[1], (struct sockaddr *)&name, length)));
    far_ok(far("accept 21 20"));
    far("close 20");
    far_name(&name, far_address, atoi(far("listen 20 %s", far_address)));
    printf(", to another %s", result(connect(fds[1], (struct sockaddr *)&name, length)));
    far_ok(far("accept 22 20"));
    write(fds[0], "one", 3);
    write(fds[1], "more", 4);
    for (int at = 0; at < 2; at++) {
        printf(", %s", far("end %d 100", 21 + at));
        close(fds[at]);
        far("close %d", 21 + at);
    }
    far("close 20");
    printf("\n");
    disconnects();
    /* To its own address, and to none. */
    int listener = near_listener(near_address, &near_port);
    far_name(&name, near_address, near_port);
    fd = far_socket(0);
    printf("to oneself: %s", result(connect(fd, (struct sockaddr *)&name, length)));
    int accepted = accept(listener, NULL, NULL);
    printf(", accepted %s", yes(accepted >= 0));
    write(fd, "own", 3);
    char bytes[8];
    printf(", %s", result(read(accepted, bytes, 8)));
    printf(", peer %s", name_of(fd, true, 128));
    printf(", no length %s", result(connect(fd, (struct sockaddr *)&name, 3)));
    close(fd);
    close(accepted);
    close(listener);
    fd = far_socket(0);
    name.ss_family = 77;
    printf(", other family %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_name(&name, strncmp(far_address, "::ffff:", 7) ? strchr(far_address, ':') ? "2001:db8::1" : "192.0.2.1" : "::ffff:192.0.2.1", 9);
    printf(", no way %s\n", result(connect(fd, (struct sockaddr *)&name, length)));
    close(fd);
}

static void listeners(void)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = near_listener(near_address, &near_port), other = far_socket(0);
    printf("listen again: %s", result(listen(fd, 1)));
    far_name(&name, near_address, near_port);
    printf(", another binds %s", result(bind(other, (struct sockaddr *)&name, length)));
    printf(", connect of a listener %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(", read %s", result(read(fd, &(char){0}, 1)));
    printf(", write %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    set_nonblocking(fd, true);
    printf(", accept %s", result(accept(fd, NULL, NULL)));
    printf(", accept4 with bad flags %s", result(accept4(fd, NULL, NULL, 7)));
    printf(", FIONREAD %s", result(ioctl(fd, FIONREAD, &(int){0})));
    printf(", flags %x", fcntl(fd, F_GETFL));
    struct sockaddr_storage from;
    int far_end = atoi(far("connect 22 %s %d", near_address, near_port));
    far_count(far_end);
    struct pollfd one = {fd, POLLIN, 0};
    poll(&one, 1, 1000);
    printf(", with somebody there %s", result(accept4(fd, NULL, NULL, 7)));
    socklen_t cut = 4;
    int accepted = accept4(fd, (struct sockaddr *)&from, &cut, SOCK_NONBLOCK | SOCK_CLOEXEC);
    printf(", accept4 name of %d, flags %x %d\n", (int)cut, fcntl(accepted, F_GETFL), fcntl(accepted, F_GETFD));
    close(accepted);
    atoi(far("connect 23 %s %d", near_address, near_port));
    poll(&one, 1, 1000);
    accepted = accept(fd, NULL, NULL);
    printf("accept: flags %x %d", fcntl(accepted, F_GETFL), fcntl(accepted, F_GETFD));
    close(accepted);
    printf(", shutdown %s", result(shutdown(fd, SHUT_RD)));
    one.events = POLLIN | POLLOUT | POLLRDHUP;
    printf(", poll %d", poll(&one, 1, 100));
    printf(" %x", one.revents);
    printf(", accept %s", result(accept(fd, NULL, NULL)));
    printf(", somebody comes: %s", far("connect 24 %s %d", near_address, near_port));
    printf(", listen %s", result(listen(fd, 4)));
    length = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &length);
    near_port = far_port(&name);
    poll(&one, 1, 0);
    far_end = atoi(far("connect 24 %s %d", near_address, near_port));
    printf(", somebody comes %s", yes(far_end > 0));
    poll(&one, 1, 1000);
    accepted = accept(fd, NULL, NULL);
    printf(", accept %s\n", yes(accepted >= 0));
    close(accepted);
    close(fd);
    printf("closed, somebody comes: %s\n", far("connect 25 %s %d", near_address, near_port));
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    names("v4", near_address, near_address, false);
    names("v4, any", "0.0.0.0", near_address, false);
    names("v6", "fd95::1", "fd95::1", false);
    names("v6, any", "::", "fd95::1", false);
    names("v4 at v6, any", "::", near_address, false);
    names("v4 mapped", "::ffff:10.95.0.1", near_address, false);
    names("v6 alone", "::", "fd95::1", true);
    names("v4 at v6 alone", "::", near_address, true);
    connects();
    names_of_failures();
    families();
    listeners();
    return 0;
}

/* TCP Fast Open of clients: connections that are opened with their first data, by MSG_FASTOPEN or by writing after connect(2)
 * (TCP_FASTOPEN_CONNECT). */
#include "far.h"
#include <sys/uio.h>
#include <sys/wait.h>

static struct sockaddr_storage name;
static socklen_t length;
static int port;

/* The other host listens, number 0, and accepts data in SYNs or not. */
static void listens(int pending)
{
    port = atoi(far("listen 0 %s", far_address));
    length = far_name(&name, far_address, port);
    if (pending)
        far_ok(far("fastopen 0 %d", pending));
}

static ssize_t opens(int fd, const char *text, int flags)
{
    return sendto(fd, text, strlen(text), MSG_FASTOPEN | flags, (struct sockaddr *)&name, length);
}

/* The connection is accepted there as number 1, answered and closed. */
static void goes(int fd)
{
    char bytes[16] = "";
    far_ok(far("accept 1 0"));
    far_count(port);
    printf(" %s", near_fast(fd));
    far_ok(far("put 1 answer"));
    ssize_t got = recv(fd, bytes, 6, MSG_WAITALL);
    printf(" %zd %s", got, bytes);
    shutdown(fd, SHUT_WR);
    printf(" and there %s\n", far("end 1"));
    close(fd);
    far_ok(far("close 1"));
}

static void by_flag(void)
{
    listens(16);
    for (int at = 0; at < 3; at++) {
        int fd = far_socket(0);
        printf("by sendto: %s", result(opens(fd, "hello", 0)));
        printf(" again %s", result(opens(fd, "hello", 0)));
        goes(fd);
    }
    struct iovec pieces[] = {{"he", 2}, {"", 0}, {"llo", 3}};
    struct msghdr message = {.msg_name = &name, .msg_namelen = length, .msg_iov = pieces, .msg_iovlen = 3};
    int fd = far_socket(0);
    printf("by sendmsg: %s", result(sendmsg(fd, &message, MSG_FASTOPEN)));
    goes(fd);
    fd = far_socket(0);
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    printf("by sendmmsg: %s", result(sendmmsg(fd, messages, 2, MSG_FASTOPEN)));
    goes(fd);
    fd = far_socket(SOCK_NONBLOCK);
    printf("without waiting: %s", result(opens(fd, "hello", 0)));
    poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 2000);
    fcntl(fd, F_SETFL, 0);
    goes(fd);
    fd = far_socket(0);
    printf("nothing: %s", result(opens(fd, "", 0)));
    printf(" then %s", result(send(fd, "x", 1, 0)));
    goes(fd);
    far_ok(far("close 0"));
}

/* Without a cookie the SYN requests one, and is otherwise normal. */
static void without_cookie(void)
{
    listens(0);
    int fd = far_socket(SOCK_NONBLOCK);
    printf("no cookie known: %s", result(opens(fd, "hello", 0)));
    printf(" poll %d", poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 2000));
    printf(" again %s", result(opens(fd, "hello", 0)));
    printf(" and %s", result(opens(fd, "hello", 0)));
    printf(" send %s", result(send(fd, "late", 4, 0)));
    fcntl(fd, F_SETFL, 0);
    goes(fd);
    far_ok(far("close 0"));
}

static int asks(int flags, const char *what)
{
    int fd = far_socket(flags);
    printf("%s %s", what, result(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &(int){1}, 4)));
    return fd;
}

static void by_option(void)
{
    struct sockaddr_storage other;
    socklen_t room = sizeof other;
    listens(16);
    for (int at = 0; at < 2; at++) {
        int fd = asks(0, "by option:");
        printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
        printf(" %s", result(getpeername(fd, (struct sockaddr *)&other, &room)));
        printf(" send %s", result(send(fd, "hello", 5, 0)));
        printf(" %s", result(connect(fd, (struct sockaddr *)&name, length)));
        goes(fd);
    }
    int fd = asks(SOCK_NONBLOCK, "does not wait:");
    struct pollfd ready = {fd, POLLIN | POLLOUT, 0};
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" poll %d", poll(&ready, 1, 0));
    printf(" %x", (unsigned)ready.revents);
    printf(" again %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" recv %s", result(recv(fd, &other, 1, 0)));
    printf(" send %s", result(send(fd, "hello", 5, 0)));
    poll(&ready, 1, 2000);
    fcntl(fd, F_SETFL, 0);
    goes(fd);
    fd = asks(0, "writes by pieces:");
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" writev %s", result(writev(fd, (struct iovec[]){{"he", 2}, {"llo", 3}}, 2)));
    goes(fd);
    fd = asks(0, "says nothing:");
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" close %s\n", result(close(fd)));
    /* More than a SYN has room for. */
    static char bytes[100000];
    far_pattern(bytes, 0, sizeof bytes);
    fd = asks(0, "much:");
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" send %s", result(send(fd, bytes, sizeof bytes, 0)));
    far_ok(far("accept 1 0"));
    far_count(port);
    printf(" %s", near_fast(fd));
    printf(" there %s\n", far("take 1 %zu", sizeof bytes));
    close(fd);
    fd = asks(0, "needs none:");
    setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &(int){1}, 4);
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" send %s", result(send(fd, "hello", 5, 0)));
    far_ok(far("close 1"));
    goes(fd);
    far_ok(far("close 0"));
}

/* To its program it is open, while its SYN is held back. */
static int waits(const char *what)
{
    int fd = asks(0, what);
    setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &(int){1}, 4);
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    return fd;
}

static void is_heard(void)
{
    far_ok(far("accept 1 0"));
    printf(" there %s\n", far("end 1"));
    far_ok(far("close 1"));
}

static int passed(int fd)
{
    int ends[2];
    char control[CMSG_SPACE(sizeof fd)] = "", octet = 0;
    struct iovec piece = {&octet, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    *first = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(first), &fd, sizeof fd);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || sendmsg(ends[0], &message, 0) != 1)
        fail("sendmsg");
    close(fd);
    if (recvmsg(ends[1], &message, 0) != 1)
        fail("recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    close(ends[0]);
    close(ends[1]);
    return fd;
}

/* Another process goes on with it before anything was sent. */
static void given_away(void)
{
    char command[64];
    int status = -1;
    listens(16);
    int fd = waits("to a child:");
    pid_t child = fork();
    if (!child)
        _exit(send(fd, "child", 5, MSG_NOSIGNAL) != 5);
    close(fd);
    waitpid(child, &status, 0);
    printf(" %d", status);
    is_heard();
    fd = waits("to a program:");
    child = vfork();
    if (!child) {
        dup2(fd, 1);
        execlp("echo", "echo", "-n", "program", NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    close(fd);
    printf(" %d", status);
    is_heard();
    fd = waits("to a shell:");
    snprintf(command, sizeof command, "printf shell >&%d", fd);
    printf(" %d", system(command));
    close(fd);
    is_heard();
    fd = passed(waits("passed on:"));
    printf(" send %s", result(send(fd, "passed", 6, MSG_NOSIGNAL)));
    close(fd);
    is_heard();
    /* In a SYN the kernel drops the urgent mark. */
    fd = waits("urgent:");
    printf(" send %s\n", result(send(fd, "!", 1, MSG_OOB | MSG_NOSIGNAL)));
    far_ok(far("accept 1 0"));
    close(fd);
    far_ok(far("close 1"));
    far_ok(far("close 0"));
}

static void refused(void)
{
    listens(16);
    int fd = far_socket(0);
    opens(fd, "for a cookie", 0);
    far_ok(far("accept 1 0"));
    close(fd);
    far_ok(far("close 1"));
    far_ok(far("close 0"));
    fd = far_socket(0);
    printf("nobody there: %s", result(opens(fd, "hello", 0)));
    printf(" again %s", result(opens(fd, "hello", 0)));
    listens(16);
    printf(" elsewhere %s", result(opens(fd, "hello", 0)));
    goes(fd);
    far_ok(far("close 0"));
    fd = asks(0, "nobody there:");
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" send %s", result(send(fd, "hello", 5, MSG_NOSIGNAL)));
    listens(16);
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" send %s", result(send(fd, "hello", 5, MSG_NOSIGNAL)));
    goes(fd);
    far_ok(far("close 0"));
}

static void not_permitted(void)
{
    listens(16);
    near_allows(2);
    int fd = far_socket(0);
    printf("not permitted: %s", result(opens(fd, "hello", 0)));
    printf(" option %s", result(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &(int){1}, 4)));
    printf(" connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    printf(" send %s", result(opens(fd, "hello", 0)));
    near_allows(3);
    printf(" or %s", result(opens(fd, "hello", 0)));
    printf(" plain %s", result(send(fd, "hello", 5, 0)));
    goes(fd);
    fd = far_socket(0);
    printf("to nobody: %s", result(sendto(fd, "hello", 5, MSG_FASTOPEN, NULL, 0)));
    printf(" %s\n", result(send(fd, "hello", 5, MSG_FASTOPEN)));
    close(fd);
    far_ok(far("close 0"));
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    near_allows(3);
    far_ok(far("allow 3"));
    /* No process of this host has a cookie. */
    if (system("ip tcp_metrics flush"))
        fail("ip");
    without_cookie();
    by_flag();
    by_option();
    fflush(stdout);
    given_away();
    refused();
    not_permitted();
    near_allows(1);
    return 0;
}

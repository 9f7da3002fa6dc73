/* TCP Fast Open of listeners: data that comes with a SYN is there with accept(2), if its cookie is good; for which listeners
 * cookies are good, and the effect of the host's settings. */
#include "far.h"

static int port, there;

static int listener(int pending)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, 0);
    int fd = socket(name.ss_family, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&name, &length))
        fail("listener");
    if (pending && setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &pending, sizeof pending))
        fail("TCP_FASTOPEN");
    port = far_port(&name);
    /* From now on it is on the stack. */
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
    return fd;
}

static int told(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(fd, IPPROTO_TCP, name, &value, &length);
    return value;
}

/* The other host connects with some text. Returns whether the SYN's data was taken, according to both ends. */
static const char *comes(int fd, const char *text)
{
    static char facts[64];
    char bytes[16] = "", fast[16] = "";
    /* An instance knows the listener's options by then. */
    sleep_ms(20);
    sscanf(far("fast 0 %s %d %s", near_address, port, text), "%d %15s", &there, fast);
    int connection = accept(fd, NULL, NULL);
    far_count(there);
    const char *here = near_fast(connection);
    ssize_t got = recv(connection, bytes, sizeof bytes - 1, 0);
    snprintf(facts, sizeof facts, "%s/%s %zd %s", fast, here, got, bytes);
    if (send(connection, bytes, (size_t)got, 0) != got)
        fail("answer");
    close(connection);
    char answer[32];
    snprintf(answer, sizeof answer, "\"%s\" and the end", text);
    const char *end = far("end 0");
    if (strcmp(end, answer))
        fail("%s", end);
    far_ok(far("close 0"));
    return facts;
}

static void cookies(void)
{
    int fd = listener(16);
    printf("has %d:", told(fd, TCP_FASTOPEN));
    printf(" %s,", comes(fd, "one"));
    printf(" %s,", comes(fd, "two"));
    printf(" %s\n", comes(fd, "three"));
    close(fd);
    /* The host's cookies are good for all listeners. */
    fd = listener(16);
    printf("another listener: %s\n", comes(fd, "four"));
    close(fd);
    fd = listener(0);
    printf("one that does without: %s\n", comes(fd, "five"));
    close(fd);
}

/* A cookie given out by one process is accepted by another process of the program. */
static void workers(void)
{
    int fd = listener(16);
    far_ok(far("allow 3"));
    printf("a worker gives: %s\n", comes(fd, "one"));
    fflush(stdout);
    int is_there[2];
    if (pipe(is_there))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
        if (write(is_there[1], "", 1) != 1)
            fail("write");
        for (int at = 0; at < 4; at++) {
            int connection = accept(fd, NULL, NULL);
            char bytes[16];
            ssize_t got = recv(connection, bytes, sizeof bytes, 0);
            send(connection, bytes, (size_t)got, 0);
            close(connection);
        }
        _exit(0);
    }
    close(fd);
    if (read(is_there[0], &(char){0}, 1) != 1)
        fail("read");
    close(is_there[0]);
    close(is_there[1]);
    /* Until it has a device, which takes longer on a busy machine. */
    sleep_ms(1000);
    printf("another takes:");
    for (int at = 0; at < 4; at++) {
        char fast[16] = "";
        sscanf(far("fast 0 %s %d text", near_address, port), "%d %15s", &there, fast);
        printf(" %s", fast);
        printf(" %s", far("end 0"));
        far_ok(far("close 0"));
    }
    printf("\n");
    waitpid(child, NULL, 0);
}

static void keys(void)
{
    unsigned char key[32], back[40];
    int fd = listener(16);
    socklen_t length = sizeof back;
    for (int at = 0; at < 32; at++)
        key[at] = (unsigned char)(at * 37 + 5);
    printf("no key of its own: %s", result(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, back, &length)));
    printf(" of %d\n", (int)length);
    far_ok(far("allow 3"));
    comes(fd, "before");
    printf("with the host's: %s\n", comes(fd, "one"));
    printf("bad ones: %s", result(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 15)));
    printf(" %s\n", result(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 31)));
    printf("its own: %s", result(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 16)));
    length = sizeof back;
    getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, back, &length);
    printf(" of %d %s", (int)length, yes(!memcmp(back, key, 16)));
    printf(", %s,", comes(fd, "two"));
    printf(" %s\n", comes(fd, "three"));
    /* It becomes the previous key. */
    memmove(key + 16, key, 16);
    key[0] ^= 1;
    printf("both: %s", result(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 32)));
    printf(", %s,", comes(fd, "four"));
    printf(" %s\n", comes(fd, "five"));
    close(fd);
}

static void settings(void)
{
    int fd = listener(16);
    printf("permitted: %s\n", comes(fd, "one"));
    near_allows(1);
    sleep_ms(1500);
    printf("no more: %s\n", comes(fd, "two"));
    near_allows(3);
    sleep_ms(1500);
    printf("again: %s\n", comes(fd, "three"));
    near_allows(0x203);
    far_ok(far("allow 7"));
    sleep_ms(1500);
    printf("nobody needs cookies: %s\n", comes(fd, "four"));
    near_allows(3);
    sleep_ms(1500);
    printf("and again: %s\n", comes(fd, "five"));
    setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &(int){1}, 4);
    printf("this one needs none (%d): %s\n", told(fd, TCP_FASTOPEN_NO_COOKIE), comes(fd, "six"));
    close(fd);
    near_allows(0x403);
    far_ok(far("allow 3"));
    fd = listener(0);
    printf("every listener (%d):", told(fd, TCP_FASTOPEN));
    printf(" %s,", comes(fd, "seven"));
    printf(" %s\n", comes(fd, "eight"));
    close(fd);
    near_allows(3);
}

/* What the options return on a connection, or on a listener. */
static void options(void)
{
    static const int names[] = {TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE};
    int fd = listener(16), connection = near_accepted(1), other = near_connected(2);
    for (size_t at = 0; at < 3; at++)
        for (int value = -1; value < 3; value++) {
            const int *wanted = &value;
            printf("%d set to %d: listener %s", names[at], value, result(setsockopt(fd, IPPROTO_TCP, names[at], wanted, 4)));
            printf(" %d, accepted", told(fd, names[at]));
            printf(" %s", result(setsockopt(connection, IPPROTO_TCP, names[at], wanted, 4)));
            printf(" %d, connected", told(connection, names[at]));
            printf(" %s", result(setsockopt(other, IPPROTO_TCP, names[at], wanted, 4)));
            printf(" %d\n", told(other, names[at]));
        }
    close(fd);
    close(connection);
    close(other);
    far_ok(far("close 1"));
    far_ok(far("close 2"));
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    near_allows(3);
    far_ok(far("allow 3"));
    cookies();
    workers();
    keys();
    settings();
    options();
    near_allows(1);
    return 0;
}

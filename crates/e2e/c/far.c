/* The other host in the tests of the user-space stack: does with kernel sockets what a program of the
 * tests tells it, one command a line, over a UNIX socket at the path of its first argument. Sockets are
 * numbered. What is sent and expected by count is the pattern of far.h. */
#include "far.h"
#include <sys/un.h>

enum { SOCKETS = 64, LIMIT_MS = 10000 };

static struct {
    int fd;
    size_t sent, taken;
} all[SOCKETS];

static const char *answer_errno(void) { return strerrorname_np(errno); }

static const char *show(const char *format, ...)
{
    static char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

static const char *listens(int at, const char *address, int port)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, address, port);
    int fd = socket(name.ss_family, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&name, &length))
        return answer_errno();
    all[at].fd = fd;
    return show("%d", far_port(&name));
}

static const char *accepts(int at, int listener)
{
    struct pollfd ready = {all[listener].fd, POLLIN, 0};
    if (poll(&ready, 1, LIMIT_MS) != 1)
        return "nobody came";
    all[at].fd = accept(all[listener].fd, NULL, NULL);
    all[at].sent = all[at].taken = 0;
    return all[at].fd < 0 ? answer_errno() : "ok";
}

static const char *connects(int at, const char *address, int port)
{
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, address, port);
    all[at].fd = socket(name.ss_family, SOCK_STREAM, 0);
    all[at].sent = all[at].taken = 0;
    if (connect(all[at].fd, (struct sockaddr *)&name, length))
        return answer_errno();
    getsockname(all[at].fd, (struct sockaddr *)&name, &length);
    return show("%d", far_port(&name));
}

static const char *sends(int at, size_t count)
{
    static char bytes[65536];
    while (count > 0) {
        size_t length = count < sizeof bytes ? count : sizeof bytes;
        far_pattern(bytes, all[at].sent, length);
        ssize_t sent = send(all[at].fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0)
            return answer_errno();
        all[at].sent += (size_t)sent;
        count -= (size_t)sent;
    }
    return "ok";
}

/* Receives that many octets of the pattern. */
static const char *takes(int at, size_t count)
{
    static char bytes[65536], expected[65536];
    size_t begin = all[at].taken;
    while (all[at].taken < begin + count) {
        size_t left = begin + count - all[at].taken;
        struct pollfd ready = {all[at].fd, POLLIN, 0};
        if (poll(&ready, 1, LIMIT_MS) != 1)
            return show("only %zu came", all[at].taken - begin);
        ssize_t got = recv(all[at].fd, bytes, left < sizeof bytes ? left : sizeof bytes, 0);
        if (got <= 0)
            return show("%s after %zu", got ? answer_errno() : "end", all[at].taken - begin);
        far_pattern(expected, all[at].taken, (size_t)got);
        if (memcmp(bytes, expected, (size_t)got))
            return show("wrong octets from %zu on", all[at].taken);
        all[at].taken += (size_t)got;
    }
    return "ok";
}

/* Receives text to the end of the stream, or what arrives within some time. */
static const char *ends(int at, int limit_ms)
{
    char text[200];
    size_t have = 0;
    for (;;) {
        struct pollfd ready = {all[at].fd, POLLIN, 0};
        if (poll(&ready, 1, limit_ms) != 1)
            return show("\"%.*s\" and no end", (int)have, text);
        ssize_t got = recv(all[at].fd, text + have, sizeof text - have, 0);
        if (got <= 0)
            return show("\"%.*s\" and %s", (int)have, text, got ? answer_errno() : "the end");
        have += (size_t)got;
    }
}

static const char *resets(int fd)
{
    struct linger none = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return close(fd) ? answer_errno() : "ok";
}

static const char *sets_buffer(int fd, int bytes)
{
    return setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) ? answer_errno() : "ok";
}

/* Sets tcp_fastopen on this host, and forgets the cookies of others. */
static const char *allows(int fast_open)
{
    FILE *setting = fopen("/proc/sys/net/ipv4/tcp_fastopen", "w");
    if (!setting || fprintf(setting, "%d\n", fast_open) < 0 || fclose(setting))
        return answer_errno();
    return system("ip tcp_metrics flush") ? "ip has failed" : "ok";
}

/* Removes or restores this host's route for its replies to an address. */
static const char *hears_nothing(const char *address, bool nothing)
{
    const char *verb = nothing ? "add" : "del", *version = strchr(address, ':') ? "-6" : "-4";
    return system(show("ip %s route %s blackhole %s", version, verb, address)) ? "ip has failed" : "ok";
}

static const char *error_of(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct tcp_info info;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    length = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return show("%s, state %d", error ? strerrorname_np(error) : "none", info.tcpi_state);
}

/* Connects with the text in the SYN, if possible: returns the port, and whether its data was taken. */
static const char *connects_fast(int at, const char *address, int port, const char *text)
{
    struct sockaddr_storage name;
    struct tcp_info info;
    socklen_t length = far_name(&name, address, port), room = sizeof info;
    all[at].fd = socket(name.ss_family, SOCK_STREAM, 0);
    all[at].sent = all[at].taken = 0;
    if (sendto(all[at].fd, text, strlen(text), MSG_FASTOPEN, (struct sockaddr *)&name, length) < 0)
        return answer_errno();
    length = sizeof name;
    getsockname(all[at].fd, (struct sockaddr *)&name, &length);
    getsockopt(all[at].fd, IPPROTO_TCP, TCP_INFO, &info, &room);
    return show("%d %s", far_port(&name), info.tcpi_options & TCPI_OPT_SYN_DATA ? "fast" : "slow");
}

static const char *obey(const char *line)
{
    char what[16] = "", text[128] = "";
    int at = 0;
    long number = 0, port = 0;
    if (sscanf(line, "listen %d %127s %ld", &at, text, &port) >= 2)
        return listens(at, text, (int)port);
    if (sscanf(line, "connect %d %127s %ld", &at, text, &port) == 3)
        return connects(at, text, (int)port);
    if (sscanf(line, "fast %d %127s %ld %15s", &at, text, &port, what) == 4)
        return connects_fast(at, text, (int)port, what);
    if (sscanf(line, "allow %ld", &number) == 1)
        return allows((int)number);
    if (sscanf(line, "put %d %127s", &at, text) == 2)
        return send(all[at].fd, text, strlen(text), MSG_NOSIGNAL) < 0 ? answer_errno() : "ok";
    if (sscanf(line, "deafen %127s", text) == 1)
        return hears_nothing(text, true);
    if (sscanf(line, "undeafen %127s", text) == 1)
        return hears_nothing(text, false);
    sscanf(line, "%15s %d %ld", what, &at, &number);
    int fd = all[at].fd;
    if (!strcmp(what, "accept"))
        return accepts(at, (int)number);
    if (!strcmp(what, "send"))
        return sends(at, (size_t)number);
    if (!strcmp(what, "take"))
        return takes(at, (size_t)number);
    if (!strcmp(what, "end"))
        return ends(at, number ? (int)number : LIMIT_MS);
    if (!strcmp(what, "urgent"))
        return send(fd, "u", 1, MSG_OOB | MSG_NOSIGNAL) < 0 ? answer_errno() : "ok";
    if (!strcmp(what, "shut"))
        return shutdown(fd, (int)number) ? answer_errno() : "ok";
    if (!strcmp(what, "reset"))
        return resets(fd);
    if (!strcmp(what, "close"))
        return close(fd) ? answer_errno() : "ok";
    if (!strcmp(what, "error"))
        return error_of(fd);
    if (!strcmp(what, "fastopen"))
        return setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &(int){(int)number}, 4) ? answer_errno() : "ok";
    if (!strcmp(what, "buffer"))
        return sets_buffer(fd, (int)number);
    return "what?";
}

int main(int count, char **arguments)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char line[256];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), pause = 0, skip = 0;
    strncpy(name.sun_path, arguments[count > 1], sizeof name.sun_path - 1);
    signal(SIGPIPE, SIG_IGN);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) || listen(listener, 1))
        fail("%s", name.sun_path);
    int fd = accept(listener, NULL, NULL);
    FILE *in = fdopen(fd, "r");
    while (fgets(line, sizeof line, in)) {
        /* A command for later is answered now. */
        if (sscanf(line, "later %d %n", &pause, &skip) == 1) {
            dprintf(fd, "ok\n");
            sleep_ms(pause);
            obey(line + skip);
        } else {
            dprintf(fd, "%s\n", obey(line));
        }
    }
    return 0;
}

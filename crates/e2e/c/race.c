/* race TRIES: bytes reach a connection by another way at the very moment at which the timer sends
 * those before them. Run with the shortest bound, 100 us: the pauses are around it. Each way is
 * tried as often as 2 ms a try allow: on a busy machine less often. */
#include "common.h"
#include <sys/sendfile.h>

static int file, other[2];

static void pause_us(double us)
{
    for (double start = now_ms(); (now_ms() - start) * 1e3 < us;)
        ;
}

static void by_shutdown(int out) { shutdown(out, SHUT_WR); }
static void by_close(int out UNUSED) {}
static void by_dup2(int out) { dup2(other[0], out); }
static void by_close_range(int out) { close_range((unsigned)out, (unsigned)out, 0); }
static void by_sendfile(int out)
{
    off_t offset = 0;
    if (sendfile(out, file, &offset, 3) != 3)
        fail("sendfile");
}
static void by_cork(int out)
{
    int on = 1;
    setsockopt(out, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    put(out, "cde");
}
static void by_more(int out)
{
    if (send(out, "cde", 3, MSG_MORE) != 3)
        fail("MSG_MORE");
}
static void by_copy(int out)
{
    int copy = dup(out);
    put(copy, "cde");
    close(copy);
}
static void by_large(int out)
{
    static char large[40001] = "cde";
    memset(large + 3, 'L', 39997);
    put(out, large);
}
static void *write_there(void *out)
{
    put(*(int *)out, "cde");
    return NULL;
}
static void by_thread(int out)
{
    pthread_t thread;
    pthread_create(&thread, NULL, write_there, &out);
    pthread_join(thread, NULL);
}
static void by_fork(int out)
{
    pid_t child = fork();
    if (child == 0) {
        put(out, "cde");
        _exit(0);
    }
    waitpid(child, NULL, 0);
}
static void by_write(int out) { put(out, "cde"); }

struct way {
    const char *name;
    void (*body)(int);
    bool sends;
};

static void *write_first(void *out)
{
    put(*(int *)out, "ab");
    return NULL;
}

/* The first bytes come from this thread, from another one, or from both. */
static void begin(int out, int by)
{
    pthread_t thread;
    if (by == 0) {
        put(out, "ab");
        return;
    }
    if (by == 2)
        put(out, "-");
    pthread_create(&thread, NULL, write_first, &out);
    pthread_join(thread, NULL);
}

static bool intact(struct way *way, int try)
{
    static char text[65536];
    int fds[2], on = try / 3 % 2, by = try % 3;
    const char *before = by == 2 ? "-ab" : "ab";
    tcp_pair(fds);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    begin(fds[0], by);
    pause_us(by ? try % 80 : try % 240);
    way->body(fds[0]);
    if (fcntl(fds[0], F_GETFD) >= 0)
        close(fds[0]);
    size_t length = take(fds[1], text, sizeof text), start = strlen(before);
    close(fds[1]);
    if (length < start || memcmp(text, before, start))
        return false;
    if (!way->sends)
        return length == start;
    return length >= start + 3 && !memcmp(text + start, "cde", 3);
}

/* Runs each try in a process of its own: the timer's first round is its slowest. */
static bool intact_in_child(struct way *way, int try)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(!intact(way, try));
    if (waitpid(child, &status, 0) != child)
        fail("waitpid");
    return status == 0;
}

int main(int count, char **arguments)
{
    char path[] = "/tmp/uncork-e2e-XXXXXX";
    struct way ways[] = {{"shutdown", by_shutdown, false},   {"close", by_close, false},
                         {"dup2", by_dup2, false},           {"close_range", by_close_range, false},
                         {"sendfile", by_sendfile, true},    {"TCP_CORK", by_cork, true},
                         {"MSG_MORE", by_more, true},        {"a copy", by_copy, true},
                         {"a large write", by_large, true},  {"a thread", by_thread, true},
                         {"fork", by_fork, true},            {"write", by_write, true}};
    int tries = count > 1 ? atoi(arguments[1]) : 200;
    file = mkstemp(path);
    unlink(path);
    put(file, "cde");
    tcp_pair(other);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int bad = 0;
        double begin = now_ms();
        for (int try = 0; try < tries && now_ms() - begin < tries * 2; try++)
            bad += !intact_in_child(&ways[i], try);
        printf("%s at the moment of the timer: wrong streams %d\n", ways[i].name, bad);
    }
    return 0;
}

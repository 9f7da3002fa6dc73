/* Connections that are used by number elsewhere: by libc's own streams, and by programs that are started. And the result of a
 * call that a signal has interrupted. */
#include "far.h"
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;

/* One digit, for the shell. */
enum { NUMBER = 9 };

/* vfork under another name. */
extern pid_t __vfork(void) __attribute__((returns_twice));

static int begin(void)
{
    int fd = near_accepted(0);
    if (dup2(fd, NUMBER) != NUMBER)
        fail("dup2");
    return fd;
}

/* The process that started the other goes on, and the other host receives everything in order. */
static void end(const char *what, int fd)
{
    printf("%s: goes on %s", what, result(write(fd, "!", 1)));
    close(fd);
    close(NUMBER);
    printf(", it has %s\n", far("end 0"));
}

static void standard_streams(void)
{
    int fd = begin(), out = dup(1), in = dup(0);
    fflush(stdout);
    dup2(fd, 1);
    printf("written");
    fflush(stdout);
    dup2(out, 1);
    end("as standard output", fd);
    fd = begin();
    far_ok(far("put 0 q"));
    dup2(fd, 0);
    int first = getchar();
    dup2(in, 0);
    clearerr(stdin);
    printf("as standard input: %c\n", first);
    end("and back", fd);
    close(in);
    close(out);
    fd = begin();
    printf("dprintf: %d\n", dprintf(fd, "%s %d", "formatted", 7));
    end("dprintf", fd);
    fd = begin();
    printf("dprintf: %d\n", dprintf(fd, "%.2f %d %g %Lg %.1f", 1.5, 7, 0.25, 3.5L, 1e6));
    end("dprintf of numbers with points", fd);
}

/* Streams that exist before the connection does, on its descriptor or on duplicates of that. It is the kernel's, so it is not
 * counted. */
static void streams_before(void)
{
    for (int way = 0; way < 4; way++) {
        struct sockaddr_storage name;
        int port = atoi(far("listen 1 %s", far_address)), fd = far_socket(0), by = fd;
        socklen_t length = far_name(&name, far_address, port);
        FILE *in = NULL, *out = NULL;
        switch (way) {
        case 0: in = out = fdopen(fd, "r+"); break;
        case 1: in = fdopen(dup(fd), "r"), out = fdopen(dup(fd), "w"); break;
        case 2: by = dup(fd), in = out = fdopen(fd, "r+"); break;
        case 3: in = fdopen(fd, "r"), out = fdopen(dup(fd), "w"), by = dup(fd); break;
        }
        printf("a stream, then connect, way %d: %s", way, result(connect(by, (struct sockaddr *)&name, length)));
        far_ok(far("accept 0 1"));
        printf(", put %d", fprintf(out, "%s", "hello"));
        printf(" %s", result(fflush(out)));
        far_ok(far("put 0 xyz"));
        int first = fgetc(in), second = fgetc(in);
        printf(", got %c%c", first, second);
        printf(", write %s", result(write(by, "!", 1)));
        fclose(in);
        if (out != in)
            fclose(out);
        if (by != fd || way == 1)
            close(by);
        printf(", it has %s\n", far("end 0"));
        far("close 0");
        far("close 1");
    }
    /* A socket whose stream is gone by then has none. */
    int fd = far_socket(0), copy = dup(fd);
    fclose(fdopen(copy, "r"));
    struct sockaddr_storage name;
    int port = atoi(far("listen 1 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    printf("a stream that is gone: %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 0 1"));
    far_count(port);
    printf(", write %s", result(write(fd, "!", 1)));
    close(fd);
    printf(", it has %s\n", far("end 0"));
    far("close 0");
    far("close 1");
}

/* The usual way to have two streams on one connection. */
static void streams_of_duplicates(void)
{
    int fd = near_accepted(0);
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    far_ok(far("put 0 xy"));
    printf("two streams: got %c", fgetc(in));
    printf("%c", fgetc(in));
    printf(", put %d", fprintf(out, "%s", "hello"));
    printf(" %s", result(fclose(out)));
    printf(", then %s", result(write(fd, "!", 1)));
    fclose(in);
    printf(", it has %s\n", far("end 0"));
    far("close 0");
}

/* Like programs that leave no descriptor to the one they start: they close every number, without checking. */
static void close_all_but(int kept)
{
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
        if (fd != kept)
            close(fd);
}

static void started(void)
{
    char *const arguments[] = {"sh", "-c", "printf spawned >&9", NULL};
    pid_t child;
    int fd = begin();
    printf("system: %d\n", system("printf hers >&9"));
    end("system", fd);
    fd = begin();
    FILE *pipe = popen("printf hers >&9; printf x", "r");
    printf("popen: %c\n", fgetc(pipe));
    pclose(pipe);
    end("popen", fd);
    fd = begin();
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ))
        fail("posix_spawn");
    waitpid(child, NULL, 0);
    end("posix_spawn", fd);
    fd = begin();
    child = vfork();
    if (child == 0) {
        execv("/bin/sh", arguments);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    end("vfork and exec", fd);
    fd = begin();
    child = vfork();
    if (child == 0) {
        close_all_but(NUMBER);
        execv("/bin/sh", arguments);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    end("vfork, all else closed", fd);
    fd = begin();
    child = __vfork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("a child of __vfork has closed it: %s\n", result(write(fd, "still here", 10)));
    end("vfork by another name", fd);
    /* A connection that no program inherits stays where it is. */
    fd = near_accepted(0);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    printf("system beside: %d\n", system("exit 3") >> 8);
    far_ok(far("put 0 y"));
    printf("beside: %s\n", result(read(fd, &(char){0}, 1)));
    close(fd);
}

/* A sender with a small piece under way sends no other before that is acknowledged (Nagle): what was held back by that must not
 * be lost when the connection becomes the kernel's. */
static void small_pieces(void)
{
    char bytes[4];
    int fd = near_accepted(0), late = 0;
    close(fd);
    for (int each = 0; each < 8; each++) {
        fd = near_accepted(0);
        far_ok(far("put 0 a"));
        if (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000) != 1)
            fail("nothing comes");
        if (setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &(int){1}, 4))
            fail("SO_PRIORITY");
        far_ok(far("put 0 b"));
        double begin = now_ms();
        if (recv(fd, bytes, 2, MSG_WAITALL) != 2)
            fail("recv");
        late += now_ms() - begin > 100;
        close(fd);
        far_ok(far("close 0"));
    }
    printf("small pieces: most are late %s\n", yes(late > 4));
}

/* Data sent without a copy is reported when it is free again, by the kernel. */
static void without_a_copy(void)
{
    int fd = near_accepted(0);
    printf("without a copy: %s", result(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, 4)));
    printf(" %s", result(send(fd, "", 1, MSG_ZEROCOPY)));
    printf(" %s", far("take 0 1"));
    struct pollfd one = {fd, 0, 0};
    printf(" poll %d", poll(&one, 1, 1000));
    printf(" %x\n", one.revents);
    close(fd);
    far_ok(far("close 0"));
}

/* daemon(3) forks inside libc, and ends the process that had the connection there. */
static void left_to_a_daemon(void)
{
    int told[2];
    char line[64];
    if (pipe(told))
        fail("pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte = '-';
        int fd = near_accepted(0);
        if (daemon(1, 1))
            fail("daemon");
        far_ok(far("put 0 y"));
        ssize_t got = read(fd, &byte, 1), put = write(fd, "", 1);
        dprintf(told[1], "%zd %c, %zd, %s\n", got, byte, put, far("take 0 1"));
        _exit(0);
    }
    close(told[1]);
    waitpid(child, NULL, 0);
    ssize_t length = read(told[0], line, sizeof line);
    printf("a daemon: %.*s", length > 0 ? (int)length : 0, line);
    far_ok(far("close 0"));
    close(told[0]);
}

/* A child takes over a connection that was reset before: it reads the data that had come, and then the reset, at once. */
static void left_to_a_child_when_reset(void)
{
    char bytes[8] = "";
    for (int unread = 0; unread < 2; unread++) {
        int fd = near_accepted(0);
        if (unread)
            far_ok(far("put 0 abc"));
        sleep_ms(20);
        far_ok(far("reset 0"));
        sleep_ms(50);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            /* Its parent has closed it. */
            sleep_ms(50);
            double begun = now_ms();
            printf("reset before, %d unread: %s", unread, result(read(fd, bytes, 8)));
            printf(" %s, then %s", bytes, result(read(fd, bytes, 8)));
            printf(", then %s", result(read(fd, bytes, 8)));
            printf(", in time %s\n", yes(now_ms() - begun < 1000));
            fflush(stdout);
            _exit(0);
        }
        close(fd);
        waitpid(child, NULL, 0);
    }
}

/* A child that has only the connection. */
static void left_to_a_child_alone(void)
{
    int fd = near_accepted(0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close_all_but(fd);
        _exit(write(fd, "hers", 4) != 4);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("left to a child with nothing else: %d, then %s\n", status, result(write(fd, "!", 1)));
    close(fd);
    printf("it has %s\n", far("end 0"));
    far_ok(far("close 0"));
}

static volatile int handled;
static void on_alarm(int signal UNUSED) { handled++; }

/* The octets moved are returned, whether or not the handler restarts calls. */
static void partial(void)
{
    enum { MUCH = 32 << 20 };
    static char bytes[MUCH];
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = restarts ? SA_RESTART : 0};
        /* A second signal, in case the call missed the first. */
        struct itimerval timer = {{3, 0}, {0, 200 * 1000}}, never = {{0, 0}, {0, 0}};
        sigaction(SIGALRM, &action, NULL);
        int fd = near_accepted(0);
        handled = 0;
        setitimer(ITIMER_REAL, &timer, NULL);
        ssize_t sent = send(fd, bytes, MUCH, 0);
        setitimer(ITIMER_REAL, &never, NULL);
        printf("send, SA_RESTART %d: a part %s, handled %d\n", restarts, yes(sent > 0 && sent < MUCH), handled);
        close(fd);
        fd = near_accepted(0);
        far_ok(far("put 0 abc"));
        handled = 0;
        setitimer(ITIMER_REAL, &timer, NULL);
        ssize_t got = recv(fd, bytes, 10, MSG_WAITALL);
        setitimer(ITIMER_REAL, &never, NULL);
        printf("recv of all, SA_RESTART %d: %zd, handled %d\n", restarts, got, handled);
        close(fd);
    }
}

static void on_nothing(int signal UNUSED) {}

/* Returns what accept(2) does where nobody comes: EINTR if it waits. */
static const char *accepts_nobody(int listener)
{
    struct sigaction before, action = {.sa_handler = on_nothing};
    struct itimerval timer = {{1, 0}, {0, 100 * 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &timer, NULL);
    const char *accepted = result(accept(listener, NULL, NULL));
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    return accepted;
}

static bool is_nonblocking(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

/* O_NONBLOCK is the open file's, which a child has, too. */
static void nonblocking_by_another_process(void)
{
    int port, listener = near_listener(near_address, &port), to_child[2], to_parent[2];
    char octet;
    pipe(to_child);
    pipe(to_parent);
    printf("a listener of two: %s\n", accepts_nobody(listener));
    for (int way = 0; way < 2; way++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            read(to_child[0], &octet, 1);
            printf("it is set by the parent: %s %s\n", yes(is_nonblocking(listener)), accepts_nobody(listener));
            if (way)
                ioctl(listener, FIONBIO, &(int){0});
            else
                set_nonblocking(listener, false);
            write(to_parent[1], "x", 1);
            _exit(7);
        }
        if (way)
            ioctl(listener, FIONBIO, &(int){1});
        else
            set_nonblocking(listener, true);
        write(to_child[1], "x", 1);
        read(to_parent[0], &octet, 1);
        waitpid(child, NULL, 0);
        printf("cleared by the child: %s %s\n", yes(is_nonblocking(listener)), accepts_nobody(listener));
    }
    /* Nobody ever sees it while two accept, which block. */
    fflush(stdout);
    pid_t children[2];
    for (int at = 0; at < 2; at++) {
        if ((children[at] = fork()) == 0)
            for (;;)
                close(accept(listener, NULL, NULL));
    }
    struct sockaddr_storage name;
    socklen_t length = far_name(&name, near_address, port);
    int seen = 0, connected = 0;
    for (int round = 0; round < 300; round++) {
        int fd = far_socket(0);
        connected += connect(fd, (struct sockaddr *)&name, length) == 0;
        for (int look = 0; look < 20; look++)
            seen += is_nonblocking(listener);
        close(fd);
    }
    /* What is set meanwhile stays. */
    int lost = 0;
    for (int round = 0; round < 300; round++) {
        int fd = far_socket(0);
        connected += connect(fd, (struct sockaddr *)&name, length) == 0;
        set_nonblocking(listener, true);
        usleep(100);
        lost += !is_nonblocking(listener);
        set_nonblocking(listener, false);
        usleep(100);
        lost += is_nonblocking(listener);
        close(fd);
    }
    for (int at = 0; at < 2; at++) {
        kill(children[at], SIGKILL);
        waitpid(children[at], NULL, 0);
    }
    printf("while others accept: connected %d, seen %d, lost %d\n", connected, seen, lost);
    int all[] = {listener, to_child[0], to_child[1], to_parent[0], to_parent[1]};
    for (int at = 0; at < 5; at++)
        close(all[at]);
}

/* A child that does not execute another program goes on with all that it has. */
static void no_program(void)
{
    int fd = near_accepted(0);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    int failed = execl("/nonexistent", "x", (char *)NULL);
    printf("no program: %s", result(failed));
    failed = execlp("/etc/passwd", "x", (char *)NULL);
    printf(" %s", result(failed));
    failed = execlp("no-program-of-this-name", "x", (char *)NULL);
    printf(" %s", result(failed));
    failed = execlp("", "x", (char *)NULL);
    printf(" %s", result(failed));
    char *all[] = {"x", NULL};
    failed = execve("/etc/passwd/x", all, environ);
    char octet;
    far_pattern(&octet, 0, 1);
    printf(" %s, written %s", result(failed), result(write(fd, &octet, 1)));
    printf(", came %s\n", far("take 0 1"));
    close(fd);
}

/* Handlers of atexit(3) run after the thread's own destructors (of C++'s thread_local, say). */
static void fork_at_the_end(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    printf("forked at the end: %d\n", status);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    atexit(fork_at_the_end);
    /* These signals are the test's own. */
    alarm(far_patience = 0);
    standard_streams();
    streams_before();
    streams_of_duplicates();
    started();
    small_pieces();
    without_a_copy();
    left_to_a_daemon();
    left_to_a_child_when_reset();
    left_to_a_child_alone();
    partial();
    nonblocking_by_another_process();
    no_program();
    return 0;
}

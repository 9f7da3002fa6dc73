/* Bytes written right before a process ends arrive, however it ends. With the argument "killed", by
 * SIGKILL as well: that is true of bytes that the kernel holds. */
#include "common.h"
#include <sys/mman.h>
#include <sys/syscall.h>

static void by_return(void) {}
static void by_exit(void) { exit(0); }
static void by__exit(void) { _exit(0); }
static void by__Exit(void) { _Exit(0); }
static void by_quick_exit(void) { quick_exit(0); }
static void by_abort(void) { abort(); }
static void by_raise(void) { raise(SIGTERM); }
static void by_kill(void) { kill(getpid(), SIGTERM); }
static void by_killpg(void) { killpg(0, SIGTERM); }
static void by_sigqueue(void) { sigqueue(getpid(), SIGUSR1, (union sigval){0}); }
static void by_tgkill(void) { tgkill(getpid(), gettid(), SIGUSR2); }
static void by_pthread_kill(void) { pthread_kill(pthread_self(), SIGTERM); }
static void by_pthread_sigqueue(void) { pthread_sigqueue(pthread_self(), SIGUSR1, (union sigval){0}); }
static void by_kill_number(void) { syscall(SYS_kill, getpid(), SIGHUP); }
static void raise_by_default(int signal)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(signal, &action, NULL);
    raise(signal);
}
static void by_handler(void)
{
    struct sigaction action = {.sa_handler = raise_by_default, .sa_flags = SA_NODEFER};
    sigaction(SIGTERM, &action, NULL);
    raise(SIGTERM);
}
static void by_exit_group(void) { syscall(SYS_exit_group, 0); }
static void by_exec(void) { execl("/bin/true", "true", NULL); }
static void by_pthread_exit(void) { pthread_exit(NULL); }
static void *exits(void *unused UNUSED) { exit(0); }
static void by_another_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exits, NULL);
    for (;;)
        pause();
}
static int socket_of_handler;
static void at_exit(void) { put(socket_of_handler, "+handler"); }
static void by_exit_with_handler(void)
{
    atexit(at_exit);
    exit(0);
}
static void by_quick_exit_with_handler(void)
{
    at_quick_exit(at_exit);
    quick_exit(0);
}
__attribute__((destructor)) static void destructor(void)
{
    if (socket_of_handler < 0)
        put(-socket_of_handler, "+destructor");
}
static void by_destructor(void)
{
    socket_of_handler = -socket_of_handler;
    exit(0);
}
static void by_fatal_error(void)
{
    /* glibc's own exit when it finds the heap corrupted. */
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    extern void __assert_fail(const char *, const char *, unsigned, const char *);
    __assert_fail("x", "y", 1, "z");
}
static void by_alarm_soon(void)
{
    sleep_ms(30);
    kill(getpid(), SIGKILL);
}
static void by_sigkill(void) { kill(getpid(), SIGKILL); }

static void write_and_end(int fd, void (*body)(void), bool closes)
{
    socket_of_handler = fd;
    put(fd, "one,");
    put(fd, "two,");
    put(fd, "three");
    if (closes)
        close(fd);
    body();
    exit(0);
}

/* The process has inherited its socket from its parent. */
static void end(const char *name, void (*body)(void), bool closes)
{
    int fds[2];
    tcp_pair(fds);
    pid_t child = fork();
    if (child == 0) {
        close(fds[1]);
        write_and_end(fds[0], body, closes);
    }
    close(fds[0]);
    reap(child, name);
    show_stream("  arrived", fds[1]);
    close(fds[1]);
    socket_of_handler = 0;
}

/* The process has created its socket itself, so that no other process has it. */
static void end_of_own(const char *name, void (*body)(void))
{
    struct sockaddr_in address;
    int listener = tcp_listener(&address);
    pid_t child = fork();
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        close(listener);
        setpgid(0, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address))
            fail("connect");
        write_and_end(fd, body, false);
    }
    int fd = accept(listener, NULL, NULL);
    close(listener);
    reap(child, name);
    show_stream("  arrived of its own", fd);
    close(fd);
    socket_of_handler = 0;
}

static void *write_for_ever(void *argument)
{
    static char bytes[1000];
    size_t *completed = argument;
    for (;;) {
        ssize_t sent = write(socket_of_handler, bytes, sizeof bytes);
        if (sent > 0)
            __atomic_add_fetch(completed, (size_t)sent, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

/* A process whose peer does not read can still end, by exit or by close, and the bytes that its
 * completed writes took are there for a peer that reads later. */
static void end_with_full_buffers(const char *name, bool by_close)
{
    int fds[2], small = 32768, status;
    static char sink[1 << 22];
    size_t *completed =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tcp_pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        close(fds[1]);
        socket_of_handler = fds[0];
        pthread_create(&thread, NULL, write_for_ever, completed);
        sleep_ms(100);
        if (by_close) {
            pthread_cancel(thread);
            pthread_join(thread, NULL);
            close(fds[0]);
        }
        exit(0);
    }
    close(fds[0]);
    double start = now_ms();
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now_ms() - start > 5000) {
            printf("FAIL %s: the process hangs while its peer does not read\n", name);
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            break;
        }
        sleep_ms(5);
    }
    size_t came = take(fds[1], sink, sizeof sink);
    printf("%s: status %d, all of the completed writes arrived: %s\n", name, status,
           yes(came >= *completed));
    close(fds[1]);
    socket_of_handler = 0;
}

int main(int count, char **arguments)
{
    struct way {
        const char *name;
        void (*body)(void);
    } ways[] = {{"return", by_return},
                {"exit", by_exit},
                {"_exit", by__exit},
                {"_Exit", by__Exit},
                {"quick_exit", by_quick_exit},
                {"abort", by_abort},
                {"raise", by_raise},
                {"kill", by_kill},
                {"exit_group", by_exit_group},
                {"exec", by_exec},
                {"pthread_exit", by_pthread_exit},
                {"another thread", by_another_thread},
                {"exit, handler", by_exit_with_handler},
                {"quick_exit, handler", by_quick_exit_with_handler},
                {"exit, destructor", by_destructor},
                {"assert", by_fatal_error},
                {"SIGKILL after the bound", by_alarm_soon}};
    struct way own[] = {{"killpg", by_killpg},
                        {"sigqueue", by_sigqueue},
                        {"tgkill", by_tgkill},
                        {"pthread_kill", by_pthread_kill},
                        {"pthread_sigqueue", by_pthread_sigqueue},
                        {"kill by its number", by_kill_number},
                        {"a handler", by_handler}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        end(ways[i].name, ways[i].body, false);
        end_of_own(ways[i].name, ways[i].body);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        end_of_own(own[i].name, own[i].body);
    end("close, _exit", by__exit, true);
    end("close, SIGKILL", by_sigkill, true);
    end_with_full_buffers("exit beside a blocked write", false);
    end_with_full_buffers("close after a cancelled write", true);
    if (count > 1 && !strcmp(arguments[1], "killed"))
        end("SIGKILL", by_sigkill, false);
    return 0;
}

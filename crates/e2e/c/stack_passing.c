/* Connections that others use by their number: libc's own streams, and programs that are started. And what a call that a
 * signal ends has done until then. */
#include "far.h"
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;

/* One digit, for the shell. */
enum { NUMBER = 9 };

static int begin(void)
{
    int fd = near_accepted(0);
    if (dup2(fd, NUMBER) != NUMBER)
        fail("dup2");
    return fd;
}

/* Who has started something goes on, and the other host gets all in order. */
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
    /* One that no program inherits stays where it is. */
    fd = near_accepted(0);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    printf("system beside: %d\n", system("exit 3") >> 8);
    far_ok(far("put 0 y"));
    printf("beside: %s\n", result(read(fd, &(char){0}, 1)));
    close(fd);
}

static volatile int handled;
static void on_alarm(int signal UNUSED) { handled++; }

/* What has been moved is told, whether the handler wants the call to go on or not. */
static void partial(void)
{
    enum { MUCH = 32 << 20 };
    static char bytes[MUCH];
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = restarts ? SA_RESTART : 0};
        /* A second one for who has not heard the first. */
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

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    /* It is this test's to send these. */
    alarm(0);
    standard_streams();
    started();
    partial();
    return 0;
}

/* fork, vfork, exec, spawn and descriptors that are passed: every byte once, in order. */
#include "common.h"
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;
static char self[4096];

static void by_fork(int out)
{
    put(out, "a");
    pid_t child = fork();
    if (child == 0) {
        put(out, "b");
        exit(3);
    }
    reap(child, "child");
    put(out, "c");
}

static void by_fork_and_exit_without_flush(int out)
{
    put(out, "a");
    pid_t child = fork();
    if (child == 0) {
        put(out, "b");
        _exit(4);
    }
    reap(child, "child");
    put(out, "c");
}

/* The parent exits first; the child writes on. */
static void by_orphan(int out)
{
    pid_t child = fork();
    if (child == 0) {
        put(out, "a");
        pid_t first = getpid();
        if (fork() == 0) {
            while (getppid() == first)
                sleep_ms(1);
            put(out, "b");
            _exit(0);
        }
        _exit(0);
    }
    reap(child, "child");
}

static void by_daemon(int out)
{
    put(out, "a");
    pid_t child = fork();
    if (child == 0) {
        put(out, "b");
        if (daemon(1, 1))
            _exit(9);
        put(out, "c");
        _exit(0);
    }
    reap(child, "child");
}

static void by_vfork(int out)
{
    put(out, "a");
    pid_t child = vfork();
    if (child == 0) {
        execle("/bin/sh", "sh", "-c", "exec printf b >/dev/null", NULL, environ);
        _exit(9);
    }
    reap(child, "child");
    put(out, "c");
    fflush(stdout);
    int saved = dup(1);
    dup2(out, 1);
    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exec printf d", NULL);
        _exit(9);
    }
    dup2(saved, 1);
    close(saved);
    reap(child, "child");
    put(out, "e");
}

static void by_spawn(int out)
{
    posix_spawn_file_actions_t actions;
    char *arguments[] = {"sh", "-c", "printf b; exec printf c", NULL};
    pid_t child;
    put(out, "a");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ))
        fail("posix_spawn");
    reap(child, "child");
    put(out, "d");
    if (posix_spawnp(&child, "sh", &actions, NULL, arguments, environ))
        fail("posix_spawnp");
    reap(child, "child");
    put(out, "e");
}

/* Lets a child write in the middle of what this process writes, and waits for it without a call. */
static void go_on_beside(int out, int go[2], pid_t child)
{
    close(go[0]);
    for (int i = 0; i < 5; i++)
        put(out, "c");
    put(go[1], "\n");
    for (double start = now_ms(); now_ms() - start < 30;)
        ;
    close(go[1]);
    reap(child, "child");
    put(out, "e");
}

static char *waits[] = {"sh", "-c", "read line; printf d", NULL};

/* Like a program that starts others with a connection as output, and all else closed. */
static void by_spawn_beside(int out)
{
    int go[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    fcntl(out, F_SETFD, FD_CLOEXEC);
    put(out, "a");
    for (int given = 0; given < 2; given++) {
        if (pipe2(go, O_CLOEXEC))
            fail("pipe2");
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, go[0], 0);
        posix_spawn_file_actions_adddup2(&actions, out, 1);
        if (posix_spawn(&child, "/bin/sh", &actions, NULL, waits, environ))
            fail("posix_spawn");
        go_on_beside(out, go, child);
    }
}

static void by_inherited_spawn_beside(int out)
{
    int go[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    char command[64], *arguments[] = {"sh", "-c", command, NULL};
    snprintf(command, sizeof command, "read line; printf d >&%d", out);
    put(out, "a");
    if (pipe2(go, O_CLOEXEC))
        fail("pipe2");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, go[0], 0);
    if (posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ))
        fail("posix_spawn");
    go_on_beside(out, go, child);
}

static void by_vfork_beside(int out)
{
    int go[2];
    fcntl(out, F_SETFD, FD_CLOEXEC);
    put(out, "a");
    if (pipe2(go, O_CLOEXEC))
        fail("pipe2");
    pid_t child = vfork();
    if (child == 0) {
        dup2(go[0], 0);
        dup2(out, 1);
        execve("/bin/sh", waits, environ);
        _exit(9);
    }
    go_on_beside(out, go, child);
}

static void by_vfork_that_keeps_it(int out)
{
    static char command[64];
    static char *arguments[] = {"sh", "-c", command, NULL};
    int go[2];
    fcntl(out, F_SETFD, FD_CLOEXEC);
    snprintf(command, sizeof command, "read line; printf d >&%d", out);
    put(out, "a");
    if (pipe2(go, O_CLOEXEC))
        fail("pipe2");
    pid_t child = vfork();
    if (child == 0) {
        dup2(go[0], 0);
        fcntl(out, F_SETFD, 0);
        execve("/bin/sh", arguments, environ);
        _exit(9);
    }
    go_on_beside(out, go, child);
}

static void by_system(int out)
{
    char command[64];
    put(out, "a");
    snprintf(command, sizeof command, "printf b >&%d", out);
    printf("system: %d\n", system(command));
    put(out, "c");
    snprintf(command, sizeof command, "cat >&%d", out);
    FILE *pipe = popen(command, "w");
    fputs("d", pipe);
    printf("pclose: %d\n", pclose(pipe));
    put(out, "e");
}

/* Executes the same program again, with the socket kept open. */
static void by_exec(int out)
{
    char number[16];
    put(out, "a");
    snprintf(number, sizeof number, "%d", out);
    pid_t child = fork();
    if (child == 0) {
        put(out, "b");
        execl(self, self, number, NULL);
        _exit(9);
    }
    reap(child, "child");
    put(out, "e");
    child = fork();
    if (child == 0) {
        put(out, "f");
        /* A failed exec loses nothing either. */
        execl("/nonexistent", "x", NULL);
        put(out, "g");
        char *arguments[] = {self, number, NULL};
        int program = open(self, O_RDONLY | O_CLOEXEC);
        fexecve(program, arguments, environ);
        _exit(9);
    }
    reap(child, "child");
    put(out, "h");
}

static int after_exec(int out)
{
    put(out, "c");
    put(out, "d");
    return 5;
}

static void *writer(void *argument)
{
    for (int i = 0; i < 200; i++)
        put(*(int *)argument, "t");
    return NULL;
}

/* Forks while another thread writes: no byte twice, at whichever point of a write the fork came. */
static void by_fork_beside_a_thread(int out)
{
    pthread_t thread;
    pthread_create(&thread, NULL, writer, &out);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0)
            i & 1 ? exit(0) : _exit(0);
        waitpid(child, NULL, 0);
    }
    pthread_join(thread, NULL);
    put(out, "e");
}

static void *write_b(void *out)
{
    put(*(int *)out, "b");
    return NULL;
}

/* What any thread wrote comes before what a child writes, however the child is created. */
static void a_and_b(int out)
{
    pthread_t thread;
    put(out, "a");
    pthread_create(&thread, NULL, write_b, &out);
    pthread_join(thread, NULL);
}

static char command_for_child[64];

static int exec_printf(void *unused UNUSED)
{
    execl("/bin/sh", "sh", "-c", command_for_child, NULL);
    _exit(9);
}

static int write_c(void *out)
{
    put(*(int *)out, "c");
    put(*(int *)out, "c");
    _exit(0);
}

static void by_threads_and_children(int out)
{
    static char stack[65536];
    snprintf(command_for_child, sizeof command_for_child, "printf c >&%d", out);
    a_and_b(out);
    pid_t child = vfork();
    if (child == 0)
        exec_printf(NULL);
    reap(child, "vfork");
    a_and_b(out);
    child = clone(exec_printf, stack + sizeof stack, SIGCHLD | CLONE_VM | CLONE_VFORK, NULL);
    reap(child, "clone like vfork");
    a_and_b(out);
    child = clone(exec_printf, stack + sizeof stack, SIGCHLD, NULL);
    reap(child, "clone like fork, exec");
    a_and_b(out);
    child = clone(write_c, stack + sizeof stack, SIGCHLD, &out);
    reap(child, "clone like fork");
    a_and_b(out);
    child = (pid_t)syscall(SYS_fork);
    if (child == 0)
        write_c(&out);
    reap(child, "SYS_fork");
    a_and_b(out);
    child = fork();
    if (child == 0)
        exec_printf(NULL);
    reap(child, "fork, exec");
    put(out, "d");
}

static void by_scm_rights(int out)
{
    int ends[2], got = -1;
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'f';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    put(out, "a");
    pid_t child = fork();
    if (child == 0) {
        close(out);
        if (recvmsg(ends[1], &message, 0) != 1)
            _exit(9);
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        put(got, "c");
        put(ends[1], "!");
        exit(0);
    }
    put(out, "b");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof out);
    memcpy(CMSG_DATA(header), &out, sizeof out);
    if (sendmsg(ends[0], &message, 0) != 1)
        fail("sendmsg of a descriptor");
    if (read(ends[0], &byte, 1) != 1)
        fail("answer");
    put(out, "d");
    reap(child, "child");
    close(ends[0]);
    close(ends[1]);
}

static void by_pidfd(int out)
{
    int self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    put(out, "a");
    int copy = (int)syscall(SYS_pidfd_getfd, self_fd, out, 0);
    if (copy < 0)
        fail("pidfd_getfd");
    put(copy, "b");
    put(out, "c");
    close(copy);
    put(out, "d");
    close(self_fd);
}

int main(int count, char **arguments)
{
    if (count > 1)
        return after_exec(atoi(arguments[1]));
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        fail("readlink");
    struct {
        const char *name;
        void (*body)(int);
    } ways[] = {{"fork", by_fork},
                {"fork, _exit", by_fork_and_exit_without_flush},
                {"orphan", by_orphan},
                {"daemon", by_daemon},
                {"vfork", by_vfork},
                {"posix_spawn", by_spawn},
                {"posix_spawn, beside it", by_spawn_beside},
                {"posix_spawn of what inherits, beside it", by_inherited_spawn_beside},
                {"vfork, beside it", by_vfork_beside},
                {"vfork of what keeps it, beside it", by_vfork_that_keeps_it},
                {"system", by_system},
                {"exec", by_exec},
                {"fork beside a thread", by_fork_beside_a_thread},
                {"threads and children", by_threads_and_children},
                {"SCM_RIGHTS", by_scm_rights},
                {"pidfd_getfd", by_pidfd}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int fds[2];
        tcp_pair(fds);
        fcntl(fds[1], F_SETFD, FD_CLOEXEC);
        ways[i].body(fds[0]);
        close(fds[0]);
        show_stream(ways[i].name, fds[1]);
        close(fds[1]);
    }
    return 0;
}

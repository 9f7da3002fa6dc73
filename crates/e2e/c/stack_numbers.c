/* A program that chooses descriptor numbers itself, as a shell does (exec 5<>file): the library may not use them.
   */
#include "far.h"
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { LAST = 40 };
/* Descriptors that were open before there were any sockets. */
static bool taken[LAST];

/* Forks a child that only exits. */
static const char *forks(void)
{
    pid_t child = fork();
    if (!child)
        _exit(7);
    for (int tries = 0; tries < 200; tries++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "a child ends" : "a child dies";
        sleep_ms(10);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return NULL;
}

/* Sends one octet each way. */
static const char *exchange(int fd, int at)
{
    char octet = 0;
    far_ok(far("put %d a", at));
    struct pollfd one = {fd, POLLIN, 0};
    if (poll(&one, 1, 2000) != 1)
        return "nothing comes";
    if (read(fd, &octet, 1) != 1 || octet != 'a')
        return "another octet comes";
    return write(fd, "b", 1) == 1 ? "fine" : "nothing goes";
}

/* Moves a connection to each number, then forks. */
static void moved(const char *when)
{
    for (int to = 3; to < LAST; to++) {
        if (taken[to])
            continue;
        int fd = near_connected(1);
        if (fd != to) {
            printf("%s, a connection at %d: %s", when, to, yes(dup2(fd, to) == to));
            close(fd);
        } else {
            printf("%s, a connection at %d: yes", when, to);
        }
        const char *child = forks();
        printf(", %s", child ? child : "a child hangs");
        if (!child) {
            printf("\n");
            exit(1);
        }
        printf(", %s", exchange(to, 1));
        close(to);
        printf(", it has %s\n", far("end 1"));
    }
}

/* Puts a file at each free number, while a connection is used. */
static void covered(void)
{
    int fd = near_connected(1), file = memfd_create("covers", MFD_CLOEXEC), wrong = 0;
    struct stat wanted, found;
    fstat(file, &wanted);
    for (int to = 3; to < LAST; to++) {
        if (taken[to] || to == fd || to == file)
            continue;
        if (dup2(file, to) != to)
            printf("a file at %d: %s\n", to, strerrorname_np(errno));
        const char *went = exchange(fd, 1);
        if (strcmp(went, "fine"))
            printf("a file at %d: %s\n", to, went);
    }
    const char *child = forks();
    printf("files all over: %s", child ? child : "a child hangs");
    int other = near_connected(2);
    printf(", another %s", exchange(other, 2));
    close(other);
    printf(", it has %s", far("end 2"));
    close(fd);
    printf(", and the one %s", far("end 1"));
    for (int to = 3; to < LAST; to++)
        if (!taken[to] && to != fd && to != file && to != other) {
            wrong += fstat(to, &found) || found.st_ino != wanted.st_ino || found.st_size;
            close(to);
        }
    close(file);
    printf(", files that are others %d\n", wrong);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    for (int fd = 0; fd < LAST; fd++)
        taken[fd] = fcntl(fd, F_GETFD) != -1;
    moved("first");
    covered();
    /* A process with sleeping threads and epoll sets uses more descriptors of the library. */
    int kept = near_accepted(3), set = epoll_create1(0);
    taken[kept] = taken[set] = true;
    epoll_ctl(set, EPOLL_CTL_ADD, kept, &(struct epoll_event){EPOLLIN, {.u64 = 1}});
    poll(&(struct pollfd){set, POLLIN, 0}, 1, 5);
    moved("then");
    covered();
    printf("the first of all: %s\n", exchange(kept, 3));
    return 0;
}

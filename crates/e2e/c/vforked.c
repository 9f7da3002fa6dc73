/* Children of vfork, which run in their parent's memory with descriptors of their own: what they write comes at once, and
 * what their parent writes then, or meanwhile, comes in time and whole. */
#include "common.h"
#include <sys/syscall.h>

static long by_itself(long number, long first, long second, long third)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
}

/* Returns whether so many bytes come within 100 ms, although nobody makes a call that the library sees, and takes them. */
static bool come(int fd, int wanted)
{
    char bytes[16];
    int queued = 0;
    double begun = now_ms();
    while (queued < wanted && now_ms() - begun < 100)
        by_itself(SYS_ioctl, fd, FIONREAD, (long)&queued);
    bool whole = queued == wanted;
    by_itself(SYS_recvfrom, fd, (long)bytes, sizeof bytes);
    return whole;
}

static void no_delay(int fd)
{
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        fail("TCP_NODELAY");
}

/* The child is the first to write a burst in this process. */
static void a_writing_child(void)
{
    int first[2], second[2];
    tcp_pair(first);
    tcp_pair(second);
    no_delay(first[0]);
    no_delay(second[0]);
    pid_t child = vfork();
    if (child == 0) {
        (void)!write(first[0], "a", 1);
        (void)!write(first[0], "b", 1);
        _exit(0);
    }
    reap(child, "child");
    printf("the child's bytes come in time: %s\n", yes(come(first[1], 2)));
    bool in_time = true;
    for (int burst = 0; burst < 6; burst++) {
        int writes = 2 + burst % 2;
        for (int i = 0; i < writes; i++)
            put(second[0], "c");
        in_time &= come(second[1], writes);
    }
    printf("the parent's bytes come in time: %s\n", yes(in_time));
}

static int out;
static size_t sent, came;
static volatile bool is_over;

static void *writes(void *unused UNUSED)
{
    while (!is_over) {
        for (int i = 0; i < 3; i++) {
            ssize_t bytes = write(out, "0123456789", 10);
            if (bytes > 0)
                sent += (size_t)bytes;
            else
                printf("FAIL write beside a child (%s)\n", strerrorname_np(errno));
        }
        for (volatile int pause = 0; pause < 20000; pause++)
            ;
    }
    return NULL;
}

static void *reads(void *in)
{
    char bytes[4096];
    for (ssize_t got; (got = read(*(int *)in, bytes, sizeof bytes)) > 0;)
        came += (size_t)got;
    return NULL;
}

/* As programs that start others as another user: the child closes what it does not need, and changes its user. */
static void a_child_that_changes_its_user(void)
{
    int fds[2];
    pthread_t writer, reader;
    tcp_pair(fds);
    out = fds[0];
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    pthread_create(&writer, NULL, writes, NULL);
    pthread_create(&reader, NULL, reads, &fds[1]);
    for (int i = 0; i < 100; i++) {
        pid_t child = vfork();
        if (child == 0) {
            close(fds[0]);
            (void)!setgid(getgid());
            _exit(0);
        }
        waitpid(child, NULL, 0);
        sleep_ms(1);
    }
    is_over = true;
    pthread_join(writer, NULL);
    close(fds[0]);
    pthread_join(reader, NULL);
    printf("bytes lost beside a child that changes its user: %zd\n", (ssize_t)(sent - came));
}

int main(void)
{
    a_writing_child();
    a_child_that_changes_its_user();
    return 0;
}

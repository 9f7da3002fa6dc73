/* A program that forbids itself, with seccomp(2), calls that it does not make: one that is made all the same kills it.
   */
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FORBID(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void forbid(bool by_number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(SYS_sendto), FORBID(SYS_sendmsg), FORBID(SYS_recvfrom), FORBID(SYS_setsockopt), FORBID(SYS_getsockopt),
        FORBID(SYS_socket), FORBID(SYS_connect), FORBID(SYS_getpeername), FORBID(SYS_openat), FORBID(SYS_mmap),
        FORBID(SYS_timer_settime), FORBID(SYS_clone), FORBID(SYS_membarrier), FORBID(SYS_futex),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        fail("PR_SET_NO_NEW_PRIVS");
    if (by_number ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                  : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("seccomp");
}

/* One write a packet: what that rhythm predicts is sent in the shortest way. */
static void packets(int fds[2], const char *text)
{
    char got[2];
    for (int i = 0; i < 100; i++) {
        put(fds[0], text);
        take(fds[1], got, 1);
        put(fds[1], text);
        take(fds[0], got, 1);
    }
}

static void in_the_sandbox(bool by_number)
{
    int fds[2];
    char got[8] = "";
    tcp_pair(fds);
    packets(fds, "a");
    forbid(by_number);
    packets(fds, "b");
    put(fds[0], "c");
    put(fds[0], "d");
    take(fds[1], got, 2);
    printf("arrived: %s\n", got);
    exit(3);
}

int main(void)
{
    for (int by_number = 0; by_number < 2; by_number++) {
        pid_t child = fork();
        if (child == 0)
            in_the_sandbox(by_number);
        reap(child, "in the sandbox");
    }
    return 0;
}

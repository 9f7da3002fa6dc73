/* A program that includes this first makes its calls by number (syscall(2)), as libraries do that bypass libc. */
#ifndef UNCORK_E2E_BY_NUMBER_H
#define UNCORK_E2E_BY_NUMBER_H
#include "far.h"
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* Calls whose arguments differ in the kernel. Its signal masks have eight octets, and offsets two halves. */
UNUSED static ssize_t by_number_recv(int fd, void *into, size_t count, int flags)
{
    return syscall(SYS_recvfrom, fd, into, count, flags, NULL, NULL);
}

UNUSED static ssize_t by_number_send(int fd, const void *from, size_t count, int flags)
{
    return syscall(SYS_sendto, fd, from, count, flags, NULL, 0);
}

UNUSED static ssize_t by_number_preadv2(int fd, const struct iovec *into, int count, off_t at, int flags)
{
    return syscall(SYS_preadv2, fd, into, count, at, 0L, flags);
}

UNUSED static ssize_t by_number_pwritev2(int fd, const struct iovec *from, int count, off_t at, int flags)
{
    return syscall(SYS_pwritev2, fd, from, count, at, 0L, flags);
}

UNUSED static int by_number_ppoll(struct pollfd *all, nfds_t count, const struct timespec *limit, const sigset_t *mask)
{
    /* The kernel writes back what is left of the limit. */
    struct timespec own = limit ? *limit : (struct timespec){0, 0};
    return (int)syscall(SYS_ppoll, all, count, limit ? &own : NULL, mask, 8L);
}

UNUSED static int by_number_epoll_pwait(int set, struct epoll_event *into, int most, int limit, const sigset_t *mask)
{
    return (int)syscall(SYS_epoll_pwait, set, into, most, limit, mask, 8L);
}

UNUSED static int by_number_pselect(int count, fd_set *in, fd_set *out, fd_set *other, const struct timespec *limit,
                                    const sigset_t *mask)
{
    struct timespec own = limit ? *limit : (struct timespec){0, 0};
    const struct {
        const sigset_t *mask;
        size_t size;
    } sixth = {mask, 8};
    return (int)syscall(SYS_pselect6, count, in, out, other, limit ? &own : NULL, &sixth);
}

#define recv(...) by_number_recv(__VA_ARGS__)
#define send(...) by_number_send(__VA_ARGS__)
#define preadv2(...) by_number_preadv2(__VA_ARGS__)
#define pwritev2(...) by_number_pwritev2(__VA_ARGS__)
#define ppoll(...) by_number_ppoll(__VA_ARGS__)
#define epoll_pwait(...) by_number_epoll_pwait(__VA_ARGS__)
#define pselect(...) by_number_pselect(__VA_ARGS__)
#define epoll_pwait2(...) (int)syscall(SYS_epoll_pwait2, __VA_ARGS__, 8L)
#define splice(...) syscall(SYS_splice, __VA_ARGS__)
#define read(...) syscall(SYS_read, __VA_ARGS__)
#define write(...) syscall(SYS_write, __VA_ARGS__)
#define readv(...) syscall(SYS_readv, __VA_ARGS__)
#define writev(...) syscall(SYS_writev, __VA_ARGS__)
#define recvfrom(...) syscall(SYS_recvfrom, __VA_ARGS__)
#define sendto(...) syscall(SYS_sendto, __VA_ARGS__)
#define recvmsg(...) syscall(SYS_recvmsg, __VA_ARGS__)
#define sendmsg(...) syscall(SYS_sendmsg, __VA_ARGS__)
#define recvmmsg(...) (int)syscall(SYS_recvmmsg, __VA_ARGS__)
#define sendmmsg(...) (int)syscall(SYS_sendmmsg, __VA_ARGS__)
#define socket(...) (int)syscall(SYS_socket, __VA_ARGS__)
#define bind(...) (int)syscall(SYS_bind, __VA_ARGS__)
#define listen(...) (int)syscall(SYS_listen, __VA_ARGS__)
#define accept(...) (int)syscall(SYS_accept, __VA_ARGS__)
#define accept4(...) (int)syscall(SYS_accept4, __VA_ARGS__)
#define connect(...) (int)syscall(SYS_connect, __VA_ARGS__)
#define shutdown(...) (int)syscall(SYS_shutdown, __VA_ARGS__)
#define getsockname(...) (int)syscall(SYS_getsockname, __VA_ARGS__)
#define getpeername(...) (int)syscall(SYS_getpeername, __VA_ARGS__)
#define setsockopt(...) (int)syscall(SYS_setsockopt, __VA_ARGS__)
#define getsockopt(...) (int)syscall(SYS_getsockopt, __VA_ARGS__)
#define ioctl(...) (int)syscall(SYS_ioctl, __VA_ARGS__)
#define fcntl(...) (int)syscall(SYS_fcntl, __VA_ARGS__)
#define close(...) (int)syscall(SYS_close, __VA_ARGS__)
#define dup(...) (int)syscall(SYS_dup, __VA_ARGS__)
#define poll(...) (int)syscall(SYS_poll, __VA_ARGS__)
#define select(...) (int)syscall(SYS_select, __VA_ARGS__)
#define epoll_wait(...) (int)syscall(SYS_epoll_wait, __VA_ARGS__)
#define epoll_ctl(...) (int)syscall(SYS_epoll_ctl, __VA_ARGS__)
#endif

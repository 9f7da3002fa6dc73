/* uncork.h: for programs that know of uncork. No program needs to.
 *
 * With `uncork run --stack -- PROGRAM`, or for a program that is linked with libuncork.so before libc:
 *
 *     cc program.c -L/usr/local/lib/uncork -luncork -Wl,-rpath,/usr/local/lib/uncork
 *
 * Without the library the flags make socket(2) fail with EINVAL, and `uncork_place` is a null pointer: it is
 * declared weak.
 */
#ifndef UNCORK_H
#define UNCORK_H

#include <stddef.h>

/* A flag in the type argument of socket(2): the socket stays on the kernel, whatever its route. */
#ifndef SOCK_KERNEL
#define SOCK_KERNEL 0x02000000
#endif

/* A flag in the type argument of socket(2), without effect: the route to the peer decides, as it does without
 * the flag. For programs that were written for F-Stack's adapter. */
#ifndef SOCK_FSTACK
#define SOCK_FSTACK 0x01000000
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The place of a TCP socket. */
enum uncork_place {
	UNCORK_NOWHERE = -1,   /* no TCP socket, or the process does not run on the stack */
	UNCORK_UNDECIDED = 0,  /* it neither listens nor is connected, or its process has not waited there yet */
	UNCORK_STACK = 1,      /* on the stack; a listener is also the kernel's */
	UNCORK_KERNEL = 2,     /* on the kernel */
};

/* Returns where a descriptor's socket is. Unless `why` is a null pointer, writes the reason there, as a string
 * of at most `bytes` octets including the terminating null. Allocates: not async-signal-safe. */
__attribute__((weak)) enum uncork_place uncork_place(int fd, char *why, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif

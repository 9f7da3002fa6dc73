/* uncork.h: for programs that know of uncork. None has to.
 *
 * With `uncork run --stack -- PROGRAM`, or a program that is linked with libuncork.so before libc:
 *
 *     cc program.c -L/usr/local/lib/uncork -luncork -Wl,-rpath,/usr/local/lib/uncork
 *
 * Without the library the flags make socket(2) fail with EINVAL, and `uncork_place` is a null pointer: it is
 * declared weak.
 */
#ifndef UNCORK_H
#define UNCORK_H

#include <stddef.h>

/* Added to the type that socket(2) is given: this socket stays the kernel's, whatever its way is. */
#ifndef SOCK_KERNEL
#define SOCK_KERNEL 0x02000000
#endif

/* Added to the type that socket(2) is given: nothing changes. The way to the other end decides, as it does
 * anyhow. For programs that were written for F-Stack's adapter. */
#ifndef SOCK_FSTACK
#define SOCK_FSTACK 0x01000000
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Where a TCP socket is. */
enum uncork_place {
	UNCORK_NOWHERE = -1,   /* no TCP socket, or the process does not run on the stack */
	UNCORK_UNDECIDED = 0,  /* it neither listens nor is connected, or nobody has waited there yet */
	UNCORK_STACK = 1,      /* on the stack; a listener is also the kernel's */
	UNCORK_KERNEL = 2,     /* the kernel's */
};

/* Where the socket behind a descriptor is. Unless `why` is a null pointer, writes why, as a string of at most
 * `bytes` octets with the zero at its end. Allocates; not for signal handlers. */
__attribute__((weak)) enum uncork_place uncork_place(int fd, char *why, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif

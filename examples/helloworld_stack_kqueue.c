/*
 * helloworld_stack_kqueue [PORT]: many connections at once, with kqueue(2), which on Linux only libkqueue provides.
 * It waits in epoll(7), and so works on the stack as on kernel sockets.
 */
#define _GNU_SOURCE /* accept4 */
#include "helloworld.h"

#include <sys/event.h>

#define EVENTS 64

/* EV_ADD adds a descriptor; EV_DELETE removes it, since libkqueue does not notice close(2). */
static void watch(int queue, int fd, int whether)
{
	struct kevent change;

	EV_SET(&change, fd, EVFILT_READ, whether, 0, 0, NULL);
	if (kevent(queue, &change, 1, NULL, 0, NULL) < 0)
		die("kevent");
}

/* Accepts all connections that wait. */
static void take_all(int queue, int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		watch(queue, fd, EV_ADD);
	if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		die("accept4");
}

int main(int argc, char **argv)
{
	int listener = listen_at(port_of(argc, argv), SOCK_NONBLOCK), queue = kqueue();

	if (queue < 0)
		die("kqueue");
	watch(queue, listener, EV_ADD);
	for (;;) {
		struct kevent ready[EVENTS];
		int count = kevent(queue, NULL, 0, ready, EVENTS, NULL);

		if (count < 0 && errno != EINTR)
			die("kevent");
		for (int at = 0; at < count; at++) {
			int fd = (int)ready[at].ident;

			if (fd == listener) {
				take_all(queue, listener);
			} else if (!answer(fd, "helloworld_stack_kqueue")) {
				watch(queue, fd, EV_DELETE);
				close(fd);
			}
		}
	}
}

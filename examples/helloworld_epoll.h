/* Shared by the examples with an epoll set. */
#ifndef HELLOWORLD_EPOLL_H
#define HELLOWORLD_EPOLL_H

#define _GNU_SOURCE /* accept4 */
#include <sys/epoll.h>

#include "helloworld.h"

#define EVENTS 64

static inline int set_of(void)
{
	int set = epoll_create1(0);

	if (set < 0)
		die("epoll_create1");
	return set;
}

static inline void watch(int set, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	/* An always-ready file cannot be a member: standard input may be one. */
	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0 && errno != EPERM)
		die("epoll_ctl");
}

/* Returns how many are ready. */
static inline int wait_for(int set, struct epoll_event *ready)
{
	int count = epoll_wait(set, ready, EVENTS, -1);

	if (count < 0 && errno != EINTR)
		die("epoll_wait");
	return count;
}

/* Accepts all connections that wait. */
static inline void take_all(int set, int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		watch(set, fd);
	if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		die("accept4");
}

/* Serves all connections of a listener, for ever. */
static inline void serve_all(int listener, const char *by)
{
	int set = set_of();

	watch(set, listener);
	for (;;) {
		struct epoll_event ready[EVENTS];
		int count = wait_for(set, ready);

		for (int at = 0; at < count; at++) {
			int fd = ready[at].data.fd;

			if (fd == listener)
				take_all(set, listener);
			else if (!answer(fd, by))
				close(fd);
		}
	}
}

#endif

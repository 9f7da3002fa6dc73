/* helloworld_stack_epoll [PORT]: many connections at once, by epoll(7). */
#include "helloworld_epoll.h"

int main(int argc, char **argv)
{
	int listener = listen_at(port_of(argc, argv), SOCK_NONBLOCK), set = set_of();

	watch(set, listener);
	for (;;) {
		struct epoll_event ready[EVENTS];
		int count = wait_for(set, ready);

		for (int at = 0; at < count; at++) {
			int fd = ready[at].data.fd;

			if (fd == listener)
				take_all(set, listener);
			else if (!answer(fd, "helloworld_stack_epoll"))
				close(fd);
		}
	}
}

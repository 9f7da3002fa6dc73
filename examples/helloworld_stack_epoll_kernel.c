/* helloworld_stack_epoll_kernel [PORT]: sockets of the stack and of the kernel in one epoll set.
 *
 * At PORT, connections over the stack's devices are on the stack and those over loopback on the kernel, by the same
 * listener. At PORT + 1 all are on the kernel, because the program asks for it (SOCK_KERNEL). Standard input is in
 * the set as well: its lines are echoed. Each response says where its connection is.
 *
 *     curl -i http://ADDRESS:8080/          from another host: "Place: stack"
 *     curl -i http://127.0.0.1:8080/        from this one:     "Place: kernel"
 *     curl -i http://ADDRESS:8081/          from anywhere:     "Place: kernel"
 */
#include "helloworld_epoll.h"

/* Echoes a line of standard input, whose end does not end the program. Returns whether there was one. */
static int say_again(void)
{
	char line[256];
	ssize_t got = read(STDIN_FILENO, line, sizeof(line));

	return got > 0 && write(STDOUT_FILENO, line, got) == got;
}

int main(int argc, char **argv)
{
	int port = port_of(argc, argv), set = set_of();
	int either = listen_at(port, SOCK_NONBLOCK);
	/* Without `uncork run --stack` the kernel refuses the flag, and all sockets are its own anyway. */
	int is_on = uncork_place && uncork_place(either, NULL, 0) != UNCORK_NOWHERE;
	int kernels = listen_at(port + 1, SOCK_NONBLOCK | (is_on ? SOCK_KERNEL : 0));

	watch(set, either);
	watch(set, kernels);
	watch(set, STDIN_FILENO);
	for (;;) {
		struct epoll_event ready[EVENTS];
		int count = wait_for(set, ready);

		for (int at = 0; at < count; at++) {
			int fd = ready[at].data.fd;

			if (fd == either || fd == kernels)
				take_all(set, fd);
			else if (fd == STDIN_FILENO && !say_again())
				epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
			else if (fd != STDIN_FILENO && !answer(fd, "helloworld_stack_epoll_kernel"))
				close(fd);
		}
	}
}

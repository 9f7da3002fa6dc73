/* helloworld_stack [PORT]: the shortest server possible: one connection after the other, all calls blocking.
 *
 *     sudo uncork run --stack --dev eth0 -- out/examples/helloworld_stack 8080
 *     curl -i http://ADDRESS:8080/          from another host: "Place: stack"
 */
#include "helloworld.h"

int main(int argc, char **argv)
{
	int listener = listen_at(port_of(argc, argv), 0);

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			die("accept");
		while (answer(fd, "helloworld_stack"))
			;
		close(fd);
	}
}

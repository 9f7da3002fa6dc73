/* helloworld_stack_epoll [PORT]: many connections at once, with epoll(7); the loop is in helloworld_epoll.h. */
#include "helloworld_epoll.h"

int main(int argc, char **argv)
{
	serve_all(listen_at(port_of(argc, argv), SOCK_NONBLOCK), "helloworld_stack_epoll");
}

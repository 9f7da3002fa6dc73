/* Shared by the examples: a response, a listener, and a function that answers a request. */
#ifndef HELLOWORLD_H
#define HELLOWORLD_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "uncork.h"

static const char HTML[] = "<!DOCTYPE html>\n<title>uncork</title>\n<p>Hello, world.\n";

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Returns the port in the first argument, or 8080. */
static inline int port_of(int argc, char **argv)
{
	int port = argc > 1 ? atoi(argv[1]) : 8080;

	if (port < 1 || port > 65534) {
		fprintf(stderr, "%s: a port from 1 to 65534, not %s\n", argv[0], argv[1]);
		exit(2);
	}
	return port;
}

/* Returns a socket that listens on all addresses. `flags` go into its type: SOCK_NONBLOCK, SOCK_KERNEL. */
static inline int listen_at(int port, int flags)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | flags, 0);

	if (fd < 0)
		die("socket");
	/* Several sockets may listen there, and share the connections. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0)
		die("setsockopt");
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		die("bind");
	if (listen(fd, SOMAXCONN) < 0)
		die("listen");
	return fd;
}

/* Returns where a connection is, for the response. */
static inline const char *place_of(int fd)
{
	if (!uncork_place)
		return "kernel (without uncork)";
	switch (uncork_place(fd, NULL, 0)) {
	case UNCORK_STACK:
		return "stack";
	case UNCORK_NOWHERE:
		return "kernel (without uncork run --stack)";
	default:
		return "kernel";
	}
}

/* Answers a request in two writes, as many programs do: they leave together. Returns whether the connection goes on. */
static inline int answer(int fd, const char *by)
{
	char request[4096], head[256];
	ssize_t got = read(fd, request, sizeof(request));
	int length;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (got <= 0)
		return 0;
	length = snprintf(head, sizeof(head),
			  "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %zu\r\n"
			  "Server: %s\r\nPlace: %s\r\n\r\n",
			  sizeof(HTML) - 1, by, place_of(fd));
	return write(fd, head, length) == length &&
	       write(fd, HTML, sizeof(HTML) - 1) == sizeof(HTML) - 1;
}

#endif

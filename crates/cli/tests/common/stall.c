/*
 * A server of one connection, which answers each octet by 300 octets in two writes, three calls
 * deep. What it does besides is its argument; its port is printed first.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))
/* No call is the last thing that its function does: then it would be a jump. */
#define AND_BACK __asm__ volatile("" ::: "memory")

static const char *manner;
static char octets[300];
static int listener;

static int is(const char *name)
{
	return !strcmp(manner, name);
}

static void cork(int fd, int on)
{
	setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

KEPT static void put_body(int fd)
{
	/* The end of the message is announced as its middle, and no more comes. */
	if (is("more-at-the-end")) {
		send(fd, octets, 200, MSG_MORE);
		return;
	}
	if (is("more-then-last")) {
		send(fd, octets, 50, MSG_MORE);
		usleep(10000);
		send(fd, octets, 150, 0);
		return;
	}
	if (is("three-writes")) {
		send(fd, octets, 50, 0);
		send(fd, octets, 150, 0);
		return;
	}
	if (is("cork-taken-off")) {
		cork(fd, 1);
		send(fd, octets, 200, 0);
		usleep(10000);
		cork(fd, 0);
		return;
	}
	if (write(fd, octets, 200) < 0)
		exit(1);
	AND_BACK;
}

KEPT static void put_answer(int fd)
{
	if (write(fd, octets, 100) < 0)
		exit(1);
	put_body(fd);
	AND_BACK;
}

/*
 * Code that was made by the program itself, as an interpreter does: it keeps a frame pointer, calls
 * what it is given, and is told to perf.
 */
static void (*made(void))(int, void (*)(int))
{
#if defined(__x86_64__)
	static const unsigned char code[] = {
		0x55,			/* push %rbp */
		0x48, 0x89, 0xe5,	/* mov %rsp, %rbp */
		0xff, 0xd6,		/* call *%rsi */
		0x5d, 0xc3,		/* pop %rbp; ret */
	};
#elif defined(__aarch64__)
	static const unsigned int code[] = {
		0xa9bf7bfd,	/* stp x29, x30, [sp, -16]! */
		0x910003fd,	/* mov x29, sp */
		0xd63f0020,	/* blr x1 */
		0xa8c17bfd,	/* ldp x29, x30, [sp], 16 */
		0xd65f03c0,	/* ret */
	};
#endif
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char name[64];
	FILE *map;

	memcpy(page, code, sizeof(code));
	__builtin___clear_cache(page, page + sizeof(code));
	snprintf(name, sizeof(name), "/tmp/perf-%d.map", getpid());
	map = fopen(name, "w");
	fprintf(map, "%lx %zx py::put:/srv/app.py\n", (unsigned long)page, sizeof(code));
	fclose(map);
	return (void (*)(int, void (*)(int)))page;
}

KEPT static void serve_requests(int fd)
{
	void (*call)(int, void (*)(int)) = is("made") ? made() : NULL;
	char request;

	while (read(fd, &request, 1) == 1) {
		if (call)
			call(fd, put_answer);
		else
			put_answer(fd);
	}
	AND_BACK;
}

/* TCP_NODELAY, as it is asked for in vain. */
static void ask_in_vain(int fd)
{
	int on = 1, udp;
	char short_on = 1;

	if (is("wrong-level"))
		setsockopt(fd, SOL_SOCKET, TCP_NODELAY, &on, sizeof(on));
	if (is("short-value"))
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &short_on, sizeof(short_on));
	if (is("listener"))
		setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (is("udp")) {
		udp = socket(AF_INET, SOCK_DGRAM, 0);
		setsockopt(udp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	int fd;

	manner = count > 1 ? arguments[1] : "";
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		return 1;
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	fd = accept(listener, NULL, NULL);
	ask_in_vain(fd);
	serve_requests(fd);
	return 0;
}

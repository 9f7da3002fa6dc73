/* helloworld_stack_thread_socket [PORT [THREADS]]: each thread has a listener, an epoll set and connections of its
 * own, and shares none of them. The port is shared among the threads (SO_REUSEPORT). Each response names its thread.
 * Under `uncork run --stack --thread-sockets` each has a stack of its own, too, and waits for no other's lock. */
#include "helloworld_epoll.h"

#include <pthread.h>

#define MOST_THREADS 64

static int port;

static void *serve(void *number)
{
	char name[64];

	snprintf(name, sizeof(name), "helloworld_stack_thread_socket %d", *(int *)number);
	serve_all(listen_at(port, SOCK_NONBLOCK), name);
	return NULL;
}

int main(int argc, char **argv)
{
	static int numbers[MOST_THREADS];
	pthread_t threads[MOST_THREADS];
	int count = argc > 2 ? atoi(argv[2]) : 2;

	port = port_of(argc, argv);
	if (count < 1 || count > MOST_THREADS) {
		fprintf(stderr, "%s: 1 to %d threads, not %s\n", argv[0], MOST_THREADS, argv[2]);
		return 2;
	}
	for (int at = 0; at < count; at++) {
		numbers[at] = at;
		errno = pthread_create(&threads[at], NULL, serve, &numbers[at]);
		if (errno)
			die("pthread_create");
	}
	for (int at = 0; at < count; at++)
		pthread_join(threads[at], NULL);
	return 0;
}

/* ending HOW: a handler that has interrupted malloc(3) writes held and other bytes, and ends the process. */
#include "heap.h"

static const char *how;
static struct connection {
    int here, there;
} ends[8];

static void handler(int signal UNUSED)
{
    heap_is_interrupted = 1;
    for (int i = 0; i < 8; i++) {
        /* Alternately held, and passed through as for a program that corks itself. */
        send(ends[i].here, "in the handler", 14, i % 2 ? MSG_MORE : 0);
        write(ends[i].here, "and more", 8);
    }
    if (strcmp(how, "exec") == 0)
        execl("/bin/echo", "echo", "another program", (char *)NULL);
    else if (strcmp(how, "exit_group") == 0)
        syscall(SYS_exit_group, 7);
    else
        _exit(7);
}

int main(int count, char **arguments)
{
    how = arguments[count - 1];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 8) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        fail("no listener");
    for (int i = 0; i < 8; i++) {
        ends[i].here = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(ends[i].here, (struct sockaddr *)&address, size))
            fail("not connected");
        ends[i].there = accept(listener, NULL, NULL);
        fcntl(ends[i].there, F_SETFD, FD_CLOEXEC);
        write(ends[i].here, "before", 6);
    }
    printf("8 connections\n");
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    return 1;
}

/* busy PORT: sends a byte to each client. The first clients have a thread each, which receives without ever resting. It
 * would end well if a signal did not end it. */
#include "common.h"
#include <stdatomic.h>

enum { TAKERS = 4, ASKED = 16 };

static void *ask(void *connection)
{
    char octets[64];
    for (;;)
        recv((int)(intptr_t)connection, octets, sizeof octets, MSG_DONTWAIT);
    return NULL;
}

static void *take_all(void *listener)
{
    static atomic_int taken;
    for (;;) {
        pthread_t thread;
        int connection = accept((int)(intptr_t)listener, NULL, NULL);
        send(connection, "!", 1, MSG_NOSIGNAL);
        if (taken++ >= ASKED)
            close(connection);
        else if (pthread_create(&thread, NULL, ask, (void *)(intptr_t)connection))
            fail("pthread_create");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage: busy PORT");
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (struct sockaddr *)&place, sizeof place) || listen(listener, 64))
        fail("listen");
    for (int count = 0; count < TAKERS; count++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, take_all, (void *)(intptr_t)listener))
            fail("pthread_create");
    }
    pause();
    return 0;
}

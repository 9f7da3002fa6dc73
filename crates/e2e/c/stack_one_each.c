/* A thread for each connection, at either end, that waits for data in one of several ways. The server echoes questions.
 *
 * stack_one_each serve PORT
 * stack_one_each ask HOST PORT THREADS MS OCTETS ROUNDS: questions of up to so many octets, one after the other, in each round
 *   on new connections; SIGUSR1 ends a round earlier */
#include "common.h"
#include <sys/select.h>

enum { WAYS = 4, LENGTH = sizeof(uint32_t), MOST = 1 << 20 };

struct talk {
    int fd, number, most;
    double until;
    long asked;
    pthread_t thread;
};

static volatile sig_atomic_t is_over;

static void ends(int signal UNUSED)
{
    is_over = true;
}

/* Waits for data, or the end, in the way of this number. */
static void await(int fd, int way)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    fd_set set;
    switch (way % WAYS) {
    case 0:
        /* The return of a handler does not restart these (signal(7)). */
        while (poll(&one, 1, -1) != 1)
            if (errno != EINTR)
                fail("poll");
        break;
    case 1:
        do {
            FD_ZERO(&set);
            FD_SET(fd, &set);
        } while (select(fd + 1, &set, NULL, NULL, NULL) != 1 && errno == EINTR);
        break;
    default:
        /* By the call itself. */
        break;
    }
}

/* Returns whether so many octets were received. */
static bool read_all(int fd, int way, void *to, size_t octets)
{
    size_t got = 0;
    while (got < octets) {
        await(fd, way);
        ssize_t came = recv(fd, (char *)to + got, octets - got, way % WAYS == 2 ? MSG_WAITALL : 0);
        if (came == 0 && got == 0)
            return false;
        if (came <= 0)
            fail("recv: %zd behind %zu of %zu", came, got, octets);
        got += (size_t)came;
    }
    return true;
}

static void write_all(int fd, const void *from, size_t octets)
{
    for (size_t put = 0; put < octets;) {
        ssize_t went = send(fd, (const char *)from + put, octets - put, MSG_NOSIGNAL);
        if (went <= 0)
            fail("send: %zd behind %zu of %zu", went, put, octets);
        put += (size_t)went;
    }
}

static void *answers(void *which)
{
    struct talk *talk = which;
    unsigned char *buffer = malloc(LENGTH + MOST);
    uint32_t octets;
    while (read_all(talk->fd, talk->number, &octets, LENGTH)) {
        if (octets > MOST)
            fail("%u octets are asked for", octets);
        memcpy(buffer, &octets, LENGTH);
        if (!read_all(talk->fd, talk->number, buffer + LENGTH, octets))
            fail("the end in the middle");
        write_all(talk->fd, buffer, LENGTH + octets);
    }
    close(talk->fd);
    free(buffer);
    free(talk);
    return NULL;
}

static void *asks(void *which)
{
    struct talk *talk = which;
    unsigned char *sent = malloc(LENGTH + MOST), *got = malloc(MOST);
    unsigned state = (unsigned)talk->number * 2654435761u + 1;
    for (; !is_over && now_ms() < talk->until; talk->asked++) {
        state = state * 1664525u + 1013904223u;
        uint32_t octets = 1 + (state >> 8) % (unsigned)talk->most, answered;
        memcpy(sent, &octets, LENGTH);
        for (uint32_t at = 0; at < octets; at++)
            sent[LENGTH + at] = (unsigned char)(state + at * 7);
        write_all(talk->fd, sent, LENGTH + octets);
        if (!read_all(talk->fd, talk->number, &answered, LENGTH) || answered != octets)
            fail("%u octets for %u", answered, octets);
        if (!read_all(talk->fd, talk->number, got, octets) || memcmp(sent + LENGTH, got, octets) != 0)
            fail("other octets, of %u, behind %ld questions", octets, talk->asked);
    }
    return NULL;
}

static int serve(int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 128))
        fail("listen");
    printf("descriptor %d\n", listener);
    for (int number = 0;; number++) {
        struct talk *talk = calloc(1, sizeof *talk);
        talk->fd = accept(listener, NULL, NULL);
        talk->number = number;
        if (talk->fd < 0)
            fail("accept");
        pthread_create(&talk->thread, NULL, answers, talk);
        pthread_detach(talk->thread);
    }
}

static long ask(const char *host, int port, int threads, double ms, int most)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct talk *talks = calloc((size_t)threads, sizeof *talks);
    long asked = 0;
    is_over = false;
    inet_pton(AF_INET, host, &there.sin_addr);
    for (int number = 0; number < threads; number++) {
        struct talk *talk = &talks[number];
        *talk = (struct talk){.number = number, .most = most, .until = now_ms() + ms};
        talk->fd = socket(AF_INET, SOCK_STREAM, 0);
        int on = 1;
        setsockopt(talk->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (connect(talk->fd, (struct sockaddr *)&there, sizeof there))
            fail("connect");
    }
    for (int number = 0; number < threads; number++)
        pthread_create(&talks[number].thread, NULL, asks, &talks[number]);
    for (int number = 0; number < threads; number++) {
        pthread_join(talks[number].thread, NULL);
        asked += talks[number].asked;
        close(talks[number].fd);
    }
    free(talks);
    return asked;
}

int main(int arguments, char **argument)
{
    if (arguments == 3 && strcmp(argument[1], "serve") == 0)
        return serve(atoi(argument[2]));
    if (arguments == 8 && strcmp(argument[1], "ask") == 0) {
        struct sigaction ended = {.sa_handler = ends, .sa_flags = SA_RESTART};
        sigaction(SIGUSR1, &ended, NULL);
        int port = atoi(argument[3]), threads = atoi(argument[4]), most = atoi(argument[6]);
        for (int round = atoi(argument[7]); round > 0; round--)
            printf("%ld\n", ask(argument[2], port, threads, atof(argument[5]), most));
        return 0;
    }
    errno = EINVAL;
    fail("what to do");
}

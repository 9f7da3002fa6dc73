/* Many threads on one connection, and on each other's: every line intact, none lost or twice. */
#include "common.h"

enum { THREADS = 8, LINES = 300 };

static int shared;

struct line_writer {
    int fd, id;
};

static void *write_lines(void *argument)
{
    struct line_writer *me = argument;
    char line[64];
    for (int i = 0; i < LINES; i++) {
        int length = snprintf(line, sizeof line, "%d %d %.*s\n", me->id, i, i % 30,
                              "abcdefghijklmnopqrstuvwxyzabcdef");
        ssize_t sent = i % 3 == 0   ? send(me->fd, line, (size_t)length, 0)
                       : i % 3 == 1 ? send(me->fd, line, (size_t)length, MSG_NOSIGNAL)
                                    : write(me->fd, line, (size_t)length);
        if (sent != length)
            fail("short write of %d: %zd", length, sent);
        if (i % 50 == me->id)
            poll(&(struct pollfd){me->fd, POLLIN, 0}, 1, 0);
        if (i % 97 == 0)
            sleep_ms(1);
    }
    return NULL;
}

static void *read_lines(void *argument)
{
    int fd = *(int *)argument, next[THREADS] = {0}, bad = 0, lines = 0;
    FILE *stream = fdopen(fd, "r");
    char line[128], wanted[64];
    while (fgets(line, sizeof line, stream)) {
        int id = -1, number = -1;
        lines++;
        if (sscanf(line, "%d %d", &id, &number) != 2 || id < 0 || id >= THREADS ||
            number != next[id]) {
            bad++;
            continue;
        }
        snprintf(wanted, sizeof wanted, "%d %d %.*s\n", id, number, number % 30,
                 "abcdefghijklmnopqrstuvwxyzabcdef");
        bad += strcmp(line, wanted) != 0;
        next[id]++;
    }
    printf("lines %d, broken or out of their thread's order %d\n", lines, bad);
    fclose(stream);
    return NULL;
}

static void one_connection(void)
{
    int fds[2];
    pthread_t threads[THREADS], reader;
    struct line_writer writers[THREADS];
    tcp_pair(fds);
    pthread_create(&reader, NULL, read_lines, &fds[1]);
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (struct line_writer){fds[0], i};
        pthread_create(&threads[i], NULL, write_lines, &writers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    close(fds[0]);
    pthread_join(reader, NULL);
}

/* Each thread plays ping-pong on its own connection while all share the process. */
static void *echo(void *argument)
{
    int fd = *(int *)argument, on = 1;
    char bytes[64];
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        for (ssize_t done = 0; done < got; done++)
            if (write(fd, bytes + done, 1) != 1)
                fail("echo");
    close(fd);
    return NULL;
}

static void *ping(void *argument)
{
    int fd = *(int *)argument, on = 1;
    char sent[20], back[20];
    long wrong = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (int i = 0; i < 200; i++) {
        memset(sent, 'a' + i % 26, sizeof sent);
        for (size_t k = 0; k < sizeof sent; k += 4)
            if (write(fd, sent + k, 4) != 4)
                fail("ping");
        wrong += take(fd, back, sizeof back) != sizeof back || memcmp(sent, back, sizeof back);
    }
    close(fd);
    return (void *)wrong;
}

static void many_connections(void)
{
    int fds[THREADS][2];
    long wrong = 0;
    pthread_t echoes[THREADS], pings[THREADS];
    for (int i = 0; i < THREADS; i++) {
        tcp_pair(fds[i]);
        pthread_create(&echoes[i], NULL, echo, &fds[i][1]);
        pthread_create(&pings[i], NULL, ping, &fds[i][0]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *end;
        pthread_join(pings[i], &end);
        wrong += (long)end;
        pthread_join(echoes[i], NULL);
    }
    printf("wrong echoes: %ld\n", wrong);
}

/* One thread writes while others open and close descriptors all the time. */
static volatile bool stop;
static void *churn(void *unused UNUSED)
{
    while (!stop) {
        int fds[2];
        tcp_pair(fds);
        put(fds[0], "bye");
        int copy = dup(fds[0]);
        close(fds[0]);
        put(copy, "!");
        close(copy);
        char text[8] = {0};
        if (take(fds[1], text, 7) != 4 || strcmp(text, "bye!"))
            printf("FAIL churn got %s\n", text);
        close(fds[1]);
    }
    return NULL;
}

static void among_closes(void)
{
    pthread_t churners[3], reader;
    int fds[2];
    struct line_writer writer;
    tcp_pair(fds);
    shared = fds[1];
    for (int i = 0; i < 3; i++)
        pthread_create(&churners[i], NULL, churn, NULL);
    pthread_create(&reader, NULL, read_lines, &shared);
    writer = (struct line_writer){fds[0], 0};
    write_lines(&writer);
    close(fds[0]);
    pthread_join(reader, NULL);
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(churners[i], NULL);
}

/* close() by another thread does not wake a reader in Linux, and shutdown() does. */
static void *blocked_reader(void *argument)
{
    ssize_t got = read(*(int *)argument, &(char){0}, 1);
    printf("a read that shutdown woke: %s\n", result(got));
    return NULL;
}

static void shut_from_beside(void)
{
    int fds[2];
    pthread_t reader;
    tcp_pair(fds);
    pthread_create(&reader, NULL, blocked_reader, &fds[0]);
    sleep_ms(20);
    put(fds[0], "last words");
    shutdown(fds[0], SHUT_RDWR);
    pthread_join(reader, NULL);
    show_stream("and what was written before", fds[1]);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    one_connection();
    many_connections();
    among_closes();
    shut_from_beside();
    return 0;
}

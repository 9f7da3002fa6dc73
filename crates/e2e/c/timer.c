/* timer TRIES SLACK_US BOUND_US: bytes written right before a busy loop that calls nothing arrive
 * within the bound and the slack. The median of the tries counts: a busy machine delays some. */
#include "common.h"

static int by_time(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Sends the age of what arrives: each message is the time of its first write, in two pieces. */
static void receiver(int in, int report)
{
    double written;
    while (take(in, (char *)&written, sizeof written) == sizeof written) {
        double age = now_ms() - written;
        if (write(report, &age, sizeof age) != sizeof age)
            _exit(1);
    }
    _exit(0);
}

static double median_age(int tries, int pieces, bool nodelay)
{
    int fds[2], report[2], on = nodelay;
    double ages[1000];
    tcp_pair(fds);
    if (pipe(report))
        fail("pipe");
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        receiver(fds[1], report[1]);
    }
    close(fds[1]);
    for (int i = 0; i < tries; i++) {
        double written = now_ms();
        size_t step = sizeof written / (size_t)pieces;
        for (size_t at = 0; at < sizeof written; at += step)
            if (write(fds[0], (char *)&written + at, step) != (ssize_t)step)
                fail("write");
        /* Not even the clock is read: no library call for 10 ms and more. */
        for (volatile unsigned long spin = 0; spin < 40000000UL; spin++)
            ;
        if (read(report[0], &ages[i], sizeof ages[i]) != sizeof ages[i])
            fail("report");
    }
    close(fds[0]);
    waitpid(child, NULL, 0);
    qsort(ages, (size_t)tries, sizeof *ages, by_time);
    fprintf(stderr, "%d pieces%s: age min %.2f ms, median %.2f ms, max %.2f ms\n", pieces,
            nodelay ? ", NODELAY" : "", ages[0], ages[tries / 2], ages[tries - 1]);
    return ages[tries / 2];
}

int main(int count, char **arguments)
{
    if (count != 4)
        fail("three arguments wanted");
    int tries = atoi(arguments[1]);
    double limit = (atof(arguments[2]) + atof(arguments[3])) / 1e3;
    for (int pieces = 1; pieces <= 8; pieces *= 2)
        printf("%d pieces before a busy loop arrive in time: %s\n", pieces,
               yes(median_age(tries, pieces, true) <= limit));
    return 0;
}

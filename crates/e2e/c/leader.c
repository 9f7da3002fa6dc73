/* leader [tables]: the main thread ends while another goes on. A timer that uses the descriptors of
 * the main thread must notice, and what is held leaves in time again. With `tables`: whether a
 * thread of this process has a descriptor table of its own. */
#include "common.h"

#include <dirent.h>

static int fds[2], report[2];

static void receiver(void)
{
    double written;
    while (take(fds[1], (char *)&written, sizeof written) == sizeof written) {
        double age = now_ms() - written;
        if (write(report[1], &age, sizeof age) != sizeof age)
            _exit(1);
    }
    _exit(0);
}

/* Returns how many milliseconds a message of `pieces` writes took while its writer was busy. */
static double age_of(int pieces)
{
    double written = now_ms(), age;
    size_t step = sizeof written / (size_t)pieces;
    for (size_t at = 0; at < sizeof written; at += step)
        if (write(fds[0], (char *)&written + at, step) != (ssize_t)step)
            fail("write");
    for (volatile unsigned long spin = 0; spin < 40000000UL; spin++)
        ;
    if (read(report[0], &age, sizeof age) != sizeof age)
        fail("report");
    return age;
}

/* The number of writes differs from message to message, so that none is predicted to be the last.
 * Half of the messages may be late, as the machine may be busy with something else. */
static bool in_time(int tries)
{
    int late = 0;
    for (int i = 0; i < tries; i++)
        late += age_of(i % 3 == 0 ? 2 : i % 3 == 1 ? 8 : 4) > 3;
    fprintf(stderr, "%d of %d late\n", late, tries);
    return late * 2 <= tries;
}

static void *survivor(void *leader)
{
    pthread_join(*(pthread_t *)leader, NULL);
    /* The first may find a timer that can no longer reach it. */
    printf("the first after the main thread's end arrives: %s\n", yes(age_of(8) < 250));
    printf("the next ones in time: %s\n", yes(in_time(9)));
    exit(0);
}

static int count(const char *path)
{
    DIR *directory = opendir(path);
    int entries = -2;
    while (directory && readdir(directory))
        entries++;
    if (directory)
        closedir(directory);
    return entries;
}

static void show_tables(void)
{
    DIR *threads = opendir("/proc/self/task");
    int own = 0, all = 0;
    for (struct dirent *entry; (entry = readdir(threads));) {
        char path[300];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/fd", entry->d_name);
        all++;
        own += count(path) == 1;
    }
    closedir(threads);
    printf("threads: %d, with a table of their own: %d\n", all, own);
}

int main(int arguments, char **argument)
{
    pthread_t leader = pthread_self(), other;
    int on = 1;
    tcp_pair(fds);
    if (pipe(report))
        fail("pipe");
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fork() == 0) {
        close(fds[0]);
        receiver();
    }
    close(fds[1]);
    printf("before: in time: %s\n", yes(in_time(9)));
    if (arguments > 1) {
        show_tables();
        return 0;
    }
    if (pthread_create(&other, NULL, survivor, &leader))
        fail("pthread_create");
    pthread_exit(NULL);
}

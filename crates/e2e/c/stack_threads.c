/* Threads, signals, duplicated descriptors, and processes. */
#include "far.h"
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char said[64];
static int waits_on;

static void *reads(void *unused UNUSED)
{
    char byte;
    snprintf(said, sizeof said, "%s", result(recv(waits_on, &byte, 1, 0)));
    return NULL;
}

static void *polls(void *unused UNUSED)
{
    struct pollfd one = {waits_on, POLLIN, 0};
    int count = poll(&one, 1, 2000);
    snprintf(said, sizeof said, "%d %x", count, one.revents);
    return NULL;
}

static void *waits_for_set(void *set)
{
    struct epoll_event event = {0};
    int count = epoll_wait((int)(long)set, &event, 1, 2000);
    snprintf(said, sizeof said, "%d %x", count, event.events);
    return NULL;
}

static void *accepts(void *unused UNUSED)
{
    int fd = accept(waits_on, NULL, NULL);
    snprintf(said, sizeof said, "%s", fd < 0 ? strerrorname_np(errno) : "somebody");
    return NULL;
}

static pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    said[0] = 0;
    pthread_create(&thread, NULL, body, argument);
    sleep_ms(30);
    return thread;
}

/* One thread waits; another creates, uses and closes sockets meanwhile, and ends the wait. */
static void waiting_beside(void)
{
    void *(*bodies[])(void *) = {reads, polls};
    for (int at = 0; at < 2; at++) {
        waits_on = near_accepted(0);
        pthread_t thread = start(bodies[at], NULL);
        int other = near_connected(1);
        write(other, "x", 1);
        far_ok(far("put 1 y"));
        printf("beside a wait: %s", result(read(other, &(char){0}, 1)));
        close(other);
        far("close 1");
        printf(", still waits %s", yes(!*said));
        far_ok(far("put 0 x"));
        pthread_join(thread, NULL);
        printf(", then %s\n", said);
        close(waits_on);
    }
    int set = epoll_create1(0);
    waits_on = near_accepted(0);
    pthread_t thread = start(waits_for_set, (void *)(long)set);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    far_ok(far("put 0 x"));
    printf("added while another waits: %s", result(epoll_ctl(set, EPOLL_CTL_ADD, waits_on, &event)));
    pthread_join(thread, NULL);
    printf(", told %s\n", said);
    close(waits_on);
    close(set);
}

/* Another thread acts on a descriptor that one waits on. */
static void ended_by_another(void)
{
    waits_on = near_accepted(0);
    pthread_t thread = start(reads, NULL);
    shutdown(waits_on, SHUT_RDWR);
    pthread_join(thread, NULL);
    printf("shut while another reads: %s\n", said);
    close(waits_on);
    waits_on = near_accepted(0);
    thread = start(polls, NULL);
    shutdown(waits_on, SHUT_RD);
    pthread_join(thread, NULL);
    printf("shut to read while another polls: %s\n", said);
    close(waits_on);
    waits_on = near_accepted(0);
    thread = start(reads, NULL);
    far_ok(far("reset 0"));
    pthread_join(thread, NULL);
    printf("reset while another reads: %s\n", said);
    close(waits_on);
    /* What the reader gets then differs on Linux, where it goes on reading; but it ends. */
    waits_on = near_connected(0);
    thread = start(reads, NULL);
    close(waits_on);
    sleep_ms(20);
    far("put 0 x");
    pthread_join(thread, NULL);
    /* Linux reports it when data arrives. */
    waits_on = near_accepted(0);
    thread = start(polls, NULL);
    double closed = now_ms();
    close(waits_on);
    far("put 0 x");
    pthread_join(thread, NULL);
    printf("closed while another polls: %s, soon %s\n", said, yes(now_ms() - closed < 1000));
    int port, listener = waits_on = near_listener(near_address, &port);
    thread = start(accepts, NULL);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    printf("shut while another accepts: %s\n", said);
    close(listener);
}

static int accepted_late;

static void *accepts_late(void *listener)
{
    /* It does not take the processor from the thread that wakes it. */
    sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    near_sleeps();
    accepted_late = accept((int)(long)listener, NULL, NULL);
    return NULL;
}

/* Returns whether another process could lock a file. */
static bool is_free(const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(path, O_RDWR);
        _exit(fd < 0 || fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}

/* A thread waits in accept(2) as another closes the listener and gets its number for something else: a file, which the program
 * locks, or another listener. On Linux the thread goes on waiting there; what it hears is not compared. */
static void number_of_a_listener_that_is_closed(void)
{
    enum { OFTEN = 40 };
    char path[64];
    int unlocked = 0, changed = 0, taken = 0, others = 0, port, memory = memfd_create("lock", 0);
    cpu_set_t before, one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_getaffinity(0, sizeof before, &before);
    /* On one processor it wakes when the number is another descriptor's. */
    sched_setaffinity(0, sizeof one, &one);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), memory);
    for (int at = 0; at < OFTEN; at++) {
        pthread_t thread;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int listener = near_listener(near_address, &port);
        pthread_create(&thread, NULL, accepts_late, (void *)(long)listener);
        near_asleep();
        close(listener);
        int fd = open(path, O_RDWR);
        others += fd != listener;
        fcntl(fd, F_SETLK, &lock);
        sleep_ms(10);
        unlocked += is_free(path);
        changed += (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
        close(fd);
    }
    close(memory);
    printf("a file in the place of a listener where another accepts: unlocked %d, changed %d, others %d\n", unlocked, changed, others);
    accepted_late = -1;
    for (int at = 0; at < OFTEN; at++) {
        pthread_t thread;
        int listener = near_listener(near_address, &port), other = near_listener(near_address, &port);
        struct sockaddr_storage name;
        socklen_t length = far_name(&name, near_address, port);
        int here = far_socket(0);
        connect(here, (struct sockaddr *)&name, length);
        pthread_create(&thread, NULL, accepts_late, (void *)(long)listener);
        near_asleep();
        close(listener);
        int copy = dup(other);
        others += copy != listener;
        sleep_ms(10);
        taken += accepted_late >= 0;
        close(copy);
        close(other);
        close(here);
    }
    printf("another listener there: taken %d, others %d\n", taken, others);
    sched_setaffinity(0, sizeof before, &before);
}

static void *selects(void *unused UNUSED)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(waits_on, &set);
    int count = select(waits_on + 1, &set, NULL, NULL, &(struct timeval){2, 0});
    snprintf(said, sizeof said, "%d %s", count, yes(FD_ISSET(waits_on, &set)));
    return NULL;
}

enum { LONG = 8 << 20 };

static void *writes(void *unused UNUSED)
{
    static char bytes[LONG];
    size_t sent = 0;
    far_pattern(bytes, 0, LONG);
    while (sent < LONG) {
        ssize_t count = write(waits_on, bytes + sent, LONG - sent);
        if (count < 0)
            break;
        sent += (size_t)count;
    }
    snprintf(said, sizeof said, "%zu", sent);
    return NULL;
}

/* A duplicate of a descriptor, as received by the process that it is passed to. */
static int passed(int fd)
{
    int pair[2], copy;
    char byte = 'x', room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || sendmsg(pair[0], &message, 0) != 1 ||
        recvmsg(pair[1], &message, 0) != 1)
        fail("passing a descriptor");
    memcpy(&copy, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof copy);
    close(pair[0]);
    close(pair[1]);
    return copy;
}

/* A connection is passed to another process, too, while a thread waits for it here. */
static void shared_while_waiting(void)
{
    void *(*bodies[])(void *) = {reads, polls, selects, waits_for_set};
    const char *names[] = {"recv", "poll", "select", "epoll_wait"};
    for (int forks = 0; forks < 2; forks++)
        for (int at = 0; at < 4; at++) {
            int set = epoll_create1(0);
            waits_on = near_accepted(0);
            struct epoll_event event = {EPOLLIN, {.u64 = 1}};
            epoll_ctl(set, EPOLL_CTL_ADD, waits_on, &event);
            pthread_t thread = start(bodies[at], (void *)(long)set);
            if (forks) {
                pid_t child = fork();
                if (child == 0)
                    _exit(write(waits_on, "c", 1) != 1);
                waitpid(child, NULL, 0);
            } else {
                int copy = passed(waits_on);
                write(copy, "c", 1);
                close(copy);
            }
            sleep_ms(20);
            printf("%s while %s: still waits %s", forks ? "forked" : "passed on", names[at],
                   yes(!*said));
            far_ok(far("put 0 x"));
            pthread_join(thread, NULL);
            printf(", then %s", said);
            close(waits_on);
            close(set);
            printf(", it has %s\n", far("end 0"));
        }
    waits_on = near_accepted(0);
    pthread_t thread = start(writes, NULL);
    sleep_ms(100);
    close(passed(waits_on));
    printf("passed on while writing: still waits %s", yes(!*said));
    printf(", arrives %s", far("take 0 %d", LONG));
    pthread_join(thread, NULL);
    close(waits_on);
    printf(", written %s, then %s\n", said, far("end 0"));
}

static volatile int handled;
static void on_signal(int signal UNUSED) { handled++; }

static void *shoots(void *thread)
{
    sleep_ms(40);
    pthread_kill((pthread_t)thread, SIGUSR1);
    sleep_ms(40);
    far_ok(far("put 0 x"));
    return NULL;
}

static void signals(void)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = restarts ? SA_RESTART : 0};
        sigaction(SIGUSR1, &action, NULL);
        for (int way = 0; way < 5; way++) {
            int fd = near_accepted(0), set = epoll_create1(0), port;
            struct epoll_event event = {EPOLLIN, {.u64 = 1}};
            epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
            pthread_t thread;
            handled = 0;
            pthread_create(&thread, NULL, shoots, (void *)pthread_self());
            const char *names[] = {"recv", "recv with a time", "poll", "epoll_wait", "select"};
            if (way == 1)
                setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){1, 0}, sizeof(struct timeval));
            fd_set readable;
            FD_ZERO(&readable);
            FD_SET(fd, &readable);
            printf("%s, %s:", names[way], restarts ? "SA_RESTART" : "no SA_RESTART");
            errno = 0;
            if (way < 2)
                printf(" %s", result(recv(fd, &(char){0}, 1, 0)));
            else if (way == 2)
                printf(" %s", result(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000)));
            else if (way == 3)
                printf(" %s", result(epoll_wait(set, &event, 1, 1000)));
            else
                printf(" %s", result(select(fd + 1, &readable, NULL, NULL, NULL)));
            pthread_join(thread, NULL);
            printf(", handled %d\n", handled);
            close(fd);
            close(set);
        }
    }
}

/* Number of the wait that a thread is about to begin; negative at the end. */
/* By other means than sigaction(2) and signal(3). */
static void signals_of_old(void)
{
    const char *names[] = {"siginterrupt", "signal behind that", "siginterrupt, not", "sigset",
                           "sigset, held", "sigset again"};
    struct sigaction now;
    signal(SIGUSR1, on_signal);
    for (int way = 0; way < 6; way++) {
        int fd = near_accepted(0);
        pthread_t thread;
        printf("%s: ", names[way]);
        if (way == 0 || way == 2)
            printf("%s", result(siginterrupt(SIGUSR1, way == 0)));
        else if (way == 1)
            printf("%s", yes(signal(SIGUSR1, on_signal) == on_signal));
        else
            printf("%s", yes(sigset(SIGUSR1, way == 4 ? SIG_HOLD : on_signal) ==
                             (way == 5 ? SIG_HOLD : on_signal)));
        sigaction(SIGUSR1, NULL, &now);
        printf(" %x %s", now.sa_flags & SA_RESTART, yes(now.sa_handler == on_signal));
        handled = 0;
        pthread_create(&thread, NULL, shoots, (void *)pthread_self());
        printf(", %s", result(recv(fd, &(char){0}, 1, 0)));
        pthread_join(thread, NULL);
        printf(", handled %d\n", handled);
        close(fd);
    }
    printf("of no signal: %s", result(siginterrupt(0, 1)));
    printf(", %s\n", yes(sigset(0, on_signal) == SIG_ERR));
}

static atomic_int waits;

/* Sends a signal some microseconds after a thread was about to wait, each time. */
static void *shoots_often(void *thread)
{
    for (int round = 1;; round++) {
        int seen;
        while ((seen = atomic_load(&waits)) >= 0 && seen < round)
            ;
        if (seen < 0)
            return NULL;
        double begun = now_ms();
        while (now_ms() - begun < 0.003 + round % 40 * 0.001)
            ;
        pthread_kill((pthread_t)thread, SIGUSR1);
    }
}

/* Wherever in a call it comes, a signal ends the wait. */
static void signals_anywhere(void)
{
    enum { ROUNDS = 400, FEW = 8 };
    int fd = near_accepted(0), forgotten = 0;
    pthread_t thread;
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
    pthread_create(&thread, NULL, shoots_often, (void *)pthread_self());
    for (int round = 1; round <= ROUNDS; round++) {
        int before = handled;
        atomic_store(&waits, round);
        bool ended = poll(&(struct pollfd){fd, POLLIN, 0}, 1, 50) < 0;
        /* The call could not know of a signal that came before it. */
        forgotten += !ended && handled != before;
        while (handled == before)
            ;
    }
    atomic_store(&waits, -1);
    pthread_join(thread, NULL);
    printf("signals at any time: hardly any was forgotten: %s\n", yes(forgotten <= FEW));
    fprintf(stderr, "forgotten: %d of %d\n", forgotten, ROUNDS);
    close(fd);
}

enum { SHOTS = 400 };
static atomic_int enters, returned, lost;

/* A signal each time that the other thread enters a call, microseconds later. One that does not end the call has come too early,
 * or was lost. */
static void *shoots_early(void *thread)
{
    for (int shot = 0; shot < SHOTS; shot++) {
        while (!atomic_exchange(&enters, 0))
            ;
        double begun = now_ms();
        while (now_ms() - begun < shot % 20 * 0.001)
            ;
        pthread_kill((pthread_t)thread, SIGUSR1);
        for (begun = now_ms(); !atomic_load(&returned);) {
            if (now_ms() - begun < 20)
                continue;
            lost++;
            begun = now_ms();
            pthread_kill((pthread_t)thread, SIGUSR1);
        }
        atomic_store(&returned, 0);
    }
    return NULL;
}

/* Sends that many signals to a thread that calls recv(2), and returns how many calls were interrupted. */
static int shot_at(void)
{
    int fd = near_accepted(0), interrupted = 0;
    pthread_t shooter;
    lost = 0;
    pthread_create(&shooter, NULL, shoots_early, (void *)pthread_self());
    for (int shot = 0; shot < SHOTS; shot++) {
        atomic_store(&enters, 1);
        interrupted += recv(fd, &(char){0}, 1, 0) < 0 && errno == EINTR;
        atomic_store(&returned, 1);
        while (atomic_load(&returned))
            ;
    }
    pthread_join(shooter, NULL);
    close(fd);
    return interrupted;
}

/* Signals that come when a call has just begun. On a busy machine the interrupted thread may return too late to tell that from a
 * lost signal, so it is tried again: a signal that is lost is lost each time. */
static void early_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    int interrupted = shot_at();
    for (int tries = 1; lost > SHOTS / 40 && interrupted == SHOTS && tries < 5; tries++)
        interrupted = shot_at();
    if (lost > SHOTS / 40)
        printf("signals of %d that were forgotten: %d\n", SHOTS, lost);
    printf("signals as a call begins: all interrupt %s\n", yes(interrupted == SHOTS));
}

static void cancelled(void)
{
    void *(*bodies[])(void *) = {reads, polls, accepts};
    for (int at = 0; at < 3; at++) {
        int port;
        void *value;
        waits_on = at == 2 ? near_listener(near_address, &port) : near_connected(0);
        pthread_t thread = start(bodies[at], NULL);
        pthread_cancel(thread);
        pthread_join(thread, &value);
        printf("cancelled: %s, said \"%s\"", yes(value == PTHREAD_CANCELED), said);
        if (at < 2) {
            far_ok(far("put 0 x"));
            printf(", read %s", result(read(waits_on, &(char){0}, 1)));
        }
        printf("\n");
        close(waits_on);
    }
}

static atomic_int has_written, is_cancelled;

static void *reads_cancelled(void *argument)
{
    (void)argument;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    char words[10];
    far_pattern(words, 0, sizeof words);
    ssize_t wrote = write(waits_on, words, sizeof words);
    snprintf(said, sizeof said, "wrote %zd", wrote);
    atomic_store(&has_written, 1);
    while (!atomic_load(&is_cancelled))
        ;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    read(waits_on, &(char){0}, 1);
    return NULL;
}

/* Cancelled before it begins to read, with written data that leaves as it starts to read. */
static void cancelled_with_words(void)
{
    for (int time = 0; time < 3; time++) {
        void *value;
        waits_on = near_connected(0);
        has_written = is_cancelled = 0;
        pthread_t thread;
        pthread_create(&thread, NULL, reads_cancelled, NULL);
        while (!atomic_load(&has_written))
            ;
        pthread_cancel(thread);
        atomic_store(&is_cancelled, 1);
        pthread_join(thread, &value);
        printf("cancelled before it reads: %s, %s", yes(value == PTHREAD_CANCELED), said);
        printf(", the other end has %s", far("take 0 10"));
        far_ok(far("put 0 x"));
        printf(", read %s\n", result(read(waits_on, &(char){0}, 1)));
        close(waits_on);
        far("close 0");
    }
}

static void *looks_for_ever(void *unused UNUSED)
{
    char byte;
    while (recv(waits_on, &byte, 1, MSG_PEEK) == 1)
        ;
    return NULL;
}

static void *talks_for_ever(void *unused UNUSED)
{
    char byte = 0;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) {
        recv(waits_on, &byte, 1, MSG_PEEK);
        send(waits_on, &byte, 1, MSG_DONTWAIT);
    }
    return NULL;
}

static bool is_joined(pthread_t thread)
{
    void *value = NULL;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return !pthread_timedjoin_np(thread, &value, &until) && value == PTHREAD_CANCELED;
}

/* Cancelled in calls that never wait, as there is always data to read; and anywhere. */
static void cancelled_while_it_flows(void)
{
    waits_on = near_connected(0);
    far_ok(far("put 0 x"));
    while (recv(waits_on, &(char){0}, 1, MSG_PEEK) != 1)
        ;
    pthread_t thread = start(looks_for_ever, NULL);
    pthread_cancel(thread);
    printf("cancelled while it flows: %s\n", yes(is_joined(thread)));
    int ended = 0;
    for (int time = 0; time < 40; time++) {
        pthread_create(&thread, NULL, talks_for_ever, NULL);
        usleep(500 + (useconds_t)time * 37);
        pthread_cancel(thread);
        ended += is_joined(thread);
    }
    char byte;
    printf("cancelled anywhere: %d, read %s\n", ended, result(read(waits_on, &byte, 1)));
    close(waits_on);
    far("close 0");
}

static void *does_nothing(void *unused UNUSED) { return NULL; }

/* A change of user is taken over by all threads of a process, whichever of them was started first. */
static void other_user(int threads_first)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        alarm(10);
        if (threads_first) {
            pthread_create(&thread, NULL, does_nothing, NULL);
            pthread_join(thread, NULL);
        }
        int fd = near_connected(1);
        struct pollfd one = {fd, POLLIN, 0};
        poll(&one, 1, 20);
        _exit(setgid(getgid()) || setuid(getuid()));
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("another user, threads first %d: %x\n", threads_first, status);
    far("close 1");
}

static void *talks_and_ends(void *unused UNUSED)
{
    sleep_ms(100);
    (void)!write(waits_on, "x", 1);
    sleep_ms(100);
    return NULL;
}

/* A process whose first thread ends goes on until its last one does. */
static void without_its_first(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        alarm(10);
        waits_on = near_connected(1);
        pthread_create(&thread, NULL, talks_and_ends, NULL);
        pthread_exit(NULL);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("without its first thread: %x, the other end has %s\n", status, far("end 1"));
    far("close 1");
}

static void copies(void)
{
    int fd = near_accepted(0), all[5] = {fd};
    char bytes[8];
    all[1] = dup(fd);
    all[2] = dup2(fd, 300);
    all[3] = dup3(fd, 301, O_CLOEXEC);
    all[4] = fcntl(fd, F_DUPFD_CLOEXEC, 302);
    printf("copies: %d %d, bad %s", all[2], all[3], result(dup3(fd, fd, 0)));
    printf(", onto itself %s, flags", yes(dup2(fd, fd) == fd));
    for (int at = 0; at < 5; at++)
        printf(" %d", fcntl(all[at], F_GETFD));
    set_nonblocking(all[2], true);
    printf(", not blocking %s", result(read(all[4], bytes, 1)));
    set_nonblocking(fd, false);
    for (int at = 0; at < 5; at++) {
        far_ok(far("put 0 a"));
        printf(", %s", result(read(all[at], bytes, 8)));
        write(all[at], "b", 1);
        close(all[at]);
        printf(" closed %s", result(read(all[at], bytes, 1)));
    }
    printf(", it has %s\n", far("end 0"));
    /* Onto another connection, which ends by that. */
    fd = near_accepted(0);
    int other = near_connected(1);
    printf("dup2 onto another: %s", yes(dup2(fd, other) == other));
    printf(", which has %s", far("end 1"));
    write(other, "x", 1);
    close(fd);
    close(other);
    printf(", and the one %s\n", far("end 0"));
    /* A range of them, and all above. */
    fd = near_accepted(0);
    dup2(fd, 400);
    dup2(fd, 401);
    printf("close_range: %s", result(close_range(400, 401, 0)));
    printf(" %s", result(write(400, "x", 1)));
    close(fd);
    printf(", it has %s", far("end 0"));
    fd = near_accepted(0);
    fcntl(fd, F_DUPFD, 500);
    close(fd);
    printf(", from 100 on %s", result(close_range(100, ~0U, 0)));
    printf(", it has %s", far("end 0"));
    fd = near_accepted(0);
    fcntl(fd, F_DUPFD, 500);
    close(fd);
    closefrom(100);
    printf(", closefrom, it has %s", far("end 0"));
    fd = near_accepted(0);
    fcntl(fd, F_DUPFD, 500);
    close(fd);
    printf(", by its number %s", result(syscall(SYS_close_range, 100, ~0U, 0)));
    printf(", it has %s", far("end 0"));
    fd = near_accepted(0);
    write(fd, "alive", 5);
    close(fd);
    printf(", another %s\n", far("end 0"));
}

/* A process may ask itself for a descriptor, too: another duplicate. */
static void asked_for(void)
{
    char byte = '-';
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0), fd = near_accepted(0);
    int copy = (int)syscall(SYS_pidfd_getfd, self, fd, 0);
    far_ok(far("put 0 ab"));
    printf("pidfd_getfd: read %s", result(read(copy, &byte, 1)));
    printf(" %c, by the other %s", byte, result(read(fd, &byte, 1)));
    printf(" %c, F_GETFD %d", byte, fcntl(copy, F_GETFD));
    set_nonblocking(copy, true);
    printf(", not blocking %s", result(read(fd, &byte, 1)));
    close(fd);
    printf(", write %s", result(write(copy, "x", 1)));
    close(copy);
    printf(", it has %s", far("end 0"));
    far("close 0");
    /* Before it is connected. */
    struct sockaddr_storage name;
    int port = atoi(far("listen 1 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    fd = far_socket(0);
    copy = (int)syscall(SYS_pidfd_getfd, self, fd, 0);
    printf(", before: connect %s", result(connect(fd, (struct sockaddr *)&name, length)));
    far_ok(far("accept 0 1"));
    far_count(port);
    printf(", write %s", result(write(copy, "y", 1)));
    close(copy);
    close(fd);
    printf(", it has %s", far("end 0"));
    far("close 0");
    far("close 1");
    printf(", of what is not open %s\n", result(syscall(SYS_pidfd_getfd, self, 900, 0)));
    close(self);
}

/* Two processes on one port: each takes what comes to it, and after one has gone the other takes all. */
static void shared_port(void)
{
    struct sockaddr_storage name;
    int port = 0, on = 1, told[2];
    pid_t children[2];
    pipe(told);
    for (int at = 0; at < 2; at++) {
        int fd = far_socket(0);
        socklen_t length = far_name(&name, near_address, port);
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        if (bind(fd, (struct sockaddr *)&name, length))
            fail("bind");
        getsockname(fd, (struct sockaddr *)&name, &length);
        port = far_port(&name);
        if ((children[at] = fork()) == 0) {
            listen(fd, 64);
            poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
            write(told[1], "r", 1);
            for (;;) {
                int one = accept(fd, NULL, NULL);
                write(one, &"01"[at], 1);
                close(one);
            }
        }
        close(fd);
    }
    char byte;
    read(told[0], &byte, 1);
    read(told[0], &byte, 1);
    int served[2] = {0};
    for (int round = 0; round < 40; round++) {
        if (atoi(far("connect 5 %s %d", near_address, port)) == 0)
            fail("connect");
        const char *end = far("end 5");
        served[end[1] == '1']++;
        far("close 5");
    }
    printf("two at a port: all served %s, each some %s", yes(served[0] + served[1] == 40),
           yes(served[0] && served[1]));
    kill(children[0], SIGKILL);
    waitpid(children[0], NULL, 0);
    sleep_ms(100);
    int right = 0;
    for (int round = 0; round < 10; round++) {
        far("connect 5 %s %d", near_address, port);
        right += !strcmp(far("end 5"), "\"1\" and the end");
        far("close 5");
    }
    printf(", when one was killed %d of 10\n", right);
    kill(children[1], SIGKILL);
    waitpid(children[1], NULL, 0);
    close(told[0]);
    close(told[1]);
}

/* One thread waits; another asks about other connections meanwhile, which may receive what wakes the first. */
static void asked_beside(void)
{
    int other = near_accepted(1), woken = 0;
    for (int round = 0; round < 10; round++) {
        struct tcp_info info;
        waits_on = near_accepted(0);
        pthread_t thread = start(polls, NULL);
        for (int asks = 0; asks < 20; asks++)
            getsockopt(other, IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){sizeof info});
        far_ok(far("put 0 x"));
        pthread_join(thread, NULL);
        woken += !strcmp(said, "1 1");
        close(waits_on);
        far("close 0");
    }
    printf("asked beside a wait: woken %d\n", woken);
    close(other);
    far("close 1");
}

/* A program that writes and then never calls anything again. */
static void busy(void)
{
    int fd = near_accepted(0);
    far_ok(far("later 0 end 0 300"));
    double begun = now_ms();
    write(fd, "x", 1);
    volatile unsigned long count = 0;
    /* The clock is no system call. */
    while (now_ms() - begun < 150)
        count++;
    int queued = -1;
    ioctl(fd, TIOCOUTQ, &queued);
    printf("written before a busy loop: not acknowledged %d\n", queued);
    close(fd);
}

static void *shoots_soon(void *thread)
{
    struct timespec soon = {0, 500 * 1000};
    nanosleep(&soon, NULL);
    pthread_kill((pthread_t)thread, SIGUSR1);
    return NULL;
}

/* A wait that itself specifies which signals are blocked meanwhile. */
static void masked_signals(void)
{
    int fd = near_accepted(0), set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigset_t usr1, none;
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    for (int blocks = 0; blocks < 2; blocks++) {
        /* Blocked in the wait and not outside, or the other way round. */
        const sigset_t *inside = blocks ? &usr1 : &none, *outside = blocks ? &none : &usr1;
        for (int way = 0; way < 3; way++) {
            static const char *const names[] = {"ppoll", "epoll_pwait", "epoll_pwait2"};
            pthread_sigmask(SIG_SETMASK, outside, NULL);
            handled = 0;
            pthread_t thread;
            pthread_create(&thread, NULL, shoots_soon, (void *)pthread_self());
            struct timespec limit = {0, 60 * 1000 * 1000};
            errno = 0;
            int ended = way == 0   ? ppoll(&(struct pollfd){fd, POLLIN, 0}, 1, &limit, inside)
                        : way == 1 ? epoll_pwait(set, &event, 1, 60, inside)
                                   : epoll_pwait2(set, &event, 1, &limit, inside);
            printf("%s, the signal is blocked %s: %s", names[way], blocks ? "inside" : "outside", result(ended));
            pthread_join(thread, NULL);
            printf(", handled %d\n", handled);
        }
    }
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    close(set);
    close(fd);
}

static sigjmp_buf back;
static void jump(int signal UNUSED) { siglongjmp(back, 1); }

/* A handler that does not return to the call that it has interrupted. */
static void jumped_out(void)
{
    int fd = near_accepted(0);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump}, NULL);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    /* Blocked except in the wait: the place to jump to is saved by then, and the jump blocks it again. */
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    for (volatile int round = 0; round < 20; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, shoots_soon, (void *)pthread_self());
        if (sigsetjmp(back, 1) == 0) {
            pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
            printf("nobody has jumped: %s\n", result(recv(fd, &(char){0}, 1, 0)));
        }
        pthread_join(thread, NULL);
    }
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    far_ok(far("put 0 x"));
    printf("behind 20 jumps out of a wait: %s\n", result(recv(fd, &(char){0}, 1, 0)));
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
    close(fd);
}

enum { MUCH = 8 << 20, HALF = 100000 };
static ssize_t moved;
static char *much;

static void *sends_much(void *unused UNUSED)
{
    moved = send(waits_on, much, MUCH, 0);
    return NULL;
}

static void *takes_both_halves(void *unused UNUSED)
{
    moved = recv(waits_on, much, 2 * HALF, MSG_WAITALL);
    return NULL;
}

static void *sends_messages(void *unused UNUSED)
{
    struct iovec halves[2] = {{much, MUCH / 2}, {much + MUCH / 2, MUCH / 2}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &halves[0], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &halves[1], .msg_iovlen = 1}}};
    int sent = sendmmsg(waits_on, messages, 2, 0);
    moved = sent == 2 ? messages[0].msg_len + messages[1].msg_len : sent;
    return NULL;
}

/* One thread is in the middle of a call when another sets an option that only the kernel has. */
static void in_the_middle(void)
{
    void *(*bodies[])(void *) = {sends_much, sends_messages};
    char *wanted = malloc(MUCH);
    far_pattern(wanted, 0, MUCH);
    much = malloc(MUCH);
    for (int at = 0; at < 2; at++) {
        memcpy(much, wanted, MUCH);
        waits_on = near_accepted(0);
        pthread_t thread = start(bodies[at], NULL);
        printf("in the middle of a send: %s", result(setsockopt(waits_on, SOL_SOCKET, SO_PRIORITY, &(int){1}, 4)));
        printf(", taken %s", far("take 0 %d", MUCH));
        pthread_join(thread, NULL);
        printf(", of %d sent %zd\n", MUCH, moved);
        close(waits_on);
    }
    waits_on = near_accepted(0);
    far_ok(far("send 0 %d", HALF));
    pthread_t thread = start(takes_both_halves, NULL);
    printf("in the middle of MSG_WAITALL: %s", result(setsockopt(waits_on, SOL_SOCKET, SO_PRIORITY, &(int){1}, 4)));
    far_ok(far("send 0 %d", HALF));
    pthread_join(thread, NULL);
    printf(", of %d received %zd, as sent %s\n", 2 * HALF, moved, yes(!memcmp(much, wanted, 2 * HALF)));
    close(waits_on);
    free(much);
    free(wanted);
}

/* Listeners from outside, with options that were set there: one bound to a device gets no connections from others. A listener
 * with an option that only the kernel has is the kernel's; all others are on the stack. */
static void listeners_from_outside(void)
{
    const char *what[] = {"lo", "mark", "buffer", "nothing"};
    for (int way = 0; way < 4; way++) {
        struct sockaddr_storage name;
        socklen_t length = far_name(&name, near_address, 0);
        int set = 0, fd = far_socket(0);
        if (way == 0)
            set = setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
        if (way == 1)
            set = setsockopt(fd, SOL_SOCKET, SO_MARK, &(int){7}, sizeof(int));
        if (way == 2)
            set = setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){20000}, sizeof(int));
        if (set || bind(fd, (struct sockaddr *)&name, length) || listen(fd, 8))
            fail("a listener");
        int copy = passed(fd);
        close(fd);
        getsockname(copy, (struct sockaddr *)&name, &length);
        set_nonblocking(copy, true);
        struct pollfd one = {copy, POLLIN, 0};
        poll(&one, 1, 0);
        int there = atoi(far("connect 0 %s %d", near_address, far_port(&name)));
        printf("from outside, %s: connected %s", what[way], yes(there > 0));
        if (there > 0) {
            poll(&one, 1, 2000);
            int accepted = accept(copy, NULL, NULL), bytes = 0;
            getsockopt(accepted, SOL_SOCKET, SO_RCVBUF, &bytes, &(socklen_t){sizeof bytes});
            printf(", accepted %s, %s octets", yes(accepted >= 0), way == 2 ? result(bytes) : "any");
            if (way > 1)
                far_count(there);
            close(accepted);
            far("close 0");
        }
        printf("\n");
        close(copy);
    }
}

static atomic_bool is_over;
static int in_set;

/* Calls whatever has an answer on the stack and on the kernel's socket, again and again. */
static void *asks_on(void *unused UNUSED)
{
    int value = 1;
    long failed = 0;
    while (!is_over) {
        struct epoll_event event = {EPOLLIN, {.u64 = 1}};
        failed += setsockopt(waits_on, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) != 0;
        failed += getsockopt(waits_on, SOL_SOCKET, SO_KEEPALIVE, &value, &(socklen_t){sizeof value}) != 0;
        failed += ioctl(waits_on, FIONREAD, &value) != 0;
        failed += ioctl(waits_on, FIONBIO, &(int){0}) != 0;
        failed += fcntl(waits_on, F_SETFL, 0) != 0;
        failed += epoll_ctl(in_set, EPOLL_CTL_MOD, waits_on, &event) != 0;
        value = 1;
    }
    return (void *)failed;
}

/* While another thread does that, the connection becomes the kernel's. */
static void asked_meanwhile(void)
{
    long failed = 0;
    int told = 0;
    for (int round = 0; round < 15; round++) {
        struct epoll_event event = {EPOLLIN, {.u64 = 1}};
        void *its;
        waits_on = near_accepted(0);
        in_set = epoll_create1(EPOLL_CLOEXEC);
        epoll_ctl(in_set, EPOLL_CTL_ADD, waits_on, &event);
        is_over = false;
        pthread_t thread = start(asks_on, NULL);
        setsockopt(waits_on, SOL_SOCKET, SO_PRIORITY, &(int){1}, sizeof(int));
        sleep_ms(2);
        is_over = true;
        pthread_join(thread, &its);
        failed += (long)its;
        far_ok(far("put 0 x"));
        told += epoll_wait(in_set, &event, 1, 2000);
        close(in_set);
        close(waits_on);
    }
    printf("asked while it becomes the kernel's: %ld failed, of 15 told %d\n", failed, told);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    waiting_beside();
    ended_by_another();
    number_of_a_listener_that_is_closed();
    shared_while_waiting();
    signals();
    signals_of_old();
    signals_anywhere();
    early_signals();
    masked_signals();
    jumped_out();
    cancelled();
    cancelled_with_words();
    cancelled_while_it_flows();
    other_user(0);
    other_user(1);
    without_its_first();
    asked_for();
    copies();
    shared_port();
    in_the_middle();
    asked_meanwhile();
    listeners_from_outside();
    asked_beside();
    busy();
    return 0;
}

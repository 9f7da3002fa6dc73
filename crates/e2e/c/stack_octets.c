/* Data: every call that sends or receives octets, with its flags. */
#include "far.h"
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <linux/sockios.h>

static int queue(int fd, unsigned long request)
{
    int value = -1;
    return ioctl(fd, request, &value) ? -errno : value;
}

static void receive_flags(int fd, int at)
{
    char bytes[64] = {0};
    printf("nothing there: %s", result(recv(fd, bytes, 8, MSG_DONTWAIT)));
    printf(", to look %s", result(recv(fd, bytes, 8, MSG_DONTWAIT | MSG_PEEK)));
    printf(", no room %s", result(recv(fd, bytes, 0, MSG_DONTWAIT)));
    printf(", read no room %s", result(read(fd, bytes, 0)));
    printf(", out of band %s", result(recv(fd, bytes, 1, MSG_OOB)));
    printf(", errors %s\n", result(recv(fd, bytes, 8, MSG_ERRQUEUE | MSG_DONTWAIT)));
    far_ok(far("put %d abcdefghij", at));
    sleep_ms(10);
    printf("there: %d", queue(fd, FIONREAD));
    printf(", look %s", result(recv(fd, bytes, 4, MSG_PEEK)));
    printf(" %.4s", bytes);
    struct iovec two[] = {{bytes, 3}, {bytes + 10, 20}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2, .msg_namelen = 7, .msg_controllen = 9,
                             .msg_flags = 77};
    printf(", into two %s", result(recvmsg(fd, &message, MSG_PEEK)));
    printf(" %.3s %.7s flags %d", bytes, bytes + 10, message.msg_flags);
    printf(", cut %s", result(recv(fd, NULL, 2, MSG_TRUNC)));
    printf(", then %s", result(recv(fd, bytes, 1, 0)));
    printf(" %.1s", bytes);
    printf(", left %d\n", queue(fd, FIONREAD));
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    printf("recvfrom %s", result(recvfrom(fd, bytes, 2, 0, (struct sockaddr *)&from, &length)));
    printf(" name of %d", (int)length);
    printf(", all %s", result(recv(fd, bytes, 64, MSG_WAITALL | MSG_DONTWAIT)));
    double begun = now_ms();
    far_ok(far("later 40 put %d klmno", at));
    printf(", waitall %s", result(recv(fd, bytes, 5, MSG_WAITALL)));
    printf(" %.5s waited %s", bytes, yes(now_ms() - begun > 20));
    far_ok(far("put %d pq", at));
    far_ok(far("later 40 put %d rs", at));
    printf(", in two halves %s", result(recv(fd, bytes, 4, MSG_WAITALL)));
    printf(" %.4s", bytes);
    far_ok(far("put %d t", at));
    far_ok(far("later 40 put %d u", at));
    printf(", looked for %s", result(recv(fd, bytes, 2, MSG_WAITALL | MSG_PEEK)));
    printf(", taken %s", result(recv(fd, bytes, 2, MSG_WAITALL)));
    printf(" %.2s\n", bytes);
}

static void bad_calls(int fd)
{
    char bytes[8];
    struct iovec none = {NULL, 4}, many[1025];
    struct msghdr message = {.msg_iov = &none, .msg_iovlen = 1};
    for (int at = 0; at < 1025; at++)
        many[at] = (struct iovec){bytes, 0};
    printf("write of nothing: %s", result(write(fd, bytes, 0)));
    printf(", send %s", result(send(fd, bytes, 0, 0)));
    printf(", from nowhere %s", result(send(fd, NULL, 4, MSG_DONTWAIT)));
    printf(", sendmsg %s", result(sendmsg(fd, &message, MSG_DONTWAIT)));
    printf(", writev of 0 %s", result(writev(fd, many, 0)));
    printf(", of 1024 %s", result(writev(fd, many, 1024)));
    printf(", of 1025 %s", result(writev(fd, many, 1025)));
    printf(", of -1 %s\n", result(writev(fd, many, -1)));
    message.msg_iov = many;
    message.msg_iovlen = 1025;
    printf("sendmsg of 1025: %s", result(sendmsg(fd, &message, 0)));
    printf(", recvmsg %s", result(recvmsg(fd, &message, MSG_DONTWAIT)));
    printf(", readv of 1025 %s", result(readv(fd, many, 1025)));
    printf(", pread %s", result(pread(fd, bytes, 1, 0)));
    printf(", pwrite %s", result(pwrite(fd, bytes, 1, 0)));
    printf(", lseek %s", result(lseek(fd, 0, SEEK_SET)));
    printf(", sendto %s", result(sendto(fd, "z", 1, 0, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, 16)));
    printf(", fsync %s\n", result(fsync(fd)));
}

/* What is written in all these ways is one stream. */
static void writes(int fd, int at)
{
    enum { ALL = 1 << 20, PIECES = 16 };
    static char bytes[ALL];
    struct iovec pieces[PIECES];
    size_t sent = 0, begin = 0;
    far_pattern(bytes, 0, ALL);
    /* Odd pieces, one of them empty and one nearly all. */
    for (int each = 0; each < PIECES; each++) {
        size_t length = each == 3 ? 0 : each == 7 ? ALL - 120000 : (size_t)(each * 1111 + 1);
        if (each == PIECES - 1)
            length = ALL - begin;
        pieces[each] = (struct iovec){bytes + begin, length};
        begin += length;
    }
    far_ok(far("later 0 take %d %d", at, ALL));
    printf("writev: %s", result(writev(fd, pieces, PIECES)));
    sent = ALL;
    printf(", more %s\n", far("take %d 0", at));
    /* send, write, sendto, sendmsg, sendmmsg, with pieces held and not. */
    static char next[4096];
    far_pattern(next, sent, sizeof next);
    struct iovec three[] = {{next + 3, 2}, {next + 5, 1}, {next + 6, 4}};
    struct mmsghdr messages[] = {{{.msg_iov = three, .msg_iovlen = 1}},
                                 {{.msg_iov = three + 1, .msg_iovlen = 2}}};
    printf("write %s", result(write(fd, next, 1)));
    printf(", send %s", result(send(fd, next + 1, 1, MSG_MORE)));
    printf(", sendto %s", result(sendto(fd, next + 2, 1, MSG_EOR, NULL, 0)));
    printf(", sendmmsg %s", result(sendmmsg(fd, messages, 2, 0)));
    printf(" of %u and %u", messages[0].msg_len, messages[1].msg_len);
    struct msghdr one = {.msg_iov = &(struct iovec){next + 10, 90}, .msg_iovlen = 1};
    printf(", sendmsg %s", result(sendmsg(fd, &one, MSG_NOSIGNAL)));
    printf(", pwritev2 %s", result(pwritev2(fd, &(struct iovec){next + 100, 20}, 1, -1, 0)));
    printf(": %s\n", far("take %d 120", at));
}

static void reads(int fd, int at)
{
    static char bytes[3][300];
    far_ok(far("send %d 500", at));
    sleep_ms(10);
    struct iovec two[] = {{bytes[0], 100}, {bytes[1], 50}};
    printf("readv %s", result(readv(fd, two, 2)));
    struct iovec each[] = {{bytes[2], 10}, {bytes[2] + 10, 300}, {bytes[1] + 50, 9}};
    struct mmsghdr messages[] = {{{.msg_iov = each, .msg_iovlen = 1}},
                                 {{.msg_iov = each + 1, .msg_iovlen = 1}},
                                 {{.msg_iov = each + 2, .msg_iovlen = 1}}};
    printf(", recvmmsg %s", result(recvmmsg(fd, messages, 3, MSG_WAITFORONE, NULL)));
    printf(" of %u and %u", messages[0].msg_len, messages[1].msg_len);
    char all[460], expected[460];
    memcpy(all, bytes[0], 100);
    memcpy(all + 100, bytes[1], 50);
    memcpy(all + 150, bytes[2], 310);
    far_pattern(expected, 0, 460);
    printf(", %s", memcmp(all, expected, 460) ? "wrong" : "right");
    printf(", preadv2 %s", result(preadv2(fd, &(struct iovec){all, 31}, 1, -1, 0)));
    printf(", and %s\n", near_takes(fd, 491 + 9 - 0, 0));
    double begun = now_ms();
    struct timespec limit = {0, 50000000};
    far_ok(far("later 20 send %d 5", at));
    printf("recvmmsg with a time: %s", result(recvmmsg(fd, messages, 1, 0, &limit)));
    printf(" of %u, in time %s\n", messages[0].msg_len, yes(now_ms() - begun < 1000));
    far_ok(far("put %d !", at));
    begun = now_ms();
    far_ok(far("later 30 send %d 1", at));
    messages[0].msg_hdr.msg_iov->iov_len = 1;
    messages[1].msg_hdr.msg_iov->iov_len = 1;
    printf("recvmmsg of two: %s", result(recvmmsg(fd, messages, 2, 0, NULL)));
    printf(", in time %s\n", yes(now_ms() - begun >= 29 && now_ms() - begun < 1000));
    printf("bulk: ");
    far_ok(far("later 0 send %d 1000000", at));
    size_t from = 506;
    printf("%s\n", near_takes(fd, from, 1000000));
}

static void timeouts(int fd, int at)
{
    struct timeval limit = {0, 60000};
    char bytes[8];
    static char much[1 << 16];
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    double begun = now_ms();
    printf("SO_RCVTIMEO: %s", result(recv(fd, bytes, 8, 0)));
    printf(", in time %s", yes(now_ms() - begun > 55 && now_ms() - begun < 1000));
    far_ok(far("put %d xy", at));
    begun = now_ms();
    printf(", waitall %s", result(recv(fd, bytes, 8, MSG_WAITALL)));
    printf(", in time %s\n", yes(now_ms() - begun > 55 && now_ms() - begun < 1000));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int small = 8192;
    far_ok(far("buffer %d %d", at, small));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    long last = 0;
    for (int tries = 0; tries < 1000; tries++) {
        begun = now_ms();
        last = send(fd, much, sizeof much, 0);
        if (last < 0)
            break;
    }
    printf("SO_SNDTIMEO: %s", result(last));
    printf(", in time %s", yes(now_ms() - begun > 55 && now_ms() - begun < 1000));
    printf(", not even %s", result(send(fd, much, 1, MSG_DONTWAIT)));
    printf(", unsent %s\n", yes(queue(fd, SIOCOUTQ) > 0));
}

/* The queue of sent and unacknowledged octets empties by itself. */
static void queues(int fd, int at)
{
    printf("SIOCOUTQ: %d", queue(fd, SIOCOUTQ));
    send(fd, "abc", 3, 0);
    double begun = now_ms();
    while (queue(fd, SIOCOUTQ) > 0 && now_ms() - begun < 2000)
        sleep_ms(1);
    printf(", after a while %d", queue(fd, SIOCOUTQ));
    printf(", SIOCOUTQNSD %d", queue(fd, SIOCOUTQNSD));
    printf(", SIOCATMARK %d", queue(fd, SIOCATMARK));
    printf(", unknown %d\n", queue(fd, 0x9999));
    far_ok(far("shut %d 1", at));
    sleep_ms(10);
    printf("after the end: FIONREAD %d", queue(fd, FIONREAD));
    char bytes[8];
    printf(", read %s", result(read(fd, bytes, 8)));
    printf(", again %s", result(read(fd, bytes, 8)));
    printf(", look %s\n", result(recv(fd, bytes, 8, MSG_PEEK | MSG_DONTWAIT)));
}

/* A call waits for all, and less comes: after it is the end, or a reset, which the next call returns. */
static void waits_for_all(void)
{
    static const char *const last[] = {"shut %d 1", "reset %d"};
    char bytes[8];
    for (int way = 0; way < 2; way++) {
        for (int flags = MSG_WAITALL; flags <= (MSG_WAITALL | MSG_PEEK); flags += MSG_PEEK) {
            int at = 20 + 2 * way + (flags > MSG_WAITALL), fd = near_accepted(at);
            far_ok(far("put %d abcde", at));
            sleep_ms(20);
            char end[32];
            snprintf(end, sizeof end, last[way], at);
            far_ok(far("later 40 %s", end));
            printf("%s all of less %s", way ? "reset:" : "end:", result(recv(fd, bytes, 8, flags)));
            printf(" %.5s", bytes);
            printf(", again %s", result(recv(fd, bytes, 8, flags)));
            printf(", then %s\n", result(recv(fd, bytes, 8, MSG_DONTWAIT)));
            close(fd);
        }
    }
}

static void files(int fd, int at)
{
    enum { ALL = 300000 };
    static char bytes[ALL + 10];
    char name[] = "/tmp/uncork-e2e-XXXXXX";
    int file = mkstemp(name), pipes[2];
    unlink(name);
    far_pattern(bytes + 10, 0, ALL);
    write(file, bytes, sizeof bytes);
    far_ok(far("later 0 take %d %d", at, ALL));
    off_t offset = 10;
    lseek(file, 5, SEEK_SET);
    printf("sendfile from an offset: %s", result(sendfile(fd, file, &offset, 100001)));
    printf(", offset %ld, place %ld", (long)offset, (long)lseek(file, 0, SEEK_CUR));
    lseek(file, offset, SEEK_SET);
    printf(", without %s", result(sendfile(fd, file, NULL, 100000)));
    printf(", place %ld", (long)lseek(file, 0, SEEK_CUR));
    printf(", more than there is %s", result(sendfile(fd, file, NULL, 1 << 30)));
    printf(", at the end %s\n", result(sendfile(fd, file, NULL, 100)));
    printf("%s", far("take %d 0", at));
    pipe(pipes);
    printf(", nothing %s", result(sendfile(fd, file, NULL, 0)));
    printf(", from a pipe %s", result(sendfile(fd, pipes[0], NULL, 1)));
    printf(", from itself %s", result(sendfile(fd, fd, NULL, 1)));
    printf(", to the file %s", result(sendfile(file, fd, NULL, 1)));
    printf(", from nothing %s", result(sendfile(fd, 999, NULL, 1)));
    offset = -1;
    printf(", from before the file %s\n", result(sendfile(fd, file, &offset, 1)));
    close(pipes[0]);
    close(pipes[1]);
    close(file);
}

/* A non-blocking writer is told each time that there is room again, also edge-triggered. */
static void file_by_edges(int fd, int at)
{
    enum { ALL = 8 << 20 };
    static char bytes[ALL];
    char name[] = "/tmp/uncork-e2e-XXXXXX";
    int file = mkstemp(name), set = epoll_create1(0), told = 1;
    unlink(name);
    far_pattern(bytes, 0, ALL);
    pwrite(file, bytes, ALL, 0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    far_ok(far("later 100 take %d %d", at, ALL));
    long sent = 0, refused = 0;
    while (sent < ALL && told == 1) {
        ssize_t taken = sendfile(fd, file, NULL, ALL - sent);
        if (taken > 0) {
            sent += taken;
            continue;
        }
        refused += errno == EAGAIN;
        told = epoll_wait(set, &event, 1, 5000);
    }
    printf("a file by edges: %ld, refused %s, told %d, there %s\n", sent, yes(refused > 0), told,
           far("take %d 0", at));
    close(file);
    close(set);
}

enum { MUCH = 1 << 20 };

/* All that the other host has sent, through a pipe. */
static void splices_much(int fd, int at, const int through[2])
{
    static char got[MUCH], wanted[MUCH];
    far_pattern(wanted, 0, MUCH);
    far_ok(far("later 0 send %d %d", at, MUCH));
    size_t have = 0;
    ssize_t moved = 1;
    while (have < MUCH && moved > 0) {
        moved = splice(fd, NULL, through[1], NULL, MUCH - have, SPLICE_F_MOVE | SPLICE_F_MORE);
        for (ssize_t left = moved; left > 0;) {
            ssize_t taken = read(through[0], got + have, (size_t)left);
            if (taken <= 0)
                fail("read of the pipe");
            have += (size_t)taken;
            left -= taken;
        }
    }
    printf("splice of much: %zu, %s\n", have, memcmp(got, wanted, MUCH) ? "wrong" : "right");
}

/* Until there is no more room, and then the rest. */
static void splices_into_a_shut_window(int fd, int at, const int through[2], size_t sent)
{
    static char bytes[30000];
    size_t begin = sent;
    ssize_t moved;
    set_nonblocking(fd, true);
    do {
        size_t length = sizeof bytes;
        far_pattern(bytes, sent, length);
        if (write(through[1], bytes, length) != (ssize_t)length)
            fail("write to the pipe");
        for (moved = 1; length > 0 && moved > 0; length -= (size_t)(moved > 0 ? moved : 0)) {
            moved = splice(through[0], NULL, fd, NULL, length, SPLICE_F_MOVE);
            sent += moved > 0 ? (size_t)moved : 0;
        }
    } while (moved > 0);
    printf("splice into a shut window: %s, some had room %s", result(moved), yes(sent > begin));
    printf(", there %s", far("take %d %zu", at, sent - begin));
    /* What is left in the pipe is sent when there is room. */
    int left = 0;
    ioctl(through[0], FIONREAD, &left);
    size_t rest = (size_t)left;
    while (left > 0 && poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 5000) == 1) {
        moved = splice(through[0], NULL, fd, NULL, (size_t)left, 0);
        left -= moved > 0 ? (int)moved : 0;
    }
    printf(", left %d, there %s\n", left, far("take %d %zu", at, rest));
    set_nonblocking(fd, false);
}

/* Splices between a connection and pipes. It is the kernel's from the first of these on. */
static void splices(int fd, int at)
{
    int in[2], out[2];
    char bytes[16] = "";
    static char pattern[30000], filler[65536];
    pipe(in);
    pipe(out);
    set_nonblocking(fd, true);
    printf("splice, nothing there: %s", result(splice(fd, NULL, in[1], NULL, 8, 0)));
    printf(", nor in the pipe %s", result(splice(out[0], NULL, fd, NULL, 8, SPLICE_F_NONBLOCK)));
    set_nonblocking(fd, false);
    double begun = now_ms();
    far_ok(far("later 40 put %d abcdef", at));
    printf(", waited for %s", result(splice(fd, NULL, in[1], NULL, 4, SPLICE_F_MOVE)));
    printf(" %s", yes(now_ms() - begun > 20));
    printf(", the rest %s", result(splice(fd, NULL, in[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)));
    printf(", %s", result(read(in[0], bytes, sizeof bytes)));
    printf(" %.6s", bytes);
    printf(", none %s\n", result(splice(fd, NULL, in[1], NULL, 0, 0)));
    printf("splice from a place: %s", result(splice(fd, &(off_t){0}, in[1], NULL, 1, 0)));
    printf(", to a place %s", result(splice(out[0], NULL, fd, &(off_t){0}, 1, 0)));
    printf(", from itself to itself %s", result(splice(fd, NULL, fd, NULL, 1, 0)));
    printf(", from nothing %s", result(splice(999, NULL, fd, NULL, 1, 0)));
    printf(", to nothing %s", result(splice(fd, NULL, 999, NULL, 1, 0)));
    printf(", unknown flags %s\n", result(splice(out[0], NULL, fd, NULL, 1, 0x40)));
    /* A full pipe. */
    set_nonblocking(in[1], true);
    while (write(in[1], filler, sizeof filler) > 0)
        ;
    far_ok(far("put %d ghi", at));
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000);
    printf("splice into a full pipe: %s", result(splice(fd, NULL, in[1], NULL, 8, SPLICE_F_NONBLOCK)));
    set_nonblocking(in[0], true);
    while (read(in[0], filler, sizeof filler) > 0)
        ;
    set_nonblocking(in[0], false);
    set_nonblocking(in[1], false);
    printf(", then %s", result(splice(fd, NULL, in[1], NULL, 8, 0)));
    printf(", %s", result(read(in[0], bytes, sizeof bytes)));
    printf(" %.3s\n", bytes);
    splices_much(fd, at, in);
    /* The other way, in two pieces, the first of which is held back. */
    far_pattern(pattern, 0, sizeof pattern);
    write(out[1], pattern, sizeof pattern);
    printf("splice to it: %s", result(splice(out[0], NULL, fd, NULL, 10001, SPLICE_F_MORE)));
    printf(", more than there is %s", result(splice(out[0], NULL, fd, NULL, 100000, SPLICE_F_MOVE)));
    printf(", there %s\n", far("take %d %zu", at, sizeof pattern));
    splices_into_a_shut_window(fd, at, out, sizeof pattern);
    close(out[1]);
    printf("splice of the end of a pipe: %s", result(splice(out[0], NULL, fd, NULL, 10, 0)));
    far_ok(far("put %d j", at));
    far_ok(far("shut %d 1", at));
    sleep_ms(20);
    printf(", the last %s", result(splice(fd, NULL, in[1], NULL, 10, SPLICE_F_MORE)));
    printf(", of its end %s", result(splice(fd, NULL, in[1], NULL, 10, 0)));
    printf(" %s", result(splice(fd, NULL, in[1], NULL, 10, SPLICE_F_NONBLOCK)));
    printf(", write %s\n", result(write(fd, "x", 1)));
    close(out[0]);
    close(in[0]);
    close(in[1]);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    for (int at = 0; at < 2; at++) {
        int (*pair)(int) = at ? near_connected : near_accepted;
        int fd = pair(at);
        receive_flags(fd, at);
        bad_calls(fd);
        close(fd);
        fd = pair(at + 2);
        writes(fd, at + 2);
        reads(fd, at + 2);
        queues(fd, at + 2);
        close(fd);
        fd = pair(at + 4);
        files(fd, at + 4);
        timeouts(fd, at + 4);
        close(fd);
        fd = pair(at + 6);
        file_by_edges(fd, at + 6);
        close(fd);
        fd = pair(at + 8);
        splices(fd, at + 8);
        close(fd);
    }
    waits_for_all();
    return 0;
}

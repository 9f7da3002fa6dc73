/* Bytes that reach one connection through different calls arrive in the order of the calls, once. */
#include "common.h"
#include <aio.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <linux/sockios.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

static int file_with(const char *text)
{
    char path[] = "/tmp/uncork-e2e-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    put(fd, text);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void by_sendfile(int out)
{
    int in = file_with("[file]");
    off_t offset = 1;
    put(out, "a");
    if (sendfile(out, in, NULL, 6) != 6)
        fail("sendfile");
    put(out, "b");
    if (sendfile64(out, in, &offset, 4) != 4 || offset != 5)
        fail("sendfile64");
    put(out, "c");
    close(in);
}

static void by_splice(int out)
{
    int ends[2];
    if (pipe(ends))
        fail("pipe");
    put(ends[1], "[pipe]");
    put(out, "a");
    if (splice(ends[0], NULL, out, NULL, 6, 0) != 6)
        fail("splice");
    put(out, "b");
    close(ends[0]);
    close(ends[1]);
}

static void by_vectors(int out)
{
    struct iovec two[2] = {{"cd", 2}, {"e", 1}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
    struct mmsghdr several[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    put(out, "ab");
    if (writev(out, two, 2) != 3 || sendmsg(out, &message, MSG_MORE) != 3)
        fail("writev");
    if (send(out, "f", 1, MSG_MORE) != 1 || sendmmsg(out, several, 2, 0) != 2)
        fail("sendmmsg");
    if (several[0].msg_len != 3 || several[1].msg_len != 3)
        fail("msg_len");
    if (sendto(out, "g", 1, MSG_DONTWAIT, NULL, 0) != 1)
        fail("sendto");
    put(out, "h");
}

static int drained;

/* Makes room for the bytes that a program goes on with. */
static void drain(int unused UNUSED)
{
    static char sink[65536];
    for (int quiet = 0; quiet < 20; sleep_ms(1), quiet++)
        while (recv(drained, sink, sizeof sink, MSG_DONTWAIT) > 0)
            quiet = 0;
}

/* A signal ends the first message in its middle: the second would follow a gap. */
static void by_interrupted_messages(int out UNUSED)
{
    static char much[1 << 24], rest[1 << 16];
    struct iovec parts[2] = {{much, sizeof much}, {"!", 1}};
    struct mmsghdr several[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                                 {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
    struct sigaction action = {.sa_handler = drain}, before;
    struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    int ends[2], behind = 0;
    ssize_t got;
    memset(much, 'M', sizeof much);
    tcp_pair(ends);
    drained = ends[1];
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &soon, NULL);
    int sent = sendmmsg(ends[0], several, 2, 0);
    sigaction(SIGALRM, &before, NULL);
    close(ends[0]);
    while ((got = read(ends[1], rest, sizeof rest)) > 0)
        behind += memchr(rest, '!', (size_t)got) != NULL;
    printf("  interrupted sendmmsg: %d, the first whole: %s, behind it: %d\n", sent,
           yes(several[0].msg_len == sizeof much), behind);
    close(ends[1]);
}

static void by_raw_calls(int out)
{
    struct iovec two[2] = {{"3", 1}, {"4", 1}};
    put(out, "1");
    syscall(SYS_write, out, "2", 1);
    syscall(SYS_writev, out, two, 2);
    put(out, "5");
    syscall(SYS_sendto, out, "6", 1, MSG_MORE, NULL, 0);
    put(out, "7");
}

static void by_stdio(int out)
{
    FILE *stream = fdopen(dup(out), "w");
    put(out, "a");
    fprintf(stream, "b%d", 1);
    fflush(stream);
    put(out, "c");
    fputs("d", stream);
    fflush(stream);
    setvbuf(stream, NULL, _IONBF, 0);
    put(out, "e");
    fputc('f', stream);
    put(out, "g");
    fwrite("h", 1, 1, stream);
    dprintf(out, "i%d", 2);
    put(out, "j");
    fclose(stream);
    put(out, "k");
}

static void by_stdout(int out)
{
    pid_t child = fork();
    if (child == 0) {
        dup2(out, 1);
        dup2(out, 2);
        close(out);
        put(1, "a");
        printf("b\n"); /* line-buffered */
        put(1, "c");
        printf("d");
        fflush(stdout);
        put(1, "e");
        puts("f");
        errno = 0;
        perror("g");
        write(2, "h", 1) == 1 ? exit(0) : exit(1);
    }
    reap(child, "child");
    put(out, "i");
}

static void by_dprintf(int out)
{
    put(out, "a");
    put(out, "b");
    if (dprintf(out, "%s", "[formatted]") != 11)
        fail("dprintf");
    put(out, "c");
    dprintf(out, "%d", 7);
}

static void by_cork(int out)
{
    int on = 1, off = 0;
    put(out, "a");
    setsockopt(out, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    put(out, "b");
    put(out, "c");
    setsockopt(out, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    put(out, "d");
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    put(out, "e");
    setsockopt(out, SOL_SOCKET, SO_SNDBUF, &(int){20000}, sizeof(int));
    put(out, "f");
}

static void by_large_writes(int out)
{
    static char large[3001];
    memset(large, 'L', 3000);
    put(out, "a");
    put(out, large);
    put(out, "b");
}

static void by_zerocopy(int out)
{
    int on = 1;
    setsockopt(out, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
    put(out, "a");
    if (send(out, "b", 1, MSG_ZEROCOPY) != 1)
        fail("MSG_ZEROCOPY");
    put(out, "c");
}

/* One SEND through a ring, entered by syscall(), between two writes. */
static void by_io_uring(int out)
{
    struct io_uring_params params = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    put(out, "a");
    if (ring < 0) { /* switched off in this kernel: the same in both runs */
        put(out, "b");
        return;
    }
    char *queue = mmap(NULL, params.sq_off.array + 4 * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4 * sizeof *entry, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_SEND;
    entry->fd = out;
    entry->addr = (uintptr_t) "b";
    entry->len = 1;
    ((uint32_t *)(queue + params.sq_off.array))[0] = 0;
    __atomic_store_n((uint32_t *)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        fail("io_uring_enter");
    put(out, "c");
    close(ring);
}

/* So many that no rhythm predicts the last one. */
static void put_some(int out, const char *text, int times)
{
    while (times-- > 0)
        put(out, text);
}

/* libc writes in a thread of its own, the kernel asynchronously. */
static void by_aio(int out)
{
    char b = 'b', d = 'd', f = 'f';
    struct aiocb operation = {.aio_fildes = out, .aio_buf = &b, .aio_nbytes = 1, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *list[] = {NULL, &operation};
    struct iocb kernels = {.aio_fildes = (uint32_t)out, .aio_lio_opcode = IOCB_CMD_PWRITE,
                           .aio_buf = (uintptr_t)&f, .aio_nbytes = 1}, *one = &kernels;
    struct io_event done;
    aio_context_t context = 0;
    put_some(out, "a", 7);
    if (aio_write(&operation))
        fail("aio_write");
    while (aio_error(&operation) == EINPROGRESS)
        ;
    put_some(out, "c", 5);
    operation.aio_buf = &d;
    if (lio_listio(LIO_WAIT, list, 2, NULL))
        fail("lio_listio");
    put_some(out, "e", 9);
    if (syscall(SYS_io_setup, 1, &context) || syscall(SYS_io_submit, context, 1, &one) != 1 ||
        syscall(SYS_io_getevents, context, 1, 1, &done, NULL) != 1)
        fail("io_submit");
    put(out, "g");
    syscall(SYS_io_destroy, context);
}

/* As called by programs with 64-bit offsets. */
static void by_vectors_at_positions(int out)
{
    extern ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int);
    struct iovec two[2] = {{"b", 1}, {"c", 1}};
    put_some(out, "a", 7);
    if (pwritev64v2(out, two, 2, -1, 0) != 2)
        fail("pwritev64v2");
    put(out, "d");
}

static void by_two_connections(int out)
{
    int other[2];
    tcp_pair(other);
    for (char c = 'a'; c < 'g'; c++) {
        put(out, (char[]){c, 0});
        put(other[0], (char[]){c, 0});
        put(other[1], "x");
    }
    close(other[0]);
    show_stream("  the other", other[1]);
    close(other[1]);
}

static void by_shutdown(int out)
{
    put(out, "a");
    put(out, "b");
    shutdown(out, SHUT_WR);
}

int main(void)
{
    struct {
        const char *name;
        void (*body)(int);
    } ways[] = {{"sendfile", by_sendfile},   {"splice", by_splice},
                {"vectors", by_vectors},     {"raw calls", by_raw_calls},
                {"interrupted messages", by_interrupted_messages},
                {"stdio", by_stdio},         {"stdout", by_stdout},
                {"dprintf", by_dprintf},
                {"cork", by_cork},           {"large writes", by_large_writes},
                {"zero-copy", by_zerocopy},  {"vectors at positions", by_vectors_at_positions},
                {"aio", by_aio},
                /* After this one nothing is held any more. */
                {"io_uring", by_io_uring},
                {"two connections", by_two_connections}, {"shutdown", by_shutdown}};
    for (int nodelay = 0; nodelay < 2; nodelay++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            int fds[2];
            tcp_pair(fds);
            setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
            ways[i].body(fds[0]);
            close(fds[0]);
            show_stream(ways[i].name, fds[1]);
            close(fds[1]);
        }
    return 0;
}

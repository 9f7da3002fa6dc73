/* TCP_INFO: what a connection has counted and measured, and of a listener, how many wait. */
#include "far.h"

/* Fields beyond those that libc knows, by their offsets in struct tcp_info of linux/tcp.h (6.18). */
enum {
    LAST_ACK_RECV = 52, RCV_SPACE = 96, DELIVERY_RATE = 160, BYTES_SENT = 200, BYTES_RETRANS = 208, DSACK_DUPS = 216,
    RCV_OOOPACK = 224, TOTAL_RTO = 240
};

static unsigned char info[280];

static socklen_t ask(int fd)
{
    socklen_t length = sizeof info;
    memset(info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length))
        fail("TCP_INFO");
    return length;
}

static unsigned word(int at)
{
    unsigned value;
    memcpy(&value, info + at, sizeof value);
    return value;
}

static unsigned long long wide(int at)
{
    unsigned long long value;
    memcpy(&value, info + at, sizeof value);
    return value;
}

/* Octets went to the other host, and then to this one, as slowly as they were read. Returns whether no frames were reordered, as
 * those of two processors are on a busy machine: a count that is never right is wrong each time. An end that has shrunk its
 * window for that has no room for all that the other host accepts when it is written. */
static bool connection(FILE *out, int fd, int at)
{
    static char bytes[300000];
    far_pattern(bytes, 0, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){1, 0}, sizeof(struct timeval));
    ssize_t written = write(fd, bytes, sizeof bytes);
    if (written < 0)
        fail("write");
    far_ok(far("take %d %zd", at, written));
    if (written != sizeof bytes) {
        fprintf(out, "no room for more than %zd\n", written);
        return false;
    }
    for (int looks = 0; looks == 0 || (word(LAST_ACK_RECV) < 50 && looks < 100); looks++) {
        sleep_ms(60);
        ask(fd);
    }
    const struct tcp_info *known = (const struct tcp_info *)info;
    bool is_calm = wide(BYTES_RETRANS) <= 1448 && word(DSACK_DUPS) <= 1 && !word(TOTAL_RTO);
    /* How large our buffers may become differs; and what a tail-loss probe retransmits, its receiver reports. */
    fprintf(out, "sent: scales %d %s, once %llu, little again %s", known->tcpi_snd_wscale, yes(known->tcpi_rcv_wscale > 0),
            wide(BYTES_SENT) - wide(BYTES_RETRANS), yes(is_calm));
    fprintf(out, ", rate known %s, in reason %s", yes(wide(DELIVERY_RATE) > 0), yes(wide(DELIVERY_RATE) < 100000000000ull));
    fprintf(out, ", heard %s\n", yes(word(LAST_ACK_RECV) >= 50 && word(LAST_ACK_RECV) < 5000));
    far_ok(far("later 20 send %d 200000", at));
    fprintf(out, "came: %s", near_takes(fd, 0, 100000));
    sleep_ms(20);
    fprintf(out, ", %s", near_takes(fd, 100000, 100000));
    ask(fd);
    fprintf(out, ", heard %s, space %s, ahead %u\n", yes(word(LAST_ACK_RECV) < 5000), yes(word(RCV_SPACE) > 0),
            word(RCV_OOOPACK));
    return is_calm && !word(RCV_OOOPACK);
}

static void connections(int at)
{
    bool is_calm = false;
    for (int tries = 0; !is_calm && tries < 5; tries++) {
        char *said = NULL;
        size_t length;
        FILE *out = open_memstream(&said, &length);
        int fd = at ? near_connected(at) : near_accepted(at);
        is_calm = connection(out, fd, at);
        close(fd);
        fclose(out);
        far_ok(far("close %d", at));
        if (is_calm || tries == 4)
            fputs(said, stdout);
        free(said);
    }
}

static void waiting(void)
{
    int port, listener = near_listener(near_address, &port);
    const struct tcp_info *known = (const struct tcp_info *)info;
    unsigned char cut[26];
    socklen_t length = sizeof cut;
    for (int at = 0; at <= 3; at++) {
        ask(listener);
        printf("%d have come: state %d, %u wait of %u\n", at, known->tcpi_state, known->tcpi_unacked, known->tcpi_sacked);
        if (at == 3)
            break;
        far("connect %d %s %d", at, near_address, port);
        /* The last segment of a handshake may be under way. */
        poll(&(struct pollfd){listener, POLLIN, 0}, 1, 1000);
        sleep_ms(50);
    }
    memset(cut, 9, sizeof cut);
    printf("cut: %s", result(getsockopt(listener, IPPROTO_TCP, TCP_INFO, cut, &length)));
    printf(" of %d, %d", (int)length, cut[24]);
    length = sizeof info;
    printf(", nowhere %s\n", result(getsockopt(listener, IPPROTO_TCP, TCP_INFO, NULL, &length)));
    close(accept(listener, NULL, NULL));
    ask(listener);
    printf("one is accepted: %u\n", known->tcpi_unacked);
    close(listener);
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    connections(0);
    connections(1);
    waiting();
    return 0;
}

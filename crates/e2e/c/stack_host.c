/* Host settings that connections follow: what is read back, and when they time out. */
#include "far.h"
#include <linux/sockios.h>

/* Writes one of this host's settings; a setting that this kernel lacks is left as it is. */
static void set(const char *name, const char *value)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s", name);
    FILE *setting = fopen(path, "w");
    if (setting && (fputs(value, setting) < 0 || fclose(setting)))
        fail("%s", name);
}

static void options(int fd, const char *what)
{
    const int names[] = {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_SYNCNT, TCP_LINGER2, TCP_NOTSENT_LOWAT, TCP_USER_TIMEOUT};
    printf("%s:", what);
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        int value = -1;
        socklen_t length = sizeof value;
        printf(" %s", result(getsockopt(fd, IPPROTO_TCP, names[at], &value, &length)));
        printf(" %d", value);
    }
    printf("\n");
}

/* How much is written and not sent until there is no room for more. */
static void notsent(int fd, int at)
{
    static char bytes[4096];
    struct pollfd one = {fd, POLLOUT, 0};
    int unsent = 0;
    far_ok(far("buffer %d 4096", at));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (poll(&one, 1, 300) == 1)
        if (write(fd, bytes, sizeof bytes) < 0 && errno != EAGAIN)
            fail("write");
    if (ioctl(fd, SIOCOUTQNSD, &unsent))
        fail("SIOCOUTQNSD");
    printf("not sent, of 20000: some %s, many more %s\n", yes(unsent > 0), yes(unsent > 28000));
}

/* A connection whose descriptor is closed waits that long for the other end's FIN. */
static void ends(void)
{
    int fds[2] = {near_accepted(0), near_connected(1)};
    for (int at = 0; at < 2; at++)
        close(fds[at]);
    sleep_ms(2500);
    for (int at = 0; at < 2; at++) {
        far_ok(far("shut %d 1", at));
        sleep_ms(1500);
        printf("a late end finds %s\n", far("error %d", at));
    }
}

static void gives_up(int fd, const char *what, double begun)
{
    char byte;
    struct pollfd one = {fd, POLLIN, 0};
    int ready = poll(&one, 1, 15000), error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    /* At most four seconds, on a busy machine. */
    printf("%s: poll %d, %s, in time %s, read %s\n", what, ready, error ? strerrorname_np(error) : "none",
           yes(now_ms() - begun < 12000), result(recv(fd, &byte, 1, MSG_DONTWAIT)));
}

/* The other host's packets no longer arrive. */
static void silence(void)
{
    struct sockaddr_storage name;
    int probed[2] = {near_accepted(2), near_connected(3)}, written[2] = {near_accepted(4), near_connected(5)};
    int port = atoi(far("listen 6 %s", far_address));
    socklen_t length = far_name(&name, far_address, port);
    for (int at = 0; at < 2; at++)
        if (setsockopt(probed[at], SOL_SOCKET, SO_KEEPALIVE, &(int){1}, 4))
            fail("SO_KEEPALIVE");
    far_ok(far("deafen %s", near_address));
    double begun = now_ms();
    int begins = far_socket(SOCK_NONBLOCK);
    printf("connect %s\n", result(connect(begins, (struct sockaddr *)&name, length)));
    for (int at = 0; at < 2; at++)
        if (write(written[at], "?", 1) != 1)
            fail("write");
    gives_up(probed[0], "an accepted one that is probed", begun);
    gives_up(probed[1], "a connected one that is probed", begun);
    gives_up(written[0], "an accepted one that has sent", begun);
    gives_up(written[1], "a connected one that has sent", begun);
    gives_up(begins, "one that begins", begun);
    far_ok(far("undeafen %s", near_address));
}

int main(int count, char **arguments)
{
    far_begin(count, arguments);
    set("tcp_keepalive_time", "86400");
    set("tcp_keepalive_intvl", "40000");
    set("tcp_keepalive_probes", "200");
    set("tcp_syn_retries", "1");
    set("tcp_syn_linear_timeouts", "0");
    set("tcp_retries2", "2");
    set("tcp_fin_timeout", "1");
    set("tcp_notsent_lowat", "20000");
    /* Existing processes notice it within a second. */
    sleep_ms(1200);
    int accepted = near_accepted(0), connected = near_connected(1);
    options(accepted, "an accepted one");
    options(connected, "a connected one");
    notsent(accepted, 0);
    notsent(connected, 1);
    set("tcp_keepalive_time", "1");
    set("tcp_keepalive_intvl", "1");
    set("tcp_keepalive_probes", "2");
    ends();
    silence();
    return 0;
}

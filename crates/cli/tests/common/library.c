/* Stands in for libuncork.so in the tests of the command. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The command recognises the library by this symbol. */
char uncork_published[128];

/* Says which program it is in, if asked to by a variable of the real library. */
__attribute__((constructor)) static void begin(void) {
    if (getenv("UNCORK_DEBUG"))
        fprintf(stderr, "library in %s\n", program_invocation_short_name);
}

/* Reports over the socket. FAKE_REPORT: "none" says nothing, "broken" half a line, "empty"
   connects only; a number is how many sockets to report. */
__attribute__((destructor)) static void end(void) {
    const char *to = getenv("UNCORK_STATS"), *how = getenv("FAKE_REPORT");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!to || strncmp(to, "unix:@", 6) || (how && !strcmp(how, "none")))
        return;
    size_t length = strlen(to + 6);
    memcpy(address.sun_path + 1, to + 6, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address,
                offsetof(struct sockaddr_un, sun_path) + 1 + length))
        return;
    if (how && !strcmp(how, "empty"))
        return;
    FILE *out = fdopen(fd, "w");
    fprintf(out, "{\"schema\":1,\"pid\":%d,\"program\":\"%s\",", getpid(),
            program_invocation_short_name);
    if (how && !strcmp(how, "broken")) {
        fclose(out);
        return;
    }
    fprintf(out, "\"settings\":{\"hold\":\"kernel\"},\"ignored\":[],\"sockets\":[");
    for (int i = 0, n = how ? atoi(how) : 1; i < n; i++)
        fprintf(out,
                "%s{\"fd\":%d,\"peer\":\"127.0.0.1:5001\",\"state\":\"helped\",\"open\":false,"
                "\"held_bytes\":0,\"why\":\"\",\"writes\":%d,\"bytes\":30,\"pushes\":1,"
                "\"packets_saved\":14,\"predicted\":0,\"pushed_by\":{\"read\":1},"
                "\"passed\":{},\"held\":null}",
                i ? "," : "", 3 + i, 15 + i);
    fprintf(out, "],\"sockets_not_listed\":0}\n");
    fclose(out);
}

"""two_writes.py PORT: a thread for each connection, which answers a line in two writes: four
octets, then the line. After "compute" it computes for a while between them; it answers "tail" by
one writev(2) whose last piece is empty, and "file" by a sendfile(2) of more than the file has, and
so "page", with 64 KiB. After "ticks N" it writes N octets, one at a time, with a pause before each,
and expects no answer; after "much N" it gives N octets to one write that waits."""
import os
import socket
import sys
import tempfile
import threading
import time

BUSY = 0.003
PAUSE = 0.01


def compute():
    until = time.perf_counter() + BUSY
    while time.perf_counter() < until:
        pass


def serve(connection):
    for line in connection.makefile("rb"):
        if line.startswith(b"ticks"):
            for _ in range(int(line.split()[1])):
                time.sleep(PAUSE)
                connection.send(b".")
            continue
        if line.startswith(b"much"):
            connection.sendall(bytes(int(line.split()[1])))
            continue
        if line == b"tail\n":
            os.writev(connection.fileno(), [b"HEAD", line, b""])
            continue
        if line in (b"file\n", b"page\n"):
            with tempfile.TemporaryFile() as file:
                file.write(b"HEAD" + line if line == b"file\n" else bytes(65536))
                file.flush()
                os.sendfile(connection.fileno(), file.fileno(), 0, 100_000)
            continue
        connection.send(b"HEAD")
        if line == b"compute\n":
            compute()
        connection.send(line)


listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

"""prefork.py PORT PEER: four workers that serve one connection after the other, as php-fpm's do.
Each octet is answered: with a line with the worker's number; for `c` with what a peer at PEER, port
PORT + 1, says to a client; for `n` with a number while the listener has O_NONBLOCK, which then
holds for all workers, for a moment."""
import fcntl
import os
import socket
import sys
import time

WORKERS = 4
MOMENT = 0.3
PORT = int(sys.argv[1])
FAR = (sys.argv[2], PORT + 1)


def said_by_peer():
    with socket.create_connection(FAR) as connection:
        return connection.recv(100)


def serve(listener):
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            print("listener, not to be waited for", flush=True)
            time.sleep(MOMENT / 30)
            continue
        while asked := connection.recv(1):
            if asked == b"n":
                flags = fcntl.fcntl(listener, fcntl.F_GETFL)
                fcntl.fcntl(listener, fcntl.F_SETFL, flags | os.O_NONBLOCK)
            connection.sendall(said_by_peer() if asked == b"c" else b"%d\n" % os.getpid())
            if asked == b"n":
                time.sleep(MOMENT)
                fcntl.fcntl(listener, fcntl.F_SETFL, flags)
        connection.close()


listener = socket.create_server(("", PORT), backlog=64)
print("listener", listener.fileno(), flush=True)
for _ in range(WORKERS):
    if os.fork() == 0:
        serve(listener)
pid, status = os.wait()
print("worker", pid, "has ended:", status, flush=True)

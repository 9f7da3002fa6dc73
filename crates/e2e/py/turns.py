"""turns.py PORT FILE [set]: four workers that take turns at accepting, with a lock on FILE; with
`set` they wait in epoll(7)."""
import fcntl
import os
import select
import socket
import sys

WORKERS = 4


def serve(listener, path, in_set):
    """Accepts one connection while it holds the lock, and serves it without the lock."""
    lock = open(path, "w")
    if in_set:
        members = select.epoll()
        members.register(listener, select.EPOLLIN)
    while True:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if in_set:
            members.poll()
        connection, _ = listener.accept()
        fcntl.lockf(lock, fcntl.LOCK_UN)
        connection.sendall(connection.recv(4096))
        connection.close()


listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
for _ in range(WORKERS):
    if os.fork() == 0:
        serve(listener, sys.argv[2], len(sys.argv) > 3)
os.wait()

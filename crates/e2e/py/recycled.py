"""recycled.py PORT EACH: four processes that accept at one port, each of which ends after EACH
connections, and is replaced. A connection's first octet is echoed."""
import os
import signal
import socket
import sys

WORKERS = 4


def work(listener, each):
    for _ in range(each):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(connection.recv(1))
    os._exit(0)


listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
workers = set()


def end(*_):
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
while True:
    while len(workers) < WORKERS:
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work(listener, int(sys.argv[2]))
        workers.add(pid)
    workers.discard(os.wait()[0])

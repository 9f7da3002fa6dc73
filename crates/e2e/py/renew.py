"""renew.py PORT: two processes at one listener, each of which echoes the first data on a
connection, and closes it. At SIGUSR1 they are told to end, and two others are started at once, as
in a graceful restart of apache2."""
import os
import signal
import socket
import sys

WORKERS = 2


def work(listener):
    def stop(*_):
        listener.close()

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.sendall(connection.recv(100))


def start(listener):
    worker = os.fork()
    if not worker:
        work(listener)
        sys.exit()
    return worker


def main():
    listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
    told = {signal.SIGUSR1, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, told)
    workers = [start(listener) for _ in range(WORKERS)]
    while True:
        if signal.sigwait(told) == signal.SIGUSR1:
            for worker in workers:
                os.kill(worker, signal.SIGTERM)
            workers = [start(listener) for _ in range(WORKERS)]
        else:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


main()

"""inetd.py greets|fork|vfork|spawn PORT: gives each connection to a program as its standard input
and output, as inetd does: to one of its own or to cat."""
import os
import signal
import socket
import subprocess
import sys


def end(*_):
    os._exit(0)


def give(how, connection):
    fd = connection.fileno()
    if how == "vfork":
        # CPython uses vfork for this where it can.
        subprocess.Popen(["cat"], stdin=connection, stdout=connection)
    elif how == "spawn":
        actions = [(os.POSIX_SPAWN_DUP2, fd, 0), (os.POSIX_SPAWN_DUP2, fd, 1)]
        os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=actions)
    elif not os.fork():
        os.dup2(fd, 0)
        os.dup2(fd, 1)
        if how == "fork":
            os.execv("/bin/cat", ["cat"])
        # It closes the connection before its peer does.
        os.write(1, os.read(0, 100_000))
        os._exit(0)


def main():
    how, port = sys.argv[1:]
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.create_server(("", int(port)), backlog=64)
    while True:
        connection, _ = listener.accept()
        with connection:
            give(how, connection)


main()

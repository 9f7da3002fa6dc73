"""parting.py exit|_exit|exec|killed|handled FILE PORT: sends each of two clients as much of a file
as its connection takes while they do not read, prints how much that was, and ends, by itself or by
a signal, or becomes another program."""
import os
import select
import signal
import socket
import sys

SEND_BUFFER = 4 << 20


def give(connection, data):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    connection.setblocking(False)
    taken = 0
    while taken < len(data):
        try:
            taken += connection.send(data[taken:])
        except BlockingIOError:
            # An instance grants buffer space as it learns of the demand.
            if taken > len(data) // 2 or not select.select([], [connection], [], 1)[1]:
                break
    print("taken", taken, flush=True)


def next_client(listener):
    while True:
        connection, _ = listener.accept()
        if connection.recv(1):
            return connection


def end_by_default(number, _frame):
    assert signal.signal(number, signal.SIG_DFL) is end_by_default
    assert signal.getsignal(number) is signal.SIG_DFL
    os.kill(os.getpid(), number)


def main():
    how, path, port = sys.argv[1:]
    with open(path, "rb") as file:
        data = file.read()
    listener = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    connections = [next_client(listener) for _ in range(2)]
    for connection in connections:
        give(connection, data)
    if how == "_exit":
        os._exit(0)
    if how == "exec":
        os.execv("/bin/sleep", ["sleep", "4"])
    if how == "handled":
        signal.signal(signal.SIGTERM, end_by_default)
    if how in ("killed", "handled"):
        os.kill(os.getpid(), signal.SIGTERM)
        print("still there", flush=True)


main()

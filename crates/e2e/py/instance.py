"""instance.py echo|defers|sends|leaves|forks|late PORT: a server.

echo   sends back what comes, and prints how each connection has ended, and when
defers the same, and accepts a connection only with its first octets (TCP_DEFER_ACCEPT)
sends  sends to every client without end
leaves sends as much as it can to the first client, prints how much that was, and ends
forks  leaves each connection to a child, which sends back what comes
late   accepts a client that sends data, and the others a second later; sends back what comes
"""
import errno
import os
import selectors
import socket
import sys
import time

PIECE = bytes(range(256)) * 256


def every(listener, take):
    """Accepts all connections, and calls take[0] for each one that is readable or writable."""
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connection.setblocking(False)
                selector.register(connection, take[1])
                print("came", flush=True)
            elif not take[0](key.fileobj):
                selector.unregister(key.fileobj)
                key.fileobj.close()


def echo(connection):
    try:
        said = connection.recv(1 << 16)
        connection.sendall(said)
        why = "end"
    except OSError as error:
        said, why = b"", errno.errorcode[error.errno]
    if not said:
        print(why, time.time_ns(), flush=True)
    return bool(said)


def send(connection):
    try:
        connection.send(PIECE)
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


def leave(listener):
    while True:
        connection, _ = listener.accept()
        # Probes that only look for a listener send nothing.
        if connection.recv(1):
            break
    connection.setblocking(False)
    sent = 0
    try:
        while True:
            sent += connection.send(PIECE[sent % 256 :])
    except BlockingIOError:
        print("sent", sent, flush=True)


def fork(listener):
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            while echo(connection):
                pass
            os._exit(0)
        connection.close()


def late(listener):
    while True:
        connection, _ = listener.accept()
        if connection.recv(1):
            break
    print("late", flush=True)
    time.sleep(1)
    every(listener, (echo, selectors.EVENT_READ))


def main():
    how, port = sys.argv[1:]
    listener = socket.create_server(("", int(port)), backlog=64)
    if how == "defers":
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
    if how in ("echo", "defers"):
        every(listener, (echo, selectors.EVENT_READ))
    elif how == "sends":
        every(listener, (send, selectors.EVENT_WRITE))
    elif how == "leaves":
        leave(listener)
    elif how == "late":
        late(listener)
    else:
        fork(listener)


main()

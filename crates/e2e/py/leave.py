"""leave.py close|exit PORT: two processes at one listener, one of which accepts and sends back what
comes, while the other never accepts. At SIGUSR1 the latter closes its listener, or exits."""
import os
import selectors
import signal
import socket
import sys
import time

SHORT = 0.02


def wait(listener, ready):
    """Waits until the listener has a connection, or for a moment."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        if ready:
            selector.select(SHORT)
            print("waits", flush=True)
        return selector.select(SHORT)


def leave(listener, how):
    leaves = []
    signal.signal(signal.SIGUSR1, lambda *_: leaves.append(True))
    wait(listener, True)
    while not leaves:
        # Without a rest: a process asleep on something else leaves its connections to the other.
        wait(listener, False)
    if how == "close":
        listener.close()
        print("closed", flush=True)
        while True:
            time.sleep(SHORT)


def serve(listener):
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    wait(listener, True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not listener:
                if not (said := key.fileobj.recv(100)):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                else:
                    key.fileobj.sendall(said)
                continue
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            selector.register(connection, selectors.EVENT_READ)


def main():
    how, port = sys.argv[1:]
    listener = socket.create_server(("", int(port)), backlog=64)
    leaver = os.fork()
    if not leaver:
        leave(listener, how)
        sys.exit()
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(leaver, signal.SIGUSR1))
    serve(listener)


main()

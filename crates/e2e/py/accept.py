"""accept.py processes|threads PORT: four processes or threads at one listener, each in a blocking
accept(2), send back what comes."""
import os
import signal
import socket
import sys
import threading

OTHERS = 3


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(connection.recv(100))


def end_with(children):
    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)


def main():
    kind, port = sys.argv[1:]
    listener = socket.create_server(("", int(port)), backlog=64)
    children = []
    for _ in range(OTHERS):
        if kind == "threads":
            threading.Thread(target=serve, args=[listener], daemon=True).start()
        elif child := os.fork():
            children.append(child)
        else:
            return serve(listener)
    end_with(children)
    serve(listener)


main()

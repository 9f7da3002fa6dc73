"""Fills a connection whose peer does not read, until no more fits; then a child writes after
that."""
import os
import socket
import sys

listener = socket.create_server(("", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    connection.setblocking(False)
    count = 0
    try:
        while True:
            count += connection.send(b"." * 100_000)
    except BlockingIOError:
        pass
    if os.fork() == 0:
        connection.setblocking(True)
        connection.sendall(b"behind %d" % count)
        os._exit(0)
    connection.close()

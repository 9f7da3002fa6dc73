"""away.py PORT HOW: writes as many octets as each client requests, and then does something else
than call the stack's sockets for a twentieth of a second: it sleeps, reads a pipe, polls nothing,
or computes."""
import os
import select
import socket
import sys
import threading
import time

AWAY = 0.05
how = sys.argv[2]
listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
readable, writable = os.pipe()
while True:
    connection, _ = listener.accept()
    octets = int(connection.recv(16) or 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(2 * octets, 65536))
    connection.sendall(b"x" * octets)
    if how == "sleep":
        time.sleep(AWAY)
    elif how == "pipe":
        threading.Timer(AWAY, os.write, (writable, b".")).start()
        os.read(readable, 1)
    elif how == "poll":
        select.poll().poll(1000 * AWAY)
    else:
        end = time.monotonic() + AWAY
        while time.monotonic() < end:
            pass
    connection.close()

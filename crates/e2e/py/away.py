"""away.py PORT HOW: writes more than may leave at once to who comes, and then does something that is no call on a socket for a
tenth of a second: it sleeps, reads a pipe, or computes."""
import os
import socket
import sys
import threading
import time

OCTETS = 300_000
AWAY = 0.1
how = sys.argv[2]
listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
readable, writable = os.pipe()
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * OCTETS)
    connection.sendall(b"x" * OCTETS)
    if how == "sleep":
        time.sleep(AWAY)
    elif how == "pipe":
        threading.Timer(AWAY, os.write, (writable, b".")).start()
        os.read(readable, 1)
    else:
        end = time.monotonic() + AWAY
        while time.monotonic() < end:
            pass
    connection.close()

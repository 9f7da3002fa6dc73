"""Serves one connection after the other, and for each closes all descriptors that it did not open.

close_all.py PORT: sends back what came before the end, reversed.
"""

import os
import socket
import sys

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), reuse_port=True)
while True:
    connection, _ = listener.accept()
    known = sorted((listener.fileno(), connection.fileno()))
    # close_range(2), as in daemons that cannot know which descriptors they inherit.
    os.closerange(3, known[0])
    os.closerange(known[0] + 1, known[1])
    os.closerange(known[1] + 1, 1 << 20)
    octets = b""
    while piece := connection.recv(1 << 16):
        octets += piece
    connection.sendall(octets[::-1])
    connection.close()

"""narrow.py PORT: receives 100,000 octets in one call that waits for all of them, into a receive
buffer of 4 KiB, and sends them back in one call that waits until all are taken, from a send buffer
of 8 KiB."""
import socket
import sys

OCTETS = 100_000
listener = socket.create_server(("", int(sys.argv[1])))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
while True:
    connection, _ = listener.accept()
    data = connection.recv(OCTETS, socket.MSG_WAITALL)
    sent = 0
    while sent < len(data):
        sent += connection.send(data[sent:])
    connection.close()

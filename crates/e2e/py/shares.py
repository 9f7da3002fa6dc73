"""shares.py PORT: tells each client its process id. Other processes may listen there, too."""
import os
import socket
import sys

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(("", int(sys.argv[1])))
listener.listen(64)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"%d" % os.getpid())
    connection.close()

"""forks.py PORT COUNT: a child for each connection, which may bring data in its SYN (Fast Open)."""
import os
import socket
import sys

listener = socket.socket()
listener.bind(("", int(sys.argv[1])))
listener.listen()
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
print("listens", flush=True)
for _ in range(int(sys.argv[2])):
    connection, _ = listener.accept()
    if os.fork() == 0:
        connection.sendall(b"child " + connection.recv(100))
        connection.close()
        os._exit(0)
    connection.close()
    os.wait()

"""marks.py PORT: accepts one connection at each of two ports, perhaps with data in its SYN (TCP
Fast Open). The second listener goes over to the kernel once its connection has come, by an option
that only the kernel has."""
import select
import socket
import sys

for at in range(2):
    listener = socket.socket()
    listener.bind(("", int(sys.argv[1]) + at))
    listener.listen()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
    print("listens", at, flush=True)
    select.select([listener], [], [])
    if at == 1:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1)
    connection, _ = listener.accept()
    connection.sendall(b"marked " + connection.recv(100))
    connection.close()

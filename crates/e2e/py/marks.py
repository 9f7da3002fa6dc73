"""marks.py PORT: somebody at each of two ports, who may have come with data in his SYN (TCP Fast Open). The second listener is
the kernel's alone when he has come, by an option that only the kernel has."""
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

"""end_first.py PORT: who says "end" is the kernel's from then on (SO_PRIORITY), and hears the end of it; who says
anything else hears that again, and stays."""
import socket
import sys

listener = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
stay = []
while True:
    connection, _ = listener.accept()
    said = connection.recv(100)
    if said == b"end":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
        connection.close()
    else:
        connection.sendall(said)
        stay.append(connection)

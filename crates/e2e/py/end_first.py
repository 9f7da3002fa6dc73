"""end_first.py PORT: a connection that says "end" goes over to the kernel (SO_PRIORITY), and is
closed; any other one is echoed, and kept."""
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

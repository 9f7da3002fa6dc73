"""A server that answers each octet with 300 octets: in two writes, or late."""
import socket
import sys
import time


def put_body(connection):
    connection.sendall(bytes(200))


def put_answer(connection):
    if sys.argv[1] == "late":
        # For an exact time: sleep() alone returns late.
        until = time.perf_counter() + 0.05
        time.sleep(0.0485)
        while time.perf_counter() < until:
            pass
        connection.sendall(bytes(300))
        return
    connection.sendall(bytes(100))
    put_body(connection)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
while len(peer.recv(1)) == 1:
    put_answer(peer)

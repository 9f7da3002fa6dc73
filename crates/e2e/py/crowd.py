"""Processes that all begin at once, each with a connection, beside one that goes on opening some:
prints the longest wait of that one, and of the others."""

import os
import select
import socket
import sys
import time

HOST, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def connect():
    """Opens a connection and has data echoed; returns how long opening took, in milliseconds."""
    begun = time.monotonic()
    with socket.create_connection((HOST, PORT)) as connection:
        took = time.monotonic() - begun
        connection.sendall(b"x")
        assert connection.recv(10) == b"x"
    return took * 1000


# This process has a stack of its own before the others begin.
connect()
reads, writes = os.pipe()
for _ in range(COUNT):
    if os.fork() == 0:
        os.close(reads)
        os.write(writes, b"%d\n" % connect())
        os._exit(0)
os.close(writes)
said, slowest = b"", 0.0
while True:
    slowest = max(slowest, connect())
    if select.select([reads], [], [], 0.005)[0]:
        some = os.read(reads, 4096)
        if not some:
            break
        said += some
others = sorted(int(line) for line in said.split())
assert len(others) == COUNT, said
print(f"{slowest:.0f} {others[-1]}")

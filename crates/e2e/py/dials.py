"""dials.py HOST PORT: opens many connections to one address, in this process, in threads and in a
child of fork, some from a port that it chooses, or from a range; and checks whether other programs
could bind to their ports."""
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
import time

IP_LOCAL_PORT_RANGE = 51
# Another program, which binds to each of these ports.
TAKES = "import socket, sys; [socket.socket().bind((sys.argv[1], int(port))) for port in sys.argv[2:]]"
to = (sys.argv[1], int(sys.argv[2]))


def dial(at=None, ports=None):
    own = socket.socket()
    if ports:
        own.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("HH", *ports))
    if at:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("", at))
    own.connect(to)
    own.sendall(b"hello")
    assert own.recv(100) == b"hello", own
    return own


def refused(port):
    """Returns the error of a bind to that port by another socket, or None."""
    try:
        socket.socket().bind((kept[0].getsockname()[0], port))
    except OSError as error:
        return error.errno
    return None


def check(all_of_them):
    ports = [own.getsockname()[1] for own in all_of_them]
    assert len(set(ports)) == len(ports), ports
    for port in ports:
        assert refused(port) == errno.EADDRINUSE, (port, refused(port))
    for own in all_of_them:
        own.sendall(b"again")
        assert own.recv(100) == b"again", own


kept = [dial() for _ in range(100)]
check(kept)
# A range of ports that are all still free.
first = next(first for first in range(60001, 60900, 4) if not any(map(refused, range(first, first + 4))))
ranged = [dial(ports=(first, first + 3)) for _ in range(4)]
assert {own.getsockname()[1] for own in ranged} == set(range(first, first + 4)), ranged
chosen = dial(at=61010)
assert chosen.getsockname()[1] == 61010, chosen

# The end that closes first is in TIME-WAIT, and its port is not reused for the same peer; other
# programs may bind to it before long.
closed = set()
for _ in range(500):
    own = dial()
    assert own.getsockname()[1] not in closed, own
    closed.add(own.getsockname()[1])
    own.close()
until = time.monotonic() + 20
while subprocess.run([sys.executable, "-c", TAKES, kept[0].getsockname()[0], *map(str, closed)], env={}).returncode:
    assert time.monotonic() < until, "ports of what is closed are kept"
    time.sleep(0.5)
check(kept)

# A port whose connection the peer has closed first is free at once.
for _ in range(3):
    own = dial()
    port = own.getsockname()[1]
    own.sendall(b"bye")
    assert own.recv(100) == b""
    own.close()
    time.sleep(0.1)
    assert refused(port) is None, refused(port)

# Two sockets with SO_REUSEADDR share a port.
first, second = socket.socket(), socket.socket()
for own in (first, second):
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
first.connect(to)
second.bind(first.getsockname())
second.close()

threads = [threading.Thread(target=lambda: kept.extend([dial() for _ in range(20)])) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(kept) == 180, len(kept)
check(kept)

child = os.fork()
if child == 0:
    mine = [dial() for _ in range(50)]
    theirs = {own.getsockname()[1] for own in kept}
    check(mine)
    assert not theirs & {own.getsockname()[1] for own in mine}
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, "the child"
check([dial() for _ in range(50)])

# After a refused connection the same socket connects elsewhere.
again = socket.socket()
try:
    again.connect((to[0], 1))
    raise SystemExit("somebody listens at port 1")
except ConnectionRefusedError:
    pass
again.connect(to)
again.sendall(b"here")
assert again.recv(100) == b"here"
print("dialled")

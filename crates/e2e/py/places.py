"""places.py PORT FAR: sockets of every kind there is under --stack. Prints `name descriptor` of
each, then waits for SIGTERM. FAR listens on PORT, too; a rule leads to its PORT + 4 by a way of its own."""
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys

PORT, FAR = int(sys.argv[1]), sys.argv[2]
SOCK_KERNEL = 0x02000000
kept = []


def say(name, one):
    kept.append(one)
    print(name, one.fileno(), flush=True)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

waiting = socket.create_server(("", PORT))
# This process never waits at this listener.
shared = socket.create_server(("", PORT + 1))
say("later", shared)
loopback = socket.create_server(("127.0.0.1", PORT + 2))
say("loopback", loopback)
asks = socket.socket(socket.AF_INET, socket.SOCK_STREAM | SOCK_KERNEL)
asks.bind(("", PORT + 3))
asks.listen()
say("asks", asks)
say("unused", socket.socket())

inside = socket.create_connection(("127.0.0.1", PORT))
say("inside", inside)
# A connection from the other host may have been first, and may be the one that asks to go on.
early = []
while True:
    accepted, peer = waiting.accept()
    if peer[0] == "127.0.0.1":
        break
    early.append(accepted)
say("other-way", accepted)
say("listener", waiting)

# Connections of the test, on the other host, until one of them asks to go on.
while True:
    accepted = early.pop(0) if early else waiting.accept()[0]
    if accepted.recv(1) == b"g":
        break
say("accepted", accepted)
say("connected", socket.create_connection((FAR, PORT)))

option = socket.create_connection((FAR, PORT))
option.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 1)
say("option", option)
say("twin", waiting.dup())
try:
    fcntl.fcntl(accepted, fcntl.F_SETFL, os.O_ASYNC)
except OSError as error:
    print("refusal", error.errno, flush=True)
asynchronous = socket.socket()
fcntl.fcntl(asynchronous, fcntl.F_SETFL, os.O_ASYNC)
asynchronous.connect((FAR, PORT))
say("asynchronous", asynchronous)
owned = socket.create_connection((FAR, PORT))
fcntl.fcntl(owned, fcntl.F_SETOWN, os.getpid())
say("owned", owned)
streamed = socket.socket()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
kept.append(libc.fdopen(os.dup(streamed.fileno()), b"r"))
streamed.connect((FAR, PORT))
say("streamed", streamed)
by_port = socket.socket()
by_port.setblocking(False)
by_port.connect_ex((FAR, PORT + 4))
say("by-port", by_port)
child = socket.create_connection((FAR, PORT))
subprocess.run(["true"], pass_fds=[child.fileno()], check=True)
say("child", child)

# A child may have this one, too, as it has another one that was already connected.
divided = socket.socket()
if os.fork() == 0:
    os._exit(0)
os.wait()
divided.connect((FAR, PORT))
say("forked", divided)

# Not TCP: these must not be reported.
local = socket.socket(socket.AF_UNIX)
local.bind("\0places-%d" % PORT)
local.listen()
for _ in range(20):
    with socket.socket(socket.AF_UNIX) as to_local:
        to_local.connect(local.getsockname())
        local.accept()[0].close()

with open("/dev/null", "rb") as file:
    print("file", file.fileno(), flush=True)
    print("all", 0, flush=True)
    signal.sigwait({signal.SIGTERM})

"""given.py PORT HOW: waits at its listener once, and then gives it to a child that accepts, and waits there no more: a child of
fork (poll) while it asks poll(2) for nothing of it, or a program that it starts by vfork or posix_spawn, as its
descriptor number."""
import os
import select
import socket
import subprocess
import sys

how = sys.argv[2]


def serve(listener):
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"hi")
        connection.close()


if how == "child":
    serve(socket.socket(fileno=int(sys.argv[1])))
listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
poll = select.poll()
poll.register(listener, select.POLLIN)
poll.poll(500)
os.set_inheritable(listener.fileno(), True)
program = [sys.executable, __file__, str(listener.fileno()), "child"]
if how == "poll":
    if os.fork() == 0:
        serve(listener)
    poll.modify(listener, 0)
elif how == "vfork":
    # By posix_spawn, if it had nothing to close.
    subprocess.Popen(program, pass_fds=[listener.fileno()])
    poll.unregister(listener)
else:
    os.posix_spawn(program[0], program, os.environ)
    poll.unregister(listener)
print("given", flush=True)
ended, _ = os.pipe()
poll.register(ended, select.POLLIN)
while True:
    poll.poll(10_000)
